"""`detrame bench`: how fast the paper's networks train here."""

import sys
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from detrame.cli.arguments import AsJson, Device, names
from detrame.cli.reproduce.options import Models, Results
from detrame.cli.show import print_document, print_steps
from detrame.errors import OutOfTime

if TYPE_CHECKING:  # torch is imported where it is used, so that --help starts at once
    from detrame.experiments.bench import Measured, Setting

Batch = Annotated[int | None, typer.Option(help="Images per step. [default: 128 on a GPU, 32 on a CPU]")]


def bench(
    what: Annotated[str, typer.Argument(metavar="steps|epoch|seeds|accuracy", help="What to measure.")] = "steps",
    models: Models = None,
    batch: Batch = None,
    dataset: Annotated[
        str | None,
        typer.Option(help="Data set of epoch, seeds and accuracy. [default: cifar10 on a GPU, digits on a CPU]"),
    ] = None,
    quick: Annotated[bool, typer.Option("--quick", help="Rough figures in little time; they are not stored.")] = False,
    results: Results = Path("results"),
    device: Device = "auto",
    as_json: AsJson = False,
) -> None:
    """Measure how fast the paper's networks train on this machine.

    steps: one training step, compared with the plain captured path, research code (the paper's equation as printed, in
    eager float32, with a DataLoader) and the measured ceiling of the device.

    epoch: a whole epoch with data and augmentation, compared with its steps alone.

    seeds: five seeds at once, compared with one after another.

    accuracy: 20 epochs our way, compared with eager float32, three seeds each.

    The figures are stored below results/timing, by device and batch, one file per network. A CPU runs small cases;
    there, our step is the plain one.

    Examples:

        detrame bench --models plainnet9,resnet20

        detrame bench seeds --device cuda
    """
    from detrame.experiments.bench import Steps, networks, setting_on

    where = setting_on(device, batch=batch, dataset=dataset, quick=quick)
    chosen = networks(what, where, names("--models", models))
    if what == "steps" and dataset is not None:
        raise ValueError("steps are measured on random images: leave --dataset out, or measure an epoch")
    measured = measure_told(what, chosen, where, None if quick else results, quiet=as_json)
    if as_json:
        print_document([asdict(one) for one in measured])
    elif steps := [one for one in measured if isinstance(one, Steps)]:
        print_steps(steps)


def measure_told(
    what: str,
    models: Sequence[str],
    where: "Setting",
    results: Path | None,
    *,
    quiet: bool,
    minutes: float | None = None,
) -> "list[Measured]":
    """Measure networks, and tell on stderr how it goes, unless that is to be quiet.

    After `minutes` it ends in OutOfTime, once the network at hand is measured.
    """
    from detrame.experiments.bench import measure, prepare

    prepare(what, where, results)

    def tell(line: str) -> None:
        if not quiet:
            print(line, file=sys.stderr, flush=True)

    start = time.monotonic()
    tell(f"{what} on {where.hardware}, batch {where.batch}: {', '.join(models) or 'nothing is missing'}")
    done = []
    for one in measure(what, models, where, results):
        tell(f"{time.monotonic() - start:6.1f} s  {one.model}: {one.line()}")
        done.append(one)
        if minutes is not None and time.monotonic() - start > 60 * minutes and len(done) < len(models):
            raise OutOfTime(minutes)
    return done
