"""What the paper says in words: every entry of ``[claims]`` in paper.toml, with its statement and its judge.

A judge looks at one data set at a time, and finds nothing where runs are missing: then the claim is not yet tested.
"""

from detrame.experiments import paper
from detrame.experiments.reproduction.evidence import DATASETS, RESIDUAL, Evidence
from detrame.experiments.reproduction.judges import cost, dictionaries, gains, robustness
from detrame.experiments.reproduction.judges.judging import Judge, on_cifar10, on_each, printed_figures, the_same
from detrame.experiments.reproduction.verdicts import Claim, median_gain


def judged(evidence: Evidence) -> list[Claim]:
    """Every claim of the paper with our findings."""
    printed = paper.tables()["claims"]
    return [Claim(name, statement, judge(printed[name], evidence)) for name, (statement, judge) in CLAIMS.items()]


CLAIMS: dict[str, tuple[str, Judge]] = {
    "plainnet_median_gain": (
        "In PlainNet, Q-Metric raises the accuracy (median gain over the four depths, in points).",
        gains.over_networks(("plainnet",), median_gain),
    ),
    "plainnet_minimum_gain": (
        "The smallest gain among the PlainNets.",
        gains.over_networks(("plainnet",), min),
    ),
    "resnet_median_gain": (
        "In ResNet and WideResNet, it consistently raises the accuracy (median gain).",
        gains.over_networks(RESIDUAL, median_gain),
    ),
    "plainnet3_gain_over": (
        "PlainNet 3 gains more than 42 points.",
        on_each(lambda printed: dict.fromkeys(DATASETS, f"over {printed['printed']:g}"), gains.plainnet3),
    ),
    "resnet110_gain": ("Even ResNet 110 gains.", on_each(printed_figures, gains.resnet110)),
    "shallower_gains_more": (
        "The shallower the network, the larger the gain.",
        on_each(the_same("always"), gains.shallower),
    ),
    "wider_gains_more": (
        "Enlarging the width, from WideResNet 16-4 to 16-8, increases the gain.",
        on_each(gains.widening, gains.wider),
    ),
    "same_parameters_better": (
        "For a given number of parameters, Q-Metric is above ReLU.",
        on_each(the_same("above"), cost.same_parameters),
    ),
    "training_time": ("Training takes almost twice as long.", on_each(cost.times("train"), cost.training_time)),
    "parameters_twice": ("There are twice as many parameters.", on_each(on_cifar10, cost.parameters)),
    "test_time": ("Testing takes only slightly longer.", on_each(cost.times("test"), cost.test_time)),
    "ddl_gain_mean": (
        "On average, DeTraMe-Net 9 is better than deep dictionary learning (DDL) with 9 layers.",
        on_each(printed_figures, dictionaries.mean),
    ),
    "ddl_gain_best": ("The same for the best run.", on_each(printed_figures, dictionaries.best)),
    "ddl_depth": ("DeTraMe-Nets can be deeper than DDL.", on_each(on_cifar10, dictionaries.depth)),
    "ddl_test_speed": (
        "DeTraMe-Net 12 is faster than DDL at test time.",
        on_each(on_cifar10, dictionaries.test_speed),
    ),
    "ddl_train_time": (
        "DeTraMe-Net 12 trains in half the time of DDL.",
        on_each(on_cifar10, dictionaries.train_time),
    ),
    "ddl_parameters": ("DeTraMe-Net 12 has six times the parameters of DDL.", dictionaries.parameters),
    "fooling_rate_halved": (
        "Universal perturbations fool the Q-Metric WideResNet 16-8 less than half as often as the ReLU one.",
        on_each(robustness.fooling_rates, robustness.fooling),
    ),
    "uap_plainnet": (
        "As universal perturbations grow, the Q-Metric PlainNet is fooled about as often as the ReLU one.",
        on_each(on_cifar10, robustness.plainnet_fooled),
    ),
    "uap_resnet": (
        "As they grow, the Q-Metric ResNet is fooled less often than the ReLU one.",
        on_each(on_cifar10, robustness.resnet_fooled),
    ),
    "noise": (
        "Noise fools ResNet 110 most and WideResNet 16-8 second. It fools their DeTraMe versions less, but "
        "DeTraMe-PlainNet 9 somewhat more than PlainNet 9.",
        on_each(lambda printed: {"cifar10": ""}, robustness.noise),
    ),
}
