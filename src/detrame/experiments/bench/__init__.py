"""`detrame bench`: what is measured of speed, by the paper's networks."""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from detrame.errors import unknown
from detrame.experiments import paper
from detrame.experiments.bench import store
from detrame.experiments.bench.accuracy import Accuracy, measure_accuracy
from detrame.experiments.bench.epochs import Epochs, Seeds, measure_epochs, measure_seeds
from detrame.experiments.bench.setting import Setting, setting_on
from detrame.experiments.bench.steps import Steps, measure_steps
from detrame.training.files import ready_to_write

__all__ = ["MEASUREMENTS", "Measured", "Setting", "Steps", "measure", "missing", "networks", "prepare", "setting_on"]

Measured = Steps | Epochs | Seeds | Accuracy
SMALL = ("resnet8", "resnet20")  # what a CPU does unless told otherwise


class Measurement(NamedTuple):
    """Something to measure of a network, and of which networks: all of the paper's time table if none are named."""

    take: Callable[[str, Setting], Measured]
    models: tuple[str, ...] = ()


MEASUREMENTS = {
    "steps": Measurement(measure_steps),
    "epoch": Measurement(measure_epochs),
    "seeds": Measurement(measure_seeds, ("plainnet3", "resnet8", "resnet20")),
    "accuracy": Measurement(measure_accuracy, ("plainnet9",)),
}


def networks(what: str, where: Setting, models: Sequence[str] | None = None) -> list[str]:
    """The networks to measure: those named, or those that the measurement is about, small ones alone on a CPU."""
    if what not in MEASUREMENTS:
        raise unknown("measurement", what, MEASUREMENTS)
    return paper.timed(models or (MEASUREMENTS[what].models if where.on_gpu else SMALL))


def prepare(what: str, where: Setting, results: Path | None) -> None:
    """Load the data set, and see that figures can be stored below `results`, before anything is measured."""
    if what != "steps":  # which take random images
        _ = where.dataset
    if results is not None:
        ready_to_write(store.folder(results, where.hardware, where.batch) / what / "MODEL.json")


def measure(what: str, models: Sequence[str], where: Setting, results: Path | None) -> Iterator[Measured]:
    """Measure networks one by one, storing each below `results`, if given, as soon as it is done."""
    for model in models:
        measured = MEASUREMENTS[what].take(model, where)
        if results is not None:
            store.write(what, measured, store.folder(results, where.hardware, where.batch))
        yield measured


def missing(models: Sequence[str], where: Setting, results: Path) -> list[str]:
    """Those of the networks whose steps are not stored for this device and batch."""
    known = {steps.model for steps in store.read_steps(store.folder(results, where.hardware, where.batch))}
    return [model for model in models if model not in known]
