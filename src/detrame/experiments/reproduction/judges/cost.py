"""What Q-Metric costs: parameters and time."""

import statistics
from collections.abc import Mapping, Sequence

from detrame.experiments import paper
from detrame.experiments.reproduction.evidence import ENOUGH_SEEDS, FAMILIES, Evidence, models, published
from detrame.experiments.reproduction.judges.judging import Said
from detrame.experiments.reproduction.matches import ACROSS, BEYOND, Match, against_curve, controls, matches
from detrame.experiments.reproduction.verdicts import Count, Found, Verdict

ALMOST_TWICE = 1.5
ABOUT_TWICE = (1.5, 2.5)


def same_parameters(evidence: Evidence, dataset: str) -> Found | None:
    """Is Q-Metric above ReLU wherever they can be compared? Beyond the ReLU curve and across its gaps they cannot."""
    found = matches(evidence, dataset)
    if all(match.uncounted for match in found):
        return None
    here, past, across = (_count(found, uncounted) for uncounted in (None, BEYOND, ACROSS))
    table = _count(list(against_curve(evidence, dataset, published)), None)
    text = f"above in {here.text('comparisons')}"
    if any(past):
        text += f"; beyond the ReLU curve (not counted), above its end in {past.text()}"
    if any(across):
        text += f"; across gaps in the curve (not counted), above in {across.text()}"
    text += f"; in the paper's own table, above in {table.text()}"
    names = models(dataset=dataset)
    few = evidence.few(names, dataset) or any(one.n < ENOUGH_SEEDS for one in controls(evidence, dataset))
    return Found(text, here.verdict, few)


def _count(found: Sequence[Match], uncounted: str | None) -> Count:
    return Count.of(match.difference for match in found if match.uncounted == uncounted)


def times(phase: str) -> Said:
    """What the paper says of training ("train") or test ("test"), and the medians of its time table."""
    return lambda printed: {"cifar10": f"{printed['printed']}; medians of its table: {_told(_medians(_paper(phase)))}"}


def training_time(evidence: Evidence, dataset: str) -> Found | None:
    """Does a step with Q-Metric take almost twice as long, in the median of each family?"""
    ratios = {row.model: row.ratio for row in evidence.timing if row.ratio is not None}
    return _by_family(ratios, ALMOST_TWICE, 2, len(ratios) < len(_paper("train")))


def test_time(evidence: Evidence, dataset: str) -> Found | None:
    """Does it take but slightly longer, in the median of each family: no more than where it does most in the paper?"""
    ratios = {row.model: ratio for row in evidence.timing if (ratio := evidence.test_ratio(row.model)) is not None}
    printed_ratios = _paper("test")
    return _by_family(ratios, 0, max(printed_ratios.values()), len(ratios) < len(printed_ratios))


def parameters(evidence: Evidence, dataset: str) -> Found | None:
    """Are the parameters about twice as many, in the median of each family? They are counted: nothing is missing."""
    counts = evidence.parameters
    ratios = {model: counts[model, dataset, "qmetric"] / counts[model, dataset, "relu"] for model in _paper("train")}
    return _by_family(ratios, *ABOUT_TWICE, False)


def _paper(phase: str) -> dict[str, float]:
    """The paper's times with Q-Metric over those with ReLU, by network."""
    return {model: paper.time_ratio(model, phase) for model in paper.timed()}


def _by_family(ratios: Mapping[str, float], least: float, most: float, provisional: bool) -> Found | None:
    """Whether the median of each family lies within bounds; in part: of some."""
    if not ratios:
        return None
    medians = _medians(ratios)
    within = [least <= median <= most for median in medians.values()]
    verdict = Verdict.HOLDS if all(within) else Verdict.PARTLY if any(within) else Verdict.FAILS
    return Found(f"medians: {_told(medians)}", verdict, provisional)


def _medians(ratios: Mapping[str, float]) -> dict[str, float]:
    """The median over the networks of each family, where there are any."""
    families = {name: [ratios[model] for model in models(key) if model in ratios] for key, name in FAMILIES.items()}
    return {name: statistics.median(found) for name, found in families.items() if found}


def _told(medians: Mapping[str, float]) -> str:
    return ", ".join(f"{name} {median:.2f}" for name, median in medians.items())
