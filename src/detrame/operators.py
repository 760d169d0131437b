"""Structured linear operators: the one layout that a coupling and a metric share.

A weight of shape ``(C, C / groups, *kernel)`` is a square operator on C channels. Without a kernel it is a matrix on
the last axis of its input (dense, or block-diagonal with `groups` blocks); with one it is a 1-, 2- or 3-dimensional
convolution over axis 1, zero-padded so that the size stays. Everything is read from that shape.
"""

from collections.abc import Callable
from math import prod

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
    channels, dim = weight.shape[0], weight.ndim - 2
    if dim and z.ndim != dim + 2:
        raise ValueError(
            f"expected (batch, {channels}, and {dim} more axes) for a {dim}-dimensional convolution, got {tuple(z.shape)}"
        )
    if z.ndim == 0 or z.shape[1 if dim else -1] != channels:
        where = "axis 1" if dim else "the last axis"
        raise ValueError(f"expected {channels} channels on {where}, got a tensor of shape {tuple(z.shape)}")


def apply(weight: Tensor, u: Tensor, bias: Tensor | None = None) -> Tensor:
    """``weight @ u + bias`` on the channel axis of `u`; the result has the shape of `u`."""
    channels, inputs, *kernel = weight.shape
    groups = channels // inputs
    if kernel:
        convolve = _CONVOLUTIONS[len(kernel)]
        return convolve(u, weight, bias, padding=[size // 2 for size in kernel], groups=groups)
    if groups == 1:
        return F.linear(u, weight, bias)
    blocks = weight.unflatten(0, (groups, inputs))
    product = torch.einsum("...gi,goi->...go", u.unflatten(-1, (groups, inputs)), blocks).flatten(-2)
    return product if bias is None else product + bias


def diagonal(weight: Tensor) -> Tensor:
    """The diagonal as a view of shape ``(groups, C / groups)``: for a convolution, its centre tap from i to i."""
    channels, inputs, *kernel = weight.shape
    blocks = weight.unflatten(0, (channels // inputs, inputs))
    return blocks[(..., *(size // 2 for size in kernel))].diagonal(dim1=1, dim2=2)


def identity_like(weight: Tensor) -> Tensor:
    """The identity operator in the layout, dtype and device of `weight`."""
    identity = torch.zeros_like(weight)
    diagonal(identity).fill_(1)
    return identity


def per_channel(values: Tensor, dim: int) -> Tensor:
    """Reshape ``(C,)`` so that it broadcasts against the input of a `dim`-dimensional operator."""
    return values.reshape(-1, *[1] * dim)


def transpose(weight: Tensor) -> Tensor:
    """The adjoint operator: blocks transposed, kernel flipped (zero padding makes this exact at any size)."""
    channels, inputs, *kernel = weight.shape
    blocks = weight.unflatten(0, (channels // inputs, inputs)).transpose(1, 2).flatten(0, 1)
    return blocks.flip(tuple(range(2, 2 + len(kernel))))


def to_dense(weight: Tensor, size: tuple[int, ...] = ()) -> Tensor:
    """The matrix ``(n, n)`` of the operator on inputs of one `size` (C values, or C x prod(size) for a convolution)."""
    count = weight.shape[0] * prod(size)
    basis = torch.eye(count, dtype=weight.dtype, device=weight.device)
    columns = apply(weight, basis.reshape(count, weight.shape[0], *size)).reshape(count, count)
    return columns.T
