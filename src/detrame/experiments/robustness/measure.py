"""Attack a trained network and say what came of it: fooling rate and accuracy under attack, figure by figure."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import product
from time import perf_counter
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from detrame.data.dataset import Split
from detrame.errors import check_count, unknown
from detrame.experiments.networks import Network
from detrame.folding import fold
from detrame.inference import accuracy, as_pixels
from detrame.robustness import (
    PER_IMAGE,
    Ball,
    Crafted,
    Decisions,
    Effect,
    batched,
    effect,
    gradient,
    noisy,
    perturbed,
    sequential,
)
from detrame.robustness.trust import Check, checks
from detrame.robustness.universal import OnStep
from detrame.training import pick_device
from detrame.training.environment import describe

UNIVERSAL: dict[str, Callable[..., Crafted]] = {"uap": batched, "uap-gradient": gradient, "uap-sequential": sequential}
ATTACKS = (*UNIVERSAL, *PER_IMAGE)
Strength = tuple[str, float]  # unit, and radius or noise ratio
CHANGED = 8  # images to be shown, for each radius


@dataclass(frozen=True)
class Settings:
    """How a network is attacked.

    Attributes:
        crafting: training images that universal perturbations are crafted on.
        images: test images that everything is measured on.
        seeds: one perturbation (or draw of noise, or random start) for each.
        target, overshoot: of the two forms with DeepFool inside.
        passes: of all forms of the universal perturbation, at most.
        precision: in which figures are scored (:class:`~detrame.robustness.Decisions`); there is one. On a GPU the
            attacks are made in TF32.
    """

    crafting: int = 10_000
    images: int = 10_000
    seeds: tuple[int, ...] = (0, 1, 2, 3, 4)
    target: float = 80.0
    overshoot: float = 0.02
    passes: int = 5
    precision: str = "float32"

    def __post_init__(self) -> None:
        check_count("crafting", self.crafting)
        check_count("images", self.images)
        check_count("passes", self.passes)
        if not 0 < self.target <= 100:
            raise ValueError(f"target must be a percentage above 0 and at most 100, got {self.target}")
        if not self.overshoot >= 0:
            raise ValueError(f"overshoot must be at least 0, got {self.overshoot}")
        if not self.seeds or len(set(self.seeds)) < len(self.seeds):
            raise ValueError(f"each seed makes one perturbation: give at least one, and none twice, got {self.seeds}")

    def within(self, train: int, test: int) -> "Settings":
        """The same, with no more images than there are."""
        return replace(self, crafting=min(self.crafting, train), images=min(self.images, test))


@dataclass(frozen=True)
class Figure:
    """One measurement, in percent: what one perturbation (one seed) did at one strength.

    A radius stands in its unit, and in pixels and normalised units beside it; noise has a noise_ratio in place of it.
    """

    unit: str
    seed: int
    fooling: float
    accuracy: float
    radius: float | None = None
    norm: str | None = None
    pixels: float | None = None
    normalised: float | None = None
    noise_ratio: float | None = None

    @property
    def strength(self) -> Strength:
        """At what it was measured."""
        strength = self.noise_ratio if self.radius is None else self.radius
        assert strength is not None
        return self.unit, strength


def position(pixels: float | None, noise_ratio: float | None) -> float:
    """Where a figure stands: its radius in 255ths, or its noise in decibels, with no noise far to the left."""
    if pixels is not None:
        return 255 * pixels
    assert noise_ratio is not None
    return 10 * math.log10(max(noise_ratio, 1e-12))


def known_attack(name: str) -> str:
    """`name`, if it is one of :data:`ATTACKS`; a ValueError with a suggestion if not."""
    if name not in ATTACKS:
        raise unknown("attack", name, ATTACKS)
    return name


class Changed(NamedTuple):
    """A test image about which the first seed's perturbation at one radius changes the prediction.

    Attributes:
        place: of the radius among those measured.
        image: its number in the test set.
        before, after: the classes said of it.
    """

    place: int
    image: int
    before: int
    after: int


@dataclass(frozen=True)
class Measured:
    """A network under one attack.

    Attributes:
        model, dataset, split_seed, activation, iterations, source: the network and its images.
        attack: its name.
        clean: accuracy on the unchanged test images, in percent.
        figures: one for each strength and seed.
        seconds: on the wall.
        settings, environment: how, and where (the last of it, if not all at once).
        changed: some test images that universal perturbations change.
        perturbations: of the first seed, for each radius, in pixels: ``(K, C, H, W)``.
        name: of the run, where others share its network and activation.
        checks: whether the network hides its gradients, where that was looked into.
    """

    model: str
    dataset: str
    split_seed: int
    activation: str
    iterations: int
    source: str
    attack: str
    clean: float
    figures: list[Figure]
    seconds: float
    settings: Settings
    environment: dict[str, Any]
    changed: list[Changed] = field(default_factory=list)
    perturbations: Tensor | None = field(default=None, compare=False)
    name: str = ""
    checks: list[Check] = field(default_factory=list)

    @property
    def label(self) -> str:
        """Network and activation, and the run's name where it needs one."""
        return f"{self.model} {self.activation} {self.name}".strip()

    def joined(self, other: "Measured") -> "Measured":
        """This and the same at further strengths, measured after it, as one."""
        places = len(self.figures) // len(self.settings.seeds)
        both = [part for part in (self.perturbations, other.perturbations) if part is not None]
        return replace(
            other,
            figures=self.figures + other.figures,
            seconds=self.seconds + other.seconds,
            changed=self.changed + [one._replace(place=one.place + places) for one in other.changed],
            perturbations=torch.cat(both) if len(both) == 2 else None,
            checks=self.checks + other.checks,
        )


