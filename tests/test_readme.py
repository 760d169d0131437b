"""What the README shows is true: its Python runs, its commands exist, its figures are those of the stored results."""

import json
import math
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from detrame import cli
from detrame.experiments import changes, default_recipe, timing
from detrame.experiments.accuracy import Row
from detrame.experiments.accuracy import rows as accuracy_rows
from detrame.experiments.paper import cells
from detrame.experiments.reproduction.claims import CLAIMS
from detrame.experiments.reproduction.evidence import Evidence, counting
from detrame.experiments.reproduction.matches import matches
from detrame.experiments.reproduction.verdicts import Count
from detrame.experiments.results import stored
from detrame.experiments.spread import Spread, plus_minus
from detrame.training.environment import sittings

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()


def blocks(language: str) -> list[str]:
    found = re.findall(r"^```(\w*)\n(.*?)^```$", README, flags=re.DOTALL | re.MULTILINE)
    return [content for name, content in found if name == language]


def test_the_python_examples_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {}
    for block in blocks("python"):
        exec(compile(block, "README.md", "exec"), names)
    assert "run" in names


def test_the_commands_exist(capsys: pytest.CaptureFixture[str]) -> None:
    lines = [line.split("#")[0] for block in blocks("") for line in block.splitlines()]
    commands = [shlex.split(line)[1:] for line in lines if line.startswith("detrame ")]
    assert len(commands) >= 6
    for command in commands:
        options = [word for word in command if word.startswith("--")]
        name = command[:2] if command[0] in ("data", "reproduce") else command[:1]
        assert cli.run([*name, "--help"]) == 0
        page = capsys.readouterr().out
        assert all(option in page for option in options), command


@pytest.mark.skipif(shutil.which("make") is None, reason="no make on this machine")
def test_make_refuses_an_old_python_before_it_makes_an_environment(tmp_path: Path) -> None:
    old = tmp_path / "python"
    old.write_text(
        "#!/bin/sh\n"
        f'[ "$1" = -c ] && exec {sys.executable} -c "import sys; sys.version_info = (3, 10, 12); $2"\n'
        "mkdir .venv; exit 1\n"
    )
    old.chmod(0o755)
    for name in ("Makefile", "pyproject.toml", "constraints.txt"):
        shutil.copy(ROOT / name, tmp_path)
    done = subprocess.run(["make", "demo", "PYTHON=./python"], cwd=tmp_path, capture_output=True, text=True)
    told = "DeTraMe needs Python 3.11 or newer, got 3.10: name another, as in make demo PYTHON=python3.11"
    assert told in done.stderr.splitlines()
    assert done.returncode != 0
    assert not (tmp_path / ".venv").exists()


def figure(mean: float | None, std: float | None) -> str:
    return plus_minus(mean, std).replace("\N{NO-BREAK SPACE}", " ")


def ours(row: Row) -> str:
    return figure(row.mean, row.std) + (f" (n = {row.n})" if row.n > 1 else "")


def table_lines() -> list[str]:
    """The README's rows: paper and ours for both activations, for every network and data set that has a result."""
    rows = {(row.dataset, row.model, row.activation): row for row in accuracy_rows(stored(ROOT / "results"), cells())}
    lines = []
    for dataset, model in dict.fromkeys((dataset, model) for dataset, model, _ in rows):
        relu, qmetric = rows[dataset, model, "relu"], rows[dataset, model, "qmetric"]
        if relu.n or qmetric.n:
            figures = [f"{figure(row.paper, row.paper_std)} | {ours(row)} | {row.verdict}" for row in (relu, qmetric)]
            lines.append(f"| {model} | {qmetric.iterations} | {' | '.join(figures)} |")
    return lines


@pytest.mark.parametrize("line", table_lines())
def test_the_table_is_that_of_the_stored_results(line: str) -> None:
    assert line in README


def test_every_commit_and_machine_of_the_table_is_named() -> None:
    places = [
        place
        for result in stored(ROOT / "results")
        if result.recipe.dataset != "digits"
        for place in sittings(result.environment)
    ]
    assert len({place["commit"] for place in places}) > 1
    for place in places:
        assert place["commit"][:7] in README
        assert place["hardware"] in README


def test_where_q_metric_gains_is_what_the_readme_says() -> None:
    evidence = Evidence.read(ROOT / "results")
    pairs = evidence.pairs(sorted({model for model, _, _ in evidence.rows}), "cifar10")
    gains = {pair.relu.model: pair.ours for pair in pairs}
    plain = {model for model in gains if model.startswith("plainnet")}
    assert {model for model, gain in gains.items() if gain.mean > 2 * gain.error} == plain | {"resnet8"}
    plain3 = evidence.cell("plainnet3", "cifar10")
    gained = f"On PlainNet 3 it gains {plain3.ours.mean:.1f} points, not the paper's {plain3.published.mean:.1f}"
    assert gained in " ".join(README.split())
    assert 0 < gains["resnet20"].mean < 0.2
    assert {model for model, gain in gains.items() if gain.mean < 0} == {"resnet56", "wideresnet16_4", "wideresnet16_8"}
    assert [model for model, gain in gains.items() if gain.mean < -2 * gain.error] == ["wideresnet16_8"]


