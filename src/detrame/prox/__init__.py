"""The paper's two theorems, made checkable: from a dictionary to a prox in a metric, and from there to an iteration.

Throughout, a metric Q (and a coupling) has the layout of :mod:`detrame.operators`: ``(k, k)`` dense,
``(k, k / groups)`` block-diagonal, ``(C, C / groups, *kernel)`` convolutional with zero padding at a given size.
"""

from detrame.prox.active_set import nonnegative_minimiser
from detrame.prox.convergence import Convergence, convergence
from detrame.prox.solvers import METHODS, Solution, kkt_residual, prox, sparse_code
from detrame.prox.spectrum import extreme_eigenvalues
from detrame.prox.theorems import (
    Recovery,
    Reparametrisation,
    dual_frame,
    metric,
    preconditioner,
    recover,
    reparametrise,
    shift,
)

__all__ = [
    "METHODS",
    "Convergence",
    "Recovery",
    "Reparametrisation",
    "Solution",
    "convergence",
    "dual_frame",
    "extreme_eigenvalues",
    "kkt_residual",
    "metric",
    "nonnegative_minimiser",
    "preconditioner",
    "prox",
    "recover",
    "reparametrise",
    "shift",
    "sparse_code",
]
