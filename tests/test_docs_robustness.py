"""What docs/robustness.md shows is true: its Python runs, its commands exist, its figures are the stored ones."""

import json
import math
import re
import shlex
from pathlib import Path

import numpy as np
import pytest

from detrame import cli
from detrame.experiments.reproduction.evidence import Gain, ours
from detrame.experiments.robustness.stored import stored
from detrame.experiments.robustness.tables import Row, rows
from detrame.experiments.spread import Spread

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "robustness.md").read_text()
LONGER = "longer steps are no better"
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


WORDS = " ".join(PAGE.split())
NAMES = {"plainnet9": "PlainNet 9", "resnet20": "ResNet 20", "wideresnet16_8": "WideResNet 16-8"}
UNIVERSAL = ("uap", "uap-gradient")
RESULTS = ROOT / "results"
CHANGED, LEFT = {"mean": "changed"}, {"accuracy": "accuracy"}
SHOWN = {"uap": CHANGED, "uap-gradient": CHANGED | LEFT, "noise": CHANGED | LEFT, "pgd": LEFT, "autoattack": LEFT}


def measured(attack: str, model: str) -> dict[str, dict[tuple[str, float | None], Row]]:
    """The rows of each activation under one attack, by the strength of it in rising order."""
    found = sorted(rows(stored(RESULTS, attack)), key=lambda row: row.pixels or row.noise_ratio or 0)
    return {
        activation: {
            (row.unit, row.radius or row.noise_ratio): row
            for row in found
            if (row.model, row.activation) == (model, activation)
        }
        for activation in ("relu", "qmetric")
    }


def table_lines() -> list[str]:
    """The rows, and before each table's the names of its columns."""
    lines = []
    for model, name in NAMES.items():
        for attack, scores in SHOWN.items():
            found = measured(attack, model)
            for score, what in scores.items():
                rows_of = {key: row for key, row in found["relu"].items() if attack != "noise" or key[0] == "pixels"}
                cells = [
                    " / ".join(f"{getattr(at[key], score):.1f}" if key in at else "-" for at in found.values())
                    for key in rows_of
                ]
                if cells:
                    strengths = [
                        f"{255 * row.pixels if row.pixels else row.noise_ratio:.3g}" for row in rows_of.values()
                    ]
                    lines.append(f"| network | attack | percent | {' | '.join(strengths).replace('12.8', '12.75')} |")
                    lines.append(f"| {name} | {attack} | {what} | {' | '.join(cells)} |")
    return [*dict.fromkeys(lines)]


@pytest.mark.parametrize("line", table_lines())
def test_the_tables_are_those_of_the_stored_measurements(line: str) -> None:
    assert line in PAGE


def test_the_paper_s_row_in_words() -> None:
    shares = {}
    for attack in UNIVERSAL:
        found = measured(attack, "wideresnet16_8")
        both = {unit: [at[unit, 0.05] for at in found.values()] for unit in ("normalised", "pixels")}
        shares[attack] = {unit: qmetric.mean / relu.mean for unit, (relu, qmetric) in both.items()}
        if attack == "uap":
            relu, qmetric = both["normalised"]
            assert f"({relu.mean:.2f} ± {relu.std:.2f} and {qmetric.mean:.2f} ± {qmetric.std:.2f} %)" in WORDS
            below = Gain(relu.mean / 2, ours(relu).error / 2) - ours(qmetric)
            assert 0 < below.mean < 2 * below.error, "less than half, but not beyond two standard errors"
    assert f"fooled {shares['uap']['normalised']:.2f} times as often as the ReLU one" in WORDS
    assert f"and {shares['uap']['pixels']:.2f} times as often at the larger" in WORDS
    by_gradient = f"{shares['uap-gradient']['normalised']:.2f} times as often at the smaller"
    assert f"By it, the Q-Metric WideResNet is fooled {by_gradient}" in WORDS
    assert shares["uap-gradient"]["pixels"] == pytest.approx(1, abs=0.02)


