"""Trained networks under attack, from the command line to the page: small real runs on digits."""

import json
import shutil
from dataclasses import replace
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
import torch

from detrame import cli, inference
from detrame.errors import Failure
from detrame.experiments import networks, paper
from detrame.experiments.networks import Network, named, trained, twin
from detrame.experiments.results import result_name
from detrame.experiments.robustness import (
    Measured,
    Settings,
    Subject,
    lacking,
    measure,
    page,
    tables,
)
from detrame.experiments.robustness.measure import Figure
from detrame.experiments.robustness.stored import path_of, read, store, stored
from detrame.inference import accuracy, fooling_rate
from detrame.models import pretrained_names
from detrame.robustness.trust import checks
from detrame.training import Run, train
from detrame.training.files import write_tensors
from tests.training import tiny

SMALL = Settings(crafting=60, images=80, seeds=(0, 1), passes=2)
OPTIONS = ["--crafting", "60", "--images", "80", "--passes", "1", "--device", "cpu"]


@pytest.fixture(scope="module")
def network(runs: dict[str, list[Run]]) -> Network:
    return named(str(runs["qmetric"][0].path))[0]


@pytest.fixture(scope="module")
def measured(network: Network) -> Measured:
    balls = [network.ball(radius, unit) for radius, unit in ((0.05, "pixels"), (0.3, "pixels"), (0.5, "normalised"))]
    return Subject(network, SMALL, "cpu").attack("uap-gradient", balls)


def test_scores_have_one_definition() -> None:
    before, after = torch.eye(4), torch.eye(4)[[0, 1, 3, 2]]
    assert fooling_rate(before, after) == 50
    assert accuracy(after, torch.arange(4)) == 50


def test_networks_by_name(runs: dict[str, list[Run]], tmp_path: Path) -> None:
    (packaged,) = named("resnet8:qmetric")
    assert (packaged.recipe.model, packaged.recipe.activation, packaged.recipe.dataset) == (
        "resnet8",
        "qmetric",
        "cifar10",
    )
    assert packaged.label == "resnet8 qmetric"
    assert len(named(str(runs["relu"][0].path.parent))) == 5
    with pytest.raises(ValueError, match=r"unknown trained network of the package .*: did you mean 'resnet8:relu'\?"):
        named("resnet8:rleu")
    with pytest.raises(
        ValueError, match=r"the package has no trained resnet56:relu, only .*: train it, and name its run"
    ):
        named("resnet56:relu")
    for name in ("resnet8", "runs/nowhere"):
        with pytest.raises(
            ValueError, match=f"{name} is neither a folder of runs nor .* which has plainnet3:qmetric, "
        ):
            named(name)


def test_the_run_of_the_paper_s_recipe_comes_before_the_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = trained("resnet8", "cifar10", "relu", tmp_path)
    assert found is not None
    assert found.source == "the package"
    assert trained("wideresnet16_8", "cifar10", "relu", tmp_path) is None
    recipe = tiny(epochs=1, normalise=False)
    monkeypatch.setattr(networks, "default_recipe", lambda model, dataset, activation: recipe)
    assert trained("plainnet3", "digits", "qmetric", tmp_path) is None
    train(recipe, tmp_path / result_name(recipe), device="cpu")
    found = trained("plainnet3", "digits", "qmetric", tmp_path)
    assert found is not None
    assert found.source == str(tmp_path / result_name(recipe))
    assert found.normalisation == ((0.0,), (1.0,))  # its units are pixels


def test_the_twin_is_the_relu_network_of_the_same_kind() -> None:
    qmetric, relu, other = (named(name)[0] for name in ("resnet8:qmetric", "resnet8:relu", "resnet20:relu"))
    assert twin(qmetric, [qmetric, other, relu]) is relu
    assert twin(relu, [qmetric, relu]) is None


def test_a_network_s_own_normalisation_is_its_unit(network: Network) -> None:
    mean, std = network.normalisation
    assert mean == pytest.approx(network.dataset.mean)
    assert std == pytest.approx(network.dataset.std)
    assert network.ball(0.5, "normalised").pixels == pytest.approx(0.5 * std[0])


