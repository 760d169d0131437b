"""Q-Metric networks against ReLU networks with as many parameters."""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import NamedTuple

from detrame.experiments.accuracy import Row
from detrame.experiments.controls import Row as Control
from detrame.experiments.paper import COMPARED
from detrame.experiments.reproduction.evidence import ARCHITECTURES, Evidence, Gain, model_name, models, ours, weighted

BEYOND, ACROSS = "beyond the curve", "across a gap"


class Match(NamedTuple):
    """The accuracy of a Q-Metric network, and that of ReLU networks with as many parameters.

    `uncounted` says where there is nothing to compare with. BEYOND their curve, `relu` is that of the nearer end, with
    fewer parameters or with more. ACROSS a gap, where a network between its neighbours has not run, it is on the line
    between them, which is the further below the curve the further they are apart.
    """

    network: str
    qmetric: Gain
    relu: Gain
    uncounted: str | None = None

    @property
    def difference(self) -> Gain:
        """By how much the Q-Metric network is the better one."""
        return self.qmetric - self.relu


def against_curve(evidence: Evidence, dataset: str, accuracy: Callable[[Row], Gain | None]) -> Iterator[Match]:
    """The Q-Metric networks against the ReLU curve of their architecture, each at its number of parameters.

    For networks whose `accuracy` is None there is nothing to compare.
    """
    for families in ARCHITECTURES:
        names = models(*families, dataset=dataset)
        relu, qmetric = (
            [
                (math.log(evidence.parameters[key]), accuracy(evidence.rows[key]), key[0])
                for key in ((name, dataset, activation) for name in names)
            ]
            for activation in COMPARED
        )
        curve = sorted((at, value) for at, value, _ in relu if value is not None)
        gaps = [at for at, value, _ in relu if value is None]
        for at, value, name in qmetric:
            if curve and value is not None:
                yield Match(model_name(name), value, *_read(curve, gaps, at))


def _read(curve: Sequence[tuple[float, Gain]], gaps: Sequence[float], at: float) -> tuple[Gain, str | None]:
    """A curve that is straight between its points, at some place, and why it does not count there, if so."""
    for (left, low), (right, high) in pairwise(curve):
        if left <= at <= right:
            part = (at - left) / (right - left)
            across = any(left < gap < right for gap in gaps)
            return weighted((1 - part, low), (part, high)), ACROSS if across else None
    return curve[0 if at < curve[0][0] else -1][1], BEYOND


def controls(evidence: Evidence, dataset: str) -> list[Control]:
    """The ReLU networks that are widened to the number of parameters of a Q-Metric one, run or not."""
    return [one for one in evidence.controls if one.matched == "parameters" and one.dataset == dataset]


def against_controls(evidence: Evidence, dataset: str) -> Iterator[Match]:
    """The Q-Metric networks against their controls, whose spread in print is that of the network they widen."""
    for control in controls(evidence, dataset):
        relu, qmetric = evidence.cell(control.model, dataset)
        if qmetric.n and control.n:
            widened = replace(relu, mean=control.mean, std=control.std, n=control.n)
            yield Match(f"{model_name(control.model)} and its control", ours(qmetric), ours(widened))


def matches(evidence: Evidence, dataset: str) -> list[Match]:
    """All comparisons at the same number of parameters that our runs allow."""
    curve = against_curve(evidence, dataset, lambda row: ours(row) if row.n else None)
    return [*curve, *against_controls(evidence, dataset)]
