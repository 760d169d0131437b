"""The paper's claims on robustness: the networks, radii and noise they take, and our figures beside its own."""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from time import monotonic
from typing import Any

import torch

from detrame.data.catalogue import entry
from detrame.errors import Failure, OutOfTime
from detrame.experiments import paper
from detrame.experiments.networks import Network, trained, twin
from detrame.experiments.robustness.measure import Figure, Measured, Settings, Subject, position
from detrame.experiments.robustness.stored import path_of, read, store
from detrame.experiments.spread import Spread
from detrame.robustness import UNITS, Ball
from detrame.robustness.trust import Check
from detrame.robustness.universal import OnStep
from detrame.training.environment import short_commit

UAP, NOISE, EACH_IMAGE = ("uap", "uap-gradient"), ("noise",), ("pgd", "autoattack")
CHECKED = "pgd"  # with which the checks on hidden gradients are made, at the smallest radius
RADII = tuple(grey / 255 for grey in (1, 2, 4, 6, 8, 10))  # in pixels, beside the paper's xi in either unit
EACH_IMAGE_RADII = tuple(grey / 255 for grey in (1, 2, 4, 8))  # in pixels
Strength = tuple[str, float]  # unit, and radius or noise ratio
NOISE_RATIOS = tuple(10 ** (decibel / 10) for decibel in (-40, -35, -30, -25, -20, -15, -10))
# The networks of the paper's row and of its two figures; of residual ones, the deepest that is trained.
FIGURES = {
    "cifar10": ("plainnet9", "resnet", "wideresnet16_8"),
    "cifar100": ("wideresnet16_8",),
    "svhn": ("wideresnet16_8",),
}
RESNETS = ("resnet110", "resnet56", "resnet20", "resnet8")


@dataclass(frozen=True)
class Row:
    """A figure of ours over seeds beside the paper's, if it prints one: fooling rates in percent.

    `accuracy` is that under attack, in the mean, and `clean` that on the unchanged `images`; `name` is the run's, where
    others share its network and activation; `checks` say, at this strength, whether gradients are hidden.
    """

    model: str
    dataset: str
    activation: str
    attack: str
    unit: str
    radius: float | None
    norm: str | None
    pixels: float | None
    normalised: float | None
    noise_ratio: float | None
    paper: float | None
    paper_std: float | None
    mean: float
    std: float | None
    n: int
    accuracy: float
    clean: float
    images: int
    hardware: str
    commit: str
    name: str = ""
    checks: Sequence[Check] = ()

    @property
    def label(self) -> str:
        """Network and activation, and the run's name where it needs one."""
        return f"{self.model} {self.activation} {self.name}".strip()

    @property
    def strength(self) -> str:
        """A radius in pixels and in normalised units, or the noise ratio with its own unit."""
        if self.radius is None or self.pixels is None:
            return f"rho {self.noise_ratio:.3g} of {self.unit}"
        two = f"{255 * self.pixels:.4g}/255, {self.normalised:.3g} norm."
        return two if self.norm == "inf" else f"{two}, L{self.norm}"

    @property
    def position(self) -> float:
        """A radius in 255ths, or noise in decibels."""
        return position(self.pixels, self.noise_ratio)

    def document(self) -> dict[str, Any]:
        """The row as a JSON object: with a radius or with a noise_ratio, never both."""
        left_out = {"noise_ratio"} if self.noise_ratio is None else {"radius", "norm", "pixels", "normalised"}
        plain = asdict(self) | {"checks": [check._asdict() for check in self.checks]}
        return {key: value for key, value in plain.items() if key not in left_out}


def measured_on(rows: Iterable[Row]) -> str:
    """On which hardware, at which commits."""
    hardware, commits = (
        dict.fromkeys(each) for each in zip(*((row.hardware, row.commit) for row in rows), strict=True)
    )
    return f"Measured on {', '.join(hardware)} at commit{'s' * (len(commits) > 1)} {', '.join(commits)}"


def weakest_first(rows: Iterable[Row]) -> list[Row]:
    """The rows of each network under each attack by their strength."""
    groups: dict[tuple[str, ...], list[Row]] = {}
    for row in rows:
        unit = row.unit if row.pixels is None else ""  # radii stand in both
        groups.setdefault((row.attack, row.dataset, row.label, unit), []).append(row)
    return [row for group in groups.values() for row in sorted(group, key=lambda row: row.position)]


def cases(dataset: str | None, models: Sequence[str] | None, runs: Path) -> list[tuple[str, str, str]]:
    """The networks (model, data set, activation) of the paper's row and figures, or those of some models by name."""
    chosen = paper.cells(dataset, models)
    if models is None:
        figures = [(model, name) for name, row in FIGURES.items() if name == (dataset or name) for model in row]
        chosen = [(_deepest(name, runs, model), name) for model, name in figures]
    return [(model, name, activation) for model, name in chosen for activation in paper.COMPARED]


