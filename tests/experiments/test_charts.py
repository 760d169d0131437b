"""The charts as pure functions: well-formed for whatever data, and true to them."""

import math
import re
from importlib import resources
from itertools import pairwise
from xml.etree import ElementTree

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from detrame.experiments.report import axes, charts, pictures, svg
from detrame.experiments.report.charts import Series, bar_chart, dot_chart, histogram, line_chart
from detrame.experiments.report.html import standalone

SVG = "{http://www.w3.org/2000/svg}"


def parsed(markup: str) -> ElementTree.Element:
    """The element, after a look for coordinates that are none."""
    assert not re.search(r'[" ](nan|inf|-inf)\b', markup)
    return ElementTree.fromstring(markup)


def lines(*series: Series, log: bool = False) -> ElementTree.Element:
    return parsed(line_chart(series, title="t", x_label="epoch", y_label="%", log=log))


def texts(root: ElementTree.Element, kind: str) -> list[str]:
    return [e.text or "" for e in root.iter(f"{SVG}text") if kind in (e.get("class") or "").split()]


@pytest.mark.parametrize("log", [False, True])
@pytest.mark.parametrize(
    "series",
    [
        [],
        [Series("empty", [], [])],
        [Series("one epoch", [1], [97.0])],
        [Series("constant", range(1, 5), [50.0] * 4, [50.0] * 4, [50.0] * 4)],
        [Series("zero", range(1, 4), [0.0] * 3)],
        [Series("short", [1, 2], [1.0, 2.0]), Series("long", range(1, 300), [float(i) for i in range(1, 300)])],
        [Series("tiny", [1, 2, 3], [1.0, 1e-30, 0.0])],
    ],
    ids=lambda series: series[0].name if series else "none",
)
def test_a_line_chart_of_anything_is_well_formed(series: list[Series], log: bool) -> None:
    lines(*series, log=log)


def test_a_line_goes_through_its_points() -> None:
    root = lines(Series("a", [1, 2, 3], [0.0, 10.0, 5.0], [0.0, 8.0, 4.0], [0.0, 12.0, 6.0]))
    (path,) = [e for e in root.iter(f"{SVG}path") if "line" in (e.get("class") or "").split()]
    points = [tuple(map(float, p.split())) for p in (path.get("d") or "").removeprefix("M").split("L")]
    (_, first), (_, second), (_, third) = points
    assert second < third < first  # upwards is up
    assert third - second == pytest.approx((first - second) / 2, abs=0.11)
    tooltips = [e.text for e in root.iter(f"{SVG}title")]
    assert tooltips == [
        "epoch 1\na: 0.0 (0.0 to 0.0)",
        "epoch 2\na: 10.0 (8.0 to 12.0)",
        "epoch 3\na: 5.0 (4.0 to 6.0)",
    ]
    assert texts(root, "end")[-1] == "epoch"


def test_series_are_told_apart_by_more_than_colour() -> None:
    root = lines(*[Series(f"s{i}", [1, 2], [float(i), 1.0]) for i in range(4)])
    dashes = {e.get("stroke-dasharray") for e in root.iter(f"{SVG}path") if e.get("stroke-dasharray")}
    assert len(dashes) == 4
    assert texts(root, "name") == ["s0", "s1", "s2", "s3"]


def test_a_long_legend_wraps_and_a_long_name_is_cut() -> None:
    root = lines(*[Series("x" * 100 + str(i), [1], [1.0]) for i in range(3)])
    names = texts(root, "name")
    assert all(len(name) == charts.LONGEST for name in names)
    assert len({e.get("y") for e in root.iter(f"{SVG}text") if e.get("class") == "name"}) == 3


def test_names_are_escaped() -> None:
    markup = line_chart(
        [Series("<script>", [1], [1.0]), Series('"&', [1], [1.0])], title='"><script>', x_label="<", y_label="&"
    )
    assert "<script" not in markup
    assert texts(parsed(markup), "name") == ["<script>", '"&']


def test_many_points_have_no_markers() -> None:
    assert not list(lines(Series("a", range(100), [1.0] * 100)).iter(f"{SVG}circle"))
    assert len(list(lines(Series("a", range(9), [1.0] * 9)).iter(f"{SVG}circle"))) == 9


def bars(*series: tuple[str, list[float]], categories: int = 2) -> ElementTree.Element:
    names = [str(i + 1) for i in range(categories)]
    return parsed(bar_chart(names, series, title="t", x_label="layer", y_label="%", top_value=100))


