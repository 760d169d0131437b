"""Charts as SVG: pure functions from figures to markup. Colours and fonts are those of chart.css.

A series is told from another by colour and by line style and marker (or, for bars, by filling).
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

from markupsafe import Markup

from detrame.experiments.report.axes import Axis, powers, straight, whole
from detrame.experiments.report.svg import Scale, linear, number, tag, ticks

LEFT, RIGHT, BOTTOM = 46, 12, 44
ROW = 22  # of a chart with a name a row
LINE, CHARACTER = 20, 7.2  # the height of a line of text, and a wide guess at the width of a character
DASHES = ("none", "7 4", "2 3", "9 3 2 3")
CORNERS = (  # of the markers after the circle: square, diamond, triangle
    ((-1, -1), (1, -1), (1, 1), (-1, 1)),
    ((0, -1.4), (1.4, 0), (0, 1.4), (-1.4, 0)),
    ((0, -1.3), (1.3, 1), (-1.3, 1)),
)
COLOURS = 6
LONGEST = 46  # characters of a name that fit into the legend
BINS = 20  # of a histogram
MANY = 40  # points, from which on a marker for each would be a smear


class Figure(NamedTuple):
    """A chart, what stands above and below it, and the name of its file, where it becomes one."""

    title: str
    svg: Markup
    caption: str = ""
    name: str = ""


class Size(NamedTuple):
    """The width of a chart, and the height of its plot."""

    width: float
    plot_height: float

    @property
    def height(self) -> float:
        """Of the whole chart, without a legend."""
        return _top(0) + self.plot_height + BOTTOM


NORMAL = Size(400, 180)
SMALL = Size(276, 152)  # four in a row


class Look(NamedTuple):
    """How a series is drawn: which colour, line and marker (or filling), by its place, and whether hollow and thin."""

    place: int
    hollow: bool = False


@dataclass(frozen=True)
class Series:
    """A named line, with a band from `low` to `high` where there is one; it looks as its place has it, unless told."""

    name: str
    x: Sequence[float]
    y: Sequence[float]
    low: Sequence[float] = ()
    high: Sequence[float] = ()
    look: Look | None = None

    @classmethod
    def over_seeds(cls, name: str, at: Mapping[float, Sequence[float]], look: Look | None = None) -> "Series":
        """The mean of the seeds' figures at each x; with several, a band from the lowest to the highest."""
        columns = at.values()
        mean = [sum(column) / len(column) for column in columns]
        if all(len(column) == 1 for column in columns):
            return cls(name, [*at], mean, look=look)
        return cls(name, [*at], mean, [min(column) for column in columns], [max(column) for column in columns], look)

    @classmethod
    def over_epochs(cls, name: str, histories: Sequence[Sequence[float]], look: Look | None = None) -> "Series":
        """The same epoch by epoch, of some histories of one length."""
        return cls.over_seeds(name, dict(enumerate(zip(*histories, strict=True), start=1)), look)


class Plot(NamedTuple):
    """Where the data go: the scales, the top and bottom they map to, and the right end of the axes."""

    x: Scale
    y: Scale
    top: float
    bottom: float
    right: float = NORMAL.width - RIGHT


def line_chart(
    series: Sequence[Series],
    *,
    title: str,
    x_label: str,
    y_label: str,
    log: bool = False,
    digits: int = 1,
) -> Markup:
    """Lines with their bands over whole numbers (epochs, iterations); hovering tells the figures of a column."""
    xs = [x for one in series for x in one.x]
    values = [value for one in series for value in (*one.y, *one.low, *one.high)]
    y = powers(y_label, values) if log else straight(y_label, values)
    return curves(series, whole(x_label, xs), y, title=title, digits=digits)


