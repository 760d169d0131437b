import json
import math
import re
import shutil
import signal
from collections.abc import Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any, NoReturn

import pytest
import torch
from torch import Tensor

from detrame import cli
from detrame.errors import Failure
from detrame.experiments import accuracy, default_recipe, lacking, paper
from detrame.experiments.accuracy import Row, long_beside_short, recipes
from detrame.experiments.accuracy import rows as accuracy_rows
from detrame.experiments.lacking import groups, missing, run_missing
from detrame.experiments.outlook import expected_time
from detrame.experiments.paper import cells
from detrame.experiments.results import Result, reading, record, result_name, stored
from detrame.training import Epoch, Recipe, Run, Scores, load, plan, resume, train
from detrame.training.step import Step
from tests.training import tiny

CELL = [("plainnet9", "cifar10")]


def result(recipe: Recipe, last: float, seconds: float = 100.0) -> Result:
    return Result(recipe, {"hardware": "here"}, Scores(last, last, 1, None, 1_370_996, seconds), [last])


def test_every_cell_of_the_paper() -> None:
    assert len(cells()) == 29
    assert cells("svhn")[0] == ("plainnet3", "svhn")
    assert cells(models=["resnet110"]) == [("resnet110", "cifar10"), ("resnet110", "cifar100")]
    assert cells("svhn", ["resnet8", "plainnet3"]) == [("resnet8", "svhn"), ("plainnet3", "svhn")]
    trained = [model for model, _ in long_beside_short(cells("svhn"))]  # ResNet 110 is not among them
    assert trained[:4] == ["wideresnet16_8", "resnet8", "resnet56", "resnet20"]
    assert sorted(trained) == sorted(model for model, _ in cells("svhn"))
    assert long_beside_short(CELL) == CELL
    with pytest.raises(ValueError, match="unknown data set of the paper 'digits'"):
        cells("digits")
    with pytest.raises(ValueError, match="did you mean 'resnet110'"):
        cells(models=["resnet111"])


def test_the_runs_of_a_cell_follow_the_paper_s_recipe() -> None:
    runs = recipes(CELL, [0, 1])
    assert [(r.activation, r.seed, r.epochs, r.iterations) for r in runs] == [
        ("relu", 0, 200, 2),
        ("qmetric", 0, 200, 2),
        ("relu", 1, 200, 2),
        ("qmetric", 1, 200, 2),
    ]
    assert recipes(CELL, [0], epochs=20)[0].lr_milestones == (6, 12, 16)


@pytest.mark.parametrize("epochs", [1, 2, 3, 4, 5])
@pytest.mark.parametrize("dataset", ["cifar10", "svhn", "digits"])
def test_the_shortest_runs_have_a_recipe(dataset: str, epochs: int) -> None:
    recipe = default_recipe("plainnet3", dataset, epochs=epochs)
    assert recipe.epochs == epochs
    assert all(1 <= milestone <= epochs for milestone in recipe.lr_milestones)


def test_runs_side_by_side_are_of_one_data_set_and_groups_alike() -> None:
    wanted = recipes([("plainnet3", "cifar100"), ("plainnet3", "svhn"), ("resnet8", "cifar100")], [0, 1])
    found = groups(wanted, 6)
    assert [[r.dataset for r in group] for group in found] == [["cifar100"] * 4, ["cifar100"] * 4, ["svhn"] * 4]
    assert [r for group in found[:2] for r in group] == [r for r in wanted if r.dataset == "cifar100"]
    assert [len(group) for group in groups(wanted, 1)] == [1] * 12
    assert groups([], 6) == []


