"""Exact solvers of the prox in a metric and of the coding problem, with the proof of what they return.

Both problems are ``min over u >= 0 of 1/2 u'Hu - g'u``: for the prox ``H = Q + beta I`` and ``g = Qz - lambda``,
for the coding problem ``H = D'D + (alpha + beta) I`` and ``g = D'x - d - lambda``. The second never forms Q^-1, so
that Theorem 1 can be checked by solving both. These are iterations, each with its record; for many codes of one dense
H, quickly and differentiably, there is :func:`detrame.prox.nonnegative_minimiser`.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import NamedTuple

import torch
from torch import Tensor

from detrame import operators
from detrame.errors import check_count, check_tolerance, unknown
from detrame.prox.checks import channel_values, check_floating, check_one_dtype
from detrame.prox.spectrum import check_metric
from detrame.prox.theorems import metric as dictionary_metric
from detrame.prox.theorems import preconditioner, reparametrise


@dataclass(frozen=True)
class Solution:
    """What a solver found.

    Attributes:
        code: the minimiser, of the shape of the input's codes.
        residuals: ``(iterations,)``, the KKT residual of the point each iteration looked at, relative to the largest
            code: where a sweep of coordinate descent ended, where a step of the other methods began.
        converged: whether the KKT residual of `code` itself is within the tolerance.
    """

    code: Tensor
    residuals: Tensor
    converged: bool


class _Problem(NamedTuple):
    """``min over u >= 0 of 1/2 u'Hu - g'u``; H in the layout of operators, g of the shape of u."""

    hessian: Tensor
    target: Tensor

    def per_channel(self, values: Tensor) -> Tensor:
        return operators.per_channel(values, self.hessian.ndim - 2)

    def gradient(self, u: Tensor) -> Tensor:
        return operators.apply(self.hessian, u) - self.target

    def residual(self, u: Tensor, gradient: Tensor) -> float:
        """How far u is from solving every coordinate given the others, relative to the largest code."""
        if not u.numel():
            return 0.0
        diagonal = self.per_channel(operators.diagonal(self.hessian).flatten())
        better = (u - gradient / diagonal).relu()
        largest = better.abs().amax().item()
        return ((better - u).abs().amax().item() / largest) if largest > 0 else u.abs().amax().item()


def _coordinate_descent(problem: _Problem) -> Iterator[tuple[Tensor, float]]:
    r"""Theorem 2's proof, sweeping :math:`u_i \leftarrow \mathrm{ReLU}((g_i - \sum_{l \ne i} H_{il} u_l) / H_{ii})`."""
    hessian = operators.blocks(problem.hessian)
    inputs = hessian.shape[1]
    target = problem.target.reshape(*problem.target.shape[:-1], len(hessian), inputs)
    u = torch.zeros_like(target)
    while True:
        for i in range(inputs):  # the same row of every block at once
            row = hessian[:, i]
            others = (u * row).sum(-1) - u[..., i] * row[:, i]
            u[..., i] = ((target[..., i] - others) / row[:, i]).relu()
        code = u.flatten(-2)
        yield code, problem.residual(code, problem.gradient(code))


def _forward_backward(problem: _Problem) -> Iterator[tuple[Tensor, float]]:
    r"""The appendix: :math:`u \leftarrow \mathrm{ReLU}(u - \Theta^{-1} (Hu - g))` with Theta >= H."""
    step = 1 / problem.per_channel(preconditioner(problem.hessian))
    u = torch.zeros_like(problem.target)
    while True:
        gradient = problem.gradient(u)
        residual = problem.residual(u, gradient)
        u = (u - step * gradient).relu()
        yield u, residual


def _fista(problem: _Problem) -> Iterator[tuple[Tensor, float]]:
    """Forward-backward with Nesterov's momentum, restarted for a sample when it points uphill (O'Donoghue, Candes)."""
    theta = problem.per_channel(preconditioner(problem.hessian))
    axes = tuple(range(1, problem.target.ndim)) if problem.hessian.ndim > 2 else (-1,)
    u = ahead = torch.zeros_like(problem.target)
    t = torch.ones_like(u.sum(axes, keepdim=True))
    while True:
        gradient = problem.gradient(ahead)
        residual = problem.residual(ahead, gradient)
        new = (ahead - gradient / theta).relu()
        uphill = (theta * (ahead - new) * (new - u)).sum(axes, keepdim=True) > 0
        t = torch.where(uphill, 1.0, t)
        following = (1 + (1 + 4 * t * t).sqrt()) / 2
        ahead = new + (t - 1) / following * (new - u)
        u, t = new, following
        yield u, residual


METHODS: dict[str, Callable[[_Problem], Iterator[tuple[Tensor, float]]]] = {
    "fista": _fista,
    "forward_backward": _forward_backward,
    "coordinate_descent": _coordinate_descent,
}


