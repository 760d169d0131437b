"""The paper's claims on robustness: the networks, radii and noise they take, and our figures beside its own."""

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from detrame.experiments import paper
from detrame.experiments.networks import Network, trained
from detrame.experiments.robustness.measure import Figure, Measured, Strength, position
from detrame.experiments.spread import Spread
from detrame.robustness import UNITS, Ball
from detrame.robustness.trust import Check
from detrame.training.environment import short_commit

UAP, NOISE, EACH_IMAGE = ("uap", "uap-gradient"), ("noise",), ("pgd", "autoattack")
RADII = tuple(grey / 255 for grey in (1, 2, 4, 6, 8, 10))  # in pixels, beside the paper's xi in either unit
EACH_IMAGE_RADII = tuple(grey / 255 for grey in (1, 2, 4, 8))  # in pixels
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


def strengths(network: Network, attack: str) -> list[Strength]:
    """All at which a table has the figures of a network under an attack."""
    if attack == "noise":
        return [(unit, ratio) for unit in UNITS for ratio in NOISE_RATIOS]
    if attack in EACH_IMAGE:
        return [("pixels", radius) for radius in EACH_IMAGE_RADII]
    return [(ball.unit, ball.radius) for ball in balls(network)]


def rows(measurements: Iterable[Measured]) -> list[Row]:
    """One row for each network, attack and strength: mean and deviation over the seeds."""
    return [row for measured in measurements for row in _rows(measured)]


def _rows(measured: Measured) -> Iterable[Row]:
    groups: dict[Strength, list[Figure]] = {}
    for figure in measured.figures:
        groups.setdefault(figure.strength, []).append(figure)
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
