"""The training step of a network, ReLU and Q-Metric: ours, the plain captured path and research code, side by side."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from detrame.data import Dataset
from detrame.experiments import paper
from detrame.experiments.bench import research
from detrame.experiments.bench.ceilings import Ceilings
from detrame.experiments.bench.clock import Action, best_seconds, milliseconds, peak_mib
from detrame.experiments.bench.setting import Setting
from detrame.folding import fold
from detrame.inference import Predictor
from detrame.models import cost
from detrame.training import Recipe
from detrame.training.environment import describe


@dataclass(frozen=True)
class StepFigures:
    """A network with one activation.

    Attributes:
        iterations: of each Q-Metric ReLU.
        multiply_adds: of one image's forward pass, T convolutions for a Q-Metric ReLU.
        step_ms: one step, the batch's copy excluded: on a GPU one replay of the captured step.
        plain_ms: the same by the plain captured path, uncompiled and unfused, in turn with it.
        research_ms: a step of the literal equation in eager float32 with a DataLoader, data included.
        images_per_s: that `step_ms` makes.
        plain_speedup, research_speedup: times as fast as those two.
        tflops: 3 x 2 x multiply_adds x batch / step: forward, and twice that for backward, two operations each.
        ceiling_share: of the device's measured TFLOP/s.
        peak_mib: memory of the device at most, network and capture included; None on a CPU.
        test_s_per_image: of inference with what folds folded; on a GPU captured, in bfloat16, by batches of 1000.
    """

    iterations: int
    multiply_adds: int
    step_ms: float
    plain_ms: float
    research_ms: float
    images_per_s: float
    plain_speedup: float
    research_speedup: float
    tflops: float
    ceiling_share: float
    peak_mib: float | None
    test_s_per_image: float


@dataclass(frozen=True)
class Steps:
    """A network with both activations, measured in one run; ratios are Q-Metric over ReLU."""

    model: str
    batch: int
    relu: StepFigures
    qmetric: StepFigures
    ratio: float
    plain_ratio: float
    operations_ratio: float
    paper_ratio: float
    ceilings: Ceilings
    environment: dict[str, Any]

    def line(self) -> str:
        """The figures in a line."""
        return (
            f"ReLU {self.relu.step_ms:.3g} ms, Q-Metric {self.qmetric.step_ms:.3g} ms; "
            f"{self.relu.plain_speedup:.2f} and {self.qmetric.plain_speedup:.2f} times as fast as plain, "
            f"{self.relu.research_speedup:.1f} and {self.qmetric.research_speedup:.1f} as research code"
        )


def measure_steps(model: str, where: Setting) -> Steps:
    """Measure a network of the paper's time table, on random images."""
    recipes = [where.step_recipe(model, activation) for activation in paper.COMPARED]
    relu, qmetric = (_figures(recipe, where.random_images, where) for recipe in recipes)
    return Steps(
        model=model,
        batch=where.batch,
        relu=relu,
        qmetric=qmetric,
        ratio=qmetric.step_ms / relu.step_ms,
        plain_ratio=qmetric.plain_ms / relu.plain_ms,
        operations_ratio=qmetric.multiply_adds / relu.multiply_adds,
        paper_ratio=paper.time_ratio(model, "train"),
        ceilings=where.ceilings,
        environment=describe(where.random_images, where.device),
    )


def _figures(recipe: Recipe, dataset: Dataset, where: Setting) -> StepFigures:
    device, effort = where.torch_device, where.effort
    (model, fast), peak = peak_mib(lambda: ready(recipe, dataset, device, recipe.batch_size), device)
    _, plain = ready(recipe, dataset, device, recipe.batch_size, fused=False)
    times = milliseconds({"fast": fast, "plain": plain}, device, effort)
    research_ms = research.milliseconds(recipe, dataset, device, seconds=effort.research_s)
    multiply_adds = cost(recipe.build(dataset), (dataset.in_channels, *dataset.image_size)).multiply_adds
    tflops = 3 * 2 * multiply_adds * recipe.batch_size / times["fast"] / 1e9
    images, predict = dataset.test.images.to(device), Predictor(fold(model))
    return StepFigures(
        iterations=recipe.iterations,
        multiply_adds=multiply_adds,
        step_ms=times["fast"],
        plain_ms=times["plain"],
        research_ms=research_ms,
        images_per_s=1e3 * recipe.batch_size / times["fast"],
        plain_speedup=times["plain"] / times["fast"],
        research_speedup=research_ms / times["fast"],
        tflops=tflops,
        ceiling_share=tflops / where.ceilings.tflops,
        peak_mib=peak,
        test_s_per_image=best_seconds(lambda: predict(images), device) / len(images),
    )


def ready(
    recipe: Recipe, dataset: Dataset, device: torch.device, size: int, *, fused: bool = True
) -> tuple[nn.Module, Action]:
    """A fresh network of the recipe, and what takes one step of it on a batch of `size` that is there already.

    On a GPU that is the replay of the captured step. The first is taken already, so that no coupling is zero any more.
    """
    step = recipe.step(dataset, device, fused=fused)
    step.set_lr(recipe.lr)
    batch = dataset.train[torch.arange(size) % len(dataset.train)].to(device)
    images, labels = batch.images.float() / 255, batch.labels

    def take() -> None:
        # Through the step, which owns what a captured graph works on: it must live as long as the graph is replayed.
        if device.type == "cuda":
            step.graph(images, labels).replay()
        else:
            step(images, labels)

    take()
    return step.model, take
