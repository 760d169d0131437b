"""The tables of the page, their figures written out."""

from typing import NamedTuple

from detrame.experiments import timing
from detrame.experiments.changes import Row as Change
from detrame.experiments.controls import Control
from detrame.experiments.paper import COMPARED
from detrame.experiments.report.groups import NAMES
from detrame.experiments.report.svg import signed
from detrame.experiments.reproduce import Row
from detrame.experiments.reproduction.evidence import DATASETS, RESIDUAL, Evidence, model_name, models
from detrame.experiments.reproduction.matches import matches
from detrame.experiments.reproduction.verdicts import Verdict, side
from detrame.experiments.spread import plus_minus

DASH = "\N{EN DASH}"
SIDES = {Verdict.HOLDS: "above", Verdict.CHANCE: "within chance", Verdict.FAILS: "below"}


class Line(NamedTuple):
    """A cell of the paper's accuracy table: one network with one activation."""

    activation: str
    iterations: str
    paper: str
    ours: str
    difference: str
    n: str
    verdict: str


class Network(NamedTuple):
    """The two cells of a network, and what Q-Metric gains over ReLU, in the paper and here."""

    name: str
    lines: list[Line]
    paper_gain: str
    our_gain: str


class Accuracies(NamedTuple):
    """The accuracy table of one data set: the networks that have run, the names of those that have not."""

    dataset: str
    epochs: int
    networks: list[Network]
    left: list[str]


def accuracies(evidence: Evidence) -> list[Accuracies]:
    """One table for each data set."""
    return [_accuracies(evidence, dataset) for dataset in DATASETS]


def _accuracies(evidence: Evidence, dataset: str) -> Accuracies:
    rows = {
        model: [evidence.rows[model, dataset, activation] for activation in COMPARED]
        for model in models("plainnet", *RESIDUAL, dataset=dataset)
    }
    run = [model for model, cells in rows.items() if any(row.n for row in cells)]
    return Accuracies(
        DATASETS[dataset],
        next(row.epochs for cells in rows.values() for row in cells),
        [_network(model, *rows[model]) for model in run],
        [model_name(model) for model in rows if model not in run],
    )


def _network(model: str, relu: Row, qmetric: Row) -> Network:
    both = relu.mean is not None and qmetric.mean is not None
    return Network(
        model_name(model),
        [_line(relu), _line(qmetric)],
        signed(qmetric.paper - relu.paper),
        signed((qmetric.mean or 0) - (relu.mean or 0)) if both else DASH,
    )


def _line(row: Row) -> Line:
    return Line(
        activation=NAMES[row.activation],
        iterations=str(row.iterations) if row.activation == "qmetric" else DASH,
        paper=plus_minus(row.paper, row.paper_std),
        ours=plus_minus(row.mean, row.std, missing=DASH),
        difference=DASH if row.mean is None else signed(row.mean - row.paper),
        n=str(row.n),
        verdict=row.verdict,
    )


class Matched(NamedTuple):
    """A network of the controls: what it is, what it costs, what it reaches, and how far that is from Q-Metric."""

    network: str
    width: str
    parameters: str
    multiply_adds: str
    accuracy: str
    n: str
    difference: str


MATCHED = {
    None: "",
    "parameters": ", widened to the parameters of Q-Metric",
    "multiply_adds": ", widened to the multiply-adds of Q-Metric",
}


def matched(evidence: Evidence) -> dict[str, list[Matched]]:
    """The controls beside the networks they are compared with, by network."""
    return {
        model_name(model): [_matched(control, evidence) for control in evidence.controls if control.model == model]
        for model in dict.fromkeys(control.model for control in evidence.controls)
    }


def _matched(control: Control, evidence: Evidence) -> Matched:
    qmetric = evidence.rows[control.model, control.dataset, "qmetric"]
    compared = control.activation == "relu" and control.mean is not None and qmetric.mean is not None
    return Matched(
        network=NAMES[control.activation] + MATCHED[control.matched],
        width=f"{control.width:.3f}",
        parameters=f"{control.parameters / 1e6:.2f}M",
        multiply_adds=f"{control.multiply_adds / 1e6:,.0f}M",
        accuracy=plus_minus(control.mean, control.std, missing=DASH),
        n=str(control.n),
        difference=signed((control.mean or 0) - (qmetric.mean or 0)) if compared else DASH,
    )


class Changed(NamedTuple):
    """A change, and what either activation came to with it on one kind of images."""

    change: str
    epochs: str
    accuracies: list[str]


def changes(evidence: Evidence) -> dict[str, list[Changed]]:
    """What was tried where Q-Metric falls short, by network, data set and the images it is scored on."""
    tables: dict[str, dict[str, list[Change]]] = {}
    for row in evidence.changes:
        title = f"{model_name(row.model)} on {DATASETS[row.dataset]}, scored on {row.scored_on}"
        tables.setdefault(title, {}).setdefault(row.change, []).append(row)
    return {title: [_changed(*rows) for rows in table.values()] for title, table in tables.items()}


def _changed(*rows: Change) -> Changed:
    found = {row.activation: plus_minus(row.mean, row.std, missing=DASH) for row in rows}
    told = [found.get(activation, DASH) for activation in COMPARED]
    return Changed(rows[0].change.replace("-", " "), str(rows[0].epochs), told)


class Time(NamedTuple):
    """The time of a network with one activation, the paper's and ours: training and test, and one step."""

    activation: str
    figures: list[str]


class Times(NamedTuple):
    """The two rows of a network, and the ratios of Q-Metric to ReLU: training, test (the paper's, ours), operations."""

    name: str
    lines: list[Time]
    ratios: list[str]


def times(evidence: Evidence) -> list[Times]:
    """The time table."""
    return [
        Times(
            model_name(model),
            [_time(evidence.time(model, activation)) for activation in COMPARED],
            [_told(value, "{:.2f}") for value in _ratios(evidence, model)],
        )
        for model in dict.fromkeys(row.model for row in evidence.timing)
    ]


def _ratios(evidence: Evidence, model: str) -> list[float | None]:
    relu, qmetric = (evidence.time(model, activation) for activation in COMPARED)
    paper_test = qmetric.paper_test_s_per_image / relu.paper_test_s_per_image
    return [qmetric.paper_ratio, qmetric.ratio, paper_test, evidence.test_ratio(model), qmetric.operations_ratio]


def _time(row: timing.Row) -> Time:
    figures = [
        _told(row.paper_train_s, "{:,.0f}"),
        _told(row.train_s, "{:,.0f}"),
        _told(row.paper_test_s_per_image, "{:.0f}", 1e6),
        _told(row.test_s_per_image, "{:.2f}", 1e6),
        _told(row.step_ms, "{:.2f}"),
    ]
    return Time(NAMES[row.activation], figures)


def _told(value: float | None, form: str, factor: float = 1.0) -> str:
    return DASH if value is None else form.format(factor * value)


class Comparison(NamedTuple):
    """A Q-Metric network, a ReLU network with as many parameters, and what their difference counts as."""

    dataset: str
    network: str
    qmetric: str
    relu: str
    difference: str
    counts: str


def comparisons(evidence: Evidence) -> list[Comparison]:
    """All networks that can be compared at the same number of parameters."""
    return [
        Comparison(
            name,
            match.network,
            f"{match.qmetric.mean:.2f}",
            f"{match.relu.mean:.2f}",
            signed(match.difference.mean),
            "beyond the curve" if match.beyond else SIDES[side(match.difference)],
        )
        for dataset, name in DATASETS.items()
        for match in matches(evidence, dataset)
    ]
