"""How a network can be run: in eval mode without leaving a trace, or captured."""

from collections.abc import Iterator
from contextlib import contextmanager

from torch import nn


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """Put `model` in eval mode inside the block, and every module back in its own mode after it."""
    modes = {module: module.training for module in model.modules()}
    model.eval()
    try:
        yield
    finally:
        for module, training in modes.items():
            module.training = training


def capturable(model: nn.Module) -> bool:
    """Whether a pass through `model` can be captured as a CUDA graph.

    A module whose work depends on the data, as a dictionary layer's does, says that it cannot: ``capturable = False``.
    """
    return all(getattr(module, "capturable", True) for module in model.modules())
