"""What tests share: seeds, and the paper's equation written literally."""

from collections.abc import Iterator
from itertools import product

import pytest
import torch
from hypothesis import settings
from torch import Tensor
from torch.nn import functional as F

from detrame import operators

settings.register_profile("detrame", deadline=None, max_examples=30, derandomize=True)
settings.load_profile("detrame")


@pytest.fixture(autouse=True)
def seeded() -> Iterator[None]:
    torch.manual_seed(0)
    yield
    torch.set_default_dtype(torch.float32)


# One shape of coupling, with an input that fits, for every structure.
STRUCTURES: dict[str, tuple[tuple[int, ...], tuple[int, ...]]] = {
    "dense": ((6, 6), (3, 6)),
    "blocks": ((6, 2), (3, 6)),
    "dense, more axes": ((4, 4), (2, 3, 4)),
    "conv1d": ((4, 4, 3), (2, 4, 7)),
    "conv1d, groups": ((4, 2, 5), (2, 4, 7)),
    "conv2d": ((3, 3, 3, 3), (2, 3, 5, 4)),
    "conv2d, 1x1": ((4, 4, 1, 1), (2, 4, 3, 3)),
    "conv2d, groups": ((4, 2, 3, 3), (2, 4, 5, 4)),
    "conv2d, uneven": ((3, 3, 1, 5), (2, 3, 4, 6)),
    "conv3d": ((2, 2, 3, 3, 3), (2, 2, 3, 4, 3)),
    "conv3d, depthwise": ((3, 1, 3, 3, 3), (1, 3, 3, 3, 3)),
}


def problem(structure: str, dtype: torch.dtype = torch.float64) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """z, coupling, gain, threshold at random, with a contraction for a coupling."""
    shape, input_shape = STRUCTURES[structure]
    coupling = torch.randn(shape, dtype=dtype) / (2 * shape[1] * 3)
    operators.diagonal(coupling).zero_()
    gain, threshold = torch.rand(shape[0], dtype=dtype), torch.rand(shape[0], dtype=dtype) / 10
    return torch.randn(input_shape, dtype=dtype), coupling, gain, threshold


def dense_matrix(coupling: Tensor, size: tuple[int, ...]) -> Tensor:
    """The operator as a matrix, entry by entry from its definition: slow, and independent of the library."""
    channels, inputs, *kernel = coupling.shape
    positions = list(product(*map(range, size)))
    index = {position: i for i, position in enumerate(positions)}
    count = len(positions)
    matrix = coupling.new_zeros(channels * count, channels * count)
    for out in range(channels):
        for within in range(inputs):
            source = out // inputs * inputs + within
            for tap in product(*map(range, kernel)):
                offset = [t - n // 2 for t, n in zip(tap, kernel, strict=True)]
                for position in positions:
                    origin = tuple(p + o for p, o in zip(position, offset, strict=True))
                    if origin in index:
                        row, column = out * count + index[position], source * count + index[origin]
                        matrix[row, column] = coupling[(out, within, *tap)]
    return matrix


def literal(z: Tensor, coupling: Tensor, gain: Tensor, threshold: Tensor, iterations: int) -> list[Tensor]:
    """The paper's equation as printed, U <- ReLU(h Z + W(U - Z) - b), from U = 0: every iterate."""
    dim = coupling.ndim - 2
    size = tuple(z.shape[2:]) if dim else ()
    matrix = dense_matrix(coupling, size)
    repeat = matrix.shape[0] // coupling.shape[0]
    h, b = gain.repeat_interleave(repeat), threshold.repeat_interleave(repeat)
    flat = z.reshape(-1, matrix.shape[0])
    u = torch.zeros_like(flat)
    iterates = []
    for _ in range(iterations):
        u = F.relu(h * flat + (u - flat) @ matrix.T - b)
        iterates.append(u.reshape(z.shape))
    return iterates