def test_larger_radii_fool_more_and_leave_less(measured: Measured) -> None:
    assert [(figure.radius, figure.seed) for figure in measured.figures][:3] == [(0.05, 0), (0.05, 1), (0.3, 0)]
    weak, strong, _ = tables.rows([measured])
    assert weak.mean < strong.mean
    assert strong.accuracy < weak.accuracy <= measured.clean
    assert (strong.n, strong.paper) == (2, None)
    assert measured.perturbations is not None
    assert measured.perturbations[1].abs().max() <= 0.3 + 1e-6
    for place, image, before, after in measured.changed:
        assert before != after
        assert place in (0, 1, 2)
        assert image < 898


def test_tables_stand_in_order_of_strength(measured: Measured) -> None:
    rows = tables.rows([measured, measured])
    as_measured, in_order = ([row.position for row in found] for found in (rows, tables.weakest_first(rows)))
    assert as_measured != in_order == sorted(as_measured)
    assert tables.measured_on(rows) == f"Measured on {rows[0].hardware} at commit {rows[0].commit}"
    two = [replace(rows[0], commit=commit) for commit in ("a", "b", "a")]
    assert tables.measured_on(two) == f"Measured on {rows[0].hardware} at commits a, b"


def test_a_measurement_comes_back_whole(measured: Measured, tmp_path: Path) -> None:
    path = store(measured, tmp_path)
    assert path == tmp_path / "robustness" / "uap-gradient" / "digits" / "plainnet3-qmetric.json"
    (again,) = stored(tmp_path, "uap-gradient")
    assert again == measured
    assert again.perturbations is not None
    assert measured.perturbations is not None
    assert torch.allclose(again.perturbations, measured.perturbations, atol=1e-3)
    path.with_suffix(".safetensors").unlink()
    assert read(path).perturbations is None
    path.write_text(path.read_text().replace('"precision"', '"digits"'))
    with pytest.raises(Failure, match=r"is not a measurement \(it lacks 'precision'\)"):
        read(path)


