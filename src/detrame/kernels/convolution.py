"""Convolutions of channels-last images, by cuDNN or, where channels are few, by the kernels here.

cuDNN is built for many channels: at 16 to 64 of them, or 3 or 10 at a network's ends, it runs at a tenth of what memory
allows. Here a program computes a tile of output pixels for all channels at once, so that the epilogue of a Q-Metric
step costs nothing. Which is taken for a shape is measured (:mod:`detrame.kernels.choice`).
"""

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.nn import functional as F

from detrame.kernels.choice import fastest
from detrame.kernels.pointwise import mask, subtract_relu
from detrame.kernels.tiles import sum_programs

FEW = 64  # channels up to which the kernels here are tried
_PATCH = 32  # values up to which a patch is taken whole: that of a 3x3 kernel on 3 colours
_PROGRAMS = 264  # two for each multiprocessor of an H200


class Shape(NamedTuple):
    """Of a square kernel: size, stride and zero padding."""

    kernel: int
    stride: int
    padding: int


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
    x, weight, out, raw, threshold, rows, height, width, in_height, in_width,
    inputs: tl.constexpr, outputs: tl.constexpr, kernel: tl.constexpr, stride: tl.constexpr, padding: tl.constexpr,
    epilogue: tl.constexpr,
    block_rows: tl.constexpr, block_inputs: tl.constexpr, block_outputs: tl.constexpr,
):  # fmt: skip
    """A tile of output pixels; `weight` is (outputs, kernel, kernel, inputs)."""
    row = tl.program_id(0) * block_rows + tl.arange(0, block_rows)
    output = tl.program_id(1) * block_outputs + tl.arange(0, block_outputs)
    image, h, w = row // (height * width), row // width % height, row % width
    total = tl.zeros((block_rows, block_outputs), tl.float32)
    chunks: tl.constexpr = (inputs + block_inputs - 1) // block_inputs
    for step in range(kernel * kernel * chunks):
        tap = step // chunks
        up, left = h * stride + tap // kernel - padding, w * stride + tap % kernel - padding
        inside = (up >= 0) & (up < in_height) & (left >= 0) & (left < in_width) & (row < rows)
        feature = step % chunks * block_inputs + tl.arange(0, block_inputs)
        pixel = (image * in_height + up) * in_width + left
        value = tl.load(
            x + pixel[:, None] * inputs + feature[None, :], mask=inside[:, None] & (feature < inputs)[None, :], other=0
        )
        place = (output[None, :] * (kernel * kernel) + tap) * inputs + feature[:, None]
        mask = (feature < inputs)[:, None] & (output < outputs)[None, :]
        total = tl.dot(value, tl.load(weight + place, mask=mask, other=0), total, input_precision="ieee")
    _finish(total, out, raw, threshold, row, row < rows, output, outputs, epilogue)


