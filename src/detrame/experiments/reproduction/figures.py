"""The charts of the page: accuracy against parameters, the training curves, and the networks under attack."""

from collections.abc import Sequence

from detrame.experiments.accuracy import Row
from detrame.experiments.paper import COMPARED
from detrame.experiments.report.axes import accuracies, millions, straight, whole
from detrame.experiments.report.charts import Figure, Look, Series, curves
from detrame.experiments.report.groups import NAMES
from detrame.experiments.reproduction.evidence import ARCHITECTURES, DATASETS, Evidence, model_name, models
from detrame.experiments.results import Result
from detrame.experiments.robustness.tables import Row as FoolingRow
from detrame.experiments.spread import Spread

CHANGED, LEFT = ("mean", "changed, %"), ("accuracy", "accuracy, %")
# For each attack its title, and the score that is drawn of it with the label of its axis.
UNDER_ATTACK = {
    "uap": ("One perturbation for all images, by DeepFool", CHANGED),
    "uap-gradient": ("One perturbation for all images, by the gradient", CHANGED),
    "noise": ("Noise, relative to the pixels", CHANGED),
    "pgd": ("One perturbation for each image, by PGD", LEFT),
    "autoattack": ("One perturbation for each image, by AutoAttack", LEFT),
}


def against_parameters(evidence: Evidence) -> list[Figure]:
    """The paper's figure, a chart for each data set and architecture on which something has run."""
    return [
        _against_parameters(evidence, dataset, families)
        for dataset in DATASETS
        for families in ARCHITECTURES
        if any(evidence.rows[model, dataset, a].n for model in models(*families, dataset=dataset) for a in COMPARED)
    ]


def _against_parameters(evidence: Evidence, dataset: str, families: tuple[str, ...]) -> Figure:
    names = models(*families, dataset=dataset)
    rows = [[evidence.rows[model, dataset, activation] for model in names] for activation in COMPARED]
    series = [
        _curve(f"{NAMES[activation]}, {who}", evidence, cells, published, Look(place, hollow=published))
        for published, who in ((False, "ours"), (True, "the paper"))
        for place, (activation, cells) in enumerate(zip(COMPARED, rows, strict=True))
    ]
    series += _widened(evidence, dataset, names)
    series = [one for one in series if one.x]
    what = f"{ARCHITECTURES[families]} on {DATASETS[dataset]}"
    svg = curves(
        series,
        millions("parameters", [x for one in series for x in one.x]),
        accuracies("test accuracy, %", [y for one in series for y in one.y]),
        title=f"Accuracy against parameters, {what}",
    )
    return Figure(what, svg)


def _curve(name: str, evidence: Evidence, cells: Sequence[Row], published: bool, look: Look) -> Series:
    points = sorted(
        (evidence.parameters[row.model, row.dataset, row.activation], row.paper if published else row.mean or 0.0)
        for row in cells
        if published or row.n
    )
    return Series(name, [x for x, _ in points], [y for _, y in points], look=look)


def _widened(evidence: Evidence, dataset: str, names: Sequence[str]) -> list[Series]:
    """The controls: one network at several widths, the published one first; nothing before a control has run."""
    found = []
    for model in names:
        relu = [c for c in evidence.controls if (c.model, c.dataset, c.activation) == (model, dataset, "relu") and c.n]
        if any(control.matched for control in relu):
            points = sorted((control.parameters, control.mean or 0.0) for control in relu)
            name = f"{model_name(model)} with ReLU, widened"
            found.append(Series(name, [x for x, _ in points], [y for _, y in points], look=Look(2)))
    return found


def training_curves(evidence: Evidence) -> dict[str, list[Figure]]:
    """Test accuracy against epochs for every cell that has run, by data set."""
    by_dataset = {
        name: [
            _training(model, dataset, runs)
            for model in models(dataset=dataset)
            if any(runs := [evidence.runs(model, dataset, activation) for activation in COMPARED])
        ]
        for dataset, name in DATASETS.items()
    }
    return {name: figures for name, figures in by_dataset.items() if figures}


def _training(model: str, dataset: str, runs: Sequence[Sequence[Result]]) -> Figure:
    series = [
        _over_epochs(NAMES[activation], results, Look(place))
        for place, (activation, results) in enumerate(zip(COMPARED, runs, strict=True))
        if results
    ]
    svg = curves(
        series,
        whole("epoch", [x for one in series for x in one.x]),
        accuracies("test accuracy, %", [y for one in series for y in (*one.y, *one.low, *one.high)]),
        title=f"Test accuracy against epochs, {model_name(model)} on {DATASETS[dataset]}",
        small=True,
    )
    return Figure(model_name(model), svg)


def _over_epochs(activation: str, results: Sequence[Result], look: Look) -> Series:
    """The mean over seeds with its range; the name has the last epoch's, which a small chart shows too coarsely."""
    histories = [result.test_accuracy for result in results]
    last = Spread.of([history[-1] for history in histories]).mean
    return Series.over_epochs(f"{activation} {last:.2f}", histories, look)


def under_attack(evidence: Evidence) -> dict[str, list[Figure]]:
    """Predictions changed, or accuracy left, against the strength of an attack, for every network that was attacked."""
    groups: dict[str, list[Figure]] = {}
    for dataset, dataset_name in DATASETS.items():
        for attack, (what, (score, y_label)) in UNDER_ATTACK.items():
            rows = [row for row in evidence.fooling if (row.dataset, row.attack) == (dataset, attack)]
            if attack == "noise":
                rows = [row for row in rows if row.unit == "pixels"]
            for model in models(dataset=dataset):
                if found := [row for row in rows if row.model == model]:
                    title = f"{what}; {found[0].images:,} test images of {dataset_name}"
                    groups.setdefault(title, []).append(_attacked(found, title, score, y_label))
    return groups


def _attacked(rows: Sequence[FoolingRow], what: str, score: str, y_label: str) -> Figure:
    """One network under one attack, with either activation."""
    series = [
        _under(found, score, Look(place))
        for place, activation in enumerate(COMPARED)
        if (found := [row for row in rows if row.activation == activation])
    ]
    model = rows[0].model
    svg = curves(
        series,
        straight("noise, dB" if rows[0].attack == "noise" else "radius, 1/255", [x for one in series for x in one.x]),
        straight(y_label, [0.0, 100.0]),
        title=f"{what}: {model_name(model)}",
        small=True,
    )
    return Figure(model_name(model), svg)


def _under(rows: Sequence[FoolingRow], score: str, look: Look) -> Series:
    """Rates of change with a standard deviation either side; accuracies from that on the unchanged images on."""
    ordered = sorted(rows, key=lambda row: row.position)
    name, x, y = NAMES[rows[0].activation], [row.position for row in ordered], [getattr(r, score) for r in ordered]
    if score == "accuracy":
        return Series(name, [0.0, *x], [rows[0].clean, *y], look=look)
    spread = [row.std or 0.0 for row in ordered]
    low, high = ([mean + sign * std for mean, std in zip(y, spread, strict=True)] for sign in (-1, 1))
    return Series(name, x, y, low, high, look)