@torch.no_grad()
def prox(
    z: Tensor,
    metric: Tensor,
    sparsity: float | Tensor,
    ridge: float = 0.0,
    *,
    method: str = "fista",
    tolerance: float | None = None,
    max_iterations: int = 100_000,
) -> Solution:
    r"""The proximity operator of the elastic net on codes >= 0, in the metric Q.

    .. math:: \arg\min_{u \ge 0} \tfrac12 (u - z)' Q (u - z) + \lambda |u|_1 + \tfrac{\beta}{2} |u|^2

    Args:
        z: ``(..., C)``, or ``(N, C, *size)`` for a convolutional metric.
        metric: Q, symmetric and positive definite, ``(C, C / groups, *kernel)``.
        sparsity: lambda >= 0, one number or one per channel ``(C,)``.
        ridge: beta >= 0.
        method: "fista", "forward_backward", or "coordinate_descent" (not for a convolution); all reach the same code.
        tolerance: on the KKT residual, relative to the largest code; by default eps^(2/3) of the precision.
        max_iterations: after which to return unconverged.
    """
    check_floating("metric", metric)
    check_floating("input", z)
    operators.check_weight(metric, "metric")
    operators.check_input(z, metric)
    check_metric(metric, tuple(z.shape[2:]) if metric.ndim > 2 else ())
    target = operators.apply(metric, z) - _per_channel("sparsity", sparsity, metric)
    return _minimise(_Problem(_with_ridge(metric, ridge), target), method, tolerance, max_iterations)


@torch.no_grad()
def sparse_code(
    x: Tensor,
    dictionary: Tensor,
    sparsity: float | Tensor,
    damping: float,
    *,
    ridge: float = 0.0,
    linear: Tensor | None = None,
    method: str = "fista",
    tolerance: float | None = None,
    max_iterations: int = 100_000,
) -> Solution:
    r"""The code of `x` in a dictionary, solved as it stands, without Theorem 1.

    .. math::
        \arg\min_{a \ge 0} \tfrac12 |x - Da|^2 + \lambda |a|_1 + \tfrac{\alpha + \beta}{2} |a|^2 + d'a

    Args:
        x: ``(..., m)``.
        dictionary: D, ``(m, k)``.
        sparsity: lambda >= 0, one number or one per atom ``(k,)``.
        damping: alpha >= 0; D'D + alpha I must be positive definite.
        ridge: beta >= 0.
        linear: d, ``(k,)``; zero unless given.
        method, tolerance, max_iterations: as in :func:`prox`.
    """
    check_floating("input", x)
    check_floating("dictionary", dictionary)
    if dictionary.ndim != 2 or x.ndim == 0 or x.shape[-1] != dictionary.shape[0]:
        raise ValueError(f"a dictionary {tuple(dictionary.shape)} cannot code an input of shape {tuple(x.shape)}")
    metric = dictionary_metric(dictionary, damping)
    check_metric(metric)
    check_one_dtype("input", x, "dictionary", dictionary)
    target = x @ dictionary - _per_channel("sparsity", sparsity, metric)
    if linear is not None:
        check_floating("linear term", linear)
        check_one_dtype("linear term", linear, "dictionary", dictionary)
        if linear.shape != metric.shape[:1]:
            raise ValueError(f"the linear term needs shape ({metric.shape[0]},), got {tuple(linear.shape)}")
        target = target - linear
    return _minimise(_Problem(_with_ridge(metric, ridge), target), method, tolerance, max_iterations)


def kkt_residual(code: Tensor, z: Tensor, metric: Tensor, sparsity: float | Tensor, ridge: float = 0.0) -> Tensor:
    r"""How far a code is from the optimality condition of the prox, which Theorem 2 writes as a fixed point.

    .. math:: |u - \mathrm{ReLU}(h \odot z + \tilde W (u - z) - b)|_\infty

    One number per sample: ``(...)`` for codes ``(..., C)``, ``(N,)`` for codes ``(N, C, *size)``; 0 only at the prox.
    """
    for name, tensor in (("code", code), ("input", z), ("metric", metric)):
        check_floating(name, tensor)
    operators.check_weight(metric, "metric")
    operators.check_input(z, metric)
    check_one_dtype("code", code, "input", z)
    if code.shape != z.shape:
        raise ValueError(f"the code {tuple(code.shape)} and the input {tuple(z.shape)} must have one shape")
    dim = metric.ndim - 2
    coupling, gain, threshold = reparametrise(metric, sparsity, ridge, size=tuple(z.shape[2:]) if dim else ())
    h, b = operators.per_channel(gain, dim), operators.per_channel(threshold, dim)
    fixed = (h * z + operators.apply(coupling, code - z) - b).relu()
    return (code - fixed).abs().flatten(1).amax(1) if dim else (code - fixed).abs().amax(-1)


def _with_ridge(metric: Tensor, ridge: float) -> Tensor:
    return operators.add_diagonal(metric, channel_values("ridge", ridge, metric))


def _per_channel(name: str, value: float | Tensor, metric: Tensor) -> Tensor:
    return operators.per_channel(channel_values(name, value, metric), metric.ndim - 2)


def _minimise(problem: _Problem, method: str, tolerance: float | None, max_iterations: int) -> Solution:
    if method not in METHODS:
        raise unknown("method", method, METHODS)
    if method == "coordinate_descent" and problem.hessian.ndim > 2:
        raise ValueError("coordinate_descent needs a dense or block-diagonal metric, take fista for a convolution")
    check_count("max_iterations", max_iterations)
    check_tolerance(tolerance)
    if tolerance is None:
        tolerance = torch.finfo(problem.target.dtype).eps ** (2 / 3)
    residuals: list[float] = []
    converged = False
    for code, residual in islice(METHODS[method](problem), max_iterations):
        residuals.append(residual)
        # The residual is the iteration's starting point's: what is returned must pass the test itself.
        converged = residual <= tolerance and problem.residual(code, problem.gradient(code)) <= tolerance
        if converged:
            break
    return Solution(code, torch.tensor(residuals, dtype=torch.float64), converged)
