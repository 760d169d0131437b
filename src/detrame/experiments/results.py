"""Finished runs as small JSON files: the data from which every table and plot is built."""

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from detrame.errors import Failure
from detrame.training import Recipe, Run, Scores
from detrame.training.files import write_text


@dataclass(frozen=True)
class Result:
    """One finished run: what was asked, where it ran, what came of it, and its test accuracy after each epoch."""

    recipe: Recipe
    environment: dict[str, Any]
    scores: Scores
    test_accuracy: list[float]


def result_name(recipe: Recipe) -> str:
    """The name under which a run's result is stored, below ``results/accuracy``; a width other than 1 is part of it."""
    network = f"{recipe.model}-{recipe.activation}" + (f"-width{recipe.width:.4g}" if recipe.width != 1 else "")
    return f"{recipe.dataset}/{network}-{recipe.epochs}epochs-seed{recipe.seed}"


def record(run: Run, folder: Path) -> Path:
    """Write a finished run's result below `folder`, and return the file."""
    document = {
        "recipe": asdict(run.recipe),
        "environment": run.environment,
        "scores": asdict(run.scores),
        "test_accuracy": [round(epoch.test_accuracy, 4) for epoch in run.history],
    }
    path = folder / "accuracy" / f"{result_name(run.recipe)}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    write_text(path, json.dumps(document, indent=1) + "\n")
    return path


def stored(folder: Path) -> list[Result]:
    """Every result below `folder`, in the order of their names."""
    return [_read(path) for path in sorted((folder / "accuracy").rglob("*.json"))]


def _read(path: Path) -> Result:
    try:
        document = json.loads(path.read_text())
        recipe = Recipe.from_json(json.dumps(document["recipe"]))
        return Result(recipe, document["environment"], Scores(**document["scores"]), document["test_accuracy"])
    except (ValueError, KeyError, TypeError) as error:
        raise Failure(f"{path} is not a result ({error}): delete it, or restore it from the repository") from error
