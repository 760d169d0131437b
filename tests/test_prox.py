"""Theorem 1 and Theorem 2 against independent oracles, and what the library says when they do not apply."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import nnls
from sklearn.linear_model import ElasticNet
from torch import Tensor

from detrame import operators, prox
from detrame.functional import q_metric_relu
from tests.conftest import dense_matrix

Problem = tuple[Tensor, Tensor, Tensor, float, float, float]

# Random problems: tall, square and wide dictionaries, the penalties over decades, the linear term d not zero.
decades = st.floats(-3, 1).map(lambda exponent: 10.0**exponent)


@st.composite
def problems(draw: st.DrawFn) -> Problem:
    """x, dictionary, linear term, sparsity, damping, ridge."""
    m, k = draw(st.sampled_from([(24, 6), (8, 8), (6, 16), (1, 3)]))
    generator = torch.Generator().manual_seed(draw(st.integers(0, 10_000)))
    dictionary = torch.randn(m, k, generator=generator, dtype=torch.float64) / m**0.5
    x = torch.randn(4, m, generator=generator, dtype=torch.float64)
    linear = torch.randn(k, generator=generator, dtype=torch.float64) / 10
    sparsity, damping = draw(decades), draw(decades)
    ridge = draw(st.one_of(st.just(0.0), decades))
    return x, dictionary, linear, min(sparsity, 1.0), damping, ridge


def by_nnls(hessian: Tensor, target: Tensor) -> Tensor:
    """min over u >= 0 of 1/2 u'Hu - g'u, one sample at a time, by SciPy's active-set solver."""
    factor = torch.linalg.cholesky(hessian)
    right = torch.linalg.solve_triangular(factor, target.T, upper=False).T
    return torch.tensor(np.stack([nnls(factor.T.numpy(), row.numpy())[0] for row in right]))


def assert_same_code(code: Tensor, oracle: Tensor) -> None:
    assert (code - oracle).abs().max() <= 1e-8 * oracle.abs().max() + 1e-14


@given(problems())
def test_theorem_1(problem: Problem) -> None:
    """The code of x is the prox in the metric Q of Fx - c; both agree with the oracle for the problem itself."""
    x, dictionary, linear, sparsity, damping, ridge = problem
    k = dictionary.shape[1]
    hessian = dictionary.T @ dictionary + (damping + ridge) * torch.eye(k, dtype=torch.float64)
    oracle = by_nnls(hessian, x @ dictionary - linear - sparsity)
    z = x @ prox.dual_frame(dictionary, damping).T - prox.shift(dictionary, damping, linear)
    through_metric = prox.prox(z, prox.metric(dictionary, damping), sparsity, ridge, tolerance=1e-13)
    direct = prox.sparse_code(x, dictionary, sparsity, damping, ridge=ridge, linear=linear, tolerance=1e-13)
    assert_same_code(through_metric.code, oracle)
    assert_same_code(direct.code, oracle)


@given(problems())
def test_theorem_2(problem: Problem) -> None:
    """The oracle's prox is the fixed point of the iteration, whether the iteration gets there or not."""
    x, dictionary, _, sparsity, damping, ridge = problem
    metric = prox.metric(dictionary, damping)
    z = x @ prox.dual_frame(dictionary, damping).T
    hessian = metric + ridge * torch.eye(len(metric), dtype=torch.float64)
    oracle = by_nnls(hessian, z @ metric - sparsity)
    coupling, gain, threshold = prox.reparametrise(metric, sparsity, ridge)
    assert (coupling.diagonal() == 0).all()
    fixed = (gain * z + (oracle - z) @ coupling.T - threshold).relu()
    assert_same_code(fixed, oracle)
    assert (prox.kkt_residual(oracle, z, metric, sparsity, ridge) <= 1e-8 * oracle.max() + 1e-14).all()
    if oracle.max() > 0:
        assert (prox.kkt_residual(oracle + 0.1 * oracle.max(), z, metric, sparsity, ridge) > 1e-6 * oracle.max()).all()
    report = prox.convergence(metric, ridge)
    if report.rate < 0.95:
        assert_same_code(q_metric_relu(z, coupling, gain, threshold, iterations=1000), oracle)
    theta = prox.preconditioner(metric)
    always = prox.convergence(metric, ridge, theta=theta)
    assert always.holds
    if always.rate < 0.95:
        preconditioned = prox.reparametrise(metric, sparsity, ridge, theta=theta)
        assert_same_code(q_metric_relu(z, *preconditioned, iterations=1000), oracle)


