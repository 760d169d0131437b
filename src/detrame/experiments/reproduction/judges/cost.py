"""What Q-Metric costs: parameters and time."""

import statistics
from collections.abc import Sequence

from detrame.experiments import paper
from detrame.experiments.reproduction.evidence import ENOUGH_SEEDS, RESIDUAL, Evidence, models, published
from detrame.experiments.reproduction.judges.judging import Printed
from detrame.experiments.reproduction.matches import Match, against_curve, controls, matches
from detrame.experiments.reproduction.verdicts import Count, Found, Verdict

ALMOST_TWICE = 1.5


def same_parameters(printed: Printed, evidence: Evidence, dataset: str) -> Found | None:
    """Is Q-Metric above ReLU wherever the two can be compared? Beyond the ReLU curve they cannot, and do not count."""
    found = matches(evidence, dataset)
    if all(match.beyond for match in found):
        return None
    here, past = (_count(found, beyond) for beyond in (False, True))
    table = _count(list(against_curve(evidence, dataset, published)), False)
    text = f"above in {here.text('comparisons')}"
    if any(past):
        text += f"; beyond the ReLU curve, and not counted, above its end in {past.text()}"
    text += f"; in the paper's own table above in {table.text()}"
    names = models("plainnet", *RESIDUAL, dataset=dataset)
    few = evidence.few(names, dataset) or any(one.n < ENOUGH_SEEDS for one in controls(evidence, dataset))
    return Found(text, here.verdict, few)


def _count(found: Sequence[Match], beyond: bool) -> Count:
    return Count.of(match.difference for match in found if match.beyond == beyond)


def training_times(printed: Printed) -> dict[str, str]:
    """What the paper says, and the median of its time table."""
    ratios = [row["train_qmetric"] / row["train_relu"] for row in paper.tables()["time"].values()]
    return {"cifar10": f"{printed['printed'].split(',')[0]}; median of its table {statistics.median(ratios):.2f}"}


def training_time(printed: Printed, evidence: Evidence, dataset: str) -> Found | None:
    """Does a step with Q-Metric take almost twice as long, in the median?"""
    ratios = [row.ratio for row in evidence.timing if row.activation == "qmetric" and row.ratio is not None]
    if not ratios:
        return None
    middle = statistics.median(ratios)
    twice = sum(ratio <= 2 for ratio in ratios)
    text = f"median {middle:.2f}, at most twice for {twice} of {len(ratios)} networks"
    left = len(ratios) < len(paper.tables()["time"])
    return Found(text, Verdict.HOLDS if ALMOST_TWICE <= middle <= 2 else Verdict.FAILS, left)
