"""How long a run that a table lacks may still take: by its network's measured steps, or by runs of that network."""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from detrame.data.catalogue import entry
from detrame.errors import Failure
from detrame.experiments.results import Result, hardware_of, result_name, stored
from detrame.experiments.timing import by_steps
from detrame.training import Recipe
from detrame.training.checkpoint import progress_of


class Outlook(NamedTuple):
    """A run that is missing, and how long what it lacks may take on which hardware, if that is known."""

    run: str
    epochs_done: int
    expected_seconds: float | None
    hardware: str | None


def outlooks(lacking: Sequence[Recipe], results: Path, runs: Path, *, table: str = "accuracy") -> list[Outlook]:
    """The outlook of each run: `runs` / the name of its result is its folder, if it was begun."""
    known = stored(results, table=table)
    return [_outlook(recipe, results, runs, known) for recipe in lacking]


def _outlook(recipe: Recipe, results: Path, runs: Path, known: Sequence[Result]) -> Outlook:
    seconds, hardware = by_steps(recipe, results) or expected_time(recipe, known) or (None, None)
    done = epochs_done(recipe, runs)
    left = None if seconds is None else seconds * (1 - done / recipe.epochs)
    return Outlook(result_name(recipe), done, left, hardware)


def epochs_done(recipe: Recipe, runs: Path) -> int:
    """How many epochs a run has behind it that it need not do again, if it was cut short or its result not stored."""
    folder = runs / result_name(recipe)
    if (folder / "result.json").exists():
        return recipe.epochs
    try:
        return progress_of(folder / "checkpoint.safetensors").epoch
    except Failure:  # there is none, or it is damaged, which the run itself will say
        return 0


def expected_time(recipe: Recipe, results: Sequence[Result]) -> tuple[float, str | None] | None:
    """Seconds a run may take, as the same network took on the same data, by the epoch, and on which hardware."""
    known = [result for result in results if _network(result.recipe) == _network(recipe)]
    if not known:
        return None
    epoch = [_epoch_seconds(result) for result in known]
    return recipe.epochs * sum(epoch) / len(epoch), hardware_of(known)


def _epoch_seconds(result: Result) -> float:
    """Of training alone, where that was measured by itself; else with all that a run does besides."""
    if seconds := result.timing.get("train_s_per_image_and_epoch"):
        return seconds * (entry(result.recipe.dataset).counts[0] - result.recipe.validation)
    return result.scores.seconds / result.scores.together / result.recipe.epochs


def _network(recipe: Recipe) -> tuple[object, ...]:
    return recipe.dataset, recipe.model, recipe.activation, recipe.iterations, recipe.width
