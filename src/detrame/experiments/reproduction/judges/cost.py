"""What Q-Metric costs: parameters and time."""

import statistics
from collections.abc import Mapping, Sequence

from detrame.experiments import paper
from detrame.experiments.reproduction.evidence import ENOUGH_SEEDS, FAMILIES, RESIDUAL, Evidence, models, published
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
    """What the paper says, and the medians of its time table."""
    times = paper.tables()["time"]
    ratios = {model: row["train_qmetric"] / row["train_relu"] for model, row in times.items()}
    return {"cifar10": f"{printed['printed'].split(',')[0]}; medians of its table: {_told(_medians(ratios))}"}


def training_time(printed: Printed, evidence: Evidence, dataset: str) -> Found | None:
    """Does a step with Q-Metric take almost twice as long, in the median of each family? In part: of some."""
    ratios = {row.model: row.ratio for row in evidence.timing if row.activation == "qmetric" and row.ratio is not None}
    if not ratios:
        return None
    medians = _medians(ratios)
    twice = [ALMOST_TWICE <= median <= 2 for median in medians.values()]
    verdict = Verdict.HOLDS if all(twice) else Verdict.PARTLY if any(twice) else Verdict.FAILS
    return Found(f"medians: {_told(medians)}", verdict, len(ratios) < len(paper.tables()["time"]))


def _medians(ratios: Mapping[str, float]) -> dict[str, float]:
    """The median over the networks of each family, where there are any."""
    families = {name: [ratios[model] for model in models(key) if model in ratios] for key, name in FAMILIES.items()}
    return {name: statistics.median(found) for name, found in families.items() if found}


def _told(medians: Mapping[str, float]) -> str:
    return ", ".join(f"{name} {median:.2f}" for name, median in medians.items())
