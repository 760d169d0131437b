"""What the paper says in words, judged by the stored results.

Every entry of ``[claims]`` in paper.toml has its statement and its judge in `CLAIMS`, below. A judge looks at one data
set at a time, and finds nothing where the runs are missing: then the claim is not yet tested.
"""

import math
import re
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from enum import StrEnum
from itertools import combinations, pairwise
from typing import Any, NamedTuple

from detrame.experiments import paper
from detrame.experiments.report.svg import MINUS
from detrame.experiments.reproduce import ACTIVATIONS, Row
from detrame.experiments.reproduction.evidence import (
    DATASETS,
    Evidence,
    Gain,
    Pair,
    model_name,
    models,
    ours,
    published,
)
from detrame.experiments.timing import TRAINING_IMAGES

RESIDUAL = ("resnet", "wideresnet")


class Verdict(StrEnum):
    """What became of a claim."""

    HOLDS = "holds"
    PARTLY = "holds in part"
    CHANCE = "within chance"
    FAILS = "does not hold"
    UNTESTED = "not yet tested"


class Found(NamedTuple):
    """Our figure in words, the verdict, and whether runs that are missing may change it."""

    ours: str
    verdict: Verdict
    provisional: bool = False


NOTHING = Found("", Verdict.UNTESTED)


class Finding(NamedTuple):
    """What was found on one data set (or, without one, on all), beside what the paper has."""

    where: str
    paper: str
    found: Found


class Claim(NamedTuple):
    """What the paper says, and what we found."""

    name: str
    statement: str
    findings: list[Finding]


Printed = dict[str, Any]  # an entry of [claims]
Judge = Callable[[Printed, Evidence], list[Finding]]


def judged(evidence: Evidence) -> list[Claim]:
    """Every claim of the paper with our findings."""
    printed = paper.tables()["claims"]
    return [Claim(name, statement, judge(printed[name], evidence)) for name, (statement, judge) in CLAIMS.items()]


def _on_each(
    said: Callable[[Printed], Mapping[str, str]], find: Callable[[Printed, Evidence, str], Found | None]
) -> Judge:
    """A judge that looks at each of the data sets about which the paper says something."""

    def judge(printed: Printed, evidence: Evidence) -> list[Finding]:
        texts = said(printed)
        found = {dataset: find(printed, evidence, dataset) for dataset in texts}
        tested = [Finding(DATASETS[dataset], texts[dataset], one) for dataset, one in found.items() if one]
        return tested + _untested({DATASETS[dataset]: texts[dataset] for dataset, one in found.items() if not one})

    return judge


def _untested(texts: Mapping[str, str]) -> list[Finding]:
    """One finding for all data sets on which nothing has run."""
    return [Finding(", ".join(texts), ", ".join(dict.fromkeys(texts.values())), NOTHING)] if texts else []


def _figures(printed: Printed) -> dict[str, str]:
    """One figure for each of the first data sets."""
    return {dataset: _points(figure) for dataset, figure in zip(DATASETS, printed["printed"], strict=False)}


def _the_same(text: str) -> Callable[[Printed], dict[str, str]]:
    return lambda printed: dict.fromkeys(DATASETS, text)


def _on_cifar10(printed: Printed) -> dict[str, str]:
    return {"cifar10": printed["printed"]}


# Gains