def test_gradients_flow_through_the_reparametrisation() -> None:
    dictionary, sparsity = torch.randn(8, 3, dtype=torch.float64), torch.rand(3, dtype=torch.float64)

    def triple(dictionary: Tensor, sparsity: Tensor) -> tuple[Tensor, ...]:
        return tuple(prox.reparametrise(prox.metric(dictionary, 0.1), sparsity, 0.2))

    assert torch.autograd.gradcheck(triple, (dictionary.requires_grad_(), sparsity.requires_grad_()))


@pytest.mark.parametrize("shape", [(30, 10), (10, 10), (10, 30)])
@pytest.mark.parametrize("ridge", [0.0, 0.2])
def test_codes_agree_with_scikit_learn(shape: tuple[int, int], ridge: float) -> None:
    dictionary = torch.randn(shape, dtype=torch.float64) / shape[0] ** 0.5
    x = torch.randn(3, shape[0], dtype=torch.float64)
    sparsity, damping = 0.05, 0.1
    # scikit-learn minimises 1/(2m)|x - Da|^2 + a*r|a|_1 + a(1-r)/2|a|^2
    scale, l2 = 1 / shape[0], damping + ridge
    model = ElasticNet(
        alpha=(sparsity + l2) * scale,
        l1_ratio=sparsity / (sparsity + l2),
        positive=True,
        fit_intercept=False,
        tol=1e-14,
        max_iter=200_000,
    )
    oracle = torch.tensor(np.stack([model.fit(dictionary.numpy(), row.numpy()).coef_ for row in x]))
    solution = prox.sparse_code(x, dictionary, sparsity, damping, ridge=ridge, tolerance=1e-13)
    assert solution.converged
    assert_same_code(solution.code, oracle)


@pytest.mark.parametrize("method", prox.METHODS)
def test_every_method_reaches_the_same_code_and_proves_it(method: str) -> None:
    dictionary = torch.randn(10, 20, dtype=torch.float64) / 3
    x = torch.randn(2, 3, 10, dtype=torch.float64)
    solution = prox.sparse_code(x, dictionary, 0.1, 0.1, method=method, tolerance=1e-12)
    assert solution.converged
    assert solution.code.shape == (2, 3, 20)
    assert solution.residuals[-1] <= 1e-12 < solution.residuals[0]
    hessian = dictionary.T @ dictionary + 0.1 * torch.eye(20, dtype=torch.float64)
    oracle = by_nnls(hessian, (x @ dictionary - 0.1).reshape(6, 20)).reshape(2, 3, 20)
    assert_same_code(solution.code, oracle)


@pytest.mark.parametrize("method", prox.METHODS)
def test_a_solver_that_runs_out_of_iterations_says_so(method: str) -> None:
    dictionary = torch.randn(10, 20, dtype=torch.float64)
    solution = prox.sparse_code(torch.randn(3, 10).double(), dictionary, 0.1, 0.1, method=method, max_iterations=2)
    assert not solution.converged
    assert solution.residuals.shape == (2,)


@pytest.mark.parametrize("method", prox.METHODS)
def test_single_precision_converges_by_default(method: str) -> None:
    dictionary = torch.randn(20, 10)
    solution = prox.sparse_code(torch.randn(5, 20), dictionary, 0.5, 0.1, method=method)
    assert solution.converged
    assert solution.residuals[-1] <= torch.finfo(torch.float32).eps ** (2 / 3)
    assert solution.code.dtype == torch.float32


