"""How work ends badly: by a wrong argument (ValueError), or for a reason the user can mend (Failure). And checks."""

from collections.abc import Iterable
from difflib import get_close_matches
from operator import index
from pathlib import Path


class Failure(RuntimeError):
    """The work could not be done; the message is one line that says what, where and what to do."""


class OutOfTime(Failure):
    """The time that was given for the work is over; what is done is stored."""

    def __init__(self, minutes: float) -> None:
        super().__init__(
            f"stopped after {minutes:g} minute{'s' * (minutes != 1)}: run the same command again to continue"
        )


class TooLarge(ValueError):
    """A tensor is beyond the reach of the fused kernels; the plain pass has no such limit."""


def unknown(kind: str, name: object, known: Iterable[str]) -> ValueError:
    """A ValueError that says which `kind` of name is not known, with the nearest one or all there are."""
    names = list(known)
    close = get_close_matches(str(name), names, n=1)
    hint = f"did you mean {close[0]!r}?" if close else f"choose from {', '.join(names)}"
    return ValueError(f"unknown {kind} {name!r}: {hint}")


def why_not(error: Exception) -> str:
    """What is wrong with a stored document, from the error that reading its fields raised."""
    if isinstance(error, KeyError):
        return f"it lacks {error}"
    return "it has other fields" if isinstance(error, TypeError) else str(error)


def check_utf8(path: Path, remedy: str) -> None:
    """A Failure, with what to do, if a path is not UTF-8: safetensors writes to such a one, but cannot read it."""
    try:
        str(path).encode()
    except UnicodeEncodeError:
        raise Failure(f"{path} is not UTF-8, and could not be read again: {remedy}") from None


def check_type(name: str, value: object, wanted: type, called: str) -> None:
    """A TypeError unless `value` is of the type `wanted`, which a message names as `called`."""
    if not isinstance(value, wanted):
        raise TypeError(f"{name} must be {called}, got {type(value).__name__}")


def check_number(name: str, value: object) -> None:
    """A TypeError unless `value` is a number, or is as good as one (an array or tensor without axes)."""
    if not hasattr(value, "__float__") or getattr(value, "shape", ()) != ():
        raise TypeError(f"{name} must be a number, got {value!r}")


def check_count(name: str, value: int, minimum: int = 1) -> int:
    """`value` as an int, if it is a whole number of at least `minimum`; a TypeError or ValueError if not."""
    if isinstance(value, bool) or not hasattr(value, "__index__") or getattr(value, "shape", ()) != ():
        raise TypeError(f"{name} must be an int, got {value!r}")
    number = index(value)
    if number < minimum:
        raise ValueError(f"{name} must be at least {minimum}, got {number}")
    return number


def check_tolerance(tolerance: float | None) -> None:
    """A TypeError or ValueError unless `tolerance` is None or a number >= 0."""
    if tolerance is None:
        return
    check_number("tolerance", tolerance)
    if not tolerance >= 0:
        raise ValueError(f"tolerance must be a number >= 0, got {tolerance}")
