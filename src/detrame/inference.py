"""Predictions, and the one definition of every score that is reported."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from importlib.util import find_spec
from typing import NamedTuple

import torch
from torch import Tensor, nn

from detrame.activations import CoupledReLU, QMetricReLU
from detrame.dictionary import DictionaryLayer
from detrame.errors import TooLarge
from detrame.functional import q_metric_relu
from detrame.modes import capturable, capturing, evaluating, full_precision, warm_up


def predict(model: nn.Module, images: Tensor, *, exact: bool = False) -> Tensor:
    """Logits ``(N, classes)`` in float32 of images ``(N, C, H, W)``: uint8, or float pixels in [0, 1].

    In eval mode, on the device of the images; in bfloat16 on a GPU, unless `exact`: in float32 proper.
    """
    return torch.cat([_logits(model, batch, exact) for batch in in_passes(images)])


def in_passes(images: Tensor) -> Sequence[Tensor]:
    """Images, or what belongs to each, ``(N, ...)``, in batches of as many as are best looked at together.

    That is enough of them to fill a GPU. On a CPU more would only take turns in its caches.
    """
    return torch.split(images, 1000 if images.is_cuda else 100)


@torch.no_grad()
def _logits(model: nn.Module, batch: Tensor, exact: bool = False) -> Tensor:
    with evaluating(model), (full_precision if exact else precision)(batch.device):
        return model(as_pixels(batch, exact=exact)).float()


class Predictor:
    """:func:`predict` for a network that is asked again and again, as while it trains.

    On a GPU the pass is fused where the network allows it, captured once for each shape of batch and replayed. A replay
    reads parameters and statistics where they lie: they may change in place, but not be replaced. Where the pass stays
    plain, what folds is best folded before (`detrame.fold`).
    """

    def __init__(self, model: nn.Module) -> None:
        self._model = model
        with evaluating(model):
            self._capture = capturable(model)
        self._captured: dict[tuple[object, ...], _Captured] = {}

    def __call__(self, images: Tensor) -> Tensor:
        """Logits ``(N, classes)`` in float32 of images ``(N, C, H, W)``."""
        if not images.is_cuda or not self._capture:
            return predict(self._model, images)
        return torch.cat([self._replayed(batch) for batch in in_passes(images)])

    @cached_property
    def _pass(self) -> nn.Module:
        with evaluating(self._model):
            return fused_pass(self._model)

    def _replayed(self, batch: Tensor) -> Tensor:
        key = tuple(batch.shape), batch.dtype
        if key not in self._captured:
            with torch.cuda.device(batch.device):
                self._captured[key] = self._capture_of(batch)
        return self._captured[key](batch)

    def _capture_of(self, batch: Tensor) -> "_Captured":
        try:
            return _Captured(self._pass, batch)
        except TooLarge:
            return _Captured(self._model, batch)


class _Captured:
    """A network's pass over one shape of batch, as a CUDA graph."""

    def __init__(self, model: nn.Module, batch: Tensor) -> None:
        self._batch = batch.clone()
        warm_up(lambda: _logits(model, self._batch))
        self._graph = torch.cuda.CUDAGraph()
        with capturing(self._graph):
            self._logits = _logits(model, self._batch)

    def __call__(self, batch: Tensor) -> Tensor:
        self._batch.copy_(batch)
        self._graph.replay()
        return self._logits.clone()


def fused_pass(model: nn.Module) -> nn.Module:
    """The pass of a network on a GPU, in the mode it is in: fused, or the network itself where that cannot be."""
    if find_spec("triton") is None:
        return model
    from detrame.fusion import fused  # imports Triton

    return fused(model, torch.bfloat16)


def as_pixels(images: Tensor, *, exact: bool = False) -> Tensor:
    """Float pixels in [0, 1] of 8-bit ones, in the layout in which convolutions are faster.

    That is channels last, but on a GPU channels first for `exact` ones, in float32 proper: cuDNN's fast ways to compute
    these, Winograd's above all, are for that layout. What is no batch of images, as a network of another `dim` takes,
    has no such layout.
    """
    pixels = images.float() / 255 if images.dtype == torch.uint8 else images
    first = images.ndim != 4 or (exact and images.is_cuda)
    return pixels.contiguous(memory_format=torch.contiguous_format if first else torch.channels_last)


def precision(device: torch.device) -> torch.autocast:
    """The arithmetic of a device: bfloat16 autocast on a GPU, float32 on the CPU."""
    return torch.autocast(device.type, dtype=torch.bfloat16, enabled=device.type == "cuda")


def accuracy(logits: Tensor, labels: Tensor) -> float:
    """Percent of the images whose largest logit, of ``(N, classes)``, is that of their label, of ``(N,)``."""
    return 100 * (logits.argmax(1) == labels).double().mean().item()


def fooling_rate(before: Tensor, after: Tensor) -> float:
    """Percent of the images whose prediction differs, right or wrong, between logits ``(N, classes)`` and others."""
    return 100 * (before.argmax(1) != after.argmax(1)).double().mean().item()


class LayerCodes(NamedTuple):
    """What one activation or dictionary layer did with some images.

    Attributes:
        name: of the module in the network.
        sparsity: share of the codes that are zero.
        residuals: ``(iterations,)``, the largest change of a code at each iteration, relative to the largest code;
            empty for all but a Q-Metric ReLU.
    """

    name: str
    sparsity: float
    residuals: Tensor


@torch.no_grad()
def layer_codes(model: nn.Module, images: Tensor) -> list[LayerCodes]:
    """The codes of images ``(N, C, H, W)`` in every ReLU, iterated activation and dictionary layer, as they come."""
    found: list[LayerCodes] = []

    def look(name: str, module: nn.Module, z: Tensor, u: Tensor) -> None:
        residuals = u.new_empty(0)
        if isinstance(module, QMetricReLU):
            _, changes = q_metric_relu(
                z, module.coupling, module.gain, module.threshold, module.iterations, return_residuals=True
            )
            residuals = changes / u.abs().amax().clamp_min(torch.finfo(u.dtype).tiny)
        found.append(LayerCodes(name, (u == 0).double().mean().item(), residuals))

    with evaluating(model), _activations_watched(model, look):
        model(as_pixels(images))
    return found


@contextmanager
def _activations_watched(model: nn.Module, look: Callable[[str, nn.Module, Tensor, Tensor], None]) -> Iterator[None]:
    handles = [
        module.register_forward_hook(lambda m, args, u, name=name: look(name, m, args[0], u))
        for name, module in model.named_modules()
        if isinstance(module, nn.ReLU | CoupledReLU | DictionaryLayer)
    ]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()
