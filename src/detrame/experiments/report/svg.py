"""Markup from Python, escaped by construction, and the scales that put data on paper."""

import math
from collections.abc import Callable, Sequence

from markupsafe import Markup, escape

MINUS = "\N{MINUS SIGN}"
SUPERSCRIPT = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")
TICKS = 6  # at most, on an axis of the usual length
Scale = Callable[[float], float]


def tag(name: str, *children: object, **attributes: object) -> Markup:
    """An element; a trailing underscore of an attribute is dropped, others become hyphens."""
    written = Markup("").join(
        Markup(' {}="{}"').format(_attribute(key), _short(value)) for key, value in attributes.items()
    )
    inside = Markup("").join(escape(child) for child in children)
    return Markup("<{}{}>{}</{}>").format(name, written, inside, name)


def _attribute(key: str) -> str:
    return key.rstrip("_").replace("_", "-")


def _short(value: object) -> object:
    return f"{value:.5g}" if isinstance(value, float) else value


def linear(low: float, high: float, start: float, end: float) -> Scale:
    """The scale from [low, high] to [start, end]."""
    return lambda value: start + (end - start) * (value - low) / (high - low)


def ticks(low: float, high: float, *, at_most: int = TICKS, whole: bool = False) -> list[float]:
    """Round numbers in [low, high], a step of 1, 2 or 5 times a power of ten apart; `whole` ones on request."""
    span = high - low
    power = 10.0 ** math.floor(math.log10(span / at_most))
    step = next(power * factor for factor in (1, 2, 5, 10) if span / (power * factor) <= at_most)
    step = max(step, 1.0) if whole else step
    first = math.ceil(low / step - 1e-9)
    return [index * step for index in range(first, math.floor(high / step + 1e-9) + 1)]


def decades(low: float, high: float) -> list[float]:
    """Powers of ten in [low, high], evenly thinned; both ends are taken to be such powers."""
    first, last = round(math.log10(low)), round(math.log10(high))
    return [10.0**power for power in range(first, last + 1, math.ceil((last - first + 1) / TICKS))]


def bounds(values: Sequence[float]) -> tuple[float, float]:
    """A range with some room that holds the finite ones of the values, never an empty one."""
    finite = [value for value in values if math.isfinite(value)]
    low, high = (min(finite), max(finite)) if finite else (0.0, 1.0)
    if high - low < 1e-9 * max(1.0, abs(high)):
        return low - 0.5, high + 0.5
    room = 0.05 * (high - low)
    return low - room, high + room


def number(value: float) -> str:
    """A tick's label: no trailing zeros, a true minus, powers of ten where decimals would be long."""
    if value and not 1e-3 <= abs(value) < 1e5:
        mantissa, exponent = f"{value:.0e}".split("e")
        power = str(int(exponent)).translate(SUPERSCRIPT)
        factor = {"1": "", "-1": "-"}.get(mantissa, f"{mantissa}·")
        return f"{factor}10{power}".replace("-", MINUS)
    return f"{value:.6g}".replace("-", MINUS)


def signed(value: float) -> str:
    """A difference to two decimals, with its sign, a true minus."""
    return f"{value:+.2f}".replace("-", MINUS)
