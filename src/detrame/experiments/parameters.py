"""The parameters of the paper's networks, and the few counts that it prints."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

from detrame.experiments import paper
from detrame.models import ModelInfo, list_models


@dataclass(frozen=True)
class Row:
    """The parameters of a network for a data set, and the count the paper prints, if it does."""

    model: str
    dataset: str
    activation: str
    parameters: int
    paper: float | None


def rows(wanted: Sequence[tuple[str, str]]) -> list[Row]:
    """Our parameter counts beside the paper's, which prints three: PlainNet 9's two and (wrongly) DeTraMe-Net 12's."""
    accuracies, times = paper.tables()["ddl_accuracy"], paper.tables()["ddl_time"]
    printed = {
        ("plainnet9", "relu"): accuracies["plainnet9"]["parameters"],
        ("plainnet9", "qmetric"): accuracies["detrame9"]["parameters"],
        ("plainnet12", "qmetric"): times["detrame12"]["parameters"],
    }
    return [
        Row(model, dataset, activation, cost.parameters, printed.get((model, activation)))
        for dataset in dict.fromkeys(dataset for _, dataset in wanted)
        for model in [model for model, name in wanted if name == dataset]
        for activation, cost in _counted(100 if dataset == "cifar100" else 10)[model]._asdict().items()
    ]


@cache
def _counted(num_classes: int) -> dict[str, ModelInfo]:
    return list_models(num_classes=num_classes, image_size=8)  # parameters do not depend on it, and small is quick
