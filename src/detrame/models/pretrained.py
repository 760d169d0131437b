"""Small trained networks inside the package: half-precision safetensors, with recipe and scores in their metadata."""

import hashlib
import json
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import Any

from safetensors.torch import load
from torch import Tensor

from detrame.errors import Failure


def weights_name(model: str, activation: str, dataset: str) -> str:
    """The name of the file with a network's weights."""
    return f"{model}-{activation}-{dataset}.safetensors"


def folder() -> Traversable:
    """Where the weights are, in the package."""
    return files("detrame").joinpath("weights")


def pretrained_names() -> list[str]:
    """The trained networks there are, as the names of their files without the ending."""
    names = (entry.name for entry in folder().iterdir())
    return sorted(name.removesuffix(".safetensors") for name in names if name.endswith(".safetensors"))


def read_pretrained(model: str, activation: str, dataset: str) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """The weights of a trained network, in float32, and what its metadata says.

    The metadata has ``options`` (of :func:`detrame.create_model`), ``recipe``, ``scores`` and ``environment``. A
    ValueError says which there are if there is no such network; a Failure says so if its file is damaged.
    """
    name = weights_name(model, activation, dataset)
    entry = folder().joinpath(name)
    if not entry.is_file():
        there = ", ".join(name.replace("-", " ") for name in pretrained_names())
        raise ValueError(
            f"there is no trained {model} {activation} on {dataset!r}; "
            f"the trained networks (network, activation, data set) are {there}"
        )
    content = entry.read_bytes()
    checksums = folder().joinpath("SHA256SUMS").read_text().splitlines()
    if f"{hashlib.sha256(content).hexdigest()}  {name}" not in checksums:
        raise Failure(f"{entry} does not match its checksum: install detrame again")
    stored: dict[str, Tensor] = load(content)
    tensors = {key: tensor.float() if tensor.is_floating_point() else tensor for key, tensor in stored.items()}
    return tensors, {key: json.loads(value) for key, value in _metadata(content).items()}


def _metadata(content: bytes) -> dict[str, str]:
    """The metadata of a safetensors file: its header is a JSON object after eight bytes of length."""
    length = int.from_bytes(content[:8], "little")
    metadata: dict[str, str] = json.loads(content[8 : 8 + length])["__metadata__"]
    return metadata