def median_gain(gains: Sequence[Gain]) -> Gain:
    """The median, with the error of the one or two gains in the middle."""
    ordered = sorted(gains)
    middle = ordered[(len(ordered) - 1) // 2 : len(ordered) // 2 + 1]
    return Gain(statistics.fmean(gain.mean for gain in middle), math.hypot(*[g.error for g in middle]) / len(middle))


def weigh(gain: Gain, printed: Gain) -> Verdict:
    """A gain of at most two standard errors is chance; one as large as the paper's, within two, holds."""
    if abs(gain.mean) <= 2 * gain.error:
        return Verdict.CHANCE
    if gain.mean <= 0:
        return Verdict.FAILS
    short = printed - gain
    return Verdict.HOLDS if short.mean <= 2 * short.error else Verdict.PARTLY


def _over_networks(families: tuple[str, ...], summarise: Callable[[Sequence[Gain]], Gain]) -> Judge:
    """One figure for the gains of some networks; judged by the paper's table for those of them that have run."""

    def find(printed: Printed, evidence: Evidence, dataset: str) -> Found | None:
        names = models(*families, dataset=dataset)
        pairs = _pairs(evidence, names, dataset)
        if not pairs:
            return None
        here, there = summarise([pair.ours for pair in pairs]), summarise([pair.published for pair in pairs])
        left = len(pairs) < len(names)
        text = _points(here.mean)
        if left:
            text += f" over {len(pairs)} of {len(names)} networks, where the paper's table gives {_points(there.mean)}"
        return Found(text, weigh(here, there), left)

    return _on_each(_figures, find)


def _pairs(evidence: Evidence, names: Sequence[str], dataset: str) -> list[Pair]:
    return [pair for name in names if (pair := evidence.pair(name, dataset))]


def _plainnet3(printed: Printed, evidence: Evidence, dataset: str) -> Found | None:
    if not (pair := evidence.pair("plainnet3", dataset)):
        return None
    text = f"{_points(pair.ours.mean)}: with ReLU it reaches {pair.relu.mean:.2f} here, {pair.relu.paper:.2f} in print"
    return Found(text, Verdict.HOLDS if pair.ours.mean > printed["printed"] else Verdict.FAILS)


def _resnet110(printed: Printed, evidence: Evidence, dataset: str) -> Found | None:
    if not (pair := evidence.pair("resnet110", dataset)):
        return None
    return Found(_points(pair.ours.mean), weigh(pair.ours, pair.published))


def _shallower(printed: Printed, evidence: Evidence, dataset: str) -> Found | None:
    """Of any two networks of one family, does the shallower gain more?"""
    families = [models(family, dataset=dataset) for family in ("plainnet", "resnet")]
    couples = [two for names in families for two in combinations(_pairs(evidence, names, dataset), 2)]
    if not couples:
        return None
    here = sum(shallow.ours.mean > deep.ours.mean for shallow, deep in couples)
    there = sum(shallow.published.mean > deep.published.mean for shallow, deep in couples)
    text = f"in {here} of {len(couples)} pairs of networks; in the paper's table in {there} of these"
    return Found(text, _share(here, len(couples)), len(couples) < sum(math.comb(len(names), 2) for names in families))


def _widening(printed: Printed) -> dict[str, str]:
    """The gains of the two WideResNets in the paper's table."""
    rows = [paper.tables()["accuracy"][f"wideresnet16_{width}"] for width in (4, 8)]
    return {
        dataset: " to ".join(_points(row[dataset]["qmetric"] - row[dataset]["relu"]) for row in rows)
        for dataset in DATASETS
    }


def _wider(printed: Printed, evidence: Evidence, dataset: str) -> Found | None:
    narrow, wide = (evidence.pair(f"wideresnet16_{width}", dataset) for width in (4, 8))
    if not (narrow and wide):
        return None
    text = f"{_points(narrow.ours.mean)} to {_points(wide.ours.mean)}"
    return Found(text, weigh(wide.ours - narrow.ours, Gain(0.0, 0.0)))


# Against the number of parameters


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

    The curve joins neighbouring ReLU networks, straight in the logarithm of the parameters; beyond its ends, and for
    networks whose `accuracy` is None, there is nothing to compare.
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
        for at, value, name in qmetric:
            for (left, low, _), (right, high, _) in pairwise(sorted(relu)):
                if left <= at <= right:
                    yield Match(model_name(name), value, low + (high - low) * (at - left) / (right - left))


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


def _same_parameters(printed: Printed, evidence: Evidence, dataset: str) -> Found | None:
    found = matches(evidence, dataset)
    if not found:
        return None
    above = sum(match.above for match in found)
    table = [match.above for match in against_curve(evidence, dataset, lambda row: row.paper)]
    names = models("plainnet", *RESIDUAL, dataset=dataset)
    return Found(
        f"above in {above} of {len(found)} comparisons; in the paper's own table in {sum(table)} of {len(table)}",
        _share(above, len(found)),
        len(_pairs(evidence, names, dataset)) < len(names),
    )


# Time


def _training_times(printed: Printed) -> dict[str, str]:
    ratios = [row["train_qmetric"] / row["train_relu"] for row in paper.tables()["time"].values()]
    return {"cifar10": f"{printed['printed'].split(',')[0]}; median of its table {statistics.median(ratios):.2f}"}


def _training_time(printed: Printed, evidence: Evidence, dataset: str) -> Found | None:
    ratios = [row.ratio for row in evidence.timing if row.activation == "qmetric" and row.ratio is not None]
    if not ratios:
        return None
    middle = statistics.median(ratios)
    twice = sum(ratio <= 2 for ratio in ratios)
    text = f"median {middle:.2f}, at most twice for {twice} of {len(ratios)} networks"
    left = len(ratios) < len(paper.tables()["time"])
    return Found(text, Verdict.HOLDS if middle <= 2 else Verdict.FAILS, left)


# Against deep dictionary learning, by the figures that its own paper gives


def _ddl_mean(printed: Printed, evidence: Evidence, dataset: str) -> Found | None:
    row = evidence.rows["plainnet9", dataset, "qmetric"]
    if not row.n:
        return None
    rival = Gain(_ddl_accuracy(dataset), 0.0)
    gain = ours(row) - rival
    return Found(f"{_points(gain.mean)}, over {_seeds(row.n)}", weigh(gain, published(row) - rival))


def _ddl_best(printed: Printed, evidence: Evidence, dataset: str) -> Found | None:
    scores = [result.scores.last for result in evidence.runs("plainnet9", dataset, "qmetric")]
    if not scores:
        return None
    gain = max(scores) - _ddl_accuracy(dataset)
    large = gain >= printed["printed"][list(DATASETS).index(dataset)]
    verdict = Verdict.HOLDS if large else Verdict.PARTLY if gain > 0 else Verdict.FAILS
    return Found(f"{_points(gain)}, the best of {_seeds(len(scores))}", verdict)


def _ddl_accuracy(dataset: str) -> float:
    accuracy: float = paper.tables()["ddl_accuracy"]["ddl9"][dataset]
    return accuracy


def _ddl_depth(printed: Printed, evidence: Evidence, dataset: str) -> Found | None:
    """That a network of 110 layers trains at all."""
    row = evidence.rows["resnet110", dataset, "qmetric"]
    if not row.n:
        return None
    verdict = Verdict.PARTLY if row.verdict == "not reproduced" else Verdict.HOLDS
    return Found(f"ResNet 110 trains, to {row.mean:.2f} %", verdict)


def _ddl_parameters(printed: Printed, evidence: Evidence) -> list[Finding]:
    counts = paper.tables()["ddl_time"]
    count = evidence.parameters["plainnet12", "cifar10", "qmetric"]
    times = count / counts["ddl"]["parameters"]
    plain = counts["detrame12"]["parameters"]
    text = f"{times:.0f} times: {plain / 1e6:.1f}M is the count with ReLU, with Q-Metric it is {count / 1e6:.1f}M"
    verdict = Verdict.HOLDS if round(times) == _number(printed["printed"]) else Verdict.FAILS
    return [Finding("", printed["printed"], Found(text, verdict))]


def _ddl_test_speed(printed: Printed, evidence: Evidence, dataset: str) -> Found | None:
    row = evidence.time("plainnet12", "qmetric")
    if row.test_s_per_image is None:
        return None
    times = paper.tables()["ddl_time"]["ddl"]["test"] / row.test_s_per_image
    verdict = Verdict.HOLDS if times >= _number(printed["printed"]) else Verdict.FAILS
    return Found(f"{times:,.0f} times, on {row.hardware}", verdict)


def _ddl_train_time(printed: Printed, evidence: Evidence, dataset: str) -> Found | None:
    row = evidence.time("plainnet12", "qmetric")
    if row.train_s is None:
        return None
    share = row.train_s / TRAINING_IMAGES / paper.tables()["ddl_time"]["ddl"]["train"]
    verdict = Verdict.HOLDS if share <= 0.5 else Verdict.FAILS
    return Found(f"{share:.2g} of it, on {row.hardware}", verdict)


# Not computed yet


def _nothing(printed: Printed, evidence: Evidence) -> list[Finding]:
    return _untested({"": ""})


def _share(yes: int, among: int) -> Verdict:
    """Always, mostly, or not."""
    return Verdict.HOLDS if yes == among else Verdict.PARTLY if 2 * yes > among else Verdict.FAILS


def _points(value: float) -> str:
    return f"{value:+.2f}".replace("-", MINUS)


def _seeds(n: int) -> str:
    return f"{n} seed{'s' * (n > 1)}"


def _number(text: str) -> int:
    """The first whole number in a text."""
    found = re.search(r"\d+", text)
    assert found
    return int(found[0])


CLAIMS: dict[str, tuple[str, Judge]] = {
    "plainnet_median_gain": (
        "In PlainNet, Q-Metric raises the accuracy: the median over the four depths, in points.",
        _over_networks(("plainnet",), median_gain),
    ),
    "plainnet_minimum_gain": ("The least gain among the PlainNets.", _over_networks(("plainnet",), min)),
    "resnet_median_gain": (
        "In ResNet and WideResNet it consistently raises the accuracy: the median.",
        _over_networks(RESIDUAL, median_gain),
    ),
    "plainnet3_gain_over": (
        "PlainNet 3 gains more than 42 points.",
        _on_each(lambda printed: dict.fromkeys(DATASETS, f"over {printed['printed']:g}"), _plainnet3),
    ),
    "resnet110_gain": ("Even ResNet 110 gains.", _on_each(_figures, _resnet110)),
    "shallower_gains_more": (
        "The shallower the network, the larger the gain.",
        _on_each(_the_same("always"), _shallower),
    ),
    "wider_gains_more": (
        "Enlarging the width, from WideResNet 16-4 to 16-8, increases the gain.",
        _on_each(_widening, _wider),
    ),
    "same_parameters_better": (
        "For a given number of parameters, Q-Metric is above ReLU.",
        _on_each(_the_same("above"), _same_parameters),
    ),
    "training_time": ("Training takes almost twice as long.", _on_each(_training_times, _training_time)),
    "ddl_gain_mean": (
        "DeTraMe-Net 9 is better than deep dictionary learning (DDL) of 9 layers, on average.",
        _on_each(_figures, _ddl_mean),
    ),
    "ddl_gain_best": ("The same, for the best run.", _on_each(_figures, _ddl_best)),
    "ddl_depth": ("DeTraMe-Nets can be deeper than DDL.", _on_each(_on_cifar10, _ddl_depth)),
    "ddl_test_speed": ("DeTraMe-Net 12 is faster than DDL at test time.", _on_each(_on_cifar10, _ddl_test_speed)),
    "ddl_train_time": (
        "DeTraMe-Net 12 trains in half the time that DDL takes.",
        _on_each(_on_cifar10, _ddl_train_time),
    ),
    "ddl_parameters": ("DeTraMe-Net 12 has six times the parameters of DDL.", _ddl_parameters),
    "fooling_rate_halved": (
        "Universal perturbations fool the Q-Metric WideResNet 16-8 less than half as often as the ReLU one, on all "
        "three data sets.",
        _nothing,
    ),
    "noise": (
        "Noise fools ResNet 110 most and WideResNet 16-8 second, their DeTraMe versions less, DeTraMe-PlainNet 9 "
        "somewhat more than PlainNet 9.",
        _nothing,
    ),
}
