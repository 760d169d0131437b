"""How a claim is judged: one data set at a time, beside what is in print."""

import re
from collections.abc import Callable, Mapping
from typing import Any

from detrame.experiments.report.svg import signed
from detrame.experiments.reproduction.evidence import DATASETS, Evidence
from detrame.experiments.reproduction.verdicts import NOTHING, Finding, Found

Printed = dict[str, Any]  # an entry of [claims]
Judge = Callable[[Printed, Evidence], list[Finding]]


def on_each(
    said: Callable[[Printed], Mapping[str, str]], find: Callable[[Printed, Evidence, str], Found | None]
) -> Judge:
    """A judge that looks at each of the data sets about which the paper says something."""

    def judge(printed: Printed, evidence: Evidence) -> list[Finding]:
        texts = said(printed)
        found = {dataset: find(printed, evidence, dataset) for dataset in texts}
        tested = [Finding(DATASETS[dataset], texts[dataset], one) for dataset, one in found.items() if one]
        return tested + untested({DATASETS[dataset]: texts[dataset] for dataset, one in found.items() if not one})

    return judge


def untested(texts: Mapping[str, str]) -> list[Finding]:
    """One finding for all data sets on which nothing has run."""
    return [Finding(", ".join(texts), ", ".join(dict.fromkeys(texts.values())), NOTHING)] if texts else []


def printed_figures(printed: Printed) -> dict[str, str]:
    """One figure for each of the first data sets, and what the paper's table gives where that differs."""
    figures: list[float] = printed["printed"]
    pairs = zip(map(signed, figures), map(signed, printed.get("own_tables", figures)), strict=True)
    texts = [figure + (f" (its table {own})" if own != figure else "") for figure, own in pairs]
    return dict(zip(DATASETS, texts, strict=False))


def the_same(text: str) -> Callable[[Printed], dict[str, str]]:
    """One text for every data set."""
    return lambda printed: dict.fromkeys(DATASETS, text)


def on_cifar10(printed: Printed) -> dict[str, str]:
    """A claim about CIFAR-10 alone."""
    return {"cifar10": with_table(printed)}


def with_table(printed: Printed) -> str:
    """What is printed, and what the paper's table gives where that differs."""
    own = printed.get("own_tables")
    return printed["printed"] + ("" if own is None else f" (its table {own:g})")


def seeds(n: int) -> str:
    """How many seeds."""
    return f"{n} seed{'s' * (n > 1)}"


def first_number(text: str) -> int:
    """The first whole number in a text."""
    found = re.search(r"\d+", text)
    assert found
    return int(found[0])
