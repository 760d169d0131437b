"""Eigenvalues of structured symmetric operators, and what makes one a metric."""

from math import prod

import torch
from torch import Tensor

from detrame import operators
from detrame.prox.checks import check_size, check_symmetric

_DENSE = 2048  # a convolution on so many values is made a matrix; a larger one is only applied
_LANCZOS_STEPS = 200


def extreme_eigenvalues(weight: Tensor, size: tuple[int, ...] = ()) -> tuple[float, float]:
    """The smallest and the largest eigenvalue of a symmetric operator ``(C, C / groups, *kernel)``.

    A convolution acts on inputs of a `size`, one number for each axis of its kernel.

    Exact for a dense or block-diagonal weight, and for a convolution on up to 2048 values. For a convolution on more
    they are Ritz values of the Lanczos process: never outside the spectrum, and close to its ends.
    """
    check_symmetric("weight", weight)
    check_size(weight, size)
    return ends(weight, size)


def ends(weight: Tensor, size: tuple[int, ...]) -> tuple[float, float]:
    """The same of a weight that is known to be symmetric, up to rounding: of its symmetric part.

    Of an inverse in float32, that part keeps the small eigenvalues, which one half of the matrix loses.
    """
    weight = weight.detach().double()
    weight = (weight + operators.transpose(weight)) / 2
    if not is_small(weight, size):
        return _lanczos(weight, size)
    blocks = operators.blocks(weight) if weight.ndim == 2 else operators.to_dense(weight, size)
    eigenvalues = torch.linalg.eigvalsh(blocks)
    return eigenvalues.min().item(), eigenvalues.max().item()


def is_small(weight: Tensor, size: tuple[int, ...]) -> bool:
    """Whether the eigenvalues of an operator are found exactly: all are but those of a convolution on many values."""
    return weight.ndim == 2 or weight.shape[0] * prod(size) <= _DENSE


def _lanczos(weight: Tensor, size: tuple[int, ...]) -> tuple[float, float]:
    """Both ends of the spectrum by the Lanczos process with full reorthogonalisation, until they stand still."""
    count = weight.shape[0] * prod(size)
    generator = torch.Generator().manual_seed(0)  # any start but an unlucky one will do; a fixed one repeats
    vector = torch.randn(count, generator=generator, dtype=weight.dtype, device="cpu").to(weight.device)
    basis = vector.new_zeros(_LANCZOS_STEPS, count)
    tridiagonal = vector.new_zeros(_LANCZOS_STEPS, _LANCZOS_STEPS)
    ends = vector.new_zeros(2)
    for step in range(_LANCZOS_STEPS):
        basis[step] = vector / vector.norm()
        vector = operators.apply(weight, basis[step].reshape(1, -1, *size)).flatten()
        tridiagonal[step, step] = vector @ basis[step]
        for _ in range(2):  # once is not enough in floating point, twice is
            vector = vector - basis[: step + 1].T @ (basis[: step + 1] @ vector)
        before, ends = ends, torch.linalg.eigvalsh(tridiagonal[: step + 1, : step + 1])[[0, -1]]
        still = (ends - before).abs().max() <= 1e-9 * ends.abs().max()
        beside = vector.norm()
        if (still and step > 10) or beside <= 1e-12 * ends.abs().max() or step + 1 == _LANCZOS_STEPS:
            break
        tridiagonal[step, step + 1] = tridiagonal[step + 1, step] = beside
    return ends[0].item(), ends[1].item()


def diagonally_dominant(weight: Tensor) -> bool:
    """Whether every diagonal entry outweighs its row: a symmetric operator is then positive definite at every size."""
    rows = weight.abs().flatten(1).sum(1)
    return bool((2 * operators.diagonal(weight).flatten() > rows).all())


def check_metric(metric: Tensor, size: tuple[int, ...] = ()) -> None:
    """Raise unless `metric` is finite, symmetric and positive definite (a convolution: at the given size)."""
    check_symmetric("metric", metric)
    check_size(metric, size)
    if diagonally_dominant(metric):  # a proof that costs nothing
        return
    smallest, _ = ends(metric, size)
    if not smallest > 0:
        raise ValueError(f"the metric must be positive definite, but its smallest eigenvalue is {smallest:.3g}")
