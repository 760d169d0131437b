"""Convolutions of channels-last images to 64 or more channels, powers of two or sums of two, in Triton.

A tile is some whole lines of an image, or some whole images: shifted by a tap of the kernel it is still a box, which
Hopper's copy engine for tensors (TMA) fetches by itself, with zeros beyond the image. And where cuDNN computes 128
channels of 96, here a product is two, of 64 and of 32 channels.
"""

from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from detrame.kernels.few_channels import Shape, finish

try:
    from triton.tools.tensor_descriptor import TensorDescriptor
except ImportError:  # Triton before 3.4: nothing fits
    TensorDescriptor = None


class Tile(NamedTuple):
    """What a program takes, and how it is compiled."""

    pixels: int
    outputs: int
    warps: int = 4
    stages: int = 3

    @property
    def sums(self) -> float:
        """How many a thread holds."""
        return self.pixels * self.outputs / (32 * self.warps)

    def fitted(self, outputs: int) -> "Tile":
        """With all outputs, if they are no more."""
        return self._replace(outputs=min(outputs, self.outputs))


_TILES = [Tile(256, 128), Tile(128, 256), Tile(128, 128), Tile(64, 256)]  # with so many outputs at most
_SUMS = 192  # that a thread can hold besides the rest; tiles of a quarter as many or fewer are not tried
_MANY = 64  # channels, fewer than which leave too little for a step


@triton.jit
def _convolve_lines(
    x, filters, filters_rest, out, raw, threshold, pixels,
    height: tl.constexpr, width: tl.constexpr, inputs: tl.constexpr, kernel: tl.constexpr, back: tl.constexpr,
    epilogue: tl.constexpr, images: tl.constexpr, lines: tl.constexpr, span: tl.constexpr,
    outputs: tl.constexpr, columns: tl.constexpr, rest: tl.constexpr,
):  # fmt: skip
    """A tile of the output, ``columns + rest`` channels of it.

    The filters are (outputs, taps, inputs) and, where they are taken `back`, (inputs, taps, outputs).
    """
    size: tl.constexpr = images * lines * width
    taps: tl.constexpr = kernel * kernel
    start = tl.program_id(0) * size
    image, top = start // (height * width), start // width % height
    first = tl.program_id(1) * (columns + rest)
    total = tl.zeros((size, columns), tl.float32)
    if rest:
        total_rest = tl.zeros((size, rest), tl.float32)
    for step in range(taps * (inputs // span)):
        tap, channel = step // (inputs // span), step % (inputs // span) * span
        corner = [image, top + tap // kernel - kernel // 2, tap % kernel - kernel // 2, channel]
        patch = x.load(corner).reshape(size, span)
        if back:
            tap = taps - 1 - tap
        total = tl.dot(patch, _part(filters, tap, channel, first, columns, span, back), total)
        if rest:
            total_rest = tl.dot(patch, _part(filters_rest, tap, channel, first + columns, rest, span, back), total_rest)
    pixel = (start + tl.arange(0, size))[:, None]
    output = first + tl.arange(0, columns)
    place = pixel * outputs + output[None, :]
    finish(total, out, raw, threshold, place, pixel < pixels, output, output >= 0, epilogue)
    if rest:
        output = first + columns + tl.arange(0, rest)
        place = pixel * outputs + output[None, :]
        finish(total_rest, out, raw, threshold, place, pixel < pixels, output, output >= 0, epilogue)


@triton.jit
def _part(filters, tap, channel, first, part: tl.constexpr, span: tl.constexpr, back: tl.constexpr):
    """The filters of a tap, from some of the inputs to a part of the outputs, (span, part)."""
    if back:
        found = filters.load([channel, tap, first]).reshape(span, part)
    else:
        found = filters.load([first, tap, channel]).reshape(part, span).T
    return found


def tiles_for(x: Tensor, weight: Tensor, outputs: int, shape: Shape) -> list[Tile]:
    """The tiles worth trying for a convolution of x to `outputs` channels; none where it is none of these.

    All sizes in a tile are powers of two, so the images' have to be, and the rest of the channels.
    """
    _, inputs, height, width = x.shape
    sizes = min(inputs, outputs) >= _MANY and inputs % 16 == 0 and all(map(_is_power, (height, width)))
    same_size = shape.stride == 1 and shape.kernel == 2 * shape.padding + 1
    half = all(values.element_size() == 2 and values.data_ptr() % 16 == 0 for values in (x, weight))
    if not (sizes and same_size and half and _has_engine(x)):
        return []
    fitted = dict.fromkeys(tile.fitted(outputs) for tile in _TILES if width <= tile.pixels)
    return [tile for tile in fitted if _divides(tile.outputs, outputs) and _SUMS / 4 < tile.sums <= _SUMS]


def _divides(block: int, outputs: int) -> bool:
    """Whether the outputs come in blocks of so many, in parts that the products of Triton can have."""
    rest = _parts(block)[1]
    return outputs % block == 0 and (not rest or (rest >= 16 and _is_power(rest)))


def _is_power(size: int) -> bool:
    return size & (size - 1) == 0


def _has_engine(x: Tensor) -> bool:
    # Of Hopper alone: a later chip may have less shared memory, and none has been tried.
    return TensorDescriptor is not None and x.is_cuda and torch.cuda.get_device_capability(x.device) == (9, 0)


def _parts(outputs: int) -> tuple[int, int]:
    """The largest power of two among them, and the rest."""
    columns = 1 << (outputs.bit_length() - 1)
    return columns, outputs - columns


def convolve(
    x: Tensor,
    weight: Tensor,
    out: Tensor,
    tile: Tile,
    *,
    back: bool = False,
    epilogue: str = "",
    raw: Tensor | None = None,
    threshold: Tensor | None = None,
) -> Tensor:
    """A convolution into `out`, of its size, with an epilogue on `raw` and `threshold`; `back`, its gradient."""
    images, inputs, height, width = x.shape
    outputs = out.shape[1]
    columns, rest = _parts(tile.outputs)
    lines = min(height, tile.pixels // width)
    many = tile.pixels // (lines * width)  # images a tile
    span = min(64, inputs & -inputs)
    box = [many, lines, width, span]
    patches = TensorDescriptor(x, [images, height, width, inputs], _strides(height, width, inputs), box)

    def filters(part: int) -> object:
        first, kernel, _, last = (weight.shape[axis] for axis in (0, 2, 3, 1))
        taps = kernel**2
        return TensorDescriptor(
            weight, [first, taps, last], _strides(taps, last), [span, 1, part] if back else [part, 1, span]
        )

    pixels = images * height * width
    _convolve_lines[triton.cdiv(pixels, tile.pixels), outputs // tile.outputs](
        patches, filters(columns), filters(rest or columns), out, out if raw is None else raw,
        out if threshold is None else threshold, pixels,
        height, width, inputs, weight.shape[2], back, epilogue,
        images=many, lines=lines, span=span, outputs=outputs, columns=columns, rest=rest,
        num_warps=tile.warps, num_stages=tile.stages,
    )  # fmt: skip
    return out


def _strides(*sizes: int) -> list[int]:
    """Of a contiguous tensor with these sizes behind its first axis."""
    strides = [1]
    for size in reversed(sizes):
        strides.insert(0, strides[0] * size)
    return strides