class Subject:
    """A network and the images to attack it with, on one device."""

    def __init__(self, network: Network, settings: Settings, device: str = "auto") -> None:
        self.network, self.settings = network, settings
        self.device = pick_device(device)
        self.model = network.model.to(self.device)
        self.crafting = network.dataset.train[_some(network.dataset.train, settings.crafting)].to(self.device)
        self.numbers = _some(network.dataset.test, settings.images)
        self.test = network.dataset.test[self.numbers].to(self.device)
        self.decisions = Decisions(self.model, self.test.images)
        self.before = self.decisions.logits

    @cached_property
    def folded(self) -> nn.Module:
        """What attacks are made on, which takes less time; what they are worth is scored on the network itself."""
        return fold(self.model)

    def attack(self, name: str, balls: Sequence[Ball], on_step: OnStep | None = None) -> Measured:
        """What an attack of :data:`ATTACKS` does at some radii; `on_step` is told of the steps of crafting."""
        known_attack(name)
        return self._universal(name, balls, on_step) if name in UNIVERSAL else self._per_image(name, balls)

    def _universal(self, form: str, balls: Sequence[Ball], on_step: OnStep | None) -> Measured:
        """Universal perturbations, all radii and seeds crafted as one job."""
        start = perf_counter()
        seeds = self.settings.seeds
        pairs = [(ball, seed) for ball in balls for seed in seeds]
        crafted = self._craft(form, [ball for ball, _ in pairs], [seed for _, seed in pairs], on_step)
        pixels = as_pixels(self.test.images)
        figures, changed = [], []
        for number, ((ball, seed), perturbation) in enumerate(zip(pairs, crafted.perturbations, strict=True)):
            after = self.decisions(perturbed(pixels, perturbation))
            figures.append(_figure(effect(self.before, after, self.test.labels), ball, seed))
            if seed == seeds[0]:
                changed += self._changed(number // len(seeds), after)
        return self._measured(form, figures, start, changed, crafted.perturbations[:: len(seeds)].cpu())

    def _per_image(self, name: str, balls: Sequence[Ball]) -> Measured:
        start = perf_counter()
        figures = []
        for ball, seed in product(balls, self.settings.seeds):
            images = PER_IMAGE[name](self.folded, self.test.images, self.test.labels, ball, seed=seed)
            found = effect(self.before, self.decisions(images), self.test.labels)
            figures.append(_figure(found, ball, seed))
        return self._measured(name, figures, start)

    def noise(self, ratios: Sequence[float], units: Sequence[str]) -> Measured:
        """What Gaussian noise does, at each of some energies relative to the image, in one or both units."""
        start = perf_counter()
        mean, std = self.network.normalisation
        figures = []
        for unit, ratio, seed in product(units, ratios, self.settings.seeds):
            images = noisy(self.test.images, ratio, unit=unit, mean=mean, std=std, seed=seed)
            found = effect(self.before, self.decisions(images), self.test.labels)
            figures.append(Figure(unit, seed, found.fooling, found.accuracy, noise_ratio=ratio))
        return self._measured("noise", figures, start)

    def check(self, ball: Ball, twin: Network | None) -> list[Check]:
        """The checks of :mod:`detrame.robustness.trust`, with attacks transferred from a twin where there is one."""
        other = None if twin is None else twin.model.to(self.device)
        return checks(self.model, self.test.images, self.test.labels, ball, twin=other, seed=self.settings.seeds[0])

    def _craft(self, form: str, balls: list[Ball], seeds: list[int], on_step: OnStep | None) -> Crafted:
        options: dict[str, Any] = {"passes": self.settings.passes, "on_step": on_step}
        if form != "uap-gradient":
            options |= {"target": self.settings.target, "overshoot": self.settings.overshoot}
        return UNIVERSAL[form](self.folded, self.crafting.images, balls, seeds, **options)

    def _changed(self, place: int, after: Tensor) -> list[Changed]:
        before, after = self.before.argmax(1).cpu(), after.argmax(1).cpu()
        rows = (before != after).nonzero()[:CHANGED, 0].tolist()
        return [Changed(place, int(self.numbers[row]), int(before[row]), int(after[row])) for row in rows]

    def _measured(
        self,
        attack: str,
        figures: list[Figure],
        start: float,
        changed: Sequence[Changed] = (),
        perturbations: Tensor | None = None,
    ) -> Measured:
        recipe = self.network.recipe
        return Measured(
            model=recipe.model,
            dataset=recipe.dataset,
            split_seed=recipe.split_seed,
            activation=recipe.activation,
            iterations=recipe.iterations,
            source=self.network.source,
            attack=attack,
            clean=accuracy(self.before, self.test.labels),
            figures=figures,
            seconds=perf_counter() - start,
            settings=self.settings,
            environment=describe(self.network.dataset, str(self.device)),
            changed=[*changed],
            perturbations=perturbations,
            name=self.network.name,
        )


def _figure(found: Effect, ball: Ball, seed: int) -> Figure:
    both = {"pixels": ball.pixels, "normalised": ball.normalised}
    return Figure(ball.unit, seed, found.fooling, found.accuracy, ball.radius, ball.norm, **both)


def _some(split: Split, count: int) -> Tensor:
    """The numbers of as many images of a split, drawn once and for all; of all of them if there are no more."""
    return torch.randperm(len(split), generator=torch.Generator().manual_seed(0))[:count]
