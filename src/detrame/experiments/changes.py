"""Where Q-Metric falls short of the paper: short runs with one thing changed, scored on held-out training images.

Test images decide nothing here. What is chosen on the held-out ones is then trained at full length, with both
activations, and meets the test images once.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from detrame.errors import unknown
from detrame.experiments.paper import COMPARED
from detrame.experiments.recipes import default_recipe
from detrame.experiments.results import Result, by_recipe
from detrame.experiments.spread import Spread
from detrame.training import Recipe

TABLE = "changes"
HELD_OUT, EPOCHS = 5000, 30
NONE = "none"
ON_HELD_OUT, ON_TEST = "held-out training images", "test images"


@dataclass(frozen=True)
class Row:
    """What a change came to: percent of the images it is scored on (None before it has run), over n seeds."""

    model: str
    dataset: str
    activation: str
    iterations: int
    change: str
    scored_on: str
    mean: float | None
    std: float | None
    n: int
    epochs: int


def changes(recipe: Recipe) -> dict[str, Recipe]:
    """A recipe as it is, and with one thing changed, by the name of the change; a ReLU has no iterations to change.

    Nesterov's momentum and mirrored borders are what the WideResNet paper trains with, whose settings the paper says
    it uses; the rest are for networks that fit their training images better than others.
    """
    changed: dict[str, dict[str, Any]] = {
        NONE: {},
        "nesterov": {"nesterov": True},
        "mirrored-borders": {"reflect": True},
        "twice-the-decay": {"weight_decay": 2 * recipe.weight_decay},
        "half-the-learning-rate": {"lr": recipe.lr / 2},
    }
    if recipe.activation == "qmetric":
        changed["one-iteration-fewer"] = {"iterations": recipe.iterations - 1}
        changed["one-iteration-more"] = {"iterations": recipe.iterations + 1}
    return {name: recipe.replace(**fields) for name, fields in changed.items()}


def recipes(model: str, dataset: str, seed: int = 0, *, epochs: int | None = None) -> dict[str, list[Recipe]]:
    """For each change the short runs it takes, with both activations where it is a change to both."""
    return _of_both(model, dataset, seed=seed, validation=HELD_OUT, epochs=EPOCHS if epochs is None else epochs)


def final_recipes(model: str, dataset: str, change: str, seed: int = 0) -> list[Recipe]:
    """The full-length runs of a change, scored on the test images; those of none are the accuracy table's."""
    wanted = _of_both(model, dataset, seed=seed)
    del wanted[NONE]
    if change not in wanted:
        raise unknown("change", change, wanted)
    return wanted[change]


def _of_both(model: str, dataset: str, **fields: Any) -> dict[str, list[Recipe]]:
    wanted: dict[str, list[Recipe]] = {}
    for activation in COMPARED:
        for name, recipe in changes(default_recipe(model, dataset, activation=activation, **fields)).items():
            wanted.setdefault(name, []).append(recipe)
    return wanted


def rows(results: Sequence[Result], model: str, dataset: str, *, epochs: int | None = None) -> list[Row]:
    """Every change with each activation by its short runs, over the seeds that were run."""
    return _rows(results, recipes(model, dataset, epochs=epochs))


def final_rows(results: Sequence[Result], full: Sequence[Result], model: str, dataset: str) -> list[Row]:
    """Every change that was trained at full length, none first; `full` are the results of the accuracy table."""
    run = [row for row in _rows([*results, *full], _of_both(model, dataset)) if row.n]
    return run if any(row.change != NONE for row in run) else []


def tried(results: Sequence[Result], full: Sequence[Result]) -> list[Row]:
    """All that was tried, short or at full length, network by network."""
    networks = dict.fromkeys((result.recipe.model, result.recipe.dataset) for result in results)
    found = [row for one in networks for row in [*rows(results, *one), *final_rows(results, full, *one)]]
    return [row for row in found if row.n]


def _rows(results: Sequence[Result], wanted: dict[str, list[Recipe]]) -> list[Row]:
    return [_row(name, recipe, by_recipe(results, recipe)) for name, pair in wanted.items() for recipe in pair]


def _row(change: str, recipe: Recipe, found: Sequence[Result]) -> Row:
    held_out = bool(recipe.validation)
    scores = [result.scores.validation if held_out else result.scores.last for result in found]
    return Row(
        model=recipe.model,
        dataset=recipe.dataset,
        activation=recipe.activation,
        iterations=recipe.iterations,
        change=change,
        scored_on=ON_HELD_OUT if held_out else ON_TEST,
        **Spread.fields([score for score in scores if score is not None]),
        epochs=recipe.epochs,
    )
