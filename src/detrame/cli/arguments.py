"""Options that several commands share, and how their values are read."""

from typing import Annotated

import typer

Device = Annotated[str, typer.Option(help="auto, cpu or cuda.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON document and nothing else.")]


def numbers(option: str, text: str) -> list[int]:
    """Whole numbers with commas between."""
    try:
        return [int(number) for number in text.split(",")]
    except ValueError:
        raise ValueError(f"{option} takes whole numbers with commas between, as 0,1,2; got {text!r}") from None
