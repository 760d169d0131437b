"""The paper's accuracy table: which runs it takes, and our figures beside the published ones."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain

from detrame.data.catalogue import entry
from detrame.experiments import paper
from detrame.experiments.recipes import default_recipe
from detrame.experiments.results import Result, by_recipe
from detrame.experiments.spread import Spread
from detrame.training import Recipe


@dataclass(frozen=True)
class Row:
    """A cell of the accuracy table: the paper's figure and ours, in percent; std is None where there is none."""

    model: str
    dataset: str
    activation: str
    iterations: int
    paper: float
    paper_std: float | None
    mean: float | None
    std: float | None
    n: int
    epochs: int
    parameters: int | None

    @property
    def images(self) -> int:
        """Test images that the accuracy is counted on."""
        return entry(self.dataset).counts[1]

    @property
    def verdict(self) -> str:
        """reproduced: within two standard deviations, the paper's and ours; else better, or not reproduced.

        One run beside one of the paper's leaves no spread: not judged.
        """
        if self.mean is None:
            return "not run"
        if self.epochs != (published := default_recipe(self.model, self.dataset).epochs):
            return "a shorter run" if self.epochs < published else "a longer run"
        if self.paper_std is None and self.std is None:
            return "not judged"
        gap = round(self.mean - self.paper, 6)  # 95.18 - 94.98 is more than twice 0.10 in binary
        if abs(gap) <= 2 * math.hypot(self.paper_std or 0, self.std or 0):
            return "reproduced"
        return "better" if gap > 0 else "not reproduced"


def long_beside_short(wanted: Sequence[tuple[str, str]]) -> list[tuple[str, str]]:
    """Cells by how long training took in the paper: the longest, the shortest, the second longest, and so on.

    Networks that train side by side are neighbours, and the small ones leave a chip idle that the large ones can use.
    """
    times = paper.tables()["time"]
    ordered = sorted(wanted, key=lambda cell: -times[cell[0]]["train_qmetric"])
    both_ends = zip(ordered, reversed(ordered), strict=True)
    return list(chain.from_iterable(both_ends))[: len(ordered)]


def recipes(wanted: Sequence[tuple[str, str]], seeds: Sequence[int], *, epochs: int | None = None) -> list[Recipe]:
    """The runs of some cells: both activations, every seed, by the paper's recipe (or a shorter one)."""
    return [
        default_recipe(model, dataset, activation=activation, seed=seed, epochs=epochs)
        for model, dataset in wanted
        for seed in seeds
        for activation in paper.COMPARED
    ]


def rows(results: Sequence[Result], wanted: Sequence[tuple[str, str]], *, epochs: int | None = None) -> list[Row]:
    """The table, cell by cell, from full-length runs by the paper's recipe alone, or from those of some epochs."""
    return [_row(recipe, by_recipe(results, recipe)) for recipe in recipes(wanted, [0], epochs=epochs)]


def _row(recipe: Recipe, found: Sequence[Result]) -> Row:
    cell = paper.tables()["accuracy"][recipe.model][recipe.dataset]
    return Row(
        model=recipe.model,
        dataset=recipe.dataset,
        activation=recipe.activation,
        iterations=recipe.iterations,
        paper=cell[recipe.activation],
        paper_std=cell.get(f"{recipe.activation}_std"),
        **Spread.fields([result.scores.last for result in found]),
        epochs=recipe.epochs,
        parameters=found[0].scores.parameters if found else None,
    )
