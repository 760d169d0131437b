"""The figures of docs/speed.md are those of the stored measurements."""

import json
from pathlib import Path

import pytest

from detrame.experiments.bench import store
from detrame.experiments.bench.steps import Steps
from detrame.experiments.spread import Spread

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "speed.md").read_text()
FOLDER = ROOT / "results" / "timing" / "nvidia-h200" / "batch128"
STEPS = store.read_steps(FOLDER)


def line(steps: Steps) -> str:
    figures = [
        f"{one.step_ms:.2f} | {one.step_ms / one.plain_ms:.2f} | {one.research_speedup:.1f} | {one.ceiling_share:.0%}"
        for one in (steps.relu, steps.qmetric)
    ]
    ratios = [steps.ratio, steps.plain_ratio, steps.operations_ratio, steps.paper_ratio]
    return f"| {steps.model} | {' | '.join(figures)} | {' | '.join(f'{ratio:.2f}' for ratio in ratios)} |"


def other_line(model: str) -> str:
    """Whole epochs and seeds at once, as far as they are stored."""
    cells = []
    for what, field, form in (("epoch", "overhead", "{:+.1%}"), ("seeds", "share", "{:.2f}")):
        path = FOLDER / what / f"{model}.json"
        figures = json.loads(path.read_text()) if path.exists() else None
        cells += [form.format(figures[name][field]) if figures else "" for name in ("relu", "qmetric")]
    return f"| {model} | {' | '.join(cells)} |"


@pytest.mark.parametrize(
    "model", sorted({path.stem for what in ("epoch", "seeds") for path in (FOLDER / what).iterdir()})
)
def test_epochs_and_seeds_are_the_stored_ones(model: str) -> None:
    assert other_line(model) in PAGE


@pytest.mark.parametrize("what", ["epoch", "seeds", "accuracy"])
def test_the_page_names_the_commit_of_every_measurement(what: str) -> None:
    for path in (FOLDER / what).iterdir():
        assert json.loads(path.read_text())["environment"]["commit"][:7] in PAGE


def test_the_accuracies_and_throughputs_in_words_are_the_stored_ones() -> None:
    found = json.loads((FOLDER / "accuracy" / "plainnet9.json").read_text())
    words = " ".join(PAGE.split())
    for scores in (found["ours"], found["float32"]):
        assert " ".join(Spread.of(scores).text(2).split()) in words
    assert found["unharmed"]
    assert f"{found['difference']:.2f} points apart, ours ahead, where {found['allowed']:.2f} are allowed" in words
    assert " ".join(f"disagree about {Spread.of(found['disagreement']).text(1)}% of".split()) in words
    seeds = {path.stem: json.loads(path.read_text()) for path in (FOLDER / "seeds").iterdir()}
    speedups = {name: [one[a]["research_speedup"] for a in ("relu", "qmetric")] for name, one in seeds.items()}
    residual = [*speedups["resnet8"], *speedups["resnet20"]]
    assert f"{min(residual):.0f} to {max(residual):.0f} times as many images a second" in words
    relu, qmetric = speedups["plainnet3"]
    assert f"with Q-Metric {qmetric:.1f} times research code, not 10 ({relu:.1f} with ReLU)" in words
    relu, qmetric = [seeds["plainnet3"][activation]["one_batch_share"] for activation in ("relu", "qmetric")]
    assert f"still take {relu:.2f} (ReLU) and {qmetric:.2f} (Q-Metric) of five steps" in words


@pytest.mark.parametrize("steps", STEPS, ids=lambda steps: steps.model)
def test_the_page_s_figures_are_those_of_the_stored_steps(steps: Steps) -> None:
    assert line(steps) in PAGE
    assert steps.environment["commit"][:7] in PAGE
    assert steps.environment["hardware"] in PAGE
