"""Finished runs as small JSON files: the data from which every table and plot is built."""

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from detrame.errors import Failure, why_not
from detrame.experiments.recipes import default_recipe
from detrame.training import Recipe, Run, Scores
from detrame.training.files import write_text


@dataclass(frozen=True)
class Result:
    """One finished run: what was asked, where it ran, what came of it, and its test accuracy after each epoch.

    `timing` is what a table measured of the trained network besides, by name, in seconds.
    """

    recipe: Recipe
    environment: dict[str, Any]
    scores: Scores
    test_accuracy: list[float]
    timing: dict[str, float] = field(default_factory=dict)


def result_name(recipe: Recipe) -> str:
    """The name under which a run's result is stored, below ``results/TABLE``: all that is not as usual is in it."""
    parts = [recipe.model, recipe.activation]
    parts += [f"width{recipe.width:.4g}"] if recipe.width != 1 else []
    parts += _changed(recipe)
    return f"{recipe.dataset}/{'-'.join(parts)}-{recipe.epochs}epochs-seed{recipe.seed}"


def _changed(recipe: Recipe) -> list[str]:
    """Every field that is not as the default recipe has it, but for those that any name says."""
    said = ("width", "epochs", "seed", "split_seed")
    same = {name: getattr(recipe, name) for name in ("activation", *said)}
    usual = asdict(default_recipe(recipe.model, recipe.dataset, **same))
    return [f"{name}{value}" for name, value in asdict(recipe).items() if name not in said and value != usual[name]]


def record(run: Run, folder: Path, *, table: str = "accuracy", timing: dict[str, float] | None = None) -> Path:
    """Write a finished run's result below `folder` / `table`, and return the file."""
    document = {
        "recipe": asdict(run.recipe),
        "environment": run.environment,
        "scores": asdict(run.scores),
        "test_accuracy": [round(epoch.test_accuracy, 4) for epoch in run.history],
    } | ({"timing": timing} if timing else {})
    return write_document(folder / table / f"{result_name(run.recipe)}.json", document)


def write_document(path: Path, document: object) -> Path:
    """Write a JSON document into a folder of results, which is made if need be, and return the file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write_text(path, json.dumps(document, indent=1) + "\n")
    return path


@contextmanager
def reading(path: Path, what: str) -> Iterator[None]:
    """Tell, by a Failure, that the file which the block reads is not `what` it should be, and what to do."""
    try:
        yield
    except PermissionError as error:  # which is no damage
        raise Failure(f"you have no permission to read {path}: change that with chmod") from error
    except (OSError, ValueError, KeyError, TypeError) as error:
        remedy = "delete it, or restore it from the repository"
        raise Failure(f"{path} is not {what} ({why_not(error)}): {remedy}") from error


def stored(folder: Path, *, table: str = "accuracy") -> list[Result]:
    """Every result below `folder` / `table`, in the order of their names; a Failure if one is stored twice."""
    found: dict[Recipe, tuple[Path, Result]] = {}
    for path in sorted((folder / table).rglob("*.json")):
        result = _read(path)
        if twin := found.get(result.recipe):  # which would count as another seed
            raise Failure(f"{path} holds the same run as {twin[0]}: delete one of them")
        found[result.recipe] = path, result
    return [result for _, result in found.values()]


def _read(path: Path) -> Result:
    with reading(path, "a result"):
        document = json.loads(path.read_text())
        recipe, scores = Recipe.from_json(json.dumps(document["recipe"])), Scores(**document["scores"])
        for score in document["test_accuracy"]:
            if not isinstance(score, int | float) or not 0 <= score <= 100:
                raise ValueError(f"{score!r} is not a score")
        if (epochs := len(document["test_accuracy"])) != recipe.epochs:
            raise ValueError(f"it has the accuracy after {epochs} epochs of {recipe.epochs}")
        timing = dict(document.get("timing", {}))
        check_figures(timing)
        check_environment(document["environment"], "hardware", "torch", "commit")
        check_environment(document["environment"]["data"], "source")
        return Result(recipe, document["environment"], scores, document["test_accuracy"], timing)


def check_environment(environment: Mapping[str, object], *names: str) -> None:
    """A ValueError, KeyError or TypeError unless an environment says, in words, what is to be told of it."""
    for name in names:
        if not isinstance(environment[name], str) and (name, environment[name]) != ("commit", None):
            raise ValueError(f"{name}: {environment[name]!r}")


def check_figures(figures: Mapping[str, object]) -> None:
    """A ValueError unless all are positive numbers."""
    for name, figure in figures.items():
        if not isinstance(figure, int | float) or not 0 < figure < math.inf:
            raise ValueError(f"{name}: {figure!r}")


def by_recipe(results: Sequence[Result], recipe: Recipe) -> list[Result]:
    """The results of one recipe, whatever their seed."""
    return [result for result in results if result.recipe.seedless() == recipe.seedless()]


def hardware_of(results: Sequence[Result]) -> str | None:
    """What some results ran on; None if there are none."""
    return "; ".join(dict.fromkeys(result.environment["hardware"] for result in results)) or None