def test_bars_are_as_high_as_their_values() -> None:
    root = bars(("a", [50.0, 100.0]), ("b", [0.0]))
    heights = [float(e.get("height") or 0) for e in root.iter(f"{SVG}rect") if e.find(f"{SVG}title") is not None]
    assert heights == pytest.approx([charts.NORMAL.plot_height / 2, charts.NORMAL.plot_height, 0])
    assert texts(root, "value") == ["50", "100", "0"]


def test_bars_of_nothing_and_of_many() -> None:
    bars(categories=0)
    assert not texts(bars(("a", [1.0] * 40), ("b", [2.0] * 40), categories=40), "value")


def test_a_histogram_counts() -> None:
    root = parsed(histogram([0.0, 0.01, 0.5, 1.0, 7.0], high=1, title="t"))
    told = [e.text for e in root.iter(f"{SVG}title")]
    assert told == ["0 to 0.05: 2", "0.5 to 0.55: 1", "0.95 to 1: 1"]


def test_histograms_of_degenerate_data() -> None:
    parsed(histogram([], high=1, title="t"))
    assert len(list(parsed(histogram([0.0] * 5, high=0, title="t")).iter(f"{SVG}title"))) == 1


@given(st.floats(-1e6, 1e6), st.floats(1e-6, 1e6))
def test_ticks_are_few_inside_and_evenly_spaced(low: float, span: float) -> None:
    high = low + span
    if high - low < 1e-9 * abs(low):
        return
    found = svg.ticks(low, high)
    slack = 1e-6 * span + 1e-9 * abs(low)
    assert 1 <= len(found) <= 7
    assert all(low - slack <= tick <= high + slack for tick in found)
    assert np.allclose(np.diff(found, 2), 0, atol=slack)


def test_whole_ticks_are_whole() -> None:
    assert svg.ticks(1, 3, whole=True) == [1, 2, 3]
    assert svg.ticks(0.5, 1.5, whole=True) == [1]


def test_decades() -> None:
    assert svg.decades(1e-2, 10) == pytest.approx([1e-2, 1e-1, 1, 10])
    assert len(svg.decades(1e-9, 1)) <= 6


def test_bounds_are_never_empty() -> None:
    assert svg.bounds([]) == pytest.approx((-0.05, 1.05))
    assert svg.bounds([3.0]) == (2.5, 3.5)
    assert svg.bounds([math.nan, 1.0, 2.0]) == pytest.approx((0.95, 2.05))


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (0.0, "0"),
        (97.5, "97.5"),
        (-0.64, "\N{MINUS SIGN}0.64"),
        (0.1, "0.1"),
        (1e-9, "10⁻⁹"),
        (2e6, "2·10⁶"),
        (-1e-5, "\N{MINUS SIGN}10⁻⁵"),
    ],
)
def test_numbers_are_short(value: float, said: str) -> None:
    assert svg.number(value) == said


def test_standalone_figures_keep_their_content() -> None:
    root = parsed(standalone(histogram([0.5], high=1, title="t")))
    assert [child.tag for child in root][:2] == [f"{SVG}style", f"{SVG}rect"]
    assert (root.get("viewBox") or "").startswith("-14 -14 304 ")


def test_colour_maps_reach_from_end_to_end() -> None:
    pixels = pictures.coloured(np.array([-5.0, 0.0, 1.0, 9.0]), 0, 1, ("#000000", "#ff8000"))
    assert pixels.tolist() == [[0, 0, 0], [0, 0, 0], [255, 128, 0], [255, 128, 0]]
    assert pictures.coloured(np.zeros(1), 0, 0, ("#000000", "#ffffff")).tolist() == [[0, 0, 0]]


def test_pictures_of_grey_and_colour_images() -> None:
    for channels in (1, 3):
        image = torch.zeros(channels, 4, 5, dtype=torch.uint8)
        assert pictures.photograph(image).startswith("data:image/png;base64,")


def test_a_coupling_of_nothing_is_drawn() -> None:
    parsed(pictures.coupling_map(torch.zeros(4, 4), 0.0, title="t"))
    parsed(pictures.filter_tiles(torch.zeros(2, 3, 1, 1), title="t"))


