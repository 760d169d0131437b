"""DeTraMe: deep transform and metric learning networks, deep dictionary learning that trains like a CNN.

The public names are resolved on first use, so that the command line starts without loading PyTorch.
"""

from importlib import import_module
from typing import TYPE_CHECKING

__version__ = "0.1.0"

if TYPE_CHECKING:
    from detrame import functional, prox
    from detrame.activations import LISTA, SLSTM, QMetricReLU, parameter_groups, project_, project_after
    from detrame.bridge import from_dictionary, nearest_dictionary
    from detrame.conversion import convert
    from detrame.dictionary import DictionaryConv2d, DictionaryLinear
    from detrame.estimators import DeTraMeClassifier
    from detrame.experiments import default_recipe
    from detrame.folding import fold
    from detrame.models import create_model, list_models
    from detrame.training import Recipe, Run, load, resume, train

_NAMES = {
    "activations": ("LISTA", "SLSTM", "QMetricReLU", "parameter_groups", "project_", "project_after"),
    "bridge": ("from_dictionary", "nearest_dictionary"),
    "conversion": ("convert",),
    "dictionary": ("DictionaryConv2d", "DictionaryLinear"),
    "estimators": ("DeTraMeClassifier",),
    "experiments": ("default_recipe",),
    "folding": ("fold",),
    "models": ("create_model", "list_models"),
    "training": ("Recipe", "Run", "load", "resume", "train"),
}
_HOME = {name: module for module, names in _NAMES.items() for name in names}
_MODULES = ("functional", "prox")

__all__ = [
    "LISTA",
    "SLSTM",
    "DeTraMeClassifier",
    "DictionaryConv2d",
    "DictionaryLinear",
    "QMetricReLU",
    "Recipe",
    "Run",
    "convert",
    "create_model",
    "default_recipe",
    "fold",
    "from_dictionary",
    "functional",
    "list_models",
    "load",
    "nearest_dictionary",
    "parameter_groups",
    "project_",
    "project_after",
    "prox",
    "resume",
    "train",
]


def __getattr__(name: str) -> object:
    if name in _MODULES:
        return import_module(f"detrame.{name}")  # which sets it here, too
    if name not in _HOME:
        raise AttributeError(f"module 'detrame' has no attribute {name!r}")
    value = getattr(import_module(f"detrame.{_HOME[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
