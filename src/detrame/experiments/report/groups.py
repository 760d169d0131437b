"""Runs that differ in their seeds only, as one group; groups on one data set, side by side, with their statistics."""

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from scipy.special import stdtrit

from detrame.errors import Failure
from detrame.experiments.spread import Spread
from detrame.training.recipe import Recipe
from detrame.training.runs import Run

NAMES = {"relu": "ReLU", "qmetric": "Q-Metric", "lista": "LISTA", "slstm": "SLSTM", "dictionary": "DDL"}


class Difference(NamedTuple):
    """A difference of means with its standard error, paired where the seeds are shared; no error from one seed.

    `freedom` are the degrees of freedom of the error: what a few seeds say of their own spread is itself uncertain.
    """

    mean: float
    error: float | None
    paired: bool
    freedom: int

    @property
    def margin(self) -> float | None:
        """Half the width of the 95% confidence interval, by Student's t."""
        return None if self.error is None else float(stdtrit(self.freedom, 0.975)) * self.error

    @property
    def settled(self) -> bool:
        """Whether the difference is beyond that margin, if there is any."""
        return self.margin is not None and 0 < self.margin < abs(self.mean)


@dataclass(frozen=True)
class Group:
    """The finished runs of one recipe, in the order of their seeds.

    Attributes:
        recipe: theirs, with both seeds set to 0, and the iterations too where the activation has none.
        runs: at least one.
        label: what tells it from the other groups of its comparison.
        place: its place among them, which decides its colour and line.
    """

    recipe: Recipe
    runs: tuple[Run, ...]
    label: str
    place: int

    @property
    def seeds(self) -> list[tuple[int, int]]:
        """Seed and split seed of each run."""
        return [_seeds(run) for run in self.runs]

    @cached_property
    def last(self) -> Spread:
        """Accuracy of the last epoch."""
        return Spread.of([run.scores.last for run in self.runs])

    @cached_property
    def best(self) -> Spread:
        """Accuracy of each run's best epoch: chosen on the test images, so never the headline."""
        return Spread.of([run.scores.best for run in self.runs])

    @cached_property
    def seconds(self) -> Spread:
        """Seconds of training."""
        return Spread.of([run.scores.seconds for run in self.runs])

    @property
    def parameters(self) -> int:
        """Parameters of the network."""
        return self.runs[0].scores.parameters


@dataclass(frozen=True)
class Comparison:
    """The groups of one network on one data set; the first is the one that the others are compared with."""

    model: str
    dataset: str
    groups: tuple[Group, ...]

    @property
    def name(self) -> str:
        """What tells it from the other comparisons of a page."""
        return f"{self.model} on {self.dataset}"

    @property
    def ranking(self) -> list[Group]:
        """The groups by their accuracy in the last epoch, the best first."""
        return sorted(self.groups, key=lambda group: -group.last.mean)

    @property
    def differing(self) -> list[str]:
        """The fields of the recipe in which the groups differ."""
        return _differing([group.recipe for group in self.groups])


def difference(group: Group, other: Group) -> Difference:
    """How much higher the last accuracy of `group` is than that of `other`."""
    mean = group.last.mean - other.last.mean
    if len(set(group.seeds)) == len(group.runs) and group.seeds == other.seeds:
        pairs = zip(group.runs, other.runs, strict=True)
        spread = Spread.of([run.scores.last - twin.scores.last for run, twin in pairs])
        error = None if spread.std is None else spread.std / spread.n**0.5
        return Difference(mean, error, paired=True, freedom=spread.n - 1)
    freedom = min(group.last.n, other.last.n) - 1  # at least so many, however the variances compare
    if group.last.std is None or other.last.std is None:
        return Difference(mean, None, paired=False, freedom=freedom)
    variance = group.last.std**2 / group.last.n + other.last.std**2 / other.last.n
    return Difference(mean, variance**0.5, paired=False, freedom=freedom)


def compared(runs: Sequence[Run]) -> list[Comparison]:
    """The runs as comparisons, one for each network on a data set; ReLU comes first, else the order is the runs'."""
    if not runs:
        raise ValueError("a report needs at least one run")
    by_recipe: dict[Recipe, dict[tuple[int, int], Run]] = {}
    for run in runs:
        _check(run)
        alike = by_recipe.setdefault(_shared(run.recipe), {}).setdefault(_seeds(run), run)
        if alike.path.resolve() != run.path.resolve():
            raise ValueError(
                f"{alike.path} and {run.path} have the same recipe and seed, which count only once: leave one out"
            )
    recipes = sorted(by_recipe, key=lambda recipe: recipe.activation != "relu")
    comparisons = []
    for model, dataset in dict.fromkeys((run.recipe.model, run.recipe.dataset) for run in runs):
        here = [recipe for recipe in recipes if (recipe.model, recipe.dataset) == (model, dataset)]
        groups = [
            Group(recipe, tuple(sorted(by_recipe[recipe].values(), key=_seeds)), label, place)
            for place, (recipe, label) in enumerate(zip(here, _labels(here), strict=True))
        ]
        comparisons.append(Comparison(model, dataset, tuple(groups)))
    return comparisons


def _check(run: Run) -> None:
    """A Failure unless the run is finished and has all its epochs on record."""
    _ = run.scores  # for its complaint
    if len(run.history) != run.recipe.epochs:
        where = run.path / "metrics.jsonl"
        raise Failure(f"{where} holds {len(run.history)} of {run.recipe.epochs} epochs, so it is damaged: {run.again}")


def _seeds(run: Run) -> tuple[int, int]:
    return run.recipe.seed, run.recipe.split_seed


def _shared(recipe: Recipe) -> Recipe:
    shared = recipe.seedless()
    return shared if recipe.iterates else shared.replace(iterations=1)


def _differing(recipes: Sequence[Recipe]) -> list[str]:
    names = [field.name for field in dataclasses.fields(Recipe)]
    return [name for name in names if len({getattr(recipe, name) for recipe in recipes}) > 1]


def _labels(recipes: Sequence[Recipe]) -> list[str]:
    """What tells each recipe from the others: its activation, then in brackets as few other fields as it takes."""
    return [_label(recipe, [other for other in recipes if other.activation == recipe.activation]) for recipe in recipes]


def _label(recipe: Recipe, alike: list[Recipe]) -> str:
    parts = []
    for name in sorted(_differing(alike), key=lambda name: name != "iterations"):
        value = getattr(recipe, name)
        if len({getattr(other, name) for other in alike}) > 1:
            written = f"{value:g}" if isinstance(value, float) else value  # a third of a width has 16 digits
            parts.append(f"{'T' if name == 'iterations' else name} = {written}")
            alike = [other for other in alike if getattr(other, name) == value]
    name = NAMES.get(recipe.activation, recipe.activation)
    return f"{name} ({', '.join(parts)})" if parts else name
