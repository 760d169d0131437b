"""What the iterated activations share: non-negative codes, and a coupling of the layout of :mod:`detrame.operators`."""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor, nn

from detrame.errors import check_count


class CoupledReLU(nn.Module):
    """An activation whose codes come from a few iterations, in which a linear map couples the channels.

    The library counts, traces and measures all of these alike. Each subclass has its own iteration, other parameters
    and initialisation.

    Args:
        channels: C, on the last axis for ``dim=0``, on axis 1 otherwise.
        kernel_size: odd; one number, or one per axis; 3 by default. None for ``dim=0``.
        iterations: T, at least 1.
        dim: 0 for feature vectors ``(..., C)``; 1, 2, 3 for ``(N, C, *size)``.
        groups: number of diagonal blocks of the coupling; divides `channels`.

    Shape: ``coupling (C, C / groups, *kernel)``.
    """

    coupling: nn.Parameter

    def __init__(
        self,
        channels: int,
        kernel_size: int | Sequence[int] | None,
        iterations: int,
        *,
        dim: int,
        groups: int,
        device: torch.device | str | None,
        dtype: torch.dtype | None,
    ) -> None:
        super().__init__()
        self.iterations = check_count("iterations", iterations)
        if isinstance(dtype, torch.dtype) and not dtype.is_floating_point:
            raise TypeError(f"dtype must be a real floating-point type, got {dtype}")
        shape = _coupling_shape(channels, kernel_size, dim, groups)
        self.coupling = nn.Parameter(torch.empty(shape, device=device, dtype=dtype))

    @property
    def applications(self) -> int:
        """How many linear maps of the coupling's size one call applies."""
        return self.iterations

    def extra_repr(self) -> str:
        """What is seen of this module when it is printed."""
        channels, inputs, *kernel = self.coupling.shape
        parts = [str(channels), f"kernel_size={tuple(kernel)}" if kernel else "dim=0", f"iterations={self.iterations}"]
        if len(kernel) not in (0, 2):
            parts.append(f"dim={len(kernel)}")
        if channels != inputs:
            parts.append(f"groups={channels // inputs}")
        return ", ".join(parts)


def _coupling_shape(channels: int, kernel_size: int | Sequence[int] | None, dim: int, groups: int) -> tuple[int, ...]:
    if check_count("dim", dim, minimum=0) > 3:
        raise ValueError(f"dim must be 0 (feature vectors), 1, 2 or 3 (convolutions), got {dim!r}")
    channels, groups = check_count("channels", channels), check_count("groups", groups)
    if channels % groups:
        raise ValueError(f"groups must divide channels, got groups={groups} for {channels} channels")
    if dim == 0 and kernel_size is not None:
        raise ValueError(f"dim=0 acts on feature vectors and takes no kernel_size, got {kernel_size!r}")
    if isinstance(kernel_size, np.ndarray | Tensor):
        kernel_size = kernel_size.tolist()
    sizes = [3 if kernel_size is None else kernel_size] * dim if not isinstance(kernel_size, Sequence) else kernel_size
    kernel = [check_count("kernel_size", size) for size in sizes]
    if len(kernel) != dim:
        raise ValueError(f"kernel_size {tuple(kernel)} has {len(kernel)} axes, dim is {dim}")
    if any(size % 2 == 0 for size in kernel):
        raise ValueError(f"kernel_size must be odd, so that the coupling has a centre, got {kernel_size}")
    return channels, channels // groups, *kernel
