"""The command line from training to report, wrong input included."""

import contextlib
import json
import os
import re
import shutil
import signal
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from detrame import cli
from detrame.data import load as load_dataset
from detrame.data.dataset import Split
from detrame.errors import Failure
from detrame.experiments import default_recipe, networks
from detrame.experiments.plans import seeded
from detrame.models import read_pretrained
from detrame.training import Recipe, load, plan
from detrame.training.files import ready_to_write, write_text
from detrame.training.step import Step
from tests.training import tiny

SMALL = ["--epochs", "1", "--set", "width=0.05", "--set", "batch_size=256", "--device", "cpu"]


@pytest.fixture
def inside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working folder of the test's own."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture(scope="module")
def compared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("runs") / "compare"
    assert cli.run(["compare", "--seeds", "0,1", "--out", str(out), "--json", *SMALL]) == 0
    return out


def test_compare_trains_both_networks_on_the_same_seeds_and_writes_the_page(compared: Path) -> None:
    runs = sorted(str(file.parent.relative_to(compared)) for file in compared.rglob("result.json"))
    assert runs == ["qmetric/seed-0", "qmetric/seed-1", "relu/seed-0", "relu/seed-1"]
    recipes = [load(compared / run).recipe for run in runs]
    assert [(r.seed, r.split_seed) for r in recipes] == [(0, 0), (1, 1)] * 2
    assert len({r.replace(seed=0, split_seed=0, activation="relu") for r in recipes}) == 1
    assert "<html" in (compared / "report.html").read_text()


def test_seeds_draw_a_split_of_their_own_where_the_data_set_has_none() -> None:
    def drawn(dataset: str) -> list[tuple[int, int]]:
        return [(one.seed, one.split_seed) for one in seeded(default_recipe("plainnet3", dataset), [0, 7])]

    assert drawn("digits") == [(0, 0), (7, 7)]
    assert drawn("cifar10") == [(0, 0), (7, 0)]


def test_an_empty_folder_is_trained_into(inside: Path) -> None:
    Path("made").mkdir()
    assert cli.run(["train", "plainnet3", "--out", "made", *SMALL]) == 0
    assert load("made").finished


def test_a_closed_stdout_is_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdout", None)
    monkeypatch.setattr("sys.argv", ["detrame", "data", "list"])
    with pytest.raises(SystemExit) as stop:
        cli.main()
    assert stop.value.code == 0


