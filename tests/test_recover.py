import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from detrame import prox
from tests.conftest import dense_matrix
from tests.test_prox import CONVOLUTIONS, Problem, problems, random_metric


def test_thresholds_that_are_nearly_zero_determine_nothing() -> None:
    threshold = torch.tensor([1e-5, 0.1, 0.1], dtype=torch.float16)
    found = prox.recover(torch.zeros(3, 3).half(), torch.ones(3).half(), threshold)
    assert found.determined.tolist() == [False, True, True]


@given(problems())
def test_recovers_the_problem_up_to_one_common_factor(problem: Problem) -> None:
    _, dictionary, _, sparsity, damping, ridge = problem
    metric = prox.metric(dictionary, damping)
    found = prox.recover(*prox.reparametrise(metric, sparsity, ridge))
    assert found.determined.all()
    factor = found.ridge / ridge if ridge else 1 / sparsity
    torch.testing.assert_close(found.metric, factor * metric, rtol=1e-7, atol=1e-9 * factor)
    torch.testing.assert_close(found.sparsity, torch.full_like(found.sparsity, factor * sparsity), rtol=1e-7, atol=0)
    assert found.sparsity_spread < 1e-7
    assert found.asymmetry < 1e-7
    assert found.smallest_eigenvalue > 0
    again = prox.reparametrise((found.metric + found.metric.T) / 2, found.sparsity.mean(), found.ridge)
    for new, old in zip(again, prox.reparametrise(metric, sparsity, ridge), strict=True):
        torch.testing.assert_close(new, old, rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize(("shape", "size"), CONVOLUTIONS)
def test_recovers_a_convolutional_metric(shape: tuple[int, ...], size: tuple[int, ...]) -> None:
    metric = random_metric(shape, 0.03)
    found = prox.recover(*prox.reparametrise(metric, 0.2, 0.5, size=size), size=size)
    torch.testing.assert_close(found.metric, 2 * metric)
    assert found.asymmetry < 1e-12
    eigenvalues = 2 * torch.linalg.eigvalsh(dense_matrix(metric, size))
    assert found.smallest_eigenvalue == pytest.approx(eigenvalues[0].item(), abs=1e-6)
    assert found.largest_eigenvalue == pytest.approx(eigenvalues[-1].item(), abs=1e-6)


def test_recovers_the_preconditioned_form_too() -> None:
    metric = prox.metric(torch.randn(4, 6, dtype=torch.float64), 0.1)
    found = prox.recover(*prox.reparametrise(metric, 0.2, 0.5, theta=prox.preconditioner(metric)))
    torch.testing.assert_close(found.metric, 2 * metric)


def test_says_how_far_a_learned_triple_is_from_a_metric() -> None:
    coupling = torch.tensor([[0.0, 1.5], [0.5, 0.0]], dtype=torch.float64)
    gain, threshold = torch.tensor([0.5, 0.5], dtype=torch.float64), torch.tensor([0.1, 0.3], dtype=torch.float64)
    found = prox.recover(coupling, gain, threshold)
    # s = 2: Q = 2 (diag(1/2) - W) = [[1, -3], [-1, 1]], lambda = 0.2 and 0.6
    torch.testing.assert_close(found.metric, torch.tensor([[1.0, -3.0], [-1.0, 1.0]], dtype=torch.float64))
    assert found.sparsity_spread == pytest.approx(1.0)
    assert found.asymmetry == pytest.approx(math.sqrt(8 / 12))
    assert (found.smallest_eigenvalue, found.largest_eigenvalue) == pytest.approx((-1, 3))
    assert "not positive definite" in str(found)
    assert "differ by 1 of their mean" in str(found)


@given(st.integers(1, 5))
def test_a_plain_relu_determines_nothing(channels: int) -> None:
    found = prox.recover(torch.zeros(channels, channels), torch.ones(channels), torch.zeros(channels))
    assert not found.determined.any()
    assert found.metric.isnan().all()
    assert math.isnan(found.smallest_eigenvalue)
    assert "even diag(Q) is free" in str(found)


def test_channels_that_determine_nothing_are_left_out() -> None:
    coupling = torch.tensor([[0.0, 0.1, 5.0], [0.1, 0.0, 5.0], [7.0, 7.0, 0.0]])
    found = prox.recover(coupling, torch.tensor([0.5, 0.5, 1.0]), torch.tensor([0.1, 0.1, 0.1]))
    assert found.determined.tolist() == [True, True, False]
    assert found.asymmetry == 0
    assert "1 of 3 channels are undetermined" in str(found)


def test_a_metric_of_zeros_is_told_without_a_division_by_zero_and_without_a_gradient() -> None:
    coupling, gain, threshold = (torch.zeros(shape, requires_grad=True) for shape in ((2, 2), 2, 2))
    found = prox.recover(coupling, gain, threshold)
    assert found.sparsity_spread == found.asymmetry == found.largest_eigenvalue == 0
    assert not found.metric.requires_grad
    assert "not positive definite" in str(found)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_gain_within_rounding_of_1_counts_as_1(dtype: torch.dtype) -> None:
    eps = torch.finfo(dtype).eps
    gain = torch.tensor([0.5, 1 - 2 * eps, 1 - 16 * eps], dtype=dtype)
    found = prox.recover(torch.zeros(3, 3, dtype=dtype), gain, torch.zeros(3, dtype=dtype))
    assert found.determined.tolist() == [True, False, True]
    assert prox.recover(torch.zeros(1, 1, dtype=dtype), gain[1:2], torch.ones(1, dtype=dtype)).ridge == 0


def test_without_a_ridge_the_thresholds_give_the_scale() -> None:
    found = prox.recover(torch.zeros(2, 2), torch.ones(2), torch.tensor([0.5, 0.0]))
    assert found.ridge == 0
    assert found.determined.tolist() == [True, False]
    assert found.metric[0, 0] == 2
    assert "lambda = 1" in str(found)


@pytest.mark.parametrize(
    ("gain", "threshold", "complaint"),
    [
        (torch.tensor([0.5, 1.5]), torch.zeros(2), "project the parameters first"),
        (torch.tensor([-0.5, 0.5]), torch.zeros(2), "project the parameters first"),
        (torch.tensor([0.5, 0.5]), -torch.ones(2), "project the parameters first"),
        (torch.tensor([0.5, torch.nan]), torch.zeros(2), "gain must be finite"),
        (torch.ones(3), torch.zeros(2), r"gain must have shape \(2,\), got \(3,\)"),
        (torch.ones(2), torch.zeros(2, 1), r"threshold must have shape \(2,\), got \(2, 1\)"),
    ],
)
def test_bad_triples(gain: Tensor, threshold: Tensor, complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        prox.recover(torch.zeros(2, 2), gain, threshold)


@pytest.mark.parametrize(
    ("coupling", "complaint"),
    [
        (torch.full((2, 2), torch.nan), "coupling must be finite"),
        (torch.zeros(2), "coupling must have shape"),
        (torch.zeros(2, 2, 3), "needs a size of 1 axes"),
    ],
)
def test_bad_couplings(coupling: Tensor, complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        prox.recover(coupling, torch.ones(2), torch.zeros(2))
