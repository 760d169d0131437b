"""What a network takes."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode

from detrame.activations import CoupledReLU
from detrame.modes import evaluating


class Cost(NamedTuple):
    """The parameters of a network, and the multiply-adds of one input's forward pass."""

    parameters: int
    multiply_adds: int


def cost(model: nn.Module, input_shape: tuple[int, ...]) -> Cost:
    """Count parameters, and the multiply-adds of one input of `input_shape` (without the batch axis).

    Multiply-adds are those of convolutions and linear layers; an iterated activation counts its coupling as often as it
    applies one: T times for a Q-Metric ReLU or LISTA of T iterations, 3 T + 2 times for SLSTM.
    """
    total = 0
    applications = {module: module.applications for module in _coupled(model)}

    def add(module: nn.Module, args: object, output: Tensor) -> None:
        nonlocal total
        if isinstance(module, CoupledReLU):
            total += applications[module] * module.coupling[0].numel() * output.numel()
        elif isinstance(module, nn.Conv1d | nn.Conv2d | nn.Conv3d | nn.Linear):
            total += module.weight[0].numel() * output.numel()

    parameters = list(model.parameters())
    example = next(iter(parameters), torch.empty(0)).new_zeros(1, *input_shape)
    handles = [module.register_forward_hook(add) for module in model.modules()]
    try:
        with torch.no_grad(), evaluating(model), _iterating_once(model), _WithoutNorms():
            model(example)
    finally:
        for handle in handles:
            handle.remove()
    return Cost(sum(p.numel() for p in parameters), total)


class _WithoutNorms(TorchFunctionMode):
    """Batch norms give what they are given: only shapes count, and on the meta device norms take most of the time."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return args[0] if func is F.batch_norm and args else func(*args, **(kwargs or {}))


@contextmanager
def _iterating_once(model: nn.Module) -> Iterator[None]:
    """One iteration of every activation inside the block: all have the shape of the first, and only shapes count."""
    kept = {module: module.iterations for module in _coupled(model)}
    try:
        for module in kept:
            module.iterations = 1
        yield
    finally:
        for module, iterations in kept.items():
            module.iterations = iterations


def _coupled(model: nn.Module) -> list[CoupledReLU]:
    return [module for module in model.modules() if isinstance(module, CoupledReLU)]
