"""Controls that the paper lacks. A Q-Metric network has more parameters and takes more operations than its ReLU twin:
what does a ReLU network reach that is widened until it costs as much?
"""

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

from detrame.errors import unknown
from detrame.experiments.paper import COMPARED
from detrame.experiments.recipes import default_recipe
from detrame.experiments.results import Result, by_recipe
from detrame.experiments.spread import Spread
from detrame.models import Cost, cost, create_model
from detrame.training import Recipe

DATASET = "cifar10"
IMAGE = (3, 32, 32)
MODELS = ("plainnet9", "resnet20")
# In eighths: other widths come to numbers of channels that a GPU cannot multiply as they are, such as 142, and a step
# of those takes longer than one of 144.
WIDTHS = [eighths / 8 for eighths in range(8, 33)]


@dataclass(frozen=True)
class Row:
    """A network beside those it is compared with: its cost, and its accuracy in percent (None before it has run).

    `matched` is the field of :class:`~detrame.models.Cost` in which the network equals the Q-Metric one as nearly as
    widths in eighths allow; None for the ReLU and the Q-Metric network themselves.
    """

    model: str
    dataset: str
    activation: str
    iterations: int
    matched: str | None
    width: float
    mean: float | None
    std: float | None
    n: int
    epochs: int
    parameters: int
    multiply_adds: int


def contenders(model: str, *, epochs: int | None = None) -> dict[str | None, list[Recipe]]:
    """The recipes to compare: under None the published ReLU and Q-Metric networks, then the control of each cost."""
    relu, qmetric = (default_recipe(model, DATASET, activation=activation, epochs=epochs) for activation in COMPARED)
    target = network_cost(qmetric)
    return {None: [relu, qmetric]} | {
        field: [relu.replace(width=matched_width(relu, field, getattr(target, field)))] for field in Cost._fields
    }


def matched_width(recipe: Recipe, field: str, target: int) -> float:
    """The width, in eighths, at which the network's cost in `field` is nearest to the target."""

    def excess(width: float) -> int:
        count: int = getattr(network_cost(recipe.replace(width=width)), field)
        return count - target

    enough = bisect_left(WIDTHS, 0, key=excess)  # the cost grows with the width
    return min(WIDTHS[max(0, enough - 1) : enough + 1], key=lambda width: abs(excess(width)))


@cache
def network_cost(recipe: Recipe) -> Cost:
    """Parameters and multiply-adds (T convolutions for each Q-Metric ReLU) of a recipe's network on CIFAR-10."""
    model = create_model(recipe.model, activation=recipe.activation, iterations=recipe.iterations, width=recipe.width)
    return cost(model, IMAGE)


def controlled(models: Sequence[str] | None = None) -> Sequence[str]:
    """The networks that have controls, or those named; a ValueError for one that has none."""
    for model in models or []:
        if model not in MODELS:
            raise unknown("network with controls", model, MODELS)
    return models or MODELS


def recipes(models: Sequence[str], seeds: Sequence[int], *, epochs: int | None = None) -> list[Recipe]:
    """The runs of the comparison, the published networks among them."""
    return [
        recipe.replace(seed=seed)
        for model in models
        for seed in seeds
        for group in contenders(model, epochs=epochs).values()
        for recipe in group
    ]


def rows(results: Sequence[Result], models: Sequence[str] = MODELS, *, epochs: int | None = None) -> list[Row]:
    """Every network of the comparison with its cost and what its full-length runs, or those of some epochs, reached."""
    return [
        _row(recipe, matched, by_recipe(results, recipe))
        for model in models
        for matched, group in contenders(model, epochs=epochs).items()
        for recipe in group
    ]


def _row(recipe: Recipe, matched: str | None, found: Sequence[Result]) -> Row:
    return Row(
        model=recipe.model,
        dataset=recipe.dataset,
        activation=recipe.activation,
        iterations=recipe.iterations,
        matched=matched,
        width=recipe.width,
        **Spread.fields([result.scores.last for result in found]),
        epochs=recipe.epochs,
        **network_cost(recipe)._asdict(),
    )