def test_the_readme_s_figures() -> None:
    readme = (ROOT / "README.md").read_text()
    by_deepfool, by_gradient = (measured(attack, "wideresnet16_8").values() for attack in UNIVERSAL)
    batched = "one perturbation for all images, the paper's method in batches"
    stronger = "the same, by a stronger attack of ours"
    for name, found, unit, radius in (
        (batched, by_deepfool, "normalised", "0.05 normalised, about 3/255"),
        (stronger, by_gradient, "normalised", "0.05 normalised, about 3/255"),
        (stronger, by_gradient, "pixels", "12.75/255"),
    ):
        changed = [f"{at[unit, 0.05].mean:.1f}" for at in found]
        assert f"| {name} | {radius} | predictions changed | {' | '.join(changed)} |\n" in readme
    left = left_by("autoattack", "wideresnet16_8")
    for place, radius in ((0, "1/255"), (2, "4/255")):
        accuracies = [f"{accuracy[place]:.1f}" for accuracy in left]
        assert f"| AutoAttack on each of 1,000 images | {radius} | accuracy | {' | '.join(accuracies)} |\n" in readme
    clean = [f"{at['pixels', 0.05].clean:.1f}" for at in by_deepfool]
    assert f"| none | | accuracy | {' | '.join(clean)} |\n" in readme


def test_how_much_larger_a_radius_it_takes() -> None:
    for model, said in (
        ("wideresnet16_8", "1.4 times as large against the Q-Metric WideResNet"),
        ("resnet20", "1.65 times as large against ResNet 20"),
    ):
        relu, qmetric = (list(at.values()) for at in measured("uap-gradient", model).values())
        for row in relu:
            if row.pixels is not None and 2 / 255 <= row.pixels <= 4 / 255:
                as_often = np.interp(row.mean, [one.mean for one in qmetric], [one.pixels or 0 for one in qmetric])
                assert float(said.split()[0]) == pytest.approx(as_often / row.pixels, abs=0.04)
        assert said in WORDS


def test_at_how_many_strengths_noise_changes_less() -> None:
    errors = []
    for model in NAMES:
        relu, qmetric = measured("noise", model).values()
        for key, row in relu.items():
            error = math.hypot(row.std or 0, qmetric[key].std or 0) / math.sqrt(row.n)
            errors.append((row.mean - qmetric[key].mean) / error)
    assert f"at {sum(error > 2 for error in errors)} of {len(errors)} strengths" in WORDS
    assert min(errors) > -2


def test_accuracies_on_unchanged_images() -> None:
    for model, name in NAMES.items():
        clean = [next(iter(at.values())).clean for at in measured("noise", model).values()]
        assert f"| {name} | {clean[0]:.2f} / {clean[1]:.2f} |\n" in PAGE


def test_what_is_said_of_the_stronger_attacks() -> None:
    for model in NAMES:
        by_deepfool, by_gradient = (measured(attack, model) for attack in UNIVERSAL)
        for activation, rates in by_deepfool.items():
            for key, row in rates.items():
                if (row.pixels or 0) > 3.1 / 255 or model != "plainnet9":
                    assert by_gradient[activation][key].mean > row.mean
    by_deepfool, by_gradient = (measured(attack, "plainnet9") for attack in UNIVERSAL)
    for key, row in by_deepfool["relu"].items():
        if row.position > 5.9:
            assert by_deepfool["qmetric"][key].mean < 0.7 * row.mean
            assert by_gradient["qmetric"][key].mean >= by_gradient["relu"][key].mean


def left_by(attack: str, model: str) -> tuple[list[float], list[float]]:
    """The accuracies of a network at 1, 2, 4 and 8/255, ReLU and Q-Metric."""
    relu, qmetric = ([row.accuracy for row in at.values()] for at in measured(attack, model).values())
    return relu, qmetric


