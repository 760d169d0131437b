"""Theorem 1 (dictionary to metric) and Theorem 2 (metric to coupling, gain, threshold), and the way back."""

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from detrame import operators
from detrame.errors import check_number
from detrame.prox.checks import channel_values, check_floating, check_one_dtype, check_size
from detrame.prox.spectrum import check_metric, extreme_eigenvalues


def metric(dictionary: Tensor, damping: float) -> Tensor:
    r""":math:`Q = D'D + \alpha I`, of shape ``(..., k, k)`` for a dictionary ``(..., m, k)`` (Theorem 1)."""
    check_floating("dictionary", dictionary)
    if dictionary.ndim < 2 or 0 in dictionary.shape[-2:]:
        raise ValueError(f"the dictionary must have shape (..., m, k), got {tuple(dictionary.shape)}")
    check_number("damping", damping)
    if not 0 <= damping < float("inf"):
        raise ValueError(f"damping must be finite and >= 0, got {damping}")
    gram = dictionary.mT @ dictionary
    return gram + damping * torch.eye(gram.shape[-1], dtype=gram.dtype, device=gram.device)


def dual_frame(dictionary: Tensor, damping: float) -> Tensor:
    r""":math:`F = Q^{-1} D'`, of shape ``(..., k, m)``: the linear layer of Theorem 1."""
    return _solve(metric(dictionary, damping), dictionary.mT)


def shift(dictionary: Tensor, damping: float, linear: Tensor) -> Tensor:
    r""":math:`c = Q^{-1} d`, of shape ``(..., k)``, for the linear term d of the coding problem (Theorem 1)."""
    check_floating("dictionary", dictionary)
    check_floating("linear term", linear)
    check_one_dtype("linear term", linear, "dictionary", dictionary)
    if linear.shape[-1:] != dictionary.shape[-1:]:
        raise ValueError(f"the linear term needs {dictionary.shape[-1]} entries, got shape {tuple(linear.shape)}")
    return _solve(metric(dictionary, damping), linear.unsqueeze(-1)).squeeze(-1)


def _solve(metric: Tensor, right: Tensor) -> Tensor:
    if metric.dtype in (torch.float16, torch.bfloat16):  # there is no factorisation in half precision
        return _solve(metric.float(), right.float()).to(metric.dtype)
    factor, failed = torch.linalg.cholesky_ex(metric)
    if failed.any():
        raise ValueError("D'D + damping I is not positive definite in this precision: raise the damping")
    return torch.cholesky_solve(right, factor)


class Reparametrisation(NamedTuple):
    """The parameters of the iteration: ``coupling (C, C / groups, *kernel)``, ``gain (C,)``, ``threshold (C,)``."""

    coupling: Tensor
    gain: Tensor
    threshold: Tensor


def reparametrise(
    metric: Tensor,
    sparsity: float | Tensor,
    ridge: float = 0.0,
    *,
    theta: Tensor | None = None,
    size: tuple[int, ...] = (),
) -> Reparametrisation:
    r"""The iteration whose fixed point is :math:`\mathrm{prox}^Q` of the elastic net on codes >= 0 (Theorem 2).

    .. math::
        \tilde W = (\Theta + \beta I)^{-1} (\Theta - Q), \quad
        h_i = \frac{\theta_i}{\theta_i + \beta}, \quad b_i = \frac{\lambda}{\theta_i + \beta}

    With the default, :math:`\Theta = \mathrm{diag}(Q)`, this is Theorem 2, and the coupling has a zero diagonal. Any
    other theta is the preconditioned form of the appendix (its step gamma is absorbed: only Theta / gamma matters).
    :func:`convergence` says whether the iteration converges. :func:`preconditioner` gives a theta with which it always
    does.

    Args:
        metric: Q, symmetric and positive definite, ``(C, C / groups, *kernel)``.
        sparsity: lambda >= 0, one number or one per channel ``(C,)``.
        ridge: beta >= 0.
        theta: ``(C,)``, positive.
        size: of the input, for a convolutional metric.
    """
    check_metric(metric, size)
    weight = operators.diagonal(metric).flatten() if theta is None else theta
    theta = channel_values("theta", weight, metric, above_zero=True)
    total = theta + channel_values("ridge", ridge, metric)
    coupling = operators.scale(operators.add_diagonal(-metric, theta), 1 / total)
    return Reparametrisation(coupling, theta / total, channel_values("sparsity", sparsity, metric) / total)


def preconditioner(metric: Tensor) -> Tensor:
    r"""A theta ``(C,)`` with which the iteration converges for every input: :math:`\theta_i = \sum_l |q_{il}|`.

    Theta - Q is then diagonally dominant, hence Theta >= Q and 2 Theta + beta I - Q is positive definite; for a
    convolution the sum runs over the kernel too, and the choice is right at every size.
    """
    check_floating("metric", metric)
    operators.check_weight(metric, "metric")
    return metric.abs().flatten(1).sum(1)


