"""Whole epochs by the real training code: against their steps' time, and of several seeds at once."""

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from detrame.experiments.bench import research
from detrame.experiments.bench.clock import milliseconds
from detrame.experiments.bench.setting import Setting
from detrame.experiments.bench.steps import ready
from detrame.experiments.paper import COMPARED
from detrame.experiments.plans import seeded, train_all
from detrame.training import OnEpoch, Recipe
from detrame.training.environment import describe

# The first, in which the step is captured, is not measured, nor is the last: an epoch makes the next one's data.
EPOCHS = 4
SEEDS = 5


@dataclass(frozen=True)
class EpochFigures:
    """A network with one activation.

    Attributes:
        iterations: of each Q-Metric ReLU.
        steps: an epoch.
        steps_s: what these take by themselves, replayed one after another.
        epoch_s: the epoch by the training code, data and augmentation included, evaluation not.
        overhead: epoch_s / steps_s - 1.
    """

    iterations: int
    steps: int
    steps_s: float
    epoch_s: float
    overhead: float


@dataclass(frozen=True)
class Epochs:
    """A network's epochs with both activations."""

    model: str
    batch: int
    dataset: str
    relu: EpochFigures
    qmetric: EpochFigures
    environment: dict[str, Any]

    def line(self) -> str:
        """The figures in a line."""
        return (
            f"an epoch takes {self.relu.epoch_s:.3g} s with ReLU, {self.qmetric.epoch_s:.3g} s with Q-Metric: "
            f"{self.relu.overhead:+.1%} and {self.qmetric.overhead:+.1%} of its steps"
        )


def measure_epochs(model: str, where: Setting) -> Epochs:
    """Train a few epochs, and replay the same number of steps on their own."""
    recipes = [where.recipe(model, activation, epochs=EPOCHS) for activation in COMPARED]
    relu, qmetric = (_epoch(recipe, where) for recipe in recipes)
    return Epochs(model, where.batch, where.dataset_name, relu, qmetric, describe(where.dataset, where.device))


def _epoch(recipe: Recipe, where: Setting) -> EpochFigures:
    full, rest = divmod(len(where.dataset.train), recipe.batch_size)
    counts = {recipe.batch_size: full, rest: 1} if rest else {recipe.batch_size: full}
    device = where.torch_device
    replays = {str(size): ready(recipe, where.dataset, device, size)[1] for size in counts}
    times = milliseconds(replays, device, where.effort)
    steps_s = sum(count * times[str(size)] for size, count in counts.items()) / 1e3
    seconds: list[float] = []
    _train([recipe], where, lambda run, epoch: seconds.append(epoch.seconds))
    epoch_s = (seconds[-2] - seconds[0]) / (EPOCHS - 2)
    return EpochFigures(recipe.iterations, full + bool(rest), steps_s, epoch_s, epoch_s / steps_s - 1)


@dataclass(frozen=True)
class SeedFigures:
    """A network with one activation.

    Attributes:
        iterations: of each Q-Metric ReLU.
        seeds: how many were trained at once.
        alone_s: an epoch of one, alone on the device; evaluation is included.
        together_s: an epoch of all at once.
        share: together_s / (seeds x alone_s): of the time that they take one after another, alone each.
        one_batch_share: likewise a step of one network on the images of all seeds as one batch, over a step of each:
            kernels as long as those of all seeds, so that there is little left to overlap. Not much less can be had.
        images_per_s: of all seeds together.
        research_images_per_s: of research code, which trains one at a time.
        research_speedup: times its throughput.
    """

    iterations: int
    seeds: int
    alone_s: float
    together_s: float
    share: float
    one_batch_share: float
    images_per_s: float
    research_images_per_s: float
    research_speedup: float


@dataclass(frozen=True)
class Seeds:
    """Several seeds of a network at once, with both activations."""

    model: str
    batch: int
    dataset: str
    relu: SeedFigures
    qmetric: SeedFigures
    environment: dict[str, Any]

    def line(self) -> str:
        """The figures in a line."""
        return (
            f"{SEEDS} seeds at once take {self.relu.share:.2f} (ReLU) and {self.qmetric.share:.2f} (Q-Metric) of the "
            f"time one after another, one batch of all their images {self.relu.one_batch_share:.2f} and "
            f"{self.qmetric.one_batch_share:.2f}; {self.relu.research_speedup:.1f} and "
            f"{self.qmetric.research_speedup:.1f} times the throughput of research code"
        )


def measure_seeds(model: str, where: Setting) -> Seeds:
    """Train one seed alone, then several at once, for a few epochs."""
    recipes = [where.recipe(model, activation, epochs=EPOCHS) for activation in COMPARED]
    relu, qmetric = (_seeds(recipe, where) for recipe in recipes)
    return Seeds(model, where.batch, where.dataset_name, relu, qmetric, describe(where.dataset, where.device))


def _seeds(recipe: Recipe, where: Setting) -> SeedFigures:
    alone = _epoch_on_the_wall([recipe], where)
    together = _epoch_on_the_wall(seeded(recipe, range(SEEDS)), where)
    research_ms = research.milliseconds(recipe, where.dataset, where.torch_device, seconds=where.effort.research_s)
    images_per_s = SEEDS * len(where.dataset.train) / together
    research_images_per_s = 1e3 * recipe.batch_size / research_ms
    return SeedFigures(
        iterations=recipe.iterations,
        seeds=SEEDS,
        alone_s=alone,
        together_s=together,
        share=together / (SEEDS * alone),
        one_batch_share=_one_batch_share(recipe, where),
        images_per_s=images_per_s,
        research_images_per_s=research_images_per_s,
        research_speedup=images_per_s / research_images_per_s,
    )


def _one_batch_share(recipe: Recipe, where: Setting) -> float:
    sizes = {"one": recipe.batch_size, "all": SEEDS * recipe.batch_size}
    replays = {name: ready(recipe, where.dataset, where.torch_device, size)[1] for name, size in sizes.items()}
    times = milliseconds(replays, where.torch_device, where.effort)
    return times["all"] / (SEEDS * times["one"])


def _epoch_on_the_wall(recipes: Sequence[Recipe], where: Setting) -> float:
    """Seconds of an epoch of all runs, from the end of the first of each to that of its last but one."""
    done: dict[Path, list[float]] = {}
    _train(recipes, where, lambda run, epoch: done.setdefault(run.path, []).append(time.perf_counter()))
    return _covered([(times[0], times[-2]) for times in done.values()]) / (EPOCHS - 2)


def _covered(intervals: Sequence[tuple[float, float]]) -> float:
    """How much of the time at least one of the intervals covers: they overlap where runs train side by side."""
    total, reached = 0.0, -math.inf
    for start, end in sorted(intervals):
        total += max(0.0, end - max(start, reached))
        reached = max(reached, end)
    return total


def _train(recipes: Sequence[Recipe], where: Setting, on_epoch: OnEpoch) -> None:
    """Train into folders that are not kept."""
    with TemporaryDirectory(prefix="detrame-bench-") as folder:
        train_all(recipes, Path(folder) / "runs", device=where.device, checkpoint_every=EPOCHS, on_epoch=on_epoch)
