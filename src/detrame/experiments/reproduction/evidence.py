"""What the page of the reproduction is made of: the paper's figures and ours, cell by cell."""

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import NamedTuple, Self

from detrame.experiments import accuracy, changes, controls, ddl, paper, parameters, timing
from detrame.experiments.accuracy import Row
from detrame.experiments.changes import Row as Change
from detrame.experiments.controls import Row as Control
from detrame.experiments.ddl import Row as DdlRow
from detrame.experiments.recipes import default_recipe
from detrame.experiments.results import Result, by_recipe, stored
from detrame.experiments.robustness import tables
from detrame.experiments.robustness.stored import stored as stored_attacks
from detrame.experiments.robustness.tables import Row as FoolingRow
from detrame.experiments.timing import Row as TimeRow

DATASETS = {"cifar10": "CIFAR-10", "cifar100": "CIFAR-100", "svhn": "SVHN"}
FAMILIES = {"plainnet": "PlainNet", "resnet": "ResNet", "wideresnet": "WideResNet"}
RESIDUAL = ("resnet", "wideresnet")
# The families whose networks make one curve of accuracy against parameters.
ARCHITECTURES = {("plainnet",): "PlainNet", RESIDUAL: "ResNet and WideResNet"}
PAPER_RUNS = 5
ENOUGH_SEEDS = 3  # for their spread to stand alone, and for a verdict to be more than so far
DDL_METHODS = ("ddl", "qmetric")
ATTACKS = (*tables.UAP, *tables.NOISE, *tables.EACH_IMAGE)


class Gain(NamedTuple):
    """A difference of accuracies in points, and its standard error."""

    mean: float
    error: float

    def __sub__(self, other: "Gain") -> "Gain":
        return weighted((1, self), (-1, other))


def weighted(*terms: tuple[float, Gain]) -> Gain:
    """A weighted sum of gains that err independently of each other."""
    return Gain(
        sum(weight * gain.mean for weight, gain in terms), math.hypot(*[weight * gain.error for weight, gain in terms])
    )


class Pair(NamedTuple):
    """The ReLU and the Q-Metric network of a cell."""

    relu: Row
    qmetric: Row

    @property
    def ours(self) -> Gain:
        """What Q-Metric gained here, where both have run."""
        return ours(self.qmetric) - ours(self.relu)

    @property
    def published(self) -> Gain:
        """What it gained in the paper's table."""
        return published(self.qmetric) - published(self.relu)


def ours(row: Row | FoolingRow) -> Gain:
    """The accuracy of a cell that has run, or a fooling rate, as a gain over 0.

    One seed has no spread, and two that lie close by chance would pass for certain: there the paper's counts if larger,
    or, where it prints none, that of counting.
    """
    assert row.mean is not None
    std = row.std or 0.0
    if row.n < ENOUGH_SEEDS:
        std = max(std, counting(row.mean, row.images) if row.paper_std is None else row.paper_std)
    return Gain(row.mean, std / math.sqrt(row.n))


def published(row: Row) -> Gain:
    """The accuracy in the paper's table, as a gain over 0; where it prints no spread, it ran once."""
    if row.paper_std is None:
        return Gain(row.paper, counting(row.paper, row.images))
    return Gain(row.paper, row.paper_std / math.sqrt(PAPER_RUNS))


def counting(percent: float, images: int) -> float:
    """The binomial deviation of a percentage of so many images: what it would be off by if nothing else varied."""
    return math.sqrt(percent * (100 - percent) / images)