@triton.jit
def _patches(x, row, some, height, width, in_height, in_width, element,
             inputs: tl.constexpr, kernel: tl.constexpr, stride: tl.constexpr, padding: tl.constexpr):  # fmt: skip
    """The patches behind some output pixels, (rows, kernel * kernel * inputs), zero beyond."""
    image, h, w = row // (height * width), row // width % height, row % width
    tap, feature = element // inputs, element % inputs
    up = h[:, None] * stride + (tap // kernel)[None, :] - padding
    left = w[:, None] * stride + (tap % kernel)[None, :] - padding
    inside = (up >= 0) & (up < in_height) & (left >= 0) & (left < in_width) & some[:, None]
    pixel = (image[:, None] * in_height + up) * in_width + left
    mask = inside & (element < kernel * kernel * inputs)[None, :]
    return tl.load(x + pixel * inputs + feature[None, :], mask=mask, other=0)


@triton.jit
def _convolve_patches(
    x, weight, out, rows, height, width, in_height, in_width,
    inputs: tl.constexpr, outputs: tl.constexpr, kernel: tl.constexpr, stride: tl.constexpr, padding: tl.constexpr,
    block_rows: tl.constexpr, block_patch: tl.constexpr, block_outputs: tl.constexpr,
):  # fmt: skip
    """As `_convolve`, for patches so small that one product takes them whole."""
    row = tl.program_id(0) * block_rows + tl.arange(0, block_rows)
    output = tl.program_id(1) * block_outputs + tl.arange(0, block_outputs)
    element = tl.arange(0, block_patch)
    patch = _patches(x, row, row < rows, height, width, in_height, in_width, element, inputs, kernel, stride, padding)
    size: tl.constexpr = kernel * kernel * inputs
    mask = (element < size)[:, None] & (output < outputs)[None, :]
    values = tl.load(weight + output[None, :] * size + element[:, None], mask=mask, other=0)
    total = tl.dot(patch, values, input_precision="ieee")
    _finish(total, out, out, out, row, row < rows, output, outputs, "")


@triton.jit
def _convolve_back(
    grad, weight, out, code, rows, height, width, in_height, in_width,
    inputs: tl.constexpr, outputs: tl.constexpr, kernel: tl.constexpr, stride: tl.constexpr, padding: tl.constexpr,
    epilogue: tl.constexpr,
    block_rows: tl.constexpr, block_inputs: tl.constexpr, block_outputs: tl.constexpr,
):  # fmt: skip
    """A tile of the gradient of the input, of (height, width); `weight` is (inputs, kernel, kernel, outputs).

    The pixels of a tile are alike modulo the stride, so that only the taps that reach them are gone through. `inputs`
    are the channels of `grad`, whose size is (in_height, in_width).
    """
    row = tl.program_id(0) * block_rows + tl.arange(0, block_rows)
    output = tl.program_id(1) * block_outputs + tl.arange(0, block_outputs)
    h_phase, w_phase = tl.program_id(2) // stride, tl.program_id(2) % stride
    few_h, few_w = (height - h_phase + stride - 1) // stride, (width - w_phase + stride - 1) // stride
    image = row // (few_h * few_w)
    h, w = row // few_w % few_h * stride + h_phase, row % few_w * stride + w_phase
    some = row < rows // (height * width) * few_h * few_w
    first_i, first_j = (h_phase + padding) % stride, (w_phase + padding) % stride
    taps_i, taps_j = (kernel - first_i + stride - 1) // stride, (kernel - first_j + stride - 1) // stride
    total = tl.zeros((block_rows, block_outputs), tl.float32)
    chunks: tl.constexpr = (inputs + block_inputs - 1) // block_inputs
    for step in range(taps_i * taps_j * chunks):
        tap = step // chunks
        i, j = first_i + tap // taps_j * stride, first_j + tap % taps_j * stride
        up, left = h + padding - i, w + padding - j
        inside = (up >= 0) & (left >= 0) & some
        up, left = up // stride, left // stride
        inside = inside & (up < in_height) & (left < in_width)
        feature = step % chunks * block_inputs + tl.arange(0, block_inputs)
        pixel = (image * in_height + up) * in_width + left
        value = tl.load(
            grad + pixel[:, None] * inputs + feature[None, :],
            mask=inside[:, None] & (feature < inputs)[None, :],
            other=0,
        )
        place = (feature[:, None] * (kernel * kernel) + i * kernel + j) * outputs + output[None, :]
        mask = (feature < inputs)[:, None] & (output < outputs)[None, :]
        total = tl.dot(value, tl.load(weight + place, mask=mask, other=0), total, input_precision="ieee")
    pixel = (image * height + h) * width + w
    _finish(total, out, code, code, pixel, some, output, outputs, epilogue)


@triton.jit
def _tap(total, grad, x, image, h, w, i, j, feature, inside_rows, in_height, in_width,
         inputs: tl.constexpr, stride: tl.constexpr, padding: tl.constexpr):  # fmt: skip
    """Add one tap's share, over some rows, to its weight gradient (outputs, inputs)."""
    up, left = h * stride + i - padding, w * stride + j - padding
    inside = inside_rows & (up >= 0) & (up < in_height) & (left >= 0) & (left < in_width)
    pixel = (image * in_height + up) * in_width + left
    value = tl.load(
        x + pixel[:, None] * inputs + feature[None, :], mask=inside[:, None] & (feature < inputs)[None, :], other=0
    )
    return tl.dot(tl.trans(grad), value, total, input_precision="ieee")


@triton.jit
def _weight_gradient(
    grad, x, partial, rows, rows_a_program, height, width, in_height, in_width,
    inputs: tl.constexpr, outputs: tl.constexpr, kernel: tl.constexpr, stride: tl.constexpr, padding: tl.constexpr,
    block_rows: tl.constexpr, block_inputs: tl.constexpr, block_outputs: tl.constexpr,
):  # fmt: skip
    """One program: some rows, a row of the kernel, a block of channels; `partial` is (programs, *weight.shape)."""
    blocks: tl.constexpr = (inputs + block_inputs - 1) // block_inputs
    i = tl.program_id(1)
    feature = tl.program_id(2) % blocks * block_inputs + tl.arange(0, block_inputs)
    output = tl.program_id(2) // blocks * block_outputs + tl.arange(0, block_outputs)
    first_tap = tl.zeros((block_outputs, block_inputs), tl.float32)
    second_tap = tl.zeros((block_outputs, block_inputs), tl.float32)
    third_tap = tl.zeros((block_outputs, block_inputs), tl.float32)
    start = tl.program_id(0) * rows_a_program
    stop = tl.minimum(start + rows_a_program, rows)
    for first in range(start, stop, block_rows):
        row = first + tl.arange(0, block_rows)
        inside = row < stop
        image, h, w = row // (height * width), row // width % height, row % width
        slope = tl.load(
            grad + row[:, None] * outputs + output[None, :], mask=inside[:, None] & (output < outputs)[None, :], other=0
        )
        first_tap = _tap(
            first_tap, slope, x, image, h, w, i, 0, feature, inside, in_height, in_width, inputs, stride, padding
        )
        if kernel == 3:
            second_tap = _tap(
                second_tap, slope, x, image, h, w, i, 1, feature, inside, in_height, in_width, inputs, stride, padding
            )
            third_tap = _tap(
                third_tap, slope, x, image, h, w, i, 2, feature, inside, in_height, in_width, inputs, stride, padding
            )
    place = tl.program_id(0) * outputs * kernel * kernel * inputs
    place += (output[:, None] * (kernel * kernel) + i * kernel) * inputs + feature[None, :]
    mask = (output < outputs)[:, None] & (feature < inputs)[None, :]
    tl.store(partial + place, first_tap, mask=mask)
    if kernel == 3:
        tl.store(partial + place + inputs, second_tap, mask=mask)
        tl.store(partial + place + 2 * inputs, third_tap, mask=mask)


@triton.jit
def _weight_gradient_patches(
    grad, x, partial, rows, rows_a_program, height, width, in_height, in_width,
    inputs: tl.constexpr, outputs: tl.constexpr, kernel: tl.constexpr, stride: tl.constexpr, padding: tl.constexpr,
    block_rows: tl.constexpr, block_patch: tl.constexpr, block_outputs: tl.constexpr,
):  # fmt: skip
    """As `_weight_gradient`, for patches so small that one product takes them whole."""
    element = tl.arange(0, block_patch)
    output = tl.program_id(1) * block_outputs + tl.arange(0, block_outputs)
    total = tl.zeros((block_outputs, block_patch), tl.float32)
    start = tl.program_id(0) * rows_a_program
    stop = tl.minimum(start + rows_a_program, rows)
    for first in range(start, stop, block_rows):
        row = first + tl.arange(0, block_rows)
        slope = tl.load(
            grad + row[:, None] * outputs + output[None, :],
            mask=(row < stop)[:, None] & (output < outputs)[None, :],
            other=0,
        )
        patch = _patches(
            x, row, row < stop, height, width, in_height, in_width, element, inputs, kernel, stride, padding
        )
        total = tl.dot(tl.trans(slope), patch, total, input_precision="ieee")
    size: tl.constexpr = kernel * kernel * inputs
    place = (tl.program_id(0) * outputs + output[:, None]) * size + element[None, :]
    tl.store(partial + place, total, mask=(output < outputs)[:, None] & (element < size)[None, :])


def _block(channels: int, most: int) -> int:
    return min(max(16, triton.next_power_of_2(channels)), most)


def _block_rows(rows: int) -> int:
    return 128 if rows >= 128 * 132 else 64  # or there would not be a tile for each multiprocessor


def _by_tiles(
    x: Tensor,
    weight: Tensor,
    shape: Shape,
    out: Tensor,
    *,
    epilogue: str = "",
    raw: Tensor | None = None,
    threshold: Tensor | None = None,
) -> Tensor:
    """A convolution into `out`, with an epilogue on `raw` and `threshold`."""
    images, outputs, height, width = out.shape
    inputs, rows = x.shape[1], images * height * width
    block_rows = _block_rows(rows)
    sizes = (rows, height, width, x.shape[2], x.shape[3])
    meta = {"inputs": inputs, "outputs": outputs, **shape._asdict(), "block_rows": block_rows}
    if weight[0].numel() <= _PATCH and not epilogue:
        block_outputs = _block(outputs, 128)
        _convolve_patches[triton.cdiv(rows, block_rows), triton.cdiv(outputs, block_outputs)](
            x, weight, out, *sizes, **meta, block_patch=_PATCH, block_outputs=block_outputs
        )
        return out
    block_outputs = _block(outputs, 64)
    _convolve[triton.cdiv(rows, block_rows), triton.cdiv(outputs, block_outputs)](
        x, weight, out, x if raw is None else raw, x if threshold is None else threshold, *sizes,
        **meta, epilogue=epilogue, block_inputs=_block(inputs, 64), block_outputs=block_outputs, num_stages=3,
    )  # fmt: skip
    return out


def _back_by_tiles(grad: Tensor, weight: Tensor, shape: Shape, out: Tensor, code: Tensor | None) -> Tensor:
    """The gradient of the input into `out`; with a `code`, masked by it."""
    images, outputs, height, width = out.shape
    rows, phases = images * height * width, shape.stride**2
    inputs, block_outputs = grad.shape[1], _block(outputs, 128 if shape.stride > 1 else 64)
    block_rows = _block_rows(rows)
    most = images * triton.cdiv(height, shape.stride) * triton.cdiv(width, shape.stride)  # rows of the first phase
    grid = triton.cdiv(most, block_rows), triton.cdiv(outputs, block_outputs), phases
    _convolve_back[grid](
        grad, weight, out, grad if code is None else code, rows, height, width, grad.shape[2], grad.shape[3],
        inputs=inputs, outputs=outputs, **shape._asdict(), epilogue="" if code is None else "mask",
        block_rows=block_rows, block_inputs=_block(inputs, 64 if inputs % 64 == 0 else 32), block_outputs=block_outputs,
        num_warps=8 if block_outputs == 128 else 4, num_stages=3,
    )  # fmt: skip
    return out


def _weight_gradient_by_tiles(grad: Tensor, x: Tensor, weight: Tensor, shape: Shape) -> Tensor:
    images, outputs, height, width = grad.shape
    inputs, rows = x.shape[1], images * height * width
    block_rows = 64 if min(inputs, outputs) >= 64 else 128  # the more channels, the more sums a tile holds
    meta = {"inputs": inputs, "outputs": outputs, **shape._asdict(), "block_rows": block_rows, "num_stages": 3}
    whole = weight[0].numel() <= _PATCH
    block_inputs, block_outputs = _block(inputs, 64), _block(outputs, 128 if whole else 64)
    blocks = triton.cdiv(outputs, block_outputs) * (1 if whole else triton.cdiv(inputs, block_inputs) * shape.kernel)
    rows_a_program = triton.cdiv(triton.cdiv(rows, block_rows), max(1, _PROGRAMS // blocks)) * block_rows
    programs = triton.cdiv(rows, rows_a_program)
    partial = weight.new_empty((1, programs, weight.numel()), dtype=torch.float32)
    tensors = (grad, x, partial, rows, rows_a_program, height, width, x.shape[2], x.shape[3])
    if whole:
        _weight_gradient_patches[programs, blocks](*tensors, **meta, block_patch=_PATCH, block_outputs=block_outputs)
    else:
        _weight_gradient[programs, shape.kernel, blocks // shape.kernel](
            *tensors, **meta, block_inputs=block_inputs, block_outputs=block_outputs
        )
    return sum_programs(partial, torch.empty_like(weight))


def _worth_trying(weight: Tensor) -> bool:
    return min(weight.shape[:2]) <= FEW and weight.shape[2] in (1, 3)


def _worth_trying_back(weight: Tensor, shape: Shape) -> bool:
    # With a stride, cuDNN's gradient of the input is slow for more channels still, and most so for single pixels.
    most = FEW if shape.stride == 1 else 2 * FEW if shape.kernel == 3 else 8 * FEW
    return min(weight.shape[:2]) <= most and weight.shape[2] in (1, 3)


def _key(what: str, x: Tensor, weight: Tensor, shape: Shape) -> tuple[object, ...]:
    return what, tuple(x.shape), tuple(weight.shape), shape, x.dtype


def convolve(x: Tensor, weight: Tensor, shape: Shape) -> Tensor:
    """The convolution of x ``(N, C_in, H, W)`` with a weight ``(C_out, C_in, kernel, kernel)``."""

    def library() -> Tensor:
        with _plans():
            return F.conv2d(x, weight, stride=shape.stride, padding=shape.padding)

    def tiles() -> Tensor:
        return _by_tiles(x, weight, shape, _empty(x, weight, shape))

    return fastest(_key("forward", x, weight, shape), [tiles, library] if _worth_trying(weight) else [library])


def _plans() -> AbstractContextManager[None]:
    """cuDNN's plans chosen by measurement, among all it has.

    It keeps plans by shape and by whether TF32 is allowed, which is nothing to half precision: not allowing it keeps
    these plans apart from those of code that does not ask for measured ones.
    """
    deterministic = torch.backends.cudnn.deterministic
    return torch.backends.cudnn.flags(
        enabled=True, benchmark=True, benchmark_limit=0, deterministic=deterministic, allow_tf32=False
    )


def _empty(x: Tensor, weight: Tensor, shape: Shape) -> Tensor:
    height, width = ((size + 2 * shape.padding - shape.kernel) // shape.stride + 1 for size in x.shape[2:])
    size = (len(x), len(weight), height, width)
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

    def library() -> Tensor:
        result = _back(grad, x, weight, shape, [True, False, False])[0]
        return result if code is None or out is None else mask(result, code, out)

    def tiles() -> Tensor:
        return _back_by_tiles(grad, weight, shape, torch.empty_like(x) if out is None else out, code)

    key = _key("back" if code is None else "masked back", x, weight, shape)
    return fastest(key, [tiles, library] if _worth_trying_back(weight, shape) else [library])


def weight_gradient(grad: Tensor, x: Tensor, weight: Tensor, shape: Shape) -> Tensor:
    """The gradient of :func:`convolve` with respect to the weight."""

    def library() -> Tensor:
        return _back(grad, x, weight, shape, [False, True, False])[1]

    def tiles() -> Tensor:
        return _weight_gradient_by_tiles(grad, x, weight, shape)

    return fastest(_key("weight", x, weight, shape), [tiles, library] if _worth_trying(weight) else [library])


def step(u: Tensor, coupling: Tensor, raw: Tensor, threshold: Tensor, out: Tensor | None = None) -> Tensor:
    """A step of the Q-Metric ReLU, ``relu(W u - raw - b)``, into `out` if that is given."""
    shape = same_size(coupling)

    def library() -> Tensor:
        with _plans():
            product = F.conv2d(u, coupling, padding=shape.padding)
        return subtract_relu(product, raw, threshold, product if out is None else out)

    def fused_library() -> Tensor:
        ones = [1, 1]
        with _plans():
            return torch.cudnn_convolution_add_relu(
                u, coupling, raw, -1.0, -threshold.to(u.dtype), ones, [shape.padding] * 2, ones, 1
            )

    def tiles() -> Tensor:
        result = torch.empty_like(u) if out is None else out
        return _by_tiles(u, coupling, shape, result, epilogue="step", raw=raw, threshold=threshold)

    candidates: list[Callable[[], Tensor]] = [tiles] if _worth_trying(coupling) else []
    candidates += [library] if out is not None or not u.is_cuda else [library, fused_library]
    return fastest(_key("step" if out is None else "step into", u, coupling, shape), candidates)


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