def test_the_number_of_claims_is_that_of_the_page() -> None:
    assert f"with a verdict on {len(CLAIMS)} claims of the paper" in " ".join(README.split())


def test_what_q_metric_costs_is_what_the_readme_says() -> None:
    evidence = Evidence.read(ROOT / "results")
    counts = evidence.parameters
    sizes = [
        counts[m, "cifar10", "qmetric"] / counts[m, d, "relu"] for m, d, a in counts if (d, a) == ("cifar10", "relu")
    ]
    steps = [row.ratio for row in evidence.timing if row.ratio is not None]
    tests = [ratio for row in evidence.timing if (ratio := evidence.test_ratio(row.model)) is not None]
    assert len(sizes) == 10
    size, step, test = (f"{min(ratios):.1f} to {max(ratios):.1f}" for ratios in (sizes, steps, tests))
    text = " ".join(README.split())
    assert (
        f"has {size} times the parameters. On an H200 a training step takes {step} times as long, and inference {test}"
        in text
    )
    above, chance, below = Count.of(match.difference for match in matches(evidence, "cifar10") if not match.uncounted)
    assert f"beyond chance in {above} of {above + chance + below} comparisons and below in {below} " in text


def test_the_figures_of_the_demo_are_those_of_the_stored_runs() -> None:
    for activation, name in (("relu", "ReLU"), ("qmetric", "Q-Metric")):
        runs = [
            result
            for result in stored(ROOT / "results")
            if (result.recipe.dataset, result.recipe.activation) == ("digits", activation)
        ]
        assert {run.recipe.seed for run in runs} == {run.recipe.split_seed for run in runs} == set(range(5))
        assert {run.recipe.replace(seed=0, split_seed=0) for run in runs} == {
            default_recipe("plainnet3", "digits", activation=activation)
        }
        figure = Spread.of([run.scores.last for run in runs]).text(2).replace("\N{NO-BREAK SPACE}", " ")
        assert f"{name} {figure}" in " ".join(README.split())
        assert {run.environment["commit"][:7] for run in runs} == {"4e5dfde"}
        assert "AMD EPYC, commit 4e5dfde" in " ".join(README.split())


def test_the_speed_is_that_of_the_stored_benchmark() -> None:
    benchmark = json.loads((ROOT / "results" / "q_metric_relu.json").read_text())
    (case,) = [
        case
        for case in benchmark["cases"]
        if (case["shape"], case["iterations"]) == ([32, 96, 32, 32], 3)
        and case["backward"]
        and not case["channels_last"]
    ]
    page = " ".join((ROOT / "docs" / "speed.md").read_text().split())
    assert f"is {case['speed']:.2f} times as fast as the paper's equation" in page
    assert f"and keeps {case['memory']:.2f} of the memory for the backward pass" in page
    assert f"AMD EPYC at commit {benchmark['commit'][:7]}" in page


def test_the_step_times_are_those_of_the_stored_bench() -> None:
    row = next(
        row
        for row in timing.rows(ROOT / "results", ["plainnet9"], hardware="NVIDIA H200")
        if row.activation == "qmetric"
    )
    steps = json.loads((ROOT / "results/timing/nvidia-h200/batch128/steps/plainnet9.json").read_text())
    text = " ".join(README.split())
    assert row.train_s is not None
    assert f"PlainNet 9 with Q-Metric takes {row.step_ms:.2f} ms at batch {row.batch}" in text
    assert f"take about {row.train_s / 60:.0f} minutes. The paper's whole training took " in text
    assert f"training took {row.paper_train_s / 60:.0f} minutes on a V100" in text
    assert f"{steps['qmetric']['research_speedup']:.1f} times as fast as the equation in ordinary float32" in text
    assert f"and {steps['qmetric']['plain_speedup']:.1f} times as fast as a plain captured CUDA graph" in text
    assert f"commit {steps['environment']['commit'][:7]}" in text


def test_what_short_runs_of_changes_say() -> None:
    found = changes.rows(stored(ROOT / "results", table=changes.TABLE), "wideresnet16_4", "cifar10")
    assert len({row.change for row in found if row.n} - {changes.NONE}) == 6
    scores = {(row.change, row.activation): row.mean for row in found if row.mean is not None}
    beyond = {}
    for (change, activation), score in scores.items():
        before = scores[changes.NONE, activation]
        chance = 2 * math.hypot(counting(score, changes.HELD_OUT), counting(before, changes.HELD_OUT))
        if abs(score - before) > chance:
            beyond[change, activation] = f"{score - before:.2f}"
    assert beyond == {("half-the-learning-rate", "relu"): "-1.08"}
    said = "none raised a network beyond chance, and half the learning rate lowered ReLU by 1.08 points, just beyond it"
    assert f"we tried six changes in short runs of WideResNet 16-4: {said}" in " ".join(README.split())
