"""Dictionary layers: codes against other solvers, gradients against unrolling and finite differences."""

import copy
from typing import Any
from unittest import mock

import numpy as np
import pytest
import spams
import torch
from hypothesis import given
from hypothesis import strategies as st
from sklearn.decomposition import sparse_encode
from torch import Tensor, nn
from torch.nn import functional as F

import detrame
from detrame import DictionaryConv2d, DictionaryLinear, prox
from detrame.activations import parameter_groups, project_after
from detrame.dictionary import SMALLEST_DAMPING, DictionaryLayer
from detrame.prox import active_set, nonnegative_minimiser
from detrame.training.step import Step


def coding_problem(
    samples: int, size: int, atoms: int, *, common: float = 0.0, dtype: torch.dtype = torch.float64
) -> tuple[Tensor, Tensor]:
    """Unit vectors to code, and a dictionary of unit atoms that have `common` of one direction in common."""
    dictionary = torch.randn(size, atoms, dtype=dtype) + common * torch.randn(size, 1, dtype=dtype)
    return F.normalize(torch.randn(samples, size, dtype=dtype)), F.normalize(dictionary, dim=0)


def linear_layer(dictionary: Tensor, **options: Any) -> DictionaryLinear:
    layer = DictionaryLinear(*dictionary.shape, dtype=dictionary.dtype, **options)
    with torch.no_grad():
        layer.dictionary.copy_(dictionary)
    return layer


def unrolled(x: Tensor, dictionary: Tensor, sparsity: Tensor, damping: Tensor, shift: Tensor) -> Tensor:
    """Projected gradient descent to convergence, every step of it differentiated."""
    gram = dictionary.T @ dictionary
    hessian = gram + damping * torch.eye(len(gram), dtype=gram.dtype)
    step = 1 / torch.linalg.matrix_norm(hessian.detach(), 2)
    code = torch.zeros(*x.shape[:-1], len(gram), dtype=gram.dtype)
    for _ in range(1500):
        code = (code - step * (code @ hessian - x @ dictionary + sparsity + shift)).relu()
    return code


@pytest.mark.parametrize(("size", "atoms", "sparsity"), [(64, 128, 0.12), (64, 16, 0.05), (20, 60, 0.1)])
def test_codes_are_those_of_scikit_learn(size: int, atoms: int, sparsity: float) -> None:
    x, dictionary = coding_problem(200, size, atoms)
    code = linear_layer(dictionary, sparsity=sparsity, damping=0.0)(x).detach().numpy()
    theirs = sparse_encode(
        x.numpy(), dictionary.T.numpy(), algorithm="lasso_cd", alpha=sparsity, positive=True, max_iter=100_000
    )
    np.testing.assert_allclose(code, theirs, atol=1e-6)
    assert 0 < (code > 0).mean() < 0.5


@pytest.mark.parametrize("damping", [0.0, 0.2])
def test_codes_are_those_of_spams(damping: float) -> None:
    x, dictionary = coding_problem(200, 64, 128)
    theirs = spams.lasso(
        np.asfortranarray(x.T.numpy()),
        D=np.asfortranarray(dictionary.numpy()),
        lambda1=0.1,
        lambda2=damping,
        mode=2,
        pos=True,
        numThreads=1,
    )
    code = linear_layer(dictionary, sparsity=0.1, damping=damping)(x).detach()
    np.testing.assert_allclose(code.numpy(), theirs.toarray().T, atol=1e-6)


@given(st.integers(1, 12), st.integers(1, 24), st.floats(0, 3), st.floats(1e-3, 1), st.integers(0, 2**31))
def test_every_sample_is_optimal(size: int, atoms: int, common: float, sparsity: float, seed: int) -> None:
    """Without damping, for more atoms than values too: the optimality condition holds, whatever the support."""
    torch.manual_seed(seed)
    x, dictionary = coding_problem(20, size, atoms, common=common)
    hessian, target = dictionary.T @ dictionary, x @ dictionary - sparsity
    code, residual = active_set.solve(active_set.Problem.of(hessian), target)
    assert residual.max() <= active_set.TOLERANCE
    gradient = code @ hessian - target
    assert code.min() >= 0
    assert gradient.min() >= -1e-10
    assert (code * gradient).abs().max() <= 1e-10


