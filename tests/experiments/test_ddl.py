"""The tables against deep dictionary learning, and the study of depth: recipes, rows, timing, plot and commands."""

import json
import math
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import pytest

from detrame import cli
from detrame.experiments import ddl, default_recipe, depth, paper, report
from detrame.experiments.report.groups import NAMES
from detrame.experiments.results import Result, stored
from detrame.experiments.spread import NBSP, plus_minus
from detrame.training import Recipe, Scores, find, train
from tests.training import tiny

KEYS = {
    *("model", "dataset", "activation", "paper", "mean", "std", "n", "epochs", "parameters", "hardware"),
    *("train_s_per_image", "test_s_per_image", "paper_train_s_per_image", "paper_test_s_per_image"),
}


def result(recipe: Recipe, last: float, *, train: float = 1e-3, test: float = 1e-2, hardware: str = "here") -> Result:
    timing = {"train_s_per_image_and_epoch": train, "test_s_per_image": test}
    return Result(recipe, {"hardware": hardware}, Scores(last, last, 1, None, 1000, 1.0), [last], timing)


def test_all_methods_have_one_recipe_but_for_the_network() -> None:
    recipes = {method: ddl.recipe_of(method, "cifar10") for method in ddl.METHODS}
    assert {recipe.model for recipe in recipes.values()} == {"plainnet9", "ddl9"}
    assert {recipe.epochs for recipe in recipes.values()} == {ddl.EPOCHS}
    alike = {recipe.replace(model="plainnet9", activation="relu") for recipe in recipes.values()}
    assert alike == {default_recipe("plainnet9", "cifar10", activation="relu", epochs=ddl.EPOCHS)}
    assert ddl.recipe_of("ddl", "digits", epochs=3, seed=2).split_seed == 2


def test_the_paper_s_figures_stand_beside_ours() -> None:
    rows = {row.activation: row for row in ddl.rows([], "cifar10", list(ddl.METHODS))}
    assert [row.n for row in rows.values()] == [0] * len(ddl.METHODS)
    assert {name: row.paper for name, row in rows.items()} == {
        "relu": 90.31,
        "dictionary": 93.04,
        "lista": None,
        "slstm": None,
        "qmetric": 93.05,
    }
    assert (rows["dictionary"].paper_train_s_per_image, rows["dictionary"].paper_test_s_per_image) == (0.2784, 9.40e-2)
    assert rows["qmetric"].paper_train_s_per_image == pytest.approx(7451.42 / 50000)
    # The basis is the one on which the paper's own DDL table has its DeTraMe-Net 12.
    twelve = paper.tables()["time"]["plainnet12"]["train_qmetric"] / ddl.PAPER_IMAGES
    assert twelve == pytest.approx(paper.tables()["ddl_time"]["detrame12"]["train"], rel=1e-3)
    assert all(row.paper is row.paper_test_s_per_image is None for row in ddl.rows([], "digits", list(ddl.METHODS)))


def test_a_row_is_the_seeds_of_one_recipe_and_one_length() -> None:
    recipe = ddl.recipe_of("qmetric", "digits")
    found = [
        result(recipe, 90.0, test=1e-2),
        result(ddl.recipe_of("qmetric", "digits", seed=1), 92.0, test=3e-2, hardware="there"),
        result(ddl.recipe_of("qmetric", "digits", epochs=5), 50.0),
        result(recipe.replace(lr=0.5), 10.0),
        result(ddl.recipe_of("ddl", "digits"), 80.0, test=2.0),
    ]
    short, full = ddl.rows(found, "digits", ["qmetric"])
    assert (short.epochs, short.n, short.mean) == (5, 1, 50.0)
    assert (full.epochs, full.n, full.mean, full.hardware) == (20, 2, 91.0, "here; there")
    assert full.train_s_per_image == pytest.approx(200 * 1e-3)
    assert full.test_s_per_image == pytest.approx(2e-2)
    table = ddl.rows(found, "digits", ["ddl", "qmetric"])
    assert ddl.coding_time_ratios(table) == {"digits": pytest.approx(100)}
    assert ddl.coding_time_ratios(table[:1]) == {}