def curves(
    series: Sequence[Series],
    x: Axis,
    y: Axis,
    *,
    title: str,
    digits: int = 2,
    small: bool = False,
) -> Markup:
    """Lines with their bands on any axes; hovering tells the figures of a column, unless the chart is a small one."""
    size = SMALL if small else NORMAL
    looks = [one.look or Look(place) for place, one in enumerate(series)]
    rows, legend = _legend([one.name for one in series], looks, _line_sample, size.width)
    top, right = _top(rows), size.width - RIGHT
    bottom = top + size.plot_height
    plot = Plot(
        lambda value: linear(0, 1, LEFT + 6, right - 6)(x.at(value)),
        lambda value: linear(0, 1, bottom, top)(y.at(value)),
        top,
        bottom,
        right,
    )
    return frame(
        title,
        legend,
        _y_axis(plot, y.ticks, y.label),
        _x_axis(plot, [(tick, x.text(tick)) for tick in x.ticks], x.label),
        *[_line(one, look, plot) for one, look in zip(series, looks, strict=True)],
        *([] if small else _columns(series, plot, x, digits)),
        height=bottom + BOTTOM,
        width=size.width,
    )


def bar_chart(
    categories: Sequence[str],
    series: Sequence[tuple[str, Sequence[float]]],
    *,
    title: str,
    x_label: str,
    y_label: str,
    top_value: float,
) -> Markup:
    """Bars from 0 to `top_value`, grouped by category; a series may be shorter than the categories."""
    looks = [Look(place) for place in range(len(series))]
    rows, legend = _legend([name for name, _ in series], looks, _bar_sample, NORMAL.width)
    top = _top(rows)
    bottom = top + NORMAL.plot_height
    count = max(1, len(categories))
    plot = Plot(linear(0, count, LEFT, NORMAL.width - RIGHT), linear(0, top_value, bottom, top), top, bottom)
    slot = (NORMAL.width - LEFT - RIGHT) / count
    width = min(44.0, 0.72 * slot / max(1, len(series)))
    bars = [
        _bar(looks[place], plot, plot.x(index + 0.5) + width * (place - len(series) / 2), width, value, name, category)
        for place, (name, values) in enumerate(series)
        for index, (category, value) in enumerate(zip(categories, values, strict=False))
    ]
    every = math.ceil(count / 12)
    labels = [(index + 0.5, label) for index, label in enumerate(categories) if index % every == 0]
    axes = _y_axis(plot, ticks(0, top_value), y_label), _x_axis(plot, labels, x_label)
    return frame(title, legend, *axes, *bars, height=bottom + BOTTOM)


def histogram(values: Sequence[float], *, high: float, title: str, place: int = 0) -> Markup:
    """How many channels have a value in each of 20 equal parts of [0, high]; values outside are left out."""
    high = high if high > 0 else 1.0
    counts = [0] * BINS
    for value in values:
        if 0 <= value <= high:
            counts[min(BINS - 1, int(BINS * value / high))] += 1
    top, right = _top(0), SMALL.width - RIGHT
    bottom = top + SMALL.plot_height
    most = max(1, *counts)
    plot = Plot(linear(0, high, LEFT, right), linear(0, 1.05 * most, bottom, top), top, bottom, right)
    step = high / BINS
    bars = [
        tag(
            "rect",
            tag("title", f"{i * step:.3g} to {(i + 1) * step:.3g}: {count}"),
            class_=f"bar {_colour(place)}",
            x=plot.x(i * step) + 0.5,
            y=plot.y(count),
            width=plot.x(step) - plot.x(0) - 1,
            height=bottom - plot.y(count),
        )
        for i, count in enumerate(counts)
        if count
    ]
    x_ticks = [(tick, number(tick)) for tick in ticks(0, high, at_most=5)]
    y_ticks = ticks(0, 1.05 * most, at_most=5, whole=True)
    axes = _y_axis(plot, y_ticks, "channels"), _x_axis(plot, x_ticks, "value")
    return frame(title, *axes, *bars, width=SMALL.width, height=SMALL.height)


