"""How a channels-last tensor is laid out over programs: rows (image, height, width) by channels."""

from dataclasses import dataclass

import torch
import triton
import triton.language as tl
from torch import Tensor

_ELEMENTS = 2048  # of a tile
_WARPS = 4
_PROGRAMS = 1056  # that share a pass over a tensor: eight for each multiprocessor of an H200


@dataclass(frozen=True)
class Tiles:
    """The tiles of a tensor of `rows` by `channels`, and how many programs share the rows."""

    rows: int
    channels: int
    block_rows: int
    block_channels: int
    programs: int

    @classmethod
    def of(cls, x: Tensor) -> "Tiles":
        """For a channels-last tensor ``(N, C, H, W)``."""
        channels = x.shape[1]
        rows = x.numel() // channels
        block_channels = next((size for size in (64, 32) if channels % size == 0), 16)
        block_rows = _ELEMENTS // block_channels
        wanted = triton.cdiv(_PROGRAMS, triton.cdiv(channels, block_channels))
        return cls(rows, channels, block_rows, block_channels, min(triton.cdiv(rows, block_rows), wanted))

    @property
    def grid(self) -> tuple[int, int]:
        """Programs along the rows and along the channels; a program takes every `programs`-th tile of its column."""
        return self.programs, triton.cdiv(self.channels, self.block_channels)

    @property
    def meta(self) -> dict[str, int]:
        """What a kernel over tiles is compiled for."""
        return {
            "channels": self.channels,
            "block_rows": self.block_rows,
            "block_channels": self.block_channels,
            "num_warps": _WARPS,
        }

    def partial(self, like: Tensor) -> Tensor:
        """Room for two sums a program and channel, ``(2, programs, channels)``."""
        return like.new_empty((2, self.programs, self.channels), dtype=torch.float32)


@triton.jit
def _sum_programs(partial, out, size, programs, block_programs: tl.constexpr, block: tl.constexpr):
    place = tl.program_id(0) * block + tl.arange(0, block)
    partial += tl.program_id(1) * size * programs
    total = tl.zeros((block_programs, block), tl.float32)
    for first in range(0, programs, block_programs):
        program = first + tl.arange(0, block_programs)
        mask = (program < programs)[:, None] & (place < size)[None, :]
        total += tl.load(partial + program[:, None] * size + place[None, :], mask=mask, other=0)
    place_out = tl.program_id(1) * size + place
    tl.store(out + place_out, tl.sum(total, 0).to(out.dtype.element_ty), mask=place < size)


def sum_programs(partial: Tensor, out: Tensor) -> Tensor:
    """Write ``partial.sum(1)``, of ``(n, programs, size)``, to `out`."""
    count, programs, size = partial.shape
    block = 16 if size <= 1024 else 64
    _sum_programs[triton.cdiv(size, block), count](
        partial, out, size, programs, block_programs=64, block=block, num_warps=4
    )
    return out
