"""What universal perturbations and noise do to the networks.

One trained network of each kind is attacked, with several seeds: every verdict may change with other networks.
"""

from collections.abc import Callable, Sequence

from detrame.experiments import paper
from detrame.experiments.reproduction.evidence import DATASETS, Evidence, Gain, model_name, models, ours, weighted
from detrame.experiments.reproduction.judges.judging import Printed
from detrame.experiments.reproduction.verdicts import Count, Found, Verdict, side
from detrame.experiments.robustness.tables import Row

Network = tuple[str, str]  # model and activation
Strength = tuple[str, float | None, float | None]  # unit, radius, noise ratio
Rates = dict[Network, dict[Strength, Gain]]  # how often each is fooled
_UNITS = {"pixels": "pixels", "normalised": "normalised units"}
_WORDS = {
    Verdict.HOLDS: "less than half",
    Verdict.CHANCE: "half within two standard errors",
    Verdict.FAILS: "more than half",
}


def fooling_rates(printed: Printed) -> dict[str, str]:
    """The fooling rates of the two networks in the paper's table, in percent."""
    cells = paper.tables()["uap"]["wideresnet16_8"]
    return {dataset: f"{cells[dataset]['relu']:.2f} to {cells[dataset]['qmetric']:.2f} %" for dataset in DATASETS}


def fooling(evidence: Evidence, dataset: str) -> Found | None:
    """Less than half, or not, beyond two errors, at either reading of the radius, whose unit the paper does not say."""
    rates: dict[str, dict[str, Row]] = {}
    for row in evidence.fooling:
        if row.dataset == dataset and row.paper is not None:
            rates.setdefault(row.unit, {})[row.activation] = row
    readings = [(found["relu"], found["qmetric"]) for found in rates.values() if len(found) == 2]
    if not readings:
        return None
    verdicts = [side(weighted((0.5, ours(relu)), (-1, ours(qmetric)))) for relu, qmetric in readings]
    text = "; ".join(
        f"radius in {_UNITS[relu.unit]}: {relu.mean:.2f} to {qmetric.mean:.2f} %, {_WORDS[verdict]}"
        for (relu, qmetric), verdict in zip(readings, verdicts, strict=True)
    )
    if Verdict.HOLDS in verdicts:
        return Found(text, Verdict.HOLDS if set(verdicts) == {Verdict.HOLDS} else Verdict.PARTLY, provisional=True)
    return Found(text, Verdict.CHANCE if Verdict.CHANCE in verdicts else Verdict.FAILS, provisional=True)


def plainnet_fooled(evidence: Evidence, dataset: str) -> Found | None:
    """Is PlainNet 9 fooled as often with either activation, at each radius? Beyond two standard errors it is not."""

    def alike(gaps: Sequence[Gain]) -> tuple[str, Verdict]:
        less, same, more = Count.of(gaps)
        text = f"alike at {same} of {len(gaps)} radii, Q-Metric less at {less}, more at {more}"
        return text, Count(same, 0, less + more).verdict

    return _under_uap(evidence, dataset, "plainnet9", alike)


def resnet_fooled(evidence: Evidence, dataset: str) -> Found | None:
    """Is the deepest ResNet that was attacked fooled less with Q-Metric, at each radius?"""

    def less(gaps: Sequence[Gain]) -> tuple[str, Verdict]:
        count = Count.of(gaps)
        return f"less at {count.text('radii')}", count.verdict

    return _under_uap(evidence, dataset, _deepest_resnet(_rates(evidence, dataset, "uap")), less)


def _under_uap(
    evidence: Evidence, dataset: str, model: str, weigh: Callable[[Sequence[Gain]], tuple[str, Verdict]]
) -> Found | None:
    """What is found by the paper's method, and beside it in words by our own stronger one."""
    found = {}
    for attack, said in (("uap", model_name(model)), ("uap-gradient", "by our gradient attack")):
        gaps = _gaps(_rates(evidence, dataset, attack), (model, "relu"), (model, "qmetric"))
        if gaps:
            text, verdict = weigh(gaps)
            found[attack] = Found(f"{said}: {text}", verdict, provisional=True)
    if "uap" not in found:
        return None
    return found["uap"]._replace(ours="; ".join(one.ours for one in found.values()))


def noise(evidence: Evidence, dataset: str) -> Found | None:
    """Each order of two networks that the paper reports, at every strength of the noise; ResNet is the deepest run."""
    rates = _rates(evidence, dataset, "noise")
    resnet = _deepest_resnet(rates)
    orders: dict[str, tuple[Network, Network]] = {
        f"{model_name(resnet)} above WideResNet 16-8": ((resnet, "relu"), ("wideresnet16_8", "relu")),
        f"{model_name(resnet)} above its Q-Metric version": ((resnet, "relu"), (resnet, "qmetric")),
        "WideResNet 16-8 above its Q-Metric version": (("wideresnet16_8", "relu"), ("wideresnet16_8", "qmetric")),
        "PlainNet 9 below its Q-Metric version": (("plainnet9", "qmetric"), ("plainnet9", "relu")),
    }
    found = {text: gaps for text, networks in orders.items() if (gaps := _gaps(rates, *networks))}
    if not found:
        return None
    told = "; ".join(f"{text} at {Count.of(gaps).text('strengths')}" for text, gaps in found.items())
    count = Count.of(gap for gaps in found.values() for gap in gaps)
    return Found(told, count.verdict, provisional=True)


def _rates(evidence: Evidence, dataset: str, attack: str) -> Rates:
    rates: Rates = {}
    for row in evidence.fooling:
        if row.dataset == dataset and row.attack == attack:
            rates.setdefault((row.model, row.activation), {})[row.unit, row.radius, row.noise_ratio] = ours(row)
    return rates


def _deepest_resnet(rates: Rates) -> str:
    return next((model for model in reversed(models("resnet")) if (model, "relu") in rates), "resnet110")


def _gaps(rates: Rates, above: Network, below: Network) -> list[Gain]:
    """How much more often one network is fooled than another, at every strength at which both were attacked."""
    found, others = rates.get(above, {}), rates.get(below, {})
    return [found[strength] - others[strength] for strength in found if strength in others]
