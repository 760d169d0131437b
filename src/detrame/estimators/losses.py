"""The losses a linear classifier on sparse codes can have, as the paper lists them: ``g(x, y, D, a, C)``."""

from collections.abc import Callable
from typing import Any

from torch import Tensor
from torch.nn import functional as F

Loss = Callable[[Tensor, Tensor], Tensor]


def cross_entropy(scores: Tensor, labels: Tensor) -> Tensor:
    r""":math:`-\log \mathrm{softmax}(s)_y`, one number per sample, of scores ``(N, K)`` and labels ``(N,)``."""
    return F.cross_entropy(scores, labels, reduction="none")


def least_squares(scores: Tensor, labels: Tensor) -> Tensor:
    r""":math:`\frac12 |s - t|^2`, where t is 1 at the label and -1 elsewhere; shapes as in :func:`cross_entropy`."""
    return (scores - _signs(scores, labels)).square().sum(1) / 2


def hinge(scores: Tensor, labels: Tensor) -> Tensor:
    r""":math:`\sum_k \max(0, 1 - t_k s_k)`, each class against the rest; t and shapes as in :func:`least_squares`."""
    return (1 - _signs(scores, labels) * scores).relu().sum(1)


LOSSES: dict[str, Loss] = {"cross_entropy": cross_entropy, "least_squares": least_squares, "hinge": hinge}


def is_probabilistic(estimator: Any) -> bool:
    """Whether the scores are logits; if not, an AttributeError that says why, as `available_if` wants it."""
    if estimator.loss != "cross_entropy":
        raise AttributeError(f"probabilities need loss='cross_entropy', it is {estimator.loss!r}")
    return True


def _signs(scores: Tensor, labels: Tensor) -> Tensor:
    return 2 * F.one_hot(labels, scores.shape[1]).to(scores.dtype) - 1
