"""Options that the tables share."""

from pathlib import Path
from typing import Annotated

import typer

Dataset = Annotated[str | None, typer.Option(help="One data set of the table. [default: all]")]
Models = Annotated[str | None, typer.Option(metavar="NAME,NAME,...", help="Some networks. [default: all]")]
Methods = Annotated[
    str | None, typer.Option(metavar="NAME,NAME,...", help="Some of relu, lista, slstm, qmetric, ddl. [default: all]")
]
Seeds = Annotated[str, typer.Option(metavar="0,1,...", help="One run for each.")]
Epochs = Annotated[int | None, typer.Option(help="Shorter runs than the paper's; the table leaves them out.")]
Budget = Annotated[float | None, typer.Option(metavar="MINUTES", help="Stop cleanly after this time.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="List the missing runs and train nothing.")]
Show = Annotated[bool, typer.Option("--show", help="Print the table from what is stored and run nothing.")]
Results = Annotated[Path, typer.Option(help="Where results are stored.")]


def names(models: str | None) -> list[str] | None:
    """The names with commas between, or None for all."""
    return models.split(",") if models else None
