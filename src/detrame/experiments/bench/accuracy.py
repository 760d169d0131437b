"""Accuracy unharmed by speed: our training against research code in float32, on the same batches."""

import math
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from torch import nn

from detrame.data import Dataset
from detrame.experiments.bench import research
from detrame.experiments.bench.setting import Setting
from detrame.experiments.plans import seeded, train_all
from detrame.experiments.spread import Spread
from detrame.inference import accuracy, fooling_rate, predict
from detrame.training import Recipe, Run
from detrame.training.environment import describe

EPOCHS, SEEDS = 20, 3
MARGIN = 0.3  # points


@dataclass(frozen=True)
class Accuracy:
    """Test accuracies in percent after the last epoch, one a seed, of one Q-Metric network.

    Attributes:
        ours: as we train: on a GPU the captured step in bfloat16.
        float32: the literal equation in eager float32, with TF32 as PyTorch has it by default.
        disagreement: percent of the test images about which the two networks of a seed say different classes.
        difference: of the means, ours less float32.
        allowed: 0.3 points and two standard errors of the difference.
        unharmed: whether ours is at most that much away.
    """

    model: str
    batch: int
    dataset: str
    epochs: int
    ours: list[float]
    float32: list[float]
    disagreement: list[float]
    difference: float
    allowed: float
    unharmed: bool
    environment: dict[str, Any]

    def line(self) -> str:
        """The figures in a line."""
        ours, float32 = Spread.of(self.ours).text(2), Spread.of(self.float32).text(2)
        verdict = "unharmed" if self.unharmed else "harmed"
        apart = Spread.of(self.disagreement).text(1)
        return (
            f"ours {ours}, float32 {float32}: {verdict} ({self.difference:+.2f}, {self.allowed:.2f} allowed); "
            f"they disagree about {apart}% of the images"
        )


def measure_accuracy(model: str, where: Setting) -> Accuracy:
    """Train seeds of the Q-Metric network our way and in float32, from the same weights by the same batches."""
    recipes = seeded(where.recipe(model, "qmetric", epochs=EPOCHS), range(SEEDS))
    with TemporaryDirectory(prefix="detrame-bench-") as folder:
        runs = train_all(recipes, Path(folder) / "runs", device=where.device, checkpoint_every=EPOCHS)
        ours = [run.scores.last for run in runs]
        float32, disagreement = zip(*(_beside_float32(run, where.torch_device) for run in runs), strict=True)
    first, second = Spread.of(ours), Spread.of(float32)
    difference = first.mean - second.mean
    allowed = MARGIN + 2 * math.hypot(first.std or 0, second.std or 0) / math.sqrt(SEEDS)
    return Accuracy(
        model=model,
        batch=where.batch,
        dataset=where.dataset_name,
        epochs=EPOCHS,
        ours=ours,
        float32=[*float32],
        disagreement=[*disagreement],
        difference=difference,
        allowed=allowed,
        unharmed=abs(difference) <= allowed,
        environment=describe(where.dataset, where.device),
    )


def _beside_float32(run: Run, device: torch.device) -> tuple[float, float]:
    """The test accuracy of the same training in float32, and the share of test images about which the two disagree."""
    dataset = run.dataset()
    test = dataset.test.to(device)
    ours = predict(run.model.to(device), test.images, exact=True)
    float32 = predict(_in_float32(run.recipe, dataset, device), test.images, exact=True)
    return accuracy(float32, test.labels), fooling_rate(ours, float32)


def _in_float32(recipe: Recipe, dataset: Dataset, device: torch.device) -> nn.Module:
    """The network after the last epoch of a run without capture and without bfloat16."""
    torch.manual_seed(recipe.seed)
    model = research.network(recipe, dataset).to(device)
    model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]  # the same figures, sooner
    optimizer = research.optimizer(model, recipe)
    batches = recipe.batches(dataset.train.to(device), dataset)
    for epoch in range(recipe.epochs):
        for group in optimizer.param_groups:
            group["lr"] = recipe.lr_at(epoch)
        for _ in research.steps(model, optimizer, batches.epoch(epoch)):
            pass
    return model
