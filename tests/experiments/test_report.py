"""The report: its statistics against hand-computed ones, its words, and what stands on the page."""

import dataclasses
import json
import re
import shutil
import statistics
from datetime import date
from html.parser import HTMLParser
from pathlib import Path
from xml.etree import ElementTree

import pytest
import torch

from detrame import training
from detrame.errors import Failure
from detrame.experiments.report import examples, figures, pictures, wording, write
from detrame.experiments.report.groups import Comparison, Difference, Group, compared, difference
from detrame.experiments.spread import Spread
from detrame.inference import LayerCodes, layer_codes, predict
from detrame.training import Recipe, Run, Scores, train
from tests.experiments.conftest import RECIPE

Runs = dict[str, list[Run]]


@dataclasses.dataclass(frozen=True)
class FakeRun(Run):
    """A finished run without files."""

    recipe: Recipe
    scores: Scores


def fake_group(scores: list[float], label: str = "x", place: int = 0, seeds: list[int] | None = None) -> Group:
    chosen = seeds or list(range(len(scores)))
    runs = [
        FakeRun(Path(f"{label}{s}"), RECIPE.replace(seed=s), Scores(score, score, 1, None, 10, 1.0))
        for s, score in zip(chosen, scores, strict=True)
    ]
    return Group(RECIPE, tuple(runs), label, place)


def fake_comparison(*groups: Group) -> Comparison:
    return Comparison("plainnet3", "digits", groups)


