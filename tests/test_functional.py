from functools import partial
from itertools import pairwise

import pytest
import torch
from torch import Tensor

from detrame import prox
from detrame.functional import q_metric_relu
from tests.conftest import STRUCTURES, literal, problem


@pytest.fixture(params=STRUCTURES)
def structure(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-12), (torch.float32, 1e-5)])
def test_equals_the_equation_of_the_paper_iteration_by_iteration(
    structure: str, dtype: torch.dtype, tolerance: float
) -> None:
    arguments = problem(structure, dtype)
    for iterations, expected in enumerate(literal(*arguments, iterations=6), start=1):
        u = q_metric_relu(*arguments, iterations)
        assert u.shape == arguments[0].shape
        assert (u - expected).abs().max() <= tolerance * expected.abs().max()
        if iterations == 2:
            assert torch.equal(u, q_metric_relu(*arguments))


@pytest.mark.parametrize("iterations", [1, 3])
def test_gradients(structure: str, iterations: int) -> None:
    arguments = [a.requires_grad_() for a in problem(structure)]
    assert torch.autograd.gradcheck(partial(q_metric_relu, iterations=iterations), arguments)


def test_gain_and_threshold_of_another_dtype_are_converted_alike(structure: str) -> None:
    z, coupling, gain, threshold = problem(structure, torch.float32)
    expected = q_metric_relu(z, coupling, gain, threshold, 3)
    torch.testing.assert_close(q_metric_relu(z, coupling, gain.double(), threshold, 3), expected)
    torch.testing.assert_close(q_metric_relu(z, coupling, gain, threshold.double(), 3), expected)


@pytest.mark.parametrize("structure", ["dense", "blocks", "conv1d", "conv2d, groups"])
def test_double_backward(structure: str) -> None:
    arguments = [a.requires_grad_() for a in problem(structure)]
    assert torch.autograd.gradgradcheck(partial(q_metric_relu, iterations=3), arguments)


def test_the_limit_is_the_exact_prox_where_the_iteration_converges() -> None:
    dictionary = torch.randn(40, 8, dtype=torch.float64) / 6
    metric, z = prox.metric(dictionary, 0.1), torch.randn(5, 8, dtype=torch.float64)
    assert prox.convergence(metric, 0.1).holds
    u = q_metric_relu(z, *prox.reparametrise(metric, 0.2, 0.1), iterations=500)
    exact = prox.prox(z, metric, 0.2, 0.1, tolerance=1e-13).code
    assert 0 < (exact > 0).double().mean() < 1
    assert (u - exact).abs().max() <= 1e-10 * exact.max()


@pytest.mark.parametrize("size", [1.0, 1e4])
def test_tolerance_stops_early_and_residuals_tell_when(size: float) -> None:
    z, coupling, gain, threshold = problem("conv2d")
    arguments = size * z, coupling, gain, size * threshold
    full, residuals = q_metric_relu(*arguments, 50, return_residuals=True)
    assert residuals.shape == (50,)
    u, done = q_metric_relu(*arguments, 50, tolerance=1e-6, return_residuals=True)
    assert len(done) < 50
    torch.testing.assert_close(done, residuals[: len(done)])
    assert done[-1] <= 1e-6 * u.abs().max() < done[-2]
    torch.testing.assert_close(u, full, rtol=0, atol=1e-5 * size)


def test_rounding_does_not_add_up_over_many_iterations() -> None:
    torch.manual_seed(0)
    metric = torch.diag(torch.logspace(0, -3, 20)) + 1e-3 * torch.ones(20, 20)  # slow to converge
    theta = 1.05 * torch.linalg.eigvalsh(metric)[-1] * torch.ones(20)
    coupling, gain, threshold = prox.reparametrise(metric, 0.01, theta=theta)
    z = torch.randn(50, 20).requires_grad_()
    narrow, residuals = q_metric_relu(z, coupling, gain, threshold, 5000, return_residuals=True)
    wide = q_metric_relu(z.double(), coupling.double(), gain.double(), threshold.double(), 5000)
    assert (narrow.dtype, residuals.dtype) == (torch.float32, torch.float32)
    assert not residuals.requires_grad
    torch.testing.assert_close(narrow, wide.float(), rtol=0, atol=0)
    assert torch.autograd.grad(narrow.sum(), z)[0].dtype == torch.float32
    for iterations, tolerance, taken in ((100, None, False), (101, None, True), (101, 0.0, False)):
        narrow = q_metric_relu(z, coupling, gain, threshold, iterations, tolerance=tolerance)
        wide = q_metric_relu(z.double(), coupling.double(), gain.double(), threshold.double(), iterations)
        assert torch.equal(narrow, wide.float()) == taken
    with torch.autocast("cpu", dtype=torch.bfloat16):  # which asks for less, whatever the number of iterations
        codes = [q_metric_relu(z, coupling, gain, threshold, number) for number in (1, 2, 200)]
    assert {code.dtype for code in codes} == {torch.bfloat16}


