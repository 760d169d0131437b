"""The paper's networks, their activation through one seam: :func:`create_model` and :func:`list_models`."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import nn

from detrame.activations import ActivationFactory, activation_factory
from detrame.errors import check_count
from detrame.models import ddl, plainnet, resnet, wideresnet  # noqa: F401  (importing a family registers it)
from detrame.models.blocks import Options
from detrame.models.cost import Cost, cost
from detrame.models.pretrained import pretrained_names, read_pretrained
from detrame.models.registry import build, check_name, is_dictionary_network, listed_names

__all__ = [
    "Cost",
    "ModelInfo",
    "check_name",
    "cost",
    "create_model",
    "default_activation",
    "list_models",
    "pretrained_names",
    "read_pretrained",
]

UNLESS_SAID: dict[str, Any] = {
    "iterations": 2,
    "num_classes": 10,
    "in_channels": 3,
    "mean": None,
    "std": None,
    "last_activation": False,
    "width": 1.0,
}
LARGEST = 1_000_000  # that a size of a listed network can be meant to be; far larger ones have no count of elements
DICTIONARY = "dictionary"  # what stands for the activation of a dictionary network, which has none beside its codes


def create_model(
    name: str,
    *,
    activation: str | ActivationFactory | None = None,
    iterations: int | None = None,
    num_classes: int | None = None,
    in_channels: int | None = None,
    mean: Sequence[float] | None = None,
    std: Sequence[float] | None = None,
    norm: str | None = "batch",
    last_activation: bool | None = None,
    width: float | None = None,
    pretrained: str | None = None,
) -> nn.Module:
    """Build a network by name, from pixels (N, in_channels, H, W) to logits (N, num_classes), for any image size.

    Args:
        name: one of :func:`list_models`; or another of its family, such as ``resnet32`` or ``wideresnet28_10``; or
            ``ddl9``, the PlainNet 9 of exact dictionary layers (also with 3, 6, 12 or more than 12 layers).
        activation: "relu", "qmetric" (the default), "lista", "slstm", or a factory
            ``(channels, kernel_size) -> nn.Module``; a dictionary network takes none.
        iterations: of each activation other than "relu"; 2 by default.
        num_classes: the number of logits; 10 by default.
        in_channels: 3 for colour (the default), 1 for grey.
        mean, std: one number per channel; the network then takes pixels and normalises them itself.
        norm: "batch", or None for no normalisation between the layers.
        last_activation: PlainNet only: also put an activation after the class layer, as in the paper's table.
        width: multiplies the channels of every hidden layer (except the stem of a WideResNet); 1 by default.
        pretrained: the data set ("cifar10") whose trained weights to load. Everything but `name` and `activation` is
            then as in training; an option that says otherwise is a ValueError. The network is in eval mode, and takes
            pixels in [0, 1].
    """
    said: dict[str, Any] = {
        "iterations": iterations,
        "num_classes": num_classes,
        "in_channels": in_channels,
        "mean": mean,
        "std": std,
        "last_activation": last_activation,
        "width": width,
    }
    said = {option: value for option, value in said.items() if value is not None}
    if iterations is not None:
        check_count("iterations", iterations)  # of networks that have none, too
    if pretrained is not None:
        return _pretrained(name, activation, pretrained, said if norm == "batch" else said | {"norm": norm})
    options = UNLESS_SAID | {"norm": norm} | said
    factory = _factory(name, default_activation(name) if activation is None else activation, options.pop("iterations"))
    return build(name, Options(factory, **options))


def default_activation(name: str) -> str:
    """The activation of a network that is not told one: "qmetric", or "dictionary" for one of dictionary layers."""
    return DICTIONARY if is_dictionary_network(name) else "qmetric"


def _factory(name: str, activation: str | ActivationFactory, iterations: int) -> ActivationFactory:
    if is_dictionary_network(name):
        if activation != DICTIONARY:
            raise ValueError(
                f"{name} takes no activation, because its layers already give codes; got {activation!r}: leave it out"
            )
        return lambda channels, kernel_size: nn.Identity()
    if isinstance(activation, str):
        return activation_factory(activation, iterations=iterations)
    _check_factory(activation)
    return activation


def _check_factory(activation: object) -> None:
    """A TypeError for what is none, and for PyTorch's own classes, which would take the channels for something else."""
    of_pytorch = isinstance(activation, type) and activation.__module__.startswith("torch.nn.")
    if of_pytorch or isinstance(activation, nn.Module) or not callable(activation):
        raise TypeError(
            "activation must be a name or a factory of channels and kernel_size, such as "
            "`lambda channels, kernel_size: nn.ReLU()`, got "
            f"{getattr(activation, '__name__', type(activation).__name__)}"
        )


def _pretrained(
    name: str, activation: str | ActivationFactory | None, dataset: str, said: Mapping[str, Any]
) -> nn.Module:
    activation = default_activation(name) if activation is None else activation
    if not isinstance(activation, str):
        raise ValueError(f"pretrained weights go with an activation by name, got {activation!r}")
    tensors, metadata = read_pretrained(name, activation, dataset)
    for option, value in said.items():
        trained = metadata["options"][option]
        by_channel = option in ("mean", "std") and hasattr(value, "__len__")
        asked = [float(number) for number in value] if by_channel else value
        if asked != trained and (activation, option) != ("relu", "iterations"):  # ReLU has none
            raise ValueError(
                f"{option}={asked!r} was asked, but the trained {name} {activation} on {dataset} has "
                f"{option}={trained!r}: leave {option} out, or leave pretrained out and train it"
            )
    model = create_model(name, activation=activation, **metadata["options"])
    model.load_state_dict(tensors)
    return model.eval()


class ModelInfo(NamedTuple):
    """A network of the paper: its cost with ReLU and with Q-Metric ReLU."""

    relu: Cost
    qmetric: Cost


def list_models(
    *, iterations: int = 2, num_classes: int = 10, in_channels: int = 3, image_size: int = 32
) -> dict[str, ModelInfo]:
    """The paper's networks in its order: for each name, its parameters and its multiply-adds for one image."""
    options: dict[str, Any] = {"iterations": iterations, "num_classes": num_classes, "in_channels": in_channels}
    for option, value in (options | {"image_size": image_size}).items():
        if check_count(option, value) > LARGEST:
            raise ValueError(f"{option} must be at most {LARGEST:,}, got {value:,}")

    def count(name: str, activation: str) -> Cost:
        with torch.device("meta"):  # shapes are enough: nothing is drawn, kept or computed
            model = create_model(name, activation=activation, **options)
        return cost(model, (in_channels, image_size, image_size))

    return {name: ModelInfo(count(name, "relu"), count(name, "qmetric")) for name in listed_names()}
