"""What Q-Metric gains over ReLU, and where."""

import math
from collections.abc import Callable, Sequence
from itertools import combinations

from detrame.experiments import paper
from detrame.experiments.report.svg import signed
from detrame.experiments.reproduction.evidence import DATASETS, Evidence, Gain, models
from detrame.experiments.reproduction.judges.judging import Judge, Printed
from detrame.experiments.reproduction.verdicts import Count, Found, Verdict, side, weigh


def over_networks(families: tuple[str, ...], summarise: Callable[[Sequence[Gain]], Gain]) -> Judge:
    """One figure for the gains of some networks: their median, or their minimum.

    Before all have run it lies between two bounds, which the missing ones would give if they lost, or gained, without
    end. It is judged where the verdict is the same at both.
    """

    def find(evidence: Evidence, dataset: str) -> Found | None:
        names = models(*families, dataset=dataset)
        gains = [pair.ours for pair in evidence.pairs(names, dataset)]
        if not gains:
            return None
        left = len(names) - len(gains)
        bounds = [summarise([*gains, *left * [Gain(end, 0.0)]]) for end in (-math.inf, math.inf)]
        there = summarise([evidence.cell(name, dataset).published for name in names])
        low, high = (weigh(bound, there) for bound in bounds)
        text = signed(summarise(gains).mean)
        if left:
            text += f" over {len(gains)} of {len(names)} networks"
        if left and all(math.isfinite(bound.mean) for bound in bounds):
            least, most = (signed(bound.mean) for bound in bounds)
            text += f"; over all {len(names)}, between {least} ({low}) and {most} ({high})"
        return Found(text, low, evidence.few(names, dataset)) if low is high else Found(text, Verdict.UNTESTED)

    return find


def plainnet3(evidence: Evidence, dataset: str) -> Found | None:
    """Does PlainNet 3 gain as much as is printed?"""
    if not (pair := evidence.pair("plainnet3", dataset)):
        return None
    text = f"{signed(pair.ours.mean)}: with ReLU it reaches {pair.relu.mean:.2f} here, {pair.relu.paper:.2f} in print"
    printed = Gain(paper.claims()["plainnet3_gain_over"]["printed"], 0.0)
    return Found(text, side(pair.ours - printed), evidence.few(["plainnet3"], dataset))


def resnet110(evidence: Evidence, dataset: str) -> Found | None:
    """Does ResNet 110 gain?"""
    if not (pair := evidence.pair("resnet110", dataset)):
        return None
    return Found(signed(pair.ours.mean), weigh(pair.ours, pair.published), evidence.few(["resnet110"], dataset))


def shallower(evidence: Evidence, dataset: str) -> Found | None:
    """Of any two networks of one family, does the shallower gain more?"""
    families = [models(family, dataset=dataset) for family in ("plainnet", "resnet")]
    couples = [two for names in families for two in combinations(evidence.pairs(names, dataset), 2)]
    if not couples:
        return None
    here = Count.of(shallow.ours - deep.ours for shallow, deep in couples)
    there = Count.of(shallow.published - deep.published for shallow, deep in couples)
    text = f"in {here.text('pairs of networks')}; for the same pairs in the paper's table, in {there.text()}"
    return Found(text, here.verdict, any(evidence.few(names, dataset) for names in families))


def widening(printed: Printed) -> dict[str, str]:
    """The gains of the two WideResNets in the paper's table."""
    rows = [paper.tables()["accuracy"][f"wideresnet16_{width}"] for width in (4, 8)]
    return {
        dataset: " to ".join(signed(row[dataset]["qmetric"] - row[dataset]["relu"]) for row in rows)
        for dataset in DATASETS
    }


def wider(evidence: Evidence, dataset: str) -> Found | None:
    """Does WideResNet 16-8 gain more than 16-4?"""
    names = ["wideresnet16_4", "wideresnet16_8"]
    narrow, wide = (evidence.pair(name, dataset) for name in names)
    if not (narrow and wide):
        return None
    more = wide.ours - narrow.ours
    text = f"{signed(narrow.ours.mean)} to {signed(wide.ours.mean)}"
    text += f": a change of {signed(more.mean)}, with a standard error of {more.error:.3f}"
    return Found(text, side(more), evidence.few(names, dataset))
