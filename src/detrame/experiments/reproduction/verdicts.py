"""What can become of a claim, and the rules by which gains are weighed, one or many."""

from collections import Counter
from collections.abc import Iterable, Sequence
from enum import StrEnum
from typing import NamedTuple, Self

from detrame.experiments.reproduction.evidence import Gain, weighted


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
    return weighted(*[(1 / len(middle), gain) for gain in middle])


def side(gain: Gain) -> Verdict:
    """Above 0, below it, or within two standard errors of it."""
    if abs(gain.mean) <= 2 * gain.error:
        return Verdict.CHANCE
    return Verdict.HOLDS if gain.mean > 0 else Verdict.FAILS


def weigh(gain: Gain, printed: Gain) -> Verdict:
    """Beyond chance, a gain as large as the paper's, or within two errors of it, holds; a smaller one in part."""
    if side(gain) is Verdict.HOLDS and side(printed - gain) is Verdict.HOLDS:
        return Verdict.PARTLY
    return side(gain)


class Count(NamedTuple):
    """How many of some differences are as the paper says, how many within chance, how many the other way."""

    yes: int
    chance: int
    no: int

    @classmethod
    def of(cls, gains: Iterable[Gain]) -> Self:
        """Each difference counts where it is beyond two standard errors, else as chance."""
        sides = Counter(map(side, gains))
        return cls(sides[Verdict.HOLDS], sides[Verdict.CHANCE], sides[Verdict.FAILS])

    @property
    def verdict(self) -> Verdict:
        """Those beyond chance decide: with some on either side in part; with all on one side if they are half or more.

        Of many differences, chance alone takes one or two beyond two errors. Were each of the other sign, what holds
        would not hold, and the other way round.
        """
        if self.yes and self.no:
            return Verdict.PARTLY
        if self.chance > self.yes + self.no:
            return Verdict.CHANCE
        return Verdict.HOLDS if self.yes else Verdict.FAILS

    def text(self, what: str = "") -> str:
        """How many of all, and what the others are."""
        others = {"within chance": self.chance, "the other way": self.no}
        return ", ".join(
            [f"{self.yes} of {sum(self)} {what}".rstrip(), *[f"{n} {word}" for word, n in others.items() if n]]
        )