class Page(HTMLParser):
    """What a browser would find: text, elements, ids, and the addresses that elements point to."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.text = ""
        self.tags: list[str] = []
        self.ids: list[str] = []
        self.addresses: list[str] = []
        self.attributes: list[tuple[str, dict[str, str | None]]] = []
        self.feed(path.read_text(encoding="utf-8"))
        self.text = " ".join(self.text.split())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes.append((tag, dict(attrs)))
        for name, value in attrs:
            if name == "id":
                self.ids.append(value or "")
            if name in ("src", "href", "xlink:href", "action", "srcset"):
                self.addresses.append(value or "")
            assert not name.startswith("on")

    def handle_data(self, data: str) -> None:
        self.text += data

    def section(self, path: Path, name: str) -> str:
        found = re.search(f'<section id="{name}">(.*?)</section>', path.read_text(encoding="utf-8"), re.DOTALL)
        assert found
        return found[1]


# Statistics


def test_spread_is_the_sample_standard_deviation() -> None:
    spread = Spread.of([1.0, 2.0, 6.0])
    assert spread.mean == 3
    assert spread.std == pytest.approx((4 + 1 + 9) ** 0.5 / 2**0.5)
    assert spread.n == 3
    assert spread.text(1) == "3.0\N{NO-BREAK SPACE}±\N{NO-BREAK SPACE}2.6"
    assert Spread.of([5.0]) == (5, None, 1)
    assert Spread.of([5.0]).text(2) == "5.00"


def test_difference_is_paired_where_the_seeds_are_shared() -> None:
    # The differences are 1, 2, 3: mean 2, standard deviation 1, standard error 1 / sqrt(3).
    gap = difference(fake_group([91, 93, 98]), fake_group([90, 91, 95]))
    assert gap.mean == pytest.approx(2)
    assert gap.error == pytest.approx(1 / 3**0.5)
    assert gap.paired
    assert gap.margin == pytest.approx(4.303 / 3**0.5, rel=1e-4)  # Student's t of two degrees of freedom
    assert not gap.settled
    assert gap._replace(freedom=9).settled  # 2.262 / sqrt(3)
    assert gap._replace(freedom=9, mean=-gap.mean).settled  # whichever of the two is ahead


def test_difference_without_shared_seeds_adds_the_variances() -> None:
    # Variances 2 and 8 of two each: sqrt(2 / 2 + 8 / 2).
    gap = difference(fake_group([90, 92]), fake_group([86, 90], seeds=[5, 6]))
    assert gap.mean == 3
    assert gap.error == pytest.approx(5**0.5)
    assert not gap.paired
    assert gap.freedom == 1
    assert not gap.settled


def test_a_seed_twice_is_not_a_pair() -> None:
    assert not difference(fake_group([90, 92], seeds=[1, 1]), fake_group([86, 90], seeds=[1, 1])).paired


def test_a_single_seed_has_no_error() -> None:
    assert difference(fake_group([90.0]), fake_group([80.0])) == Difference(10, None, paired=True, freedom=0)
    gap = difference(fake_group([90.0]), fake_group([80.0, 81.0]))
    assert gap.error is None
    assert not gap.settled


# Groups


def test_runs_that_differ_in_seeds_are_one_group_and_relu_comes_first(runs: Runs) -> None:
    (comparison,) = compared([*runs["qmetric"][::-1], *runs["relu"], runs["relu"][0]])
    assert comparison.dataset == "digits"
    assert [group.label for group in comparison.groups] == ["ReLU", "Q-Metric"]
    assert [group.seeds for group in comparison.groups] == [[(0, 0), (1, 1)]] * 2
    assert comparison.differing == ["activation", "iterations"]


def labels(*recipes: Recipe) -> list[str]:
    runs = [FakeRun(Path(str(i)), recipe, Scores(1, 1, 1, None, 1, 1)) for i, recipe in enumerate(recipes)]
    for run in runs:
        run.__dict__["history"] = [None] * run.recipe.epochs
    return [group.label for comparison in compared(runs) for group in comparison.groups]


def test_labels_say_as_little_as_it_takes() -> None:
    relu = RECIPE.replace(activation="relu")
    assert labels(relu, relu.replace(iterations=7, seed=3), RECIPE) == ["ReLU", "Q-Metric"]
    assert labels(RECIPE, RECIPE.replace(iterations=5)) == ["Q-Metric (T = 2)", "Q-Metric (T = 5)"]
    assert labels(relu, RECIPE.replace(lr=0.2), RECIPE) == ["ReLU", "Q-Metric (lr = 0.2)", "Q-Metric (lr = 0.05)"]
    assert labels(RECIPE.replace(width=1 / 3), RECIPE.replace(width=0.5))[0] == "Q-Metric (width = 0.333333)"
    assert labels(RECIPE, RECIPE.replace(model="resnet8", lr=0.2)) == ["Q-Metric", "Q-Metric"]
    assert labels(RECIPE, RECIPE.replace(dataset="svhn")) == ["Q-Metric", "Q-Metric"]


# Words


def test_the_headline_names_the_better_one_first() -> None:
    relu, qmetric = fake_group([95.0, 95.4], "ReLU"), fake_group([96.0, 96.3], "Q-Metric", 1)
    said = wording.headline(fake_comparison(relu, qmetric)).replace("\N{NO-BREAK SPACE}", " ")
    assert said == (
        "Q-Metric 96.15 ± 0.21 % against ReLU 95.20 ± 0.28 in plainnet3 on digits, over 2 seeds, same recipe."
    )


def test_the_headline_of_one_and_of_several_and_of_unequal_groups() -> None:
    one, two, three = fake_group([95.0], "A"), fake_group([96.0, 96.0], "B", 1), fake_group([90.0], "C", 2)
    assert (
        wording.headline(fake_comparison(one))
        == "A 95.00\N{NO-BREAK SPACE}% in plainnet3 on digits, with a single seed."
    )
    said = wording.headline(fake_comparison(one, two, three)).replace("\N{NO-BREAK SPACE}", " ")
    assert said == (
        "B 96.00 ± 0.00 % (n = 2) against A 95.00 (n = 1) in plainnet3 on digits, the best two of 3, same recipe."
    )


@pytest.mark.parametrize(
    ("first", "second", "said"),
    [
        ([95.0, 95.2], [96.0, 96.3], "B is ahead of A by 1.05 points, beyond chance: the 95%"),
        ([95.0, 97.0], [96.0, 96.3], "B is ahead of A by 0.15 points, but that is within chance"),
        ([95.0, 95.5], [96.0, 96.5], "B is ahead of A by 1.00 points with every seed alike, which says nothing"),
        ([95.0], [96.0], "a single seed says nothing"),
        ([95.0], [95.0], "A and B are level; a single seed says nothing about how much of that is chance."),
        ([95.0, 96.0], [95.0, 96.0], "A and B are level"),
    ],
)
def test_the_caveat_is_said_when_it_is_due(first: list[float], second: list[float], said: str) -> None:
    assert said in wording.caveats(fake_comparison(fake_group(first, "A"), fake_group(second, "B", 1)))[0]


def test_few_seeds_and_other_differences_are_said() -> None:
    few = fake_group([95.0, 96.0, 97.0])
    assert wording.caveats(fake_comparison(few)) == ["3 seeds give only a rough idea of the spread."]
    assert wording.caveats(fake_comparison(fake_group([95.0]))) == ["A single seed says nothing about the spread."]
    assert not wording.caveats(fake_comparison(fake_group([95.0] * 5)))
    other = dataclasses.replace(few, recipe=RECIPE.replace(lr=0.3))
    assert "differ in lr too" in " ".join(wording.caveats(fake_comparison(few, other)))
    assert "same recipe" not in wording.headline(fake_comparison(few, other))


def test_the_code_to_repeat_a_group_repeats_it(runs: Runs, monkeypatch: pytest.MonkeyPatch) -> None:
    (comparison,) = compared([*runs["relu"], *runs["qmetric"]])
    for group in comparison.groups:
        trained: list[tuple[Recipe, str]] = []
        with monkeypatch.context() as patch:
            patch.setattr(training, "train", lambda recipe, out, trained=trained: trained.append((recipe, out)))
            exec(wording.repeat(group), {})
        wanted = [run.recipe for run in group.runs]
        if not group.recipe.iterates:
            wanted = [recipe.replace(iterations=group.recipe.iterations) for recipe in wanted]
        assert [recipe for recipe, _ in trained] == wanted
        assert len({out for _, out in trained}) == len(group.runs)


def test_commits_are_shortened_and_absent_facts_are_said(runs: Runs) -> None:
    (comparison,) = compared(runs["relu"][:1])
    run = comparison.groups[0].runs[0]
    run.__dict__["environment"] = {"commit": "0123456789abcdef+changes"}
    try:
        facts = dict(wording.facts([comparison], date(2026, 1, 2)))
        assert facts["Commit"] == "0123456+changes"
        assert facts["Hardware"] == "unknown"
        assert facts["Written"] == "2026-01-02"
        assert facts["Runs"] == "1, with seed 0"
        resumed = [{"epoch": 1, "commit": "fedcba9876543210"}, {"epoch": 3, "hardware": "another"}]
        run.__dict__["environment"] = {"commit": "0123456789abcdef", "hardware": "one", "resumed": resumed}
        facts = dict(wording.facts([comparison], date(2026, 1, 2)))
        assert (facts["Commit"], facts["Hardware"]) == ("0123456; fedcba9", "one; another")
        run.__dict__["environment"] = {}
        assert dict(wording.facts([comparison], date(2026, 1, 2)))["Commit"] == "unknown"
    finally:
        del run.__dict__["environment"]


def test_recipe_rows_are_readable() -> None:
    rows = dict(wording.recipe_rows(fake_comparison(fake_group([1.0]))))
    assert rows["lr_milestones"] == ["3"]
    assert rows["normalise"] == ["yes"]
    assert rows["lr"] == ["0.05"]
    assert "seed" not in rows
    relu = dataclasses.replace(fake_group([1.0]), recipe=RECIPE.replace(activation="relu", lr_milestones=()))
    rows = dict(wording.recipe_rows(fake_comparison(relu)))
    assert rows["iterations"] == ["none"]
    assert rows["lr_milestones"] == ["none"]


# The page


def test_every_section_is_there(page: Path) -> None:
    found = Page(page)
    assert found.ids == ["accuracy", "results", "examples", "coupling", "codes", "recipe"]
    assert found.tags.count("h1") == 1
    assert {"ReLU", "Q-Metric"} <= set(re.findall(r"ReLU|Q-Metric", found.text))
    for said in ("The whole run", "The second half", "Layer 1", "Layer 2", "Gain", "Threshold", "Sparsity", "Residual"):
        assert said in found.text


def test_the_figures_are_those_of_the_runs(page: Path, runs: Runs) -> None:
    text = Page(page).text.replace("\N{NO-BREAK SPACE}", " ")
    for group in (runs["relu"], runs["qmetric"]):
        for name in ("last", "best"):
            scores = [getattr(run.scores, name) for run in group]
            assert f"{statistics.fmean(scores):.2f} ± {statistics.stdev(scores):.2f}" in text
        assert f"{group[0].scores.parameters:,}" in text
        assert f"{statistics.fmean(run.scores.seconds for run in group):.1f}" in text
        assert all(str(run.path) in text for run in group)
    gaps = [a.scores.last - b.scores.last for a, b in zip(runs["qmetric"], runs["relu"], strict=True)]
    gap = f"{statistics.fmean(gaps):+.2f}".replace("-", "\N{MINUS SIGN}")
    assert f"{gap} (s.e. {statistics.stdev(gaps) / 2**0.5:.2f}, paired)" in text
    for epoch in range(4):  # the tooltips
        accuracies = [run.history[epoch].test_accuracy for run in runs["relu"]]
        told = f"{statistics.fmean(accuracies):.2f} ({min(accuracies):.2f} to {max(accuracies):.2f})"
        assert f"ReLU: {told}" in text


def test_the_page_stands_alone(page: Path) -> None:
    found = Page(page)
    assert "script" not in found.tags
    assert "link" not in found.tags
    assert found.addresses
    assert all(address.startswith("data:image/png;base64,") for address in found.addresses)
    style = page.read_text(encoding="utf-8").split("<style>")[1].split("</style>")[0]
    assert "url(" not in style
    assert "@import" not in style


def test_the_page_says_what_it_shows(page: Path) -> None:
    found = Page(page)
    attributes = found.attributes
    assert ("html", {"lang": "en"}) in attributes
    assert all(given.get("alt") for tag, given in attributes if tag == "img")
    assert all(given.get("aria-label") for tag, given in attributes if tag == "svg")
    assert "title" in found.tags


def test_the_figures_are_files_too(page: Path) -> None:
    folder = page.parent / "page_figures"
    files = sorted(path.name for path in folder.iterdir())
    assert "accuracy_plainnet3-on-digits.svg" in files
    assert "residual_plainnet3-on-digits_2-qmetric.svg" in files
    assert len(files) == 2 + 2 * 4 + 2
    for name in files:
        root = ElementTree.parse(folder / name).getroot()
        style = root.find("{http://www.w3.org/2000/svg}style")
        assert style is not None
        assert "prefers-color-scheme: dark" in (style.text or "")


def test_charts_of_a_page_before_do_not_stay(runs: Runs, tmp_path: Path) -> None:
    page = write(runs["qmetric"], tmp_path / "page.html")
    folder = tmp_path / "page_figures"
    before = {file.name for file in folder.iterdir()}
    (folder / "mine.svg").write_text('<svg xmlns="http://www.w3.org/2000/svg" width="9"></svg>')
    write(runs["relu"], page)
    after = {file.name for file in folder.iterdir()}
    assert any(name.startswith("coupling") for name in before)
    assert after == {"mine.svg", "sparsity_plainnet3-on-digits.svg"} | {n for n in before if n.startswith("accuracy")}


@pytest.mark.parametrize("highest", [0.0095, 0.95, 9.5e-5, 95000.0])
def test_the_bounds_of_a_scale_are_not_cut(highest: float) -> None:
    svg = ElementTree.fromstring(pictures.filter_tiles(torch.full((2, 2, 3, 3), highest), title=""))
    width = float(svg.attrib["viewBox"].split()[2])
    bounds = [text for text in svg.iter("{http://www.w3.org/2000/svg}text") if text.get("class") == "tick"]
    assert len(bounds) == 2
    for bound in bounds:  # 12 pixels high; in a wide font a digit takes 7.7 of them and a point half of that
        assert float(bound.attrib["x"]) + 7.7 * len(bound.text or "") <= width


def test_examples_are_marked_right_or_wrong(page: Path, runs: Runs) -> None:
    section = Page(page).section(page, "examples")
    dataset = runs["relu"][0].dataset()
    said = [predict(runs[name][0].model, dataset.test.images).argmax(1) for name in ("relu", "qmetric")]
    differ = int((said[0] != said[1]).sum())
    assert f"differ on {differ} of {len(dataset.test)} test images" in section
    assert section.count("<li") == min(differ, 16) > 0
    labels = dataset.test.labels[said[0] != said[1]][:16]
    right = sum(int((one[said[0] != said[1]][:16] == labels).sum()) for one in said)
    assert section.count("✓") == section.count(">right<") == right
    assert section.count("✗") == section.count(">wrong<") == 2 * min(differ, 16) - right


def test_a_page_of_one_run(runs: Runs, tmp_path: Path) -> None:
    found = Page(write(runs["relu"][:1], tmp_path / "one.html"))
    assert "with a single seed" in found.text
    assert "nothing to compare it with" in found.text
    assert "None of these networks has a Q-Metric ReLU" in found.text
    assert "Against" not in found.text


def test_a_page_of_three_groups(runs: Runs, tmp_path: Path) -> None:
    found = Page(write([run for group in runs.values() for run in group], tmp_path / "three.html"))
    assert "the best two of 3" in found.text
    for label in ("ReLU", "Q-Metric (T = 2)", "Q-Metric (T = 3)"):
        assert label in found.text
    assert "differ in epochs too" in found.text
    assert found.text.count("Residual of the iteration") == 2


def test_a_page_of_two_data_sets(runs: Runs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    other = shutil.copytree(runs["relu"][0].path, tmp_path / "other")
    recipe = json.loads((other / "recipe.json").read_text())
    (other / "recipe.json").write_text(json.dumps({**recipe, "dataset": "more digits"}))
    dataset = runs["relu"][0].dataset()
    monkeypatch.setattr(Run, "dataset", lambda run: dataset)
    monkeypatch.setattr("detrame.data.cache.names", lambda: ["more digits"])
    found = Page(write([runs["relu"][0], Run(other)], tmp_path / "two.html"))
    assert found.tags.count("h1") == 1
    assert "on digits, with a single seed." in found.text
    assert "on more digits, with a single seed." in found.text
    assert (tmp_path / "two_figures" / "accuracy_plainnet3-on-more-digits.svg").exists()


def test_each_network_is_compared_with_its_own_twin(runs: Runs, tmp_path: Path) -> None:
    other = [train(RECIPE.replace(model="resnet8", activation=name), tmp_path / name) for name in ("relu", "qmetric")]
    small, wide = compared([*runs["relu"], *other, *runs["qmetric"]])
    assert (small.name, wide.name) == ("plainnet3 on digits", "resnet8 on digits")
    assert [group.recipe.activation for group in wide.groups] == ["relu", "qmetric"]
    assert not set(wide.differing) - {"activation", "iterations"}


def test_everything_is_escaped(runs: Runs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bad = '<script>alert("1")'
    copies = []
    for name in ("relu", "qmetric"):
        copy = shutil.copytree(runs[name][0].path, tmp_path / bad / name)
        environment = json.loads((copy / "environment.json").read_text())
        (copy / "environment.json").write_text(json.dumps({**environment, "hardware": bad, "torch": bad}))
        copies.append(Run(copy))
    dataset = dataclasses.replace(copies[0].dataset(), classes=(bad,) * 10)
    monkeypatch.setattr(Run, "dataset", lambda run: dataset)
    page = write(copies, tmp_path / "page.html")
    found = Page(page)
    assert "script" not in found.tags
    assert "<script" not in page.read_text()
    assert found.text.count(bad) > 4


def test_networks_that_agree_are_said_to(runs: Runs, tmp_path: Path) -> None:
    copy = shutil.copytree(runs["relu"][0].path, tmp_path / "copy")
    recipe = json.loads((copy / "recipe.json").read_text())
    (copy / "recipe.json").write_text(json.dumps({**recipe, "lr": 0.06}))
    (comparison,) = compared([runs["relu"][0], Run(copy)])
    found = examples.disagreement(comparison)
    assert found is not None
    assert "say the same about every one of 898 test images" in found.summary
    assert not found.examples


def test_networks_of_other_splits_are_not_compared_by_image(runs: Runs) -> None:
    (comparison,) = compared([runs["relu"][0], runs["qmetric"][1]])
    found = examples.disagreement(comparison)
    assert found is not None
    assert "share no split" in found.summary


def test_many_test_images_are_not_all_looked_at(runs: Runs, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(examples, "IMAGES", 500)
    (comparison,) = compared([runs["relu"][0], runs["qmetric"][0]])
    found = examples.disagreement(comparison)
    assert found is not None
    assert "the first 500 test images" in found.summary


def test_deep_networks_get_lines_and_a_choice_of_layers(runs: Runs) -> None:
    (comparison,) = compared(runs["qmetric"])
    layers = [LayerCodes(str(i), 0.5, torch.tensor([1.0, 0.1])) for i in range(20)]
    assert 'class="line' in figures.sparsity(comparison, [layers]).svg
    svg = figures.residual(comparison, comparison.groups[0], layers).svg
    assert re.findall(r">layer (\d+)<", svg) == ["1", "5", "9", "12", "16", "20"]


def test_a_short_run_beside_a_long_one_keeps_the_colours(runs: Runs) -> None:
    (comparison,) = compared([*runs["more"], *runs["qmetric"]])
    _, late = figures.accuracy(comparison)
    assert re.findall('class="band (s.)"', late.svg) == ["s1"]
    gone, stays = comparison.groups
    assert gone.label not in late.svg
    assert late.caption.endswith(f" Without {gone.label}, which ended before.")
    _, both = figures.accuracy(dataclasses.replace(comparison, groups=(stays, dataclasses.replace(stays, place=2))))
    assert "Without" not in both.caption
    (short,) = compared(runs["more"])
    assert [figure.name for figure in figures.accuracy(short)] == ["accuracy_plainnet3-on-digits"]


def test_layers_are_numbered_among_all_activations(tmp_path: Path) -> None:
    # A residual network has plain ReLUs between its Q-Metric ones: the numbers must be those of the sparsity's axis.
    run = training.train(RECIPE.replace(model="resnet8", width=0.25, epochs=1), tmp_path / "run", device="cpu")
    page = write([run], tmp_path / "page.html")
    codes = layer_codes(run.model, run.dataset().test.images[:10])
    iterated = [i for i, layer in enumerate(codes, start=1) if len(layer.residuals)]
    assert iterated != list(range(1, len(iterated) + 1))
    assert [int(n) for n in re.findall(r">layer (\d+)<", Page(page).section(page, "codes"))] == iterated
    shown = [int(n) for n in re.findall(r">Layer (\d+)<", Page(page).section(page, "coupling"))]
    assert shown == [iterated[0], iterated[(len(iterated)) // 2], iterated[-1]]


def test_networks_without_activations_have_no_codes(
    runs: Runs, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("detrame.experiments.report.sections.layer_codes", lambda model, images: [])
    assert "no activation whose codes" in Page(write(runs["relu"], tmp_path / "page.html")).text


# What is refused


def test_no_runs_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="at least one run"):
        write([], tmp_path / "page.html")


def test_an_unfinished_run_is_refused(runs: Runs, tmp_path: Path) -> None:
    unfinished = training.plan(RECIPE, tmp_path / "run", device="cpu")
    with pytest.raises(Failure, match="is not finished: continue it with") as failure:
        write([*runs["relu"], unfinished], tmp_path / "page.html")
    assert "\n" not in str(failure.value)
    assert not (tmp_path / "page.html").exists()


def test_a_run_with_epochs_missing_is_refused(runs: Runs, tmp_path: Path) -> None:
    copy = shutil.copytree(runs["relu"][0].path, tmp_path / "copy")
    lines = (copy / "metrics.jsonl").read_text().splitlines(keepends=True)
    (copy / "metrics.jsonl").write_text("".join(lines[:-1]))
    with pytest.raises(
        Failure, match=r"holds 3 of 4 epochs, so it is damaged: delete .*result.json, then .* trains it again"
    ):
        write([Run(copy)], tmp_path / "page.html")


def test_a_place_that_cannot_be_written_is_said(runs: Runs, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(Failure, match=r"cannot write .*page.html"):
        write(runs["relu"], tmp_path / "file" / "page.html")
    (tmp_path / "page.html").mkdir()
    (tmp_path / "other_figures").write_text("")
    with pytest.raises(Failure, match=r"cannot make the folder .*other_figures"):
        write(runs["relu"], tmp_path / "other.html")
    with pytest.raises(Failure, match="is a folder: name the file to write"):
        write(runs["relu"], tmp_path / "page.html")
