"""The measurements that a table on robustness still lacks: which they are, and how they are taken."""

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from time import monotonic

import torch

from detrame.data.catalogue import entry
from detrame.errors import Failure, OutOfTime
from detrame.experiments.networks import Network, twin
from detrame.experiments.robustness import tables
from detrame.experiments.robustness.measure import Measured, Settings, Strength, Subject
from detrame.experiments.robustness.stored import path_of, read, store
from detrame.robustness.universal import OnStep

CHECKED = "pgd"  # with which the checks on hidden gradients are made, at the smallest radius


def run_missing(
    networks: Sequence[Network],
    attacks: Sequence[str],
    settings: Settings,
    results: Path,
    *,
    device: str = "auto",
    minutes: float | None = None,
    on_begin: Callable[[Network, str], None] | None = None,
    on_result: Callable[[Measured], None] | None = None,
) -> None:
    """Attack what has not been measured with these settings yet, and store the figures of each job as they come.

    After `minutes` it ends in OutOfTime: at the next step of crafting or, for attacks on each image, at the next
    radius. The next call goes on: it measures again the one job that was not done, and what comes after it. What was
    measured with more images or seeds than these settings ask for is not replaced.
    """
    end = math.inf if minutes is None else monotonic() + 60 * minutes
    left = missing(networks, attacks, settings, results)

    def tick(_done: int = 0, _steps: int = 0) -> None:
        if minutes is not None and monotonic() > end:
            raise OutOfTime(minutes)

    for network, attack in left:
        _refuse_smaller(network, attack, _within(settings, network), results)
    for network, attack in left:
        tick()
        if on_begin is not None:
            on_begin(network, attack)
        subject = Subject(network, _within(settings, network), device)
        measured, strengths = _so_far(network, attack, subject.settings, results)
        for group in _jobs(strengths, attack, subject.device):
            tick()
            part = _measure(subject, attack, group, tick)
            if attack == CHECKED and group == [("pixels", min(tables.EACH_IMAGE_RADII))]:
                part = _checked(subject, part, twin(network, networks))
            measured = part if measured is None else measured.joined(part)
            store(measured, results)
        if on_result is not None and measured is not None:
            on_result(measured)


def missing(
    networks: Sequence[Network], attacks: Sequence[str], settings: Settings, results: Path
) -> list[tuple[Network, str]]:
    """The measurements that are not stored, or not with these settings at all strengths."""
    return [
        (network, attack)
        for network in networks
        for attack in attacks
        if _so_far(network, attack, _within(settings, network), results)[1]
    ]


def _within(settings: Settings, network: Network) -> Settings:
    return settings.within(*entry(network.recipe.dataset).counts)


def _refuse_smaller(network: Network, attack: str, settings: Settings, results: Path) -> None:
    """A Failure if what is stored took more images or seeds than would take its place."""
    path = _path(network, attack, results)
    if not path.exists():
        return
    there = read(path).settings
    sizes = {
        "test images": (there.images, settings.images),
        "crafting images": (there.crafting, settings.crafting) if attack in tables.UAP else (0, 0),
        "seeds": (len(there.seeds), len(settings.seeds)),
    }
    for what, (before, now) in sizes.items():
        if before > now:
            raise Failure(
                f"{path} was measured with {before} {what}, more than {now}: "
                "store a smaller trial elsewhere, with --results"
            )


def _path(network: Network, attack: str, results: Path) -> Path:
    recipe = network.recipe
    return path_of(results, attack, recipe.dataset, recipe.model, recipe.activation)


def _so_far(network: Network, attack: str, settings: Settings, results: Path) -> tuple[Measured | None, list[Strength]]:
    """What is stored of a measurement of this very network with these settings, and the strengths that are missing."""
    recipe, path = network.recipe, _path(network, attack, results)
    found = read(path) if path.exists() else None
    this = (network.source, recipe.split_seed, recipe.iterations, settings)
    if found is None or (found.source, found.split_seed, found.iterations, found.settings) != this:
        return None, tables.strengths(network, attack)
    done = {figure.strength for figure in found.figures}
    return found, [strength for strength in tables.strengths(network, attack) if strength not in done]


def _jobs(strengths: list[Strength], attack: str, device: str) -> list[list[Strength]]:
    """What is measured at once: on a GPU, which small batches leave idle, all universal radii; else one strength."""
    if attack in tables.UAP and torch.device(device).type == "cuda":
        return [strengths]
    return [[strength] for strength in strengths]


def _measure(subject: Subject, attack: str, job: list[Strength], on_step: OnStep) -> Measured:
    if attack == "noise":
        ((unit, ratio),) = job
        return subject.noise([ratio], [unit])
    return subject.attack(attack, [subject.network.ball(radius, unit) for unit, radius in job], on_step)


def _checked(subject: Subject, measured: Measured, twin: Network | None) -> Measured:
    start = monotonic()
    found = subject.check(subject.network.ball(min(tables.EACH_IMAGE_RADII), "pixels"), twin)
    return replace(measured, checks=found, seconds=measured.seconds + monotonic() - start)