@pytest.mark.parametrize("method", prox.METHODS)
def test_a_code_said_to_have_converged_has_whatever_its_size(method: str) -> None:
    """Also where a step leads away from the solution, as one from a point just within the tolerance may."""
    z, metric = torch.randn(4, 12, dtype=torch.float64), prox.metric(torch.randn(8, 12, dtype=torch.float64), 0.01)
    steps = prox.prox(z, metric, 0.1, method=method, tolerance=0, max_iterations=30)
    for tolerance in steps.residuals.tolist():
        for factor in (1e-6, 1.0, 1e6):
            solution = prox.prox(factor * z, metric, factor * 0.1, method=method, tolerance=tolerance)
            gradient = (solution.code - factor * z) @ metric + factor * 0.1
            better = (solution.code - gradient / metric.diagonal()).relu()
            assert solution.converged
            assert (better - solution.code).abs().max() <= tolerance * better.max() * (1 + 1e-9)


def test_fista_is_accelerated_and_restarts_a_sample_as_a_whole() -> None:
    metric, z = prox.metric(torch.randn(30, 20, dtype=torch.float64), 1e-3), torch.randn(4, 20, dtype=torch.float64)
    fista, plain = (prox.prox(z, metric, 0.1, method=m, tolerance=1e-12) for m in ("fista", "forward_backward"))
    assert len(fista.residuals) < 0.3 * len(plain.residuals)
    same = prox.prox(z[..., None], metric[..., None], 0.1, tolerance=1e-12)  # a convolution on one value
    torch.testing.assert_close(same.residuals, fista.residuals, atol=1e-9, rtol=0)


def test_exact_solutions_keep_no_record_for_a_gradient() -> None:
    x, dictionary = torch.randn(3, 4), torch.randn(4, 4, requires_grad=True)
    assert not prox.sparse_code(x, dictionary, 0.1, 0.1).code.requires_grad
    assert not prox.prox(x, prox.metric(dictionary, 0.1), 0.1).code.requires_grad


def test_nothing_to_code() -> None:
    metric = torch.eye(3, dtype=torch.float64)
    for method in prox.METHODS:
        assert prox.prox(torch.empty(0, 3, dtype=torch.float64), metric, 0.1, method=method).code.shape == (0, 3)
    zero = prox.prox(-torch.ones(2, 3, dtype=torch.float64), metric, 0.1)
    assert zero.converged
    assert (zero.code == 0).all()


def test_one_sparsity_a_channel() -> None:
    metric, z = torch.eye(3, dtype=torch.float64), torch.tensor([[1.0, 1.0, 1.0]], dtype=torch.float64)
    code = prox.prox(z, metric, torch.tensor([0.0, 0.25, 2.0])).code
    torch.testing.assert_close(code, torch.tensor([[1.0, 0.75, 0.0]], dtype=torch.float64))


def random_metric(shape: tuple[int, ...], strength: float) -> Tensor:
    metric = strength * torch.randn(shape, dtype=torch.float64)
    metric = metric + operators.transpose(metric)
    operators.diagonal(metric).add_(1)
    return metric


CONVOLUTIONS = [((4, 4, 3), (9,)), ((3, 3, 3, 3), (5, 6)), ((4, 2, 3, 3), (4, 4)), ((2, 2, 3, 1, 3), (3, 3, 4))]


@pytest.mark.parametrize(("shape", "size"), CONVOLUTIONS)
@pytest.mark.parametrize("method", ["fista", "forward_backward"])
def test_a_convolutional_prox_is_that_of_its_matrix(shape: tuple[int, ...], size: tuple[int, ...], method: str) -> None:
    metric = random_metric(shape, 0.03)
    z = torch.randn(2, shape[0], *size, dtype=torch.float64)
    matrix = dense_matrix(metric, size)
    hessian = matrix + 0.1 * torch.eye(len(matrix), dtype=torch.float64)
    oracle = by_nnls(hessian, z.reshape(2, -1) @ matrix - 0.2).reshape(z.shape)
    solution = prox.prox(z, metric, 0.2, 0.1, method=method, tolerance=1e-13)
    assert solution.converged
    assert_same_code(solution.code, oracle)
    assert prox.kkt_residual(solution.code, z, metric, 0.2, 0.1).shape == (2,)
    triple = prox.reparametrise(metric, 0.2, 0.1, size=size)
    assert prox.convergence(metric, 0.1, size=size).holds
    assert_same_code(q_metric_relu(z, *triple, iterations=500), oracle)


