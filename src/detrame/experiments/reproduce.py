"""The paper's accuracy table: which runs it takes, which are missing, and our figures beside the published ones."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from time import monotonic
from typing import Any

from detrame.data.catalogue import entry
from detrame.errors import Failure, OutOfTime, unknown
from detrame.experiments import paper
from detrame.experiments.recipes import default_recipe
from detrame.experiments.results import Result, by_recipe, record, result_name, stored
from detrame.experiments.spread import Spread
from detrame.models import ModelInfo, list_models
from detrame.training import OnEpoch, Recipe, Run, load, plan, resume_all
from detrame.training.loop import Stopped

ACTIVATIONS = ("relu", "qmetric")
# How many networks train side by side on a GPU: enough to fill it, few enough that an interruption costs little.
TOGETHER = 6


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
    def verdict(self) -> str:
        """reproduced: within two standard deviations, the paper's and ours; else better, or not reproduced."""
        if self.mean is None:
            return "not run"
        if self.paper_std is None and self.std is None:
            return "no spread to judge by"
        gap = self.mean - self.paper
        if abs(gap) <= 2 * math.hypot(self.paper_std or 0, self.std or 0):
            return "reproduced"
        return "better" if gap > 0 else "not reproduced"


def cells(dataset: str | None = None, models: Sequence[str] | None = None) -> list[tuple[str, str]]:
    """The cells (model, data set) of the paper's table, or those of one data set or of some models."""
    table = paper.tables()["accuracy"]
    datasets = sorted({name for row in table.values() for name in row})
    if dataset is not None and dataset not in datasets:
        raise unknown("data set of the paper", dataset, datasets)
    for model in models or []:
        if model not in table:
            raise unknown("model of the paper", model, table)
    found = [
        (model, name)
        for model, row in table.items()
        for name in row
        if name == (dataset or name) and (models is None or model in models)
    ]
    if not found:
        raise ValueError(f"the paper has no figure of {', '.join(models or [])} on {dataset}")
    return found


def recipes(wanted: Sequence[tuple[str, str]], seeds: Sequence[int], *, epochs: int | None = None) -> list[Recipe]:
    """The runs of some cells: both activations, every seed, by the paper's recipe (or a shorter one)."""
    changes: dict[str, Any] = {} if epochs is None else {"epochs": epochs}
    return [
        default_recipe(model, dataset, activation=activation, seed=seed, **changes)
        for model, dataset in wanted
        for seed in seeds
        for activation in ACTIVATIONS
    ]


def missing(wanted: Sequence[Recipe], results: Path, *, table: str = "accuracy") -> list[Recipe]:
    """Those of the runs that have no stored result in a table."""
    done = {result.recipe for result in stored(results, table=table)}
    return [recipe for recipe in wanted if recipe not in done]


def run_missing(
    wanted: Sequence[Recipe],
    results: Path,
    runs: Path,
    *,
    table: str = "accuracy",
    timed: Callable[[Run], dict[str, float]] | None = None,
    device: str = "auto",
    minutes: float | None = None,
    on_epoch: OnEpoch | None = None,
    on_result: Callable[[Run], None] | None = None,
) -> None:
    """Train what has no result yet, resuming what was cut short, and store each result as it comes.

    A run's folder is `runs` / the name of its result. With `timed`, which measures a finished run, no run shares the
    device with another. After `minutes` it ends in OutOfTime.
    """
    end = math.inf if minutes is None else monotonic() + 60 * minutes
    left = missing(wanted, results, table=table)
    together = TOGETHER if timed is None else 1
    for start in range(0, len(left), together):
        folders = [_folder(recipe, runs, device) for recipe in left[start : start + together]]
        try:
            resume_all(
                folders,
                checkpoint_every=10,
                on_epoch=on_epoch,
                minutes=(end - monotonic()) / 60,
            )
        except Stopped as stopped:
            if minutes is not None and monotonic() >= end:
                raise OutOfTime(minutes) from None
            raise Stopped(stopped.where, "type the same again to go on") from None  # what goes on has to be stored too
        finally:
            for folder in folders:
                if (run := load(folder)).finished:
                    record(run, results, table=table, timing=timed(run) if timed else None)
                    if on_result is not None:
                        on_result(run)


