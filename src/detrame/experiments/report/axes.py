"""Axes: where a value stands, and which values are written beside it."""

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

from detrame.experiments.report.svg import Scale, bounds, decades, linear, number, ticks

TINY = 1e-9  # a logarithmic axis ends here
ERRORS = (
    *(100, 90, 80, 70, 60, 50, 40, 35, 30, 25, 20, 15),
    *(10, 8, 6, 5, 4, 3, 2.5, 2, 1.5),
    *(1, 0.8, 0.6, 0.5, 0.4, 0.3, 0.2, 0.1),
)  # percent, of accuracies that are written
FEW = 4  # powers of ten, between which there is room for more ticks
CLOSEST = 0.1  # of the axis: the least distance between two ticks


class Axis(NamedTuple):
    """Its label, the place of a value (0 at its start, 1 at its end), the values that are written, and how."""

    label: str
    at: Scale
    ticks: Sequence[float]
    text: Callable[[float], str] = number


def straight(label: str, values: Sequence[float]) -> Axis:
    """Even, with some room around the values."""
    low, high = bounds(values)
    return Axis(label, linear(low, high, 0, 1), ticks(low, high))


def whole(label: str, values: Sequence[float]) -> Axis:
    """Even, from the least to the largest of some whole numbers: epochs, layers, iterations."""
    low, high = (min(values), max(values)) if len(set(values)) > 1 else bounds(values)
    return Axis(label, linear(low, high, 0, 1), ticks(low, high, whole=True))


def powers(label: str, values: Sequence[float], *, finer: bool = False) -> Axis:
    """Logarithmic, between the powers of ten around the positive values, at least one decade apart.

    `finer` writes 2 and 5 times the powers too, unless there are many.
    """
    positive = [max(value, TINY) for value in values if value > 0 and math.isfinite(value)] or [1.0]
    first, last = math.floor(math.log10(min(positive))), math.ceil(math.log10(max(positive)))
    low, high = 10.0 ** (first - (first == last)), 10.0**last
    at, written = _logarithmic(low, high), decades(low, high)
    if finer and len(written) < FEW:
        written = [power * factor for power in written for factor in (1, 2, 5) if power * factor <= high]
    return Axis(label, lambda value: at(max(value, low)), written)


def millions(label: str, values: Sequence[float]) -> Axis:
    """Logarithmic, for large counts, which are written in millions."""
    at = _logarithmic(*(10**exponent for exponent in bounds([math.log10(value) for value in values])))
    steps = [factor * 10.0**power for power in range(2, 10) for factor in (1, 2, 5)]
    return Axis(label, at, _inside(steps, at), lambda count: f"{count / 1e6:g}M")


def accuracies(label: str, values: Sequence[float]) -> Axis:
    """Logarithmic in the error: from 90 to 95 percent is as far as from 80 to 90, since either halves the errors."""
    low, high = (10**exponent for exponent in bounds([math.log10(max(100 - value, TINY)) for value in values]))
    falling = _logarithmic(high, low)

    def at(value: float) -> float:
        return falling(max(100 - value, TINY))

    return Axis(label, at, _inside([100 - error for error in ERRORS], at))


def _logarithmic(low: float, high: float) -> Scale:
    straight = linear(math.log10(low), math.log10(high), 0, 1)
    return lambda value: straight(math.log10(value))


def _inside(values: Sequence[float], at: Scale) -> list[float]:
    """Those of the values that stand on the axis, as far as they do not crowd."""
    kept: list[float] = []
    for value in values:
        if 0 <= at(value) <= 1 and (not kept or at(value) - at(kept[-1]) >= CLOSEST):
            kept.append(value)
    return kept
