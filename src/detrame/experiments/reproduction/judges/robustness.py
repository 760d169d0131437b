"""What universal perturbations and noise do to the networks.

One trained network of each kind is attacked, with several seeds: every verdict may change with other networks.
"""

from detrame.experiments import paper
from detrame.experiments.reproduction.evidence import DATASETS, Evidence, Gain, model_name, models, ours, weighted
from detrame.experiments.reproduction.judges.judging import Printed
from detrame.experiments.reproduction.verdicts import Count, Found, Verdict, side
from detrame.experiments.robustness.tables import Row

Network = tuple[str, str]  # model and activation
_UNITS = {"pixels": "pixels", "normalised": "normalised units"}
_WORDS = {
    Verdict.HOLDS: "less than half",
    Verdict.CHANCE: "half, give or take two standard errors",
    Verdict.FAILS: "more than half",
}


def fooling_rates(printed: Printed) -> dict[str, str]:
    """The fooling rates of the two networks in the paper's table, in percent."""
    cells = paper.tables()["uap"]["wideresnet16_8"]
    return {dataset: f"{cells[dataset]['relu']:.2f} to {cells[dataset]['qmetric']:.2f} %" for dataset in DATASETS}


def fooling(printed: Printed, evidence: Evidence, dataset: str) -> Found | None:
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
        f"{relu.mean:.2f} to {qmetric.mean:.2f} %, radius in {_UNITS[relu.unit]}: {_WORDS[verdict]}"
        for (relu, qmetric), verdict in zip(readings, verdicts, strict=True)
    )
    if Verdict.HOLDS in verdicts:
        return Found(text, Verdict.HOLDS if set(verdicts) == {Verdict.HOLDS} else Verdict.PARTLY, provisional=True)
    return Found(text, Verdict.CHANCE if Verdict.CHANCE in verdicts else Verdict.FAILS, provisional=True)


def noise(printed: Printed, evidence: Evidence, dataset: str) -> Found | None:
    """Each order of two networks that the paper reports, at every strength of the noise; ResNet is the deepest run."""
    rates: dict[Network, dict[tuple[str, float | None], Gain]] = {}
    for row in evidence.fooling:
        if row.dataset == dataset and row.attack == "noise":
            rates.setdefault((row.model, row.activation), {})[row.unit, row.noise_ratio] = ours(row)
    resnet = next((model for model in reversed(models("resnet")) if (model, "relu") in rates), "resnet110")
    orders: dict[str, tuple[Network, Network]] = {
        f"{model_name(resnet)} above WideResNet 16-8": ((resnet, "relu"), ("wideresnet16_8", "relu")),
        f"{model_name(resnet)} above its Q-Metric version": ((resnet, "relu"), (resnet, "qmetric")),
        "WideResNet 16-8 above its Q-Metric version": (("wideresnet16_8", "relu"), ("wideresnet16_8", "qmetric")),
        "PlainNet 9 below its Q-Metric version": (("plainnet9", "qmetric"), ("plainnet9", "relu")),
    }
    found = {
        text: [
            rates[above][strength] - rates[below][strength] for strength in rates[above].keys() & rates[below].keys()
        ]
        for text, (above, below) in orders.items()
        if above in rates and below in rates
    }
    if not found:
        return None
    told = "; ".join(f"{text} at {Count.of(gaps).text('strengths')}" for text, gaps in found.items())
    count = Count.of(gap for gaps in found.values() for gap in gaps)
    return Found(told, count.verdict, provisional=True)