def _folder(recipe: Recipe, runs: Path, device: str) -> Path:
    folder = runs / result_name(recipe)
    if not (folder / "recipe.json").is_file():
        return plan(recipe, folder, device=device).path
    if load(folder).recipe != recipe:
        raise Failure(f"{folder} holds a run of another recipe: move it away")
    return folder


def expected_time(recipe: Recipe, results: Sequence[Result]) -> tuple[float, str] | None:
    """Seconds a run may take, as the same network took on the same data, by the epoch, and on which hardware."""
    known = [result for result in results if _network(result.recipe) == _network(recipe)]
    if not known:
        return None
    epoch = [_epoch_seconds(result) for result in known]
    places = dict.fromkeys(result.environment["hardware"] for result in known)
    return recipe.epochs * sum(epoch) / len(epoch), " and ".join(places)


def _epoch_seconds(result: Result) -> float:
    """Of training alone, where that was measured by itself; else with all that a run does besides."""
    if seconds := result.timing.get("train_s_per_image_and_epoch"):
        return seconds * (entry(result.recipe.dataset).counts[0] - result.recipe.validation)
    return result.scores.seconds / result.scores.together / result.recipe.epochs


def _network(recipe: Recipe) -> tuple[object, ...]:
    return recipe.dataset, recipe.model, recipe.activation, recipe.iterations, recipe.width


def accuracy_rows(results: Sequence[Result], wanted: Sequence[tuple[str, str]]) -> list[Row]:
    """The table, cell by cell, from full-length runs by the paper's recipe alone."""
    rows = []
    for model, dataset in wanted:
        cell = paper.tables()["accuracy"][model][dataset]
        for activation in ACTIVATIONS:
            recipe = default_recipe(model, dataset, activation=activation)
            found = by_recipe(results, recipe)
            spread = Spread.of([result.scores.last for result in found]) if found else None
            rows.append(
                Row(
                    model=model,
                    dataset=dataset,
                    activation=activation,
                    iterations=recipe.iterations,
                    paper=cell[activation],
                    paper_std=cell.get(f"{activation}_std"),
                    mean=spread.mean if spread else None,
                    std=spread.std if spread else None,
                    n=len(found),
                    epochs=recipe.epochs,
                    parameters=found[0].scores.parameters if found else None,
                )
            )
    return rows


@dataclass(frozen=True)
class Parameters:
    """The parameters of a network for a data set, and the count the paper prints, if it does."""

    model: str
    dataset: str
    activation: str
    parameters: int
    paper: float | None


@cache
def _counted(num_classes: int) -> dict[str, ModelInfo]:
    return list_models(num_classes=num_classes, image_size=8)  # parameters do not depend on it, and small is quick


def parameter_rows(wanted: Sequence[tuple[str, str]]) -> list[Parameters]:
    """Our parameter counts beside the paper's, which prints three: PlainNet 9's two and (wrongly) DeTraMe-Net 12's."""
    tables = paper.tables()
    printed = {
        ("plainnet9", "relu"): tables["ddl_accuracy"]["plainnet9"]["parameters"],
        ("plainnet9", "qmetric"): tables["ddl_accuracy"]["detrame9"]["parameters"],
        ("plainnet12", "qmetric"): tables["ddl_time"]["detrame12"]["parameters"],
    }
    rows = []
    for dataset in dict.fromkeys(dataset for _, dataset in wanted):
        infos = _counted(100 if dataset == "cifar100" else 10)
        for model in [model for model, name in wanted if name == dataset]:
            for activation, cost in infos[model]._asdict().items():
                rows.append(Parameters(model, dataset, activation, cost.parameters, printed.get((model, activation))))
    return rows
