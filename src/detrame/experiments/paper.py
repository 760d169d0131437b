"""The paper's figures, as data (paper.toml)."""

import tomllib
from collections.abc import Sequence
from functools import cache
from importlib.resources import files
from typing import Any

from detrame.errors import unknown

COMPARED = ("relu", "qmetric")  # the activations, in the order of every table


@cache
def tables() -> dict[str, Any]:
    """Every table of the paper, and its claims in words."""
    return tomllib.loads(files("detrame.experiments").joinpath("paper.toml").read_text())


def claims() -> dict[str, dict[str, Any]]:
    """What the paper says in words, by a name for each claim."""
    found: dict[str, dict[str, Any]] = tables()["claims"]
    return found


def iterations(model: str, dataset: str) -> int | None:
    """The number of Q-Metric iterations the paper took for a network on a data set, if it has that cell."""
    cell = tables()["accuracy"].get(model, {}).get(dataset)
    return cell["iterations"] if cell else None


def cells(dataset: str | None = None, models: Sequence[str] | None = None) -> list[tuple[str, str]]:
    """The cells (model, data set) of the paper's table, or those of one data set or of some models, in their order."""
    table = tables()["accuracy"]
    datasets = sorted({name for row in table.values() for name in row})
    if dataset is not None and dataset not in datasets:
        raise unknown("data set of the paper", dataset, datasets)
    for model in models or []:
        if model not in table:
            raise unknown("model of the paper", model, table)
        if dataset is not None and dataset not in table[model]:
            raise ValueError(f"the paper has no figure of {model} on {dataset}")
    wanted = table if models is None else models
    return [(model, name) for model in wanted for name in table[model] if name == (dataset or name)]


def time_ratio(model: str, phase: str) -> float:
    """How many times as long as ReLU Q-Metric took in the paper, in training ("train") or in test ("test")."""
    times: dict[str, float] = tables()["time"][model]
    return times[f"{phase}_qmetric"] / times[f"{phase}_relu"]


def timed(models: Sequence[str] | None = None) -> list[str]:
    """The networks of the time table, or those named; a ValueError for one that it does not have."""
    table = tables()["time"]
    for model in models or []:
        if model not in table:
            raise unknown("model of the paper", model, table)
    return list(models or table)
