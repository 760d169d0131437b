"""Convolutions of channels-last images with few channels, in Triton.

In memory, one line of a patch, neighbouring pixels with all their channels, is contiguous, and so is one line of a
filter. A product therefore takes a span of such a line, and not one pixel of few channels. A row of it is a group of
neighbouring output pixels, whose patches overlap: the line behind all of them is loaded once, and each has columns of
its own, its filters shifted by its place in the group. Sizes are compiled in, for most of the arithmetic is on places.
"""

from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from detrame.kernels.tiles import MULTIPROCESSORS, positive_part, sum_programs

_TILES = 100  # that leave few multiprocessors idle


class Shape(NamedTuple):
    """Of a square kernel: size, stride and zero padding."""

    kernel: int
    stride: int
    padding: int


class Tile(NamedTuple):
    """What a product takes: groups of `pixels`, a span of a patch, their output channels; and how it is compiled."""

    pixels: int
    rows: int
    span: int
    columns: int
    warps: int = 4
    stages: int = 3

    def spans(self, lines: int, line: int) -> int:
        """How many spans a patch of `lines` of `line` values has: it is taken whole, or each line in parts."""
        return 1 if lines * line <= self.span else lines * triton.cdiv(line, self.span)

    def unrolled(self, line: int) -> bool:
        """Whether the spans of a patch are few enough, one a line, to be loaded all at once rather than in turn."""
        return line <= self.span

    @property
    def meta(self) -> dict[str, int]:
        """What a kernel is compiled for."""
        blocks = {"block_rows": self.rows, "block_span": self.span, "block_columns": self.columns}
        return {"pixels": self.pixels, **blocks, "num_warps": self.warps, "num_stages": self.stages}


@triton.jit
def _groups(first, height: tl.constexpr, groups: tl.constexpr, pixels: tl.constexpr, block_rows: tl.constexpr):
    """The rows from a multiple of `block_rows` on, with their image, line and first column."""
    local = tl.arange(0, block_rows)
    row = first + local
    if block_rows % groups == 0 and height * groups % block_rows == 0:  # whole lines of one image
        image = tl.zeros_like(local) + first // (height * groups)
        h, w = first // groups % height + local // groups, local % groups
    else:
        image, h, w = row // (height * groups), row // groups % height, row % groups
    return row, image, h, w * pixels


@triton.jit
def _columns(pixels: tl.constexpr, outputs: tl.constexpr, block_columns: tl.constexpr):
    """Of a program's columns: the pixel in the group, the output channel, and whether there are such."""
    output = tl.program_id(1) * block_columns + tl.arange(0, block_columns)
    pixel = tl.zeros_like(output)
    if pixels > 1:
        pixel, output = output // outputs, output % outputs
    return pixel, output, (pixel < pixels) & (output < outputs)


