"""What can become of a claim, and the rule by which a gain is weighed."""

import math
import statistics
from collections.abc import Sequence
from enum import StrEnum
from typing import NamedTuple

from detrame.experiments.reproduction.evidence import Gain


class Verdict(StrEnum):
    """What became of a claim."""

    HOLDS = "holds"
    PARTLY = "holds in part"
    CHANCE = "within chance"
    FAILS = "does not hold"
    UNTESTED = "not yet tested"


class Found(NamedTuple):
    """Our figure in words, the verdict, and whether runs that are missing may change it."""

    ours: str
    verdict: Verdict
    provisional: bool = False


NOTHING = Found("", Verdict.UNTESTED)


class Finding(NamedTuple):
    """What was found on one data set (or, without one, on all), beside what the paper has."""

    where: str
    paper: str
    found: Found


class Claim(NamedTuple):
    """What the paper says, and what we found."""

    name: str
    statement: str
    findings: list[Finding]


def median_gain(gains: Sequence[Gain]) -> Gain:
    """The median, with the error of the one or two gains in the middle."""
    ordered = sorted(gains)
    middle = ordered[(len(ordered) - 1) // 2 : len(ordered) // 2 + 1]
    return Gain(statistics.fmean(gain.mean for gain in middle), math.hypot(*[g.error for g in middle]) / len(middle))


def weigh(gain: Gain, printed: Gain) -> Verdict:
    """A gain of at most two standard errors is chance; one as large as the paper's, within two, holds."""
    if abs(gain.mean) <= 2 * gain.error:
        return Verdict.CHANCE
    if gain.mean <= 0:
        return Verdict.FAILS
    short = printed - gain
    return Verdict.HOLDS if short.mean <= 2 * short.error else Verdict.PARTLY


def share(yes: int, among: int) -> Verdict:
    """Always, mostly, or not."""
    return Verdict.HOLDS if yes == among else Verdict.PARTLY if 2 * yes > among else Verdict.FAILS
