"""When does the iteration of Theorem 2 converge?"""

from dataclasses import dataclass

from torch import Tensor

from detrame import operators
from detrame.prox.checks import channel_values
from detrame.prox.spectrum import check_metric, ends, is_small


@dataclass(frozen=True)
class Convergence:
    """Whether the iteration converges for every input. Print it to get a sentence that says so.

    Attributes:
        margin: the smallest eigenvalue of 2 Theta + beta I - Q; the iteration converges for every Z iff it is > 0.
        rate: each iteration shrinks the error by at least this factor (in the norm of Theta + beta I).
        exact: whether both are exact, or estimates that may be slightly optimistic (:func:`extreme_eigenvalues`).
    """

    margin: float
    rate: float
    exact: bool = True

    @property
    def holds(self) -> bool:
        """True if the iteration converges to the prox for every input, as far as the margin is `exact`."""
        return self.margin > 0

    def __str__(self) -> str:
        known = "is" if self.exact else "is, by an estimate that may be too large,"
        condition = f"the smallest eigenvalue of 2 Theta + beta I - Q {known} {self.margin:.4g}"
        if self.holds:
            return f"converges for every input: {condition}, above 0; an iteration shrinks the error to {self.rate:.4g}"
        return f"diverges for some inputs: {condition}, not above 0; take theta=preconditioner(metric), which converges"


def convergence(
    metric: Tensor, ridge: float = 0.0, *, theta: Tensor | None = None, size: tuple[int, ...] = ()
) -> Convergence:
    r"""The exact condition under which :func:`detrame.functional.q_metric_relu` converges to the prox for every Z.

    The iteration is projected gradient descent on :math:`\frac12 u'(Q + \beta I) u - \dots` in the diagonal metric
    :math:`\Theta + \beta I`. It converges for every Z if and only if :math:`2 \Theta + \beta I - Q` is positive
    definite. For the paper's own choice, :math:`\Theta = \mathrm{diag}(Q)`, a positive definite Q is not enough.

    Args:
        metric: Q, ``(C, C / groups, *kernel)``.
        ridge: beta >= 0.
        theta: ``(C,)``; by default the diagonal of Q. The step gamma of the appendix is absorbed: only
            Theta / gamma matters.
        size: of the input, for a convolutional metric; on more than 2048 values the eigenvalues are estimates
            (:func:`extreme_eigenvalues`).
    """
    check_metric(metric, size)
    metric = metric.detach().double()
    beta = channel_values("ridge", ridge, metric)
    weight = operators.diagonal(metric).flatten() if theta is None else theta
    theta = channel_values("theta", weight, metric, above_zero=True)
    margin, _ = ends(operators.add_diagonal(-metric, 2 * theta + beta), size)
    # The same question in the norm of the iteration: eigenvalues of M^-1/2 (Q + beta I) M^-1/2, M = Theta + beta I.
    scale = (theta + beta).rsqrt()
    low, high = ends(operators.scale(operators.add_diagonal(metric, beta), scale, scale), size)
    return Convergence(margin=margin, rate=max(abs(1 - low), abs(1 - high)), exact=is_small(metric, size))
