"""Mean and deviation of a figure over seeds."""

import statistics
from collections.abc import Sequence
from typing import Any, NamedTuple

NBSP = "\N{NO-BREAK SPACE}"


class Spread(NamedTuple):
    """Mean and sample standard deviation (n - 1) of n figures; one figure has no deviation."""

    mean: float
    std: float | None
    n: int

    @classmethod
    def of(cls, values: Sequence[float]) -> "Spread":
        """The spread of some figures."""
        return cls(statistics.fmean(values), statistics.stdev(values) if len(values) > 1 else None, len(values))

    @classmethod
    def fields(cls, values: Sequence[float]) -> dict[str, Any]:
        """The spread of figures of which there may be none yet, as the fields mean, std and n of a row."""
        return cls.of(values)._asdict() if values else {"mean": None, "std": None, "n": 0}

    def text(self, digits: int) -> str:
        """``mean ± std``, or the mean alone."""
        return plus_minus(self.mean, self.std, digits)


def plus_minus(mean: float | None, std: float | None, digits: int = 2, *, missing: str = "") -> str:
    """``mean ± std``, or the mean alone where there is no deviation; `missing` where there is no mean yet."""
    if mean is None:
        return missing
    return f"{mean:.{digits}f}" + ("" if std is None else f"{NBSP}±{NBSP}{std:.{digits}f}")
