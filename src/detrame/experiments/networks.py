"""Trained networks by what a user calls them: a run's folder, or one of the package as ``plainnet9:qmetric``."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from os.path import commonprefix
from pathlib import Path

from torch import nn

from detrame.data import Dataset
from detrame.data import load as load_dataset
from detrame.errors import unknown
from detrame.experiments import paper
from detrame.experiments.recipes import default_recipe
from detrame.experiments.results import result_name
from detrame.models import create_model, pretrained_names, read_pretrained
from detrame.models.blocks import Normalise
from detrame.robustness import Ball
from detrame.training import Recipe, Run, find, load

PACKAGE = "the package"


@dataclass(frozen=True)
class Network:
    """A trained network, the recipe it was trained by, and the images it was trained and tested on."""

    recipe: Recipe
    source: str
    recorded: float  # percent of the test images, when it was trained
    run: Run | None = None
    name: str = ""  # of the run, where others share its network and activation

    @cached_property
    def model(self) -> nn.Module:
        """The network, in eval mode: pixels in [0, 1] to logits."""
        if self.run is not None:
            return self.run.model
        return create_model(self.recipe.model, activation=self.recipe.activation, pretrained=self.recipe.dataset)

    @cached_property
    def dataset(self) -> Dataset:
        """The data set of the recipe, in the split of the recipe."""
        return self.run.dataset() if self.run is not None else load_dataset(self.recipe.dataset)

    @property
    def label(self) -> str:
        """Network and activation, as a table says them."""
        return f"{self.recipe.model} {self.recipe.activation} {self.name}".strip()

    @cached_property
    def normalisation(self) -> tuple[tuple[float, ...], tuple[float, ...]]:
        """Mean and std by channel, as the network has them; 0 and 1 for one that takes pixels as they are."""
        for module in self.model.modules():
            if isinstance(module, Normalise):
                return tuple(module.mean.flatten().tolist()), tuple(module.std.flatten().tolist())
        channels = self.dataset.in_channels
        return (0.0,) * channels, (1.0,) * channels

    def ball(self, radius: float, unit: str, norm: str = "inf") -> Ball:
        """A radius in either unit, for this network."""
        return Ball(radius, unit, norm, self.normalisation[1])


def twin(network: Network, others: Sequence[Network]) -> Network | None:
    """The ReLU network of the same family and data among `others`, unless it is the network itself."""
    wanted = (network.recipe.model, "relu", network.recipe.dataset)
    return next((other for other in others if _kind(other) == wanted and other is not network), None)


def told_apart(networks: Sequence[Network]) -> list[Network]:
    """The same networks, named by their source, less what the sources share, where network and activation are alike."""

    def name(network: Network) -> str:
        alike = [Path(o.source).parts for o in networks if _kind(o) == _kind(network)]
        shared = len(commonprefix(alike))  # noqa: RUF071 (of parts, not of letters)
        return "/".join(Path(network.source).parts[shared:]) if len(alike) > 1 else ""

    return [replace(network, name=name(network)) for network in networks]


def _kind(network: Network) -> tuple[str, str, str]:
    return network.recipe.model, network.recipe.activation, network.recipe.dataset


def named(name: str) -> list[Network]:
    """The networks that `name` stands for: those of the runs in a folder, or one of the package."""
    if name and Path(name).is_dir():
        return [Network(run.recipe, str(run.path), run.scores.last, run) for run in find(name)]
    packaged = {_short(file): file for file in pretrained_names()}
    if name in packaged:
        return [_from_package(*packaged[name].split("-"))]
    model, colon, activation = name.partition(":")
    if model in paper.tables()["accuracy"] and activation in paper.COMPARED:
        raise ValueError(f"the package has no trained {name}, only {', '.join(packaged)}: train it, and name its run")
    if colon:
        raise unknown("trained network of the package", name, packaged)
    raise ValueError(
        f"{name} is neither a folder of runs nor a trained network of the package, which has {', '.join(packaged)}"
    )


def trained(model: str, dataset: str, activation: str, runs: Path) -> Network | None:
    """The network of the paper's recipe, seed 0: from its run below `runs` if finished, or from the package."""
    recipe = default_recipe(model, dataset, activation=activation)
    folder = runs / result_name(recipe)
    if (folder / "result.json").is_file() and (run := load(folder)).recipe == recipe:
        return Network(recipe, str(folder), run.scores.last, run)
    if f"{model}-{activation}-{dataset}" in pretrained_names():
        return _from_package(model, activation, dataset)
    return None


def _from_package(model: str, activation: str, dataset: str) -> Network:
    _, metadata = read_pretrained(model, activation, dataset)
    return Network(default_recipe(model, dataset).replace(**metadata["recipe"]), PACKAGE, metadata["scores"]["last"])


def _short(file: str) -> str:
    """A network of the package as a user names it: the data set is said unless it is CIFAR-10."""
    return file.replace("-", ":").removesuffix(":cifar10")
