"""Options that the tables share."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from detrame.cli.arguments import folder, numbers
from detrame.errors import Failure, OutOfTime


def _folder(results: Path) -> Path:
    if results.exists() and not results.is_dir():
        raise ValueError(f"--results takes a folder, and {results} is a file")
    return results


def _above_0(budget: float | None) -> float | None:
    if budget is not None and not budget > 0:
        raise ValueError(f"--budget takes minutes above 0, got {budget:g}")
    return budget


def _one_of_them(ctx: typer.Context, value: bool) -> bool:
    """--show runs nothing and --dry-run shows nothing: a ValueError for the two together."""
    if value and (ctx.params.get("show") or ctx.params.get("dry_run")):
        raise ValueError("--show prints what is stored and --dry-run lists what is missing: give one of them")
    return value


Dataset = Annotated[str | None, typer.Option(help="Only this data set. [default: all]")]
Models = Annotated[str | None, typer.Option(metavar="NAME,NAME,...", help="Only these networks. [default: all]")]
Methods = Annotated[
    str | None,
    typer.Option(metavar="NAME,NAME,...", help="Only these, out of relu, lista, slstm, qmetric, ddl. [default: all]"),
]
Seeds = Annotated[str | None, typer.Option(metavar="0,1,...", help="One run per seed. [default: 0]")]
Epochs = Annotated[int | None, typer.Option(help="Epochs, if not the paper's; these runs have a table of their own.")]
Budget = Annotated[
    float | None, typer.Option(callback=_above_0, metavar="MINUTES", help="Stop cleanly after this time.")
]
DryRun = Annotated[
    bool, typer.Option("--dry-run", callback=_one_of_them, help="List the missing runs and train nothing.")
]
DryMeasurement = Annotated[
    bool, typer.Option("--dry-run", callback=_one_of_them, help="List the missing measurements and take none.")
]
Show = Annotated[
    bool, typer.Option("--show", callback=_one_of_them, help="Print the table from what is stored and run nothing.")
]
Results = Annotated[
    Path, typer.Option(parser=folder, callback=_folder, metavar="FOLDER", help="Where results are stored.")
]


def tell_left(stopped: OutOfTime, left: str) -> None:
    """Say on stderr that the budget is spent, and what is left."""
    print(f"{stopped}; left: {left}", file=sys.stderr)


def need_stored(results: Path) -> None:
    """A Failure if there is no folder of results to show."""
    if not results.is_dir():
        raise Failure(f"{results} has no results: it does not exist; name the folder that has them with --results")


def seeds_of(text: str | None, *, show: bool) -> list[int]:
    """The seeds to run, the first unless some are given; a ValueError for some beside --show, which has them all."""
    if show and text is not None:
        raise ValueError("--show prints what is stored of every seed: leave --seeds out")
    return numbers("--seeds", "0" if text is None else text)


def refuse_to_run(budget: float | None, device: str = "auto") -> None:
    """A ValueError for options that say how to run, beside --show, which runs nothing."""
    if budget is not None or device != "auto":
        given = "--budget" if budget is not None else "--device"
        raise ValueError(f"--show prints what is stored and runs nothing: leave {given} out")
