"""Batch normalisation with what stands around it: a sum before, a residual sum and a ReLU after.

In training, forward is a pass that reduces, the sum of its partial results, and a pass that maps; so is backward, which
recomputes the ReLU's mask from the input rather than reading the output, unless a residual was added. In evaluation
only the pass that maps is left.
"""

from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from detrame.kernels.tiles import Tiles, positive_part, sum_programs


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
    x, other, summed, sums, squares, rows, add: tl.constexpr,
    channels: tl.constexpr, block_rows: tl.constexpr, block_channels: tl.constexpr,
):  # fmt: skip
    """The sums of x, and of its squares, over one program's rows; with `add`, of x + other, which is stored too.

    Both are about the first row's values instead of 0, so that a large mean costs no precision.
    """
    column = tl.program_id(1) * block_channels + tl.arange(0, block_channels)
    inside = column < channels
    about = tl.load(x + column, mask=inside, other=0).to(tl.float32)
    if add:
        about += tl.load(other + column, mask=inside, other=0).to(tl.float32)
        about = about.to(summed.dtype.element_ty).to(tl.float32)
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
    place = tl.program_id(0) * channels + column
    tl.store(sums + place, tl.sum(total, 0), mask=inside)
    tl.store(squares + place, tl.sum(squared, 0), mask=inside)


@triton.jit
def _map(
    x, other, summed, residual, out, scale, shift, column, rows,
    relu: tl.constexpr, add: tl.constexpr, add_first: tl.constexpr, channels: tl.constexpr, block_rows: tl.constexpr,
):  # fmt: skip
    """``relu(x scale + shift + residual)`` over one program's rows; with `add_first`, of x + other, stored too."""
    for first in range(tl.program_id(0) * block_rows, rows, tl.num_programs(0) * block_rows):
        row = first + tl.arange(0, block_rows)
        mask = (row < rows)[:, None] & (column < channels)[None, :]
        place = row[:, None] * channels + column[None, :]
        value = tl.load(x + place, mask=mask, other=0).to(tl.float32)
        if add_first:
            value += tl.load(other + place, mask=mask, other=0).to(tl.float32)
            tl.store(summed + place, value.to(summed.dtype.element_ty), mask=mask)
        value = value * scale[None, :] + shift[None, :]
        if add:
            value += tl.load(residual + place, mask=mask, other=0).to(tl.float32)
        if relu:
            value = positive_part(value)
        tl.store(out + place, value.to(out.dtype.element_ty), mask=mask)


@triton.jit
def _normalise(
    x, residual, out, sums, weight, bias, running_mean, running_var, saved, momentum, eps, rows,
    relu: tl.constexpr, add: tl.constexpr,
    channels: tl.constexpr, block_rows: tl.constexpr, block_channels: tl.constexpr,
):  # fmt: skip
    """`sums` (2, C) are those of `_moments` over all rows; `saved` (4, C) becomes mean, 1 / std, scale and shift."""
    column = tl.program_id(1) * block_channels + tl.arange(0, block_channels)
    inside = column < channels
    away = tl.load(sums + column, mask=inside, other=0) / rows
    mean = tl.load(x + column, mask=inside, other=0).to(tl.float32) + away
    variance = positive_part(tl.load(sums + channels + column, mask=inside, other=0) / rows - away * away)
    rstd = tl.rsqrt(variance + eps)
    scale = tl.load(weight + column, mask=inside, other=0) * rstd
    shift = tl.load(bias + column, mask=inside, other=0) - mean * scale
    if tl.program_id(0) == 0:
        tl.store(saved + column, mean, mask=inside)
        tl.store(saved + channels + column, rstd, mask=inside)
        tl.store(saved + 2 * channels + column, scale, mask=inside)
        tl.store(saved + 3 * channels + column, shift, mask=inside)
        before = tl.load(running_mean + column, mask=inside, other=0)
        tl.store(running_mean + column, before + momentum * (mean - before), mask=inside)
        before = tl.load(running_var + column, mask=inside, other=0)
        unbiased = variance * (rows / tl.maximum(rows - 1, 1))
        tl.store(running_var + column, before + momentum * (unbiased - before), mask=inside)
    _map(x, x, x, residual, out, scale, shift, column, rows, relu, add, False, channels, block_rows)


