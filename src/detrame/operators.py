"""Structured linear operators: the one layout that a coupling and a metric share.

A weight of shape ``(C, C / groups, *kernel)`` is a square operator on C channels. Without a kernel it is a matrix on
the last axis of its input (dense, or block-diagonal with `groups` blocks); with one it is a 1-, 2- or 3-dimensional
convolution over axis 1, zero-padded so that the size stays. Everything is read from that shape.
"""

from collections.abc import Callable
from math import prod
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

_CONVOLUTIONS: dict[int, Callable[..., Tensor]] = {1: F.conv1d, 2: F.conv2d, 3: F.conv3d}


def check_weight(weight: Tensor, name: str) -> None:
    """Raise a ValueError unless `weight` has the layout ``(C, C / groups, *kernel)`` with an odd kernel."""
    shape = tuple(weight.shape)
    if not 2 <= weight.ndim <= 5 or 0 in shape:
        raise ValueError(f"{name} must have shape (C, C / groups, *kernel) with 0 to 3 kernel axes, got {shape}")
    if shape[0] % shape[1]:
        raise ValueError(f"{name} of shape {shape}: {shape[1]} inputs per group do not divide {shape[0]} channels")
    if any(size % 2 == 0 for size in shape[2:]):
        raise ValueError(f"{name} needs an odd kernel, so that it has a centre, got {shape[2:]}")


def check_input(z: Tensor, weight: Tensor) -> None:
    """Raise a TypeError or ValueError unless `weight` can act on `z`."""
    if not z.is_floating_point():
        raise TypeError(f"expected a real floating-point tensor, got {z.dtype}")
    if z.dtype != weight.dtype and not autocasts(z):
        raise TypeError(f"the input is {z.dtype} and the weight {weight.dtype}: convert one of them")
    if traced():
        return
    channels, dim = weight.shape[0], weight.ndim - 2
    if dim and z.ndim != dim + 2:
        raise ValueError(
            f"expected shape (batch, {channels}) and {dim} more for a {dim}-dimensional coupling, got {tuple(z.shape)}"
            + ("; feature vectors take one without kernel (dim=0)" if z.ndim <= 2 else "")
        )
    if z.ndim == 0 or z.shape[1 if dim else -1] != channels:
        where = "axis 1" if dim else "the last axis"
        raise ValueError(f"expected {channels} channels on {where}, got a tensor of shape {tuple(z.shape)}")


def autocasts(z: Tensor) -> bool:
    """Whether what is computed from `z` is under autocast, of which the meta device has none to ask for."""
    return not z.is_meta and torch.is_autocast_enabled(z.device.type)


def traced() -> bool:
    """Whether torch.jit.trace looks on: it makes tensors of sizes, and warns of every comparison as if of data."""
    return bool(torch.jit.is_tracing())  # type: ignore[attr-defined,no-untyped-call]


def apply(weight: Tensor, u: Tensor, bias: Tensor | None = None) -> Tensor:
    """``weight @ u + bias`` on the channel axis of `u`; the result has the shape of `u`."""
    channels, inputs, *kernel = weight.shape
    groups = channels // inputs
    if kernel:
        convolve = _CONVOLUTIONS[len(kernel)]
        return convolve(u, weight, bias, padding=[size // 2 for size in kernel], groups=groups)
    if groups == 1:
        return F.linear(u, weight, bias)
    grouped = u.reshape(*u.shape[:-1], groups, inputs)
    product = torch.einsum("...gi,goi->...go", grouped, blocks(weight)).flatten(-2)
    return product if bias is None else product + bias.to(product.dtype)  # autocast: stay in half precision


def blocks(weight: Tensor) -> Tensor:
    """The diagonal blocks as a view of shape ``(groups, C / groups, C / groups, *kernel)``."""
    return weight.view(-1, weight.shape[1], *weight.shape[1:])


def diagonal(weight: Tensor) -> Tensor:
    """The diagonal as a view of shape ``(groups, C / groups)``: for a convolution, its centre tap from i to i."""
    centre = blocks(weight)
    for size in weight.shape[2:]:
        centre = centre.select(3, size // 2)
    return centre.diagonal(dim1=1, dim2=2)


def zero_diagonal_(weight: Tensor) -> None:
    """Set the diagonal to 0, in place."""
    if hasattr(weight, "placements"):
        _zero_sharded_diagonal_(weight)
    else:
        diagonal(weight).zero_()


def _zero_sharded_diagonal_(weight: Any) -> None:
    """The same for a DTensor, as FSDP2 makes of a parameter: a view of it would be a copy."""
    from torch.distributed.tensor import DTensor  # here: not every build of PyTorch has it

    mask = torch.zeros(weight.shape, dtype=torch.bool, device=weight.device)
    diagonal(mask).fill_(True)
    # Every process makes the whole mask and takes its part, so that nothing is sent.
    replicated = DTensor.from_local(mask, weight.device_mesh)
    local(weight).masked_fill_(local(replicated.redistribute(placements=weight.placements)), 0)


def local(values: Any) -> Tensor:
    """What of a tensor this process holds, sharing its memory: the shard of a DTensor, and all of any other."""
    return values.to_local() if hasattr(values, "placements") else values


def add_diagonal(weight: Tensor, values: Tensor) -> Tensor:
    """``weight + diag(values)`` for values ``(C,)``."""
    total = weight.clone()
    diagonal(total).add_(values.reshape(-1, weight.shape[1]))
    return total


def scale(weight: Tensor, rows: Tensor, columns: Tensor | None = None) -> Tensor:
    """``diag(rows) weight diag(columns)`` for rows and columns ``(C,)``."""
    dim = weight.ndim - 2
    scaled = weight * per_channel(rows, dim + 1)
    if columns is None:
        return scaled
    return transpose(transpose(scaled) * per_channel(columns, dim + 1))


def ungroup(weight: Tensor) -> Tensor:
    """The same operator with one group: ``(C, C, *kernel)``, zero outside the blocks."""
    channels, inputs = weight.shape[:2]
    full = weight.new_zeros(channels, channels, *weight.shape[2:])
    for start in range(0, channels, inputs):
        block = slice(start, start + inputs)
        full[block, block] = weight[block]
    return full


def per_channel(values: Tensor, dim: int) -> Tensor:
    """Reshape ``(C,)`` so that it broadcasts against the input of a `dim`-dimensional operator."""
    return values.reshape(-1, *[1] * dim)


def transpose(weight: Tensor) -> Tensor:
    """The adjoint operator: blocks transposed, kernel flipped (zero padding makes this exact at any size)."""
    return blocks(weight).transpose(1, 2).flatten(0, 1).flip(tuple(range(2, weight.ndim)))


def to_dense(weight: Tensor, size: tuple[int, ...] = ()) -> Tensor:
    """The matrix ``(n, n)`` of the operator on inputs of one `size` (C values, or C x prod(size) for a convolution)."""
    count = weight.shape[0] * prod(size)
    basis = torch.eye(count, dtype=weight.dtype, device=weight.device)
    columns = apply(weight, basis.reshape(count, weight.shape[0], *size)).reshape(count, count)
    return columns.T