@triton.jit
def _span(step, spans: tl.constexpr, lines: tl.constexpr, line: tl.constexpr, block_span: tl.constexpr):
    """Of one of a patch's spans: the line it is in, or that of each value, and the places in the line."""
    place = tl.arange(0, block_span)
    if spans < lines:  # the whole patch
        i, place = place // line, place % line
    else:
        spans_a_line: tl.constexpr = spans // lines
        i = tl.full((1,), step // spans_a_line, tl.int32)
        place += step % spans_a_line * block_span
    return i, place


@triton.jit
def _patches(x, image, top, left, some, i, place, lines, line: tl.constexpr,
             in_height: tl.constexpr, in_width: tl.constexpr, inputs: tl.constexpr):  # fmt: skip
    """A span of the patches with corners (top, left), (rows, block_span); zero beyond the image and the patch."""
    up = top[:, None] + i[None, :]
    column = left[:, None] + (place // inputs)[None, :]
    inside = (up.to(tl.uint32) < in_height) & some[:, None]  # unsigned, what is below zero is large
    inside = inside & (column.to(tl.uint32) < in_width) & ((i < lines) & (place < line))[None, :]
    corner = ((image[:, None] * in_height + up) * in_width + left[:, None]) * inputs
    return tl.load(x + corner + place[None, :], mask=inside, other=0)


@triton.jit
def finish(total, out, raw, threshold, place, mask, output, inside, epilogue: tl.constexpr):
    """Store a tile, after a step of the Q-Metric ReLU or the mask of its backward."""
    if epilogue == "step":  # relu(W u - raw - b)
        total -= tl.load(raw + place, mask=mask, other=0).to(tl.float32)
        total = positive_part(total - tl.load(threshold + output, mask=inside, other=0)[None, :])
    if epilogue == "mask":  # the gradient where the code, here `raw`, is positive
        total = tl.where(tl.load(raw + place, mask=mask, other=0).to(tl.float32) > 0, total, 0)
    tl.store(out + place, total.to(out.dtype.element_ty), mask=mask)


@triton.jit
def _convolve_span(
    total, x, weight, image, top, left, some, pixel, output, inside, step,
    spans: tl.constexpr, line: tl.constexpr, in_height: tl.constexpr, in_width: tl.constexpr,
    inputs: tl.constexpr, kernel: tl.constexpr, stride: tl.constexpr, block_span: tl.constexpr,
):  # fmt: skip
    i, place = _span(step, spans, kernel, line, block_span)
    patch = _patches(x, image, top, left, some, i, place, kernel, line, in_height, in_width, inputs)
    tap = place[:, None] - (pixel * (stride * inputs))[None, :]
    mask = (tap >= 0) & (tap < kernel * inputs) & (i < kernel)[:, None] & inside[None, :]
    filters = tl.load(weight + (output[None, :] * kernel + i[:, None]) * (kernel * inputs) + tap, mask=mask, other=0)
    return tl.dot(patch, filters, total, input_precision="ieee")


@triton.jit
def _convolve(
    x, weight, out, raw, threshold, rows,
    height: tl.constexpr, width: tl.constexpr, in_height: tl.constexpr, in_width: tl.constexpr,
    inputs: tl.constexpr, outputs: tl.constexpr, kernel: tl.constexpr, stride: tl.constexpr, padding: tl.constexpr,
    epilogue: tl.constexpr, spans: tl.constexpr, unrolled: tl.constexpr,
    pixels: tl.constexpr, block_rows: tl.constexpr, block_span: tl.constexpr, block_columns: tl.constexpr,
):  # fmt: skip
    """A tile of the output, of (height, width); `weight` is (outputs, kernel, kernel, inputs)."""
    pixel, output, inside = _columns(pixels, outputs, block_columns)
    groups: tl.constexpr = width // pixels
    row, image, h, w = _groups(tl.program_id(0) * block_rows, height, groups, pixels, block_rows)
    line: tl.constexpr = ((pixels - 1) * stride + kernel) * inputs
    top, left = h * stride - padding, w * stride - padding
    total = tl.zeros((block_rows, block_columns), tl.float32)
    if unrolled:  # the same twice, since Triton tells the two kinds of loop apart by how they are written
        for step in tl.static_range(spans):
            total = _convolve_span(
                total, x, weight, image, top, left, row < rows, pixel, output, inside, step,
                spans, line, in_height, in_width, inputs, kernel, stride, block_span,
            )  # fmt: skip
    else:
        for step in range(spans):
            total = _convolve_span(
                total, x, weight, image, top, left, row < rows, pixel, output, inside, step,
                spans, line, in_height, in_width, inputs, kernel, stride, block_span,
            )  # fmt: skip
    place_out = row[:, None] * (pixels * outputs) + (pixel * outputs + output)[None, :]
    mask = (row < rows)[:, None] & inside[None, :]
    finish(total, out, raw, threshold, place_out, mask, output, inside, epilogue)


@triton.jit
def _convolve_back_span(
    total, grad, weight, image, top, left, some, pixel, output, inside, first_i, first_j, lines, step,
    spans: tl.constexpr, taps: tl.constexpr, line: tl.constexpr, in_height: tl.constexpr, in_width: tl.constexpr,
    inputs: tl.constexpr, outputs: tl.constexpr, kernel: tl.constexpr, stride: tl.constexpr, block_span: tl.constexpr,
):  # fmt: skip
    from_top, place = _span(step, spans, 1, line, block_span)
    patch = _patches(grad, image, top, left, some, from_top, place, lines, line, in_height, in_width, inputs)
    from_left = (place // inputs)[:, None] - pixel[None, :]
    i, j = first_i + (lines - 1 - from_top) * stride, first_j + (taps - 1 - from_left) * stride
    mask = (from_left >= 0) & (from_left < taps) & (j < kernel) & inside[None, :]
    tap = ((place % inputs) * kernel + i)[:, None] * kernel + j
    filters = tl.load(weight + tap * outputs + output[None, :], mask=mask, other=0)
    return tl.dot(patch, filters, total, input_precision="ieee")


@triton.jit
def _convolve_back(
    grad, weight, out, code, rows,
    height: tl.constexpr, width: tl.constexpr, in_height: tl.constexpr, in_width: tl.constexpr,
    inputs: tl.constexpr, outputs: tl.constexpr, kernel: tl.constexpr, stride: tl.constexpr, padding: tl.constexpr,
    epilogue: tl.constexpr, spans: tl.constexpr, unrolled: tl.constexpr,
    pixels: tl.constexpr, block_rows: tl.constexpr, block_span: tl.constexpr, block_columns: tl.constexpr,
):  # fmt: skip
    """A tile of the gradient of the input, of (height, width); `weight` is (inputs, kernel, kernel, outputs).

    The pixels of a tile are alike modulo the stride, so that they share the taps that reach them, every `stride`-th.
    With those, in reverse, it is a convolution of `grad`, which has `inputs` channels and is of (in_height, in_width).
    """
    pixel, output, inside = _columns(pixels, outputs, block_columns)
    h_phase, w_phase = tl.program_id(2) // stride % stride, tl.program_id(2) % stride
    few_h: tl.constexpr = (height + stride - 1) // stride
    groups: tl.constexpr = (width + stride - 1) // stride // pixels
    row, image, h, w = _groups(tl.program_id(0) * block_rows, few_h, groups, pixels, block_rows)
    some = (row < rows) & (h * stride + h_phase < height) & (w * stride + w_phase < width)
    first_i, first_j = (h_phase + padding) % stride, (w_phase + padding) % stride
    lines = (kernel - first_i + stride - 1) // stride
    taps: tl.constexpr = (kernel + stride - 1) // stride  # of a line, at most
    top, left = h + (h_phase + padding) // stride - (lines - 1), w + (w_phase + padding) // stride - (taps - 1)
    line: tl.constexpr = (pixels - 1 + taps) * inputs
    total = tl.zeros((block_rows, block_columns), tl.float32)
    if unrolled and stride == 1:
        for step in tl.static_range(kernel * spans):
            total = _convolve_back_span(
                total, grad, weight, image, top, left, some, pixel, output, inside, first_i, first_j, lines, step,
                spans, taps, line, in_height, in_width, inputs, outputs, kernel, stride, block_span,
            )  # fmt: skip
    else:
        for step in range(lines * spans):
            total = _convolve_back_span(
                total, grad, weight, image, top, left, some, pixel, output, inside, first_i, first_j, lines, step,
                spans, taps, line, in_height, in_width, inputs, outputs, kernel, stride, block_span,
            )  # fmt: skip
    first = (image * height + h * stride + h_phase) * width + w * stride + w_phase
    place_out = first[:, None] * outputs + (pixel * (stride * outputs) + output)[None, :]
    finish(total, out, code, code, place_out, some[:, None] & inside[None, :], output, inside, epilogue)


@triton.jit
def _weight_gradient(
    grad, x, partial, rows, rows_a_program,
    height: tl.constexpr, width: tl.constexpr, in_height: tl.constexpr, in_width: tl.constexpr,
    inputs: tl.constexpr, outputs: tl.constexpr, kernel: tl.constexpr, stride: tl.constexpr, padding: tl.constexpr,
    spans: tl.constexpr,
    pixels: tl.constexpr, block_rows: tl.constexpr, block_span: tl.constexpr, block_columns: tl.constexpr,
):  # fmt: skip
    """One program: some rows, a span, some columns; `partial` is (programs, pixels, *weight.shape)."""
    pixel, output, inside = _columns(pixels, outputs, block_columns)
    line: tl.constexpr = ((pixels - 1) * stride + kernel) * inputs
    i, place = _span(tl.program_id(2), spans, kernel, line, block_span)
    groups: tl.constexpr = width // pixels
    total = tl.zeros((block_span, block_columns), tl.float32)
    start = tl.program_id(0) * rows_a_program
    stop = tl.minimum(start + rows_a_program, rows)
    for first in range(start, stop, block_rows):
        row, image, h, w = _groups(first, height, groups, pixels, block_rows)
        patch = _patches(
            x, image, h * stride - padding, w * stride - padding, row < stop, i, place, kernel, line,
            in_height, in_width, inputs,
        )  # fmt: skip
        slope = tl.load(
            grad + row[:, None] * (pixels * outputs) + (pixel * outputs + output)[None, :],
            mask=(row < stop)[:, None] & inside[None, :],
            other=0,
        )
        total = tl.dot(tl.trans(patch), slope, total, input_precision="ieee")
    share = (tl.program_id(0) * pixels + pixel) * outputs + output
    tap = place[:, None] - (pixel * (stride * inputs))[None, :]
    mask = (tap >= 0) & (tap < kernel * inputs) & (i < kernel)[:, None] & inside[None, :]
    tl.store(partial + (share[None, :] * kernel + i[:, None]) * (kernel * inputs) + tap, total, mask=mask)


def _block(channels: int, most: int) -> int:
    return min(max(16, triton.next_power_of_2(channels)), most)


def _line(pixels: int, shape: Shape, inputs: int) -> int:
    """The values of a line of the patch behind a group."""
    return ((pixels - 1) * shape.stride + shape.kernel) * inputs


def _loads(pixels: int, shape: Shape, inputs: int) -> tuple[int, int, int]:
    """The values loaded for each of a group of `pixels`, padding included; `pixels`; and the span they come in."""
    line = _line(pixels, shape, inputs)
    span = _block(line, 128) if line <= 128 else 64
    return Tile(pixels, 0, span, 0).spans(shape.kernel, line) * span // pixels, pixels, span


def tile_of(x: Tensor, places: int, width: int, outputs: int, shape: Shape) -> Tile:
    """The tile for a convolution of x to `places` pixels, in lines of `width`, of `outputs` channels."""
    patch = shape.kernel * _line(1, shape, x.shape[1])
    half = x.element_size() == 2  # of float32, shared memory holds less
    if patch <= 32:  # it is taken whole
        pixels, span, columns = 1, _block(patch, 32), _block(outputs, 128)
    else:
        groups = [pixels for pixels in (1, 2, 4) if pixels == 1 or (width % pixels == 0 and pixels * outputs <= 64)]
        _, pixels, span = min(_loads(pixels, shape, x.shape[1]) for pixels in groups)
        columns = _block(pixels * outputs, 64)
    rows = 128 if half and places >= 128 * _TILES * pixels else 64
    return Tile(pixels, rows, span, columns, stages=3 if half else 1)


def convolve(
    x: Tensor,
    weight: Tensor,
    shape: Shape,
    out: Tensor,
    *,
    epilogue: str = "",
    raw: Tensor | None = None,
    threshold: Tensor | None = None,
    tile: Tile | None = None,
) -> Tensor:
    """A convolution into `out`, with an epilogue on `raw` and `threshold`."""
    images, outputs, height, width = out.shape
    inputs = x.shape[1]
    tile = tile or tile_of(x, images * height * width, width, outputs, shape)
    rows, line = images * height * width // tile.pixels, _line(tile.pixels, shape, inputs)
    _convolve[triton.cdiv(rows, tile.rows), triton.cdiv(tile.pixels * outputs, tile.columns)](
        x, weight, out, x if raw is None else raw, x if threshold is None else threshold, rows,
        height, width, x.shape[2], x.shape[3], inputs, outputs, *shape, epilogue,
        spans=tile.spans(shape.kernel, line), unrolled=tile.unrolled(line), **tile.meta,
    )  # fmt: skip
    return out


def convolve_back(
    grad: Tensor, weight: Tensor, shape: Shape, out: Tensor, *, code: Tensor | None = None, tile: Tile | None = None
) -> Tensor:
    """The gradient of the input into `out`; with a `code`, only where that is positive."""
    images, outputs, height, width = out.shape
    stride, inputs = shape.stride, grad.shape[1]
    reverse = Shape(triton.cdiv(shape.kernel, stride), 1, 0)  # what it is for pixels alike modulo the stride
    groups = width // stride if width % stride == 0 else 1
    tile = tile or tile_of(grad, images * height * width, groups, outputs, reverse)
    rows = images * triton.cdiv(height, stride) * triton.cdiv(width, stride) // tile.pixels  # alike
    line = _line(tile.pixels, reverse, inputs)
    _convolve_back[triton.cdiv(rows, tile.rows), triton.cdiv(tile.pixels * outputs, tile.columns), stride**2](
        grad, weight, out, grad if code is None else code, rows,
        height, width, grad.shape[2], grad.shape[3], inputs, outputs, *shape, "" if code is None else "mask",
        spans=tile.spans(1, line), unrolled=tile.unrolled(line), **tile.meta,
    )  # fmt: skip
    return out


def weight_gradient(
    grad: Tensor, x: Tensor, weight: Tensor, shape: Shape, *, tile: Tile | None = None, programs: int | None = None
) -> Tensor:
    """The gradient of the weight: the programs' shares first, then their sum, so that every run gives the same.

    Of `programs`, one for each multiprocessor has proved best, and two where they have a patch whole.
    """
    images, outputs, height, width = grad.shape
    inputs = x.shape[1]
    tile = tile or tile_of(x, images * height * width, width, outputs, shape)
    rows = images * height * width // tile.pixels
    spans = tile.spans(shape.kernel, _line(tile.pixels, shape, inputs))
    blocks = triton.cdiv(tile.pixels * outputs, tile.columns)
    programs = programs or (MULTIPROCESSORS if spans > 1 else 2 * MULTIPROCESSORS)
    rows_a_program = triton.cdiv(triton.cdiv(rows, tile.rows), max(1, programs // (spans * blocks))) * tile.rows
    programs = triton.cdiv(rows, rows_a_program)
    partial = weight.new_empty((1, programs * tile.pixels, weight.numel()), dtype=torch.float32)
    _weight_gradient[programs, blocks, spans](
        grad, x, partial, rows, rows_a_program,
        height, width, x.shape[2], x.shape[3], inputs, outputs, *shape, spans=spans, **tile.meta,
    )  # fmt: skip
    return sum_programs(partial, torch.empty_like(weight))
