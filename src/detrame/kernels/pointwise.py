"""The pointwise part of a step of the Q-Metric ReLU, and of its backward, where it is no convolution's epilogue."""

import triton
import triton.language as tl
from torch import Tensor

from detrame.kernels.tiles import positive_part


@triton.jit
def _subtract_relu(product, raw, threshold, out, size, channels: tl.constexpr, has_product: tl.constexpr,
                   block: tl.constexpr):  # fmt: skip
    place = tl.program_id(0) * block + tl.arange(0, block)
    mask = place < size
    value = -tl.load(raw + place, mask=mask, other=0).to(tl.float32)
    value -= tl.load(threshold + place % channels, mask=mask, other=0)
    if has_product:
        value += tl.load(product + place, mask=mask, other=0).to(tl.float32)
    tl.store(out + place, positive_part(value).to(out.dtype.element_ty), mask=mask)


def subtract_relu(product: Tensor | None, raw: Tensor, threshold: Tensor, out: Tensor) -> Tensor:
    """``relu(product - raw - b)``, into `out`; without a product, 0 in its place."""
    _subtract_relu[(triton.cdiv(raw.numel(), 2048),)](
        raw if product is None else product, raw, threshold, out, raw.numel(),
        channels=raw.shape[1], has_product=product is not None, block=2048, num_warps=8,
    )  # fmt: skip
    return out


@triton.jit
def _mask(grad, code, out, size, block: tl.constexpr):
    place = tl.program_id(0) * block + tl.arange(0, block)
    inside = place < size
    passed = tl.load(code + place, mask=inside, other=0).to(tl.float32) > 0
    value = tl.load(grad + place, mask=inside, other=0)
    tl.store(out + place, tl.where(passed, value, 0).to(out.dtype.element_ty), mask=inside)


def mask(grad: Tensor, code: Tensor, out: Tensor) -> Tensor:
    """The gradient where the code is positive, into `out`."""
    _mask[(triton.cdiv(grad.numel(), 2048),)](grad, code, out, grad.numel(), block=2048, num_warps=8)
    return out
