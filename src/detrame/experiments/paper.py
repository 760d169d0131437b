"""The paper's figures, as data (paper.toml)."""

import tomllib
from functools import cache
from importlib.resources import files
from typing import Any


@cache
def tables() -> dict[str, Any]:
    """Every table of the paper, and its claims in words."""
    return tomllib.loads(files("detrame.experiments").joinpath("paper.toml").read_text())


def iterations(model: str, dataset: str) -> int | None:
    """The number of Q-Metric iterations the paper took for a network on a data set, if it has that cell."""
    cell = tables()["accuracy"].get(model, {}).get(dataset)
    return cell["iterations"] if cell else None
