"""Where Q-Metric falls short of the paper: short runs with one thing changed, scored on held-out training images.

Test images decide nothing here: what helps on the held-out ones is what a full run may then be made with.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from detrame.experiments.recipes import default_recipe
from detrame.experiments.reproduce import ACTIVATIONS
from detrame.experiments.results import Result, by_recipe
from detrame.experiments.spread import Spread
from detrame.training import Recipe

TABLE = "changes"
HELD_OUT, EPOCHS = 5000, 30


@dataclass(frozen=True)
class Row:
    """What a change came to: percent of the held-out images (None before it has run), over n seeds."""

    model: str
    dataset: str
    activation: str
    iterations: int
    change: str
    mean: float | None
    std: float | None
    n: int
    epochs: int


def changes(recipe: Recipe) -> dict[str, Recipe]:
    """A recipe as it is, and with one thing changed, by the name of the change; a ReLU has no iterations to change."""
    changed: dict[str, dict[str, Any]] = {
        "none": {},
        "nesterov": {"nesterov": True},
        "twice-the-decay": {"weight_decay": 2 * recipe.weight_decay},
        "half-the-learning-rate": {"lr": recipe.lr / 2},
    }
    if recipe.activation == "qmetric":
        changed["one-iteration-fewer"] = {"iterations": recipe.iterations - 1}
        changed["one-iteration-more"] = {"iterations": recipe.iterations + 1}
    return {name: recipe.replace(**fields) for name, fields in changed.items()}


def recipes(model: str, dataset: str, seed: int = 0, *, epochs: int | None = None) -> dict[str, list[Recipe]]:
    """For each change the runs it takes, with both activations where it is a change to both."""
    wanted: dict[str, list[Recipe]] = {}
    for activation in ACTIVATIONS:
        fields: dict[str, Any] = {
            "activation": activation,
            "validation": HELD_OUT,
            "seed": seed,
            "epochs": EPOCHS if epochs is None else epochs,
        }
        for name, recipe in changes(default_recipe(model, dataset, **fields)).items():
            wanted.setdefault(name, []).append(recipe)
    return wanted


def rows(results: Sequence[Result], model: str, dataset: str, *, epochs: int | None = None) -> list[Row]:
    """Every change with each activation, over the seeds that were run."""
    return [
        _row(name, recipe, by_recipe(results, recipe))
        for name, pair in recipes(model, dataset, epochs=epochs).items()
        for recipe in pair
    ]


def _row(change: str, recipe: Recipe, found: Sequence[Result]) -> Row:
    scores = [result.scores.validation for result in found if result.scores.validation is not None]
    spread = Spread.of(scores) if scores else None
    return Row(
        model=recipe.model,
        dataset=recipe.dataset,
        activation=recipe.activation,
        iterations=recipe.iterations,
        change=change,
        mean=spread.mean if spread else None,
        std=spread.std if spread else None,
        n=len(scores),
        epochs=recipe.epochs,
    )
