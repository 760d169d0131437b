"""Charts as SVG: pure functions from figures to markup. Colours and fonts are those of chart.css.

A series is told from another by colour and by line style and marker (or, for bars, by filling).
"""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

from markupsafe import Markup

from detrame.experiments.report.svg import Scale, bounds, decades, linear, number, standalone, tag, ticks

__all__ = ["Series", "bar_chart", "dot_chart", "frame", "histogram", "line_chart", "standalone"]

WIDTH, PLOT_HEIGHT = 400, 180
SMALL_WIDTH, SMALL_HEIGHT = 276, 226  # four in a row
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
MANY = 40  # points, from which on a marker for each would be a smear
TINY = 1e-9  # a logarithmic axis ends here


@dataclass(frozen=True)
class Series:
    """A named line, with a band from `low` to `high` where there is one."""

    name: str
    x: Sequence[float]
    y: Sequence[float]
    low: Sequence[float] = ()
    high: Sequence[float] = ()


class Plot(NamedTuple):
    """Where the data go: the scales, the top and bottom they map to, and the right end of the axes."""

    x: Scale
    y: Scale
    top: float
    bottom: float
    right: float = WIDTH - RIGHT


def line_chart(
    series: Sequence[Series],
    *,
    title: str,
    x_label: str,
    y_label: str,
    log: bool = False,
    digits: int = 1,
    first_style: int = 0,
) -> Markup:
    """Lines with their bands over whole numbers (epochs, iterations); hovering tells the figures of a column.

    `first_style` is the colour and line of the first series: for lines that must not be taken for groups.
    """
    xs = sorted({x for one in series for x in one.x})
    values = [value for one in series for value in (*one.y, *one.low, *one.high)]
    rows, legend = _legend([one.name for one in series], _line_sample, first_style)
    low, high = _decade_bounds(values) if log else bounds(values)
    left, right = (xs[0], xs[-1]) if len(xs) > 1 else bounds(xs)
    top = _top(rows)
    bottom = top + PLOT_HEIGHT
    x = linear(left, right, LEFT + 6, WIDTH - RIGHT - 6)
    if log:
        straight = linear(math.log10(low), math.log10(high), bottom, top)
        plot = Plot(x, lambda value: straight(math.log10(max(value, low))), top, bottom)
    else:
        plot = Plot(x, linear(low, high, bottom, top), top, bottom)
    return frame(
        title,
        legend,
        _y_axis(plot, decades(low, high) if log else ticks(low, high), y_label),
        _x_axis(plot, [(tick, number(tick)) for tick in ticks(left, right, whole=True)], x_label),
        *[_line(one, place, plot) for place, one in enumerate(series, first_style)],
        *_columns(series, xs, plot, x_label, digits),
        height=bottom + BOTTOM,
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
    rows, legend = _legend([name for name, _ in series], _bar_sample)
    top = _top(rows)
    bottom = top + PLOT_HEIGHT
    count = max(1, len(categories))
    plot = Plot(linear(0, count, LEFT, WIDTH - RIGHT), linear(0, top_value, bottom, top), top, bottom)
    slot = (WIDTH - LEFT - RIGHT) / count
    width = min(44.0, 0.72 * slot / max(1, len(series)))
    bars = [
        _bar(place, plot, plot.x(index + 0.5) + width * (place - len(series) / 2), width, value, name, category)
        for place, (name, values) in enumerate(series)
        for index, (category, value) in enumerate(zip(categories, values, strict=False))
    ]
    every = math.ceil(count / 12)
    labels = [(index + 0.5, label) for index, label in enumerate(categories) if index % every == 0]
    axes = _y_axis(plot, ticks(0, top_value), y_label), _x_axis(plot, labels, x_label)
    return frame(title, legend, *axes, *bars, height=bottom + BOTTOM)


def histogram(
    values: Sequence[float], *, low: float, high: float, title: str, place: int = 0, bins: int = 20
) -> Markup:
    """How many channels have a value in each of `bins` equal parts of [low, high]; values outside are left out."""
    high = high if high > low else low + 1.0
    counts = [0] * bins
    for value in values:
        if low <= value <= high:
            counts[min(bins - 1, int(bins * (value - low) / (high - low)))] += 1
    top, bottom, right = _top(0), SMALL_HEIGHT - BOTTOM, SMALL_WIDTH - RIGHT
    most = max(1, *counts)
    plot = Plot(linear(low, high, LEFT, right), linear(0, 1.05 * most, bottom, top), top, bottom, right)
    step = (high - low) / bins
    bars = [
        tag(
            "rect",
            tag("title", f"{low + i * step:.3g} to {low + (i + 1) * step:.3g}: {count}"),
            class_=f"bar {_colour(place)}",
            x=plot.x(low + i * step) + 0.5,
            y=plot.y(count),
            width=plot.x(low + step) - plot.x(low) - 1,
            height=bottom - plot.y(count),
        )
        for i, count in enumerate(counts)
        if count
    ]
    x_ticks = [(tick, number(tick)) for tick in ticks(low, high, at_most=5)]
    y_ticks = ticks(0, 1.05 * most, at_most=5, whole=True)
    axes = _y_axis(plot, y_ticks, "channels"), _x_axis(plot, x_ticks, "value")
    return frame(title, *axes, *bars, width=SMALL_WIDTH, height=SMALL_HEIGHT)


def dot_chart(
    names: Sequence[str], series: Sequence[tuple[str, Sequence[float]]], *, title: str, x_label: str
) -> Markup:
    """One row a name, one marker a series in it, on a logarithmic axis of positive values."""
    rows, legend = _legend([name for name, _ in series], _marker_sample)
    low, high = _decade_bounds([value for _, values in series for value in values])
    left = 10 + CHARACTER * max(map(len, names), default=0)
    top = 10.0 + LINE * (rows + 1)
    bottom = top + ROW * len(names)
    straight = linear(math.log10(low), math.log10(high), left, WIDTH - RIGHT)
    parts = [tag("text", name, class_="tick", x=0, y=top + ROW * (i + 0.5) + 4) for i, name in enumerate(names)]
    for tick in _log_ticks(low, high):
        x = straight(math.log10(tick))
        parts.append(tag("line", class_="grid", x1=x, x2=x, y1=top, y2=bottom))
        parts.append(tag("text", number(tick), class_="tick middle", x=x, y=bottom + 17))
    for place, (what, values) in enumerate(series):
        for i, (name, value) in enumerate(zip(names, values, strict=True)):
            told = tag("title", f"{name}, {what}: {value:.3g}")
            parts.append(tag("g", told, _marker(place, straight(math.log10(value)), top + ROW * (i + 0.5))))
    parts.append(tag("text", x_label, class_="label end", x=WIDTH - RIGHT, y=bottom + 36))
    return frame(title, legend, *parts, height=bottom + BOTTOM)


def frame(title: str, *children: object, height: float, width: float = WIDTH) -> Markup:
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


def _line(series: Series, place: int, plot: Plot) -> Markup:
    at = [plot.x(x) for x in series.x]
    parts = []
    if series.low:
        edge = [
            *zip(at, map(plot.y, series.high), strict=True),
            *reversed([*zip(at, map(plot.y, series.low), strict=True)]),
        ]
        parts.append(tag("path", class_=f"band {_colour(place)}", d=_path(edge) + "Z"))
    points = [(x, plot.y(y)) for x, y in zip(at, series.y, strict=True)]
    if points:
        parts.append(_stroke(place, _path(points)))
    if len(points) <= MANY:
        parts += [_marker(place, x, y) for x, y in points]
    return Markup("").join(parts)


def _stroke(place: int, path: str) -> Markup:
    return tag("path", class_=f"line {_colour(place)}", d=path, stroke_dasharray=DASHES[place % len(DASHES)])


def _path(points: Iterable[tuple[float, float]]) -> str:
    return "M" + "L".join(f"{x:.1f} {y:.1f}" for x, y in points)


def _marker(place: int, x: float, y: float) -> Markup:
    """A circle, a square, a diamond or a triangle."""
    name = f"marker {_colour(place)}"
    shape = place % len(DASHES)
    if shape == 0:
        return tag("circle", class_=name, cx=x, cy=y, r=2.6)
    return tag("path", class_=name, d=_path((x + 2.5 * dx, y + 2.5 * dy) for dx, dy in CORNERS[shape - 1]) + "Z")


def _columns(series: Sequence[Series], xs: Sequence[float], plot: Plot, x_label: str, digits: int) -> list[Markup]:
    """One invisible strip for each x, with the figures there as its tooltip."""
    at = [plot.x(x) for x in xs]
    edges = [LEFT, *[(a + b) / 2 for a, b in pairwise(at)], WIDTH - RIGHT]
    told = [_told(one, digits) for one in series]
    return [
        tag(
            "rect",
            tag("title", "\n".join([f"{x_label} {number(x)}", *[one[x] for one in told if x in one]])),
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


def _bar(place: int, plot: Plot, x: float, width: float, value: float, name: str, category: str) -> Markup:
    y = plot.y(value)
    told = tag("title", f"{name}, {category}: {value:.1f}")
    bar = tag(
        "rect", told, class_=f"bar {_filling(place)}", x=x + 1, y=y, width=max(0.5, width - 2), height=plot.bottom - y
    )
    text = tag("text", f"{value:.0f}", class_="value middle", x=x + width / 2, y=y - 5) if width > 20 else Markup("")
    return bar + text


def _legend(names: Sequence[str], sample: Callable[[int, float, float], Markup], first: int = 0) -> tuple[int, Markup]:
    """Names with their samples, set in as many rows as they need; none for a single name."""
    if len(names) < 2:
        return 0, Markup("")
    parts: list[Markup] = []
    x, row = 0.0, 0
    for place, name in enumerate(names, first):
        short = name if len(name) <= LONGEST else f"{name[: LONGEST - 1]}…"
        width = 43 + CHARACTER * len(short)
        if x and x + width > WIDTH:
            x, row = 0.0, row + 1
        y = 34 + LINE * row
        parts += [sample(place, x, y - 4), tag("text", short, class_="name", x=x + 35, y=y)]
        x += width + 8
    return row + 1, Markup("").join(parts)


def _line_sample(place: int, x: float, y: float) -> Markup:
    return _stroke(place, _path([(x, y), (x + 29, y)])) + _marker(place, x + 14.5, y)


def _marker_sample(place: int, x: float, y: float) -> Markup:
    return _marker(place, x + 25, y)


def _bar_sample(place: int, x: float, y: float) -> Markup:
    return tag("rect", class_=f"bar {_filling(place)}", x=x + 12, y=y - 6, width=15, height=12)


def _colour(place: int) -> str:
    return f"s{place % COLOURS}"


def _filling(place: int) -> str:
    return f"{_colour(place)}{' hollow' * (place % 2 == 0)}"


def _log_ticks(low: float, high: float) -> list[float]:
    """1, 2 and 5 times the powers of ten in [low, high], or the powers alone where that would be many."""
    powers = decades(low, high)
    factors = (1, 2, 5) if len(powers) < 4 else (1,)
    return [power * factor for power in powers for factor in factors if power * factor <= high]


def _decade_bounds(values: Sequence[float]) -> tuple[float, float]:
    """Powers of ten around the positive values, at least one decade apart."""
    positive = [max(value, TINY) for value in values if value > 0 and math.isfinite(value)] or [1.0]
    low, high = math.floor(math.log10(min(positive))), math.ceil(math.log10(max(positive)))
    return 10.0 ** (low - (low == high)), 10.0**high