@triton.jit
def _normalise_by_running(
    x, other, summed, residual, out, weight, bias, running_mean, running_var, eps, rows,
    relu: tl.constexpr, add: tl.constexpr, add_first: tl.constexpr,
    channels: tl.constexpr, block_rows: tl.constexpr, block_channels: tl.constexpr,
):  # fmt: skip
    column = tl.program_id(1) * block_channels + tl.arange(0, block_channels)
    inside = column < channels
    scale = tl.rsqrt(tl.load(running_var + column, mask=inside, other=1).to(tl.float32) + eps)
    scale *= tl.load(weight + column, mask=inside, other=0).to(tl.float32)
    shift = -tl.load(running_mean + column, mask=inside, other=0).to(tl.float32) * scale
    shift += tl.load(bias + column, mask=inside, other=0).to(tl.float32)
    _map(x, other, summed, residual, out, scale, shift, column, rows, relu, add, add_first, channels, block_rows)


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


def normalise(
    x: Tensor,
    norm: Norm,
    out: Tensor,
    *,
    residual: Tensor | None = None,
    relu: bool = False,
    other: Tensor | None = None,
    summed: Tensor | None = None,
) -> Tensor:
    """Write ``relu(norm(x) + residual)`` to `out`, of the shape ``(N, C, H, W)`` of `x`; move the running statistics.

    With an `other`, x + other, which goes to `summed`, takes the place of x.

    Returns:
        Mean, 1 / std, scale and shift by channel, ``(4, C)``, for :func:`normalise_back`.
    """
    tiles = Tiles.of(x)
    if tiles.rows == 1:
        raise ValueError(f"batch norm in training needs more than one value for a channel, got shape {tuple(x.shape)}")
    partial = tiles.partial(x)
    both = x if summed is None else summed
    _moments[tiles.reducing](
        x, x if other is None else other, both, *partial, tiles.rows, add=other is not None, **tiles.meta
    )
    saved = x.new_empty((4, tiles.channels), dtype=torch.float32)
    _normalise[tiles.mapping](
        both, x if residual is None else residual, out, sum_programs(partial),
        norm.weight, norm.bias, norm.running_mean, norm.running_var, saved, norm.momentum, norm.eps, tiles.rows,
        relu=relu, add=residual is not None, **tiles.meta,
    )  # fmt: skip
    return saved


def normalise_by_running(
    x: Tensor,
    norm: Norm,
    *,
    residual: Tensor | None = None,
    relu: bool = False,
    other: Tensor | None = None,
    summed: Tensor | None = None,
    dtype: torch.dtype | None = None,
) -> Tensor:
    """``relu(norm(x) + residual)`` in evaluation: one pass, by the running statistics, which stay as they are.

    With an `other`, x + other, which goes to `summed`, takes the place of x. All are ``(N, C, H, W)``. The result is of
    the dtype of x unless another is given.
    """
    tiles, out = Tiles.of(x), torch.empty_like(x, dtype=dtype)
    _normalise_by_running[tiles.mapping](
        x, x if other is None else other, x if summed is None else summed, x if residual is None else residual, out,
        norm.weight, norm.bias, norm.running_mean, norm.running_var, norm.eps, tiles.rows,
        relu=relu, add=residual is not None, add_first=other is not None, **tiles.meta,
    )  # fmt: skip
    return out


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
    _sums[tiles.reducing](grad, x, passed, saved, *partial, tiles.rows, relu=relu, add=add, **tiles.meta)
    sums = sum_programs(partial)
    x_grad = torch.empty_like(x)
    residual_grad = torch.empty_like(x) if add and relu else grad
    _normalise_back[tiles.mapping](
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
        saved = normalise(x, norm, out, residual=residual, relu=relu)
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
        saved = normalise(a, norm, out, relu=True, other=b, summed=summed)
        ctx.save_for_backward(summed, saved)
        ctx.set_materialize_grads(False)
        return summed, out

    @staticmethod
    def backward(ctx: Any, *grads: Tensor | None) -> tuple[Tensor | None, ...]:
        """The gradients of the four tensors; those of a and b are one."""
        summed, saved = ctx.saved_tensors
        extra = None if grads[0] is None else channels_last(grads[0])
        if grads[1] is None:
            return extra, extra, None, None, None
        found = normalise_back(channels_last(grads[1]), summed, saved, relu=True, extra=extra)
        return found.x, found.x, found.weight, found.bias, None


def channels_last(x: Tensor) -> Tensor:
    """`x` in the layout that the kernels read."""
    return x.contiguous(memory_format=torch.channels_last)
