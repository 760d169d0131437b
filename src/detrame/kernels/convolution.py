"""Convolutions of channels-last images, by cuDNN or by kernels of our own.

cuDNN is built for many channels: at 16 to 64 of them, or 3 or 10 at a network's ends, it runs at a tenth of what memory
allows (see :mod:`detrame.kernels.few_channels`). And it is built for powers of two of them (see
:mod:`detrame.kernels.whole_lines`). Which is taken for a shape is measured (:mod:`detrame.kernels.choice`).
"""

from contextlib import AbstractContextManager
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from detrame.kernels import few_channels, whole_lines
from detrame.kernels.choice import Candidate, fastest
from detrame.kernels.few_channels import Shape
from detrame.kernels.pointwise import mask, subtract_relu

FEW = 64  # channels up to which they are tried


def _worth_trying(weight: Tensor) -> bool:
    return min(weight.shape[:2]) <= FEW and weight.shape[2] in (1, 3)


def _worth_trying_back(weight: Tensor, shape: Shape) -> bool:
    # With a stride, cuDNN's gradient of the input is slow for more channels still, and most so for single pixels.
    most = FEW if shape.stride == 1 else 2 * FEW if shape.kernel == 3 else 8 * FEW
    return min(weight.shape[:2]) <= most and weight.shape[2] in (1, 3)


def _key(what: str, x: Tensor, weight: Tensor, shape: Shape) -> tuple[object, ...]:
    return what, tuple(x.shape), tuple(weight.shape), shape, x.dtype


def convolve(x: Tensor, weight: Tensor, shape: Shape, *, often: bool = True) -> Tensor:
    """The convolution of x ``(N, C_in, H, W)`` with a weight ``(C_out, C_in, kernel, kernel)``.

    Unless it will be computed `often`, a search among all of cuDNN's plans, which takes seconds, is not worth it.
    """

    def library(x: Tensor, weight: Tensor) -> Tensor:
        with _plans(often):
            return F.conv2d(x, weight, stride=shape.stride, padding=shape.padding)

    def few(x: Tensor, weight: Tensor) -> Tensor:
        return few_channels.convolve(x, weight, shape, _empty(x, weight, shape))

    def lines(tile: int, x: Tensor, weight: Tensor) -> Tensor:
        return whole_lines.convolve(x, weight, _empty(x, weight, shape), tile)

    tiles = [partial(lines, tile) for tile in whole_lines.tiles_for(x, weight, len(weight), shape)]
    ways: list[Candidate] = [*([few] if _worth_trying(weight) else []), *tiles, library]
    return fastest((*_key("forward", x, weight, shape), often), ways, x, weight)


def _plans(search: bool = True) -> AbstractContextManager[None]:
    """cuDNN's plans chosen by measurement, among all it has; without a `search`, the ones it takes to be best.

    It keeps plans by shape and by whether TF32 is allowed, which is nothing to half precision: not allowing it keeps
    these plans apart from those of code outside. For a shape met both with and without a search, the first decides.
    """
    deterministic = torch.backends.cudnn.deterministic
    return torch.backends.cudnn.flags(
        enabled=True, benchmark=search, benchmark_limit=0, deterministic=deterministic, allow_tf32=False
    )


