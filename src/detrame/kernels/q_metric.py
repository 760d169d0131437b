"""Batch normalisation and the Q-Metric ReLU after it, as one function with a hand-written backward.

With ``N = W - diag(h)`` and ``raw = N Z``: ``U_1 = relu(-raw - b)``, ``U_{t+1} = relu(W U_t - raw - b)``.
Kept for backward are Z and the codes, the T inputs of the convolutions in one stack. With e_t the gradient behind the
ReLU of step t, ``e_t = (W' e_{t+1}) [U_t > 0]``, all T weight gradients are one convolution over that stack and the
stack of ``E_0 = -(e_1 + ... + e_T), e_2, ..., e_T``; the gradient of Z is ``N' E_0``, that of b is ``sum E_0`` and that
of h is ``-sum E_0 Z``.
"""

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from detrame.kernels.convolution import convolve, convolve_back, same_size, step, weight_gradient
from detrame.kernels.normalisation import Norm, channels_last, normalise, normalise_back, normalise_by_running
from detrame.kernels.pointwise import mask, subtract_relu
from detrame.kernels.tiles import Tiles, check_size, sum_programs


@triton.jit
def _fold(coupling, gain, out, size, channels: tl.constexpr, taps: tl.constexpr, block: tl.constexpr):
    """``W - diag(h)`` for a coupling (channels, taps, channels)."""
    place = tl.program_id(0) * block + tl.arange(0, block)
    inside = place < size
    output, tap, feature = place // (taps * channels), place // channels % taps, place % channels
    centre = (output == feature) & (tap == taps // 2)
    value = tl.load(coupling + place, mask=inside, other=0).to(tl.float32)
    value -= tl.load(gain + output, mask=inside & centre, other=0)
    tl.store(out + place, value.to(out.dtype.element_ty), mask=inside)


@triton.jit
def _first_back(
    grad, code, z, stack, sums, products, rows, size, later: tl.constexpr,
    channels: tl.constexpr, block_rows: tl.constexpr, block_channels: tl.constexpr,
):  # fmt: skip
    """``E_0``, into the first slot of the stack, and its sums, plain and with Z, over one program's rows."""
    column = tl.program_id(1) * block_channels + tl.arange(0, block_channels)
    inside = column < channels
    total = tl.zeros((block_rows, block_channels), tl.float32)
    product = tl.zeros((block_rows, block_channels), tl.float32)
    for first in range(tl.program_id(0) * block_rows, rows, tl.num_programs(0) * block_rows):
        row = first + tl.arange(0, block_rows)
        some = (row < rows)[:, None] & inside[None, :]
        place = row[:, None] * channels + column[None, :]
        slope = tl.load(grad + place, mask=some, other=0).to(tl.float32)
        slope = tl.where(tl.load(code + place, mask=some, other=0).to(tl.float32) > 0, slope, 0)
        for slot in range(1, later + 1):
            slope += tl.load(stack + slot * size + place, mask=some, other=0).to(tl.float32)
        tl.store(stack + place, (-slope).to(stack.dtype.element_ty), mask=some)
        total += slope
        product += slope * tl.load(z + place, mask=some, other=0).to(tl.float32)
    place = tl.program_id(0) * channels + column
    tl.store(sums + place, -tl.sum(total, 0), mask=inside)
    tl.store(products + place, tl.sum(product, 0), mask=inside)


def _folded(coupling: Tensor, gain: Tensor) -> Tensor:
    """``W - diag(h)``."""
    folded = torch.empty_like(coupling)
    _fold[(triton.cdiv(coupling.numel(), 1024),)](
        coupling, gain, folded, coupling.numel(),
        channels=len(coupling), taps=coupling[0, 0].numel(), block=1024,
    )  # fmt: skip
    return folded


def _stack(like: Tensor, slots: int, dtype: torch.dtype) -> Tensor:
    check_size(slots * like.numel())
    images, channels, height, width = like.shape
    shape = (slots * images, channels, height, width)
    return torch.empty(shape, device=like.device, dtype=dtype, memory_format=torch.channels_last)


def norm_q_metric(x: Tensor, coupling: Tensor, gain: Tensor, threshold: Tensor, norm: Norm, iterations: int) -> Tensor:
    """``q_metric_relu(norm(x), coupling, gain, threshold, iterations)`` in evaluation; nothing is kept."""
    z = normalise_by_running(x, norm, dtype=coupling.dtype)
    raw = convolve(z, _folded(coupling, gain), same_size(coupling), often=False)
    u = subtract_relu(None, raw, threshold, z)  # in the place of z, which nobody reads any more
    for _ in range(iterations - 1):
        u = step(u, coupling, raw, threshold, often=False)
    return u


class NormQMetric(torch.autograd.Function):
    """``q_metric_relu(norm(x), coupling, gain, threshold, iterations)`` for x ``(N, C, H, W)``."""

    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        weight: Tensor,
        bias: Tensor,
        coupling: Tensor,
        gain: Tensor,
        threshold: Tensor,
        norm: Norm,
        iterations: int,
    ) -> Tensor:
        """`weight` and `bias` are those of `norm`, named apart for their gradients."""
        codes = _stack(x, iterations, coupling.dtype)
        slots = codes.split(len(x))
        saved = normalise(x, norm, slots[0])
        folded = _folded(coupling, gain)
        raw = convolve(slots[0], folded, same_size(coupling))
        u = subtract_relu(None, raw, threshold, slots[1] if iterations > 1 else torch.empty_like(raw))
        for slot in slots[2:]:
            u = step(u, coupling, raw, threshold, slot)
        if iterations > 1:
            u = step(u, coupling, raw, threshold)
        ctx.save_for_backward(x, coupling, folded, codes, u, saved)
        return u

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        """The gradients of the six tensors."""
        x, coupling, folded, codes, u, saved = ctx.saved_tensors
        grad = channels_last(grads[0])
        slots = codes.split(len(x))
        errors = torch.empty_like(codes)
        error_slots = errors.split(len(x))
        shape, last = same_size(coupling), len(slots) - 1
        later = [*slots[1:], u]  # U_1, ..., U_T
        for t in range(last, 0, -1):
            if t == last:
                mask(grad, u, error_slots[t])
            else:
                convolve_back(error_slots[t + 1], slots[0], coupling, shape, code=later[t], out=error_slots[t])
        if last:
            grad = convolve_back(error_slots[1], slots[0], coupling, shape)
        sums = _first_step_back(grad, later[0], slots[0], errors, last)
        z_grad = convolve_back(error_slots[0], slots[0], folded, shape)
        found = normalise_back(z_grad, x, saved, relu=False)
        coupling_grad = weight_gradient(errors, codes, coupling, shape)
        return found.x, found.weight, found.bias, coupling_grad, sums[1], sums[0], None, None


def _first_step_back(grad: Tensor, code: Tensor, z: Tensor, errors: Tensor, later: int) -> Tensor:
    """Fill the first slot of the stack; return the gradients of threshold and gain, ``(2, C)``."""
    tiles = Tiles.of(z)
    partial = tiles.partial(z)
    _first_back[tiles.reducing](grad, code, z, errors, *partial, tiles.rows, z.numel(), later=later, **tiles.meta)
    return sum_programs(partial)
