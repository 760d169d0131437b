"""Put a finished run's weights into the package: half precision, with recipe and scores in the metadata."""

import dataclasses
import json
from pathlib import Path

import torch
from torch import Tensor

from detrame.models.pretrained import weights_name
from detrame.training import Run
from detrame.training.files import sha256, write_tensors, write_text


def export(run: Run, folder: Path) -> Path:
    """Write the weights of a finished run below `folder`, update its checksums, and return the file."""
    recipe = run.recipe
    path = folder / weights_name(recipe.model, recipe.activation, recipe.dataset)
    metadata = {
        "options": recipe.options(run.dataset()),
        "recipe": dataclasses.asdict(recipe),
        "scores": dataclasses.asdict(run.scores),
        "environment": run.environment,
    }
    folder.mkdir(parents=True, exist_ok=True)
    tensors = {name: _rounded(tensor) for name, tensor in run.model.state_dict().items()}
    write_tensors(path, tensors, {key: json.dumps(value) for key, value in metadata.items()})
    sums = [f"{sha256(file)}  {file.name}" for file in sorted(folder.glob("*.safetensors"))]
    write_text(folder / "SHA256SUMS", "\n".join(sums) + "\n")
    return path


def _rounded(tensor: Tensor) -> Tensor:
    """Filters in half precision; vectors, which are small and hold statistics, as they are."""
    return tensor.half() if tensor.ndim > 1 and tensor.dtype == torch.float32 else tensor
