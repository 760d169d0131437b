"""The tables of the page: which rows stand in them, in which order. The template writes their figures out."""

import math
import statistics
from typing import NamedTuple

from detrame.experiments import paper, timing
from detrame.experiments.changes import HELD_OUT, NONE, ON_HELD_OUT
from detrame.experiments.changes import Row as Change
from detrame.experiments.controls import Row as Control
from detrame.experiments.reproduction.evidence import DATASETS, Evidence, Gain, Pair, counting, model_name, models
from detrame.experiments.reproduction.matches import Match, matches
from detrame.experiments.reproduction.verdicts import Verdict, side

SIDES = {Verdict.HOLDS: "above", Verdict.CHANCE: "within chance", Verdict.FAILS: "below"}


class Accuracies(NamedTuple):
    """The accuracy table of one data set: the networks of which something has run, the names of the others."""

    dataset: str
    epochs: int
    networks: list[Pair]
    left: list[str]


def accuracies(evidence: Evidence) -> list[Accuracies]:
    """One table for each data set."""
    return [_accuracies(evidence, dataset) for dataset in DATASETS]


def _accuracies(evidence: Evidence, dataset: str) -> Accuracies:
    cells = [evidence.cell(model, dataset) for model in models(dataset=dataset)]
    return Accuracies(
        DATASETS[dataset],
        cells[0].relu.epochs,
        [cell for cell in cells if any(row.n for row in cell)],
        [model_name(cell.relu.model) for cell in cells if not any(row.n for row in cell)],
    )


def comparisons(evidence: Evidence) -> list[tuple[str, Match, str]]:
    """All networks that can be compared at the same number of parameters: data set, networks, what they count as."""
    return [
        (name, match, match.uncounted or SIDES[side(match.difference)])
        for dataset, name in DATASETS.items()
        for match in matches(evidence, dataset)
    ]


def controls(evidence: Evidence) -> dict[str, list[tuple[Control, float | None]]]:
    """By network, those of matched cost beside those they are compared with; a ReLU one with its lead over Q-Metric."""
    tables: dict[str, list[tuple[Control, float | None]]] = {}
    for control in evidence.controls:
        qmetric = evidence.cell(control.model, control.dataset).qmetric
        compared = control.activation == "relu" and control.mean is not None and qmetric.mean is not None
        lead = (control.mean or 0) - (qmetric.mean or 0) if compared else None
        tables.setdefault(model_name(control.model), []).append((control, lead))
    return tables


def changes(evidence: Evidence) -> dict[str, dict[tuple[str, int], dict[str, Change]]]:
    """What was tried where Q-Metric falls short, a title for each table: by change and epochs, then by activation."""
    tables: dict[str, dict[tuple[str, int], dict[str, Change]]] = {}
    for row in evidence.changes:
        title = f"{model_name(row.model)} on {DATASETS[row.dataset]}, scored on {row.scored_on}"
        tables.setdefault(title, {}).setdefault((row.change, row.epochs), {})[row.activation] = row
    return tables


def moved(evidence: Evidence) -> list[tuple[Change, Gain]]:
    """The changes that moved a score on held-out images by more than two standard errors, with what they gained."""
    short = [row for row in evidence.changes if row.scored_on == ON_HELD_OUT]
    unchanged = {_network(row): _on_held_out(row) for row in short if row.change == NONE}
    gains = [(row, _on_held_out(row) - unchanged[_network(row)]) for row in short if _network(row) in unchanged]
    return [(row, gain) for row, gain in gains if side(gain) is not Verdict.CHANCE]


def _network(row: Change) -> tuple[str, str, str, int]:
    """What rows share that differ in their change alone; the number of iterations is a change."""
    return row.model, row.dataset, row.activation, row.epochs


def _on_held_out(row: Change) -> Gain:
    assert row.mean is not None
    return Gain(row.mean, max(row.std or 0.0, counting(row.mean, HELD_OUT)) / math.sqrt(row.n))


def held_out_deviation(evidence: Evidence) -> float | None:
    """Points by which a score of the short runs is off by the number of images alone; None before there are any."""
    scores = [row.mean for row in evidence.changes if row.scored_on == ON_HELD_OUT and row.mean is not None]
    return counting(statistics.mean(scores), HELD_OUT) if scores else None


class Times(NamedTuple):
    """The two rows of a network, and the ratios of Q-Metric to ReLU: training, test (the paper's, ours), operations."""

    relu: timing.Row
    qmetric: timing.Row
    ratios: list[float | None]


def times(evidence: Evidence) -> list[Times]:
    """The time table."""
    return [_times(evidence, model) for model in dict.fromkeys(row.model for row in evidence.timing)]


def _times(evidence: Evidence, model: str) -> Times:
    relu, qmetric = (evidence.time(model, activation) for activation in paper.COMPARED)
    training = [qmetric.paper_ratio, qmetric.ratio]
    test = [paper.time_ratio(model, "test"), evidence.test_ratio(model)]
    return Times(relu, qmetric, [*training, *test, qmetric.operations_ratio])
