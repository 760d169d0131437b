"""The two ways work ends badly: a wrong argument (ValueError) and work that failed for a reason the user can mend."""

from collections.abc import Iterable
from difflib import get_close_matches


class Failure(RuntimeError):
    """The work could not be done; the message is one line that says what, where and what to do."""


def unknown(kind: str, name: object, known: Iterable[str]) -> ValueError:
    """A ValueError that says which `kind` of name is not known, with the nearest one or all there are."""
    names = list(known)
    close = get_close_matches(str(name), names, n=1)
    hint = f"did you mean {close[0]!r}?" if close else f"choose from {', '.join(names)}"
    return ValueError(f"unknown {kind} {name!r}: {hint}")
