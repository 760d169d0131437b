"""What Q-Metric costs: parameters and time."""

import statistics

from detrame.experiments import paper
from detrame.experiments.reproduction.evidence import RESIDUAL, Evidence, models
from detrame.experiments.reproduction.judges.judging import Printed
from detrame.experiments.reproduction.matches import against_curve, matches
from detrame.experiments.reproduction.verdicts import Found, Verdict, share

ALMOST_TWICE = 1.5


def same_parameters(printed: Printed, evidence: Evidence, dataset: str) -> Found | None:
    """Is Q-Metric above ReLU wherever the two can be compared?"""
    found = matches(evidence, dataset)
    if not found:
        return None
    above = sum(match.above for match in found)
    table = [match.above for match in against_curve(evidence, dataset, lambda row: row.paper)]
    names = models("plainnet", *RESIDUAL, dataset=dataset)
    return Found(
        f"above in {above} of {len(found)} comparisons; in the paper's own table in {sum(table)} of {len(table)}",
        share(above, len(found)),
        len(evidence.pairs(names, dataset)) < len(names),
    )


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