def _deepest(dataset: str, runs: Path, model: str) -> str:
    """`model`, or where any residual network will do, the deepest of which both activations are trained."""
    if model != "resnet":
        return model
    found = (name for name in RESNETS if all(trained(name, dataset, act, runs) for act in paper.COMPARED))
    return next(found, RESNETS[0])


def balls(network: Network) -> list[Ball]:
    """The radii at which a network is attacked: the curve's, and the paper's xi in every unit it may have meant."""
    xi = paper.tables()["uap"]["wideresnet16_8"][network.recipe.dataset]["xi"]
    normalises = set(network.normalisation[1]) != {1.0}
    units = UNITS if normalises else ("pixels",)  # the same, for a network that takes pixels as they are
    return [*(network.ball(radius, "pixels") for radius in RADII), *(network.ball(xi, unit) for unit in units)]


def run_missing(
    networks: Sequence[Network],
    attacks: Sequence[str],
    settings: Settings,
    results: Path,
    *,
    device: str = "auto",
    minutes: float | None = None,
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
        subject = Subject(network, _within(settings, network), device)
        measured, strengths = _so_far(network, attack, subject.settings, results)
        for group in _jobs(strengths, attack, subject.device):
            tick()
            part = _measure(subject, attack, group, tick)
            if attack == CHECKED and group == [("pixels", min(EACH_IMAGE_RADII))]:
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
        "crafting images": (there.crafting, settings.crafting) if attack in UAP else (0, 0),
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
        return None, _wanted(network, attack)
    done = {_strength(figure) for figure in found.figures}
    return found, [strength for strength in _wanted(network, attack) if strength not in done]


def _wanted(network: Network, attack: str) -> list[Strength]:
    if attack == "noise":
        return [(unit, ratio) for unit in UNITS for ratio in NOISE_RATIOS]
    if attack in EACH_IMAGE:
        return [("pixels", radius) for radius in EACH_IMAGE_RADII]
    return [(ball.unit, ball.radius) for ball in balls(network)]


def _strength(figure: Figure) -> Strength:
    strength = figure.noise_ratio if figure.radius is None else figure.radius
    assert strength is not None
    return figure.unit, strength


def _jobs(strengths: list[Strength], attack: str, device: str) -> list[list[Strength]]:
    """What is measured at once: on a GPU, which small batches leave idle, all universal radii; else one strength."""
    if attack in UAP and torch.device(device).type == "cuda":
        return [strengths]
    return [[strength] for strength in strengths]


def _measure(subject: Subject, attack: str, job: list[Strength], on_step: OnStep) -> Measured:
    if attack == "noise":
        ((unit, ratio),) = job
        return subject.noise([ratio], [unit])
    return subject.attack(attack, [subject.network.ball(radius, unit) for unit, radius in job], on_step)


def _checked(subject: Subject, measured: Measured, twin: Network | None) -> Measured:
    start = monotonic()
    found = subject.check(subject.network.ball(min(EACH_IMAGE_RADII), "pixels"), twin)
    return replace(measured, checks=found, seconds=measured.seconds + monotonic() - start)


def rows(measurements: Iterable[Measured]) -> list[Row]:
    """One row for each network, attack and strength: mean and deviation over the seeds."""
    return [row for measured in measurements for row in _rows(measured)]


def _rows(measured: Measured) -> Iterable[Row]:
    groups: dict[Strength, list[Figure]] = {}
    for figure in measured.figures:
        groups.setdefault(_strength(figure), []).append(figure)
    smallest = min(groups, key=lambda strength: strength[1])
    for strength, figures in groups.items():
        first = figures[0]
        published = _published(measured, first)
        yield Row(
            model=measured.model,
            dataset=measured.dataset,
            activation=measured.activation,
            attack=measured.attack,
            unit=first.unit,
            radius=first.radius,
            norm=first.norm,
            pixels=first.pixels,
            normalised=first.normalised,
            noise_ratio=first.noise_ratio,
            paper=published.get(measured.activation),
            paper_std=published.get(f"{measured.activation}_std"),
            **Spread.fields([figure.fooling for figure in figures]),
            accuracy=Spread.of([figure.accuracy for figure in figures]).mean,
            clean=measured.clean,
            images=measured.settings.images,
            hardware=measured.environment["hardware"],
            commit=short_commit(measured.environment["commit"]),
            name=measured.name,
            checks=measured.checks if strength == smallest else (),
        )


def _published(measured: Measured, figure: Figure) -> dict[str, float]:
    """The paper's cell, at either reading of its radius; it prints figures of the method with DeepFool inside alone."""
    cell: dict[str, float] = paper.tables()["uap"].get(measured.model, {}).get(measured.dataset, {})
    return cell if measured.attack == "uap" and figure.norm == "inf" and figure.radius == cell.get("xi") else {}
