"""Test images on which two networks disagree."""

from typing import NamedTuple

import torch
from torch import Tensor

from detrame.data import Dataset
from detrame.experiments.report.groups import Comparison, Group
from detrame.experiments.report.pictures import photograph
from detrame.inference import predict
from detrame.training.runs import Run

IMAGES = 1000  # of the test images, so that a large network on few cores does not keep anyone waiting
SHOWN = 16


class Guess(NamedTuple):
    """What one network says about an image."""

    label: str
    said: str
    percent: float
    right: bool


class Example(NamedTuple):
    """An image as a data URI, the name of its class, and what each of the two networks says."""

    picture: str
    truth: str
    guesses: list[Guess]


class Disagreement(NamedTuple):
    """Where two runs differ, and what the page says above it."""

    summary: str
    examples: list[Example]


def disagreement(comparison: Comparison) -> Disagreement | None:
    """Where the first group and the best of the others differ; None where there is only one group."""
    first, *others = comparison.groups
    if not others:
        return None
    rival = max(others, key=lambda group: group.last.mean)
    twins = _twins(first, rival)
    if twins is None:
        reason = "so there are no test images that neither has been trained on"
        return Disagreement(f"{first.label} and {rival.label} share no split of {comparison.dataset}, {reason}.", [])
    dataset = twins[0].dataset()
    return _differing(dataset, (first, rival), twins)


def _twins(first: Group, rival: Group) -> tuple[Run, Run] | None:
    """The first run of one group that has a run of the other on its split, preferably of its seed."""
    pairs = [(a, b) for a in first.runs for b in rival.runs if a.recipe.split_seed == b.recipe.split_seed]
    return min(pairs, key=lambda pair: pair[0].recipe.seed != pair[1].recipe.seed, default=None)


def _differing(dataset: Dataset, groups: tuple[Group, Group], twins: tuple[Run, Run]) -> Disagreement:
    test = dataset.test[:IMAGES]
    chances = [predict(run.model, test.images).softmax(1) for run in twins]
    said = [chance.argmax(1) for chance in chances]
    where = (said[0] != said[1]).nonzero().flatten()
    right = [(one == test.labels)[where] for one in said]
    examples = []
    for index in where[:SHOWN].tolist():
        truth = int(test.labels[index])
        guesses = [_guess(group, chance[index], truth, dataset) for group, chance in zip(groups, chances, strict=True)]
        examples.append(Example(photograph(test.images[index]), dataset.classes[truth], guesses))
    return Disagreement(_summary(dataset, groups, twins, right), examples)


def _guess(group: Group, chances: Tensor, truth: int, dataset: Dataset) -> Guess:
    said = int(chances.argmax())
    return Guess(group.label, dataset.classes[said], 100 * chances[said].item(), said == truth)


def _summary(dataset: Dataset, groups: tuple[Group, Group], twins: tuple[Run, Run], right: list[Tensor]) -> str:
    looked = min(IMAGES, len(dataset.test))
    which = f"{looked} test images" if looked == len(dataset.test) else f"the first {looked} test images"
    seeds = " and ".join(dict.fromkeys(str(run.recipe.seed) for run in twins))
    count = len(right[0])
    if not count:
        return f"With seed {seeds}, the two networks say the same about every one of {which}."
    alone = [int((one & ~other).sum()) for one, other in (right, right[::-1])]
    neither = int(torch.logical_or(*right).logical_not().sum())
    shown = f"The first {SHOWN} of them:" if count > SHOWN else "All of them:"
    return (
        f"With seed {seeds}, the two networks differ on {count} of {which}: {groups[0].label} alone is right on "
        f"{alone[0]}, {groups[1].label} alone on {alone[1]}, neither on {neither}. {shown}"
    )
