"""What the paper says in words, ``[claims]`` in paper.toml: how the page tells what is in print, and who judges it.

A judge looks at one data set at a time, and finds nothing where runs are missing: then the claim is not yet tested.
"""

from detrame.experiments import paper
from detrame.experiments.reproduction.evidence import DATASETS, RESIDUAL, Evidence
from detrame.experiments.reproduction.judges import cost, dictionaries, gains, robustness
from detrame.experiments.reproduction.judges.judging import Judge, Printed, Said, in_words, printed_figures, the_same
from detrame.experiments.reproduction.verdicts import NOTHING, Claim, Finding, median_gain

CLAIMS: dict[str, tuple[Said, Judge]] = {
    "plainnet_median_gain": (printed_figures, gains.over_networks(("plainnet",), median_gain)),
    "plainnet_minimum_gain": (printed_figures, gains.over_networks(("plainnet",), min)),
    "resnet_median_gain": (printed_figures, gains.over_networks(RESIDUAL, median_gain)),
    "plainnet3_gain_over": (lambda printed: dict.fromkeys(DATASETS, f"over {printed['printed']:g}"), gains.plainnet3),
    "resnet110_gain": (printed_figures, gains.resnet110),
    "shallower_gains_more": (the_same("always"), gains.shallower),
    "wider_gains_more": (gains.widening, gains.wider),
    "same_parameters_better": (the_same("above"), cost.same_parameters),
    "training_time": (cost.times("train"), cost.training_time),
    "parameters_twice": (in_words("cifar10"), cost.parameters),
    "test_time": (cost.times("test"), cost.test_time),
    "ddl_gain_mean": (printed_figures, dictionaries.mean),
    "ddl_gain_best": (printed_figures, dictionaries.best),
    "ddl_depth": (in_words("cifar10"), dictionaries.depth),
    "ddl_test_speed": (in_words("cifar10"), dictionaries.test_speed),
    "ddl_train_time": (in_words("cifar10"), dictionaries.train_time),
    "ddl_parameters": (in_words(""), dictionaries.parameters),
    "fooling_rate_halved": (robustness.fooling_rates, robustness.fooling),
    "uap_plainnet": (in_words("cifar10"), robustness.plainnet_fooled),
    "uap_resnet": (in_words("cifar10"), robustness.resnet_fooled),
    "noise": (lambda printed: {"cifar10": ""}, robustness.noise),
}


def judged(evidence: Evidence) -> list[Claim]:
    """Every claim of the paper with our findings."""
    return [Claim(name, entry["statement"], _findings(name, entry, evidence)) for name, entry in paper.claims().items()]


def _findings(name: str, entry: Printed, evidence: Evidence) -> list[Finding]:
    """One for each data set, and one for all together on which nothing has run."""
    said, judge = CLAIMS[name]
    texts, names = said(entry), DATASETS | {"": ""}
    found = {dataset: judge(evidence, dataset) for dataset in texts}
    findings = [Finding(names[dataset], texts[dataset], one) for dataset, one in found.items() if one]
    if untested := [dataset for dataset, one in found.items() if not one]:
        where, printed = ([each[dataset] for dataset in untested] for each in (names, texts))
        findings.append(Finding(", ".join(where), ", ".join(dict.fromkeys(printed)), NOTHING))
    return findings