def test_what_is_said_of_autoattack() -> None:
    by_auto = {model: left_by("autoattack", model) for model in NAMES}
    for model, where in (("wideresnet16_8", "on WideResNet 16-8"), ("resnet20", "on ResNet 20")):
        relu, qmetric = by_auto[model]
        assert f"{qmetric[0]:.1f} against {relu[0]:.1f} % {where}" in WORDS
        assert qmetric[0] - relu[0] > 2 * chance(relu[0], qmetric[0])
    relu, qmetric = by_auto["plainnet9"]
    assert abs(qmetric[0] - relu[0]) < chance(relu[0], qmetric[0])
    assert relu[1] - qmetric[1] > 2 * chance(relu[1], qmetric[1])
    assert max(left[2] for both in by_auto.values() for left in both) < 2
    assert max(left[3] for both in by_auto.values() for left in both) == 0


def chance(*percent: float) -> float:
    """The standard error of the difference of two shares of 1,000 images."""
    return math.sqrt(sum(share * (100 - share) for share in percent) / 1000)


def test_pgd_flatters_the_q_metric_networks() -> None:
    for model in NAMES:
        relu, qmetric = (
            pgd[1] - auto[1] for pgd, auto in zip(left_by("pgd", model), left_by("autoattack", model), strict=True)
        )
        assert relu < 5
        assert 9.5 <= qmetric < 15.5
    relu_left, qmetric_left = left_by("pgd", "plainnet9")
    assert relu_left[1] < qmetric_left[1]


def test_all_checks_hold_but_the_youngest() -> None:
    found = stored(RESULTS, "pgd")
    assert len(found) == 6
    assert all(one.checks for one in found)
    assert all(check.holds for one in found for check in one.checks)
    assert LONGER not in {check.name for one in found for check in one.checks}


def test_what_longer_steps_leave_is_what_was_stored() -> None:
    measured = json.loads((RESULTS / "checks.json").read_text())["measured"]
    (relu, usual), (qmetric, plain) = (
        [f"{figures[name]:.1f}" for name in ("PGD, steps 4 times as long", "PGD, 40 steps")]
        for one in measured
        for figures in [check["figures"] for check in one["checks"] if check["name"] == LONGER]
    )
    assert (
        f"longer steps leave {relu} % with ReLU where PGD leaves {usual}, "
        f"and {qmetric} % with Q-Metric where PGD leaves {plain}" in WORDS
    )
    assert [check["name"] for one in measured for check in one["checks"] if not check["holds"]] == [LONGER] * 2
    assert all(one["environment"]["commit"][:7] in PAGE for one in measured)


def test_the_seconds_of_crafting_are_the_stored_ones() -> None:
    found = {
        (one.attack, one.activation): one
        for attack in UNIVERSAL
        for one in stored(RESULTS, attack)
        if one.model == "wideresnet16_8"
    }
    for form, attack in (("`uap`, DeepFool inside", "uap"), ("`uap-gradient`", "uap-gradient")):
        seconds = [f"{found[attack, activation].seconds:.0f}" for activation in ("relu", "qmetric")]
        assert f"| {form} | {' | '.join(seconds)} |\n" in PAGE
    for one in found.values():
        assert len(one.figures) == 40
        assert one.settings.crafting == one.settings.images == 10_000


def test_the_page_says_which_commit_measured_what() -> None:
    for attack in (*UNIVERSAL, "noise", "pgd", "autoattack"):
        for one in stored(RESULTS, attack):
            if one.model == "wideresnet16_8" and one.activation == "relu" and attack in (*UNIVERSAL, "noise"):
                what = "universal perturbations and noise, WideResNet 16-8 with ReLU"
            elif attack == "autoattack" or (attack, one.model) == ("pgd", "plainnet9"):
                what = "AutoAttack on all networks; PGD on PlainNet 9"
            else:
                what = "all else"
            assert f"| {what} | {one.environment['commit'][:7]} |" in PAGE
            assert one.environment["hardware"] in PAGE
