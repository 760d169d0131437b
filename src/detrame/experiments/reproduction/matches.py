"""Q-Metric networks against ReLU networks with as many parameters."""

import math
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import NamedTuple

from detrame.experiments.reproduce import ACTIVATIONS, Row
from detrame.experiments.reproduction.evidence import RESIDUAL, Evidence, model_name, models


class Match(NamedTuple):
    """The accuracy of a Q-Metric network, and that of a ReLU network with as many parameters."""

    network: str
    qmetric: float
    relu: float

    @property
    def above(self) -> bool:
        """Whether the Q-Metric network is the better one."""
        return self.qmetric > self.relu


def against_curve(evidence: Evidence, dataset: str, accuracy: Callable[[Row], float | None]) -> Iterator[Match]:
    """The Q-Metric networks against the ReLU curve of their architecture, each at its number of parameters.

    The curve joins neighbouring ReLU networks, straight in the logarithm of the parameters. Beyond its ends only what
    is certain counts: a smaller network that is better than its first one, a larger one that is worse than its last.
    For networks whose `accuracy` is None there is nothing to compare.
    """
    for families in (("plainnet",), RESIDUAL):
        names = models(*families, dataset=dataset)
        relu, qmetric = (
            [
                (math.log(evidence.parameters[name, dataset, activation]), value, name)
                for name in names
                if (value := accuracy(evidence.rows[name, dataset, activation])) is not None
            ]
            for activation in ACTIVATIONS
        )
        for at, value, name in qmetric if relu else []:
            for (left, low, _), (right, high, _) in pairwise(sorted(relu)):
                if left <= at <= right:
                    yield Match(model_name(name), value, low + (high - low) * (at - left) / (right - left))
            (smallest, first, _), (largest, last, _) = min(relu), max(relu)
            if (at < smallest and value > first) or (at > largest and value < last):
                yield Match(model_name(name), value, first if at < smallest else last)


def against_controls(evidence: Evidence, dataset: str) -> Iterator[Match]:
    """The Q-Metric networks against ReLU networks that were widened to their number of parameters."""
    for control in evidence.controls:
        if control.matched == "parameters" and control.dataset == dataset:
            qmetric = evidence.rows[control.model, dataset, "qmetric"]
            if qmetric.mean is not None and control.mean is not None:
                yield Match(f"{model_name(control.model)} and its control", qmetric.mean, control.mean)


def matches(evidence: Evidence, dataset: str) -> list[Match]:
    """All comparisons at the same number of parameters that our runs allow."""
    return [*against_curve(evidence, dataset, lambda row: row.mean), *against_controls(evidence, dataset)]
