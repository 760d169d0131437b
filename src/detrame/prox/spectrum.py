"""Eigenvalues of structured symmetric operators, and what must hold of a metric before a theorem applies to it."""

from math import prod

import torch
from torch import Tensor

from detrame import operators

_LANCZOS_STEPS = 128


def extreme_eigenvalues(weight: Tensor, size: tuple[int, ...] = ()) -> tuple[float, float]:
    """The smallest and the largest eigenvalue of a symmetric operator.

    Exact for a dense or block-diagonal weight. For a convolution at `size` they come from Lanczos steps in float64
    and are moved outwards by their error bound, so that a positive smallest value is a proof.
    """
    check_size(weight, size)
    weight = weight.detach().double()
    if weight.ndim == 2:
        eigenvalues = torch.linalg.eigvalsh(operators.blocks(weight))
        return eigenvalues.min().item(), eigenvalues.max().item()
    return _lanczos(weight, size)


def _lanczos(weight: Tensor, size: tuple[int, ...]) -> tuple[float, float]:
    """Both ends of the spectrum by the Lanczos process with full reorthogonalisation."""
    count = weight.shape[0] * prod(size)
    generator = torch.Generator().manual_seed(0)  # any start but an unlucky one will do; a fixed one repeats
    vector = torch.randn(count, generator=generator, dtype=weight.dtype).to(weight.device)
    vector = vector / vector.norm()
    basis = vector.new_empty(0, count)
    diagonal: list[float] = []
    beside: list[float] = []
    for _ in range(min(_LANCZOS_STEPS, count)):
        basis = torch.cat([basis, vector[None]])
        image = operators.apply(weight, vector.reshape(1, -1, *size)).flatten()
        diagonal.append(float(image @ vector))
        for _ in range(2):  # once is not enough in floating point, twice is
            image = image - basis.T @ (basis @ image)
        beside.append(float(image.norm()))
        if beside[-1] <= 1e-12 * max(map(abs, diagonal)):
            break  # the basis spans an invariant subspace: its eigenvalues are exact
        vector = image / beside[-1]
    off = torch.tensor(beside[:-1], dtype=weight.dtype)
    tridiagonal = torch.diag(torch.tensor(diagonal, dtype=weight.dtype)) + torch.diag(off, 1) + torch.diag(off, -1)
    values, vectors = torch.linalg.eigh(tridiagonal)
    error = beside[-1] * vectors[-1].abs()
    return (values[0] - error[0]).item(), (values[-1] + error[-1]).item()


def check_size(weight: Tensor, size: tuple[int, ...]) -> None:
    """Raise a ValueError unless `size` has one entry for each axis of a convolution's kernel."""
    if len(size) != weight.ndim - 2 or any(length < 1 for length in size):
        raise ValueError(f"a weight of shape {tuple(weight.shape)} needs a size of {weight.ndim - 2} axes, got {size}")


def check_metric(metric: Tensor, size: tuple[int, ...] = ()) -> None:
    """Raise unless `metric` is finite, symmetric and positive definite (a convolution: at the given size)."""
    if not metric.is_floating_point():
        raise TypeError(f"the metric must be a real floating-point tensor, got {metric.dtype}")
    operators.check_weight(metric, "metric")
    check_finite("metric", metric)
    asymmetry = (metric - operators.transpose(metric)).abs().amax().item()
    if asymmetry > torch.finfo(metric.dtype).eps ** 0.75 * metric.abs().amax().item():
        raise ValueError(f"the metric must be symmetric, but differs from its transpose by up to {asymmetry:.3g}")
    smallest, _ = extreme_eigenvalues(metric, size)
    if not smallest > 0:
        raise ValueError(f"the metric must be positive definite, but its smallest eigenvalue is {smallest:.3g}")


def check_finite(name: str, tensor: Tensor) -> None:
    """Raise a ValueError if `tensor` holds NaN or infinity."""
    if not torch.isfinite(tensor).all():
        raise ValueError(f"the {name} must be finite, but holds NaN or infinity")


def check_penalty(name: str, value: float | Tensor) -> None:
    """Raise a ValueError unless `value` (or each of them) is a finite number >= 0."""
    tensor = torch.as_tensor(value)
    if not (torch.isfinite(tensor) & (tensor >= 0)).all():
        raise ValueError(f"{name} must be a finite number >= 0, got {value}")
