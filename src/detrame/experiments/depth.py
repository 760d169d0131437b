"""How deep can each go? Deep dictionary learning, DeTraMe and ReLU networks of growing depth on a small budget.

The paper says that decoupling the transform from the metric cures the initialisation and gradients of deep dictionary
learning, which stops at 23 layers, where DeTraMe reaches 110. Its 110 layers are a ResNet's; here all are plain
networks of one shape, trained by one recipe.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from detrame.errors import unknown
from detrame.experiments.ddl import method_recipe
from detrame.experiments.report.charts import Series, line_chart
from detrame.experiments.report.groups import NAMES
from detrame.experiments.report.html import standalone
from detrame.experiments.results import Result, by_recipe, hardware_of
from detrame.experiments.spread import Spread
from detrame.models import plainnet
from detrame.training import Recipe

TABLE = "depth"
METHODS = ("relu", "qmetric", "ddl")
DEPTHS = (3, 6, 9, 12, 18, 24, 36)
# Narrow networks and few epochs, so that every depth of every method is a matter of minutes. At the recipes' own
# learning rate, 0.1, no method learned much with 12 layers in so short a time; at this one they did.
BUDGETS: dict[str, dict[str, Any]] = {
    "digits": {"epochs": 12, "width": 1 / 8, "lr": 0.03},
    "cifar10": {"epochs": 5, "width": 1 / 3, "lr": 0.03},
}


@dataclass(frozen=True)
class Row:
    """A method at a depth: its test accuracy in percent after the last epoch; None before it has run."""

    model: str
    dataset: str
    activation: str
    depth: int
    width: float
    mean: float | None
    std: float | None
    n: int
    epochs: int
    parameters: int | None
    hardware: str | None


def recipe_of(method: str, depth: int, dataset: str, *, epochs: int | None = None, seed: int = 0) -> Recipe:
    """The run of a method at a depth: the data set's recipe, narrow and short."""
    if dataset not in BUDGETS:
        raise unknown("data set of this table", dataset, BUDGETS)
    plainnet.layers(depth)  # a ValueError where there is no such depth, before anything is listed or run
    changes = BUDGETS[dataset] | ({} if epochs is None else {"epochs": epochs})
    return method_recipe(method, depth, dataset, iterations=2, seed=seed, **changes)


def rows(
    results: Sequence[Result], dataset: str, methods: Sequence[str], depths: Sequence[int], *, epochs: int | None = None
) -> list[Row]:
    """Each method at each depth, over the seeds that were run."""
    return [
        _row(depth, recipe, by_recipe(results, recipe))
        for depth in depths
        for recipe in [recipe_of(method, depth, dataset, epochs=epochs) for method in methods]
    ]


def _row(depth: int, recipe: Recipe, found: Sequence[Result]) -> Row:
    return Row(
        model=recipe.model,
        dataset=recipe.dataset,
        activation=recipe.activation,
        depth=depth,
        width=recipe.width,
        **Spread.fields([result.scores.last for result in found]),
        epochs=recipe.epochs,
        parameters=found[0].scores.parameters if found else None,
        hardware=hardware_of(found),
    )


def plot(table: Sequence[Row]) -> str:
    """Accuracy against depth as an SVG document: a line a method, with a band of one standard deviation either way."""
    activations = dict.fromkeys(row.activation for row in table if row.n)
    series = [_line(NAMES[name], [row for row in table if row.activation == name]) for name in activations]
    chart = line_chart(series, title="Test accuracy against depth", x_label="layers", y_label="test accuracy, %")
    return standalone(chart)


def _line(name: str, table: Sequence[Row]) -> Series:
    points = [(row.depth, row.mean, row.std or 0.0) for row in table if row.mean is not None]
    return Series(
        name,
        x=[depth for depth, _, _ in points],
        y=[mean for _, mean, _ in points],
        low=[mean - std for _, mean, std in points],
        high=[mean + std for _, mean, std in points],
    )
