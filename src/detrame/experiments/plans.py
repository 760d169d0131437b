"""Several runs as one piece of work: seeds of a network, or a network and its ReLU twin."""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from detrame.errors import Failure
from detrame.experiments.paper import COMPARED
from detrame.experiments.recipes import OWN_SPLITS
from detrame.experiments.spread import Spread
from detrame.training import OnEpoch, Recipe, Run, plan, resume_all
from detrame.training.runs import resuming


def seeded(recipe: Recipe, seeds: Sequence[int]) -> list[Recipe]:
    """The recipe once for each seed, with a split of its own where the data set comes without one."""
    splits = {seed: seed if recipe.dataset in OWN_SPLITS else recipe.split_seed for seed in seeds}
    return [recipe.replace(seed=seed, split_seed=splits[seed]) for seed in seeds]


def train_all(
    recipes: Sequence[Recipe],
    out: Path,
    *,
    device: str = "auto",
    checkpoint_every: int = 1,
    on_epoch: OnEpoch | None = None,
) -> list[Run]:
    """Train every recipe into a folder of its own below `out` (one recipe: into `out` itself).

    All folders are made first, so that work that was cut short can be taken up where it was left.
    """
    if out.is_dir() and any(out.iterdir()):
        raise Failure(f"{out} is not empty: choose another --out, or continue it with {resuming(out)}")
    runs = [plan(recipe, out / name, device=device) for recipe, name in zip(recipes, _names(recipes), strict=True)]
    return resume_all([run.path for run in runs], checkpoint_every=checkpoint_every, on_epoch=on_epoch)


def _names(recipes: Sequence[Recipe]) -> list[str]:
    """A folder name for each: by activation and seed, as far as they differ."""
    activations, seeds = {r.activation for r in recipes}, {r.seed for r in recipes}
    names = []
    for recipe in recipes:
        parts = [recipe.activation] if len(activations) > 1 else []
        parts += [f"seed-{recipe.seed}"] if len(seeds) > 1 else []
        names.append("/".join(parts))
    return names


def compare(
    recipe: Recipe,
    seeds: Sequence[int],
    out: Path,
    *,
    device: str = "auto",
    on_epoch: OnEpoch | None = None,
) -> list[Run]:
    """Train the ReLU and the Q-Metric network by one recipe, with the same seeds, in turn."""
    pairs = [one.replace(activation=activation) for one in seeded(recipe, seeds) for activation in COMPARED]
    return train_all(pairs, out, device=device, on_epoch=on_epoch)


@dataclass(frozen=True)
class Summary:
    """The runs of one network over seeds: accuracies in percent, std over seeds (None for one)."""

    model: str
    dataset: str
    activation: str
    iterations: int
    n: int
    mean: float
    std: float | None
    best: float
    parameters: int
    seconds: float


def summarise(runs: Sequence[Run]) -> list[Summary]:
    """One summary for each network among finished runs, in the order they first appear."""
    groups: dict[Recipe, list[Run]] = {}
    for run in runs:
        groups.setdefault(run.recipe.seedless(), []).append(run)
    return [_summary(recipe, members) for recipe, members in groups.items()]


def _summary(recipe: Recipe, runs: list[Run]) -> Summary:
    return Summary(
        model=recipe.model,
        dataset=recipe.dataset,
        activation=recipe.activation,
        iterations=recipe.iterations,
        **Spread.fields([run.scores.last for run in runs]),
        best=statistics.mean(run.scores.best for run in runs),
        parameters=runs[0].scores.parameters,
        seconds=statistics.mean(run.scores.seconds for run in runs),
    )


def free_folder(wanted: Path) -> Path:
    """`wanted`, or the first of wanted-2, wanted-3, ... that does not exist yet."""
    candidate, number = wanted, 1
    while candidate.exists():
        number += 1
        candidate = wanted.with_name(f"{wanted.name}-{number}")
    return candidate