def test_the_table_is_built_from_full_length_runs_by_the_paper_s_recipe() -> None:
    recipe = default_recipe("plainnet9", "cifar10", activation="relu")
    found = [
        result(recipe, 90.0),
        result(recipe.replace(seed=1), 91.0),
        result(recipe.replace(epochs=100), 50.0),
        result(recipe.replace(lr=0.05), 50.0),
    ]
    short = default_recipe("plainnet9", "cifar10", activation="relu", epochs=100)
    shorter, _ = accuracy_rows([*found, result(short, 60.0)], CELL, epochs=100)
    assert (shorter.mean, shorter.n, shorter.verdict) == (60.0, 1, "a shorter run")
    relu, qmetric = accuracy_rows(found, CELL)
    assert (relu.mean, relu.n, relu.paper, relu.paper_std) == (90.5, 2, 90.31, 0.31)
    assert relu.std == pytest.approx(0.5**0.5)
    assert (qmetric.mean, qmetric.n, qmetric.verdict) == (None, 0, "not run")


@pytest.mark.parametrize(
    ("mean", "std", "paper_std", "verdict"),
    [
        (90.9, None, 0.31, "reproduced"),
        (91.0, None, 0.31, "better"),
        (91.0, 0.3, 0.31, "reproduced"),
        (89.6, None, 0.31, "not reproduced"),
        (89.6, None, None, "not judged"),
        (None, None, 0.31, "not run"),
    ],
)
def test_verdicts(mean: float | None, std: float | None, paper_std: float | None, verdict: str) -> None:
    row = Row("plainnet9", "cifar10", "relu", 2, 90.31, paper_std, mean, std, 1, 200, None)
    assert row.verdict == verdict


def test_a_run_longer_than_the_paper_s_is_not_judged_by_it() -> None:
    assert Row("plainnet9", "cifar10", "relu", 2, 90.31, 0.31, 95.0, None, 1, 300, None).verdict == "a longer run"


def test_two_deviations_are_within_two_deviations() -> None:
    for model, row in paper.tables()["accuracy"].items():
        for dataset, cell in row.items():
            for activation in paper.COMPARED:
                if std := cell.get(f"{activation}_std"):
                    ours = [round(cell[activation] + way * 2 * std, 2) for way in (-1, 1)]
                    rows = [
                        Row(model, dataset, activation, 2, cell[activation], std, one, None, 1, 200, 1) for one in ours
                    ]
                    assert {row.verdict for row in rows} == {"reproduced"}


def test_expected_time_is_by_the_epoch() -> None:
    recipe = default_recipe("plainnet9", "cifar10", activation="relu")
    known = [result(recipe, 90.0, seconds=200.0), result(recipe.replace(epochs=100), 90.0, seconds=150.0)]
    assert expected_time(recipe.replace(epochs=20), known) == (25, known[0].environment["hardware"])
    known[1].timing["train_s_per_image_and_epoch"] = 1e-5  # by itself: half a second an epoch
    assert expected_time(recipe.replace(epochs=20), known) == (15, known[0].environment["hardware"])
    known[0].timing["train_s_per_image_and_epoch"] = 1e-5
    held_out = [replace(known[0], recipe=recipe.replace(validation=10_000))]  # 40,000 are left to train on
    assert expected_time(recipe.replace(epochs=20), held_out) == (8, "here")
    six = result(recipe, 90.0, seconds=1200.0)
    assert expected_time(recipe, [replace(six, scores=replace(six.scores, together=6))]) == (200, "here")
    for other in ({"activation": "qmetric"}, {"dataset": "digits"}, {"width": 0.5}):
        assert expected_time(recipe.replace(**other), known) is None


def test_networks_of_different_widths_have_results_of_different_names() -> None:
    recipe = default_recipe("plainnet9", "cifar10")
    assert result_name(recipe) == "cifar10/plainnet9-qmetric-200epochs-seed0"
    assert result_name(recipe.replace(width=1.477)) == "cifar10/plainnet9-qmetric-width1.477-200epochs-seed0"


