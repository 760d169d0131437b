"""One self-contained HTML page about networks under attack: curves, figures, perturbations, and images they change."""

from collections.abc import Iterable, Sequence
from datetime import date
from pathlib import Path
from typing import NamedTuple

from torch import Tensor

from detrame.data import Dataset
from detrame.data import load as load_dataset
from detrame.errors import Failure
from detrame.experiments.report.axes import straight, whole
from detrame.experiments.report.charts import Figure, Look, Series, curves
from detrame.experiments.report.html import render, write_page
from detrame.experiments.report.pictures import photograph
from detrame.experiments.robustness.measure import Measured, position
from detrame.experiments.robustness.tables import Row, rows, weakest_first
from detrame.inference import as_pixels
from detrame.robustness import perturbed
from detrame.robustness.trust import verdict
from detrame.training.environment import short_commit
from detrame.training.files import ready_to_write

NAMES = {
    "uap": "Universal perturbation, DeepFool inside",
    "uap-sequential": "Universal perturbation, image by image as published, on clipped pixels",
    "uap-gradient": "Universal perturbation, by the gradient",
    "pgd": "PGD on each image",
    "deepfool": "DeepFool on each image",
    "square": "Square attack, without gradients",
    "autoattack": "AutoAttack",
}


class Picture(NamedTuple):
    """A picture as a data URI, and what stands below it."""

    source: str
    caption: str


class Gallery(NamedTuple):
    """What one form of universal perturbation looks like against one network.

    Attributes:
        title: network and attack.
        perturbations: one for each radius.
        radius: that of the pairs.
        pairs: test images before and after.
    """

    title: str
    perturbations: list[Picture]
    radius: str
    pairs: list[tuple[Picture, Picture]]


def write(measurements: Sequence[Measured], out: Path, *, left: int = 0) -> Path:
    """Write the page of some measurements to `out`, and its charts into the folder ``<stem>_figures`` beside it.

    It says so if some are `left` to be made.
    """
    if not measurements:
        raise Failure("nothing has been measured yet that a page could show")
    ready_to_write(out)
    datasets = _distinct(measured.dataset for measured in measurements)
    table = weakest_first(rows(measurements))
    charts = [chart for dataset in datasets for chart in _charts(measurements, dataset)]
    page = render(
        "robustness/page.html.j2",
        title=f"{_networks(measurements)} on {', '.join(datasets)}",
        several=any(len(one.settings.seeds) > 1 for one in measurements),
        facts=[*([("Cut short", f"measurements left: {left}")] if left else []), *_facts(measurements)],
        charts=charts,
        rows=table,
        printed=any(row.paper is not None for row in table),
        checked=[
            (f"{one.label} on {one.dataset}", verdict(one.checks, one.settings.images), one.checks)
            for one in measurements
            if one.checks
        ],
        galleries=[gallery for one in measurements if (gallery := _gallery(one))],
    )
    return write_page(out, page, charts)


def _networks(measurements: Sequence[Measured]) -> str:
    """Their names, as far as a headline has room for them."""
    labels = _distinct(one.label for one in measurements)
    return ", ".join(labels) if len(labels) <= 2 else f"{len(labels)} networks"


def _facts(measurements: Sequence[Measured]) -> list[tuple[str, str]]:
    settings = [measured.settings for measured in measurements]
    places = [measured.environment for measured in measurements]
    universal = [m.settings for m in measurements if m.attack.startswith("uap")]
    crafted = [
        ("Crafted on", "; ".join(_distinct(f"{s.crafting} training images; passes: {s.passes}" for s in universal)))
    ]
    return [
        ("Written", date.today().isoformat()),
        ("Measured on", "; ".join(_distinct(f"{s.images} test images" for s in settings))),
        *(crafted if universal else []),
        ("Seeds", "; ".join(_distinct(", ".join(map(str, s.seeds)) for s in settings))),
        ("Networks from", "; ".join(_distinct(m.source for m in measurements))),
        ("Hardware", "; ".join(_distinct(place["hardware"] for place in places))),
        ("Commit", "; ".join(_distinct(short_commit(place["commit"]) for place in places))),
    ]


