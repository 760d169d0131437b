from functools import partial

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from detrame import operators, prox
from detrame.functional import q_metric_relu
from detrame.prox import spectrum
from tests.conftest import dense_matrix
from tests.test_prox import CONVOLUTIONS, random_metric


def test_a_case_that_diverges_and_the_library_says_so() -> None:
    """A wide dictionary: Q is positive definite, the paper's iteration runs away, the preconditioned one converges."""
    dictionary = torch.randn(16, 64, dtype=torch.float64) / 4
    metric, z = prox.metric(dictionary, 0.1), torch.randn(8, 64, dtype=torch.float64)
    report = prox.convergence(metric, 0.1)
    assert not report.holds
    assert report.rate > 1
    assert "diverges for some inputs" in str(report)
    assert "preconditioner" in str(report)
    run_away = q_metric_relu(z, *prox.reparametrise(metric, 0.1, 0.1), iterations=200)
    exact = prox.prox(z, metric, 0.1, 0.1, tolerance=1e-12).code
    assert (run_away - exact).abs().max() > exact.max()
    theta = prox.preconditioner(metric)
    cured = prox.convergence(metric, 0.1, theta=theta)
    assert cured.holds
    assert "converges for every input" in str(cured)
    code = q_metric_relu(z, *prox.reparametrise(metric, 0.1, 0.1, theta=theta), iterations=5000)
    assert (code - exact).abs().max() <= 1e-8 * exact.max()


@given(st.integers(0, 10_000), st.sampled_from([(12, 4), (6, 6), (4, 8)]), st.floats(0, 1))
def test_the_condition_is_exact(seed: int, shape: tuple[int, int], ridge: float) -> None:
    """It holds just when the iteration is a contraction while all codes are active, at the stated rate."""
    generator = torch.Generator().manual_seed(seed)
    dictionary = torch.randn(shape, generator=generator, dtype=torch.float64) / shape[0] ** 0.5
    metric = prox.metric(dictionary, 0.1)
    report = prox.convergence(metric, ridge)
    identity = torch.eye(len(metric), dtype=torch.float64)
    condition = 2 * torch.diag(metric.diagonal()) + ridge * identity - metric
    assert report.margin == pytest.approx(torch.linalg.eigvalsh(condition)[0].item(), abs=1e-12)
    coupling, _, _ = prox.reparametrise(metric, 0.1, ridge)
    spectral_radius = torch.linalg.eigvals(coupling).abs().max().item()
    assert report.rate == pytest.approx(spectral_radius, abs=1e-9)
    assert report.holds == (spectral_radius < 1)


@pytest.mark.parametrize(("shape", "size"), CONVOLUTIONS)
def test_eigenvalues_of_a_convolution_are_those_of_its_matrix(shape: tuple[int, ...], size: tuple[int, ...]) -> None:
    metric = random_metric(shape, 0.03)
    eigenvalues = torch.linalg.eigvalsh(dense_matrix(metric, size))
    low, high = prox.extreme_eigenvalues(metric, size)
    assert low == pytest.approx(eigenvalues[0].item(), abs=1e-6)
    assert high == pytest.approx(eigenvalues[-1].item(), abs=1e-6)


def test_a_verdict_by_an_estimate_says_so() -> None:
    kernel = torch.tensor([[[0.5, 1.0, 3 * (1 - 1e-5), 1.0, 0.5]]], dtype=torch.float64)
    exact = prox.convergence(kernel, size=(2048,))
    assert exact.exact
    assert str(exact).startswith("diverges for some inputs: the smallest eigenvalue of 2 Theta + beta I - Q is -2.2")
    estimate = prox.convergence(kernel, size=(2049,))  # whose margin is as small, but beyond what Lanczos resolves
    assert not estimate.exact
    assert estimate.margin == pytest.approx(exact.margin, abs=1e-4)
    assert "is, by an estimate that may be too large, " in str(estimate)


