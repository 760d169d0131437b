"""The page's figures: which data go into which chart, and what each means in one sentence."""

import re
from dataclasses import replace
from typing import NamedTuple

from torch import Tensor

from detrame import operators
from detrame.activations import QMetricReLU
from detrame.experiments.report.charts import Figure, Look, Series, bar_chart, histogram, line_chart
from detrame.experiments.report.groups import Comparison, Group
from detrame.experiments.report.pictures import coupling_map, filter_tiles
from detrame.inference import LayerCodes

BARS = 12  # layers, from which on lines are easier to read
LAYERS = 3  # of a network, whose couplings are shown
RESIDUAL_LAYERS = 6
TILES = 8


class Layer(NamedTuple):
    """The figures of one layer, counted from 1."""

    number: int
    figures: list[Figure]


def accuracy(comparison: Comparison) -> list[Figure]:
    """Accuracy against epochs: the whole run, and closer, its second half."""
    series = [_accuracy_series(group) for group in comparison.groups]
    longest = max(len(one.x) for one in series)
    band = "The line is the mean, the band reaches from the lowest to the highest seed."
    single = "" if any(len(group.runs) > 1 for group in comparison.groups) else "One run of each network."
    figures = [_accuracy(comparison, series, "accuracy", "The whole run", single or band)]
    if longest >= 4:
        half = longest // 2
        late = [_from(one, half) for one in series if len(one.x) > half]
        ended = [one.name for one in series if len(one.x) <= half]
        caption = f"The same from epoch {half + 1} on, where the race is decided."
        caption += f" Without {' and '.join(ended)}, which ended before." if ended else ""
        figures.append(_accuracy(comparison, late, "accuracy_late", "The second half", caption))
    return figures


def sparsity(comparison: Comparison, codes: list[list[LayerCodes]]) -> Figure:
    """Share of zeros by layer, for every group."""
    percents = [[100 * layer.sparsity for layer in layers] for layers in codes]
    count = max(map(len, percents))
    title, label = "Zeros among the codes, by layer", "zeros, %"
    names = [group.label for group in comparison.groups]
    if count <= BARS:
        series = list(zip(names, percents, strict=True))
        layers = [str(layer) for layer in range(1, count + 1)]
        svg = bar_chart(layers, series, title=title, x_label="layer", y_label=label, top_value=100)
    else:
        lines = [Series(n, range(1, len(p) + 1), p) for n, p in zip(names, percents, strict=True)]
        svg = line_chart(lines, title=title, x_label="layer", y_label=label)
    caption = "The share of the activations' outputs that are exactly zero: the higher, the sparser the code."
    return Figure("Sparsity of the codes", svg, caption, _file("sparsity", comparison.name))


def residual(comparison: Comparison, group: Group, codes: list[LayerCodes]) -> Figure:
    """How much the codes still change at each iteration, layer by layer."""
    series = [
        Series(
            f"layer {number}",
            range(1, len(layer.residuals) + 1),
            layer.residuals.double().tolist(),
            look=Look(place),
        )
        # Not the first two looks: a layer must not be taken for a group.
        for place, (number, layer) in enumerate(_iterated(codes, RESIDUAL_LAYERS), start=2)
    ]
    title = f"Residual of the iteration, {group.label}"
    svg = line_chart(
        series,
        title=title,
        x_label="iteration",
        y_label="largest change / largest code",
        log=True,
        digits=4,
    )
    caption = (
        "The largest change of a code at each iteration, relative to the largest code: a line that falls means that "
        "the iteration is settling, one that does not, that the network uses it without reaching a fixed point."
    )
    return Figure(title, svg, caption, _file("residual", comparison.name, _short(group)))


def couplings(comparison: Comparison, group: Group, codes: list[LayerCodes]) -> list[Layer]:
    """For a few layers: norms of the coupling, the strongest filters, gains and thresholds."""
    modules = {name: m for name, m in group.runs[0].model.named_modules() if isinstance(m, QMetricReLU)}
    shown = [(number, modules[layer.name]) for number, layer in _iterated(codes, LAYERS)]
    norms = [_norms(module) for _, module in shown]
    highest = max(float(norm.max()) for norm in norms)
    layers = []
    for (number, module), norm in zip(shown, norms, strict=True):
        where = comparison.name, _short(group), f"layer {number}"
        pictures = [_coupling(where, norm, highest), _filters(where, module, norm)]
        layers.append(
            Layer(number, [*pictures, _gain(where, module, group.place), _threshold(where, module, group.place)])
        )
    return layers


