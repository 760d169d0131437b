"""Batch normalisation in training, with what stands around it: a sum before, a residual sum and a ReLU after.

Forward is a pass that reduces, the combination of its partial results, and a pass that maps; so is backward, which
recomputes the ReLU's mask from the input rather than reading the output, unless a residual was added.
"""

from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from detrame.kernels.tiles import Tiles, sum_programs


class Norm(NamedTuple):
    """Parameters, buffers and settings of a batch normalisation; all vectors ``(C,)`` in float32."""

    weight: Tensor
    bias: Tensor
    running_mean: Tensor
    running_var: Tensor
    momentum: float
    eps: float


@triton.jit
def _moments(
    x, other, summed, means, squares, rows, add: tl.constexpr,
    channels: tl.constexpr, block_rows: tl.constexpr, block_channels: tl.constexpr,
):  # fmt: skip
    """Mean and sum of squared deviations of one program's rows, by channel; with `add`, of x + other, stored too."""
    column = tl.program_id(1) * block_channels + tl.arange(0, block_channels)
    inside = column < channels
    # Deviations from some value of the channel, not from 0: a large mean then costs no precision.
    about = tl.load(x + tl.program_id(0) * block_rows * channels + column, mask=inside, other=0).to(tl.float32)
    total = tl.zeros((block_rows, block_channels), tl.float32)
    squared = tl.zeros((block_rows, block_channels), tl.float32)
    for first in range(tl.program_id(0) * block_rows, rows, tl.num_programs(0) * block_rows):
        row = first + tl.arange(0, block_rows)
        mask = (row < rows)[:, None] & inside[None, :]
        place = row[:, None] * channels + column[None, :]
        value = tl.load(x + place, mask=mask, other=0).to(tl.float32)
        if add:
            value += tl.load(other + place, mask=mask, other=0).to(tl.float32)
            tl.store(summed + place, value.to(summed.dtype.element_ty), mask=mask)
        deviation = tl.where(mask, value - about[None, :], 0)
        total += deviation
        squared += deviation * deviation
    count = _rows_of(tl.program_id(0), rows, tl.num_programs(0), block_rows)
    shift = tl.sum(total, 0) / count
    place = tl.program_id(0) * channels + column
    tl.store(means + place, about + shift, mask=inside)
    tl.store(squares + place, tl.sum(squared, 0) - shift * shift * count, mask=inside)


@triton.jit
def _rows_of(program, rows, programs, block_rows: tl.constexpr):
    """How many rows a program's tiles have together."""
    tiles = (rows + block_rows - 1) // block_rows
    mine = (tiles - program + programs - 1) // programs
    last = (tiles - 1) % programs == program  # whose last tile may be short
    return (mine * block_rows - tl.where(last, tiles * block_rows - rows, 0)).to(tl.float32)


@triton.jit
def _combine_moments(
    means, squares, weight, bias, running_mean, running_var, saved, momentum, eps, rows, programs,
    channels: tl.constexpr, tile_rows: tl.constexpr, block_programs: tl.constexpr, block: tl.constexpr,
):  # fmt: skip
    """The moments of all rows from those of each program's; `saved` is (4, C): mean, rstd, scale, shift."""
    column = tl.program_id(0) * block + tl.arange(0, block)
    inside = column < channels
    mean = tl.zeros((block,), tl.float32)
    for first in range(0, programs, block_programs):
        program = first + tl.arange(0, block_programs)
        some = (program < programs)[:, None] & inside[None, :]
        count = tl.where(program < programs, _rows_of(program, rows, programs, tile_rows), 0)
        part = tl.load(means + program[:, None] * channels + column[None, :], mask=some, other=0)
        mean += tl.sum(part * count[:, None], 0)
    mean = mean / rows
    variance = tl.zeros((block,), tl.float32)
    for first in range(0, programs, block_programs):
        program = first + tl.arange(0, block_programs)
        some = (program < programs)[:, None] & inside[None, :]
        count = tl.where(program < programs, _rows_of(program, rows, programs, tile_rows), 0)
        place = program[:, None] * channels + column[None, :]
        apart = tl.load(means + place, mask=some, other=0) - mean[None, :]
        variance += tl.sum(tl.load(squares + place, mask=some, other=0) + apart * apart * count[:, None], 0)
    variance = variance / rows
    rstd = tl.rsqrt(variance + eps)
    scale = tl.load(weight + column, mask=inside, other=0) * rstd
    tl.store(saved + column, mean, mask=inside)
    tl.store(saved + channels + column, rstd, mask=inside)
    tl.store(saved + 2 * channels + column, scale, mask=inside)
    tl.store(saved + 3 * channels + column, tl.load(bias + column, mask=inside, other=0) - mean * scale, mask=inside)
    before = tl.load(running_mean + column, mask=inside, other=0)
    tl.store(running_mean + column, before + momentum * (mean - before), mask=inside)
    before = tl.load(running_var + column, mask=inside, other=0)
    unbiased = variance * (rows / tl.maximum(rows - 1, 1))
    tl.store(running_var + column, before + momentum * (unbiased - before), mask=inside)