def test_a_block_diagonal_prox_is_that_of_its_blocks() -> None:
    blocks = [prox.metric(torch.randn(9, 3, dtype=torch.float64), 0.1) for _ in range(2)]
    z = torch.randn(5, 6, dtype=torch.float64)
    for method in prox.METHODS:
        code = prox.prox(z, torch.cat(blocks), 0.3, 0.1, method=method, tolerance=1e-13).code
        for block, columns in zip(blocks, (slice(0, 3), slice(3, 6)), strict=True):
            assert_same_code(code[:, columns], prox.prox(z[:, columns], block, 0.3, 0.1, tolerance=1e-13).code)


def test_theorem_1_takes_a_batch_of_dictionaries() -> None:
    dictionaries, linear = torch.randn(5, 7, 4, dtype=torch.float64), torch.randn(5, 4, dtype=torch.float64)
    for i, one in enumerate(dictionaries):
        torch.testing.assert_close(prox.metric(dictionaries, 0.1)[i], prox.metric(one, 0.1))
        torch.testing.assert_close(prox.dual_frame(dictionaries, 0.1)[i], prox.dual_frame(one, 0.1))
        torch.testing.assert_close(prox.shift(dictionaries, 0.1, linear)[i], prox.shift(one, 0.1, linear[i]))


@pytest.mark.parametrize(
    ("change", "error", "complaint"),
    [
        ({"dictionary": torch.full((4, 3), torch.nan)}, ValueError, "dictionary must be finite"),
        ({"dictionary": torch.full((4, 3), torch.inf)}, ValueError, "dictionary must be finite"),
        ({"dictionary": torch.ones(4, 3, dtype=torch.int64)}, TypeError, "int64"),
        ({"dictionary": torch.ones(4)}, ValueError, "cannot code"),
        ({"x": torch.tensor(1.0)}, ValueError, r"cannot code an input of shape \(\)"),
        ({"dictionary": torch.ones(5, 3)}, ValueError, r"\(5, 3\) cannot code an input of shape \(2, 4\)"),
        ({"x": torch.full((2, 4), torch.nan)}, ValueError, "input must be finite"),
        ({"sparsity": -0.1}, ValueError, "sparsity must be finite and >= 0, got -0.1"),
        ({"sparsity": float("nan")}, ValueError, "got nan"),
        ({"sparsity": float("inf")}, ValueError, "sparsity must be finite and >= 0, got inf"),
        ({"sparsity": "x"}, TypeError, "sparsity must be one number or 3, one a channel, got 'x'"),
        ({"ridge": None}, TypeError, "ridge must be one number or 3, one a channel, got None"),
        ({"damping": -1.0}, ValueError, "damping must be finite and >= 0, got -1.0"),
        ({"damping": float("inf")}, ValueError, "damping must be finite and >= 0, got inf"),
        ({"damping": None}, TypeError, "damping must be a number, got None"),
        ({"ridge": -1.0}, ValueError, "ridge must be finite and >= 0, got -1.0"),
        ({"linear": torch.full((3,), torch.nan)}, ValueError, "linear term must be finite"),
        ({"linear": torch.ones(3, 1)}, ValueError, r"linear term needs shape \(3,\), got \(3, 1\)"),
        ({"sparsity": torch.ones(4)}, ValueError, r"sparsity must be one number or 3, one a channel, got shape \(4,\)"),
        ({"ridge": torch.ones(3, 1)}, ValueError, "ridge must be one number"),
        ({"x": torch.ones(2, 4, dtype=torch.float64)}, TypeError, "the input is torch.float64 and the dictionary"),
        (
            {"linear": torch.ones(3, dtype=torch.float64)},
            TypeError,
            "the linear term is torch.float64 and the dictionary",
        ),
        ({"x": torch.ones(2, 4, dtype=torch.int64)}, TypeError, "input must be a real floating-point tensor"),
        ({"tolerance": -1.0}, ValueError, "tolerance must be a number >= 0, got -1.0"),
        ({"tolerance": float("nan")}, ValueError, "got nan"),
        ({"max_iterations": 2.5}, TypeError, "max_iterations must be an int, got 2.5"),
        ({"method": "fitsa"}, ValueError, "unknown method 'fitsa': did you mean 'fista'"),
        ({"max_iterations": 0}, ValueError, "max_iterations must be at least 1, got 0"),
        ({"dictionary": torch.zeros(4, 3), "damping": 0.0}, ValueError, "smallest eigenvalue is 0"),
    ],
)
def test_bad_coding_problems(change: dict[str, object], error: type[Exception], complaint: str) -> None:
    arguments: dict[str, object] = {
        "x": torch.ones(2, 4),
        "dictionary": torch.ones(4, 3),
        "sparsity": 0.1,
        "damping": 0.1,
    }
    with pytest.raises(error, match=complaint):
        prox.sparse_code(**(arguments | change))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("metric", "error", "complaint"),
    [
        (
            torch.tensor([[1.0, 0.5], [0.4, 1.0]]),
            ValueError,
            "must be symmetric, but differs from its transpose by up to 0.1",
        ),
        (torch.tensor([[1.0, 2.0], [2.0, 1.0]]), ValueError, "positive definite, but its smallest eigenvalue is -1"),
        (torch.full((2, 2), torch.nan), ValueError, "metric must be finite"),
        (torch.eye(2, dtype=torch.int64), TypeError, "int64"),
        (torch.eye(3), ValueError, "3 channels on the last axis"),
        (torch.ones(2), ValueError, "must have shape"),
    ],
)
def test_bad_metrics(metric: Tensor, error: type[Exception], complaint: str) -> None:
    with pytest.raises(error, match=complaint):
        prox.prox(torch.ones(1, 2), metric, 0.1)


