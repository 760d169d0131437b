"""The paper's time table: its figures on a V100, and ours by `detrame bench` and from whole runs."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from detrame.data.catalogue import entry
from detrame.experiments import paper
from detrame.experiments.bench import store
from detrame.experiments.bench.setting import PAPER_BATCH
from detrame.experiments.bench.steps import StepFigures, Steps
from detrame.experiments.controls import network_cost
from detrame.experiments.recipes import default_recipe
from detrame.experiments.results import Result, by_recipe, stored
from detrame.experiments.spread import Spread
from detrame.training import Recipe
from detrame.training.environment import short_commit


@dataclass(frozen=True, kw_only=True)
class Row:
    """A network with one activation on CIFAR-10; None where we have not measured.

    Attributes:
        step_ms: one training step, the batch's copy excluded: on a GPU one replay of the captured step.
        plain_ms: the same by the plain captured path, in the same run.
        ratio, paper_ratio, operations_ratio: Q-Metric over ReLU, the same in both rows of a network: of our steps, of
            the paper's training times, of the forward multiply-adds.
        tflops: 3 x 2 x multiply-adds x batch / step.
        hardware, commit: what ours was measured on, and of which version; the paper's is a V100.
        train_s: the whole training; `train_basis` says whether it was a run or the steps that it takes.
        test_s_per_image: inference.
        batch: images a step.
    """

    model: str
    activation: str
    iterations: int
    step_ms: float | None = None
    plain_ms: float | None = None
    ratio: float | None = None
    paper_ratio: float
    operations_ratio: float | None = None
    tflops: float | None = None
    hardware: str | None = None
    train_s: float | None = None
    paper_train_s: float
    test_s_per_image: float | None = None
    paper_test_s_per_image: float
    batch: int | None = None
    train_basis: str | None = None
    commit: str | None = None


def rows(results: Path, models: Sequence[str] | None = None, *, hardware: str | None = None) -> list[Row]:
    """The table from what is stored below `results`, for some networks and hardware, or all on the best measured.

    The best is a GPU before a CPU, the paper's batch before another, then the one with the most networks.
    """
    wanted = paper.timed(models)
    measured = _measured(results, hardware)
    runs = stored(results)
    return [_row(model, activation, measured.get(model), runs) for model in wanted for activation in paper.COMPARED]


def by_steps(recipe: Recipe, results: Path) -> tuple[float, str] | None:
    """Seconds that a run's steps, and its tests after each epoch, may take, and on which hardware these were measured.

    What the Q-Metric adds is taken to grow with its iterations, and what a wider network takes with its multiply-adds.
    None if they were not measured, or of a narrower network, whose steps take longer than its multiply-adds say.
    """
    steps = _measured(results).get(recipe.model)
    published = paper.iterations(recipe.model, recipe.dataset) is not None  # all on images of one size
    known = published and recipe.activation in paper.COMPARED and recipe.width >= 1
    if steps is None or not known or recipe.batch_size != steps.batch:
        return None
    seconds = _training_time(steps, recipe) + _test_time(steps, recipe)
    if recipe.width > 1:
        seconds *= network_cost(recipe).multiply_adds / network_cost(recipe.replace(width=1.0)).multiply_adds
    return seconds, steps.environment["hardware"]


def _measured(results: Path, hardware: str | None = None) -> dict[str, Steps]:
    """The steps measured on some hardware, or on the best, by network."""
    kept = [steps for folder in store.folders(results) if (steps := store.read_steps(folder))]
    if hardware is not None:
        kept = [steps for steps in kept if steps[0].environment["hardware"] == hardware]
    return {steps.model: steps for steps in max(kept, key=_worth, default=[])}


def _worth(steps: Sequence[Steps]) -> tuple[bool, bool, int]:
    return steps[0].environment["device"].startswith("cuda"), steps[0].batch == PAPER_BATCH, len(steps)


def _row(model: str, activation: str, steps: Steps | None, runs: Sequence[Result]) -> Row:
    times = paper.tables()["time"][model]
    row = Row(
        model=model,
        activation=activation,
        iterations=default_recipe(model, "cifar10").iterations,
        paper_ratio=paper.time_ratio(model, "train"),
        paper_train_s=times[f"train_{activation}"],
        paper_test_s_per_image=times[f"test_{activation}"],
    )
    if steps is None:
        return row
    figures = steps.relu if activation == "relu" else steps.qmetric
    train_s, train_basis = _training(steps, activation, runs)
    return replace(
        row,
        step_ms=figures.step_ms,
        plain_ms=figures.plain_ms,
        ratio=steps.ratio,
        operations_ratio=steps.operations_ratio,
        tflops=figures.tflops,
        hardware=steps.environment["hardware"],
        train_s=train_s,
        test_s_per_image=figures.test_s_per_image,
        batch=steps.batch,
        train_basis=train_basis,
        commit=short_commit(steps.environment["commit"]),
    )


def _training(steps: Steps, activation: str, runs: Sequence[Result]) -> tuple[float, str]:
    """Seconds of the whole training, and what they are: stored runs that had the device to themselves, or steps."""
    recipe = default_recipe(steps.model, "cifar10", activation=activation, batch_size=steps.batch)
    alone = [
        run.scores.seconds
        for run in by_recipe(runs, recipe)
        if run.scores.together == 1 and run.environment["hardware"] == steps.environment["hardware"]
    ]
    if alone:
        return Spread.of(alone).mean, f"the mean of whole runs alone on the device ({len(alone)})"
    return _training_time(steps, recipe), f"the time of a step x {_count(recipe)} steps x {recipe.epochs} epochs"


def _training_time(steps: Steps, recipe: Recipe) -> float:
    return _taken(steps, recipe, lambda figures: figures.step_ms) * _count(recipe) * recipe.epochs / 1e3


def _test_time(steps: Steps, recipe: Recipe) -> float:
    """Of the images that are scored after each epoch."""
    images = entry(recipe.dataset).counts[1] + recipe.validation
    return _taken(steps, recipe, lambda figures: figures.test_s_per_image) * images * recipe.epochs


def _taken(steps: Steps, recipe: Recipe, time: Callable[[StepFigures], float]) -> float:
    """A time of the recipe's network, by those of the two networks that were measured."""
    iterations = 0 if recipe.activation == "relu" else recipe.iterations / steps.qmetric.iterations
    return time(steps.relu) + (time(steps.qmetric) - time(steps.relu)) * iterations


def _count(recipe: Recipe) -> int:
    """Steps an epoch."""
    return math.ceil((entry(recipe.dataset).counts[0] - recipe.validation) / recipe.batch_size)