def test_equal_atoms_have_no_unique_code_but_an_optimal_one_and_a_finite_gradient() -> None:
    x, dictionary = coding_problem(50, 8, 6)
    doubled = torch.cat([dictionary, dictionary], 1)
    layer = linear_layer(doubled, sparsity=0.05, damping=0.0)
    code = layer(x)
    expected = linear_layer(dictionary, sparsity=0.05, damping=0.0)(x)
    torch.testing.assert_close(code[:, :6] + code[:, 6:], expected, atol=1e-9, rtol=0)
    code.sum().backward()
    assert layer.dictionary.grad is not None
    assert layer.dictionary.grad.abs().max() < 1e3


def test_the_derivative_is_symmetric_and_of_least_norm_where_atoms_are_equal() -> None:
    x, dictionary = coding_problem(50, 8, 6)
    doubled = torch.cat([dictionary, dictionary], 1)
    hessian, target = (doubled.T @ doubled).requires_grad_(), (x @ doubled - 0.05).requires_grad_()
    code = nonnegative_minimiser(hessian, target)
    weights = torch.randn_like(code)
    for_hessian, for_target = torch.autograd.grad((code * weights).sum(), [hessian, target])
    torch.testing.assert_close(for_hessian, for_hessian.T, atol=0, rtol=0)
    for active, weight, found in zip(code > 0, weights, for_target, strict=True):
        inverse = torch.linalg.pinv(hessian.detach()[active][:, active], rtol=1e-9, hermitian=True)
        assert not found[~active].any()
        torch.testing.assert_close(found[active], inverse @ weight[active], atol=1e-5, rtol=0)


def test_zero_codes_full_codes_zero_atoms_and_empty_batches() -> None:
    x, dictionary = coding_problem(10, 8, 5)
    assert not linear_layer(dictionary, sparsity=10.0)(x).any()
    assert not linear_layer(dictionary, sparsity=0.0)(0 * x).any()
    orthogonal = torch.eye(5, dtype=torch.float64)
    full = linear_layer(orthogonal, sparsity=0.1, damping=1.0)(torch.ones(3, 5, dtype=torch.float64))
    torch.testing.assert_close(full, torch.full_like(full, 0.45))
    with_zero = torch.cat([dictionary, torch.zeros(8, 1, dtype=torch.float64)], 1)
    assert not linear_layer(with_zero, damping=0.0)(x)[:, 5].any()
    assert not linear_layer(0 * dictionary, damping=0.0)(x).any()
    for shape in ((0, 8), (3, 0, 8)):
        layer = linear_layer(dictionary)
        code = layer(torch.zeros(shape, dtype=torch.float64))
        assert code.shape == (*shape[:-1], 5)
        code.sum().backward()
    assert DictionaryConv2d(2, 4, 3)(torch.zeros(0, 2, 5, 5)).shape == (0, 4, 3, 3)


def test_a_sample_that_is_not_finite_spoils_its_own_code_only() -> None:
    x, dictionary = coding_problem(3, 8, 5)
    layer = linear_layer(dictionary, sparsity=0.01)
    clean = layer(x)
    x[1, 2] = torch.nan
    code = layer(x)
    assert code[1].isnan().all()
    torch.testing.assert_close(code[[0, 2]], clean[[0, 2]])


@pytest.mark.parametrize("factor", [1e-200, 1e39, 1e200])
def test_samples_of_every_size_are_solved(factor: float) -> None:
    x, dictionary = coding_problem(50, 4, 16)
    hessian, target = prox.metric(dictionary, 0.01), x @ dictionary - 0.01
    expected = nonnegative_minimiser(hessian, target)
    torch.testing.assert_close(nonnegative_minimiser(hessian, factor * target) / factor, expected)
    torch.testing.assert_close(nonnegative_minimiser(hessian / factor, target) / factor, expected)


