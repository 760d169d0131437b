"""The runs that a table still lacks: which they are, and how they are trained."""

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import accumulate, pairwise
from pathlib import Path
from time import monotonic

from detrame.errors import Failure, OutOfTime
from detrame.experiments.outlook import Outlook, outlooks
from detrame.experiments.results import record, result_name, stored
from detrame.training import OnEpoch, Recipe, Run, load, pick_device, plan, resume_all
from detrame.training.files import ready_to_write
from detrame.training.loop import Stopped

# How many networks train side by side on a GPU: enough to fill it, few enough that an interruption costs little.
TOGETHER = 6


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
    device with another. After `minutes` it ends in OutOfTime; no more runs are begun at once than may be done by then,
    since those that train side by side end together. A run that fails is told of once the others are trained.
    """
    end = math.inf if minutes is None else monotonic() + 60 * minutes
    failures: list[Failure] = []
    left = missing(wanted, results, table=table)
    if left:
        ready_to_write(results / table / "RESULT.json")
    while left:
        group = groups(left, TOGETHER if timed is None else 1)[0]
        if minutes is not None:
            if (seconds := end - monotonic()) <= 0:
                raise OutOfTime(minutes)
            group = group[: _in_time(outlooks(group, results, runs, table=table), seconds)]
        left = [recipe for recipe in left if recipe not in group]
        folders: list[Path] = []
        for recipe in group:
            with _noted(failures):
                folders.append(_folder(recipe, runs, device))
        try:
            with _noted(failures):
                resume_all(folders, checkpoint_every=10, on_epoch=on_epoch, minutes=(end - monotonic()) / 60)
        except Stopped as stopped:
            if minutes is not None and monotonic() >= end:
                raise OutOfTime(minutes) from None
            raise Stopped(
                stopped.where, "run the same command again to continue"
            ) from None  # what goes on has to be stored too
        finally:
            for folder in folders:
                with _noted(failures):
                    if (run := load(folder)).finished:
                        record(run, results, table=table, timing=timed(run) if timed else None)
                        if on_result is not None:
                            on_result(run)
    if failures:
        raise failures[0]


@contextmanager
def _noted(failures: list[Failure]) -> Iterator[None]:
    """Add a Failure of the block to the others, unless it is that of a stop: the rest of the work goes on."""
    try:
        yield
    except Stopped:
        raise
    except Failure as failure:
        failures.append(failure)


def groups(left: Sequence[Recipe], at_most: int) -> list[list[Recipe]]:
    """Runs to train side by side: of one data set, in their order, about as many in each group of it."""
    of_dataset: dict[str, list[Recipe]] = {}
    for recipe in left:
        of_dataset.setdefault(recipe.dataset, []).append(recipe)
    return [group for runs in of_dataset.values() for group in _parts(runs, math.ceil(len(runs) / at_most))]


def _in_time(group: Sequence[Outlook], seconds: float) -> int:
    """How many of the first runs may be done in time, by what they take one after another; at least one."""
    ends = accumulate(run.expected_seconds or 0.0 for run in group)
    return max(1, sum(end <= seconds for end in ends))


def _parts(runs: list[Recipe], count: int) -> list[list[Recipe]]:
    return [runs[start:end] for start, end in pairwise(len(runs) * part // count for part in range(count + 1))]


def _folder(recipe: Recipe, runs: Path, device: str) -> Path:
    """The run's folder, made if it is not there; a Failure if it holds what cannot go on as asked."""
    folder, asked = runs / result_name(recipe), pick_device(device)
    if not (folder / "recipe.json").is_file():
        return plan(recipe, folder, device=asked).path
    run = load(folder)
    if run.recipe != recipe:
        raise Failure(f"{folder} holds a run of another recipe: move it away")
    begun = run.environment["device"]
    if begun.partition(":")[0] != asked.partition(":")[0] and not run.finished:
        again = f"go on with --device {begun}, or move it away to begin again"
        raise Failure(f"{folder} was begun on {begun}, not on {asked}: {again}")
    return folder
