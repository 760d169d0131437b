"""Pictures as PNG data URIs: test images, couplings and their filters."""

import base64
import io

import numpy as np
import numpy.typing as npt
from markupsafe import Markup
from PIL import Image
from torch import Tensor

from detrame.experiments.report.charts import SMALL, frame
from detrame.experiments.report.svg import number, tag

Pixels = npt.NDArray[np.uint8]

# Cividis, dark to bright, readable without colour; and blue over white to orange for signed values.
SEQUENTIAL = (
    *("#00224e", "#123570", "#3b496c", "#575d6d", "#707173"),
    *("#8a8678", "#a59c74", "#c3b369", "#e1cc55", "#fee838"),
)
DIVERGING = ("#0b4f94", "#5b93c9", "#b9d3ea", "#f7f7f5", "#f6cfa8", "#dd8b3e", "#a34a05")
SIDE = 180  # which leaves beside the scale the room that a bound takes, as long as -0.0095 in a wide font


def data_uri(pixels: Pixels) -> str:
    """An array ``(H, W)``, ``(H, W, 3)`` or ``(H, W, 4)`` as a PNG inside its own address."""
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "PNG", optimize=True)
    return "data:image/png;base64," + base64.b64encode(file.getvalue()).decode()


def photograph(image: Tensor) -> str:
    """An image of a data set, uint8 ``(C, H, W)``, grey or colour."""
    pixels = image.permute(1, 2, 0).numpy()
    return data_uri(pixels[:, :, 0] if pixels.shape[2] == 1 else pixels)


def coloured(values: npt.NDArray[np.float64], low: float, high: float, colours: tuple[str, ...]) -> Pixels:
    """Values on a colour map from `low` to `high`, as pixels with a last axis of 3."""
    anchors = np.array([[int(colour[i : i + 2], 16) for i in (1, 3, 5)] for colour in colours], dtype=float)
    position = np.clip((values - low) / ((high - low) or 1.0), 0, 1) * (len(anchors) - 1)
    channels = [np.interp(position, np.arange(len(anchors)), anchors[:, i]) for i in range(3)]
    return np.stack(channels, axis=-1).round().astype(np.uint8)


def coupling_map(norms: Tensor, highest: float, *, title: str) -> Markup:
    """A matrix of norms ``(C, C)`` on the sequential map from 0 to `highest`, with its scale beside it."""
    pixels = coloured(norms.double().numpy(), 0, highest, SEQUENTIAL)
    return _framed(pixels, 0, highest, SEQUENTIAL, title, len(norms))


def filter_tiles(filters: Tensor, *, title: str) -> Markup:
    """Filters ``(rows, columns, height, width)`` as tiles on the diverging map, which is symmetric about 0."""
    highest = max(filters.abs().max().item(), 1e-12)
    rows, columns, height, width = filters.shape
    pixels = np.zeros((rows * (height + 1) - 1, columns * (width + 1) - 1, 4), dtype=np.uint8)
    for row in range(rows):
        for column in range(columns):
            tile = coloured(filters[row, column].double().numpy(), -highest, highest, DIVERGING)
            top, left = row * (height + 1), column * (width + 1)
            pixels[top : top + height, left : left + width, :3] = tile
            pixels[top : top + height, left : left + width, 3] = 255
    return _framed(pixels, -highest, highest, DIVERGING, title)


def _framed(
    pixels: Pixels, low: float, high: float, colours: tuple[str, ...], title: str, count: int | None = None
) -> Markup:
    """A picture of what channels do to each other, with its scale and, where it shows them all, their `count`."""
    left, top = 18, 20
    bar = coloured(np.linspace(high, low, 64)[:, None], low, high, colours)
    x = left + SIDE + 8
    parts = [
        _image(pixels, left, top, SIDE, SIDE),
        tag("text", "from channel →", class_="label", x=left, y=12),
        tag("text", "to channel →", class_="label", transform=f"translate(3 {top}) rotate(90)"),
        _image(bar, x, top, 10, SIDE),
        tag("text", _bound(high), class_="tick", x=x + 15, y=top + 10),
        tag("text", _bound(low), class_="tick", x=x + 15, y=top + SIDE),
    ]
    if count is not None:
        parts.append(tag("text", str(count), class_="tick end", x=left + SIDE, y=12))
    return frame(title, *parts, width=SMALL.width, height=SMALL.height)


def _image(pixels: Pixels, x: float, y: float, width: float, height: float) -> Markup:
    return tag(
        "image",
        href=data_uri(pixels),
        x=x,
        y=y,
        width=width,
        height=height,
        preserveAspectRatio="none",
        class_="pixels",
    )


def _bound(value: float) -> str:
    return number(float(f"{value:.2g}"))
