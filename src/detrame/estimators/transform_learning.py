"""Transform learning: the analysis half of dictionary learning, by an alternation whose two steps are exact."""

import numpy as np
from scipy.linalg import solve_triangular


def soft_threshold(z: np.ndarray, sparsity: float) -> np.ndarray:
    r"""The code :math:`\arg\min_a \frac12 |a - z|^2 + \lambda |a|_1`, entry by entry."""
    return np.sign(z) * np.maximum(np.abs(z) - sparsity, 0)


def learn_transform(
    x: np.ndarray, start: np.ndarray, sparsity: float, conditioning: float, *, max_iter: int, tol: float
) -> tuple[np.ndarray, list[float]]:
    r"""Alternate between codes and transform, each exact given the other, until the objective hardly falls.

    .. math:: \min_{W, (a_j)} \tfrac1N \sum_j \bigl(\tfrac12 |a_j - W x_j|^2 + \lambda |a_j|_1\bigr)
              + \mu \bigl(\tfrac12 |W|_F^2 - \sum_i \log \sigma_i(W H^{1/2})\bigr), \quad H = X'X / N + \mu I

    Without the logarithms W = 0 would be best; with H inside them W may have any number of rows. For k >= m they differ
    from :math:`\sum_i \log \sigma_i(W)`, the term of Ravishankar and Bresler, by a constant only.

    Args:
        x: ``(N, m)``, a sample a row.
        start: the first W, ``(k, m)``.
        sparsity: lambda >= 0.
        conditioning: mu > 0.
        max_iter: the most rounds.
        tol: stop when a round takes less than this share off the objective.

    Returns:
        W, and the objective after each round, which never rises.
    """
    # With H = C C' and V = W C, the transform's step is min 1/2 |V|^2 - <V, M> - mu sum log sigma_i(V) for
    # M = (A'X / N) C^-T: V has the singular vectors of M, and singular values v with v^2 - s v - mu = 0.
    root = np.linalg.cholesky(x.T @ x / len(x) + conditioning * np.eye(x.shape[1]))
    transform, history = start, list[float]()
    for _ in range(max_iter):
        codes = soft_threshold(x @ transform.T, sparsity)
        target = solve_triangular(root, x.T @ codes / len(x), lower=True).T
        left, values, right = np.linalg.svd(target, full_matrices=False)
        values = (values + np.sqrt(values**2 + 4 * conditioning)) / 2
        transform = solve_triangular(root, ((left * values) @ right).T, lower=True, trans="T").T
        fit = np.square(codes - x @ transform.T).sum() / 2 + sparsity * np.abs(codes).sum()
        kept = np.square(transform).sum() / 2 - np.log(values).sum()
        history.append(float(fit / len(x) + conditioning * kept))
        if len(history) > 1 and history[-2] - history[-1] <= tol * abs(history[-2]):
            break
    return transform, history
