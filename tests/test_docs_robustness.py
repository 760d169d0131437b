"""What docs/robustness.md shows is true: its Python runs, its commands exist, its figures are the stored ones."""

import json
import re
import shlex
from pathlib import Path

import pytest

from detrame import cli
from detrame.experiments.robustness.stored import read
from detrame.experiments.robustness.tables import rows
from detrame.experiments.spread import Spread

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "robustness.md").read_text()
NETWORK = "wideresnet16_8-relu.json"
BENCHMARK = json.loads((ROOT / "results" / "universal_art.json").read_text())


def blocks(language: str) -> list[str]:
    found = re.findall(r"^```(\w*)\n(.*?)^```$", PAGE, flags=re.DOTALL | re.MULTILINE)
    return [content for name, content in found if name == language]


def test_the_python_example_runs() -> None:
    names: dict[str, object] = {}
    for block in blocks("python"):
        exec(compile(block, "robustness.md", "exec"), names)
    assert "changed" in names


def test_the_commands_exist(capsys: pytest.CaptureFixture[str]) -> None:
    lines = [line.split("#")[0] for block in blocks("") for line in block.splitlines()]
    commands = [shlex.split(line)[1:] for line in lines if line.startswith("detrame ")]
    assert len(commands) >= 6
    for command in commands:
        name = command[:2] if command[0] == "reproduce" else command[:1]
        assert cli.run([*name, "--help"]) == 0
        text = capsys.readouterr().out
        assert all(option in text for option in command if option.startswith("--")), command


def test_the_figures_are_those_of_the_stored_benchmark() -> None:
    forms = BENCHMARK["forms"]
    mean = {name: Spread.of(form["seconds"]).mean for name, form in forms.items()}
    for name, form in forms.items():
        rate = Spread.of(form["fooling"]).text(2).replace("\N{NO-BREAK SPACE}", " ")
        assert f"| {name} | {rate} | {mean[name]:.2f} | {mean['art'] / mean[name]:.1f} |" in PAGE
    assert {len(form["fooling"]) for form in forms.values()} == {10}


def test_the_sequential_form_agrees_with_art_and_the_batched_one_is_far_faster() -> None:
    assert abs(BENCHMARK["gap"]) <= BENCHMARK["gap_allowed"]
    assert BENCHMARK["speed"] >= 20


def test_the_seconds_of_crafting_are_the_stored_ones() -> None:
    words = " ".join(PAGE.split())
    found = {
        attack: json.loads((ROOT / f"results/robustness/{attack}/cifar10/{NETWORK}").read_text())
        for attack in ("uap", "uap-gradient")
    }
    deepfool, gradient = (f"{one['seconds']:.0f} s" for one in found.values())
    assert f"took {deepfool} with DeepFool inside and {gradient} by the gradient" in words
    for one in found.values():
        assert one["environment"]["commit"][:7] in words
        assert len(one["figures"]) == 40
        assert one["settings"]["crafting"] == one["settings"]["images"] == 10_000
    rates = {
        name: {
            row.unit: row.mean
            for row in rows([read(ROOT / f"results/robustness/{name}/cifar10/{NETWORK}")])
            if row.radius == 0.05
        }
        for name in found
    }
    assert f"about {rates['uap']['normalised']:.2f} % of the test images" in words
    assert f"and {rates['uap']['pixels']:.2f} % at the larger one" in words
    assert f"{rates['uap-gradient']['normalised']:.2f} and {rates['uap-gradient']['pixels']:.2f} %" in words
