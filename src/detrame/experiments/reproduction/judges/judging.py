"""How a claim is judged: by what is in print of it, data set by data set, and by our finding on each."""

from collections.abc import Callable, Mapping
from typing import Any

from detrame.experiments.report.svg import signed
from detrame.experiments.reproduction.evidence import DATASETS, Evidence
from detrame.experiments.reproduction.verdicts import Found

Printed = dict[str, Any]  # an entry of [claims]
Said = Callable[[Printed], Mapping[str, str]]  # what is in print, in words, by the data sets that it is about
Judge = Callable[[Evidence, str], Found | None]  # what we find on one of these; None where runs are missing


def printed_figures(printed: Printed) -> dict[str, str]:
    """One figure for each of the first data sets, and what the paper's table gives where that differs."""
    figures: list[float] = printed["printed"]
    pairs = zip(map(signed, figures), map(signed, printed.get("own_tables", figures)), strict=True)
    texts = [figure + (f" (its table {own})" if own != figure else "") for figure, own in pairs]
    return dict(zip(DATASETS, texts, strict=False))


def the_same(text: str) -> Said:
    """One text for every data set."""
    return lambda printed: dict.fromkeys(DATASETS, text)


def in_words(dataset: str) -> Said:
    """What is printed about one data set, or "" for all as one, and what the paper's table gives where that differs."""

    def said(printed: Printed) -> dict[str, str]:
        own = printed.get("own_tables")
        return {dataset: printed["printed"] + ("" if own is None else f" (its table {own:g})")}

    return said
