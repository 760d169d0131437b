"""One optimisation step: forward, backward, SGD and the projections; on a GPU, captured once and replayed.

Eager and captured are one code path with one meaning: what is captured is the eager step. A network with a module
whose work depends on the data (``capturable = False``: a dictionary layer) stays eager. On a GPU a captured step's
forward and backward passes are fused where the network allows it (`detrame.fusion`); `fused=False` is the
plain path.
"""

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.optim import SGD

from detrame.activations import parameter_groups, project_after
from detrame.inference import as_pixels, fused_pass, precision
from detrame.modes import capturable, warm_up


class Step:
    """Calling it with a batch takes one step, and returns the loss and how many images were classified rightly.

    Args:
        model: on its device; in training mode from here on.
        momentum, nesterov, weight_decay: of SGD; gain and threshold are not decayed.
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
        self._capture = on_gpu and capturable(model)
        self._forward = fused_pass(model) if fused and self._capture else model
        self._graphs: dict[tuple[object, ...], _Graph] = {}

    def set_lr(self, lr: float) -> None:
        """The learning rate of the steps to come."""
        if self._lr is not None:
            self._lr.fill_(lr)
        for group in self.optimizer.param_groups:
            group["lr"] = self._lr if self._lr is not None else lr

    def __call__(self, images: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        """Step on images ``(B, C, H, W)``, 8-bit or in [0, 1], with labels ``(B,)``."""
        if not self._capture:
            return self._eager(images, labels)
        return self.graph(images, labels)(images, labels)

    def graph(self, images: Tensor, labels: Tensor) -> "_Graph":
        """The captured step for batches of this shape."""
        key = tuple(images.shape), images.dtype
        if key not in self._graphs:  # an epoch has two: full batches, and the last
            with torch.cuda.device(self.device):
                self._graphs[key] = _Graph(self._eager, images, labels, self._state())
        return self._graphs[key]

    def _eager(self, images: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        self.model.train()
        self.optimizer.zero_grad()
        with precision(self.device):
            logits = self._forward(as_pixels(images))
            loss = F.cross_entropy(logits, labels)
        loss.backward()  # type: ignore[no-untyped-call]
        self.optimizer.step()
        return loss.detach(), (logits.argmax(1) == labels).sum()

    def _state(self) -> list[Tensor]:
        """Everything a step changes; momentum is made if there is none yet, as zeros, which is what none means."""
        momenta = []
        if self.optimizer.defaults["momentum"]:
            for parameter in (p for p in self.model.parameters() if p.requires_grad):
                state = self.optimizer.state[parameter]
                if state.get("momentum_buffer") is None:
                    state["momentum_buffer"] = torch.zeros_like(parameter)
                momenta.append(state["momentum_buffer"])
        return [*self.model.state_dict().values(), *momenta]


class _Graph:
    """A step captured as a CUDA graph for one size of batch."""

    def __init__(
        self,
        step: Callable[[Tensor, Tensor], tuple[Tensor, Tensor]],
        images: Tensor,
        labels: Tensor,
        state: list[Tensor],
    ) -> None:
        self._images, self._labels = images.clone(), labels.clone()
        before = [tensor.clone() for tensor in state]
        random = torch.cuda.get_rng_state(images.device)
        warm_up(lambda: step(self._images, self._labels))
        for tensor, value in zip(state, before, strict=True):
            tensor.copy_(value)
        torch.cuda.set_rng_state(random, images.device)
        self._graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self._graph):
            self._loss, self._right = step(self._images, self._labels)

    def replay(self) -> None:
        """Take the step again on the batch that is there."""
        self._graph.replay()

    def __call__(self, images: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        self._images.copy_(images)
        self._labels.copy_(labels)
        self.replay()
        return self._loss.clone(), self._right.clone()
