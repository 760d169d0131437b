"""Accuracy unharmed by speed: our training against research code in float32, on the same batches."""

import math
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from torch import Tensor, nn

from detrame.data import Batches, Dataset
from detrame.experiments.bench import research
from detrame.experiments.bench.setting import Setting
from detrame.experiments.plans import seeded, train_all
from detrame.experiments.spread import Spread
from detrame.inference import accuracy, as_pixels
from detrame.modes import evaluating
from detrame.training import Recipe
from detrame.training.environment import describe

EPOCHS, SEEDS = 20, 3
MARGIN = 0.3  # points


@dataclass(frozen=True)
class Accuracy:
    """Test accuracies in percent after the last epoch, one a seed, of one Q-Metric network.

    Attributes:
        ours: as we train: on a GPU the captured step in bfloat16.
        float32: the literal equation in eager float32, with TF32 as PyTorch has it by default.
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
    difference: float
    allowed: float
    unharmed: bool
    environment: dict[str, Any]

    def line(self) -> str:
        """The figures in a line."""
        ours, float32 = Spread.of(self.ours).text(2), Spread.of(self.float32).text(2)
        verdict = "unharmed" if self.unharmed else "harmed"
        return f"ours {ours}, float32 {float32}: {verdict} ({self.difference:+.2f}, {self.allowed:.2f} allowed)"


def measure_accuracy(model: str, where: Setting) -> Accuracy:
    """Train seeds of the Q-Metric network our way and in float32, from the same weights by the same batches."""
    recipes = seeded(where.recipe(model, "qmetric", epochs=EPOCHS), range(SEEDS))
    with TemporaryDirectory(prefix="detrame-bench-") as folder:
        runs = train_all(recipes, Path(folder) / "runs", device=where.device, checkpoint_every=EPOCHS)
        ours = [run.scores.last for run in runs]
        float32 = [_in_float32(run.recipe, run.dataset(), where.torch_device) for run in runs]
    first, second = Spread.of(ours), Spread.of(float32)
    difference = first.mean - second.mean
    allowed = MARGIN + 2 * math.hypot(first.std or 0, second.std or 0) / math.sqrt(SEEDS)
    return Accuracy(
        model=model,
        batch=where.batch,
        dataset=where.dataset_name,
        epochs=EPOCHS,
        ours=ours,
        float32=float32,
        difference=difference,
        allowed=allowed,
        unharmed=abs(difference) <= allowed,
        environment=describe(where.dataset, where.device),
    )


def _in_float32(recipe: Recipe, dataset: Dataset, device: torch.device) -> float:
    """The test accuracy after the last epoch of a run without capture and without bfloat16."""
    torch.manual_seed(recipe.seed)
    model = research.network(recipe, dataset).to(device)
    if device.type == "cuda":
        model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]  # the same figures, sooner
    optimizer = research.optimizer(model, recipe)
    batches = Batches(
        dataset.train.to(device),
        recipe.batch_size,
        seed=recipe.seed,
        crop_padding=recipe.crop_padding,
        flip=recipe.flip,
        mean=dataset.mean,
    )
    for epoch in range(recipe.epochs):
        for group in optimizer.param_groups:
            group["lr"] = recipe.lr_at(epoch)
        for _ in research.steps(model, optimizer, batches.epoch(epoch)):
            pass
    test = dataset.test.to(device)
    return accuracy(_logits(model, test.images), test.labels)


@torch.no_grad()
def _logits(model: nn.Module, images: Tensor) -> Tensor:
    """In float32 throughout, where `predict` would take bfloat16 on a GPU."""
    with evaluating(model):
        return torch.cat([model(as_pixels(batch)) for batch in torch.split(images, 1000)])