def test_what_has_no_minimum_is_no_code_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(active_set, "_CALLS", 5)  # it diverges soon
    indefinite = torch.tensor([[1.0, -2.0], [-2.0, 1.0]])
    with pytest.warns(UserWarning, match="some codes are not solved"):
        nonnegative_minimiser(indefinite, torch.ones(1, 2))
    unknown = torch.tensor([[1.0, torch.nan], [torch.nan, 1.0]])
    assert nonnegative_minimiser(unknown, torch.ones(1, 2)).isnan().all()


@pytest.mark.parametrize(
    ("hessian", "target"),
    [
        (torch.eye(3), torch.ones(2, 4)),
        (torch.eye(3), torch.ones(2, 1)),
        (torch.eye(3), torch.tensor(1.0)),
        (torch.ones(3), torch.ones(2, 3)),
        (torch.ones(3, 2), torch.ones(2, 3)),
        (torch.eye(0), torch.ones(2, 0)),
    ],
)
def test_shapes_that_are_no_problem(hessian: Tensor, target: Tensor) -> None:
    with pytest.raises(ValueError, match=r"expected a hessian \(k, k\) and a target \(\.\.\., k\), got shapes"):
        nonnegative_minimiser(hessian, target)


def test_codes_of_integers_would_be_rounded() -> None:
    with pytest.raises(TypeError, match=r"target must be a real floating-point tensor, got torch\.int64"):
        nonnegative_minimiser(2 * torch.eye(3), torch.tensor([[1, 2, 3]]))


def test_a_sample_is_given_up_in_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """What cannot be solved (here: not allowed the time) comes back as far as it got, and says so."""
    monkeypatch.setattr(active_set, "_CALLS", 1)
    monkeypatch.setattr(active_set, "_EXCHANGES", 1)
    monkeypatch.setattr(active_set, "_FIRST_STEPS", 1)
    x, dictionary = coding_problem(50, 16, 64)
    code, residual = active_set.solve(active_set.Problem.of(dictionary.T @ dictionary), x @ dictionary - 0.01)
    assert residual.max() > active_set.TOLERANCE
    with pytest.warns(UserWarning, match="some codes are not solved to 1e-11"):
        nonnegative_minimiser(dictionary.T @ dictionary, x @ dictionary - 0.01)
    assert code.isfinite().all()
    assert code.min() >= 0


def test_nearly_dependent_atoms_are_still_told_apart() -> None:
    gap = 2.0**-43  # H has the eigenvalues 2 - gap and gap, and the code (3, 1) / 4, but for rounding
    hessian = torch.tensor([[1, 1 - gap], [1 - gap, 1]], dtype=torch.float64)
    target = torch.tensor([[1 + gap / 4, 1 - gap / 4]], dtype=torch.float64)
    assert torch.allclose(nonnegative_minimiser(hessian, target), target.new_tensor([[0.75, 0.25]]), atol=0.01)


