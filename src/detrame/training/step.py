"""One optimisation step: forward, backward, SGD and the projections; on a GPU, captured once and replayed.

Eager and captured are one code path with one meaning: what is captured is the eager step. A network with a module
whose work depends on the data (``capturable = False``: a dictionary layer) stays eager. On a GPU a captured step's
forward and backward passes are fused where the network allows it (`detrame.fusion`); `fused=False` is the
plain path.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.optim import SGD

from detrame.activations import parameter_groups, project_after
from detrame.inference import as_pixels, fused_pass, precision
from detrame.modes import capturable, capturing, drawing_from, warm_up

Batch = tuple[Tensor, Tensor]  # images and labels
Taken = tuple[Tensor, Tensor]  # the loss, and how many images were classified rightly


class Step:
    """Calling it with a batch takes one step, and returns the loss and how many images were classified rightly.

    Args:
        model: on its device; in training mode from here on. On a GPU its dropout is drawn by the seed that PyTorch's
            default generator has now.
        momentum, nesterov, weight_decay: of SGD; see :func:`detrame.parameter_groups` for what is not decayed.
        fused: whether a GPU may take the fused forward and backward passes instead of the plain ones.
    """

    def __init__(
        self, model: nn.Module, *, momentum: float, nesterov: bool, weight_decay: float, fused: bool = True
    ) -> None:
        self.model = model.train()
        self.device = next(model.parameters()).device
        on_gpu = self.device.type == "cuda"
        # On the device, so that a captured step reads it anew at every replay.
        self._lr = torch.zeros((), device=self.device) if on_gpu else None
        self.optimizer = SGD(
            parameter_groups(model, weight_decay),
            lr=self._lr if self._lr is not None else 0.0,
            momentum=momentum,
            nesterov=nesterov,
            fused=on_gpu or None,
        )
        project_after(self.optimizer, model)
        # Its own, so that the dropout of a network is the same whoever trains beside it.
        self.random = torch.Generator(self.device).manual_seed(torch.initial_seed()) if on_gpu else None
        self.captured = on_gpu and capturable(model)
        self._forward = fused_pass(model) if fused and self.captured else model
        self._graphs: dict[tuple[object, ...], Graph] = {}

    def set_lr(self, lr: float) -> None:
        """The learning rate of the steps to come."""
        if self._lr is not None:
            self._lr.fill_(lr)
        for group in self.optimizer.param_groups:
            group["lr"] = self._lr if self._lr is not None else lr

    def __call__(self, images: Tensor, labels: Tensor) -> Taken:
        """Step on images ``(B, C, H, W)``, 8-bit or in [0, 1], with labels ``(B,)``."""
        if not self.captured:
            return self.take(images, labels)
        graph = self.graph(images, labels)
        graph.load(0, images, labels)
        graph.replay()
        return graph.taken(0)

    def graph(self, images: Tensor, labels: Tensor) -> "Graph":
        """The captured step for batches of this shape."""
        key = tuple(images.shape), images.dtype
        if key not in self._graphs:  # an epoch has two: full batches, and the last
            with torch.cuda.device(self.device):
                self._graphs[key] = Graph([self], [(images, labels)])
        return self._graphs[key]

    def forget(self, images: Tensor) -> None:
        """Give back the memory of the captured step for batches of this shape; it can be captured again."""
        self._graphs.pop((tuple(images.shape), images.dtype), None)

    def take(self, images: Tensor, labels: Tensor) -> Taken:
        """The step itself, which is what a graph captures."""
        self.model.train()
        self.optimizer.zero_grad()
        with precision(self.device), drawing_from(self.random):
            logits = self._forward(as_pixels(images))
            loss = F.cross_entropy(logits, labels)
        loss.backward()  # type: ignore[no-untyped-call]
        self.optimizer.step()
        return loss.detach(), (logits.argmax(1) == labels).sum()

    def state(self) -> list[Tensor]:
        """Everything a step changes; momentum is made if there is none yet, as zeros, which is what none means."""
        momenta = []
        if self.optimizer.defaults["momentum"]:
            for parameter in (p for p in self.model.parameters() if p.requires_grad):
                state = self.optimizer.state[parameter]
                if state.get("momentum_buffer") is None:
                    state["momentum_buffer"] = torch.zeros_like(parameter)
                momenta.append(state["momentum_buffer"])
        return [*self.model.state_dict().values(), *momenta]


class Graph:
    """A step captured as a CUDA graph for one shape of batch; or the steps of several networks, a branch each."""

    def __init__(self, steps: "Sequence[Step]", batches: Sequence[Batch]) -> None:
        self._batches = [(images.clone(), labels.clone()) for images, labels in batches]
        takes = [partial(step.take, *batch) for step, batch in zip(steps, self._batches, strict=True)]
        with unchanged(steps):
            for take in takes:
                warm_up(take)
        self._graph = torch.cuda.CUDAGraph()
        with capturing(self._graph, [step.random for step in steps if step.random is not None]):
            self._taken = _on_branches(takes) if len(takes) > 1 else [takes[0]()]

    def load(self, number: int, images: Tensor, labels: Tensor) -> None:
        """Put the batch of the network of this number in its place."""
        for place, tensor in zip(self._batches[number], (images, labels), strict=True):
            place.copy_(tensor)

    def replay(self) -> None:
        """Take the steps again on the batches that are there."""
        self._graph.replay()

    def taken(self, number: int) -> Taken:
        """What the last step of the network of this number came to."""
        loss, right = self._taken[number]
        return loss.clone(), right.clone()


def _on_branches(takes: Sequence[Callable[[], Taken]]) -> list[Taken]:
    """Queue each on a stream of its own, all between what was queued before and what comes after."""
    here = torch.cuda.current_stream()
    streams: list[torch.cuda.Stream] = [torch.cuda.Stream() for _ in takes]  # type: ignore[no-untyped-call]
    taken = []
    try:
        for stream, take in zip(streams, takes, strict=True):
            stream.wait_stream(here)
            with torch.cuda.stream(stream):
                taken.append(take())
    finally:  # a capture cannot end, and say what cut it short, before its branches are joined
        for stream in streams[: len(taken) + 1]:
            here.wait_stream(stream)
    return taken


@contextmanager
def unchanged(steps: "Sequence[Step]") -> Iterator[None]:
    """Put back, after the block, everything that steps taken in it on a GPU have changed."""
    device = steps[0].device
    kept = [(tensor, tensor.clone()) for step in steps for tensor in step.state()]
    randoms = [(step.random, step.random.get_state()) for step in steps if step.random is not None]
    try:
        yield
    finally:
        torch.cuda.synchronize(device)  # a block that failed may have left steps running on streams of their own
        with torch.no_grad():
            for tensor, value in kept:
                tensor.copy_(value)
        for random, state in randoms:
            random.set_state(state)
        torch.cuda.synchronize(device)  # nor do these streams wait for what puts it back