@pytest.mark.parametrize("size", [1e-9, 1.0, 1e9])
def test_a_metric_is_symmetric_up_to_rounding(size: float) -> None:
    metric = size * torch.tensor([[1.0, 1e-14], [0.0, 1.0]], dtype=torch.float64)
    assert prox.convergence(metric).holds
    metric[0, 1] = size * 1e-7
    with pytest.raises(ValueError, match="metric must be symmetric"):
        prox.convergence(metric)


def test_bad_convolutional_metrics() -> None:
    uneven = torch.zeros(1, 1, 3)
    uneven[0, 0] = torch.tensor([0.1, 1.0, 0.2])
    with pytest.raises(ValueError, match="symmetric"):
        prox.prox(torch.ones(1, 1, 8), uneven, 0.1)
    indefinite = torch.tensor([[[0.9, 1.0, 0.9]]])
    with pytest.raises(ValueError, match="positive definite"):
        prox.prox(torch.ones(1, 1, 8), indefinite, 0.1)
    with pytest.raises(ValueError, match="positive definite"):
        prox.kkt_residual(torch.ones(1, 1, 8), torch.ones(1, 1, 8), indefinite, 0.1)
    with pytest.raises(ValueError, match="coordinate_descent needs a dense or block-diagonal metric"):
        prox.prox(torch.ones(1, 1, 8), torch.tensor([[[0.1, 1.0, 0.1]]]), 0.1, method="coordinate_descent")
    with pytest.raises(ValueError, match=r"needs a size of 1 axes, got \(\)"):
        prox.convergence(torch.tensor([[[0.1, 1.0, 0.1]]]))
    with pytest.raises(ValueError, match=r"needs a size of 1 axes, got \(0,\)"):
        prox.convergence(torch.tensor([[[0.1, 1.0, 0.1]]]), size=(0,))
    with pytest.raises(ValueError, match="needs a size of 1 axes, got 3"):
        prox.convergence(torch.tensor([[[0.1, 1.0, 0.1]]]), size=3)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"metric must have shape \(C, C / groups, \*kernel\)"):
        prox.preconditioner(torch.ones(3))


ARRAY: Any = np.eye(2)
EYE = torch.eye(2)


