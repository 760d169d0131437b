import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from detrame import prox
from detrame.functional import q_metric_relu
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


def test_lanczos_bounds_the_spectrum_when_it_stops_early() -> None:
    """A second difference on a long line: 2000 eigenvalues in (0, 4), 128 steps, and still a bound on both sides."""
    low, high = prox.extreme_eigenvalues(torch.tensor([[[-1.0, 2.0, -1.0]]]), (2000,))
    assert -0.01 < low <= 0
    assert 4 <= high < 4.01


def test_eigenvalues_of_the_identity() -> None:
    assert prox.extreme_eigenvalues(torch.tensor([[[0.0, 3.0, 0.0]]]), (10,)) == pytest.approx((3, 3))


@pytest.mark.parametrize("theta", [torch.ones(3), torch.tensor([1.0, 0.0]), torch.tensor([1.0, torch.nan])])
def test_bad_theta(theta: torch.Tensor) -> None:
    with pytest.raises(ValueError, match="theta must hold 2 positive numbers"):
        prox.convergence(torch.eye(2), theta=theta)