def output_size(x: Tensor, weight: Tensor, shape: Shape) -> tuple[int, int, int, int]:
    """The shape of the convolution of `x` by `weight`."""
    height, width = ((size + 2 * shape.padding - shape.kernel) // shape.stride + 1 for size in x.shape[2:])
    return len(x), len(weight), height, width


def _empty(x: Tensor, weight: Tensor, shape: Shape) -> Tensor:
    size = output_size(x, weight, shape)
    return torch.empty(size, dtype=x.dtype, device=x.device, memory_format=torch.channels_last)


def _back(grad: Tensor, like: Tensor, weight: Tensor, shape: Shape, wanted: list[bool]) -> tuple[Tensor, ...]:
    stride, padding = [shape.stride] * 2, [shape.padding] * 2
    with _plans():
        return torch.ops.aten.convolution_backward(
            grad, like, weight, None, stride, padding, [1, 1], False, [0, 0], 1, wanted
        )


def convolve_back(
    grad: Tensor, x: Tensor, weight: Tensor, shape: Shape, *, code: Tensor | None = None, out: Tensor | None = None
) -> Tensor:
    """The gradient of :func:`convolve` with respect to x; with a `code`, only where that is positive, into `out`."""

    def library(grad: Tensor, x: Tensor, weight: Tensor, code: Tensor | None, out: Tensor | None) -> Tensor:
        result = _back(grad, x, weight, shape, [True, False, False])[0]
        return result if code is None or out is None else mask(result, code, out)

    def few(grad: Tensor, x: Tensor, weight: Tensor, code: Tensor | None, out: Tensor | None) -> Tensor:
        return few_channels.convolve_back(grad, weight, shape, torch.empty_like(x) if out is None else out, code=code)

    def lines(tile: int, grad: Tensor, x: Tensor, weight: Tensor, code: Tensor | None, out: Tensor | None) -> Tensor:
        out = torch.empty_like(x) if out is None else out
        return whole_lines.convolve(
            grad, weight, out, tile, back=True, epilogue="mask" if code is not None else "", raw=code
        )

    tiles = [partial(lines, tile) for tile in whole_lines.tiles_for(grad, weight, x.shape[1], shape)]
    key = _key("back" if code is None else "masked back", x, weight, shape)
    ways: list[Candidate] = [*([few] if _worth_trying_back(weight, shape) else []), *tiles, library]
    return fastest(key, ways, grad, x, weight, code, out)


def weight_gradient(grad: Tensor, x: Tensor, weight: Tensor, shape: Shape) -> Tensor:
    """The gradient of :func:`convolve` with respect to the weight."""

    def library(grad: Tensor, x: Tensor, weight: Tensor) -> Tensor:
        return _back(grad, x, weight, shape, [False, True, False])[1]

    def few(grad: Tensor, x: Tensor, weight: Tensor) -> Tensor:
        return few_channels.weight_gradient(grad, x, weight, shape)

    ways: list[Candidate] = [few, library] if _worth_trying(weight) else [library]
    return fastest(_key("weight", x, weight, shape), ways, grad, x, weight)


def step(
    u: Tensor, coupling: Tensor, raw: Tensor, threshold: Tensor, out: Tensor | None = None, *, often: bool = True
) -> Tensor:
    """A step of the Q-Metric ReLU, ``relu(W u - raw - b)``, into `out` if that is given; `often` as in `convolve`."""
    shape = same_size(coupling)

    def library(u: Tensor, coupling: Tensor, raw: Tensor, threshold: Tensor, out: Tensor | None) -> Tensor:
        with _plans(often):
            product = F.conv2d(u, coupling, padding=shape.padding)
        return subtract_relu(product, raw, threshold, product if out is None else out)

    def fused_library(u: Tensor, coupling: Tensor, raw: Tensor, threshold: Tensor, _: None) -> Tensor:
        ones = [1, 1]
        with _plans(often):
            return torch.cudnn_convolution_add_relu(
                u, coupling, raw, -1.0, -threshold.to(u.dtype), ones, [shape.padding] * 2, ones, 1
            )

    def few(u: Tensor, coupling: Tensor, raw: Tensor, threshold: Tensor, out: Tensor | None) -> Tensor:
        out = torch.empty_like(u) if out is None else out
        return few_channels.convolve(u, coupling, shape, out, epilogue="step", raw=raw, threshold=threshold)

    def lines(tile: int, u: Tensor, coupling: Tensor, raw: Tensor, threshold: Tensor, out: Tensor | None) -> Tensor:
        out = torch.empty_like(u) if out is None else out
        return whole_lines.convolve(u, coupling, out, tile, epilogue="step", raw=raw, threshold=threshold)

    ways: list[Candidate] = [few] if _worth_trying(coupling) else []
    ways += [partial(lines, tile) for tile in whole_lines.tiles_for(u, coupling, len(coupling), shape)]
    ways += [library] if out is not None or not u.is_cuda else [fused_library, library]
    key = *_key("step" if out is None else "step into", u, coupling, shape), often
    return fastest(key, ways, u, coupling, raw, threshold, out)


def same_size(coupling: Tensor) -> Shape:
    """The shape of a coupling's convolution."""
    return Shape(coupling.shape[2], 1, coupling.shape[2] // 2)


class Convolution(torch.autograd.Function):
    """:func:`convolve`, with its gradients."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, shape: Shape) -> Tensor:
        """The convolution of x with the weight."""
        ctx.save_for_backward(x, weight)
        ctx.shape = shape
        return convolve(x, weight, shape)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        """The gradients of x, if it needs one, and of the weight."""
        x, weight = ctx.saved_tensors
        grad = grads[0].contiguous(memory_format=torch.channels_last)
        x_grad = convolve_back(grad, x, weight, ctx.shape) if ctx.needs_input_grad[0] else None
        return x_grad, weight_gradient(grad, x, weight, ctx.shape), None