def test_atoms_that_are_much_alike_need_few_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Smooth vectors about a common mean, as patches of images are: hard for a gradient, and for one share alone."""
    monkeypatch.setattr(active_set, "_CALLS", 5)
    x, atoms = (F.normalize(1 + 0.03 * torch.randn(n, 64).double().cumsum(1)) for n in (50, 128))
    _, residual = active_set.solve(active_set.Problem.of(atoms @ atoms.T), x @ atoms.T - 0.01)
    assert residual.max() <= active_set.TOLERANCE


def test_tiny_atoms_without_damping_cost_no_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """At unit norm their sparsity is a million times that of the others, and must not be all that is seen."""
    monkeypatch.setattr(active_set, "_CALLS", 3)
    x, dictionary = coding_problem(50, 16, 64)
    dictionary[:, ::2] *= 1e-6
    code, residual = active_set.solve(active_set.Problem.of(dictionary.T @ dictionary), x @ dictionary - 0.1)
    assert residual.max() <= active_set.TOLERANCE
    assert code.any()


@pytest.mark.parametrize("lowest", [-1e-3, -1e3, -1e200, -1e308])
def test_codes_do_not_depend_on_how_far_a_target_is_below_what_any_code_reaches(lowest: float) -> None:
    x, dictionary = coding_problem(20, 8, 12)
    hessian, target = prox.metric(dictionary, 0.01), x @ dictionary - 0.05
    code = nonnegative_minimiser(hessian[1:, 1:], target[:, 1:])
    target[:, 0] = torch.minimum((code @ hessian[1:, 0]) + lowest, target.new_tensor(lowest))
    found = nonnegative_minimiser(hessian, target)
    assert not found[:, 0].any()
    torch.testing.assert_close(found[:, 1:], code, atol=1e-12, rtol=0)
    assert not nonnegative_minimiser(hessian, target.clamp_max(0)).any()


def test_a_huge_code_along_opposite_atoms_is_not_optimal() -> None:
    """It costs its sparsity, which is nothing beside its size; rounding can lead there where atoms are dependent."""
    opposite, target = torch.tensor([[1.0, -1.0], [-1.0, 1.0]]).double(), torch.full((2, 2), -0.001).double()
    _, distance = active_set._improved(torch.tensor([[1e12, 1e12], [0, 0]]).double(), opposite, target)
    assert distance.tolist() == [torch.inf, 0]


def test_large_batches_are_solved_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    x, dictionary = coding_problem(50, 8, 12)
    layer = linear_layer(dictionary)
    whole = layer(x)
    monkeypatch.setattr(active_set, "_PART", {"cpu": 100})
    monkeypatch.setattr(active_set, "_CHUNK", {"cpu": 64})
    torch.testing.assert_close(layer(x), whole, atol=1e-12, rtol=0)


@given(st.integers(1, 12), st.integers(1, 24), st.floats(0.05, 1), st.integers(0, 2**31))
def test_conjugate_gradients_give_what_factorisation_gives(size: int, atoms: int, damping: float, seed: int) -> None:
    torch.manual_seed(seed)
    x, dictionary = coding_problem(20, size, atoms)
    hessian, target = dictionary.T @ dictionary + damping * torch.eye(atoms).double(), x @ dictionary - 0.05
    found = []
    for limit in (0.0, float("inf")):
        with mock.patch.dict(active_set._WELL_CONDITIONED, cpu=limit):
            code, residual = active_set.solve(active_set.Problem.of(hessian), target)
            assert residual.max() <= active_set.TOLERANCE
            inputs = [hessian.clone().requires_grad_(), target.clone().requires_grad_()]
            gradients = torch.autograd.grad(nonnegative_minimiser(*inputs).square().sum(), inputs)
            found.append((code, *gradients))
    for one, other in zip(*found, strict=True):
        torch.testing.assert_close(one, other, atol=1e-9 * float(one.abs().max()) + 1e-12, rtol=0)


def test_the_condition_number_is_bounded_from_above_and_closely() -> None:
    for size, atoms, damping in ((40, 10, 0.0), (10, 30, 0.1), (30, 30, 1.0)):
        _, dictionary = coding_problem(1, size, atoms)
        problem = active_set.Problem.of(dictionary.T @ dictionary + damping * torch.eye(atoms).double())
        condition = torch.linalg.cond(problem.hessian).item()
        assert condition * (1 - 1e-9) <= problem.condition <= 1.2 * condition
    _, dictionary = coding_problem(1, 10, 30)
    assert active_set.Problem.of(dictionary.T @ dictionary).condition > 1e12


def test_the_norm_is_bounded_from_above_and_closely() -> None:
    for size, atoms in ((4, 30), (30, 30), (50, 3)):
        _, dictionary = coding_problem(1, size, atoms)
        norm = torch.linalg.matrix_norm(dictionary.T @ dictionary, 2)
        bound = active_set._norm_bound(dictionary.T @ dictionary)
        assert norm * (1 - 1e-12) <= bound <= 1.1 * norm


@pytest.mark.parametrize("damping", [0.0, 0.3])
def test_gradients_are_those_of_finite_differences(damping: float) -> None:
    x, dictionary = coding_problem(4, 6, 9 if damping else 5)
    values = [torch.tensor(0.1), torch.tensor(damping), 0.05 * torch.randn(dictionary.shape[1])]
    inputs = [x, dictionary, *[value.double() for value in values]]

    def code(x: Tensor, dictionary: Tensor, sparsity: Tensor, damping: Tensor, shift: Tensor) -> Tensor:
        gram = dictionary.T @ dictionary
        return nonnegative_minimiser(gram + damping * torch.eye(len(gram)).double(), x @ dictionary - sparsity - shift)

    assert code(*inputs).any()
    assert torch.autograd.gradcheck(code, [value.requires_grad_() for value in inputs])


@pytest.mark.parametrize("atoms", [5, 12])
def test_gradients_are_those_of_unrolling_to_convergence(atoms: int) -> None:
    x, dictionary = coding_problem(6, 8, atoms)
    layer = linear_layer(dictionary, sparsity=0.05, damping=0.1, learned=["sparsity", "damping", "shift"])
    x.requires_grad_()
    parameters = [x, layer.dictionary, layer.sparsity, layer.damping, layer.shift]
    code, expected = layer(x), unrolled(*parameters)
    torch.testing.assert_close(code, expected, atol=1e-9, rtol=0)
    weights = torch.randn_like(code)
    ours = torch.autograd.grad((code * weights).sum(), parameters)
    theirs = torch.autograd.grad((expected * weights).sum(), parameters)
    for one, other in zip(ours, theirs, strict=True):
        assert one.any()
        torch.testing.assert_close(one, other, atol=1e-7, rtol=1e-7)


def test_what_only_the_guesses_need_is_not_kept_for_backward() -> None:
    x, dictionary = coding_problem(20, 8, 12)
    code = nonnegative_minimiser((dictionary.T @ dictionary).requires_grad_(), x @ dictionary - 0.05)
    assert not code.grad_fn.problem._resolvents  # type: ignore[union-attr]


def test_memory_for_backward_does_not_grow_with_the_iterations(monkeypatch: pytest.MonkeyPatch) -> None:
    x, dictionary = coding_problem(40, 16, 32)

    def kept(steps: int) -> int:
        monkeypatch.setattr(active_set, "_FIRST_STEPS", steps)
        sizes: list[int] = []

        def keep(tensor: Tensor) -> Tensor:
            sizes.append(tensor.numel())
            return tensor

        with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
            linear_layer(dictionary)(x)
        return sum(sizes)

    assert 0 < kept(1) == kept(200)


@pytest.mark.parametrize(("kernel", "stride", "padding"), [(3, 1, 1), (3, 2, 0), ((1, 3), (2, 1), (0, 1)), (1, 1, 0)])
def test_the_convolution_codes_every_patch_on_its_own(kernel: Any, stride: Any, padding: Any) -> None:
    conv = DictionaryConv2d(2, 7, kernel, stride=stride, padding=padding, learned=["shift"], dtype=torch.float64)
    with torch.no_grad():
        conv.shift.normal_(std=0.05)
    images = torch.randn(3, 2, 6, 5, dtype=torch.float64, requires_grad=True)
    codes = conv(images)
    linear = linear_layer(conv.matrix.detach(), learned=["shift"])
    linear.shift.data.copy_(conv.shift)
    patches = F.unfold(images, conv.kernel_size, padding=conv.padding, stride=conv.stride).mT
    expected = linear(patches)
    torch.testing.assert_close(codes, expected.mT.reshape(codes.shape))
    weights = torch.randn_like(codes)
    ours = torch.autograd.grad((codes * weights).sum(), [images, conv.dictionary, conv.shift])
    theirs = torch.autograd.grad((expected * weights.flatten(2).mT).sum(), [images, linear.dictionary, linear.shift])
    torch.testing.assert_close(ours[0], theirs[0])
    torch.testing.assert_close(ours[1].flatten(1).T, theirs[1])
    torch.testing.assert_close(ours[2], theirs[2])


def test_float32_and_autocast() -> None:
    conv = DictionaryConv2d(3, 8, 3, padding=1)
    images = torch.randn(2, 3, 6, 6)
    codes = conv(images)
    exact = copy.deepcopy(conv).double()(images.double())
    assert (codes - exact).abs().max() <= 1e-5 * exact.max()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        half = conv(images.bfloat16())
    assert half.dtype == torch.float32
    torch.testing.assert_close(half, conv(images.bfloat16().float()))
    linear, features = DictionaryLinear(6, 8), torch.randn(5, 6).bfloat16()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        code = linear(features)
    torch.testing.assert_close(code, linear(features.float()), atol=0, rtol=0)
    half.sum().backward()
    assert conv.dictionary.grad is not None
    assert conv.dictionary.grad.dtype == torch.float32
    with pytest.raises(TypeError, match=r"the input is torch.float64 and the dictionary torch.float32: convert"):
        conv(images.double())
    with pytest.raises(TypeError, match="convert one of them"):
        DictionaryLinear(3, 4)(torch.zeros(2, 3).half())


def test_the_minimiser_knows_no_autocast() -> None:
    x, dictionary = coding_problem(20, 12, 20, dtype=torch.float32)
    hessian, target = dictionary.T @ dictionary, (x @ dictionary - 0.1).requires_grad_()
    code = nonnegative_minimiser(hessian, target)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        same = nonnegative_minimiser(hessian.requires_grad_(), target)
        (gradient,) = torch.autograd.grad(same.sum(), hessian, retain_graph=True)
    torch.testing.assert_close(same, code, atol=0, rtol=0)
    torch.testing.assert_close(gradient, torch.autograd.grad(same.sum(), hessian)[0], atol=0, rtol=0)


def test_atoms_start_with_unit_norm() -> None:
    channels_last = DictionaryConv2d(2, 9, 3).to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    channels_last.reset_parameters()
    for layer in (DictionaryLinear(6, 9), DictionaryConv2d(2, 9, 3), channels_last):
        assert layer.matrix.shape[1] == 9
        torch.testing.assert_close(layer.matrix.norm(dim=0), torch.ones(9))


def test_only_what_is_learned_is_a_parameter_and_it_is_kept_within_bounds_undecayed() -> None:
    assert [name for name, _ in DictionaryLinear(4, 6).named_parameters()] == ["dictionary"]
    layer = DictionaryLinear(4, 6, sparsity=0.01, damping=0.01, learned=["sparsity", "damping", "shift"])
    state = copy.deepcopy(layer).state_dict()
    assert {"dictionary", "sparsity", "damping", "shift"} == set(state)
    assert DictionaryLinear(4, 6).load_state_dict(state)
    groups = parameter_groups(layer, weight_decay=0.1)
    assert [(len(group["params"]), group["weight_decay"]) for group in groups] == [(1, 0.1), (3, 0.0)]
    optimizer = torch.optim.SGD(groups, lr=100.0)
    project_after(optimizer, layer)
    (layer.sparsity + layer.damping).backward()
    optimizer.step()
    assert layer.sparsity.item() == 0
    assert layer.damping.item() == pytest.approx(SMALLEST_DAMPING)
    assert layer(torch.randn(3, 4)).isfinite().all()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"learned": ["sparsty"]}, "unknown parameter to learn 'sparsty': did you mean 'sparsity'"),
        ({"sparsity": -1.0}, "sparsity must be finite and >= 0, got -1.0"),
        ({"damping": float("nan")}, "damping must be finite"),
        ({"damping": float("inf")}, "damping must be finite"),
        ({"damping": 0.0, "learned": ["damping"]}, "a damping that is learned must start above 0"),
        ({"damping": 0.0, "sparsity": 0.0}, "6 atoms for vectors of 4 values need a damping above 0"),
        ({"damping": 0.0, "learned": ["sparsity"]}, "6 atoms for vectors of 4 values need a damping above 0"),
        ({"damping": 0.0, "learned": ["shift"]}, "6 atoms for vectors of 4 values need a damping above 0"),
    ],
)
def test_wrong_problems(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        DictionaryLinear(4, 6, **arguments)


def test_no_more_atoms_than_values_need_no_damping() -> None:
    assert DictionaryLinear(4, 4, sparsity=0.0, damping=0.0)
    assert DictionaryConv2d(1, 9, 3, sparsity=0.0, damping=0.0)


def test_wrong_shapes() -> None:
    with pytest.raises(ValueError, match=r"expected 4 features on the last axis, got shape \(2, 5\)"):
        DictionaryLinear(4, 6)(torch.zeros(2, 5))
    with pytest.raises(ValueError, match=r"expected 4 features on the last axis, got shape \(\)"):
        DictionaryLinear(4, 6)(torch.tensor(1.0))
    with pytest.raises(ValueError, match=r"expected images \(batch, 3, height, width\), got shape \(2, 3\)"):
        DictionaryConv2d(3, 6, 3)(torch.zeros(2, 3))
    with pytest.raises(ValueError, match="kernel_size must be one number or two"):
        DictionaryConv2d(3, 6, (3, 3, 3))
    with pytest.raises(ValueError, match="atoms must be at least 1, got 0"):
        DictionaryLinear(3, 0)
    with pytest.raises(ValueError, match="in_features must be at least 1, got 0"):
        DictionaryLinear(0, 3)


def test_what_is_seen_of_a_layer() -> None:
    assert "sparsity=0.2," in repr(DictionaryLinear(4, 6, sparsity=torch.tensor(0.2)))  # type: ignore[arg-type]
    assert repr(DictionaryLinear(4, 6)) == "DictionaryLinear(4, 6, sparsity=0.1, damping=0.1)"
    conv = DictionaryConv2d(3, 6, 3, stride=2, padding=1, learned=["shift"])
    assert repr(conv) == (
        "DictionaryConv2d(3, 6, kernel_size=(3, 3), stride=(2, 2), padding=(1, 1), sparsity=0.1, damping=0.1, "
        "learned=('shift',))"
    )
    assert repr(DictionaryLinear(4, 6, device="meta")) == "DictionaryLinear(4, 6, sparsity=?, damping=?)"


def test_codes_are_those_of_the_iterative_solvers() -> None:
    x, dictionary = coding_problem(30, 16, 24)
    shift = 0.1 * torch.randn(24, dtype=torch.float64)
    layer = linear_layer(dictionary, sparsity=0.1, damping=0.05, learned=["shift"])
    layer.shift.data.copy_(shift)
    solution = prox.sparse_code(x, dictionary, 0.1, 0.05, linear=shift, tolerance=1e-13)
    torch.testing.assert_close(layer(x).detach(), solution.code, atol=1e-10, rtol=0)


@pytest.mark.parametrize("name", ["ddl3", "ddl6", "ddl9", "ddl12", "ddl15"])
def test_dictionary_networks_have_plainnet_s_shapes(name: str) -> None:
    net = detrame.create_model(name, num_classes=7, in_channels=1)
    twin = detrame.create_model(name.replace("ddl", "plainnet"), activation="relu", num_classes=7, in_channels=1)
    assert sum(p.numel() for p in net.parameters()) == sum(p.numel() for p in twin.parameters())
    assert sum(isinstance(m, DictionaryLayer) for m in net.modules()) == sum(
        isinstance(m, nn.ReLU) for m in twin.modules()
    )


def test_ddl9_has_the_published_number_of_parameters() -> None:
    assert sum(p.numel() for p in detrame.create_model("ddl9").parameters()) == pytest.approx(1.4e6, rel=0.03)


@pytest.mark.parametrize("last_activation", [False, True])
def test_a_dictionary_network_learns(last_activation: bool) -> None:
    """A few steps on a handful of images: every parameter has a gradient, and the loss falls."""
    net = detrame.create_model("ddl3", in_channels=1, num_classes=3, width=1 / 12, last_activation=last_activation)
    step = Step(net, momentum=0.9, nesterov=False, weight_decay=5e-4)
    step.set_lr(0.1)
    labels = torch.arange(12) % 3
    images = torch.rand(12, 1, 8, 8) * 0.3 + F.one_hot(labels, 8)[:, None, None] * 0.7
    losses = [step(images, labels)[0].item() for _ in range(12)]
    assert losses[-1] < 0.7 * losses[0]
    assert all(p.grad is not None and p.grad.isfinite().all() for p in net.parameters())


def test_dictionary_networks_by_name() -> None:
    assert detrame.default_recipe("ddl3", "digits").activation == "dictionary"
    assert detrame.create_model("ddl3", activation="dictionary")
    with pytest.raises(
        ValueError, match=r"ddl3 takes no activation, because its layers already give codes; got 'relu': leave it out"
    ):
        detrame.create_model("ddl3", activation="relu")
    with pytest.raises(ValueError, match="did you mean 'ddl12'"):
        detrame.create_model("ddl-12")
    with pytest.raises(ValueError, match="DDL has 3, 6, 9, 12 or more layers, got 5"):
        detrame.create_model("ddl5")


def test_deeper_plainnets_have_longer_stages() -> None:
    for depth in (13, 14, 24):
        net = detrame.create_model(f"plainnet{depth}", activation="relu")
        convolutions = [module for module in net.modules() if isinstance(module, nn.Conv2d)]
        assert len(convolutions) == depth
        assert sum(conv.stride == (2, 2) for conv in convolutions) == 3


def test_what_is_no_tensor_no_number_or_too_small_is_named() -> None:
    layer = DictionaryConv2d(1, 4, 3)
    with pytest.raises(TypeError, match="the input must be a tensor, got list"):
        layer([[0.0]])
    for height, width in ((5, 2), (2, 5)):
        with pytest.raises(ValueError, match=rf"no patch of \(3, 3\) fits into images of \({height}, {width}\)"):
            layer(torch.zeros(1, 1, height, width))
    assert layer(torch.zeros(1, 1, 3, 3)).shape == (1, 4, 1, 1)
    assert DictionaryConv2d(1, 4, 3, padding=1)(torch.zeros(1, 1, 1, 1)).shape == (1, 4, 1, 1)
    with pytest.raises(TypeError, match="sparsity must be a number, got 'x'"):
        DictionaryConv2d(1, 4, 3, sparsity="x")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"sparsity must be a number, got array\(\[1., 1.\]\)"):
        DictionaryConv2d(1, 4, 3, sparsity=np.ones(2))  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"damping must be a number, got tensor\(\[1., 1.\]\)"):
        DictionaryConv2d(1, 4, 3, damping=torch.ones(2))  # type: ignore[arg-type]
    for dtype in (torch.complex64, torch.int64):
        with pytest.raises(TypeError, match=f"dtype must be a real floating-point type, got {dtype}"):
            DictionaryLinear(3, 4, dtype=dtype)
    with pytest.raises(TypeError, match=r"kernel_size must be an int, got array\(\[3, 3\]\)"):
        DictionaryConv2d(1, 4, np.array([3, 3]))  # type: ignore[arg-type]


def test_one_parameter_to_learn_may_be_a_plain_name() -> None:
    layer = DictionaryConv2d(1, 4, 3, learned="shift")
    assert [name for name, _ in layer.named_parameters()] == ["dictionary", "shift"]


def test_the_derivative_can_be_derived_again() -> None:
    """Against finite differences: of codes, by samples, dictionary and sparsity."""
    dictionary, x = torch.randn(7, 5, dtype=torch.float64), torch.randn(4, 7, dtype=torch.float64)

    def codes(dictionary: Tensor, x: Tensor, sparsity: Tensor) -> Tensor:
        hessian = dictionary.T @ dictionary + 0.3 * torch.eye(5, dtype=torch.float64)
        return nonnegative_minimiser(hessian, x @ dictionary - sparsity)

    arguments = dictionary, x, torch.tensor(0.05, dtype=torch.float64)
    assert 0 < (codes(*arguments) > 0).double().mean() < 1
    assert torch.autograd.gradgradcheck(codes, tuple(argument.requires_grad_() for argument in arguments))


def test_a_hessian_through_a_dictionary_layer() -> None:
    layer, x = DictionaryLinear(5, 4, dtype=torch.float64), torch.randn(5, dtype=torch.float64)
    jacobian = torch.autograd.functional.jacobian(layer, x)
    hessian = torch.autograd.functional.hessian(lambda x: layer(x).square().sum() / 2, x)
    assert jacobian.any()
    torch.testing.assert_close(hessian, jacobian.mT @ jacobian)