@dataclass(frozen=True)
class Evidence:
    """Stored results, and the tables made of them.

    Attributes:
        results: every finished run.
        rows: the cells of the accuracy table, run or not, by (model, data set, activation).
        controls: the networks of matched cost.
        changes: what was tried where Q-Metric falls short.
        timing: the time table, measured or not.
        ddl: deep dictionary learning and DeTraMe in one shape, by one recipe.
        fooling: what attacks and noise did to the networks.
    """

    results: Sequence[Result]
    rows: dict[tuple[str, str, str], Row]
    controls: Sequence[Control]
    changes: Sequence[Change]
    timing: Sequence[TimeRow]
    ddl: Sequence[DdlRow]
    fooling: Sequence[FoolingRow]

    @classmethod
    def read(cls, folder: Path) -> Self:
        """From the files in a folder of results."""
        results = stored(folder)
        rows = {(row.model, row.dataset, row.activation): row for row in accuracy.rows(results, paper.cells())}
        dictionaries = stored(folder, table=ddl.TABLE)
        return cls(
            results=results,
            rows=rows,
            controls=controls.rows(results),
            changes=changes.tried(stored(folder, table=changes.TABLE), results),
            timing=timing.rows(folder),
            ddl=[row for dataset in ("cifar10", "cifar100") for row in ddl.rows(dictionaries, dataset, DDL_METHODS)],
            fooling=tables.rows(one for attack in ATTACKS for one in stored_attacks(folder, attack)),
        )

    def cell(self, model: str, dataset: str) -> Pair:
        """The two networks of a cell, run or not."""
        return Pair(*(self.rows[model, dataset, activation] for activation in paper.COMPARED))

    def pair(self, model: str, dataset: str) -> Pair | None:
        """The two networks of a cell, if both have run."""
        cell = self.cell(model, dataset)
        return cell if cell.relu.n and cell.qmetric.n else None

    def pairs(self, names: Sequence[str], dataset: str) -> list[Pair]:
        """Those of some networks that have run with both activations."""
        return [pair for name in names if (pair := self.pair(name, dataset))]

    def few(self, names: Sequence[str], dataset: str) -> bool:
        """Whether a verdict on some networks may change: one of them has not run, or not with enough seeds."""
        return any(row.n < ENOUGH_SEEDS for name in names for row in self.cell(name, dataset))

    @cached_property
    def parameters(self) -> dict[tuple[str, str, str], int]:
        """The parameters of every network of the paper, by (model, data set, activation)."""
        return {(row.model, row.dataset, row.activation): row.parameters for row in parameters.rows(paper.cells())}

    def runs(self, model: str, dataset: str, activation: str) -> list[Result]:
        """The full-length runs behind a cell."""
        return by_recipe(self.results, default_recipe(model, dataset, activation=activation))

    def dictionaries(self, dataset: str) -> tuple[DdlRow, DdlRow] | None:
        """Deep dictionary learning and DeTraMe, at the largest number of epochs that both have run."""
        by_epochs: dict[int, dict[str, DdlRow]] = {}
        for row in self.ddl:
            if row.dataset == dataset and row.n:
                by_epochs.setdefault(row.epochs, {})[row.activation] = row
        both = [epochs for epochs, found in by_epochs.items() if len(found) == len(DDL_METHODS)]
        return (by_epochs[max(both)]["dictionary"], by_epochs[max(both)]["qmetric"]) if both else None

    def time(self, model: str, activation: str) -> TimeRow:
        """A network's row of the time table."""
        (row,) = [row for row in self.timing if (row.model, row.activation) == (model, activation)]
        return row

    def test_ratio(self, model: str) -> float | None:
        """How many times as long Q-Metric takes as ReLU at test, if both were measured."""
        relu, qmetric = (self.time(model, activation).test_s_per_image for activation in paper.COMPARED)
        return None if relu is None or qmetric is None else qmetric / relu


def models(*families: str, dataset: str | None = None) -> list[str]:
    """The paper's networks in its order: of some of the FAMILIES, or of all; on one data set, or on any."""
    return [
        model
        for model, row in paper.tables()["accuracy"].items()
        if re.sub(r"[\d_]+$", "", model) in (families or FAMILIES) and (dataset is None or dataset in row)
    ]


def model_name(model: str) -> str:
    """The network's name in print: PlainNet 9, WideResNet 16-4."""
    family, numbers = re.fullmatch(r"([a-z]+)([\d_]+)", model).groups()  # type: ignore[union-attr]
    return f"{FAMILIES[family]} {numbers.replace('_', '-')}"
