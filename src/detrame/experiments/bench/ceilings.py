"""What the device can do at most, measured: arithmetic by a large product, memory by a large copy.

The product is one of matrices on a GPU. On a CPU it is a convolution: those come from a library of their own, which on
some processors is more than twice as fast as that for matrices.
"""

from dataclasses import dataclass

import torch
from torch.nn import functional as F

from detrame.experiments.bench.clock import Action, Effort, milliseconds


@dataclass(frozen=True)
class Ceilings:
    """TFLOP/s of a large product in the arithmetic of training (bfloat16 on a GPU), and GB/s read and written."""

    tflops: float
    gb_per_s: float

    @classmethod
    def measured(cls, device: torch.device, effort: Effort) -> "Ceilings":
        """On random numbers: zeros take less power, so that a GPU would run them faster than any real work."""
        on_gpu = device.type == "cuda"
        product, multiply_adds = _product_on_gpu(device) if on_gpu else _convolution()
        source = torch.randn(2**28 if on_gpu else 2**23, device=device)
        copy = torch.empty_like(source)
        times = milliseconds({"product": product, "copy": lambda: copy.copy_(source)}, device, effort)
        return cls(
            tflops=2 * multiply_adds / times["product"] / 1e9,
            gb_per_s=2 * source.nbytes / times["copy"] / 1e6,
        )


def _product_on_gpu(device: torch.device) -> tuple[Action, int]:
    """A product of large matrices, and its multiply-adds."""
    a, b = (torch.randn(8192, 8192, device=device, dtype=torch.bfloat16) for _ in range(2))
    product = torch.empty_like(a)
    return lambda: torch.mm(a, b, out=product), 8192**3


def _convolution() -> tuple[Action, int]:
    """A convolution of many channels, and its multiply-adds."""
    x = torch.randn(32, 128, 16, 16).to(memory_format=torch.channels_last)
    weight = torch.randn(128, 128, 3, 3).to(memory_format=torch.channels_last)
    return lambda: F.conv2d(x, weight, padding=1), x.numel() * weight[0].numel()
