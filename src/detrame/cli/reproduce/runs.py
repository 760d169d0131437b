"""Training what a table lacks, or listing it, or neither: what the tables made of runs share."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from detrame.cli.reproduce.options import need_stored, tell_left
from detrame.cli.show import epochs_shown, print_document
from detrame.errors import OutOfTime

if TYPE_CHECKING:  # torch is imported where it is used, so that --help starts at once
    from detrame.experiments.results import Result
    from detrame.training import Recipe, Run

FOLDER = Path("runs/reproduce")


def results_of(
    wanted: "list[Recipe]",
    results: Path,
    device: str,
    budget: float | None,
    *,
    dry_run: bool,
    show: bool,
    as_json: bool,
    table: str = "accuracy",
    timed: "Callable[[Run], dict[str, float]] | None" = None,
) -> "list[Result] | None":
    """All that is stored of a table once its missing runs are trained, or with `show` as it is; None for a dry run."""
    from detrame.experiments.reproduce import missing
    from detrame.experiments.results import stored

    if dry_run:
        _list_missing(wanted, results, table, as_json=as_json)
        return None
    if show:
        need_stored(results)
    else:
        try:
            _train_missing(wanted, results, device, budget, table, timed, quiet=as_json)
        except OutOfTime as stopped:
            left = missing(wanted, results, table=table)
            tell_left(stopped, f"{len(left)} of {len(wanted)} runs")
    return stored(results, table=table)


def _train_missing(
    wanted: "list[Recipe]",
    results: Path,
    device: str,
    budget: float | None,
    table: str,
    timed: "Callable[[Run], dict[str, float]] | None",
    *,
    quiet: bool,
) -> None:
    """Train those of the runs that have no stored result in a table, and tell each accuracy as it comes."""
    from detrame.experiments import reproduce as tables
    from detrame.experiments.results import result_name

    left = tables.missing(wanted, results, table=table)

    def tell(run: "Run") -> None:
        if quiet:
            return
        held_out = run.scores.validation  # where there are such images, it is by them that recipes are compared
        score = f"{run.scores.last:.2f}%" if held_out is None else f"{held_out:.2f}% of the held-out images"
        print(f"{result_name(run.recipe)}: {score}")

    with epochs_shown(sum(recipe.epochs for recipe in left), quiet=quiet) as on_epoch:
        tables.run_missing(
            wanted,
            results,
            FOLDER / table,
            table=table,
            timed=timed,
            device=device,
            minutes=budget,
            on_epoch=on_epoch,
            on_result=tell,
        )


def _list_missing(wanted: "list[Recipe]", results: Path, table: str, *, as_json: bool) -> None:
    """Those of the runs that have no stored result in a table, with the time they may take.

    That is what its measured steps add up to where there are some, and else what runs of the same network took.
    """
    from detrame.experiments import reproduce as tables
    from detrame.experiments.results import result_name, stored
    from detrame.experiments.timing import by_steps

    known = stored(results, table=table)
    left = tables.missing(wanted, results, table=table)
    expected = {
        result_name(recipe): by_steps(recipe, results) or tables.expected_time(recipe, known) for recipe in left
    }
    if as_json:
        times = [(name, *(time or (None, None))) for name, time in expected.items()]
        print_document([{"run": run, "expected_seconds": seconds, "hardware": on} for run, seconds, on in times])
        return
    for name, time in expected.items():
        print(f"{name}: " + (f"about {_said(time[0])} on {time[1]}" if time else "never run before"))
    print(f"{len(expected)} of {len(wanted)} runs are missing")


def _said(seconds: float) -> str:
    return f"{seconds / 60:.1f} minutes" if seconds >= 60 else f"{seconds:.0f} seconds"