@triton.jit
def _normalise(
    x, residual, out, saved, rows, relu: tl.constexpr, add: tl.constexpr,
    channels: tl.constexpr, block_rows: tl.constexpr, block_channels: tl.constexpr,
):  # fmt: skip
    column = tl.program_id(1) * block_channels + tl.arange(0, block_channels)
    inside = column < channels
    scale = tl.load(saved + 2 * channels + column, mask=inside, other=0)
    shift = tl.load(saved + 3 * channels + column, mask=inside, other=0)
    for first in range(tl.program_id(0) * block_rows, rows, tl.num_programs(0) * block_rows):
        row = first + tl.arange(0, block_rows)
        mask = (row < rows)[:, None] & inside[None, :]
        place = row[:, None] * channels + column[None, :]
        value = tl.load(x + place, mask=mask, other=0).to(tl.float32) * scale[None, :] + shift[None, :]
        if add:
            value += tl.load(residual + place, mask=mask, other=0).to(tl.float32)
        if relu:
            value = tl.maximum(value, 0)
        tl.store(out + place, value.to(out.dtype.element_ty), mask=mask)


@triton.jit
def _masked(grad, x, out, place, mask, scale, shift, relu: tl.constexpr, add: tl.constexpr):
    """The input, and the gradient where the ReLU let something pass."""
    value = tl.load(x + place, mask=mask, other=0).to(tl.float32)
    slope = tl.load(grad + place, mask=mask, other=0).to(tl.float32)
    if relu:
        if add:
            passed = tl.load(out + place, mask=mask, other=0).to(tl.float32) > 0
        else:
            passed = value * scale[None, :] + shift[None, :] > 0
        slope = tl.where(passed, slope, 0)
    return value, slope


@triton.jit
def _sums(
    grad, x, out, saved, sums, products, rows, relu: tl.constexpr, add: tl.constexpr,
    channels: tl.constexpr, block_rows: tl.constexpr, block_channels: tl.constexpr,
):  # fmt: skip
    """The sums of the gradient, and of its product with the normalised input, over one program's rows."""
    column = tl.program_id(1) * block_channels + tl.arange(0, block_channels)
    inside = column < channels
    mean = tl.load(saved + column, mask=inside, other=0)
    rstd = tl.load(saved + channels + column, mask=inside, other=0)
    scale = tl.load(saved + 2 * channels + column, mask=inside, other=0)
    shift = tl.load(saved + 3 * channels + column, mask=inside, other=0)
    total = tl.zeros((block_rows, block_channels), tl.float32)
    product = tl.zeros((block_rows, block_channels), tl.float32)
    for first in range(tl.program_id(0) * block_rows, rows, tl.num_programs(0) * block_rows):
        row = first + tl.arange(0, block_rows)
        mask = (row < rows)[:, None] & inside[None, :]
        place = row[:, None] * channels + column[None, :]
        value, slope = _masked(grad, x, out, place, mask, scale, shift, relu, add)
        total += slope
        product += slope * (value - mean[None, :])
    place = tl.program_id(0) * channels + column
    tl.store(sums + place, tl.sum(total, 0), mask=inside)
    tl.store(products + place, tl.sum(product, 0) * rstd, mask=inside)


@triton.jit
def _normalise_back(
    grad, x, out, saved, sums, x_grad, extra, residual_grad, rows,
    relu: tl.constexpr, add: tl.constexpr, more: tl.constexpr,
    channels: tl.constexpr, block_rows: tl.constexpr, block_channels: tl.constexpr,
):  # fmt: skip
    """`sums` is (2, C): of the gradient, and of its product with the normalised input."""
    column = tl.program_id(1) * block_channels + tl.arange(0, block_channels)
    inside = column < channels
    mean = tl.load(saved + column, mask=inside, other=0)
    rstd = tl.load(saved + channels + column, mask=inside, other=0)
    scale = tl.load(saved + 2 * channels + column, mask=inside, other=0)
    shift = tl.load(saved + 3 * channels + column, mask=inside, other=0)
    # x_grad = scale (slope - sum / rows - normalised product / rows), as a linear map of slope and value.
    by_value = -scale * rstd * tl.load(sums + channels + column, mask=inside, other=0) / rows
    constant = -scale * tl.load(sums + column, mask=inside, other=0) / rows - by_value * mean
    for first in range(tl.program_id(0) * block_rows, rows, tl.num_programs(0) * block_rows):
        row = first + tl.arange(0, block_rows)
        mask = (row < rows)[:, None] & inside[None, :]
        place = row[:, None] * channels + column[None, :]
        value, slope = _masked(grad, x, out, place, mask, scale, shift, relu, add)
        change = scale[None, :] * slope + by_value[None, :] * value + constant[None, :]
        if more:
            change += tl.load(extra + place, mask=mask, other=0).to(tl.float32)
        tl.store(x_grad + place, change.to(x_grad.dtype.element_ty), mask=mask)
        if add and relu:
            tl.store(residual_grad + place, slope.to(residual_grad.dtype.element_ty), mask=mask)


