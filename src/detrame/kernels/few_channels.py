"""Convolutions of channels-last images with few channels, in Triton.

In memory, one line of the patch behind an output pixel, `kernel` pixels of all their channels, is contiguous, and so is
one line of a filter. A product therefore takes a span of such a line, and not one pixel of few channels: a whole line
up to 128 values; the whole patch where it has 32, as that of a 3x3 kernel on 3 colours. Rows are pixels
(image, height, width); sizes are compiled in, for most of the arithmetic is on places.
"""

from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from detrame.kernels.tiles import sum_programs

_PROGRAMS = 264  # that share a weight gradient: two for each multiprocessor of an H200


class Shape(NamedTuple):
    """Of a square kernel: size, stride and zero padding."""

    kernel: int
    stride: int
    padding: int


class Tile(NamedTuple):
    """What a product takes: rows, a span of a patch's line, output channels; and how it is compiled."""

    rows: int
    span: int
    outputs: int
    warps: int = 4
    stages: int = 3

    def spans(self, lines: int, line: int) -> int:
        """How many spans a patch of `lines` of `line` values has."""
        return 1 if lines * line <= self.span else lines * triton.cdiv(line, self.span)

    @property
    def meta(self) -> dict[str, int]:
        """What a kernel is compiled for."""
        blocks = {"block_rows": self.rows, "block_span": self.span, "block_outputs": self.outputs}
        return {**blocks, "num_warps": self.warps, "num_stages": self.stages}


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
    """A span of the patches whose corners are (top, left), (rows, block_span); zero beyond an image and a patch."""
    up = top[:, None] + i[None, :]
    column = left[:, None] + (place // inputs)[None, :]
    inside = (up >= 0) & (up < in_height) & some[:, None]
    inside = inside & (column >= 0) & (column < in_width) & ((i < lines) & (place < line))[None, :]
    corner = ((image[:, None] * in_height + up) * in_width + left[:, None]) * inputs
    return tl.load(x + corner + place[None, :], mask=inside, other=0)


@triton.jit
def _finish(
    total, out, raw, threshold, pixel, some, output, outputs: tl.constexpr, epilogue: tl.constexpr
):  # fmt: skip
    """Store a tile, after a step of the Q-Metric ReLU or the mask of its backward."""
    place = pixel[:, None] * outputs + output[None, :]
    mask = some[:, None] & (output < outputs)[None, :]
    if epilogue == "step":  # relu(W u - raw - b)
        total -= tl.load(raw + place, mask=mask, other=0).to(tl.float32)
        total = tl.maximum(total - tl.load(threshold + output, mask=output < outputs, other=0)[None, :], 0)
    if epilogue == "mask":  # the gradient where the code, here `raw`, is positive
        total = tl.where(tl.load(raw + place, mask=mask, other=0).to(tl.float32) > 0, total, 0)
    tl.store(out + place, total.to(out.dtype.element_ty), mask=mask)


@triton.jit
def _convolve(
    x, weight, out, raw, threshold, rows,
    height: tl.constexpr, width: tl.constexpr, in_height: tl.constexpr, in_width: tl.constexpr,
    inputs: tl.constexpr, outputs: tl.constexpr, kernel: tl.constexpr, stride: tl.constexpr, padding: tl.constexpr,
    epilogue: tl.constexpr,
    spans: tl.constexpr, block_rows: tl.constexpr, block_span: tl.constexpr, block_outputs: tl.constexpr,
):  # fmt: skip
    """A tile of output pixels; `weight` is (outputs, kernel, kernel, inputs)."""
    row = tl.program_id(0) * block_rows + tl.arange(0, block_rows)
    output = tl.program_id(1) * block_outputs + tl.arange(0, block_outputs)
    image, h, w = row // (height * width), row // width % height, row % width
    top, left = h * stride - padding, w * stride - padding
    line: tl.constexpr = kernel * inputs
    total = tl.zeros((block_rows, block_outputs), tl.float32)
    for step in range(spans):
        i, place = _span(step, spans, kernel, line, block_span)
        patch = _patches(
            x, image, top, left, row < rows, i, place, kernel, line, in_height, in_width, inputs
        )  # fmt: skip
        mask = ((i < kernel) & (place < line))[:, None] & (output < outputs)[None, :]
        filters = tl.load(weight + output[None, :] * (kernel * line) + (i * line + place)[:, None], mask=mask, other=0)
        total = tl.dot(patch, filters, total, input_precision="ieee")
    _finish(total, out, raw, threshold, row, row < rows, output, outputs, epilogue)


@triton.jit
def _convolve_back(
    grad, weight, out, code, rows,
    height: tl.constexpr, width: tl.constexpr, in_height: tl.constexpr, in_width: tl.constexpr,
    inputs: tl.constexpr, outputs: tl.constexpr, kernel: tl.constexpr, stride: tl.constexpr, padding: tl.constexpr,
    epilogue: tl.constexpr,
    spans: tl.constexpr, block_rows: tl.constexpr, block_span: tl.constexpr, block_outputs: tl.constexpr,
):  # fmt: skip
    """A tile of the gradient of the input, of (height, width); `weight` is (inputs, kernel, kernel, outputs).

    The pixels of a tile are alike modulo the stride, so that they share the taps that reach them, every `stride`-th.
    Over those it is a convolution of `grad`, which has `inputs` channels and is of (in_height, in_width), with the
    taps in reverse.
    """
    row = tl.program_id(0) * block_rows + tl.arange(0, block_rows)
    output = tl.program_id(1) * block_outputs + tl.arange(0, block_outputs)
    h_phase, w_phase = tl.program_id(2) // stride, tl.program_id(2) % stride
    few_h, few_w = (height - h_phase + stride - 1) // stride, (width - w_phase + stride - 1) // stride
    image, h, w = row // (few_h * few_w), row // few_w % few_h, row % few_w
    some = row < rows // (height * width) * few_h * few_w
    first_i, first_j = (h_phase + padding) % stride, (w_phase + padding) % stride
    lines = (kernel - first_i + stride - 1) // stride
    taps: tl.constexpr = (kernel + stride - 1) // stride  # of a line, at most
    top, left = h + (h_phase + padding) // stride - (lines - 1), w + (w_phase + padding) // stride - (taps - 1)
    line: tl.constexpr = taps * inputs
    total = tl.zeros((block_rows, block_outputs), tl.float32)
    for step in range(lines * spans):
        from_top, place = _span(step, spans, 1, line, block_span)
        patch = _patches(grad, image, top, left, some, from_top, place, lines, line, in_height, in_width, inputs)
        i, j = first_i + (lines - 1 - from_top) * stride, first_j + (taps - 1 - place // inputs) * stride
        mask = ((j < kernel) & (place < line))[:, None] & (output < outputs)[None, :]
        tap = (place % inputs * kernel + i) * kernel + j
        filters = tl.load(weight + tap[:, None] * outputs + output[None, :], mask=mask, other=0)
        total = tl.dot(patch, filters, total, input_precision="ieee")
    pixel = (image * height + h * stride + h_phase) * width + w * stride + w_phase
    _finish(total, out, code, code, pixel, some, output, outputs, epilogue)


@triton.jit
def _weight_gradient(
    grad, x, partial, rows, rows_a_program,
    height: tl.constexpr, width: tl.constexpr, in_height: tl.constexpr, in_width: tl.constexpr,
    inputs: tl.constexpr, outputs: tl.constexpr, kernel: tl.constexpr, stride: tl.constexpr, padding: tl.constexpr,
    spans: tl.constexpr, block_rows: tl.constexpr, block_span: tl.constexpr, block_outputs: tl.constexpr,
):  # fmt: skip
    """One program: some rows, a span of the filters, a block of them; `partial` is (programs, *weight.shape)."""
    line: tl.constexpr = kernel * inputs
    i, place = _span(tl.program_id(1), spans, kernel, line, block_span)
    output = tl.program_id(2) * block_outputs + tl.arange(0, block_outputs)
    total = tl.zeros((block_span, block_outputs), tl.float32)
    start = tl.program_id(0) * rows_a_program
    stop = tl.minimum(start + rows_a_program, rows)
    for first in range(start, stop, block_rows):
        row = first + tl.arange(0, block_rows)
        some = row < stop
        image, h, w = row // (height * width), row // width % height, row % width
        slope = tl.load(
            grad + row[:, None] * outputs + output[None, :], mask=some[:, None] & (output < outputs)[None, :], other=0
        )
        patch = _patches(
            x, image, h * stride - padding, w * stride - padding, some, i, place, kernel, line,
            in_height, in_width, inputs,
        )  # fmt: skip
        total = tl.dot(tl.trans(patch), slope, total, input_precision="ieee")
    place_out = (tl.program_id(0) * outputs + output[None, :]) * (kernel * line) + (i * line + place)[:, None]
    mask = ((i < kernel) & (place < line))[:, None] & (output < outputs)[None, :]
    tl.store(partial + place_out, total, mask=mask)


def _block(channels: int, most: int) -> int:
    return min(max(16, triton.next_power_of_2(channels)), most)


def _span_of(lines: int, line: int) -> int:
    """The values of a patch that one product takes."""
    if lines * line <= 32:
        return 32
    return _block(line, 128) if line <= 128 else 64


def tile_of(rows: int, lines: int, line: int, outputs: int) -> Tile:
    """For a convolution with patches of `lines` of `line` values."""
    few = rows < 128 * 132  # there would not be a tile for each multiprocessor
    span = _span_of(lines, line)
    return Tile(64 if few else 128, span, _block(outputs, 128 if span == 32 else 64))


def gradient_tile_of(lines: int, line: int, outputs: int) -> Tile:
    """For the gradient of such a convolution's weight."""
    return Tile(128, _span_of(lines, line), _block(outputs, 64))


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
    inputs, rows = x.shape[1], images * height * width
    line = shape.kernel * inputs
    tile = tile or tile_of(rows, shape.kernel, line, outputs)
    _convolve[triton.cdiv(rows, tile.rows), triton.cdiv(outputs, tile.outputs)](
        x, weight, out, x if raw is None else raw, x if threshold is None else threshold, rows,
        height, width, x.shape[2], x.shape[3], inputs, outputs, *shape, epilogue,
        spans=tile.spans(shape.kernel, line), **tile.meta,
    )  # fmt: skip
    return out


def convolve_back(
    grad: Tensor, weight: Tensor, shape: Shape, out: Tensor, *, code: Tensor | None = None, tile: Tile | None = None
) -> Tensor:
    """The gradient of the input into `out`; with a `code`, only where that is positive."""
    images, outputs, height, width = out.shape
    phases = shape.stride**2
    inputs, line = grad.shape[1], triton.cdiv(shape.kernel, shape.stride) * grad.shape[1]
    rows = images * triton.cdiv(height, shape.stride) * triton.cdiv(width, shape.stride)  # of the first phase
    tile = tile or tile_of(rows * phases, shape.kernel, line, outputs)
    _convolve_back[triton.cdiv(rows, tile.rows), triton.cdiv(outputs, tile.outputs), phases](
        grad, weight, out, grad if code is None else code, images * height * width,
        height, width, grad.shape[2], grad.shape[3], inputs, outputs, *shape, "" if code is None else "mask",
        spans=tile.spans(1, line), **tile.meta,
    )  # fmt: skip
    return out


def weight_gradient(
    grad: Tensor, x: Tensor, weight: Tensor, shape: Shape, *, tile: Tile | None = None, programs: int = _PROGRAMS
) -> Tensor:
    """The gradient of the weight: the programs' shares first, then their sum, so that every run gives the same."""
    images, outputs, height, width = grad.shape
    inputs, rows = x.shape[1], images * height * width
    line = shape.kernel * inputs
    tile = tile or gradient_tile_of(shape.kernel, line, outputs)
    spans, blocks = tile.spans(shape.kernel, line), triton.cdiv(outputs, tile.outputs)
    rows_a_program = triton.cdiv(triton.cdiv(rows, tile.rows), max(1, programs // (spans * blocks))) * tile.rows
    shares = triton.cdiv(rows, rows_a_program)
    partial = weight.new_empty((1, shares, weight.numel()), dtype=torch.float32)
    _weight_gradient[shares, spans, blocks](
        grad, x, partial, rows, rows_a_program,
        height, width, x.shape[2], x.shape[3], inputs, outputs, *shape, spans=spans, **tile.meta,
    )  # fmt: skip
    return sum_programs(partial, torch.empty_like(weight))
