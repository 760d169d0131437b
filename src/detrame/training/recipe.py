"""A training run as data: a typed recipe that can be printed, edited and passed."""

import dataclasses
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import torch
from torch import nn

from detrame.data import Batches, Dataset, Split
from detrame.errors import Failure, unknown
from detrame.models import create_model
from detrame.training.step import Step


@dataclass(frozen=True)
class Recipe:
    """Everything that decides a run's weights, apart from the machine.

    Attributes:
        model, activation, iterations, norm, last_activation, width: the network; see :func:`detrame.create_model`.
        dataset: its name. If it comes without a split (digits), `split_seed` draws one.
        epochs, batch_size: how many epochs, and how many images per step.
        lr: the learning rate; it is multiplied by `lr_factor` after each epoch in `lr_milestones`.
        momentum, nesterov, weight_decay: of SGD; see :func:`detrame.parameter_groups` for what is not decayed.
        crop_padding, reflect, flip: the augmentation. Random crops of images with a border of `crop_padding` pixels,
            of the mean colour or, with `reflect`, mirrored at the edge; with `flip`, random mirroring.
        normalise: whether the network subtracts the mean and divides by the std of the training pixels.
        validation: how many training images are held out and scored each epoch; 0 for none.
        seed: draws the weights, the order, the augmentation, the dropout and the held-out images.
    """

    model: str
    dataset: str
    activation: str = "qmetric"
    iterations: int = 2
    norm: str | None = "batch"
    last_activation: bool = False
    width: float = 1.0
    split_seed: int = 0
    epochs: int = 200
    batch_size: int = 128
    lr: float = 0.1
    lr_milestones: tuple[int, ...] = (60, 120, 160)
    lr_factor: float = 0.2
    momentum: float = 0.9
    nesterov: bool = False
    weight_decay: float = 5e-4
    crop_padding: int = 0
    reflect: bool = False
    flip: bool = False
    normalise: bool = True
    validation: int = 0
    seed: int = 0

    def __post_init__(self) -> None:
        for name in ("epochs", "batch_size"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, got {getattr(self, name)}")
        for name in ("lr", "lr_factor"):
            if not 0 < getattr(self, name) < float("inf"):
                raise ValueError(f"{name} must be a positive number, got {getattr(self, name)}")
        for name in ("momentum", "weight_decay", "crop_padding", "validation", "seed", "split_seed"):
            if not 0 <= getattr(self, name) < float("inf"):
                raise ValueError(f"{name} must be a number >= 0, got {getattr(self, name)}")
        for name in ("seed", "split_seed"):
            if getattr(self, name) >= 2**63:
                raise ValueError(f"{name} must be below 2^63, got {getattr(self, name)}")
        if self.momentum >= 1:
            raise ValueError(f"momentum must be below 1, got {self.momentum}")
        if any(milestone < 1 for milestone in self.lr_milestones):
            raise ValueError(f"lr_milestones must be numbers of epochs, 1 or more, got {list(self.lr_milestones)}")
        if self.nesterov and not self.momentum:
            raise ValueError("nesterov needs a momentum above 0")

    @property
    def iterates(self) -> bool:
        """Whether the activation uses `iterations`."""
        return iterates(self.activation)

    def lr_at(self, epoch: int) -> float:
        """The learning rate of an epoch, counted from 0."""
        return self.lr * self.lr_factor ** sum(epoch >= milestone for milestone in self.lr_milestones)

    def build(self, dataset: Dataset) -> nn.Module:
        """The untrained network, for the images of `dataset`."""
        return create_model(self.model, activation=self.activation, **self.options(dataset))

    def step(self, dataset: Dataset, device: torch.device, *, fused: bool = True) -> Step:
        """What trains a fresh network for the images of `dataset` on a device, its weights drawn by the seed.

        Without `fused` a GPU takes the plain passes.
        """
        torch.manual_seed(self.seed)
        model = self.build(dataset).to(device)
        model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        return Step(model, momentum=self.momentum, nesterov=self.nesterov, weight_decay=self.weight_decay, fused=fused)

    def options(self, dataset: Dataset) -> dict[str, Any]:
        """What :func:`detrame.create_model` takes beside model and activation, for the images of `dataset`."""
        return {
            "iterations": self.iterations,
            "num_classes": dataset.num_classes,
            "in_channels": dataset.in_channels,
            "mean": dataset.mean if self.normalise else None,
            "std": dataset.std if self.normalise else None,
            "norm": self.norm,
            "last_activation": self.last_activation,
            "width": self.width,
        }

    def batches(self, images: Split, dataset: Dataset) -> Batches:
        """The batches of a run on some of the images of `dataset`."""
        return Batches(
            images,
            self.batch_size,
            seed=self.seed,
            crop_padding=self.crop_padding,
            flip=self.flip,
            mean=dataset.mean,
            reflect=self.reflect,
        )

    def seedless(self) -> Self:
        """The recipe that the runs of all seeds share."""
        return dataclasses.replace(self, seed=0, split_seed=0)

    def replace(self, **changes: Any) -> Self:
        """A recipe with some fields changed; a ValueError for a field there is not, or a wrong type."""
        return dataclasses.replace(self, **self.checked(changes))

    def to_json(self) -> str:
        """The recipe as a JSON document that :meth:`from_json` reads."""
        return json.dumps(dataclasses.asdict(self), indent=2) + "\n"

    @classmethod
    def from_json(cls, text: str) -> Self:
        """The recipe of a JSON document; a ValueError for a wrong field, a wrong type or a missing one."""
        fields = json.loads(text)
        if not isinstance(fields, dict):
            raise ValueError(f"a recipe is a JSON object, got {type(fields).__name__}")
        for name in ("model", "dataset"):
            if name not in fields:
                raise ValueError(f"a recipe needs a {name}")
        return cls(**cls.checked(fields))

    @classmethod
    def checked(cls, fields: dict[str, Any]) -> dict[str, Any]:
        """The fields, if a recipe has them and their types are right; a ValueError if not."""
        types = {field.name: field.type for field in dataclasses.fields(cls)}
        for name in fields:
            if name not in types:
                raise unknown("field of a recipe", name, types)
        return {name: _typed(name, value, types[name]) for name, value in fields.items()}

    @classmethod
    def read(cls, path: Path) -> Self:
        """The recipe in a file; a Failure that names the file if it holds none."""
        try:
            return cls.from_json(path.read_text())
        except ValueError as error:  # of JSON, of UTF-8, or ours
            raise Failure(f"{path} is not a recipe: {error}") from error


def iterates(activation: str) -> bool:
    """Whether a number of iterations means anything to an activation."""
    return activation not in ("relu", "dictionary")


def _typed(name: str, value: object, declared: Any) -> object:
    """`value`, if it has the declared type; JSON has lists where a recipe has tuples, and ints that are floats."""
    if declared == tuple[int, ...]:
        if isinstance(value, list | tuple) and all(type(item) is int for item in value):
            return tuple(value)
    elif declared is float:
        if type(value) in (int, float):
            return float(value)  # type: ignore[arg-type]
    elif declared == str | None:
        if value is None or isinstance(value, str):
            return value
    elif type(value) is declared:
        return value
    wanted = {tuple[int, ...]: "a list of whole numbers, as [60, 120]", str | None: "text or null"}
    plain = {int: "a whole number", float: "a number", bool: "true or false", str: "text"}
    raise ValueError(f"{name} must be {(wanted | plain)[declared]}, got {value!r}")