def moments(x: Tensor, norm: Norm, other: Tensor | None = None, summed: Tensor | None = None) -> Tensor:
    """Mean, 1 / std, scale and shift by channel, ``(4, C)``, of x or of x + other, which then goes to `summed`.

    The running statistics move.
    """
    tiles = Tiles.of(x)
    partial = tiles.partial(x)
    _moments[tiles.grid](
        x, x if other is None else other, x if summed is None else summed, *partial, tiles.rows,
        add=other is not None, **tiles.meta,
    )  # fmt: skip
    saved = x.new_empty((4, tiles.channels), dtype=torch.float32)
    _combine_moments[(triton.cdiv(tiles.channels, 16),)](
        *partial, norm.weight, norm.bias, norm.running_mean, norm.running_var, saved, norm.momentum, norm.eps,
        tiles.rows, tiles.programs,
        channels=tiles.channels, tile_rows=tiles.block_rows, block_programs=64, block=16, num_warps=4,
    )  # fmt: skip
    return saved


def normalise(x: Tensor, saved: Tensor, out: Tensor, *, residual: Tensor | None = None, relu: bool = False) -> None:
    """Write ``relu(norm(x) + residual)`` to `out`, of the shape ``(N, C, H, W)`` of `x`."""
    tiles = Tiles.of(x)
    _normalise[tiles.grid](
        x, x if residual is None else residual, out, saved, tiles.rows,
        relu=relu, add=residual is not None, **tiles.meta,
    )  # fmt: skip


class Gradients(NamedTuple):
    """Of the input and the residual ``(N, C, H, W)``, of weight and bias ``(C,)``."""

    x: Tensor
    residual: Tensor
    weight: Tensor
    bias: Tensor


def normalise_back(
    grad: Tensor, x: Tensor, saved: Tensor, *, out: Tensor | None = None, relu: bool, extra: Tensor | None = None
) -> Gradients:
    """The gradients of :func:`normalise`; `out` is its result if a residual was added, None otherwise.

    An `extra` gradient, of another use of x, is added to that of x.
    """
    tiles = Tiles.of(x)
    add = out is not None
    passed = x if out is None else out
    partial = tiles.partial(x)
    _sums[tiles.grid](grad, x, passed, saved, *partial, tiles.rows, relu=relu, add=add, **tiles.meta)
    sums = sum_programs(partial, x.new_empty((2, tiles.channels), dtype=torch.float32))
    x_grad = torch.empty_like(x)
    residual_grad = torch.empty_like(x) if add and relu else grad
    _normalise_back[tiles.grid](
        grad, x, passed, saved, sums, x_grad, x if extra is None else extra, residual_grad, tiles.rows,
        relu=relu, add=add, more=extra is not None, **tiles.meta,
    )  # fmt: skip
    return Gradients(x_grad, residual_grad, weight=sums[1], bias=sums[0])


class NormReLU(torch.autograd.Function):
    """``relu(norm(x) + residual)``, with or without residual and ReLU."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, weight: Tensor, bias: Tensor, residual: Tensor | None, norm: Norm, relu: bool
    ) -> Tensor:
        """`weight` and `bias` are those of `norm`, named apart for their gradients."""
        out = torch.empty_like(x)
        saved = moments(x, norm)
        normalise(x, saved, out, residual=residual, relu=relu)
        ctx.save_for_backward(x, saved, None if residual is None else out)
        ctx.relu = relu
        return out

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        """The gradients of the four tensors."""
        x, saved, out = ctx.saved_tensors
        found = normalise_back(channels_last(grads[0]), x, saved, out=out, relu=ctx.relu)
        return found.x, found.weight, found.bias, None if out is None else found.residual, None, None


class SumNormReLU(torch.autograd.Function):
    """``s = a + b`` and ``relu(norm(s))``, both of which are used: a residual block that normalises first."""

    @staticmethod
    def forward(ctx: Any, a: Tensor, b: Tensor, weight: Tensor, bias: Tensor, norm: Norm) -> tuple[Tensor, Tensor]:
        """`weight` and `bias` are those of `norm`, named apart for their gradients."""
        summed, out = torch.empty_like(a), torch.empty_like(a)
        saved = moments(a, norm, b, summed)
        normalise(summed, saved, out, relu=True)
        ctx.save_for_backward(summed, saved)
        ctx.set_materialize_grads(False)
        return summed, out

    @staticmethod
    def backward(ctx: Any, *grads: Tensor | None) -> tuple[Tensor | None, ...]:
        """The gradients of the four tensors; those of a and b are one."""
        summed, saved = ctx.saved_tensors
        extra = None if grads[0] is None else channels_last(grads[0])
        assert grads[1] is not None
        found = normalise_back(channels_last(grads[1]), summed, saved, relu=True, extra=extra)
        return found.x, found.x, found.weight, found.bias, None


def channels_last(x: Tensor) -> Tensor:
    """`x` in the layout that the kernels read."""
    return x.contiguous(memory_format=torch.channels_last)
