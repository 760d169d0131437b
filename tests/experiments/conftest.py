"""Small real runs, trained once a session; measurements so small that a CPU does them in a moment."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from detrame.experiments import default_recipe
from detrame.experiments.bench import accuracy, epochs, research, setting
from detrame.experiments.bench.ceilings import Ceilings
from detrame.experiments.bench.clock import Effort
from detrame.experiments.bench.steps import StepFigures, Steps
from detrame.training import Recipe, Run, train

RECIPE = Recipe("plainnet3", "digits", width=0.1, epochs=4, batch_size=128, lr=0.05, lr_milestones=(3,))


@pytest.fixture(scope="session")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[Run]]:
    """Two seeds of ReLU and of Q-Metric, and one run of Q-Metric with more iterations."""
    folder = tmp_path_factory.mktemp("runs")

    def group(name: str, seeds: int, recipe: Recipe) -> list[Run]:
        return [train(recipe.replace(seed=s, split_seed=s), folder / f"{name}{s}", device="cpu") for s in range(seeds)]

    return {
        "relu": group("relu", 2, RECIPE.replace(activation="relu")),
        "qmetric": group("qmetric", 2, RECIPE),
        "more": group("more", 1, RECIPE.replace(iterations=3, epochs=1)),
    }


@pytest.fixture(scope="session")
def page(runs: dict[str, list[Run]], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page of the normal case: ReLU against Q-Metric."""
    from detrame.experiments.report import write

    return write([*runs["qmetric"], *runs["relu"]], tmp_path_factory.mktemp("report") / "new" / "page.html")


TINY = Effort(groups=1, group_s=1e-3, research_s=0.0, images=64, test_images=8)


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> setting.Setting:
    """A setting in which everything is quick, and the command line's own likewise."""

    def narrow(model: str, dataset: str, **changes: Any) -> Recipe:
        return default_recipe(model, dataset, **({"width": 0.1} | changes))

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(setting, "default_recipe", narrow)
    monkeypatch.setattr(setting, "ON_CPU", TINY)
    monkeypatch.setattr(setting, "QUICK", TINY)
    monkeypatch.setattr(research, "WORKERS", 0)
    monkeypatch.setattr(research, "WARM_UPS", 1)
    monkeypatch.setattr(research, "AT_LEAST", 2)
    monkeypatch.setattr(epochs, "SEEDS", 2)
    for module in (epochs, accuracy):
        monkeypatch.setattr(module, "EPOCHS", 3)
    monkeypatch.setattr(accuracy, "SEEDS", 2)
    return replace(setting.setting_on("cpu"), batch=8)


def figures(step_ms: float = 1.0, **changes: Any) -> StepFigures:
    fields = {
        "iterations": 3,
        "multiply_adds": 10**7,
        "step_ms": step_ms,
        "plain_ms": 1.5 * step_ms,
        "research_ms": 8 * step_ms,
        "images_per_s": 1.28e5 / step_ms,
        "plain_speedup": 1.5,
        "research_speedup": 8.0,
        "tflops": 7.68 / step_ms,
        "ceiling_share": 0.01,
        "peak_mib": None,
        "test_s_per_image": 1e-6,
    }
    return StepFigures(**(fields | changes))


def measured(model: str = "resnet8", *, device: str = "cuda", hardware: str = "H200", batch: int = 128) -> Steps:
    environment = {"device": device, "hardware": hardware, "commit": "0123456789"}
    return Steps(model, batch, figures(1.0), figures(1.6), 1.6, 1.7, 2.7, 1.26, Ceilings(700.0, 4000.0), environment)
