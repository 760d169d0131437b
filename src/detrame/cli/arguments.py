"""Options that several commands share, and how their values are read."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

Device = Annotated[str, typer.Option(help="auto, cpu or cuda.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON document and nothing else.")]


def folder(text: str) -> Path:
    """A path that is not empty, as an unset variable of a shell would make it."""
    if not text:
        raise typer.BadParameter("the path is empty: name a folder")  # of a ValueError older parsers drop the words
    return Path(text)


def numbers(option: str, text: str) -> list[int]:
    """Whole numbers >= 0 with commas between, none twice."""
    try:
        found = [int(number) for number in text.split(",")]
    except ValueError:
        raise ValueError(f"{option} takes whole numbers separated by commas, such as 0,1,2; got {text!r}") from None
    if min(found) < 0:
        raise ValueError(f"{option} takes numbers >= 0, got {min(found)}")
    once(option, found)
    return found


def names(option: str, text: str | None) -> list[str] | None:
    """Names with commas between, none twice; None for None."""
    if text is None:
        return None
    found = text.split(",")
    if "" in found:
        raise ValueError(f"{option} takes names separated by commas, got {text!r}")
    once(option, found)
    return found


def once(option: str, given: Sequence[object]) -> None:
    """A ValueError if something is given twice."""
    for number, one in enumerate(given):
        if one in given[:number]:
            raise ValueError(f"{option} names {one} twice: leave one out")