@pytest.mark.parametrize("shape", [(4, 4, 3, 3), (6, 2, 3, 3)])
def test_lanczos_finds_the_ends_of_a_large_spectrum(shape: tuple[int, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    metric, size = random_metric(shape, 0.03), (12, 12)
    exact = prox.extreme_eigenvalues(metric, size)
    monkeypatch.setattr(spectrum, "_DENSE", 0)
    low, high = prox.extreme_eigenvalues(metric, size)
    assert low == pytest.approx(exact[0], abs=1e-5)
    assert high == pytest.approx(exact[1], abs=1e-5)
    assert exact[0] - 1e-12 <= low < high <= exact[1] + 1e-12


def test_lanczos_works_where_the_metric_is_not_where_tensors_are_made() -> None:
    metric, size = random_metric((4, 4, 3, 3), 0.03), (24, 24)
    expected = prox.extreme_eigenvalues(metric, size)
    with torch.device("meta"):  # as a metric on a GPU, or with a GPU as the default device
        assert prox.extreme_eigenvalues(metric, size) == expected


def test_a_metric_close_to_singular_is_still_a_metric() -> None:
    """A second difference: positive definite by a hair at every size, dense or estimated."""
    second_difference = torch.tensor([[[-1.0, 2.0, -1.0]]], dtype=torch.float64)
    for length in (300, 3000):
        low, high = prox.extreme_eigenvalues(second_difference, (length,))
        assert 0 < low < 0.01
        assert 3.99 < high < 4
    operators.diagonal(second_difference).add_(0.001)
    z = torch.randn(1, 1, 300, dtype=torch.float64)
    assert (prox.prox(z, second_difference, 0.1, tolerance=1e-3, max_iterations=10).code >= 0).all()


def test_the_verdict_on_a_convolution_with_a_small_margin() -> None:
    metric = torch.tensor([[[0.0499, 0.45, 1.0, 0.45, 0.0499]]], dtype=torch.float64)
    condition = 2 * torch.eye(800, dtype=torch.float64) - dense_matrix(metric, (800,))
    report = prox.convergence(metric, size=(800,))
    assert report.margin == pytest.approx(torch.linalg.eigvalsh(condition)[0].item(), abs=1e-9)
    assert report.holds


def test_eigenvalues_of_the_identity() -> None:
    assert prox.extreme_eigenvalues(torch.tensor([[[0.0, 3.0, 0.0]]]), (10,)) == pytest.approx((3, 3))
    with pytest.raises(ValueError, match=r"needs a size of 1 axes, got \(\)"):
        prox.extreme_eigenvalues(torch.tensor([[[0.0, 3.0, 0.0]]]))


def test_an_inverse_in_float32_is_as_symmetric_as_rounding_lets_it_be() -> None:
    eigenvalues = torch.logspace(-4, 0, 64, dtype=torch.float64)
    basis = torch.linalg.qr(torch.randn(64, 64, dtype=torch.float64)).Q
    inverse = torch.linalg.inv((basis * eigenvalues @ basis.T).float())
    assert (inverse - inverse.T).abs().max() > 1e-5 * inverse.abs().max()  # a hundred times the precision
    low, high = prox.extreme_eigenvalues(inverse)
    assert low == pytest.approx(1, rel=2e-4)  # by one half of the matrix alone it would be off by 5e-3
    assert high == pytest.approx(1e4, rel=2e-4)


@pytest.mark.parametrize(
    ("weight", "complaint"),
    [
        (torch.tensor([[1.0, 2.0], [0.0, 1.0]]), "weight must be symmetric, but differs from its transpose by up to 2"),
        (torch.tensor([[[0.1, 1.0, 0.2]]]), "weight must be symmetric"),
        (torch.full((2, 2), torch.nan), "weight must be finite"),
        (torch.tensor([[1.0, torch.inf], [0.0, 1.0]]), "weight must be finite"),
        (torch.ones(3), "weight must have shape"),
    ],
)
def test_eigenvalues_are_those_of_symmetric_weights_alone(weight: torch.Tensor, complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        prox.extreme_eigenvalues(weight, (5,) * (weight.ndim - 2))


@pytest.mark.parametrize("theta", [torch.ones(3), torch.tensor([1.0, 0.0]), torch.tensor([1.0, torch.nan])])
def test_bad_theta(theta: torch.Tensor) -> None:
    for call in (prox.convergence, partial(prox.reparametrise, sparsity=0.1)):
        with pytest.raises(ValueError, match=r"theta must be (finite and > 0|one number or 2)"):
            call(torch.eye(2), theta=theta)