def dot_chart(
    names: Sequence[str], series: Sequence[tuple[str, Sequence[float]]], *, title: str, x_label: str
) -> Markup:
    """One row a name, one marker a series in it, on a logarithmic axis of positive values."""
    looks = [Look(place) for place in range(len(series))]
    rows, legend = _legend([name for name, _ in series], looks, _marker_sample, NORMAL.width)
    axis = powers(x_label, [value for _, values in series for value in values], finer=True)
    left, right = 10 + CHARACTER * max(map(len, names), default=0), NORMAL.width - RIGHT
    top = 10.0 + LINE * (rows + 1)
    bottom = top + ROW * len(names)
    across = linear(0, 1, left, right)
    parts = [tag("text", name, class_="tick", x=0, y=top + ROW * (i + 0.5) + 4) for i, name in enumerate(names)]
    for tick in axis.ticks:
        x = across(axis.at(tick))
        parts.append(tag("line", class_="grid", x1=x, x2=x, y1=top, y2=bottom))
        parts.append(tag("text", axis.text(tick), class_="tick middle", x=x, y=bottom + 17))
    for look, (what, values) in zip(looks, series, strict=True):
        for i, (name, value) in enumerate(zip(names, values, strict=True)):
            told = tag("title", f"{name}, {what}: {value:.3g}")
            parts.append(tag("g", told, _marker(look, across(axis.at(value)), top + ROW * (i + 0.5))))
    parts.append(tag("text", axis.label, class_="label end", x=right, y=bottom + 36))
    return frame(title, legend, *parts, height=bottom + BOTTOM)


def frame(title: str, *children: object, height: float, width: float = NORMAL.width) -> Markup:
    """The SVG element around a chart, named for those who do not see it."""
    return tag(
        "svg",
        *children,
        xmlns="http://www.w3.org/2000/svg",
        class_="chart",
        viewBox=f"0 0 {width:g} {height:g}",
        role="img",
        aria_label=title,
    )


def _top(rows: int) -> float:
    return 30.0 + LINE * rows


def _y_axis(plot: Plot, at: Iterable[float], label: str) -> Markup:
    """The label above the axis, and a hairline for each tick."""
    parts = [tag("text", label, class_="label", x=0, y=12)]
    for tick in at:
        y = plot.y(tick)
        parts.append(tag("line", class_="grid", x1=LEFT, x2=plot.right, y1=y, y2=y))
        parts.append(tag("text", number(tick), class_="tick end", x=LEFT - 8, y=y + 4))
    return Markup("").join(parts)


def _x_axis(plot: Plot, at: Iterable[tuple[float, str]], label: str) -> Markup:
    y = plot.bottom
    parts = [tag("line", class_="axis", x1=LEFT, x2=plot.right, y1=y, y2=y)]
    parts += [tag("text", text, class_="tick middle", x=plot.x(tick), y=y + 17) for tick, text in at]
    parts.append(tag("text", label, class_="label end", x=plot.right, y=y + 36))
    return Markup("").join(parts)


def _line(series: Series, look: Look, plot: Plot) -> Markup:
    at = [plot.x(x) for x in series.x]
    parts = []
    if series.low:
        edge = [
            *zip(at, map(plot.y, series.high), strict=True),
            *reversed([*zip(at, map(plot.y, series.low), strict=True)]),
        ]
        parts.append(tag("path", class_=f"band {_colour(look.place)}", d=_path(edge) + "Z"))
    points = [(x, plot.y(y)) for x, y in zip(at, series.y, strict=True)]
    if points:
        parts.append(_stroke(look, _path(points)))
    if len(points) <= MANY:
        parts += [_marker(look, x, y) for x, y in points]
    return Markup("").join(parts)


def _stroke(look: Look, path: str) -> Markup:
    dashes = DASHES[look.place % len(DASHES)]
    return tag("path", class_=f"line {_drawn(look)}", d=path, stroke_dasharray=dashes)