def contrast(first: str, second: str) -> float:
    """The contrast ratio of WCAG 2."""

    def luminance(colour: str) -> float:
        parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
        red, green, blue = (p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts)
        return 0.2126 * red + 0.7152 * green + 0.0722 * blue

    dark, light = sorted((luminance(first), luminance(second)))
    return (light + 0.05) / (dark + 0.05)


def test_every_colour_of_text_can_be_read_in_both_modes() -> None:
    style = (resources.files("detrame.experiments.report") / "chart.css").read_text()
    light, dark = style.split("prefers-color-scheme: dark")
    for mode in (light, dark):
        colours = dict(re.findall(r"--(\w+): (#\w{6});", mode))
        for name in ("ink", "muted", *[f"s{i}" for i in range(charts.COLOURS)]):
            for ground in ("paper", "card"):
                assert contrast(colours[name], colours[ground]) >= 4.5, f"{name} on {ground}"


def test_dots_lie_where_their_values_are_on_a_logarithmic_axis() -> None:
    series = [("ours", [1.0, 10.0]), ("paper", [10**0.5, 1.0])]
    root = parsed(dot_chart(["resnet8", "a & b"], series, title="t", x_label="ratio"))
    told = {group[0].text: group[1] for group in root.iter(f"{SVG}g")}
    left, right = (
        float(told[f"{name}, ours: {value}"].get("cx", "nan")) for name, value in (("resnet8", 1), ("a & b", 10))
    )
    middle = [float(x) for x in re.findall(r"[ML]([\d.]+) ", told["resnet8, paper: 3.16"].get("d", ""))]
    assert sum(middle) / len(middle) == pytest.approx((left + right) / 2, abs=0.1)
    assert left < right
    assert texts(root, "name") == ["ours", "paper"]
    assert texts(root, "tick") == ["resnet8", "a & b", "1", "2", "5", "10"]
    many = parsed(dot_chart(["x"], [("y", [0.02]), ("z", [3000.0])], title="t", x_label="ms"))
    assert texts(many, "middle") == ["0.01", "1", "100", "10000"]
    assert parsed(dot_chart([], [], title="t", x_label="ms")) is not None


def test_an_axis_of_accuracies_is_even_in_the_logarithm_of_the_error() -> None:
    axis = axes.accuracies("%", [35.0, 95.0])
    assert axis.at(90) - axis.at(80) == pytest.approx(axis.at(95) - axis.at(90))
    assert 0 < axis.at(35) < axis.at(95) < 1
    assert 90 in axis.ticks
    assert all(b - a >= axes.CLOSEST for a, b in pairwise(map(axis.at, axis.ticks)))
    assert math.isfinite(axes.accuracies("%", [100.0, 99.0]).at(100.0))
    assert axes.accuracies("%", [90.0]).at(90.0) == pytest.approx(0.5)


def test_an_axis_of_counts_is_written_in_millions() -> None:
    axis = axes.millions("parameters", [9e4, 5e6])
    assert [axis.text(tick) for tick in axis.ticks] == ["0.1M", "0.2M", "0.5M", "1M", "2M", "5M"]
    assert axis.at(1e6) - axis.at(1e5) == pytest.approx(axis.at(2e6) - axis.at(2e5))


def test_a_series_over_seeds_is_their_mean_within_their_range() -> None:
    series = Series.over_epochs("s", [[1.0, 4.0], [3.0, 8.0]])
    assert (list(series.x), series.y, series.low, series.high) == ([1, 2], [2, 6], [1, 4], [3, 8])
    assert not Series.over_epochs("s", [[1.0, 4.0]]).low


def test_curves_have_the_looks_they_are_given_and_small_ones_no_tooltips() -> None:
    series = [Series("a", [1, 2], [1.0, 2.0], look=charts.Look(2)), Series("b", [1, 2], [2.0, 1.0])]
    x, y = axes.whole("epoch", [1, 2]), axes.straight("%", [1.0, 2.0])
    root = parsed(charts.curves(series, x, y, title="t", small=True))
    drawn = [(e.get("class"), e.get("stroke-dasharray")) for e in root.iter(f"{SVG}path") if e.get("stroke-dasharray")]
    assert set(drawn) == {("line s2", charts.DASHES[2]), ("line s1", charts.DASHES[1])}
    assert root.get("viewBox", "").split()[2] == f"{charts.SMALL.width}"
    assert not list(root.iter(f"{SVG}title"))
    assert len(list(parsed(charts.curves(series, x, y, title="t")).iter(f"{SVG}title"))) == 2
