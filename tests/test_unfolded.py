"""LISTA and SLSTM: their equations, their start, and that the rest of the library takes them as a Q-Metric ReLU."""

import copy
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import detrame
from detrame import LISTA, SLSTM, QMetricReLU, cli, operators
from detrame.activations import CoupledReLU, q_metric_relus
from detrame.functional import q_metric_relu
from detrame.inference import layer_codes, predict
from detrame.models import cost
from tests.conftest import STRUCTURES, dense_matrix, problem

Kind = type[LISTA] | type[SLSTM]
UNFOLDED: dict[str, Kind] = {"lista": LISTA, "slstm": SLSTM}


@pytest.fixture(params=UNFOLDED)
def kind(request: pytest.FixtureRequest) -> Kind:
    return UNFOLDED[request.param]


@pytest.fixture(params=STRUCTURES)
def structure(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def module(kind: Kind, structure: str, **options: Any) -> tuple[LISTA | SLSTM, Tensor]:
    """The activation in float64, as built, and an input that fits."""
    shape, input_shape = STRUCTURES[structure]
    dim, groups = len(shape) - 2, shape[0] // shape[1]
    act = kind(shape[0], list(shape[2:]) if dim else None, dim=dim, groups=groups, dtype=torch.float64, **options)
    return act, torch.randn(input_shape, dtype=torch.float64)


def randomised(act: LISTA | SLSTM) -> LISTA | SLSTM:
    with torch.no_grad():
        for parameter in act.parameters():
            parameter.normal_(std=0.2)
    return act


def lista_literal(act: LISTA, z: Tensor) -> Tensor:
    """Gregor and LeCun's loop: B = We X, Z(0) = h(B), C(t) = B + S Z(t-1), Z(t) = h(C(t))."""
    s, b, flat = *as_matrices(z, act.coupling, act.threshold), flattened(act, z)
    u = (flat - b).clamp(min=0)
    for _ in range(act.iterations):
        u = (flat + u @ s.T - b).clamp(min=0)
    return u.reshape(z.shape)


def slstm_literal(act: SLSTM, z: Tensor) -> Tensor:
    s, b, flat = *as_matrices(z, act.coupling, act.threshold), flattened(act, z)

    def gate(parameters: nn.Module, u: Tensor) -> Tensor:
        from_input, bias = as_matrices(z, parameters.from_input, parameters.bias)  # type: ignore[arg-type]
        from_code, _ = as_matrices(z, parameters.from_code, parameters.bias)  # type: ignore[arg-type]
        return 1 / (1 + torch.exp(-(flat @ from_input.T + u @ from_code.T + bias)))

    c, u = flat, (flat - b).clamp(min=0)
    for _ in range(act.iterations):
        c = gate(act.forget_gate, u) * c + gate(act.input_gate, u) * (flat + u @ s.T)
        u = (c - b).clamp(min=0)
    return u.reshape(z.shape)


def as_matrices(z: Tensor, coupling: Tensor, vector: Tensor) -> tuple[Tensor, Tensor]:
    matrix = dense_matrix(coupling, tuple(z.shape[2:]) if coupling.ndim > 2 else ())
    return matrix, vector.repeat_interleave(len(matrix) // len(vector))


def flattened(act: CoupledReLU, z: Tensor) -> Tensor:
    return z.flatten(1) if act.coupling.ndim > 2 else z.flatten(0, -2)


def test_starts_as_relu(kind: Kind, structure: str) -> None:
    act, z = module(kind, structure)
    assert torch.equal(act(z), z.relu())
    randomised(act).reset_parameters()
    assert torch.equal(act(z), z.relu())


@pytest.mark.parametrize("iterations", [1, 3])
def test_the_published_equations(kind: Kind, structure: str, iterations: int) -> None:
    act, z = module(kind, structure, iterations=iterations)
    randomised(act)
    literal = lista_literal(act, z) if isinstance(act, LISTA) else slstm_literal(act, z)
    torch.testing.assert_close(act(z), literal)


def test_lista_with_ista_s_weights_converges_to_the_code() -> None:
    """The fixed point is the minimiser: its gradient is 0 on the support and not negative off it."""
    dictionary, x, sparsity = torch.randn(6, 8, dtype=torch.float64), torch.randn(4, 6, dtype=torch.float64), 0.3
    gram = dictionary.T @ dictionary
    largest = torch.linalg.eigvalsh(gram)[-1]
    act = LISTA(8, dim=0, iterations=20_000, dtype=torch.float64)
    with torch.no_grad():
        act.coupling.copy_(torch.eye(8) - gram / largest)
        act.threshold.fill_(sparsity / largest)
        code = act(x @ dictionary / largest)
    gradient = code @ gram - x @ dictionary + sparsity
    assert (code >= 0).all()
    assert 0 < (code > 0).double().mean() < 1
    assert gradient[code > 0].abs().max() < 1e-8
    assert gradient[code == 0].min() > -1e-8


def test_slstm_with_open_input_and_shut_forget_gate_is_lista() -> None:
    lista, z = module(LISTA, "conv2d", iterations=3)
    randomised(lista)
    slstm, _ = module(SLSTM, "conv2d", iterations=3)
    slstm.load_state_dict(lista.state_dict(), strict=False)
    with torch.no_grad():
        slstm.input_gate.bias.fill_(50)  # type: ignore[union-attr, operator]
        slstm.forget_gate.bias.fill_(-50)  # type: ignore[union-attr, operator]
    torch.testing.assert_close(slstm(z), lista(z))


def test_a_q_metric_relu_is_lista_after_one_more_linear_map(structure: str) -> None:
    """With Y = (diag(h) - W) Z in the place of Z, and one iteration less: the first one is linear up to its ReLU."""
    z, coupling, gain, threshold = problem(structure)
    lista, _ = module(LISTA, structure, iterations=2)
    lista.load_state_dict({"coupling": coupling, "threshold": threshold})
    y = operators.apply(operators.add_diagonal(-coupling, gain), z)
    torch.testing.assert_close(lista(y), q_metric_relu(z, coupling, gain, threshold, iterations=3))


def test_gradients_agree_with_finite_differences(kind: Kind) -> None:
    act, z = module(kind, "conv1d, groups", iterations=2)
    randomised(act)
    names = [name for name, _ in act.named_parameters()]

    def call(z: Tensor, *values: Tensor) -> Tensor:
        return torch.func.functional_call(act, dict(zip(names, values, strict=True)), (z,))

    values = [p.detach().clone().requires_grad_() for p in act.parameters()]
    assert torch.autograd.gradcheck(call, (z.requires_grad_(), *values))


def test_every_parameter_learns_from_the_start(kind: Kind) -> None:
    act, z = module(kind, "conv2d", iterations=1)
    (act(z) * torch.randn_like(z)).sum().backward()
    assert all(p.grad is not None and p.grad.any() for p in act.parameters())


def test_autocast_follows_the_input(kind: Kind) -> None:
    act = kind(4)
    z = torch.randn(2, 4, 5, 5)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert act(z.bfloat16()).dtype == torch.bfloat16


def test_compiles_without_graph_breaks(kind: Kind) -> None:
    act, z = module(kind, "conv2d")
    randomised(act)
    torch._dynamo.reset()
    compiled = torch.compile(act, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(compiled(z), act(z))


def test_multiply_adds_by_hand() -> None:
    z, one = (4, 5, 5), 4 * 9 * 4 * 25
    assert cost(LISTA(4, iterations=3), z) == (4 * 4 * 9 + 4, 3 * one)
    assert cost(SLSTM(4, iterations=3), z) == (5 * 4 * 4 * 9 + 3 * 4, (3 * 3 + 2) * one)


@pytest.mark.parametrize("name", UNFOLDED)
def test_networks_are_folded_measured_and_left_by_convert(name: str) -> None:
    net = detrame.create_model("plainnet3", activation=name, in_channels=1, width=0.1).eval()
    for act in net.modules():
        if isinstance(act, LISTA | SLSTM):
            randomised(act)
    images = torch.rand(3, 1, 8, 8)
    expected = predict(net, images)
    torch.testing.assert_close(predict(detrame.fold(net), images), expected, rtol=1e-4, atol=1e-5)
    codes = layer_codes(net, images)
    assert [len(layer.residuals) for layer in codes] == [0, 0]
    assert all(0 < layer.sparsity < 1 for layer in codes)
    with pytest.warns(UserWarning, match="the network has no ReLU"):
        converted = detrame.convert(copy.deepcopy(net), images)
    assert not q_metric_relus(converted)
    torch.testing.assert_close(predict(converted, images), expected)


def test_the_codes_of_a_dictionary_network_are_measured_too() -> None:
    net = detrame.create_model("ddl3", in_channels=1, width=0.1)
    codes = layer_codes(net, torch.rand(3, 1, 8, 8))
    assert [len(layer.residuals) for layer in codes] == [0, 0]
    assert all(0 < layer.sparsity < 1 for layer in codes)


def test_codes_are_measured_by_their_zeros_and_changes_and_nothing_stays_in_the_network() -> None:
    act = QMetricReLU(1, iterations=3, init="random")
    net, images = nn.Sequential(nn.ReLU(), act), torch.tensor([0.0, 0.5, 0.25, 1.0]).reshape(1, 1, 2, 2)
    relu, qmetric = layer_codes(net, images)
    assert (relu.sparsity, len(relu.residuals)) == (0.25, 0)
    u, changes = q_metric_relu(images, act.coupling, act.gain, act.threshold, 3, return_residuals=True)
    torch.testing.assert_close(qmetric.residuals, changes / u.max())
    assert not any(module._forward_hooks for module in net.modules())


def test_runs_are_trained_summed_up_and_reported(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for activation in ("relu", *UNFOLDED):
        command = ["train", "plainnet3", "--activation", activation, "--epochs", "1", "--set", "width=0.05"]
        assert cli.run([*command, "--out", str(tmp_path / activation)]) == 0
    assert "plainnet3 slstm T=2" in capsys.readouterr().out
    assert cli.run(["report", str(tmp_path), "--out", str(tmp_path / "page.html")]) == 0
    page = (tmp_path / "page.html").read_text()
    assert "LISTA" in page
    assert "SLSTM" in page


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"iterations": 0}, "iterations must be at least 1, got 0"),
        ({"kernel_size": 2}, "kernel_size must be odd"),
        ({"groups": 3}, "groups must divide channels"),
        ({"dim": 4}, "dim must be 0"),
    ],
)
def test_wrong_arguments(kind: Kind, options: dict[str, Any], complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        kind(4, **options)


def test_a_wrong_input_is_refused(kind: Kind) -> None:
    with pytest.raises(ValueError, match="expected 4 channels on axis 1"):
        kind(4)(torch.zeros(1, 3, 5, 5))


def test_printed(kind: Kind) -> None:
    text = repr(kind(4, 3, 2, dim=1, groups=2))
    assert text.startswith(f"{kind.__name__}(")
    assert "4, kernel_size=(3,), iterations=2, dim=1, groups=2" in text
