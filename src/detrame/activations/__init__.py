"""Activations, and the seam through which networks get them: a factory ``(channels, kernel_size) -> nn.Module``.

`kernel_size` is that of the convolution before; after a linear layer it is None, and the activation acts on the last
axis.
"""

from collections.abc import Callable
from functools import partial

from torch import nn

from detrame.activations.coupled import CoupledReLU
from detrame.activations.lista import LISTA
from detrame.activations.qmetric import (
    INITIALISATIONS,
    QMetricReLU,
    parameter_groups,
    project_,
    project_after,
    q_metric_relus,
)
from detrame.activations.slstm import SLSTM
from detrame.errors import unknown

ActivationFactory = Callable[[int, int | None], nn.Module]

__all__ = [
    "ACTIVATIONS",
    "INITIALISATIONS",
    "LISTA",
    "SLSTM",
    "ActivationFactory",
    "CoupledReLU",
    "QMetricReLU",
    "activation_factory",
    "parameter_groups",
    "project_",
    "project_after",
    "q_metric_relus",
]


def _relu(channels: int, kernel_size: int | None, *, iterations: int) -> nn.Module:
    return nn.ReLU(inplace=True)


def _coupled(kind: Callable[..., nn.Module], channels: int, kernel_size: int | None, *, iterations: int) -> nn.Module:
    """Without a filter size, on feature vectors."""
    return kind(channels, kernel_size, iterations, dim=0 if kernel_size is None else 2)


# A name here enrols the activation in the contract tests and on the command line.
ACTIVATIONS: dict[str, Callable[..., nn.Module]] = {
    "relu": _relu,
    "qmetric": partial(_coupled, QMetricReLU),
    "lista": partial(_coupled, LISTA),
    "slstm": partial(_coupled, SLSTM),
}


def activation_factory(name: str, *, iterations: int = 2) -> ActivationFactory:
    """The factory of a named activation: given channels and the filter size of the layer before, a module."""
    if name not in ACTIVATIONS:
        raise unknown("activation", name, ACTIVATIONS)
    return partial(ACTIVATIONS[name], iterations=iterations)
