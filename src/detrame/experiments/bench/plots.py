"""The steps as two plots: how long they take, and how Q-Metric compares with ReLU."""

from collections.abc import Sequence
from pathlib import Path

from markupsafe import Markup

from detrame.experiments.bench.steps import Steps
from detrame.experiments.report.charts import dot_chart
from detrame.experiments.report.html import standalone
from detrame.training.files import write_text


def write(networks: Sequence[Steps], into: Path) -> None:
    """Draw the steps of networks on one device as ``steps.svg`` and ``ratios.svg``."""
    for name, svg in (("steps", _steps(networks)), ("ratios", _ratios(networks))):
        write_text(into / f"{name}.svg", standalone(svg))


def _steps(networks: Sequence[Steps]) -> Markup:
    both = [("ReLU", [one.relu for one in networks]), ("Q-Metric", [one.qmetric for one in networks])]
    series = [
        (f"{name}{path}", [getattr(one, field) for one in figures])
        for field, path in (("step_ms", ""), ("plain_ms", ", plain"), ("research_ms", ", research code"))
        for name, figures in both
    ]
    where = f"{networks[0].environment['hardware']}, batch {networks[0].batch}"
    return dot_chart(
        [one.model for one in networks],
        series,
        title=f"Time of a training step, {where}",
        x_label=f"ms a step, {where}",
    )


def _ratios(networks: Sequence[Steps]) -> Markup:
    series = [
        ("ours", [one.ratio for one in networks]),
        ("plain", [one.plain_ratio for one in networks]),
        ("paper", [one.paper_ratio for one in networks]),
        ("operations", [one.operations_ratio for one in networks]),
    ]
    where = f"{networks[0].environment['hardware']}, batch {networks[0].batch}"
    return dot_chart(
        [one.model for one in networks],
        series,
        title=f"Training step of Q-Metric over ReLU, {where}",
        x_label=f"Q-Metric / ReLU, {where}",
    )
