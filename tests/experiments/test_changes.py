"""Short runs with one thing changed: which they are, and the command that trains and shows them."""

import json
from pathlib import Path
from typing import Any

import pytest

from detrame import cli
from detrame.experiments import changes, default_recipe
from detrame.experiments.paper import COMPARED
from detrame.experiments.results import record, result_name, stored
from detrame.training import Recipe, train
from tests.training import tiny


def test_each_change_is_one_and_has_a_name_of_its_own() -> None:
    wanted = changes.recipes("wideresnet16_8", "cifar10")
    assert [len(pair) for pair in wanted.values()] == [2, 2, 2, 2, 2, 1, 1]
    everything = [recipe for pair in wanted.values() for recipe in pair]
    assert len({result_name(recipe) for recipe in everything}) == len(everything)
    for recipe in everything:
        usual = default_recipe("wideresnet16_8", "cifar10", activation=recipe.activation, epochs=30, validation=5000)
        assert sum(a != b for a, b in zip(vars(recipe).values(), vars(usual).values(), strict=True)) <= 1
    name = "cifar10/wideresnet16_8-qmetric-nesterovTrue-validation5000-30epochs-seed0"
    assert result_name(wanted["nesterov"][1]) == name
    short = changes.recipes("wideresnet16_8", "cifar10", epochs=200)["nesterov"]
    final = changes.final_recipes("wideresnet16_8", "cifar10", "nesterov")
    assert len({result_name(recipe) for recipe in [*short, *final]}) == 4, "one would take the other's place"


def test_the_command_trains_what_is_missing_and_shows_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def quick(model: str, dataset: str, **fields: Any) -> Recipe:
        return tiny(**(fields | ({"validation": 50} if "validation" in fields else {})))

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(changes, "default_recipe", quick)
    options = ["--epochs", "1", "--device", "cpu"]
    assert cli.run(["reproduce", "changes", "--dry-run", *options]) == 0
    assert "12 of 12 runs are missing" in capsys.readouterr().out
    assert cli.run(["reproduce", "changes", *options]) == 0
    captured = capsys.readouterr()
    assert "half the learning rate" in captured.out
    assert "of the held-out images" in captured.out
    assert "held-out accuracy" in captured.err
    assert "test" not in captured.out + captured.err, "nobody is to be led by the test images"
    assert len(stored(Path("results"), table="changes")) == 12
    assert cli.run(["reproduce", "changes", "--show", "--epochs", "1", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert [row["n"] for row in rows] == [1] * 12
    scores = {result.scores.validation for result in stored(Path("results"), table="changes")}
    assert {row["mean"] for row in rows} == scores
    assert cli.run(["reproduce", "changes", "--show", "--epochs", "2"]) == 1
    assert "nothing is stored yet for these runs" in capsys.readouterr().err
    assert cli.run(["reproduce", "changes", "--epochs", "0"]) == 2
    assert "epochs must be at least 1, got 0" in capsys.readouterr().err
    assert cli.run(["reproduce", "changes", "--models", "resnet9"]) == 2
    assert "unknown model of the paper 'resnet9'" in capsys.readouterr().err


def test_what_was_chosen_meets_the_test_images_beside_the_unchanged(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(changes, "default_recipe", lambda model, dataset, **fields: tiny(**fields))
    unchanged = [record(train(tiny(activation=a), tmp_path / a, device="cpu"), Path("results")) for a in COMPARED]
    assert len(unchanged) == 2
    assert cli.run(["reproduce", "changes", "--show"]) == 1, "without a change there is nothing to show"
    capsys.readouterr()
    assert cli.run(["reproduce", "changes", "--final", "nesterov", "--device", "cpu"]) == 0
    out = capsys.readouterr().out
    assert "scored on test images" in out
    assert "held-out" not in out, "no table of what has not run"
    assert cli.run(["reproduce", "changes", "--show", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert [(row["change"], row["activation"], row["scored_on"]) for row in rows] == [
        (change, activation, "test images") for change in ("none", "nesterov") for activation in COMPARED
    ]
    found = stored(Path("results"), table="changes")
    assert {(result.recipe.nesterov, result.recipe.validation) for result in found} == {(True, 0)}
    assert {row["mean"] for row in rows[2:]} == {result.scores.last for result in found}
    assert {row["mean"] for row in rows[:2]} == {result.scores.last for result in stored(Path("results"))}
    for wrong, complaint in (
        (["--final", "nesterof"], "unknown change 'nesterof': did you mean 'nesterov'"),
        (["--final", "none"], "unknown change 'none'"),
        (["--final", "nesterov", "--show"], "leave --final out"),
    ):
        assert cli.run(["reproduce", "changes", *wrong]) == 2
        assert complaint in capsys.readouterr().err


def test_a_change_never_takes_the_place_of_the_unchanged_run() -> None:
    usual = default_recipe("wideresnet16_4", "cifar10")
    (relu, qmetric) = changes.final_recipes("wideresnet16_4", "cifar10", "mirrored-borders")
    assert (relu.activation, qmetric) == ("relu", usual.replace(reflect=True))
    assert result_name(usual) == "cifar10/wideresnet16_4-qmetric-200epochs-seed0"
    assert result_name(qmetric) == "cifar10/wideresnet16_4-qmetric-reflectTrue-200epochs-seed0"