def _path(points: Iterable[tuple[float, float]]) -> str:
    return "M" + "L".join(f"{x:.1f} {y:.1f}" for x, y in points)


def _marker(look: Look, x: float, y: float) -> Markup:
    """A circle, a square, a diamond or a triangle."""
    name = f"marker {_drawn(look)}"
    shape = look.place % len(DASHES)
    if shape == 0:
        return tag("circle", class_=name, cx=x, cy=y, r=2.6)
    return tag("path", class_=name, d=_path((x + 2.5 * dx, y + 2.5 * dy) for dx, dy in CORNERS[shape - 1]) + "Z")


def _columns(series: Sequence[Series], plot: Plot, axis: Axis, digits: int) -> list[Markup]:
    """One invisible strip for each x, with the figures there as its tooltip."""
    xs = sorted({x for one in series for x in one.x})
    at = [plot.x(x) for x in xs]
    edges = [LEFT, *[(a + b) / 2 for a, b in pairwise(at)], plot.right]
    told = [_told(one, digits) for one in series]
    return [
        tag(
            "rect",
            tag("title", "\n".join([f"{axis.label} {axis.text(x)}", *[one[x] for one in told if x in one]])),
            class_="column",
            x=float(edges[i]),
            y=plot.top,
            width=float(edges[i + 1] - edges[i]),
            height=plot.bottom - plot.top,
        )
        for i, x in enumerate(xs)
    ]


def _told(series: Series, digits: int) -> dict[float, str]:
    told = {}
    for i, (x, y) in enumerate(zip(series.x, series.y, strict=True)):
        spread = f" ({series.low[i]:.{digits}f} to {series.high[i]:.{digits}f})" if series.low else ""
        told[x] = f"{series.name}: {y:.{digits}f}{spread}"
    return told


def _bar(look: Look, plot: Plot, x: float, width: float, value: float, name: str, category: str) -> Markup:
    y = plot.y(value)
    told = tag("title", f"{name}, {category}: {value:.1f}")
    bar = tag(
        "rect", told, class_=f"bar {_filling(look)}", x=x + 1, y=y, width=max(0.5, width - 2), height=plot.bottom - y
    )
    text = tag("text", f"{value:.0f}", class_="value middle", x=x + width / 2, y=y - 5) if width > 20 else Markup("")
    return bar + text


def _legend(
    names: Sequence[str], looks: Sequence[Look], sample: Callable[[Look, float, float], Markup], across: float
) -> tuple[int, Markup]:
    """Names with their samples, set in as many rows as they need; none for a single name."""
    if len(names) < 2:
        return 0, Markup("")
    parts: list[Markup] = []
    x, row = 0.0, 0
    for name, look in zip(names, looks, strict=True):
        short = name if len(name) <= LONGEST else f"{name[: LONGEST - 1]}…"
        width = 43 + CHARACTER * len(short)
        if x and x + width > across:
            x, row = 0.0, row + 1
        y = 34 + LINE * row
        parts += [sample(look, x, y - 4), tag("text", short, class_="name", x=x + 35, y=y)]
        x += width + 8
    return row + 1, Markup("").join(parts)


def _line_sample(look: Look, x: float, y: float) -> Markup:
    return _stroke(look, _path([(x, y), (x + 29, y)])) + _marker(look, x + 14.5, y)


def _marker_sample(look: Look, x: float, y: float) -> Markup:
    return _marker(look, x + 25, y)


def _bar_sample(look: Look, x: float, y: float) -> Markup:
    return tag("rect", class_=f"bar {_filling(look)}", x=x + 12, y=y - 6, width=15, height=12)


def _colour(place: int) -> str:
    return f"s{place % COLOURS}"


def _drawn(look: Look) -> str:
    return f"{_colour(look.place)}{' hollow' * look.hollow}"


def _filling(look: Look) -> str:
    return f"{_colour(look.place)}{' hollow' * (look.place % 2 == 0)}"