def test_a_result_is_a_small_file_that_comes_back_whole(tmp_path: Path) -> None:
    run = train(tiny(), tmp_path / "run", device="cpu")
    path = record(run, tmp_path / "results", timing={"test_s_per_image": 0.5})
    assert path.stat().st_size < 10_000
    (again,) = stored(tmp_path / "results")
    assert (again.recipe, again.scores, again.environment) == (run.recipe, run.scores, run.environment)
    assert again.test_accuracy == pytest.approx([epoch.test_accuracy for epoch in run.history], abs=1e-3)
    assert again.timing == {"test_s_per_image": 0.5}
    for text, reason in (("{}", "it lacks 'recipe'"), ("[]", "it has other fields"), ("{", "Expecting property")):
        path.write_text(text)
        with pytest.raises(Failure, match=rf"is not a result \({reason}"):
            stored(tmp_path / "results")
    whole = json.loads(record(run, tmp_path / "results").read_text())
    for score in ("abc", math.nan, None, -1, 100.1):
        for damaged in ({"scores": whole["scores"] | {"last": score}}, {"test_accuracy": [50.0, score]}):
            path.write_text(json.dumps(whole | damaged))
            with pytest.raises(Failure, match=rf"is not a result \({score!r} is not a score\)"):
                stored(tmp_path / "results")
    path.write_text(json.dumps(whole | {"test_accuracy": [0, 100]}))
    assert stored(tmp_path / "results")[0].test_accuracy == [0, 100]
    damage: list[tuple[str, object, str]] = [
        ("environment", None, "it has other fields"),
        ("environment", whole["environment"] | {"hardware": 5}, "hardware: 5"),
        ("environment", {"hardware": "here", "torch": "2"}, "it lacks 'commit'"),
        ("scores", whole["scores"] | {"parameters": math.nan}, "parameters: nan"),
        ("scores", whole["scores"] | {"together": 0}, "together: 0"),
        ("test_accuracy", [50.0], "it has the accuracy after 1 epochs of 2"),
        ("environment", whole["environment"] | {"data": {"source": None}}, "source: None"),
        ("timing", 5, "it has other fields"),
        ("timing", {"test_s_per_image": math.nan}, "test_s_per_image: nan"),
    ]
    for field, value, reason in damage:
        path.write_text(json.dumps(whole | {field: value}))
        with pytest.raises(Failure, match=rf"is not a result \({reason}\)"):
            stored(tmp_path / "results")
    path.write_text(json.dumps(whole | {"environment": whole["environment"] | {"commit": None}}))
    assert stored(tmp_path / "results")[0].environment["commit"] is None


def test_a_run_that_is_stored_twice_is_no_second_seed(tmp_path: Path) -> None:
    first = record(train(tiny(), tmp_path / "run", device="cpu"), tmp_path / "results")
    copy = first.with_name("copy.json")
    copy.write_text(first.read_text())
    with pytest.raises(Failure, match=re.escape(f"{first} holds the same run as {copy}: delete one")):
        stored(tmp_path / "results")


def test_a_place_that_takes_no_results_is_known_before_anything_is_trained(small_table: Path) -> None:
    Path("results").mkdir()
    Path("results/accuracy").write_text("")
    with pytest.raises(Failure, match="cannot write results/accuracy"):
        run_missing(recipes([("plainnet3", "digits")], [0]), Path("results"), Path("runs"), device="cpu")
    assert not Path("runs").exists()


def test_a_file_that_may_not_be_read_is_not_called_damaged(tmp_path: Path) -> None:
    with pytest.raises(Failure, match="no permission to read"), reading(tmp_path / "x.json", "a result"):
        raise PermissionError(13, "Permission denied")
    with (
        pytest.raises(Failure, match=r"x.json is not a result .*: delete it"),
        reading(tmp_path / "x.json", "a result"),
    ):
        raise IsADirectoryError(21, "Is a directory")