def test_many_images_on_a_cpu_are_told_of_beforehand(
    inside: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["train", "plainnet3", "--epochs", "1", "--set", "width=0.05", "--device", "cpu", "--out"]
    assert cli.run([*arguments, "quiet"]) == 0
    assert "on the CPU" not in capsys.readouterr().err
    monkeypatch.setattr("detrame.cli.train.MANY", 100)
    assert cli.run([*arguments, "told"]) == 0
    assert capsys.readouterr().err.startswith(
        "on the CPU: 29 steps, of which each may take seconds; a GPU takes milliseconds\n"
    )


def test_a_file_of_any_name_is_a_recipe(inside: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (inside / "mine").write_text(tiny(lr=0.07).to_json())
    assert cli.run(["train", "--recipe", "mine", "--print-recipe"]) == 0
    assert json.loads(capsys.readouterr().out)["lr"] == 0.07


def test_train_evaluate_and_report(inside: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["train", "plainnet3", "--seeds", "0,1", *SMALL]) == 0
    captured = capsys.readouterr()
    assert "runs/plainnet3-digits-qmetric/seed-0" in captured.out
    assert "plainnet3 qmetric seed 1 epoch 1/1: loss" in captured.err
    assert cli.run(["evaluate", "runs/plainnet3-digits-qmetric", "--device", "cpu"]) == 0
    captured = capsys.readouterr()
    assert "of 898 test images" in captured.out
    runs = "runs/plainnet3-digits-qmetric/seed-0", "runs/plainnet3-digits-qmetric/seed-1"
    assert captured.err.splitlines() == [f"{run} ..." for run in runs]
    assert cli.run(["evaluate", "runs", "--json", "--device", "cpu"]) == 0
    captured = capsys.readouterr()
    assert captured.err == ""
    rows = json.loads(captured.out)
    assert [row["accuracy"] for row in rows] == pytest.approx([row["recorded"] for row in rows])
    assert cli.run(["report", "runs", "--out", "page.html"]) == 0
    assert capsys.readouterr().out == "page.html\n"
    assert (inside / "page.html").exists()


def test_evaluate_a_network_of_the_package(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    pictures = Split(torch.zeros(20, 3, 32, 32, dtype=torch.uint8), torch.zeros(20, dtype=torch.long))
    black = replace(load_dataset("digits"), train=pictures, test=pictures)
    monkeypatch.setattr(networks, "load_dataset", lambda name: black)
    assert cli.run(["evaluate", "resnet8:relu", "resnet8:qmetric", "--json", "--device", "cpu"]) == 0
    row, other = json.loads(capsys.readouterr().out)
    assert other["run"] == "resnet8:qmetric"
    assert row["run"] == "resnet8:relu"
    assert row["accuracy"] in (0, 100)  # twenty times the same image
    assert row["recorded"] == read_pretrained("resnet8", "relu", "cifar10")[1]["scores"]["last"]
    assert row["images"] == 20


def test_json_holds_the_summary_and_the_runs(inside: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["train", "plainnet3", "--activation", "relu", "--seeds", "0,1", "--json", *SMALL]) == 0
    captured = capsys.readouterr()
    assert captured.err == ""
    document = json.loads(captured.out)
    accuracies = [run["last"] for run in document["runs"]]
    summary = document["summary"][0]
    assert summary["mean"] == pytest.approx(sum(accuracies) / 2)
    assert summary["std"] == pytest.approx(abs(accuracies[0] - accuracies[1]) / 2**0.5)
    assert (summary["n"], summary["activation"]) == (2, "relu")


def test_the_next_run_gets_the_next_free_folder(inside: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for expected in ("runs/plainnet3-digits-qmetric", "runs/plainnet3-digits-qmetric-2"):
        assert cli.run(["train", "plainnet3", *SMALL]) == 0
        assert capsys.readouterr().out.splitlines()[-1] == expected


def test_a_recipe_can_be_printed_edited_and_passed(inside: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["train", "resnet20", "--dataset", "cifar100", "--set", "lr=0.05", "--print-recipe"]) == 0
    printed = capsys.readouterr().out
    recipe = Recipe.from_json(printed)
    assert (recipe.model, recipe.dataset, recipe.lr, recipe.iterations) == ("resnet20", "cifar100", 0.05, 2)
    Path("my.json").write_text(tiny(epochs=1, lr=0.02).to_json())
    assert cli.run(["train", "--recipe", "my.json", "--out", "run", "--device", "cpu"]) == 0
    assert load("run").recipe == tiny(epochs=1, lr=0.02)


def test_a_recipe_keeps_what_the_command_does_not_change(inside: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A run can be repeated from its own recipe.json: its seeds, its data set and its activation."""
    written = tiny(seed=5, split_seed=6, activation="relu", epochs=1)
    Path("my.json").write_text(written.to_json())
    assert cli.run(["train", "--recipe", "my.json", "--print-recipe"]) == 0
    assert Recipe.from_json(capsys.readouterr().out) == written
    assert cli.run(["train", "--recipe", "my.json", "--activation", "qmetric", "--seeds", "3", "--print-recipe"]) == 0
    printed = Recipe.from_json(capsys.readouterr().out)
    assert printed == written.replace(activation="qmetric", seed=3, split_seed=3)
    assert cli.run(["train", "plainnet3", "--set", "seed=7", "--print-recipe"]) == 0
    printed = Recipe.from_json(capsys.readouterr().out)
    assert (printed.seed, printed.split_seed, printed.activation, printed.dataset) == (7, 7, "qmetric", "digits")


def test_stopping_several_runs_names_the_folder_that_resumes_them_all(
    inside: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    step, steps = Step.__call__, 0

    def interrupted(self: Step, images: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        nonlocal steps
        steps += 1
        if steps == 6:  # in the second of the four runs
            signal.raise_signal(signal.SIGINT)
        return step(self, images, labels)

    with monkeypatch.context() as patch:
        patch.setattr(Step, "__call__", interrupted)
        assert cli.run(["compare", "--seeds", "0,1", "--out", "both of them", *SMALL]) == 1
    line = capsys.readouterr().err.splitlines()[-1]
    assert line.endswith("continue with `detrame train --resume 'both of them'`")
    assert cli.run(["train", "--resume", "both of them"]) == 0
    assert "detrame report 'both of them'" in capsys.readouterr().out
    assert len(list(Path("both of them").rglob("result.json"))) == 4


def test_one_run_that_fails_does_not_keep_the_others_from_training(inside: Path) -> None:
    plan(tiny(lr=1e38), Path("runs") / "a", device="cpu")
    plan(tiny(), Path("runs") / "b", device="cpu")
    assert cli.run(["train", "--resume", "runs"]) == 1
    assert load("runs/b").finished


def test_resume_continues_all_that_is_unfinished(inside: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for seed in (0, 1):
        plan(tiny(seed=seed), Path("runs") / f"seed-{seed}", device="cpu")
    assert cli.run(["train", "--resume", "runs"]) == 0
    assert "detrame report runs\n" in capsys.readouterr().out
    with contextlib.chdir("runs"):
        assert cli.run(["train", "--resume", "."]) == 0
        assert "detrame report .\n" in capsys.readouterr().out
    assert all(load(Path("runs") / f"seed-{seed}").finished for seed in (0, 1))
    assert cli.run(["train", "--resume", "runs/seed-0", "--json"]) == 0


def test_tensorboard_events(inside: Path) -> None:
    assert cli.run(["train", "plainnet3", "--tensorboard", "--out", "run", *SMALL]) == 0
    assert list(Path("run").glob("events.out.tfevents.*"))


def test_without_tensorboard_it_says_what_to_install(
    inside: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(__import__("sys").modules, "torch.utils.tensorboard", None)
    assert cli.run(["train", "plainnet3", "--tensorboard", *SMALL]) == 1
    assert "pip install 'detrame[tensorboard]'" in capsys.readouterr().err


def test_a_progress_bar_on_a_terminal(
    inside: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.stderr.isatty", lambda: True, raising=False)
    monkeypatch.setenv("COLUMNS", "80")
    assert cli.run(["train", "plainnet3", *SMALL, "--out", "runs/shown"]) == 0
    shown = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", capsys.readouterr().err)
    *_, line, bar = shown.splitlines()
    assert re.fullmatch(r"plainnet3 qmetric seed 0 epoch 1/1: loss \d\.\d{4}, test accuracy \d+\.\d\d%", line.strip())
    assert re.fullmatch(r"━+ 1/1 epochs \d:\d\d:\d\d 0:00:00", bar.strip())
    assert cli.run(["train", "--resume", "runs/shown"]) == 0
    assert "0/0" not in capsys.readouterr().err


# Wrong input: arguments, exit status, and what the one line says. {run} is a finished run, {here} the working folder.
WRONG: list[tuple[list[str], int, str]] = [
    (["trian"], 2, "Did you mean 'train'"),
    (["train"], 2, "which network? name one of `detrame models`"),
    (["train", "plainet3"], 2, "unknown model 'plainet3': did you mean 'plainnet3'"),
    (["train", "plainnet5"], 2, "PlainNet has 3, 6, 9, 12 or more layers, got 5"),
    (["train", "resnet9"], 2, "6n + 2 layers"),
    (["train", "plainnet3", "--dataset", "digit"], 2, "unknown data set 'digit': did you mean 'digits'"),
    (["train", "plainnet3", "--dataset", "cifar10"], 1, "type `detrame data get cifar10`"),
    (["train", "plainnet3", "--activation", "qmetrik"], 2, "unknown activation 'qmetrik': did you mean 'qmetric'"),
    (["train", "plainnet3", "--iterations", "0"], 2, "iterations must be at least 1, got 0"),
    (
        ["train", "plainnet3", "--activation", "relu", "--iterations", "3"],
        2,
        "relu does not iterate: leave --iterations",
    ),
    (["train", "ddl3", "--iterations", "3"], 2, "dictionary does not iterate: leave --iterations out"),
    (["train", "plainnet3", "--epochs", "-3"], 2, "epochs must be at least 1, got -3"),
    (["train", "plainnet3", "--epochs", "many"], 2, "Invalid value for '--epochs'"),
    (
        ["train", "plainnet3", "--seeds", "0,x"],
        2,
        "--seeds takes whole numbers separated by commas, such as 0,1,2; got '0,x'",
    ),
    (["train", "plainnet3", "--seeds", "1,1"], 2, "--seeds names 1 twice"),
    (["train", "plainnet3", "--seeds", "-1"], 2, "--seeds takes numbers >= 0, got -1"),
    (["train", "plainnet3", "--device", "tpu"], 2, "unknown device 'tpu': choose auto, cpu or cuda"),
    (["train", "plainnet3", "--device", "cuda"], 2, "sees no CUDA device here"),
    (["train", "plainnet3", "--recipe", "cifr"], 2, "unknown recipe 'cifr': did you mean 'cifar'"),
    (["train", "plainnet3", "--recipe", "{here}/broken.json"], 1, "broken.json is not a recipe"),
    (["train", "plainnet3", "--set", "lr"], 2, "--set takes FIELD=VALUE, got 'lr'"),
    (["train", "plainnet3", "--set", "lrr=1"], 2, "unknown field of a recipe 'lrr': did you mean 'lr'"),
    (["train", "plainnet3", "--set", "recipe=small"], 2, "unknown field of a recipe 'recipe'"),
    (["train", "plainnet3", "--set", "epochs=null"], 2, "epochs must be a whole number, got None"),
    (["train", "plainnet3", "--set", "lr=0.1", "--set", "lr=0.2"], 2, "--set names lr twice: leave one out"),
    (["train", "plainnet3", "--set", "lr=fast"], 2, "lr must be a number, got 'fast'"),
    (["train", "plainnet3", "--set", "lr=0"], 2, "lr must be a positive number, got 0.0"),
    (["train", "plainnet3", "--set", "batch_size=0"], 2, "batch_size must be at least 1, got 0"),
    (["train", "plainnet3", "--set", "validation=5000"], 2, "validation must leave some of 899 training images"),
    (["train", "plainnet3", "--set", "width=0"], 2, "width must be a positive number, got 0.0"),
    (["train", "plainnet3", "--set", "norm=layer"], 2, "norm must be 'batch' or None (null in a recipe), got 'layer'"),
    (["train", "plainnet3", "--set", "lr=1e30", *SMALL[:4]], 1, "start again with a smaller one, such as --set lr=0.1"),
    (["train", "plainnet3", "--checkpoint-every", "0"], 2, "Invalid value for '--checkpoint-every'"),
    (["train", "plainnet3", "--out", "{run}"], 1, "is not empty: choose another --out"),
    (["train", "plainnet3", "--out", "{run}", "--seeds", "0,1"], 1, "is not empty: choose another --out"),
    (["train", "plainnet3", "--out", "{here}/file"], 1, "file is a file: choose another --out"),
    (["train", "plainnet3", "--out", "{here}/file/run"], 1, "cannot make the folder"),
    (["train", "plainnet3", "--out", "/proc/run"], 1, "cannot make the folder /proc/run"),
    (["train", "plainnet3", "--resume", "{run}"], 2, "leave out the model, --device and everything about the recipe"),
    (
        ["train", "--resume", "{run}", "--epochs", "40"],
        2,
        "leave out the model, --device and everything about the recipe",
    ),
    (
        ["train", "--resume", "{run}", "--set", "lr=1"],
        2,
        "leave out the model, --device and everything about the recipe",
    ),
    (
        ["train", "--resume", "{run}", "--device", "cpu"],
        2,
        "on the device they began on: leave out the model, --device",
    ),
    (["train", "plainnet3", "--set", "model=resnet8"], 2, "model is given twice: 'plainnet3', and 'resnet8' by --set"),
    (["train", "plainnet3", "--epochs", "4", "--set", "epochs=3"], 2, "epochs is given twice"),
    (["train", "plainnet3", "--seeds", "4", "--set", "seed=3"], 2, "the seed is given twice: by --seeds, and by --set"),
    (["train", "plainnet3", "--set", "momentum=2"], 2, "momentum must be below 1, got 2"),
    (["train", "plainnet3", "--set", "lr_milestones=[-5]"], 2, "lr_milestones must be numbers of epochs, 1 or more"),
    (
        ["train", "plainnet3", "--set", "crop_padding=50"],
        2,
        "crop_padding must be less than the width of the images, 8x8",
    ),
    (["compare", "ddl3"], 2, "ddl3 has no activation to compare: `detrame reproduce ddl` compares it with others"),
    (["train", "plainnet3", "--set", "lr_milestones=50,60"], 2, "must be a list of whole numbers, as [60, 120]"),
    (["train", "plainnet3", "--seeds", "99999999999999999999999"], 2, "seed must be below 2^63"),
    (["train", "plainnet3", "--recipe", "./no.json"], 2, "there is no recipe at ./no.json"),
    (["train", "plainnet3", "--set", "width=1e12"], 1, "there is not enough memory for this"),
    (["compare", "--set", "activation=relu"], 2, "compare decides the activation itself"),
    (["compare", "--set", "seed=3"], 2, "compare decides the seed itself"),
    (["train", "--resume", "{here}/nowhere"], 2, "nowhere is not a folder"),
    (["train", "--resume", "{here}/empty"], 2, "there is no run in"),
    (["train", "--resume", ""], 2, "the path is empty: name a folder"),
    (["train", "plainnet3", "--out", ""], 2, "the path is empty: name a folder"),
    (["train", "plainnet3", "--recipe", "smal"], 2, "unknown recipe 'smal': did you mean 'small'"),
    (["train", "plainnet3", "--recipe", "{here}/file"], 1, "file is not a recipe"),
    (["train", "--resume", "{here}/old"], 1, "another version of detrame (format 0, this one reads 1)"),
    (["train", "--resume", "{here}/damaged"], 1, "checkpoint.safetensors cannot be read"),
    (["train", "--lr", "0.1"], 2, "No such option: --lr"),
    (["compare", "plainet9"], 2, "did you mean 'plainnet9'"),
    (["compare", "--seeds", ""], 2, "--seeds takes whole numbers"),
    (["evaluate"], 2, "Missing argument 'RUN...'"),
    (["evaluate", "{here}/nowhere"], 2, "nowhere is neither a folder of runs nor a trained network of the package"),
    (["evaluate", "{here}/damaged"], 1, "is not finished: continue it with"),
    (["evaluate", "{run}", "--device", "tpu"], 2, "unknown device 'tpu'"),
    (["attack", "{run}", "--noise", "0.1", "--unit", "pixels", "--norm", "2"], 2, "--norm is that of --radius"),
    (["report"], 2, "Missing argument 'RUNS...'"),
    (["report", "{here}/empty"], 2, "there is no run in"),
    (["report", "{run}", "{here}/again"], 2, "have the same recipe and seed, which count only once: leave one out"),
    (["report", "{here}/parts"], 1, "lost is not a run: it has no recipe.json"),
    (["report", "{here}/damaged"], 1, "is not finished"),
    (["report", "{run}", "--out", "/proc/page.html"], 1, "/proc/page"),
    (["report", "{run}", "--out", "{here}/empty"], 1, "empty is a folder: name the file to write"),
    (["evaluate", "{here}/changed"], 1, "was begun on other images than digits now holds"),
    (["evaluate", "{here}/elsewhere"], 1, "elsewhere needs the data set good: type `detrame data get good --from FOL"),
    (["report", "{here}/elsewhere"], 1, "elsewhere needs the data set good: type `detrame data get good --from FOLDER"),
    (["attack", "{here}/elsewhere", "--noise", "0.1", "--unit", "pixels"], 1, "elsewhere needs the data set good"),
    (["evaluate", "{here}/weightless"], 1, "weights.safetensors cannot be read"),
    (["data", "get", "cifar11"], 2, "did you mean 'cifar10'"),
    (["data", "get", "flowers", "--from", "{here}/nowhere"], 2, "nowhere does not exist"),
    (["data", "get", "flowers", "--from", "{here}/file"], 2, "file is a file: flowers is not a known data set"),
    (["data", "get", "flowers", "--from", "{here}/data", "--split-seed", "-1"], 2, "split_seed must be at least 0"),
    (["data", "get", "cifar10", "--from", "{here}/file"], 1, "fetch https://www.cs.toronto.edu"),
    (["data", "verify", "cifar11"], 2, "did you mean 'cifar10'"),
    (["data", "verify", "cifar10"], 1, "type `detrame data get cifar10`"),
]


@pytest.fixture
def wrong_places(inside: Path, compared: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], str]:
    """Folders and files that are wrong, each in its way."""
    monkeypatch.setenv("DETRAME_DATA", str(inside / "data"))
    for name in ("empty", "data"):
        (inside / name).mkdir()
    (inside / "file").write_text("")
    (inside / "broken.json").write_text("{")
    run = compared / "relu" / "seed-0"
    shutil.copytree(run, inside / "old")
    (inside / "old" / "environment.json").write_text('{"format": 0}')
    shutil.copytree(run, inside / "again")
    shutil.copytree(run, inside / "parts" / "lost")
    (inside / "parts" / "lost" / "recipe.json").unlink()
    shutil.copytree(run, inside / "changed")
    environment = json.loads((run / "environment.json").read_text())
    environment["data"]["digest"] = "0" * 64
    (inside / "changed" / "environment.json").write_text(json.dumps(environment))
    shutil.copytree(run, inside / "elsewhere")
    recipe = json.loads((run / "recipe.json").read_text()) | {"dataset": "good"}
    (inside / "elsewhere" / "recipe.json").write_text(json.dumps(recipe))
    shutil.copytree(run, inside / "weightless")
    (inside / "weightless" / "weights.safetensors").unlink()
    damaged = plan(tiny(), inside / "damaged", device="cpu").path
    (damaged / "checkpoint.safetensors").write_bytes(b"damaged")
    return lambda argument: argument.replace("{run}", str(run)).replace("{here}", str(inside))


@pytest.mark.parametrize(
    ("arguments", "status", "complaint"), WRONG, ids=lambda v: " ".join(v) if isinstance(v, list) else ""
)
def test_wrong_input(
    arguments: list[str],
    status: int,
    complaint: str,
    wrong_places: Callable[[str], str],
    capsys: pytest.CaptureFixture[str],
) -> None:
    before = set(os.listdir())
    assert cli.run([wrong_places(argument) for argument in arguments]) == status
    captured = capsys.readouterr()
    assert complaint in captured.err
    assert captured.err.count("\n") == 1
    assert captured.err.startswith("detrame: ")
    assert captured.out == ""
    if status == 2:
        assert set(os.listdir()) == before  # nothing is left behind for arguments that were wrong


def test_a_full_disk(inside: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def full(*arguments: Any, **options: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("detrame.training.files.save_file", full)
    assert cli.run(["train", "plainnet3", *SMALL]) == 1
    complaint = capsys.readouterr().err.splitlines()[-1]
    assert complaint.startswith("detrame: cannot write runs/")
    assert complaint.endswith("(No space left on device): free some space")


def test_a_page_says_question_mark_for_what_of_a_name_is_not_utf8(tmp_path: Path) -> None:
    write_text(tmp_path / "page.html", "the images of the folder " + os.fsdecode(b"pets\xff"))
    assert (tmp_path / "page.html").read_text() == "the images of the folder pets?"


def test_a_place_that_takes_no_files(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(Failure, match=r"cannot write .*page.html \(Not a directory\): choose another place"):
        write_text(tmp_path / "file" / "page.html", "")
    with pytest.raises(Failure, match=r"cannot write .*page.html \(.*\): choose another place"):
        ready_to_write(tmp_path / "file" / "page.html")