@dataclass(frozen=True)
class Recovery:
    """What a triple (coupling, gain, threshold) says about Q, lambda and beta. Print it to get this in words.

    Attributes:
        metric: Q in the layout of the coupling; rows of undetermined channels are NaN.
        sparsity: ``(C,)``, the lambda each channel implies; equal if the triple comes from one problem.
        ridge: beta: 1 (the common factor is chosen so) or 0.
        determined: ``(C,)`` of bool: the channels whose row of Q the triple determines.
        sparsity_spread: (largest - smallest) / mean of the lambdas of the determined channels.
        asymmetry: ``|Q - Q'| / |Q|`` (Frobenius) over the determined channels.
        smallest_eigenvalue, largest_eigenvalue: of (Q + Q') / 2 over the determined channels.
    """

    metric: Tensor
    sparsity: Tensor
    ridge: float
    determined: Tensor
    sparsity_spread: float
    asymmetry: float
    smallest_eigenvalue: float
    largest_eigenvalue: float

    def __str__(self) -> str:
        count, known = len(self.determined), int(self.determined.sum())
        parts = ["Q, lambda and beta are known up to one common factor, chosen so that " + self._normalisation()]
        if known < count:
            parts.append(f"{count - known} of {count} channels are undetermined")
        if known:
            parts.append(f"the implied lambdas differ by {self.sparsity_spread:.3g} of their mean")
            parts.append(f"Q differs from its transpose by {self.asymmetry:.3g} of its norm")
            low, high = self.smallest_eigenvalue, self.largest_eigenvalue
            definite = "positive definite" if low > 0 else "not positive definite"
            parts.append(f"its symmetric part is {definite}, with eigenvalues from {low:.3g} to {high:.3g}")
        return "; ".join(parts)

    def _normalisation(self) -> str:
        if not self.determined.any():
            return "nothing: with gain 1 and threshold 0 even diag(Q) is free"
        return "beta = 1" if self.ridge else "lambda = 1 (beta is 0)"


def recover(coupling: Tensor, gain: Tensor, threshold: Tensor, *, size: tuple[int, ...] = ()) -> Recovery:
    r"""The inverse of :func:`reparametrise`: find the Q, lambda and beta that a (learned) triple stands for.

    With :math:`s_i = \theta_i + \beta`, :math:`Q = \mathrm{diag}(s)(\mathrm{diag}(h) - \tilde W)`,
    :math:`\lambda_i = s_i b_i` and :math:`\beta = s_i (1 - h_i)`. The triple is unchanged when Q, lambda and beta are
    multiplied by one factor, so beta is set to 1 and the gains give s. If no gain is below 1, beta is 0, lambda is set
    to 1 and the thresholds give s. A channel determines nothing if its gain is 1 while others are below 1, or if its
    gain is 1 and its threshold 0: its s would be infinite.

    Args:
        coupling: ``(C, C / groups, *kernel)``.
        gain: ``(C,)``, in [0, 1].
        threshold: ``(C,)``, >= 0.
        size: of the input, for a convolution: where eigenvalues are taken.
    """
    check_floating("coupling", coupling)
    operators.check_weight(coupling, "coupling")
    check_size(coupling, size)
    for name, tensor in (("gain", gain), ("threshold", threshold)):
        check_floating(name, tensor)
        if tensor.shape != coupling.shape[:1]:
            raise ValueError(f"{name} must have shape ({coupling.shape[0]},), got {tuple(tensor.shape)}")
    if gain.min() < 0 or gain.max() > 1 or threshold.min() < 0:
        raise ValueError("expected gains in [0, 1] and thresholds >= 0: project the parameters first")
    coupling, gain, threshold = coupling.detach(), gain.detach(), threshold.detach()
    slack = 4 * torch.finfo(gain.dtype).eps  # a gain closer to 1 than this would give an s of pure rounding error
    ridge = 1.0 if (1 - gain > slack).any() else 0.0
    inverse = 1 - gain if ridge else threshold  # 1 / s, at beta = 1 or at lambda = 1
    determined = (inverse > (slack if ridge else 0)) & (1 / inverse).isfinite()
    s = torch.where(determined, 1 / inverse, torch.nan)
    metric = operators.scale(operators.add_diagonal(-coupling, gain), s)
    sparsity = s * threshold
    spread, asymmetry, low, high = _departures(metric, sparsity, determined, size)
    return Recovery(metric, sparsity, ridge, determined, spread, asymmetry, low, high)


def _departures(
    metric: Tensor, sparsity: Tensor, determined: Tensor, size: tuple[int, ...]
) -> tuple[float, float, float, float]:
    """Spread of the lambdas, asymmetry and extreme eigenvalues of Q, all over the determined channels."""
    if not determined.any():
        return (torch.nan,) * 4
    implied = sparsity[determined]
    mean = implied.mean()
    spread = ((implied.max() - implied.min()) / mean).item() if mean > 0 else 0.0
    known = operators.ungroup(metric)[determined][:, determined]
    adjoint = operators.transpose(known)
    norm = known.norm()
    asymmetry = ((known - adjoint).norm() / norm).item() if norm > 0 else 0.0
    return spread, asymmetry, *extreme_eigenvalues((known + adjoint) / 2, size)
