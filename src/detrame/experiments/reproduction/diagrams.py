"""The paper's drawings, drawn anew: its Figure 1 and the blocks of its Appendix B; blue is linear, orange Q-Metric."""

from markupsafe import Markup

from detrame.experiments.report.charts import Figure, frame
from detrame.experiments.report.svg import MINUS, tag
from detrame.models.plainnet import INPUT_DROPOUT

LINEAR, QMETRIC = "s0", "s1"  # the colours of what is learned
HEAD = 7  # length of an arrow's head
STEP = 234  # width of one unrolled iteration
SEVERAL = "⋮"
BOX, GAP = 26, 17  # height of a box in a block, and the arrow below it

Point = tuple[float, float]


def two_layers() -> Figure:
    """The paper's Figure 1: two layers, each a linear map and two unrolled iterations of the Q-Metric ReLU."""
    first, second = 104.0, 282.0
    between = (first + second) / 2 - 2
    svg = frame(
        "A two-layer DeTraMe network. In each layer a linear map turns the input into z; two unrolled iterations of "
        "the Q-Metric ReLU turn z into the sparse code u, which is the input of the next layer or of the loss.",
        _symbol("x", 14, first + 4),
        _arrow((24, first), (44, first)),
        _layer(first, "₁", "x"),
        _arrow((682, first), (760, first), (760, between), (14, between), (14, second), (44, second)),
        _symbol("u₁", 716, first - 8),
        _layer(second, "₂", "u₁"),
        _arrow((682, second), (728, second)),
        _symbol("u₂", 704, second - 8),
        _box(728, second - 22, 84, 44, "loss", "cross-entropy"),
        _symbol("y", 770, second - 50),
        _arrow((770, second - 44), (770, second - 22)),
        width=814,
        height=350,
    )
    caption = (
        "Each layer is a dictionary learning problem: a linear map (transform learning), then the Q-Metric ReLU "
        "(metric learning), here with two iterations, unrolled. Both share the coupling W̃, the gain h and the "
        "threshold b, which are learned with W and c by back-propagation."
    )
    return Figure("A network of two layers, after the paper's Figure 1", svg, caption)


def _layer(y: float, index: str, source: str) -> Markup:
    """One layer on the line at height `y`: from its source at x = 44 to the code at x = 682."""
    start, end = 200.0, 682.0
    rail = y - 66
    parts = [
        _box(44, y - 22, 104, 44, f"W{index} {source} {MINUS} c{index}", "linear", colour=LINEAR),
        _arrow((148, y), (178, y), (178, rail), (start + STEP + 108, rail), (start + STEP + 108, y - 54), head=False),
        _symbol(f"z{index}", 163, y - 8),
        tag("rect", class_=f"border {QMETRIC}", x=190.0, y=y - 82, width=478.0, height=122.0, rx=10),
        tag("text", "transform learning", class_=f"middle tinted {LINEAR}", x=96, y=y + 58),
        tag("text", "Q-Metric ReLU: metric learning", class_=f"middle tinted {QMETRIC}", x=429, y=y + 58),
    ]
    parts += [_iteration(start + STEP * step, y, rail, index, step) for step in range(2)]
    parts.append(_arrow((start + 2 * STEP - 26, y), (end, y), head=False))
    return Markup("").join(parts)


def _iteration(x: float, y: float, rail: float, index: str, step: int) -> Markup:
    """``ReLU(h z + W̃ (u - z) - b)``: the line at `y` carries u, the rail above it z."""
    minus, plus = x + 20, x + 108
    before = _symbol("0", x + 1, y - 8) if step == 0 else _symbol("u", x - 8, y - 8)
    return Markup("").join(
        [
            before,
            _arrow((x - 4 if step == 0 else x - 26, y), (minus - 10, y)),
            _arrow((minus, rail), (minus, y - 10)),
            _circle(minus, y, MINUS),
            _arrow((minus + 10, y), (x + 44, y)),
            _box(x + 44, y - 15, 40, 30, f"W̃{index}", colour=QMETRIC),
            _arrow((x + 84, y), (plus - 10, y)),
            _arrow((plus, rail), (plus, y - 54)),
            _box(plus - 40, y - 54, 80, 26, f"h{index}⊙z{index} {MINUS} b{index}", colour=QMETRIC),
            _arrow((plus, y - 28), (plus, y - 10)),
            _circle(plus, y, "+"),
            _arrow((plus + 10, y), (x + 146, y)),
            _box(x + 146, y - 15, 62, 30, "ReLU"),
            tag("text", f"iteration {step + 1}", class_="middle soft", x=plus, y=y + 33),
        ]
    )


