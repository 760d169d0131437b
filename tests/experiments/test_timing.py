"""The paper's time table from what is stored."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from detrame import cli
from detrame.experiments import bench, default_recipe, paper, results, timing
from detrame.experiments.bench import store
from detrame.experiments.bench.setting import Setting
from detrame.experiments.results import Result
from detrame.training import Scores
from tests.experiments.conftest import measured

# As issue 4 has them, what the whole training's time is based on, and the commit that was measured.
FIELDS = [
    *("model", "activation", "iterations", "step_ms", "plain_ms", "ratio", "paper_ratio", "operations_ratio"),
    *("tflops", "hardware", "train_s", "paper_train_s", "test_s_per_image", "paper_test_s_per_image", "batch"),
    *("train_basis", "commit"),
]


def keep(folder: Path, *networks: bench.Steps) -> None:
    for one in networks:
        store.write("steps", one, store.folder(folder, one.environment["hardware"], one.batch))


def row(folder: Path, model: str = "resnet8", activation: str = "qmetric") -> timing.Row:
    (found,) = [row for row in timing.rows(folder) if (row.model, row.activation) == (model, activation)]
    return found


def test_without_a_measurement_there_is_the_paper(tmp_path: Path) -> None:
    table = timing.rows(tmp_path)
    assert len(table) == 2 * len(paper.tables()["time"]) == 20
    assert all(list(vars(row)) == FIELDS for row in table)
    ratios = [row.paper_ratio for row in table]
    assert (round(min(ratios), 2), round(max(ratios), 2)) == (1.26, 1.97)
    first = table[0]
    assert (first.iterations, first.paper_train_s, first.paper_test_s_per_image) == (5, 2964.45, 1.93e-4)
    ours = [first.step_ms, first.ratio, first.operations_ratio, first.hardware, first.train_s, first.batch]
    assert ours == [None] * len(ours)


def test_a_measured_network(tmp_path: Path) -> None:
    keep(tmp_path, measured())
    relu, qmetric = row(tmp_path, activation="relu"), row(tmp_path)
    assert (relu.step_ms, qmetric.step_ms) == (1.0, 1.6)
    assert qmetric.plain_ms == pytest.approx(2.4)
    assert relu.ratio == qmetric.ratio == 1.6
    assert (qmetric.operations_ratio, qmetric.hardware, qmetric.batch) == (2.7, "H200", 128)
    assert qmetric.train_s == pytest.approx(1.6e-3 * 391 * 200)
    assert qmetric.train_basis == "the time of a step x 391 steps x 200 epochs"
    assert row(tmp_path, "plainnet3").step_ms is None


def test_a_run_takes_as_long_as_its_steps_and_tests(tmp_path: Path) -> None:
    recipe = default_recipe("resnet8", "svhn", activation="relu")
    assert timing.by_steps(recipe, tmp_path) is None
    steps = measured()
    keep(tmp_path, replace(steps, qmetric=replace(steps.qmetric, test_s_per_image=3e-6)))
    expected = timing.by_steps(recipe, tmp_path)
    assert expected is not None
    tests = 1e-6 * 26_032 * 160
    assert (round(expected[0], 6), expected[1]) == (round(1e-3 * 573 * 160 + tests, 6), "H200")
    assert timing.by_steps(recipe.replace(iterations=9), tmp_path) == expected
    twice = recipe.replace(activation="qmetric", iterations=2 * steps.qmetric.iterations)
    more = timing.by_steps(twice, tmp_path)
    assert more is not None
    assert round(more[0], 6) == round(2.2e-3 * 573 * 160 + 5 * tests, 6)
    fewer = timing.by_steps(recipe.replace(validation=5000), tmp_path)
    assert fewer is not None
    assert round(fewer[0], 6) == round(1e-3 * 534 * 160 + 1e-6 * 31_032 * 160, 6)
    wider = timing.by_steps(recipe.replace(width=1.5), tmp_path)
    assert wider is not None
    assert 2.2 < wider[0] / expected[0] < 2.25, "as the multiply-adds, but for the first and the last layer's"
    for other in (
        {"width": 0.5},
        {"batch_size": 64},
        {"activation": "lista"},
        {"dataset": "digits"},
        {"model": "resnet20"},
    ):
        assert timing.by_steps(recipe.replace(**other), tmp_path) is None


def test_a_dry_run_tells_the_time_by_steps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    keep(Path("results"), measured())
    arguments = ["reproduce", "accuracy", "--dataset", "cifar10", "--models", "resnet8,resnet20", "--dry-run"]
    assert cli.run(arguments) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "cifar10/resnet8-relu-200epochs-seed0: about 1.3 minutes on H200"
    assert lines[2] == "cifar10/resnet20-relu-200epochs-seed0: no time is known"
    assert lines[-1].endswith(" one after another, without 2 of which no time is known")
    assert cli.run([*arguments, "--json"]) == 0
    listed = json.loads(capsys.readouterr().out)
    assert listed[0]["expected_seconds"] == pytest.approx(1e-3 * 391 * 200 + 1e-6 * 10_000 * 200)
    assert [run["hardware"] for run in listed] == ["H200", "H200", None, None]


def test_a_gpu_goes_before_a_cpu_and_the_paper_s_batch_before_another(tmp_path: Path) -> None:
    on_cpu = [measured(model, device="cpu", hardware="a CPU") for model in ("resnet8", "resnet20")]
    keep(tmp_path, *on_cpu)
    assert row(tmp_path).hardware == "a CPU"
    keep(tmp_path, measured(batch=512), measured("plainnet3", batch=512))
    assert (row(tmp_path).hardware, row(tmp_path).batch) == ("H200", 512)
    keep(tmp_path, measured())
    assert row(tmp_path).batch == 128
    assert {row.hardware for row in timing.rows(tmp_path, hardware="a CPU")} == {"a CPU", None}


def test_a_run_that_had_the_device_to_itself_tells_its_own_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recipe = default_recipe("resnet8", "cifar10")
    alone = Result(recipe, {"hardware": "H200"}, Scores(89.0, 89.0, 1, None, 1, 120.0), [89.0])
    runs = [
        alone,
        replace(alone, recipe=recipe.replace(seed=1), scores=replace(alone.scores, seconds=130.0)),
        replace(alone, scores=replace(alone.scores, together=6, seconds=900.0)),
        replace(alone, environment={"hardware": "V100"}),
        replace(alone, recipe=recipe.replace(epochs=20)),
        replace(alone, recipe=recipe.replace(activation="relu")),
    ]
    keep(tmp_path, measured())
    monkeypatch.setattr(timing, "stored", lambda folder: runs)
    assert row(tmp_path).train_s == 125.0
    assert row(tmp_path).train_basis == "the mean of whole runs alone on the device (2)"
    assert results.stored(tmp_path) == []


def test_show_prints_what_is_stored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("results").mkdir()
    assert cli.run(["reproduce", "timing", "--show"]) == 0
    assert "nothing measured yet" in capsys.readouterr().out
    keep(Path("results"), measured())
    assert cli.run(["reproduce", "timing", "--show"]) == 0
    out = capsys.readouterr().out
    assert "ours: H200 at commit 0123456, batch 128" in out
    assert "Each of our training times is the time of a step x 391 steps x 200 epochs." in out
    assert "resnet8 qmetric T=3" in out
    assert cli.run(["reproduce", "timing", "--show", "--json", "--models", "resnet8"]) == 0
    table = json.loads(capsys.readouterr().out)
    assert [(row["activation"], row["step_ms"]) for row in table] == [("relu", 1.0), ("qmetric", 1.6)]
    assert list(table[0]) == FIELDS


def test_what_is_missing_here_is_measured_once(small: Setting, capsys: pytest.CaptureFixture[str]) -> None:
    keep(Path("results"), measured())  # elsewhere
    arguments = ["reproduce", "timing", "--models", "resnet8", "--device", "cpu"]
    assert cli.run([*arguments, "--dry-run"]) == 0
    assert capsys.readouterr().out == f"resnet8\nnetworks whose steps are missing on {small.hardware}: 1\n"
    assert cli.run(arguments) == 0
    captured = capsys.readouterr()
    assert f"ours: {small.hardware} at commit" in captured.out
    assert ", batch 32; the paper's" in captured.out
    assert "s  resnet8: ReLU" in captured.err
    assert cli.run(arguments) == 0
    again = capsys.readouterr()
    assert again.out == captured.out
    assert again.err.endswith("nothing is missing\n")
    assert cli.run([*arguments, "--json"]) == 0
    quiet = capsys.readouterr()
    assert {row["hardware"] for row in json.loads(quiet.out)} == {small.hardware}
    assert quiet.err == ""
    assert cli.run(["reproduce", "timing", "--show", "--json"]) == 0
    assert {row["hardware"] for row in json.loads(capsys.readouterr().out)} == {"H200", None}, "the best there is"
    assert cli.run(["reproduce", "timing", "--show", "--device", "cpu", "--json"]) == 0
    assert {row["hardware"] for row in json.loads(capsys.readouterr().out)} == {small.hardware, None}
    two = ["reproduce", "timing", "--models", "resnet8,plainnet3", "--device", "cpu", "--dry-run", "--json"]
    assert cli.run(two) == 0
    assert json.loads(capsys.readouterr().out) == [{"model": "plainnet3", "hardware": small.hardware}]


def test_a_budget_is_kept_to_the_next_network(
    small: Setting, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    taken = bench.Measurement(lambda model, where: measured(model, hardware=where.hardware))
    monkeypatch.setitem(bench.MEASUREMENTS, "steps", taken)
    arguments = ["reproduce", "timing", "--models", "resnet8,plainnet3", "--device", "cpu", "--budget", "1e-9"]
    assert cli.run(arguments) == 0
    assert capsys.readouterr().err.endswith("minutes: run the same command again to continue; left: plainnet3\n")
    assert cli.run([*arguments, "--dry-run"]) == 0
    assert capsys.readouterr().out == f"plainnet3\nnetworks whose steps are missing on {small.hardware}: 1\n"


def test_an_unknown_network(small: Setting, capsys: pytest.CaptureFixture[str]) -> None:
    for show in (["--show"], []):
        assert cli.run(["reproduce", "timing", "--models", "resnet9", *show]) == 2
        assert "unknown model of the paper 'resnet9'" in capsys.readouterr().err