def _coupling(where: tuple[str, ...], norms: Tensor, highest: float) -> Figure:
    title = f"Norms of the coupling of {where[-1]}, {len(norms)} channels"
    caption = (
        "How strongly each channel acts on each other: the Frobenius norm of its filter, "
        f"from 0 to {highest:.2g}, the same scale in every layer."
    )
    return Figure("Coupling", coupling_map(norms, highest, title=title), caption, _file("coupling", *where))


def _filters(where: tuple[str, ...], module: QMetricReLU, norms: Tensor) -> Figure:
    filters = _strongest(module, norms)
    title = f"Filters of {where[-1]} among its {len(filters)} most coupled channels"
    caption = f"The filters among the {len(filters)} channels that are coupled most: blue below 0, orange above."
    return Figure("Filters", filter_tiles(filters, title=title), caption, _file("filters", *where))


def _gain(where: tuple[str, ...], module: QMetricReLU, place: int) -> Figure:
    svg = histogram(module.gain.tolist(), high=1, title=f"Gain of {where[-1]}", place=place)
    caption = "How much of its own input a channel keeps: a ReLU keeps 1, all of it."
    return Figure("Gain", svg, caption, _file("gain", *where))


def _threshold(where: tuple[str, ...], module: QMetricReLU, place: int) -> Figure:
    values = module.threshold.tolist()
    svg = histogram(values, high=max(values), title=f"Threshold of {where[-1]}", place=place)
    caption = "What is taken off before the ReLU: the larger, the sparser the code. A ReLU takes off 0."
    return Figure("Threshold", svg, caption, _file("threshold", *where))


def _norms(module: QMetricReLU) -> Tensor:
    """Frobenius norms over the taps, ``(C, C)``: to the row's channel from the column's."""
    return operators.ungroup(module.coupling.detach()).flatten(2).norm(dim=2)


def _strongest(module: QMetricReLU, norms: Tensor) -> Tensor:
    """The filters among the channels of largest total norm, in the order of the channels: ``(n, n, k, k)``."""
    total = norms.square().sum(0) + norms.square().sum(1)
    chosen = total.topk(min(TILES, len(total))).indices.sort().values
    return operators.ungroup(module.coupling.detach())[chosen][:, chosen]


def _accuracy_series(group: Group) -> Series:
    histories = [[epoch.test_accuracy for epoch in run.history] for run in group.runs]
    return Series.over_epochs(group.label, histories, Look(group.place))


def _accuracy(comparison: Comparison, series: list[Series], name: str, title: str, caption: str) -> Figure:
    label = f"Accuracy on the test images of {comparison.name} against epochs"
    svg = line_chart(series, title=label, x_label="epoch", y_label="test accuracy, %", digits=2)
    return Figure(title, svg, caption, _file(name, comparison.name))


def _from(series: Series, start: int) -> Series:
    parts = {name: getattr(series, name)[start:] for name in ("x", "y", "low", "high")}
    return replace(series, **parts)


def _iterated(codes: list[LayerCodes], at_most: int) -> list[tuple[int, LayerCodes]]:
    """Up to `at_most` Q-Metric ReLUs, evenly spaced, the first and the last among them.

    Their numbers are those among all activations, counted from 1 as on the axis of the sparsity.
    """
    found = [(number, layer) for number, layer in enumerate(codes, start=1) if len(layer.residuals)]
    if len(found) <= at_most:
        return found
    return [found[round(i * (len(found) - 1) / (at_most - 1))] for i in range(at_most)]


def _short(group: Group) -> str:
    """A name for files: a label may be long, and two may differ in nothing that a file name can hold."""
    return f"{group.place + 1}-{group.recipe.activation}"


def _file(*parts: str) -> str:
    """A file name from words that may hold anything."""
    return "_".join(filter(None, (re.sub(r"[^a-z0-9.]+", "-", part.lower()).strip("-.") for part in parts)))