def plainnet_block() -> Figure:
    """PlainNet and DeTraMe-PlainNet, from a layer to the logits."""
    layers = ["convolution kxk", "batch norm", "ReLU", f"{SEVERAL} 2, 5, 8 or 11 such layers in all"]
    plain = [f"dropout {INPUT_DROPOUT}", *layers, "class convolution", "batch norm", "average over pixels"]
    svg = frame(
        "PlainNet: dropout of the input, layers of convolution, batch norm and ReLU, then a convolution to the classes "
        "with batch norm, and the average over the pixels. In DeTraMe-PlainNet a Q-Metric ReLU takes the place of "
        "every ReLU.",
        _column(100, plain, "PlainNet"),
        _column(290, ["Q-Metric ReLU kxk" if step == "ReLU" else step for step in plain], "DeTraMe-PlainNet"),
        height=_height(len(plain)),
    )
    caption = (
        "Every ReLU becomes a Q-Metric ReLU; its coupling has the filter size and the channels of the convolution "
        "before it. With 6 layers or more, dropout of 0.5 follows the first two layers of stride 2. The class layer "
        "has no activation, as in the paper's Algorithm 2."
    )
    return Figure("PlainNet, after the paper's Appendix B", svg, caption)


def resnet_block() -> Figure:
    """A block of ResNet and of DeTraMe-ResNet."""
    inside = ["convolution 3x3", "batch norm", "ReLU", "convolution 3x3", "batch norm", "+", "ReLU"]
    svg = frame(
        "A block of ResNet: convolution, batch norm, ReLU, convolution, batch norm, the shortcut is added, ReLU. In "
        "DeTraMe-ResNet a Q-Metric ReLU takes the place of the ReLU inside the block, and only there.",
        _column(100, inside, "ResNet"),
        _column(290, [*inside[:2], "Q-Metric ReLU 3x3", *inside[3:]], "DeTraMe-ResNet"),
        height=_height(len(inside)),
    )
    caption = (
        "Only the ReLU inside the block becomes a Q-Metric ReLU. Where shapes change, the shortcut is a 1x1 "
        "convolution with batch norm. A WideResNet has the same pieces with norm and ReLU before the convolutions."
    )
    return Figure("A block of ResNet, after the paper's Appendix B", svg, caption)


def _height(boxes: int) -> float:
    return 64.0 + boxes * (BOX + GAP)


def _column(middle: float, steps: list[str], title: str) -> Markup:
    """Boxes from top to bottom; a "+" is where a shortcut around those before it ends, "⋮" stands for many."""
    width = 132
    y = 44.0
    parts = [tag("text", title, class_="middle tinted", x=middle, y=14), _symbol("x", middle - 12, y - 10)]
    parts.append(_arrow((middle, y - 22), (middle, y)))
    for place, step in enumerate(steps):
        if step == "+":
            side = middle + width / 2 + 12
            parts.append(_arrow((middle, 30), (side, 30), (side, y + BOX / 2), (middle + 10, y + BOX / 2)))
            parts.append(_circle(middle, y + BOX / 2, "+"))
            parts.append(_arrow((middle, y + BOX / 2 + 10), (middle, y + BOX + GAP)))
        elif step.startswith(SEVERAL):
            parts.append(tag("text", step, class_="middle soft", x=middle, y=y + BOX / 2 + 3))
            parts.append(_arrow((middle, y + BOX), (middle, y + BOX + GAP)))
        else:
            colour = QMETRIC if step.startswith("Q-Metric") else LINEAR if "convolution" in step else None
            parts.append(_box(middle - width / 2, y, width, BOX, step, colour=colour))
            into_circle = place + 1 < len(steps) and steps[place + 1] == "+"
            parts.append(_arrow((middle, y + BOX), (middle, y + BOX + GAP + (BOX / 2 - 10) * into_circle)))
        y += BOX + GAP
    return Markup("").join(parts)


def _box(x: float, y: float, width: float, height: float, *lines: str, colour: str | None = None) -> Markup:
    """A box with its words in the middle, the lines after the first in a softer voice."""
    first = y + height / 2 + 4 - 7 * (len(lines) - 1)
    words = [
        tag("text", line, class_="middle soft" if place else "middle", x=x + width / 2, y=first + 15 * place)
        for place, line in enumerate(lines)
    ]
    rect = tag("rect", class_=f"box {colour or ''}".strip(), x=x, y=y, width=width, height=height, rx=6)
    return rect + Markup("").join(words)


def _circle(x: float, y: float, sign: str) -> Markup:
    return tag("circle", class_="box", cx=x, cy=y, r=10) + tag("text", sign, class_="middle", x=x, y=y + 4)


def _symbol(text: str, x: float, y: float) -> Markup:
    return tag("text", text, class_="symbol middle", x=x, y=y)


def _arrow(*points: Point, head: bool = True) -> Markup:
    """A line through some points, with a head in the direction of its last part."""
    (*_, (x0, y0), (x1, y1)) = points
    length = max(abs(x1 - x0), abs(y1 - y0))
    dx, dy = (x1 - x0) / length, (y1 - y0) / length  # the parts of a line are level or upright
    line = tag("path", class_="flow", d="M" + "L".join(f"{x:g} {y:g}" for x, y in points))
    if not head:
        return line
    corners = [(x1, y1), (x1 - HEAD * dx + 3.5 * dy, y1 - HEAD * dy + 3.5 * dx)]
    corners.append((x1 - HEAD * dx - 3.5 * dy, y1 - HEAD * dy - 3.5 * dx))
    return line + tag("path", class_="head", d="M" + "L".join(f"{x:g} {y:g}" for x, y in corners) + "Z")
