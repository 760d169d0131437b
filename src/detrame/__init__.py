"""DeTraMe: deep transform and metric learning networks, deep dictionary learning that trains like a CNN.

The public names are resolved on first use, so that the command line starts without loading PyTorch.
"""

from importlib import import_module
from typing import TYPE_CHECKING

__version__ = "0.1.0"

if TYPE_CHECKING:
    from detrame import functional, prox
    from detrame.activations import QMetricReLU, parameter_groups, project_, project_after
    from detrame.conversion import convert
    from detrame.models import create_model, list_models

_HOME = {
    "QMetricReLU": "activations",
    "convert": "conversion",
    "create_model": "models",
    "functional": "",
    "list_models": "models",
    "parameter_groups": "activations",
    "project_": "activations",
    "project_after": "activations",
    "prox": "",
}

__all__ = [
    "QMetricReLU",
    "convert",
    "create_model",
    "functional",
    "list_models",
    "parameter_groups",
    "project_",
    "project_after",
    "prox",
]


def __getattr__(name: str) -> object:
    if name not in _HOME:
        raise AttributeError(f"module 'detrame' has no attribute {name!r}")
    home = _HOME[name]
    value = getattr(import_module(f"detrame.{home}"), name) if home else import_module(f"detrame.{name}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
