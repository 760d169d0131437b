"""Convolutions of channels-last images to 96 or 192 channels, and other sums of two powers of two, in Triton.

cuDNN computes 128 channels where there are 96. Here a product is two, of 64 and of 32 channels. A tile is some whole
lines of an image, or of several images: shifted by a tap of the kernel it is still a box, which Hopper's copy engine
for tensors (TMA) fetches by itself, with zeros beyond the image. A tile of two lines, each of many images, fetches the
input lines that both need once.
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
    """What a program takes: `groups` of `pixels`, a line below one another; and how it is compiled.

    A single group is whole lines of one image, or whole images. Two or more are a line each, of as many images as it
    takes, and share the input lines between them.
    """

    pixels: int
    groups: int
    warps: int
    stages: int

    def sums(self, outputs: int) -> float:
        """How many a thread holds."""
        return self.groups * self.pixels * outputs / (32 * self.warps)

    def box(self, height: int, width: int) -> tuple[int, int]:
        """How many images, and lines of each, a group is."""
        lines = 1 if self.groups > 1 else min(height, self.pixels // width)
        return self.pixels // (lines * width), lines


_TILES = [Tile(128, 2, 8, 3), Tile(256, 1, 8, 4), Tile(128, 1, 8, 4), Tile(128, 1, 4, 4), Tile(64, 1, 4, 3)]
_SUMS = 96  # that a thread can hold besides the rest; tiles of at most half as many are not tried: each is compiled


@triton.jit
def _filters(weight, tap, channel, first: tl.constexpr, part: tl.constexpr, span: tl.constexpr, back: tl.constexpr):
    """Of a tap, from some of the inputs to a part of the outputs, (span, part)."""
    if back:
        found = weight.load([channel, tap, first]).reshape(span, part)
    else:
        found = weight.load([first, tap, channel]).reshape(part, span).T
    return found


@triton.jit
def _replaced(values, place: tl.constexpr, value):
    return values[:place] + (value,) + values[place + 1 :]  # noqa: RUF005 - Triton knows no stars


@triton.jit
def _convolve_lines(
    x, filters, filters_rest, out, raw, threshold, pixels,
    height: tl.constexpr, width: tl.constexpr, inputs: tl.constexpr, kernel: tl.constexpr, back: tl.constexpr,
    epilogue: tl.constexpr, images: tl.constexpr, lines: tl.constexpr, groups: tl.constexpr, span: tl.constexpr,
    columns: tl.constexpr, rest: tl.constexpr,
):  # fmt: skip
    """A tile of the output, all ``columns + rest`` channels of it.

    The filters are (outputs, taps, inputs) and, where they are taken `back`, (inputs, taps, outputs).
    """
    size: tl.constexpr = images * lines * width
    tiles: tl.constexpr = height // (groups * lines)  # of an image
    image, top = tl.program_id(0) // tiles * images, tl.program_id(0) % tiles * (groups * lines)
    chunks: tl.constexpr = inputs // span
    reach: tl.constexpr = kernel if groups > 1 else 1  # lines of the kernel at a step
    totals = (tl.zeros((size, columns), tl.float32),) * groups
    rests = (tl.zeros((size, rest), tl.float32),) * groups
    for step in range(kernel // reach * kernel * chunks):
        i, j = step // (kernel * chunks), step // chunks % kernel
        channel = step % chunks * span
        for down in tl.static_range(groups + reach - 1):
            corner = [image, top + i + down - kernel // 2, j - kernel // 2, channel]
            patch = x.load(corner).reshape(size, span)
            for group in tl.static_range(groups):
                if down >= group and down < group + reach:
                    tap = (i + down - group) * kernel + j
                    if back:
                        tap = kernel * kernel - 1 - tap
                    part = _filters(filters, tap, channel, 0, columns, span, back)
                    part_rest = _filters(filters_rest, tap, channel, columns, rest, span, back)
                    totals = _replaced(totals, group, tl.dot(patch, part, totals[group]))
                    rests = _replaced(rests, group, tl.dot(patch, part_rest, rests[group]))
    place = tl.arange(0, size)
    first = ((image + place // (lines * width)) * height + top) * width + place % (lines * width)
    output = tl.arange(0, columns)
    output_rest = columns + tl.arange(0, rest)
    for group in tl.static_range(groups):
        pixel = (first + group * width)[:, None]
        start = pixel * (columns + rest)
        finish(
            totals[group], out, raw, threshold, start + output[None, :], pixel < pixels, output, output >= 0, epilogue
        )
        finish(
            rests[group], out, raw, threshold, start + output_rest[None, :], pixel < pixels, output_rest,
            output_rest >= 0, epilogue,
        )  # fmt: skip


def tiles_for(x: Tensor, weight: Tensor, outputs: int, shape: Shape) -> list[Tile]:
    """The tiles worth trying for a convolution of x to `outputs` channels; none where it is none of these.

    All sizes in a tile are powers of two, so the images' have to be, and the rest of the channels.
    """
    _, inputs, height, width = x.shape
    rest = _parts(outputs)[1]
    sizes = rest >= 16 and inputs % 16 == 0 and all(size & (size - 1) == 0 for size in (height, width, rest))
    same_size = shape.stride == 1 and shape.kernel == 2 * shape.padding + 1
    half = all(values.element_size() == 2 and values.data_ptr() % 16 == 0 for values in (x, weight))
    if not (sizes and same_size and half and _has_engine(x)):
        return []
    fitting = [tile for tile in _TILES if width <= tile.pixels and height % tile.groups == 0]
    return [tile for tile in fitting if _SUMS / 2 < tile.sums(outputs) <= _SUMS]


def _has_engine(x: Tensor) -> bool:
    # Of Hopper alone: a later chip may have less shared memory, and none has been tried.
    return TensorDescriptor is not None and x.is_cuda and torch.cuda.get_device_capability(x.device) == (9, 0)


def _parts(outputs: int) -> tuple[int, int]:
    """The largest power of two below, and the rest."""
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
    columns, rest = _parts(out.shape[1])
    many, lines = tile.box(height, width)
    span = min(64 if tile.groups == 1 else 32, inputs & -inputs)  # two groups hold three lines of filters too
    box = [many, lines, width, span]
    patches = TensorDescriptor(x, [images, height, width, inputs], _strides(height, width, inputs), box)

    def filters(part: int) -> object:
        first, kernel, _, last = (weight.shape[axis] for axis in (0, 2, 3, 1))
        taps = kernel**2
        return TensorDescriptor(
            weight, [first, taps, last], _strides(taps, last), [span, 1, part] if back else [part, 1, span]
        )

    _convolve_lines[(triton.cdiv(images, many) * (height // (tile.groups * lines)),)](
        patches, filters(columns), filters(rest), out, out if raw is None else raw,
        out if threshold is None else threshold, images * height * width,
        height, width, inputs, weight.shape[2], back, epilogue,
        images=many, lines=lines, groups=tile.groups, span=span, columns=columns, rest=rest,
        num_warps=tile.warps, num_stages=tile.stages,
    )  # fmt: skip
    return out


def _strides(*sizes: int) -> list[int]:
    """Of a contiguous tensor with these sizes behind its first axis."""
    strides = [1]
    for size in reversed(sizes):
        strides.insert(0, strides[0] * size)
    return strides
