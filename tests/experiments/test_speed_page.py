"""The figures of docs/speed.md are those of the stored measurements."""

import json
from pathlib import Path

import pytest

from detrame.experiments.bench import store
from detrame.experiments.bench.accuracy import MARGIN
from detrame.experiments.bench.steps import Steps
from detrame.experiments.spread import Spread

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "speed.md").read_text()
FOLDER = ROOT / "results" / "timing" / "nvidia-h200" / "batch128"
STEPS = store.read_steps(FOLDER)


def lines(steps: Steps) -> list[str]:
    """The network's in the table of steps, a column for ReLU and one for Q-Metric each, and in that of ratios."""
    both = (steps.relu, steps.qmetric)
    cells = [
        *(f"{one.step_ms:.2f}" for one in both),
        *(f"{one.step_ms / one.plain_ms:.2f}" for one in both),
        *(f"{one.research_speedup:.1f}" for one in both),
        *(f"{one.ceiling_share:.0%}" for one in both),
    ]
    ratios = [f"{r:.2f}" for r in (steps.ratio, steps.plain_ratio, steps.operations_ratio, steps.paper_ratio)]
    return [f"| {' | '.join([steps.model, *figures])} |" for figures in (cells, ratios)]


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
    for training, scores in (("bfloat16", found["ours"]), ("float32 with TF32", found["float32"])):
        assert f"{training} | {' '.join(Spread.of(scores).text(2).split())} |" in words
    assert found["unharmed"]
    limit = f"the limit is {found['allowed']:.2f} points"
    assert f"{found['difference']:.2f} points apart, with ours ahead; {limit}" in words
    loss = found["allowed"] - MARGIN - found["difference"]
    assert f"A loss of {loss:.2f} points would still be within the two standard errors" in words
    assert " ".join(f"disagree about {Spread.of(found['disagreement']).text(1)}% of".split()) in words
    seeds = {path.stem: json.loads(path.read_text()) for path in (FOLDER / "seeds").iterdir()}
    speedups = {name: [one[a]["research_speedup"] for a in ("relu", "qmetric")] for name, one in seeds.items()}
    residual = [*speedups["resnet8"], *speedups["resnet20"]]
    assert f"{min(residual):.0f} to {max(residual):.0f} times as many images a second" in words
    relu, qmetric = speedups["plainnet3"]
    assert f"With Q-Metric it is {qmetric:.1f} times as fast as research code, not 10 ({relu:.1f} with ReLU)" in words
    relu, qmetric = [seeds["plainnet3"][activation] for activation in ("relu", "qmetric")]
    shares = f"{relu['one_batch_share']:.2f} (ReLU) and {qmetric['one_batch_share']:.2f} (Q-Metric) of the time of five"
    as_one_batch = qmetric["research_speedup"] * qmetric["share"] / qmetric["one_batch_share"]
    assert f"still takes {shares} steps; with Q-Metric that is {as_one_batch:.1f} times research code" in words
    (steps,) = [steps for steps in STEPS if steps.model == "plainnet3"]
    half = steps.qmetric.ceiling_share * qmetric["images_per_s"] / steps.qmetric.images_per_s * qmetric["share"] / 0.5
    best = max(one.ceiling_share for steps in STEPS for one in (steps.relu, steps.qmetric))
    assert (
        f"a half would need {half:.0%} of the ceiling; WideResNet 16-8, with up to 512 channels, reaches {best:.0%}"
        in words
    )


@pytest.mark.parametrize("steps", STEPS, ids=lambda steps: steps.model)
def test_the_page_s_figures_are_those_of_the_stored_steps(steps: Steps) -> None:
    assert all(f"\n{line}\n" in PAGE for line in lines(steps))
    assert steps.environment["commit"][:7] in PAGE
    assert steps.environment["hardware"] in PAGE
