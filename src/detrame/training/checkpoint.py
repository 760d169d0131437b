"""The state of a run between two steps: all that decides the steps to come."""

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path

import torch
from torch import Tensor

from detrame.errors import Failure, why_not
from detrame.training.files import read_tensors, write_tensors
from detrame.training.recipe import Recipe
from detrame.training.step import Step


@dataclass
class Progress:
    """How far a run is: the next step to take, what the current epoch has summed up, and the seconds spent.

    Attributes:
        epoch, step: the next step to take, both counted from 0.
        losses: of the current epoch's steps so far.
        correct: training images of the current epoch classified rightly so far.
        seconds: spent training before now, over all sittings.
        together: the most runs that have shared the device with this one in any of them, itself included.
    """

    epoch: int = 0
    step: int = 0
    losses: list[float] = field(default_factory=list)
    correct: int = 0
    seconds: float = 0.0
    together: int = 1


def save(path: Path, step: Step, progress: Progress, recipe: Recipe) -> None:
    """Write weights, momentum, random state, progress and the recipe that they are of, whole or not at all."""
    tensors = {f"model.{name}": tensor for name, tensor in step.model.state_dict().items()}
    for name, parameter in step.model.named_parameters():
        if (buffer := step.optimizer.state[parameter].get("momentum_buffer")) is not None:
            tensors[f"momentum.{name}"] = buffer
    tensors["random.cpu"] = torch.get_rng_state()
    if step.random is not None:
        tensors["random.cuda"] = step.random.get_state()
    write_tensors(path, tensors, {"progress": json.dumps(asdict(progress)), "recipe": recipe.to_json()})


def restore(path: Path, step: Step, recipe: Recipe) -> Progress:
    """Put the state that `save` wrote back into a network and what trains it, by the same recipe."""
    tensors, metadata = read_tensors(path, remedy="delete it to start the run again")
    parameters = dict(step.model.named_parameters())
    try:
        if "recipe" in metadata and Recipe.from_json(metadata["recipe"]) != recipe:
            raise ValueError("the recipe has changed since")
        step.model.load_state_dict(_under("model.", tensors))
        for name, buffer in _under("momentum.", tensors).items():
            # In the parameter's own layout, which a file does not keep and a fused optimiser asks for.
            parameter = parameters[name]
            kept = torch.empty_like(parameter, requires_grad=False).copy_(buffer)
            step.optimizer.state[parameter]["momentum_buffer"] = kept
        torch.set_rng_state(tensors["random.cpu"])
        if "random.cuda" in tensors and step.random is not None:
            step.random.set_state(tensors["random.cuda"])
        return Progress(**json.loads(metadata["progress"]))
    except (KeyError, TypeError, ValueError, RuntimeError) as error:
        raise Failure(
            f"{path} does not fit its run's recipe: restore that, or delete the checkpoint to start again"
        ) from error


def progress_of(path: Path) -> Progress:
    """How far the run of a checkpoint is."""
    _, metadata = read_tensors(path, remedy="delete it to start the run again")
    try:
        return Progress(**json.loads(metadata["progress"]))
    except (KeyError, TypeError, ValueError) as error:
        raise Failure(f"{path} is not a checkpoint ({why_not(error)}): delete it to start the run again") from error


def _under(prefix: str, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)}