@pytest.mark.parametrize(
    "call",
    [
        lambda: prox.metric(ARRAY, 0.1),
        lambda: prox.dual_frame(ARRAY, 0.1),
        lambda: prox.shift(ARRAY, 0.1, EYE[0]),
        lambda: prox.shift(EYE, 0.1, ARRAY[0]),
        lambda: prox.reparametrise(ARRAY, 0.1),
        lambda: prox.preconditioner(ARRAY),
        lambda: prox.convergence(ARRAY),
        lambda: prox.extreme_eigenvalues(ARRAY),
        lambda: prox.recover(EYE, EYE[0], ARRAY[0]),
        lambda: prox.prox(ARRAY, EYE, 0.1),
        lambda: prox.prox(EYE, ARRAY, 0.1),
        lambda: prox.sparse_code(ARRAY, EYE, 0.1, 0.1),
        lambda: prox.sparse_code(EYE, ARRAY, 0.1, 0.1),
        lambda: prox.sparse_code(EYE, EYE, 0.1, 0.1, linear=ARRAY[0]),
        lambda: prox.kkt_residual(ARRAY, EYE, EYE, 0.1),
        lambda: prox.nonnegative_minimiser(EYE, ARRAY),
    ],
)
def test_arrays_are_no_tensors(call: Callable[[], object]) -> None:
    with pytest.raises(TypeError, match=r"^[a-z ]* must be a .*tensor, got ndarray$"):
        call()


def test_a_singular_dictionary_without_damping_is_refused() -> None:
    with pytest.raises(ValueError, match="raise the damping"):
        prox.dual_frame(torch.stack([torch.eye(3, 2), torch.zeros(3, 2)]), 0.0)
    with pytest.raises(ValueError, match=r"dictionary must have shape \(..., m, k\)"):
        prox.metric(torch.ones(3), 0.1)
    with pytest.raises(ValueError, match=r"must have shape \(..., m, k\), got \(3, 0\)"):
        prox.metric(torch.ones(3, 0), 0.1)
    with pytest.raises(ValueError, match=r"linear term needs 2 entries, got shape \(3,\)"):
        prox.shift(torch.ones(3, 2), 0.1, torch.ones(3))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_theorem_1_in_low_precision(dtype: torch.dtype) -> None:
    dictionary, linear = torch.randn(6, 4).to(dtype), torch.randn(4).to(dtype)
    frame, shift = prox.dual_frame(dictionary, 0.5), prox.shift(dictionary, 0.5, linear)
    assert frame.dtype == shift.dtype == dtype
    torch.testing.assert_close(frame.double(), prox.dual_frame(dictionary.double(), 0.5), rtol=0.05, atol=0.05)


def test_parameters_of_another_dtype_follow_the_metric() -> None:
    triple = prox.reparametrise(torch.eye(2), torch.ones(2, dtype=torch.float64), theta=torch.ones(2).double())
    assert {tensor.dtype for tensor in triple} == {torch.float32}
    assert prox.reparametrise(torch.eye(2, dtype=torch.float64), 1e39).threshold[0] == 1e39


def test_kkt_residual_wants_a_code_of_the_input_s_shape() -> None:
    with pytest.raises(ValueError, match="must have one shape"):
        prox.kkt_residual(torch.ones(1, 2), torch.ones(2, 2), torch.eye(2), 0.1)
    with pytest.raises(ValueError, match="3 channels on the last axis"):
        prox.kkt_residual(torch.ones(1, 2), torch.ones(1, 2), torch.eye(3), 0.1)
    with pytest.raises(
        TypeError, match=r"the code is torch\.float64 and the input torch\.float32: convert one of them"
    ):
        prox.kkt_residual(torch.ones(1, 2).double(), torch.ones(1, 2), torch.eye(2), 0.1)


def test_the_linear_term_has_the_dtype_of_the_dictionary() -> None:
    with pytest.raises(TypeError, match=r"the linear term is torch\.float64 and the dictionary torch\.float32"):
        prox.shift(torch.ones(4, 3), 0.1, torch.ones(3).double())
