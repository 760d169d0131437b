"""`detrame reproduce page`."""

from pathlib import Path
from typing import Annotated

import typer

from detrame.cli.reproduce.options import Results, need_stored


def page(
    out: Annotated[Path, typer.Option(help="The page to write.")] = Path("docs/reproduction.html"),
    results: Results = Path("results"),
) -> None:
    """Write the page of the reproduction from the stored results.

    The page has every table and figure. Nothing is run.

    Example: detrame reproduce page --out page.html
    """
    from detrame.experiments.reproduction import write

    need_stored(results)
    print(write(results, out))
