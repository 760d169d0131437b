"""Convolutions of channels-last images to 96 or 192 channels, and other sums of two powers of two, in Triton.

cuDNN computes 128 channels where there are 96. Here a product is two, of 64 and of 32 channels. A tile is some whole
lines of an image, or some whole images: shifted by a tap of the kernel it is still a box, which Hopper's copy engine
for tensors (TMA) fetches by itself, with zeros beyond the image.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from detrame.kernels.few_channels import Shape, finish

try:
    from triton.tools.tensor_descriptor import TensorDescriptor
except ImportError:  # Triton before 3.4: nothing fits
    TensorDescriptor = None


_TILES = (256, 128, 64)  # pixels that a program takes
_WARPS, _STAGES = 4, 3  # so that two programs share a multiprocessor
_SUMS = 192  # that a thread can hold besides the rest; tiles of a quarter as many or fewer are not tried


@triton.jit
def _convolve_lines(
    x, filters, filters_rest, out, raw, threshold, pixels, one,
    height: tl.constexpr, width: tl.constexpr, inputs: tl.constexpr, kernel: tl.constexpr, back: tl.constexpr,
    epilogue: tl.constexpr, images: tl.constexpr, lines: tl.constexpr, span: tl.constexpr,
    columns: tl.constexpr, rest: tl.constexpr,
):  # fmt: skip
    """A tile of the output, all ``columns + rest`` channels of it.

    The filters are (outputs, taps, inputs) and, where they are taken `back`, (inputs, taps, outputs). `one` is 1.
    """
    size: tl.constexpr = images * lines * width
    taps: tl.constexpr = kernel * kernel
    start = tl.program_id(0) * size
    image, top = start // (height * width), start // width % height
    total = tl.zeros((size, columns), tl.float32)
    total_rest = tl.zeros((size, rest), tl.float32)
    for step in range(taps * (inputs // span)):
        tap, channel = step // (inputs // span), step % (inputs // span) * span
        corner = [image, top + tap // kernel - kernel // 2, tap % kernel - kernel // 2, channel]
        patch = x.load(corner).reshape(size, span)
        if back:
            tap = taps - 1 - tap
            total = tl.dot(patch, filters.load([channel, tap, 0]).reshape(span, columns), total)
            total_rest = tl.dot(patch, filters_rest.load([channel, tap, columns]).reshape(span, rest), total_rest)
        else:
            total = tl.dot(patch, filters.load([0, tap, channel]).reshape(columns, span).T, total)
            total_rest = tl.dot(patch, filters_rest.load([columns, tap, channel]).reshape(rest, span).T, total_rest)
        # So that the products are waited for. Triton lets them run on into the next step, where the registers that they
        # read are loaded anew: results were wrong (github.com/triton-lang/triton/issues/9433).
        total_rest *= one
    pixel = (start + tl.arange(0, size))[:, None]
    output = tl.arange(0, columns)
    place = pixel * (columns + rest) + output[None, :]
    finish(total, out, raw, threshold, place, pixel < pixels, output, output >= 0, epilogue)
    output = columns + tl.arange(0, rest)
    place = pixel * (columns + rest) + output[None, :]
    finish(total_rest, out, raw, threshold, place, pixel < pixels, output, output >= 0, epilogue)


def tiles_for(x: Tensor, weight: Tensor, outputs: int, shape: Shape) -> list[int]:
    """The tiles, in pixels, worth trying for a convolution of x to `outputs` channels; none where it is none of these.

    All sizes in a tile are powers of two, so the images' have to be, and the rest of the channels.
    """
    _, inputs, height, width = x.shape
    rest = _parts(outputs)[1]
    sizes = rest >= 16 and inputs % 16 == 0 and all(size & (size - 1) == 0 for size in (height, width, rest))
    same_size = shape.stride == 1 and shape.kernel == 2 * shape.padding + 1
    half = all(values.element_size() == 2 and values.data_ptr() % 16 == 0 for values in (x, weight))
    if not (sizes and same_size and half and _has_engine(x)):
        return []
    return [tile for tile in _TILES if width <= tile and _SUMS / 4 < tile * outputs / (32 * _WARPS) <= _SUMS]


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
    tile: int,
    *,
    back: bool = False,
    epilogue: str = "",
    raw: Tensor | None = None,
    threshold: Tensor | None = None,
) -> Tensor:
    """A convolution into `out`, of its size, by tiles of so many pixels; `back`, the gradient of one.

    The epilogue works on `raw` and `threshold`.
    """
    images, inputs, height, width = x.shape
    columns, rest = _parts(out.shape[1])
    lines = min(height, tile // width)
    many = tile // (lines * width)  # images a tile
    span = min(64, inputs & -inputs)
    box = [many, lines, width, span]
    patches = TensorDescriptor(x, [images, height, width, inputs], _strides(height, width, inputs), box)

    def filters(part: int) -> object:
        first, kernel, _, last = (weight.shape[axis] for axis in (0, 2, 3, 1))
        taps = kernel**2
        return TensorDescriptor(
            weight, [first, taps, last], _strides(taps, last), [span, 1, part] if back else [part, 1, span]
        )

    pixels = images * height * width
    _convolve_lines[(triton.cdiv(pixels, tile),)](
        patches, filters(columns), filters(rest), out, out if raw is None else raw,
        out if threshold is None else threshold, pixels, 1.0,
        height, width, inputs, weight.shape[2], back, epilogue,
        images=many, lines=lines, span=span, columns=columns, rest=rest,
        num_warps=_WARPS, num_stages=_STAGES,
    )  # fmt: skip
    return out


def _strides(*sizes: int) -> list[int]:
    """Of a contiguous tensor with these sizes behind its first axis."""
    strides = [1]
    for size in reversed(sizes):
        strides.insert(0, strides[0] * size)
    return strides
