"""The matched controls: their widths by counting, their rows, and the command that trains them."""

import json
from pathlib import Path
from typing import Any

import pytest
from torch import nn

from detrame import cli
from detrame.experiments import controls, default_recipe
from detrame.experiments.controls import WIDTHS, contenders, matched_width, network_cost
from detrame.experiments.results import Result, result_name, stored
from detrame.models import Cost, create_model
from detrame.training import Recipe, Scores
from tests.training import tiny


@pytest.mark.parametrize("field", Cost._fields)
def test_a_control_costs_what_the_q_metric_network_costs(field: str) -> None:
    groups = contenders("resnet20")
    relu, qmetric = groups[None]
    (control,) = groups[field]
    assert control == relu.replace(width=control.width)
    assert getattr(network_cost(control), field) == pytest.approx(getattr(network_cost(qmetric), field), rel=0.04)
    assert network_cost(qmetric).multiply_adds > 2.5 * network_cost(relu).multiply_adds  # T = 3 in every block


def test_controls_keep_even_numbers_of_channels() -> None:
    """As the units that multiply matrices need them: odd ones take half as long again."""
    for model in controls.MODELS:
        for field in Cost._fields:
            (control,) = contenders(model)[field]
            layers = create_model(model, activation="relu", width=control.width).modules()
            channels = {layer.out_channels for layer in layers if isinstance(layer, nn.Conv2d)}
            assert len(channels) > 2
            assert all(count % 2 == 0 for count in channels), (model, control.width, channels)


@pytest.mark.parametrize("target", [0, 300_000, 10**12])
def test_the_width_is_the_nearest_of_all(target: int) -> None:
    recipe = default_recipe("resnet8", "cifar10", activation="relu")
    found = matched_width(recipe, "parameters", target)

    def distance(width: float) -> int:
        return abs(network_cost(recipe.replace(width=width)).parameters - target)

    assert all(distance(found) <= distance(width) for width in WIDTHS)


def test_rows_are_made_of_full_length_runs_of_exactly_the_recipe() -> None:
    groups = contenders("resnet20")
    (control,) = groups["parameters"]
    found = [
        Result(recipe, {}, Scores(last, last, 1, None, 1, 1.0), [last])
        for recipe, last in [
            (groups[None][0], 92.0),
            (control, 93.0),
            (control.replace(seed=1), 94.0),
            (control.replace(epochs=10), 50.0),
            (control.replace(width=2.0), 50.0),
        ]
    ]
    rows = {(row.activation, row.matched): row for row in controls.rows(found) if row.model == "resnet20"}
    assert list(rows) == [("relu", None), ("qmetric", None), ("relu", "parameters"), ("relu", "multiply_adds")]
    assert [(row.mean, row.n) for row in rows.values()] == [(92.0, 1), (None, 0), (93.5, 2), (None, 0)]
    assert rows["relu", "parameters"].std == pytest.approx(0.5**0.5)


@pytest.fixture
def small_networks(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Controls of one network on digits that trains in a second."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(controls, "MODELS", ("plainnet3",))
    monkeypatch.setattr(controls, "WIDTHS", [0.05, 0.06, 0.08, 0.1, 0.12])

    def quick(model: str, dataset: str, *, epochs: int | None, **changes: Any) -> Recipe:
        return tiny(**changes, **({} if epochs is None else {"epochs": epochs}))

    monkeypatch.setattr(controls, "default_recipe", quick)


def test_the_command_takes_some_of_the_networks(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = ["reproduce", "controls", "--dry-run", "--results", str(tmp_path)]
    assert cli.run([*options, "--models", "resnet20"]) == 0
    out = capsys.readouterr().out
    assert "4 of 4 runs are missing" in out
    assert "plainnet9" not in out
    assert cli.run([*options, "--models", "resnet8"]) == 2
    assert "unknown network with controls 'resnet8': did you mean 'resnet20'?" in capsys.readouterr().err


@pytest.mark.slow
def test_the_command_trains_what_is_missing_and_shows_it(
    small_networks: None, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.run(["reproduce", "controls", "--dry-run"]) == 0
    assert "4 of 4 runs are missing" in capsys.readouterr().out
    assert cli.run(["reproduce", "controls", "--device", "cpu", "--epochs", "1"]) == 0
    out = capsys.readouterr().out
    names = {result_name(result.recipe) for result in stored(Path("results"))}
    assert len(names) == 4, "each control has a file of its own"
    assert all(f"{name}: " in out for name in names)
    assert "multiply-adds" in out
    assert cli.run(["reproduce", "controls", "--show", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == [], "shorter runs are left out"
    assert cli.run(["reproduce", "controls", "--device", "cpu", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert [row["n"] for row in rows] == [1] * 4
    assert {"parameters", "multiply_adds", "mean", "width", "matched"} <= set(rows[0])
