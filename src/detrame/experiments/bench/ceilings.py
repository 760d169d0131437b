"""What the device can do at most, measured: arithmetic by a large product of matrices, memory by a large copy."""

from dataclasses import dataclass

import torch

from detrame.experiments.bench.clock import Effort, milliseconds


@dataclass(frozen=True)
class Ceilings:
    """TFLOP/s of a large product in the arithmetic of training (bfloat16 on a GPU), and GB/s read and written."""

    tflops: float
    gb_per_s: float

    @classmethod
    def measured(cls, device: torch.device, effort: Effort) -> "Ceilings":
        """On random numbers: zeros take less power, so that a GPU would run them faster than any real work."""
        on_gpu = device.type == "cuda"
        side, dtype = (8192, torch.bfloat16) if on_gpu else (1024, torch.float32)
        a, b = (torch.randn(side, side, device=device, dtype=dtype) for _ in range(2))
        source = torch.randn(2**28 if on_gpu else 2**23, device=device)
        product, copy = torch.empty_like(a), torch.empty_like(source)
        times = milliseconds(
            {"matmul": lambda: torch.mm(a, b, out=product), "copy": lambda: copy.copy_(source)}, device, effort
        )
        return cls(
            tflops=2 * side**3 / times["matmul"] / 1e9,
            gb_per_s=2 * source.nbytes / times["copy"] / 1e6,
        )