def test_many_iterations_and_a_wrong_dtype_on_the_meta_device() -> None:
    with torch.device("meta"):
        z, coupling, vector = torch.empty(2, 3), torch.empty(3, 3), torch.empty(3)
    assert q_metric_relu(z, coupling, vector, vector, 101).shape == z.shape
    with pytest.raises(TypeError, match=r"the input is torch.float64 and the weight torch.float32"):
        q_metric_relu(z.double(), coupling, vector, vector)


def test_residuals_are_the_largest_changes() -> None:
    arguments = problem("blocks")
    iterates = [torch.zeros_like(arguments[0]), *literal(*arguments, iterations=5)]
    _, residuals = q_metric_relu(*arguments, 5, return_residuals=True)
    expected = [(b - a).abs().max() for a, b in pairwise(iterates)]
    torch.testing.assert_close(residuals, torch.stack(expected))


@pytest.mark.parametrize("iterations", [1, 2, 5])
def test_what_is_kept_for_backward_is_z_and_the_codes(structure: str, iterations: int) -> None:
    arguments = [a.requires_grad_() for a in problem(structure)]
    kept: dict[int, int] = {}

    def keep(tensor: Tensor) -> Tensor:
        if tensor.numel() == arguments[0].numel() and tensor.shape != arguments[1].shape:
            kept[tensor.untyped_storage().data_ptr()] = tensor.numel()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        u = partial(q_metric_relu, iterations=iterations)(*arguments)
    assert len(kept) == 1 + iterations
    u.sum().backward()


@pytest.mark.parametrize("iterations", [1, 3])
def test_an_empty_batch_passes_through(structure: str, iterations: int) -> None:
    z, coupling, gain, threshold = problem(structure)
    empty = z[:0].requires_grad_()
    u, residuals = q_metric_relu(empty, coupling, gain, threshold, iterations, return_residuals=True)
    u.sum().backward()
    assert u.shape == empty.shape
    assert (residuals == 0).all()


@pytest.mark.parametrize(
    ("change", "error", "complaint"),
    [
        ({"iterations": 0}, ValueError, "iterations must be at least 1, got 0"),
        ({"iterations": -2}, ValueError, "got -2"),
        ({"iterations": 2.0}, TypeError, "iterations must be an int, got 2.0"),
        ({"iterations": True}, TypeError, "got True"),
        ({"gain": 1.0}, TypeError, "gain must be a tensor, got float"),
        ({"z": torch.ones(2, 4, 5, 5, dtype=torch.int64)}, TypeError, "int64"),
        ({"z": torch.ones(2, 4, 5, 5, dtype=torch.complex64)}, TypeError, "complex64"),
        ({"z": torch.ones(2, 5, 5, 5)}, ValueError, r"4 channels on axis 1, got a tensor of shape \(2, 5, 5, 5\)"),
        ({"z": torch.ones(4, 5, 5)}, ValueError, r"expected shape .* got \(4, 5, 5\)$"),
        ({"z": torch.ones(2, 4, 5, 5, 5)}, ValueError, r"expected shape .* got \(2, 4, 5, 5, 5\)$"),
        ({"z": torch.ones(2, 4)}, ValueError, r"got \(2, 4\); feature vectors take one without kernel"),
        ({"coupling": torch.zeros(4, 3, 3, 3)}, ValueError, "do not divide"),
        ({"coupling": torch.zeros(4, 4, 2, 2)}, ValueError, "odd kernel"),
        ({"gain": torch.ones(3)}, ValueError, r"gain must have shape \(4,\), got \(3,\)"),
        ({"threshold": torch.ones(4, 1)}, ValueError, "threshold must have shape"),
        ({"tolerance": -1.0}, ValueError, "tolerance must be a number >= 0, got -1.0"),
        ({"tolerance": float("nan")}, ValueError, "got nan"),
    ],
)
def test_bad_input(change: dict[str, object], error: type[Exception], complaint: str) -> None:
    arguments: dict[str, object] = {
        "z": torch.ones(2, 4, 5, 5),
        "coupling": torch.zeros(4, 4, 3, 3),
        "gain": torch.ones(4),
        "threshold": torch.zeros(4),
    }
    with pytest.raises(error, match=complaint):
        q_metric_relu(**(arguments | change))  # type: ignore[call-overload]


@pytest.mark.parametrize("shape", [(4, 2), ()])
def test_features_on_the_last_axis(shape: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match="4 channels on the last axis"):
        q_metric_relu(torch.ones(shape), torch.zeros(4, 4), torch.ones(4), torch.zeros(4))
