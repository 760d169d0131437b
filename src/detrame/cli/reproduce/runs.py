"""Training what a table lacks, or listing it, or neither: what the tables made of runs share."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from detrame.cli.reproduce.options import need_stored, refuse_to_run, tell_left
from detrame.cli.show import epochs_shown, print_document
from detrame.errors import OutOfTime

if TYPE_CHECKING:  # torch is imported where it is used, so that --help starts at once
    from detrame.experiments.outlook import Outlook
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
) -> "list[Result]":
    """All that is stored of a table once its missing runs are trained, or with `show` as it is; a dry run ends here."""
    from detrame.experiments.lacking import missing, run_missing
    from detrame.experiments.outlook import outlooks
    from detrame.experiments.results import stored
    from detrame.training import pick_device

    if show:
        refuse_to_run(budget, device)
        need_stored(results)
        return stored(results, table=table)
    pick_device(device)  # which says so if it is not there
    left, runs = missing(wanted, results, table=table), FOLDER / table
    if dry_run:
        _list(outlooks(left, results, runs, table=table), len(wanted), as_json=as_json)
        raise typer.Exit
    try:
        with epochs_shown(sum(recipe.epochs for recipe in left), quiet=as_json) as on_epoch:
            run_missing(
                wanted,
                results,
                runs,
                table=table,
                timed=timed,
                device=device,
                minutes=budget,
                on_epoch=on_epoch,
                on_result=None if as_json else _tell,
            )
    except OutOfTime as stopped:
        left = missing(wanted, results, table=table)
        tell_left(stopped, f"{len(left)} of {len(wanted)} runs, which --dry-run lists")
    return stored(results, table=table)


def _tell(run: "Run") -> None:
    from detrame.experiments.results import result_name

    held_out = run.scores.validation  # where there are such images, it is by them that recipes are compared
    score = f"{run.scores.last:.2f}%" if held_out is None else f"{held_out:.2f}% of the held-out images"
    print(f"{result_name(run.recipe)}: {score}")


def _list(rows: "Sequence[Outlook]", wanted: int, *, as_json: bool) -> None:
    """The missing ones of so many runs, with the time that they may still take."""
    if as_json:
        print_document([row._asdict() for row in rows])
        return
    for row in rows:
        print(_line(row))
    print(f"{len(rows)} of {wanted} runs are missing{_in_all(rows)}")


def _line(row: "Outlook") -> str:
    known = f"about {_said(row.expected_seconds)} on {row.hardware}" if row.expected_seconds is not None else ""
    begun = f"continues after epoch {row.epochs_done}" if row.epochs_done else ""
    return f"{row.run}: {', '.join(filter(None, (begun, known))) or 'no time is known'}"


def _in_all(rows: "Sequence[Outlook]") -> str:
    """The time of all together, one after another, as far as it is known."""
    known = [row.expected_seconds for row in rows if row.expected_seconds is not None]
    if len(known) < 2:
        return ""
    unknown = len(rows) - len(known)
    return f": about {_said(sum(known))} one after another" + (
        f", without {unknown} of which no time is known" * bool(unknown)
    )


def _said(seconds: float) -> str:
    if seconds >= 60:
        return f"{seconds / 60:.1f} minutes"
    return f"{seconds:.0f} second{'s' * (round(seconds) != 1)}"
