"""The figures of docs/speed.md are those of the stored measurements."""

import json
import math
from pathlib import Path

import pytest

from detrame.experiments.bench import plots, store
from detrame.experiments.bench.accuracy import MARGIN
from detrame.experiments.bench.steps import StepFigures, Steps
from detrame.experiments.spread import Spread

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "speed.md").read_text()
WORDS = " ".join(PAGE.split())
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
    of_plain = steps.ratio / steps.plain_ratio
    ratios = [steps.ratio, steps.plain_ratio, of_plain, steps.operations_ratio, steps.paper_ratio]
    told = [f"{ratio:.2f}" for ratio in ratios]
    return [f"| {' | '.join([steps.model, *figures])} |" for figures in (cells, told)]


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
    for training, scores in (("bfloat16", found["ours"]), ("float32 with TF32", found["float32"])):
        assert f"{training} | {' '.join(Spread.of(scores).text(2).split())} |" in WORDS
    assert found["unharmed"]
    limit = f"the limit is {found['allowed']:.2f} points"
    assert f"{found['difference']:.2f} points apart, with ours ahead; {limit}" in WORDS
    loss = found["allowed"] - MARGIN - found["difference"]
    assert f"A loss of {loss:.2f} points would still be within the two standard errors" in WORDS
    assert " ".join(f"disagree about {Spread.of(found['disagreement']).text(1)}% of".split()) in WORDS
    seeds = {path.stem: json.loads(path.read_text()) for path in (FOLDER / "seeds").iterdir()}
    speedups = {name: [one[a]["research_speedup"] for a in ("relu", "qmetric")] for name, one in seeds.items()}
    residual = [*speedups["resnet8"], *speedups["resnet20"]]
    assert f"{min(residual):.0f} to {max(residual):.0f} times as many images a second" in WORDS
    relu, qmetric = speedups["plainnet3"]
    assert f"With Q-Metric it is {qmetric:.1f} times as fast as research code, not 10 ({relu:.1f} with ReLU)" in WORDS
    relu, qmetric = [seeds["plainnet3"][activation] for activation in ("relu", "qmetric")]
    shares = f"{relu['one_batch_share']:.2f} (ReLU) and {qmetric['one_batch_share']:.2f} (Q-Metric) of the time of five"
    as_one_batch = qmetric["research_speedup"] * qmetric["share"] / qmetric["one_batch_share"]
    assert f"still takes {shares} steps; with Q-Metric that is {as_one_batch:.1f} times research code" in WORDS
    (steps,) = [steps for steps in STEPS if steps.model == "plainnet3"]
    half = steps.qmetric.ceiling_share * qmetric["images_per_s"] / steps.qmetric.images_per_s * qmetric["share"] / 0.5
    best = max(one.ceiling_share for steps in STEPS for one in (steps.relu, steps.qmetric))
    assert (
        f"a half would need {half:.0%} of the ceiling; WideResNet 16-8, with up to 512 channels, reaches {best:.0%}"
        in WORDS
    )


@pytest.mark.parametrize("steps", STEPS, ids=lambda steps: steps.model)
def test_the_page_s_figures_are_those_of_the_stored_steps(steps: Steps) -> None:
    assert all(f"\n{line}\n" in PAGE for line in lines(steps))
    assert steps.environment["commit"][:7] in PAGE
    assert steps.environment["hardware"] in PAGE


BY_MODEL = {steps.model: steps for steps in STEPS}


def saved(figures: StepFigures) -> float:
    return 1 - figures.step_ms / figures.plain_ms


def test_what_is_drawn_from_the_steps_in_words_is_true() -> None:
    shares = {steps.model: max(1 - saved(one) for one in (steps.relu, steps.qmetric)) for steps in STEPS}
    residual = max(share for model, share in shares.items() if model.startswith("resnet"))
    most = f"Every network takes at most {max(shares.values()):.2f} of the plain path's time"
    assert f"{most}, and the ResNets at most {residual:.2f}" in WORDS
    assert all(steps.ratio < steps.operations_ratio for steps in STEPS)
    assert [steps.model for steps in STEPS if steps.ratio < steps.paper_ratio] == ["resnet110"]


def test_what_falls_short_of_the_aims_is_what_does() -> None:
    missed = {steps.model: steps.ratio / steps.plain_ratio / 0.85 - 1 for steps in STEPS}
    by = {model: next(bound for bound in (0, 0.01, 0.04, math.inf) if miss <= bound) for model, miss in missed.items()}
    assert [model for model, bound in by.items() if bound == 0] == ["plainnet12", "resnet20", "resnet56"]
    assert [model for model, bound in by.items() if bound == 0.01] == ["plainnet9", "resnet8", "resnet110"]
    assert [model for model, bound in by.items() if bound == 0.04] == ["plainnet6"]
    wide, plain3 = BY_MODEL["wideresnet16_8"], BY_MODEL["plainnet3"]
    needed = 1 - 0.85 * (1 - saved(wide.relu))
    assert (
        f"saves {saved(wide.qmetric):.0%} and {saved(wide.relu):.0%}, where {needed:.0%} and {saved(wide.relu):.0%}"
        in WORDS
    )
    assert f"On PlainNet 3 it saves {saved(plain3.qmetric):.0%} and {saved(plain3.relu):.0%}" in WORDS
    assert f"which fusion saves ({plain3.relu.ceiling_share:.0%} of the ceiling)" in WORDS
    assert f"speeds up less ({plain3.qmetric.ceiling_share:.0%})" in WORDS
    relu, qmetric = wide.relu, wide.qmetric
    assert f"It takes {1 - saved(relu):.2f} with ReLU and {1 - saved(qmetric):.2f} with Q-Metric" in WORDS
    floors = [one.ceiling_share * one.step_ms for one in (relu, qmetric)]
    aims = [floor / (0.6 * one.plain_ms) for floor, one in zip(floors, (relu, qmetric), strict=True)]
    assert f"is {aims[0]:.0%} and {aims[1]:.0%} of the ceiling" in WORDS
    assert f"it reaches {relu.ceiling_share:.0%} and {qmetric.ceiling_share:.0%}" in WORDS
    assert f"would take {floors[0]:.2f} and {floors[1]:.2f} ms" in WORDS
    assert f"takes {1 - saved(BY_MODEL['plainnet9'].qmetric):.2f}.)" in WORDS


def test_on_a_cpu_the_other_shapes_gain_what_is_stored() -> None:
    cases = json.loads((ROOT / "results" / "q_metric_relu.json").read_text())["cases"]
    gains = [case["speed"] - 1 for case in cases]
    assert f"gain between {min(gains):.0%} and {max(gains):.0%}." in WORDS


@pytest.mark.parametrize("name", ["steps.svg", "ratios.svg"])
def test_the_plots_are_those_of_the_stored_steps(name: str, tmp_path: Path) -> None:
    plots.write(STEPS, tmp_path)
    assert (tmp_path / name).read_text() == (FOLDER / name).read_text()