def test_no_figure_is_in_half_precision(network: Network, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(device: torch.device) -> None:
        raise AssertionError(device)

    monkeypatch.setattr(inference, "precision", refused)
    subject = Subject(network, Settings(crafting=4, images=4, seeds=(0,), passes=1), "cpu")
    found = [subject.attack(name, [network.ball(0.1, "pixels")]) for name in ("uap", "pgd")]
    assert {one.settings.precision for one in [*found, subject.noise([0.1], ["pixels"])]} == {"float32"}


def test_noise_in_both_units(network: Network) -> None:
    found = Subject(network, SMALL, "cpu").noise([0.0, 0.5], ["pixels", "normalised"])
    rows = tables.rows([found])
    assert [(row.unit, row.noise_ratio) for row in rows] == [
        (unit, ratio) for unit in ("pixels", "normalised") for ratio in (0.0, 0.5)
    ]
    assert rows[0].mean == rows[2].mean == 0
    assert rows[1].mean > 0
    assert "radius" not in rows[0].document()
    assert rows[1].strength == "rho 0.5 of pixels"


def figures(measured: Measured, attack: str, radius: float, unit: str, norm: str = "inf") -> Measured:
    changes: dict[str, Any] = {"model": "wideresnet16_8", "dataset": "cifar10", "attack": attack}
    figure = Figure(unit, 0, 10.0, 90.0, radius, norm, radius, radius)
    return Measured(**(vars(measured) | changes | {"figures": [figure]}))


def test_the_paper_s_row_at_both_readings_of_its_radius(measured: Measured) -> None:
    cases = [
        ("uap", 0.05, "pixels"),
        ("uap", 0.05, "normalised"),
        ("uap", 0.04, "pixels"),
        ("uap-gradient", 0.05, "pixels"),
    ]
    rows = tables.rows(figures(measured, *case) for case in cases)
    assert [(row.paper, row.paper_std) for row in rows] == [(6.78, 0.73), (6.78, 0.73), (None, None), (None, None)]
    (other,) = tables.rows([figures(measured, "uap", 0.05, "pixels", "2")])
    assert other.paper is None
    keys = {"model", "dataset", "activation", "radius", "paper", "mean", "std", "n"}
    assert keys <= set(rows[0].document())


def test_which_networks_the_paper_s_figures_take(tmp_path: Path) -> None:
    assert ("resnet20", "cifar10", "relu") in tables.cases(None, None, tmp_path)  # the deepest that is trained
    assert {model for model, *_ in tables.cases("svhn", None, tmp_path)} == {"wideresnet16_8"}
    assert tables.cases("cifar10", ["resnet8"], tmp_path) == [("resnet8", "cifar10", a) for a in ("relu", "qmetric")]
    with pytest.raises(ValueError, match="did you mean 'cifar10'"):
        tables.cases("cifar1", None, tmp_path)


def test_the_radii_of_a_network() -> None:
    (network,) = named("resnet8:relu")
    balls = tables.balls(network)
    assert len(tables.RADII) >= 6
    assert [(ball.radius, ball.unit) for ball in balls[-2:]] == [(0.05, "pixels"), (0.05, "normalised")]
    assert balls[-1].pixels == pytest.approx(3.2 / 255, rel=0.01)
    assert balls[-2].pixels == pytest.approx(12.75 / 255)


@pytest.fixture
def on_digits(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, runs: dict[str, list[Run]]) -> Path:
    """The paper's tables, as if they were about the small runs on digits."""
    monkeypatch.chdir(tmp_path)
    cell = {"relu": 90.0, "qmetric": 91.0, "iterations": 2}
    xi = {"xi": 0.1, "relu": 18.0, "qmetric": 7.0}
    table = {"accuracy": {"plainnet3": {"digits": cell}}, "uap": {"wideresnet16_8": {"digits": xi}}}
    monkeypatch.setattr(paper, "tables", lambda: table)
    networks = {activation: named(str(runs[activation][0].path))[0] for activation in ("relu", "qmetric")}

    def found(model: str, dataset: str, activation: str, folder: Path) -> Network | None:
        there = folder == Path("runs/reproduce/accuracy")  # where `detrame reproduce accuracy` trains
        return networks[activation] if there and model == "plainnet3" else None

    for module in ("detrame.experiments.networks", "detrame.experiments.robustness.tables"):
        monkeypatch.setattr(f"{module}.trained", found)
    monkeypatch.setattr(tables, "RADII", (0.05,))
    monkeypatch.setattr(tables, "NOISE_RATIOS", (0.01, 0.1))
    monkeypatch.setattr(tables, "FIGURES", {"digits": ("plainnet3", "wideresnet16_8")})
    return tmp_path


def test_reproduce_uap(on_digits: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = ["--seeds", "0,1", *OPTIONS]
    assert cli.run(["reproduce", "uap", "--budget", "1e-9", *options]) == 1
    told = capsys.readouterr().err
    assert "stopped after 1e-09 minutes: run the same command again to continue; left: 4 measurements\n" in told
    assert told.endswith("`detrame reproduce uap` measures it\n"), "nothing could be shown"
    assert cli.run(["reproduce", "uap", "--dry-run", *options]) == 0
    captured = capsys.readouterr()
    assert "that are missing: 4\n" in captured.out
    assert "wideresnet16_8 relu on digits is not trained: `detrame reproduce accuracy" in captured.err
    for attack, activation in product(tables.UAP, ("relu", "qmetric")):
        file = path_of(Path("results"), attack, "digits", "wideresnet16_8", activation)
        file.parent.mkdir(parents=True, exist_ok=True)
        file.touch()
    assert cli.run(["reproduce", "uap", "--dry-run", *options]) == 0
    assert capsys.readouterr().err == "", "of a network of which all is stored"
    shutil.rmtree("results")
    assert cli.run(["reproduce", "uap", "--out", "uap.html", *options]) == 0
    out = capsys.readouterr().out
    assert "plainnet3 qmetric on digits, uap-gradient:" in out
    assert Path("uap.html").exists()
    assert cli.run(["reproduce", "uap", "--dry-run", "--json", *options]) == 0
    assert json.loads(capsys.readouterr().out) == []
    assert cli.run(["reproduce", "uap", "--show", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert len(rows) == 2 * 2 * 3
    assert {(row["attack"], row["n"]) for row in rows} == {("uap", 2), ("uap-gradient", 2)}
    for smaller, told in ((["--crafting", "50"], "60 crafting images, more than 50"), (["--seeds", "0"], "2 seeds")):
        assert cli.run(["reproduce", "uap", *options, *smaller]) == 1
        assert f"was measured with {told}" in capsys.readouterr().err
    keys = {"model", "dataset", "activation", "radius", "unit", "paper", "mean", "std", "n"}
    assert all(keys <= set(row) and row["paper"] is None for row in rows)
    assert cli.run(["reproduce", "uap", "--show", "--models", "plainnet6", "--json"]) == 2


def test_reproduce_attacks(
    on_digits: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(measure, "checks", partial(checks, queries=20))
    monkeypatch.setattr(tables, "EACH_IMAGE", ("pgd", "deepfool"))  # in place of AutoAttack, which takes minutes
    monkeypatch.setattr(tables, "EACH_IMAGE_RADII", (0.05, 0.2))
    assert cli.run(["reproduce", "attacks", "--show"]) == 1
    assert "results has no results" in capsys.readouterr().err
    options = ["--images", "8", "--device", "cpu"]
    assert cli.run(["reproduce", "attacks", "--out", "attacks.html", *options]) == 0
    text, progress = capsys.readouterr()
    assert "\npgd on plainnet3 qmetric ...\n" in progress
    assert "plainnet3 relu on digits, pgd:" in text
    assert text.count("an attack on the twin is no better") == 1  # the ReLU network has none
    assert "an attack on the twin is no better" in Path("attacks.html").read_text()
    assert cli.run(["reproduce", "attacks", "--dry-run", *options]) == 0
    assert "that are missing: 0\n" in capsys.readouterr().out
    for found in stored(Path("results"), "pgd"):
        names = [check.name for check in found.checks]
        assert len(set(names)) == len(names) == {"relu": 4, "qmetric": 7}[found.activation]
    assert all(not found.checks for found in stored(Path("results"), "deepfool"))
    assert cli.run(["reproduce", "attacks", "--show", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    checked = {(row["activation"], row["attack"], row["radius"]): len(row["checks"]) for row in rows if row["checks"]}
    assert checked == {("relu", "pgd", 0.05): 4, ("qmetric", "pgd", 0.05): 7}
    assert {(row["attack"], row["radius"]) for row in rows} == {
        (a, r) for a in ("pgd", "deepfool") for r in (0.05, 0.2)
    }


def test_a_call_cut_short_loses_one_strength_at_most(
    network: Network, on_digits: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = Settings(crafting=20, images=20, seeds=(0, 1), passes=1)
    run = partial(lacking.run_missing, [network], ["uap-gradient"], settings, on_digits, device="cpu", minutes=1)
    clock = iter([0.0] * 5 + [61.0])  # the second of three radii is not done when the time is over
    monkeypatch.setattr(lacking, "monotonic", lambda: next(clock))
    with pytest.raises(Failure, match="stopped after 1 minute"):
        run()
    assert [figure.radius for figure in stored(on_digits, "uap-gradient")[0].figures] == [0.05, 0.05]
    assert len(lacking.missing([network], ["uap-gradient"], settings, on_digits)) == 1
    monkeypatch.setattr(lacking, "monotonic", lambda: 0.0)
    with patch.object(Subject, "attack", autospec=True, side_effect=Subject.attack) as attack:
        run()
    assert [call.args[2] for call in attack.call_args_list] == [
        [network.ball(0.1, "pixels")],
        [network.ball(0.1, "normalised")],
    ]
    (found,) = stored(on_digits, "uap-gradient")
    whole = Subject(network, settings, "cpu").attack("uap-gradient", tables.balls(network))
    assert (found.figures, found.changed) == (whole.figures, whole.changed)
    assert found.perturbations is not None
    assert whole.perturbations is not None
    assert torch.allclose(found.perturbations, whole.perturbations, atol=1e-3)
    other = replace(network, source="another run")
    assert len(lacking.missing([network, other], ["uap-gradient"], settings, on_digits)) == 1


def test_a_gpu_has_all_radii_as_one_job() -> None:
    strengths = [("pixels", 0.1), ("pixels", 0.2), ("normalised", 0.1)]
    assert lacking._jobs(strengths, "uap", "cuda:0") == [strengths]
    assert (
        lacking._jobs(strengths, "uap", "cpu") == lacking._jobs(strengths, "noise", "cuda") == [[s] for s in strengths]
    )


@pytest.mark.parametrize("jobs", [1, 3])
def test_jobs_do_not_change_the_figures(
    jobs: int, on_digits: Path, network: Network, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = Settings(crafting=40, images=60, seeds=(0, 1), passes=1)
    monkeypatch.setattr(lacking, "_jobs", lambda strengths, *_: [strengths[k::jobs] for k in range(jobs)])
    lacking.run_missing([network], ["uap-gradient"], settings, on_digits, device="cpu")
    (found,) = stored(on_digits, "uap-gradient")
    whole = Subject(network, settings, "cpu").attack("uap-gradient", tables.balls(network))
    assert sorted(map(str, found.figures)) == sorted(map(str, whole.figures))


def test_other_settings_are_another_measurement(on_digits: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["reproduce", "noise", "--images", "50", "--seeds", "0", "--device", "cpu"]) == 0
    assert "rho 0.01 of pixels" in capsys.readouterr().out
    assert cli.run(["reproduce", "noise", "--images", "40", "--seeds", "0", "--device", "cpu"]) == 1
    assert "was measured with 50 test images, more than 40: store a smaller trial elsewhere" in capsys.readouterr().err
    (relu, _) = stored(Path("results"), "noise")
    assert relu.activation == "relu", "it comes first"
    for images, left in (("50", 0), ("60", 2)):
        assert cli.run(["reproduce", "noise", "--images", images, "--seeds", "0", "--dry-run"]) == 0
        assert f"that are missing: {left}\n" in capsys.readouterr().out
    assert cli.run(["reproduce", "noise", "--show", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert {row["noise_ratio"] for row in rows} == {0.01, 0.1}
    assert path_of(Path("results"), "noise", "digits", "plainnet3", "relu").exists()


def test_what_is_stored_says_how_many_images_there_were(on_digits: Path, network: Network) -> None:
    settings = Settings(images=5000, seeds=(0,))
    lacking.run_missing([network], ["noise"], settings, on_digits, device="cpu")
    (found,) = stored(on_digits, "noise")
    assert found.settings.images == len(network.dataset.test) < 5000
    assert not lacking.missing([network], ["noise"], settings, on_digits)


def test_a_kill_between_figures_and_perturbations_does_no_harm(measured: Measured, tmp_path: Path) -> None:
    file = store(measured, tmp_path)
    assert measured.perturbations is not None
    whole = measured.perturbations
    for written, kept in ((whole.repeat(2, 1, 1, 1), len(whole)), (whole[:0], None)):
        write_tensors(file.with_suffix(".safetensors"), {"perturbations": written}, {})
        found = read(file).perturbations
        assert (None if found is None else len(found)) == kept
        page.write([read(file)], tmp_path / "page.html")


def test_attack_several_networks_side_by_side(
    runs: dict[str, list[Run]], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    paths = [str(runs[activation][0].path) for activation in ("relu", "qmetric")]
    out = tmp_path / "page.html"
    strength = ["--radius", "0.1,4/16", "--unit", "pixels", "--noise", "0.1"]
    assert cli.run(["attack", *paths, *strength, "--seeds", "0,1", "--out", str(out), *OPTIONS]) == 0
    text, told = capsys.readouterr()
    networks, attacks = ("plainnet3 relu", "plainnet3 qmetric"), ("uap", "uap-gradient", "noise")
    assert told.splitlines() == [f"{attack} on {network} ..." for network in networks for attack in attacks]
    assert "plainnet3 qmetric" in text
    assert "63.75/255, " in text
    assert "\nMeasured on " in text
    assert text.splitlines()[-1] == str(out)
    html = out.read_text()
    assert html.count("<svg") == 4  # of one noise ratio there is no curve
    assert "Perturbation of radius 25.5/255" in html
    assert len(list((tmp_path / "page_figures").glob("*.svg"))) == 4
    assert cli.run(["attack", paths[0], *strength, "--attacks", "uap-sequential", "--json", *OPTIONS]) == 0
    text, told = capsys.readouterr()
    assert told == ""
    assert [one["attack"] for one in json.loads(text)["measured"]] == ["uap-sequential", "noise"]


def test_an_interruption_keeps_what_is_finished(
    runs: dict[str, list[Run]], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "page.html"
    arguments = ["attack", str(runs["relu"][0].path), "--radius", "0.1", "--unit", "pixels", "--noise", "0.01"]
    arguments += ["--attacks", "uap-gradient", *OPTIONS]
    with patch.object(Subject, "noise", side_effect=KeyboardInterrupt):
        assert cli.run([*arguments, "--out", str(out)]) == 130
        assert capsys.readouterr().out.endswith("cut short: 1 of 2 measurements are left\n")
        assert "uap-gradient" in out.read_text()
        assert "measurements left: 1" in out.read_text()
        assert cli.run([*arguments, "--json"]) == 130
    found = json.loads(capsys.readouterr().out)
    assert ([one["attack"] for one in found["measured"]], found["left"]) == (["uap-gradient"], 1)


def test_several_runs_of_one_network_are_told_apart(
    runs: dict[str, list[Run]], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("first", "second"):
        shutil.copytree(runs["relu"][0].path, tmp_path / name)
    paths = [str(tmp_path / name) for name in ("first", "second")]
    arguments = ["--noise", "0.1", "--unit", "pixels", "--images", "8", "--device", "cpu"]
    other = str(runs["qmetric"][0].path)
    assert cli.run(["attack", *paths, other, *arguments, "--out", str(tmp_path / "page.html")]) == 0
    lines = [line.strip() for line in capsys.readouterr().out.splitlines()]
    for label in ("plainnet3 relu first  ", "plainnet3 relu second  ", "plainnet3 qmetric  "):
        assert sum(line.startswith(label) for line in lines) == 1
    assert "plainnet3 relu second" in (tmp_path / "page.html").read_text()
    assert cli.run(["attack", *paths, paths[0] + "/", *arguments]) == 2
    assert f"names plainnet3 relu first on digits from {paths[0]} twice" in capsys.readouterr().err


def test_a_page_that_cannot_be_written_is_found_before_attacking(
    runs: dict[str, list[Run]], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("detrame.experiments.robustness.Subject", lambda *arguments: pytest.fail("it attacked"))
    arguments = ["attack", str(runs["relu"][0].path), "--noise", "0.1", "--unit", "pixels", "--out", "/proc/page.html"]
    assert cli.run(arguments) == 1
    assert capsys.readouterr().err.startswith("detrame: cannot write /proc/page.html (")
    assert cli.run(["reproduce", "uap", "--out", "/proc/page.html"]) == 1
    assert capsys.readouterr().err.startswith("detrame: cannot write /proc/page.html (")


def test_more_images_than_there_are(runs: dict[str, list[Run]], capsys: pytest.CaptureFixture[str]) -> None:
    there = len(runs["relu"][0].dataset().test)
    arguments = ["attack", str(runs["relu"][0].path), "--noise", "0.1", "--unit", "pixels", "--images", "5000"]
    assert cli.run([*arguments, "--device", "cpu"]) == 0
    assert f"on digits, measured on all {there} test images: there are no more" in capsys.readouterr().out
    assert cli.run([*arguments, "--json", "--device", "cpu"]) == 0
    assert json.loads(capsys.readouterr().out)["measured"][0]["settings"]["images"] == there


def test_attack_each_image_and_check(
    runs: dict[str, list[Run]], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(measure, "checks", partial(checks, queries=20))
    paths = [str(runs[activation][0].path) for activation in ("relu", "qmetric")]
    arguments = ["attack", *paths, "--radius", "0.05", "--unit", "pixels", "--attacks", "pgd", "--check"]
    assert cli.run([*arguments, "--images", "8", "--device", "cpu"]) == 0
    text = capsys.readouterr().out
    assert "plainnet3 relu on digits: " in text
    assert "an attack on the twin is no better" in text
    assert "through 4 iterations" in text


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["--radius", "8/255"], "--radius needs its unit: --unit pixels for pixels in [0, 1]"),
        (["--noise", "0.1", "--unit", "pixels", "--check"], "--check needs --radius"),
        (["--noise", "0.1", "--unit", "pixels", "--attacks", "pgd"], "--attacks needs --radius"),
        (["--radius", "0.1", "--unit", "pixels", "--attacks", ""], "--attacks takes names separated by commas, got ''"),
        (["--noise", "0.1"], "--noise needs its unit"),
        (["--radius", "0.1", "--unit", "normalised", "--attacks", "uap,pgd"], "take a radius in pixels: give --unit"),
        (["--radius", "0.1", "--unit", "normalised", "--check"], "take a radius in pixels: give --unit pixels"),
        ([], "how strong an attack? give --radius"),
        (["--radius", "8/0", "--unit", "pixels"], "--radius takes numbers or fractions"),
        (["--radius", "0.1", "--unit", "px"], "unknown unit of a radius 'px'"),
        (["--radius", "0.1", "--unit", "pixels", "--norm", "1"], "unknown norm '1': choose from inf, 2"),
        (["--radius", "0.1", "--unit", "pixels", "--attacks", "uap,pdg"], "unknown attack 'pdg': did you mean 'pgd'"),
        (["--radius", "0.1", "--unit", "pixels", "--seeds", "0,0"], "--seeds names 0 twice"),
        (["--radius", "0.1", "--unit", "pixels", "--seeds", "-1"], "--seeds takes numbers >= 0, got -1"),
        (["--radius", "0.1,1/10", "--unit", "pixels"], "--radius names 0.1 twice"),
        (["--noise", "0.1,0.1", "--unit", "pixels"], "--noise names 0.1 twice"),
        (["--radius", "0.1", "--unit", "pixels", "--attacks", "pgd,pgd"], "--attacks names pgd twice"),
        (["--radius", "8", "--unit", "pixels"], "pixels are in [0, 1]; did you mean 8/255?"),
        (["--radius", "0.1", "--unit", "pixels", "--images", "0"], "images must be at least 1"),
        (["--radius", "0.1", "--unit", "pixels", "--target", "0"], "target must be a percentage"),
        (["--radius", "0.1", "--unit", "pixels", "--overshoot", "-1"], "overshoot must be at least 0"),
        (["--radius", "0.1", "--noise", "-1", "--unit", "pixels"], "--noise takes numbers >= 0, such as 0.01; got -1"),
        (["--noise", "0.1,nan", "--unit", "pixels"], "--noise takes numbers >= 0, such as 0.01; got 0.1,nan"),
    ],
)
def test_wrong_arguments(
    runs: dict[str, list[Run]], arguments: list[str], complaint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.run(["attack", str(runs["relu"][0].path), *arguments]) == 2
    captured = capsys.readouterr()
    assert complaint in captured.err
    assert captured.err.count("\n") == 1


def test_a_page_needs_something_to_show_and_a_place(measured: Measured, tmp_path: Path) -> None:
    with pytest.raises(Failure, match="nothing has been measured yet"):
        page.write([], tmp_path / "page.html")
    with pytest.raises(Failure, match="is a folder: name the file"):
        page.write([measured], tmp_path)


def test_the_package_has_the_networks_that_examples_name() -> None:
    assert {"plainnet9-relu-cifar10", "plainnet9-qmetric-cifar10", "resnet8-qmetric-cifar10"} <= set(pretrained_names())