def _charts(measurements: Sequence[Measured], dataset: str) -> Iterable[Figure]:
    """Fooling rate and accuracy against radius, for every attack, and against noise, for every unit of it."""
    here = [measured for measured in measurements if measured.dataset == dataset]
    looks = {label: Look(place) for place, label in enumerate(_distinct(one.label for one in measurements))}
    for attack in _distinct(measured.attack for measured in here):
        under = [measured for measured in here if measured.attack == attack]
        for unit in _distinct(f.unit for m in under for f in m.figures) if attack == "noise" else [None]:
            name = NAMES.get(attack, f"Gaussian noise relative to the image, {unit}")
            x_label = "noise ratio rho, dB" if attack == "noise" else "radius in pixels, 1/255"
            for score, y_label in (("fooling", "predictions changed, %"), ("accuracy", "accuracy, %")):
                series = [_series(measured, unit, score, looks[measured.label]) for measured in under]
                if max(len(one.x) for one in series) == 1:  # a dot says no more than its row of the table
                    continue
                whom = f", {series[0].name}" if len(series) == 1 else ""  # for want of a legend
                title = f"{name}: {y_label.split(',')[0]} on {dataset}{whom}"
                xs = [x for one in series for x in one.x]
                svg = curves(series, whole(x_label, xs), straight(y_label, [0.0, 100.0]), title=title, digits=1)
                file = "_".join(filter(None, (attack, unit, score, dataset)))
                yield Figure(f"{name}, {dataset}{whom}", svg, name=file)


def _series(measured: Measured, unit: str | None, score: str, look: Look) -> Series:
    """Means over seeds at each strength, with a band from the lowest seed to the highest."""
    at: dict[float, list[float]] = {}
    for figure in measured.figures:
        if unit in (None, figure.unit):
            at.setdefault(position(figure.pixels, figure.noise_ratio), []).append(getattr(figure, score))
    return Series.over_seeds(measured.label, dict(sorted(at.items())), look)


def _gallery(measured: Measured) -> Gallery | None:
    """The first seed's perturbations, and the images that the one of middling radius changes."""
    if measured.perturbations is None:
        return None
    radii = rows([measured])
    place = len(radii) // 2
    dataset = load_dataset(measured.dataset, split_seed=measured.split_seed)
    pairs = [
        _pair(dataset, one.image, measured.perturbations[place], (one.before, one.after))
        for one in measured.changed
        if one.place == place
    ]
    both = sorted(zip(radii, measured.perturbations, strict=True), key=lambda pair: pair[0].position)
    tiles = [Picture(_contrasted(perturbation), _in_pixels(row)) for row, perturbation in both]
    return Gallery(f"{measured.label}: {NAMES[measured.attack]}", tiles, _in_pixels(radii[place]), pairs)


def _pair(dataset: Dataset, number: int, perturbation: Tensor, said: tuple[int, int]) -> tuple[Picture, Picture]:
    image = as_pixels(dataset.test.images[number, None])[0]
    after = perturbed(image, perturbation).mul(255).round().byte()
    before_said, after_said = (dataset.classes[label] for label in said)
    truth = dataset.classes[dataset.test.labels[number]]
    if before_said != truth:
        before_said = f"{before_said} ({truth})"
    return Picture(photograph(dataset.test.images[number]), before_said), Picture(photograph(after), after_said)


def _contrasted(perturbation: Tensor) -> str:
    """A perturbation as a picture: grey is 0, and the largest entry is black or white."""
    largest = max(perturbation.abs().max().item(), 1e-12)
    return photograph((127.5 * (1 + perturbation / largest)).round().byte())


def _in_pixels(row: Row) -> str:
    assert row.pixels is not None
    return f"{255 * row.pixels:.4g}/255"


def _distinct(values: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(values))
