"""The steps as two plots: how long they take, and how Q-Metric compares with ReLU."""

from collections.abc import Sequence
from pathlib import Path

from detrame.experiments.bench.steps import Steps
from detrame.experiments.report.charts import dot_chart
from detrame.experiments.report.html import standalone
from detrame.training.files import write_text

Figures = tuple[str, list[float]]  # a name, and a figure for each network


def write(networks: Sequence[Steps], into: Path) -> None:
    """Draw the steps of networks on one device as ``steps.svg`` and ``ratios.svg``."""
    names, where = [one.model for one in networks], f"{networks[0].environment['hardware']}, batch {networks[0].batch}"
    for file, series, title, label in (
        ("steps", _steps(networks), "Time of a training step", "ms a step"),
        ("ratios", _ratios(networks), "Training step of Q-Metric over ReLU", "Q-Metric / ReLU"),
    ):
        chart = dot_chart(names, series, title=f"{title}, {where}", x_label=f"{label}, {where}")
        write_text(into / f"{file}.svg", standalone(chart))


def _steps(networks: Sequence[Steps]) -> list[Figures]:
    both = [("ReLU", [one.relu for one in networks]), ("Q-Metric", [one.qmetric for one in networks])]
    return [
        (f"{name}{path}", [getattr(one, field) for one in figures])
        for field, path in (("step_ms", ""), ("plain_ms", ", plain"), ("research_ms", ", research code"))
        for name, figures in both
    ]


def _ratios(networks: Sequence[Steps]) -> list[Figures]:
    return [
        ("ours", [one.ratio for one in networks]),
        ("plain", [one.plain_ratio for one in networks]),
        ("paper", [one.paper_ratio for one in networks]),
        ("operations", [one.operations_ratio for one in networks]),
    ]
