"""How a channels-last tensor is laid out over programs: rows (image, height, width) by channels."""

from dataclasses import dataclass

import torch
import triton
import triton.language as tl
from torch import Tensor

from detrame.errors import TooLarge

MULTIPROCESSORS = 132  # of an H200, for which the sizes here were measured
_ELEMENTS = 2048  # of a tile
# Programs that share a pass over a tensor, where each leaves a partial sum and elsewhere; twice as many if it is large.
_REDUCING, _MAPPING, _LARGE = 2 * MULTIPROCESSORS, 4 * MULTIPROCESSORS, 2**22


@dataclass(frozen=True)
class Tiles:
    """The tiles of a tensor of `rows` by `channels`."""

    rows: int
    channels: int
    block_rows: int
    block_channels: int

    @classmethod
    def of(cls, x: Tensor) -> "Tiles":
        """For a channels-last tensor ``(N, C, H, W)``."""
        check_size(x.numel())
        channels = x.shape[1]
        block_channels = next((size for size in (64, 32) if channels % size == 0), 16)
        return cls(x.numel() // channels, channels, _ELEMENTS // block_channels, block_channels)

    @property
    def reducing(self) -> tuple[int, int]:
        """The grid, along rows and channels, of a pass that leaves partial sums."""
        return self._grid(_REDUCING)

    @property
    def mapping(self) -> tuple[int, int]:
        """The grid of a pass that maps tiles to tiles. In either, a program takes every n-th tile of its column."""
        return self._grid(_MAPPING)

    def _grid(self, programs: int) -> tuple[int, int]:
        columns = triton.cdiv(self.channels, self.block_channels)
        programs *= 2 if self.rows * self.channels > _LARGE else 1
        return min(triton.cdiv(self.rows, self.block_rows), triton.cdiv(programs, columns)), columns

    @property
    def meta(self) -> dict[str, int]:
        """What a kernel over tiles is compiled for."""
        return {
            "channels": self.channels,
            "block_rows": self.block_rows,
            "block_channels": self.block_channels,
            "num_warps": 4,
        }

    def partial(self, like: Tensor) -> Tensor:
        """Room for two sums a reducing program and channel, ``(2, programs, channels)``."""
        return like.new_empty((2, self.reducing[0], self.channels), dtype=torch.float32)


def check_size(values: int) -> None:
    """Raise TooLarge if a tensor has more values than the kernels' 32-bit offsets reach."""
    if values >= 2**31:
        raise TooLarge(f"a tensor of {values} values is too large for the fused kernels: take a smaller batch_size")


@triton.jit
def positive_part(value):
    """``max(value, 0)``, and NaN of NaN, so that a training that diverged is seen to have."""
    return tl.maximum(value, 0, propagate_nan=tl.PropagateNan.ALL)


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


def sum_programs(partial: Tensor, out: Tensor | None = None) -> Tensor:
    """``partial.sum(1)``, of ``(n, programs, size)``, into `out` if that is given."""
    out = partial.new_empty((partial.shape[0], partial.shape[2])) if out is None else out
    count, programs, size = partial.shape
    block = 16 if size <= 1024 else 64
    _sum_programs[triton.cdiv(size, block), count](
        partial, out, size, programs, block_programs=64, block=block, num_warps=4
    )
    return out