@pytest.fixture
def small_table(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """The paper's table, made of one cell on digits that trains in a second."""
    monkeypatch.chdir(tmp_path)
    cell = {"relu": 90.0, "relu_std": 5.0, "qmetric": 99.9, "qmetric_std": 0.01, "iterations": 2}
    times = {"plainnet3": {"train_qmetric": 1.0}}
    monkeypatch.setattr(paper, "tables", lambda: {"accuracy": {"plainnet3": {"digits": cell}}, "time": times})

    def quick(model: str, dataset: str, *, epochs: int | None = None, **changes: Any) -> Recipe:
        return tiny(**changes) if epochs is None else tiny(epochs=epochs, **changes)

    monkeypatch.setattr(accuracy, "default_recipe", quick)
    return tmp_path


def test_what_is_missing_is_run_and_stored(small_table: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["reproduce", "accuracy", "--dry-run", "--json"]) == 0
    listed = [row["run"] for row in json.loads(capsys.readouterr().out)]
    relu, qmetric = map(result_name, recipes([("plainnet3", "digits")], [0]))
    assert listed == [relu, qmetric]
    assert cli.run(["reproduce", "accuracy", "--device", "cpu"]) == 0
    out = capsys.readouterr().out
    assert f"{relu}: " in out
    assert "not reproduced" in out
    assert cli.run(["reproduce", "accuracy", "--dry-run"]) == 0
    assert capsys.readouterr().out == "0 of 2 runs are missing\n"
    assert cli.run(["reproduce", "accuracy", "--device", "cpu", "--epochs", "1", "--json"]) == 0
    assert [(row["n"], row["epochs"]) for row in json.loads(capsys.readouterr().out)] == [(1, 1), (1, 1)]
    assert cli.run(["reproduce", "accuracy", "--show", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    keys = {"model", "dataset", "activation", "iterations", "paper", "mean", "std", "n", "epochs", "parameters"}
    assert all(keys <= set(row) for row in rows)
    assert [row["n"] for row in rows] == [1, 1]
    assert rows[1]["verdict"] == "not reproduced"
    wanted = recipes([("plainnet3", "digits")], [0])
    assert not missing(wanted, Path("results"))
    assert missing(wanted, Path("results"), table="ddl") == wanted


def test_runs_are_stored_in_their_table_and_their_epochs_told(small_table: Path) -> None:
    told: list[tuple[str, int]] = []
    wanted = recipes([("plainnet3", "digits")], [0])
    run_missing(
        wanted,
        Path("results"),
        Path("runs"),
        table="ddl",
        device="cpu",
        on_epoch=lambda run, epoch: told.append((run.recipe.activation, epoch.epoch)),
    )
    assert told == [("relu", 1), ("relu", 2), ("qmetric", 1), ("qmetric", 2)]
    assert [len(stored(Path("results"), table=table)) for table in ("ddl", "accuracy")] == [2, 0]


def test_a_budget_stops_cleanly_and_the_next_call_goes_on(
    small_table: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    spent = ["reproduce", "accuracy", "--device", "cpu", "--budget", "1", "--json"]
    clock = iter([0.0, 0.0, 61.0, 61.0])  # at the start, before a group, as it begins, as it ends
    with monkeypatch.context() as patch:
        patch.setattr(lacking, "monotonic", lambda: next(clock))
        assert cli.run(spent) == 0
    captured = capsys.readouterr()
    told = "stopped after 1 minute: run the same command again to continue; left: 2 of 2 runs, which --dry-run lists\n"
    assert captured.err == told
    assert json.loads(captured.out) == []
    relu, _ = recipes([("plainnet3", "digits")], [0])
    run = Path("runs/reproduce/accuracy") / result_name(relu)
    assert (run / "checkpoint.safetensors").exists()
    assert stored(Path("results")) == []
    run_missing(recipes([("plainnet3", "digits")], [0]), Path("results"), Path("runs/reproduce/accuracy"), device="cpu")
    assert len(stored(Path("results"))) == 2


def test_a_budget_spent_before_a_group_begins_nothing(
    small_table: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    clock = iter([0.0, 61.0])
    monkeypatch.setattr(lacking, "monotonic", lambda: next(clock))
    assert cli.run(["reproduce", "accuracy", "--device", "cpu", "--budget", "1"]) == 0
    assert "left: 2 of 2 runs" in capsys.readouterr().err
    assert not Path("runs").exists()


def test_a_budget_begins_no_more_than_may_be_done_in_it(small_table: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wanted = recipes([("plainnet3", "digits")], [0, 1])
    for recipe in wanted[:2]:  # whose times are then known, 60 seconds an epoch
        path = record(train(recipe.replace(epochs=1), small_table / recipe.activation, device="cpu"), Path("results"))
        result = json.loads(path.read_text())
        path.write_text(json.dumps(result | {"scores": result["scores"] | {"seconds": 60.0, "together": 1}}))
    damaged = plan(wanted[0], Path("runs") / result_name(wanted[0]), device="cpu").path
    (damaged / "checkpoint.safetensors").write_text("no checkpoint")
    begun: list[list[str]] = []

    def begin(folders: Sequence[Path], **options: object) -> NoReturn:
        begun.append([str(folder.relative_to("runs")) for folder in folders])
        raise Failure("for another reason")

    monkeypatch.setattr(lacking, "resume_all", begin)
    monkeypatch.setattr(lacking, "monotonic", lambda: 0.0)
    for minutes, sizes in ((4 * wanted[0].epochs, [4]), (3.5 * wanted[0].epochs, [3, 1]), (1, [1, 1, 1, 1])):
        begun.clear()
        with pytest.raises(Failure, match="for another reason"):
            run_missing(wanted, Path("results"), Path("runs"), device="cpu", minutes=minutes)
        assert [len(group) for group in begun] == sizes
        assert list(chain(*begun)) == [result_name(recipe) for recipe in wanted]
    begun.clear()
    with pytest.raises(Failure, match="for another reason"):
        run_missing(wanted, Path("results"), Path("runs"), device="cpu", timed=lambda run: {})
    assert [len(group) for group in begun] == [1, 1, 1, 1], "what is timed has the device to itself"


def test_without_a_budget_nobody_asks_how_long_a_run_takes(small_table: Path) -> None:
    measured = Path("results/timing/cpu/batch128/steps/plainnet3.json")
    measured.parent.mkdir(parents=True)
    measured.write_text("no measurement")
    run_missing(recipes([("plainnet3", "digits")], [0]), Path("results"), Path("runs"), device="cpu")
    assert len(stored(Path("results"))) == 2


def test_a_dry_run_knows_what_is_begun_and_adds_up(small_table: Path, capsys: pytest.CaptureFixture[str]) -> None:
    relu, qmetric = recipes([("plainnet3", "digits")], [0])
    for recipe in (relu, qmetric):  # whose times are then known
        record(train(recipe.replace(epochs=1), small_table / recipe.activation, device="cpu"), Path("results"))
    path = plan(relu, Path("runs/reproduce/accuracy") / result_name(relu), device="cpu").path

    def interrupt(run: Run, epoch: Epoch) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        resume(path, on_epoch=interrupt)
    (path / "metrics.jsonl").write_text("".join(2 * [(path / "metrics.jsonl").read_text()]))  # beyond the checkpoint
    assert cli.run(["reproduce", "accuracy", "--dry-run", "--json"]) == 0
    begun, fresh = json.loads(capsys.readouterr().out)
    assert (begun["epochs_done"], fresh["epochs_done"]) == (1, 0)
    known = stored(Path("results"))
    whole = [time[0] for recipe in (relu, qmetric) if (time := expected_time(recipe, known))]
    assert begun["expected_seconds"] == pytest.approx(whole[0] / 2)
    assert fresh["expected_seconds"] == pytest.approx(whole[1])
    assert cli.run(["reproduce", "accuracy", "--dry-run"]) == 0
    first, _, last = capsys.readouterr().out.splitlines()
    assert f"{begun['run']}: continues after epoch 1, about " in first
    assert last.startswith("2 of 2 runs are missing: about ")
    assert last.endswith(" one after another")
    resume(path)
    assert cli.run(["reproduce", "accuracy", "--dry-run", "--json"]) == 0
    done, _ = json.loads(capsys.readouterr().out)
    assert (done["epochs_done"], done["expected_seconds"]) == (relu.epochs, 0), "only its result is to be stored"


@pytest.mark.parametrize("together", [6, 1])
def test_a_network_that_fails_does_not_keep_the_others_from_training(
    together: int, small_table: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted = recipes([("plainnet3", "digits")], [0, 1])
    other, damaged, *sound = wanted
    train(other.replace(lr=0.01), Path("runs") / result_name(other), device="cpu")
    (train(damaged, Path("runs") / result_name(damaged), device="cpu").path / "result.json").write_text("{}")
    monkeypatch.setattr(lacking, "TOGETHER", together)
    with pytest.raises(Failure, match="holds a run of another recipe: move it away"):
        run_missing(wanted, Path("results"), Path("runs"), device="cpu")
    assert {found.recipe for found in stored(Path("results"))} == set(sound)


def test_a_run_is_begun_on_the_device_asked_for(small_table: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    relu, _ = recipes([("plainnet3", "digits")], [0])
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)  # which "auto" would take
    assert load(lacking._folder(relu, Path("runs"), "cpu")).environment["device"] == "cpu"


def test_a_run_begun_on_another_kind_of_device_is_not_moved_in_silence(
    small_table: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    relu, _ = recipes([("plainnet3", "digits")], [0])
    path = plan(relu, Path("runs") / result_name(relu), device="cpu").path
    environment = json.loads((path / "environment.json").read_text())
    (path / "environment.json").write_text(json.dumps(environment | {"device": "cuda:0"}))
    with pytest.raises(Failure, match="was begun on cuda:0, not on cpu: go on with --device cuda:0, or move it away"):
        run_missing([relu], Path("results"), Path("runs"), device="cpu")
    with monkeypatch.context() as patch:
        patch.setattr(torch.cuda, "is_available", lambda: True)
        patch.setattr(torch.cuda, "device_count", lambda: 1)
        assert lacking._folder(relu, Path("runs"), "cuda") == path, "another name of the same kind"
    shutil.rmtree(path)
    finished = train(relu, path, device="cpu")
    (path / "environment.json").write_text(json.dumps(finished.environment | {"device": "cuda:0"}))
    run_missing([relu], Path("results"), Path("runs"), device="cpu")
    assert len(stored(Path("results"))) == 1, "a finished run has only to be stored"


def test_a_signal_stops_it_too_and_says_how_to_go_on(
    small_table: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    step = Step.__call__

    def interrupted(self: Step, images: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        signal.raise_signal(signal.SIGINT)
        return step(self, images, labels)

    with monkeypatch.context() as patch:
        patch.setattr(Step, "__call__", interrupted)
        assert cli.run(["reproduce", "accuracy", "--device", "cpu", "--budget", "10"]) == 1
    line = capsys.readouterr().err
    assert "stopped in epoch 1, after step 1, of runs/reproduce/accuracy/digits/plainnet3-relu" in line
    assert line.endswith(": run the same command again to continue\n")  # resuming the runs alone would store no result


def test_a_folder_of_another_recipe_is_refused(small_table: Path) -> None:
    recipe = recipes([("plainnet3", "digits")], [0])[0]
    train(recipe.replace(lr=0.01), Path("runs") / result_name(recipe), device="cpu")
    with pytest.raises(Failure, match="holds a run of another recipe: move it away"):
        run_missing([recipe], Path("results"), Path("runs"), device="cpu")


def test_parameters_beside_the_paper_s(capsys: pytest.CaptureFixture[str]) -> None:
    assert (
        cli.run(["reproduce", "parameters", "--dataset", "cifar10", "--models", "plainnet9,plainnet12", "--json"]) == 0
    )
    rows = {(row["model"], row["activation"]): row for row in json.loads(capsys.readouterr().out)}
    assert rows["plainnet9", "qmetric"]["parameters"] == pytest.approx(rows["plainnet9", "qmetric"]["paper"], rel=0.01)
    assert rows["plainnet12", "relu"]["paper"] is None
    assert cli.run(["reproduce", "parameters", "--models", "plainnet9"]) == 0
    assert "1.37" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["accurcy"], "unknown table 'accurcy': did you mean 'accuracy'"),
        (["accuracy", "--dataset", "cifar11"], "did you mean 'cifar10'"),
        (["accuracy", "--models", "plainnet8"], "unknown model of the paper 'plainnet8'"),
        (["accuracy", "--models", ""], "--models takes names separated by commas, got ''"),
        (["timing", "--models", "resnet8,resnet8", "--dry-run"], "--models names resnet8 twice"),
        (["accuracy", "--dataset", "svhn", "--models", "resnet110"], "the paper has no figure of resnet110 on svhn"),
        (["uap", "--dataset", "svhn", "--models", "resnet8,resnet110", "--dry-run"], "no figure of resnet110 on svhn"),
        (["accuracy", "--seeds", "a"], "--seeds takes whole numbers"),
        (["accuracy", "--seeds", "0,1,0"], "--seeds names 0 twice"),
        (["accuracy", "--seeds", "-2"], "--seeds takes numbers >= 0, got -2"),
        (["accuracy", "--budget", "0"], "--budget takes minutes above 0, got 0"),
        (["noise", "--budget", "nan"], "--budget takes minutes above 0, got nan"),
        (["accuracy", "--show", "--dry-run"], "--show prints what is stored and --dry-run lists what is missing"),
        (["uap", "--dry-run", "--show"], "give one of them"),
        (["timing", "--dry-run", "--show"], "give one of them"),
        (["accuracy", "--epochs", "0"], "epochs must be at least 1, got 0"),
        (["accuracy", "--show", "--seeds", "7"], "--show prints what is stored of every seed: leave --seeds out"),
        (["controls", "--show", "--budget", "1"], "--show prints what is stored and runs nothing: leave --budget out"),
        (["ddl", "--device", "cpu", "--show"], "leave --device out"),
        (["timing", "--show", "--budget", "1"], "leave --budget out"),
        (["noise", "--show", "--budget", "1"], "leave --budget out"),
        (["accuracy", "--show", "--results", ""], "the path is empty: name a folder"),
        (
            ["changes", "--final", "nesterov", "--epochs", "5", "--dry-run"],
            "--final trains at full length: leave --epochs out",
        ),
        (["accuracy", "--dry-run", "--device", "tpu"], "unknown device 'tpu'"),
        (["timing", "--dataset", "svhn", "--show"], "the paper has times for cifar10 only, not for svhn"),
    ],
)
def test_wrong_arguments(arguments: list[str], complaint: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["reproduce", *arguments]) == 2
    assert complaint in capsys.readouterr().err


SHOWN = ("accuracy", "timing", "controls", "ddl", "depth", "uap", "noise")


@pytest.mark.parametrize("table", SHOWN)
def test_results_that_cannot_be_shown(table: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").write_text("")
    for place, status, complaint in (
        ("nowhere", 1, "nowhere has no results: it does not exist"),
        ("file", 2, "--results takes a folder, and "),
    ):
        assert cli.run(["reproduce", table, "--show", "--results", str(tmp_path / place)]) == status
        captured = capsys.readouterr()
        assert complaint in captured.err
        assert captured.err.count("\n") == 1
        assert captured.out == ""


@pytest.mark.parametrize("table", ["uap", "noise", "depth"])
def test_networks_of_which_nothing_is_stored(table: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["reproduce", table, "--show", "--results", str(tmp_path)]) == 1
    assert f"nothing is stored yet for these networks in {tmp_path}: `detrame reproduce {table}`" in (
        capsys.readouterr().err
    )


def test_the_stored_results_of_this_repository_are_whole() -> None:
    folder = Path(__file__).parents[2] / "results"
    for table in ("accuracy", "changes", "ddl", "depth"):
        for found in stored(folder, table=table):
            assert found.recipe.epochs == len(found.test_accuracy)
            assert found.scores.last == pytest.approx(found.test_accuracy[-1], abs=1e-3)
            assert found.environment["commit"]
            assert (folder / table / f"{result_name(found.recipe)}.json").exists()
