"""What the page says in words: the headline, its caveats, where the runs ran, and how to repeat them."""

import dataclasses
from collections.abc import Iterable, Sequence
from datetime import date

from detrame.experiments.report.groups import NAMES, Comparison, Group, difference
from detrame.experiments.spread import NBSP
from detrame.training.environment import short_commit, sittings
from detrame.training.recipe import Recipe

FEW_SEEDS = 5


def title(comparisons: Sequence[Comparison]) -> str:
    """The page's title: what was compared, on what."""
    groups = [group for comparison in comparisons for group in comparison.groups]
    activations = " and ".join(
        _distinct(NAMES.get(group.recipe.activation, group.recipe.activation) for group in groups)
    )
    models = ", ".join(_distinct(group.recipe.model for group in groups))
    return f"{activations} in {models} on {', '.join(_distinct(comparison.dataset for comparison in comparisons))}"


def headline(comparison: Comparison) -> str:
    """What came out, in one sentence, the best group first; of several, the best two."""
    first, *rest = comparison.ranking
    n = first.last.n if len({group.last.n for group in comparison.groups}) == 1 else None
    sentence = _score(first, n, unit=f"{NBSP}%")
    if rest:
        sentence += f" against {_score(rest[0], n)}"
    sentence += f" in {comparison.name}"
    if len(rest) > 1:
        sentence += f", the best two of {len(comparison.groups)}"
    if n is not None:
        sentence += f", over {n} seeds" if n > 1 else ", with a single seed"
    if rest and not _other_differences(comparison):
        sentence += ", same recipe"
    return sentence + "."


def caveats(comparison: Comparison) -> list[str]:
    """What keeps the headline from saying more than it may."""
    said = []
    ranking = comparison.ranking
    if len(ranking) > 1:
        said.append(_lead(ranking[0], ranking[1]))
    if others := _other_differences(comparison):
        said.append(f"The recipes differ in {', '.join(others)} too, so the activation is not the only cause.")
    fewest = min(group.last.n for group in comparison.groups)
    if fewest == len(ranking) == 1:
        said.append("A single seed says nothing about the spread.")
    if 1 < fewest < FEW_SEEDS:
        said.append(f"{fewest} seeds give only a rough idea of the spread.")
    return said


def facts(comparisons: Sequence[Comparison], today: date) -> list[tuple[str, str]]:
    """When and where: the figures are worth nothing without it."""
    runs = [run for comparison in comparisons for group in comparison.groups for run in group.runs]
    places = [place for run in runs for place in sittings(run.environment)]
    sources = _distinct(place.get("data", {}).get("source", "unknown") for place in places)
    seeds = _distinct(str(run.recipe.seed) for run in runs)
    return [
        ("Written", today.isoformat()),
        ("Data", "; ".join(sources)),
        ("Hardware", "; ".join(_distinct(place.get("hardware", "unknown") for place in places))),
        ("Commit", "; ".join(_distinct(short_commit(place.get("commit")) for place in places))),
        ("PyTorch", "; ".join(_distinct(place.get("torch", "unknown") for place in places))),
        ("Runs", f"{len(runs)}, with seed{'s' * (len(seeds) > 1)} {', '.join(seeds)}"),
    ]


def repeat(group: Group) -> str:
    """Python that trains the group again: only what departs from the recipe's defaults is written out."""
    recipe = group.recipe
    fields = [f for f in dataclasses.fields(Recipe) if f.name not in ("model", "dataset")]
    changed = [f"{f.name}={getattr(recipe, f.name)!r}" for f in fields if getattr(recipe, f.name) != f.default]
    arguments = ", ".join([repr(recipe.model), repr(recipe.dataset), *changed])
    return (
        "from detrame.training import Recipe, train\n\n"
        f"recipe = Recipe({arguments})\n"
        f"for seed, split_seed in {group.seeds}:\n"
        "    again = recipe.replace(seed=seed, split_seed=split_seed)\n"
        f'    train(again, f"again/{recipe.activation}-{group.place}/seed{{seed}}-split{{split_seed}}")\n'
    )


def recipe_rows(comparison: Comparison) -> list[tuple[str, list[str]]]:
    """Every field of the recipes with its value in each group, the seeds aside."""
    names = [f.name for f in dataclasses.fields(Recipe) if f.name not in ("seed", "split_seed")]
    return [(name, [_value(group, name) for group in comparison.groups]) for name in names]


def _value(group: Group, name: str) -> str:
    if name == "iterations" and not group.recipe.iterates:
        return "none"
    value = getattr(group.recipe, name)
    if isinstance(value, tuple):
        return ", ".join(map(str, value)) or "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _lead(first: Group, second: Group) -> str:
    gap = difference(first, second)
    level = f"{first.label} and {second.label} are level"
    lead = f"{first.label} is ahead of {second.label} by {gap.mean:.2f} points" if gap.mean else level
    if gap.error is None:
        return f"{lead}; a single seed says nothing about how much of that is chance."
    if not gap.mean:
        return f"{level}."
    if not gap.error:  # on a small test set two seeds may differ by the same number of images
        return f"{lead} with every seed alike, which says nothing about how much of that is chance."
    margin = f"the 95% interval of the {'paired ' * gap.paired}difference is ±{NBSP}{gap.margin:.2f}"
    if gap.settled:
        return f"{lead}, beyond chance: {margin}."
    return f"{lead}, but that is within chance, so these runs do not settle which is better: {margin}."


def _score(group: Group, n: int | None, unit: str = "") -> str:
    """Label and accuracy, with the number of seeds unless all groups have the same."""
    return f"{group.label} {group.last.text(2)}{unit}" + (f" (n = {group.last.n})" if n is None else "")


def _other_differences(comparison: Comparison) -> list[str]:
    return [name for name in comparison.differing if name not in ("activation", "iterations")]


def _distinct(values: Iterable[object]) -> list[str]:
    return list(dict.fromkeys(map(str, values)))