def test_timing_is_by_the_image(tmp_path: Path) -> None:
    run = train(tiny(epochs=3), tmp_path / "run", device="cpu")
    seconds = ddl.timing(run)
    epochs = [
        run.history[0].seconds,
        *[b.seconds - a.seconds for a, b in zip(run.history, run.history[1:], strict=False)],
    ]
    assert seconds["train_s_per_image_and_epoch"] == pytest.approx(min(epochs) / len(run.dataset().train))
    assert 0 < seconds["test_s_per_image"] < 0.1


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Both tables with networks of a twentieth of the width; the first with three layers in the place of nine."""
    monkeypatch.chdir(tmp_path)

    def quick(model: str, dataset: str, **changes: Any) -> Recipe:
        return default_recipe(model, dataset, **{**changes, "width": 0.05, "batch_size": 128})

    monkeypatch.setattr(ddl, "default_recipe", quick)
    monkeypatch.setattr(ddl, "DEPTH", 3)
    return tmp_path


@pytest.mark.slow
def test_what_is_missing_is_run_timed_and_stored(small: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["reproduce", "ddl", "--dataset", "digits", "--epochs", "1"]
    assert cli.run([*command, "--dry-run", "--json"]) == 0
    listed = [row["run"].split("-width")[0] for row in json.loads(capsys.readouterr().out)]
    plain = [f"digits/plainnet3-{activation}" for activation in ("relu", "lista", "slstm", "qmetric")]
    assert listed == [*plain, "digits/ddl3-dictionary"]
    assert cli.run([*command, "--device", "cpu"]) == 0
    out = capsys.readouterr().out
    assert "ddl3 dictionary " in out
    assert "plainnet3 slstm T=2" in out
    assert "On digits, DDL takes " in out
    assert "On digits, measured on " in out
    assert "The paper's accuracies are those after 200 epochs." in out
    assert all(found.scores.together == 1 for found in stored(small / "results", table="ddl"))
    assert cli.run([*command, "--dry-run"]) == 0
    assert capsys.readouterr().out == "0 of 5 runs are missing\n"
    assert cli.run(["reproduce", "ddl", "--show", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert [row["n"] for row in rows] == [1] * 5
    assert all(set(row) >= KEYS and row["epochs"] == 1 and row["test_s_per_image"] > 0 for row in rows)
    page = report.write(find(small / "runs" / "reproduce" / "ddl"), small / "page.html").read_text()
    assert "DDL" in page


def test_depths_are_run_and_drawn(small: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["reproduce", "depth", "--depths", "3,6", "--methods", "relu,qmetric", "--epochs", "1"]
    assert cli.run([*command, "--dry-run"]) == 0
    assert capsys.readouterr().out.endswith("4 of 4 runs are missing\n")
    assert cli.run([*command, "--device", "cpu", "--seeds", "0,1", "--plot", "depth.svg"]) == 0
    out = capsys.readouterr().out
    assert "Q-Metric, %" in out
    assert "On digits; epochs: 1; width: 0.05 of the published." in out
    drawing = ET.fromstring((small / "depth.svg").read_text())
    text = " ".join(drawing.itertext())
    assert all(word in text for word in ("ReLU", "Q-Metric", "layers", "test accuracy, %"))
    assert cli.run([*command, "--show", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert [(row["depth"], row["activation"], row["n"]) for row in rows] == [
        *[(3, name, 2) for name in ("relu", "qmetric")],
        *[(6, name, 2) for name in ("relu", "qmetric")],
    ]


def test_a_depth_is_one_recipe_for_every_method() -> None:
    recipes = [depth.recipe_of(method, 24, "digits") for method in depth.METHODS]
    assert [recipe.model for recipe in recipes] == ["plainnet24", "plainnet24", "ddl24"]
    assert len({recipe.replace(model="", activation="") for recipe in recipes}) == 1
    assert {recipe.lr for recipe in recipes} == {depth.BUDGETS["digits"]["lr"]}
    assert {depth.recipe_of("qmetric", layers, "cifar10").iterations for layers in depth.DEPTHS} == {2}


def test_what_has_not_run_is_left_blank(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["reproduce", "ddl", "--show", "--results", str(tmp_path)]) == 0
    assert "93.04" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["ddl", "--methods", "lsta"], "unknown method 'lsta': did you mean 'lista'"),
        (["ddl", "--dataset", "svhn"], "unknown data set of this table 'svhn'"),
        (["ddl", "--epochs", "0"], "epochs must be at least 1, got 0"),
        (["depth", "--dataset", "digit"], "did you mean 'digits'"),
        (["depth", "--depths", "3,x"], "--depths takes whole numbers"),
        (["depth", "--depths", "4"], "PlainNet has"),
        (["depth", "--show", "--plot", "depth.png"], "name a file that ends in .svg, got depth.png"),
        (["depth", "--depths", "3,4", "--dry-run"], "PlainNet has 3, 6, 9, 12 or more layers, got 4"),
    ],
)
def test_wrong_arguments(arguments: list[str], complaint: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["reproduce", *arguments]) == 2
    assert complaint in capsys.readouterr().err


ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "ddl.md").read_text()


def line(*cells: str) -> str:
    return f"| {' | '.join(cells)} |"


def figure(value: float | None) -> str:
    return "" if value is None else f"{value:.2g}"


def accuracy(row: ddl.Row | depth.Row) -> str:
    return plus_minus(row.mean, row.std).replace(NBSP, " ")


def ddl_lines() -> list[str]:
    """The page's rows: for every stored length of every method, the paper's figures and ours."""
    known = stored(ROOT / "results", table=ddl.TABLE)
    return [
        line(
            NAMES[row.activation],
            str(row.epochs),
            f"{(row.parameters or 0) / 1e6:.2f}",
            "" if row.paper is None else f"{row.paper:.2f}",
            accuracy(row),
            figure(row.paper_train_s_per_image),
            figure(row.train_s_per_image),
            figure(row.paper_test_s_per_image),
            figure(row.test_s_per_image),
        )
        for dataset in ddl.DATASETS
        for row in ddl.rows(known, dataset, list(ddl.METHODS))
        if row.n
    ]


def depth_lines() -> list[str]:
    rows = depth.rows(stored(ROOT / "results", table=depth.TABLE), "digits", depth.METHODS, depth.DEPTHS)
    measured = dict.fromkeys(row.depth for row in rows if row.n)
    return [line(str(layers), *[accuracy(row) for row in rows if row.depth == layers]) for layers in measured]


@pytest.mark.parametrize("row", [*ddl_lines(), *depth_lines()])
def test_the_page_s_figures_are_those_of_the_stored_runs(row: str) -> None:
    assert row in PAGE


def test_the_page_s_words_are_those_of_the_stored_runs() -> None:
    words = " ".join(PAGE.split())
    known = stored(ROOT / "results", table=ddl.TABLE)
    for dataset, at_test in (("digits", "about {:.0f} times as long"), ("cifar10", "take {:.0f} times as long")):
        rows = {row.activation: row for row in ddl.rows(known, dataset, list(ddl.METHODS)) if row.n}
        assert at_test.format(ddl.coding_time_ratios([*rows.values()])[dataset]) in words
        recipes = {result.environment["commit"][:7] for result in known if result.recipe.dataset == dataset}
        assert all(commit in words for commit in recipes)
    train = [rows[name].train_s_per_image or 0 for name in ("dictionary", "qmetric")]
    assert f"and {train[0] / train[1]:.0f} times in training" in words
    means = [row.mean or 0 for row in rows.values()]
    assert f"the five methods are within {math.ceil(max(means) - min(means))} points" in words


@pytest.mark.parametrize("name", ["coding", "coding-h200", "coding-h200-16"])
def test_the_coding_times_are_the_stored_ones(name: str) -> None:
    found = json.loads((ROOT / "results" / f"{name}.json").read_text())
    case = found["cases"][0]
    assert (case["patches"], case["size"], case["atoms"]) == (10_000, 64, 128)
    assert max(case["difference"].values()) < 1e-8
    cells = [found["device"], found["hardware"], str(found["threads"]), f"{case['seconds']['detrame']:.3f}"]
    for rival in ("scikit-learn", "spams"):
        there = rival in case["seconds"]
        cells += [f"{case['seconds'][rival]:.3f}", f"{case['times_as_fast_as'][rival]:.1f}"] if there else ["", ""]
    assert line(*cells) in PAGE
    assert found["commit"][:7] in PAGE


def test_the_coding_speeds_in_words_are_the_stored_ones() -> None:
    cpu, gpu, gpu_16 = (
        json.loads((ROOT / "results" / f"{name}.json").read_text())["cases"][0]["times_as_fast_as"]
        for name in ("coding", "coding-h200", "coding-h200-16")
    )
    words = " ".join(PAGE.split())
    on_cpu = (
        "On a CPU, ours is {scikit-learn:.1f} times as fast as scikit-learn, and {spams:.1f} times as fast as spams"
    )
    assert on_cpu.format(**cpu) in words
    speeds = gpu["scikit-learn"], gpu_16["scikit-learn"]
    assert "{:.0f} times as fast as scikit-learn with one thread of that machine, and {:.0f}".format(*speeds) in words
