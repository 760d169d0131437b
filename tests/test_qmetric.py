import copy
import io
import shutil
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, fx, nn
from torch.func import functional_call, grad, stack_module_state, vmap
from torch.nn.utils import parametrize, prune

import detrame
from detrame import QMetricReLU, operators
from detrame.activations import INITIALISATIONS
from detrame.functional import q_metric_relu
from tests.conftest import STRUCTURES, literal


def module(structure: str, *, init: str = "random", iterations: int = 3, **options: Any) -> tuple[QMetricReLU, Tensor]:
    shape, input_shape = STRUCTURES[structure]
    dim, groups = len(shape) - 2, shape[0] // shape[1]
    kernel = list(shape[2:]) if dim else None
    act = QMetricReLU(shape[0], kernel, iterations, dim=dim, groups=groups, init=init, **options)
    return act, torch.randn(input_shape)


@pytest.fixture(params=STRUCTURES)
def structure(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def test_the_contract_of_the_design() -> None:
    act = QMetricReLU(96, kernel_size=3, iterations=2)
    assert {name: tuple(p.shape) for name, p in act.named_parameters()} == {
        "coupling": (96, 96, 3, 3),
        "gain": (96,),
        "threshold": (96,),
    }
    assert QMetricReLU(64, dim=0, iterations=3).coupling.shape == (64, 64)
    assert QMetricReLU(8, dim=1, groups=4).coupling.shape == (8, 2, 3)
    assert QMetricReLU(8, (1, 3, 5), dim=3).coupling.shape == (8, 8, 1, 3, 5)


def test_starts_as_relu(structure: str) -> None:
    act, z = module(structure, init="relu")
    assert torch.equal(act(z), z.relu())


@pytest.mark.parametrize("init", INITIALISATIONS)
def test_every_initialisation_meets_the_constraints(init: str) -> None:
    act, _ = module("conv2d, groups", init=init)
    assert_projected(act)
    assert (act.coupling != 0).any() == (init != "relu")
    assert (act.gain != 1).any() == (init == "random")


def test_the_random_initialisation_fills_its_ranges() -> None:
    act, bound = QMetricReLU(8, 3, init="random", dtype=torch.float64), (8 * 9) ** -0.5
    assert {p.dtype for p in act.parameters()} == {torch.float64}
    for values, low, high in ((act.coupling, -bound, bound), (act.gain, 0, 1), (act.threshold, 0, bound)):
        margin = 0.3 * (high - low)
        assert low <= values.min() < low + margin
        assert high - margin < values.max() <= high


def test_reset_parameters_starts_again() -> None:
    act, z = module("conv2d", init="relu")
    with torch.no_grad():
        act.coupling.fill_(0.1)
    act.reset_parameters()
    assert torch.equal(act(z), z.relu())


def test_forward_is_the_function(structure: str) -> None:
    act, z = module(structure)
    expected = literal(z, act.coupling, act.gain, act.threshold, 3)[-1]
    torch.testing.assert_close(act(z), expected)


def test_tolerance_is_for_evaluation_only() -> None:
    act, z = module("conv2d", iterations=30, tolerance=0.5)
    exact = module("conv2d", iterations=30)[0]
    exact.load_state_dict(act.state_dict())
    assert torch.equal(act.train()(z), exact(z))
    assert (act.train().capturable, act.eval().capturable, exact.eval().capturable) == (True, False, True)
    assert not torch.equal(act.eval()(z), exact(z))


@pytest.mark.parametrize("iterations", [1, 3])
def test_autocast_returns_half_precision_and_keeps_no_second_copy(structure: str, iterations: int) -> None:
    act, z = module(structure, iterations=iterations)
    z = z.bfloat16().requires_grad_()
    kept = []

    def keep(tensor: Tensor) -> Tensor:
        if tensor.numel() == z.numel() and tensor.shape != act.coupling.shape:
            kept.append(tensor)
        return tensor

    with torch.autocast("cpu", dtype=torch.bfloat16), torch.autograd.graph.saved_tensors_hooks(keep, lambda t: t):
        u = act(z)
    assert u.dtype == torch.bfloat16
    assert {t.dtype for t in kept} == {torch.bfloat16}
    assert len({t.untyped_storage().data_ptr() for t in kept}) == 1 + iterations
    torch.testing.assert_close(u.float(), act(z.float()), rtol=0.05, atol=0.05)
    u.float().sum().backward()
    assert act.coupling.grad is not None
    assert act.coupling.grad.dtype == torch.float32


def test_channels_last_stays_channels_last() -> None:
    act, z = module("conv2d")
    fast = z.contiguous(memory_format=torch.channels_last)
    assert act(fast).is_contiguous(memory_format=torch.channels_last)
    torch.testing.assert_close(act(fast), act(z))


def test_compiles_without_graph_breaks(structure: str) -> None:
    act, z = module(structure)
    torch._dynamo.reset()
    compiled = torch.compile(act, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(compiled(z), act(z))


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("g++") is None, reason="torch.compile needs a C++ compiler on the CPU")
def test_compiled_training_equals_eager() -> None:
    act, z = module("conv2d")
    twin = copy.deepcopy(act)
    for run in (act, torch.compile(twin, fullgraph=True)):
        run(z).square().sum().backward()
    for (name, p), q in zip(act.named_parameters(), twin.parameters(), strict=True):
        torch.testing.assert_close(q.grad, p.grad, msg=name)


def test_exports_with_a_free_batch_size(structure: str) -> None:
    act, z = module(structure)
    z = torch.cat([z, z])
    program = torch.export.export(act.eval(), (z,), dynamic_shapes=({0: torch.export.Dim("batch")},))
    for inputs in (z, torch.cat([z, z])):
        torch.testing.assert_close(program.module()(inputs), act(inputs))


@pytest.mark.skipif(not hasattr(torch.compiler, "is_exporting"), reason="PyTorch 2.6 cannot tell that it exports")
def test_a_tolerance_is_not_for_export() -> None:
    act, z = module("conv2d", tolerance=0.1)
    with pytest.raises(ValueError, match=r"an exported program cannot: leave out tolerance=0.1"):
        torch.export.export(act.eval(), (z,))
    torch.export.export(act.train(), (z,))  # where it does nothing


@pytest.mark.filterwarnings("ignore:`torch.jit.trace:DeprecationWarning")
@pytest.mark.parametrize("kind", [QMetricReLU, detrame.LISTA, detrame.SLSTM])
@pytest.mark.parametrize("structure", [name for name in STRUCTURES if name.startswith("conv")])
def test_torch_jit_traces_convolutions_without_a_warning(kind: Callable[..., nn.Module], structure: str) -> None:
    shape, input_shape = STRUCTURES[structure]
    act = kind(shape[0], shape[2:], dim=len(shape) - 2, groups=shape[0] // shape[1])
    for parameter in act.parameters():
        nn.init.uniform_(parameter, 0, 0.1)
    z = torch.randn(input_shape)
    traced = torch.jit.trace(act, (z,))
    more = torch.cat([z, -z])
    torch.testing.assert_close(traced(more), act(more))


def test_symbolic_tracing_takes_it_whole(structure: str) -> None:
    act, z = module(structure)
    graph = fx.symbolic_trace(nn.Sequential(act, nn.Identity()))
    assert [node.target for node in graph.graph.nodes if node.op == "call_function"] == [q_metric_relu]
    torch.testing.assert_close(graph(z), act(z))


def test_vmap_over_inputs_and_over_networks(structure: str) -> None:
    act, z = module(structure)
    stacked = torch.stack([z, 2 * z, -z])
    torch.testing.assert_close(vmap(act)(stacked), torch.stack([act(one) for one in stacked]))
    acts = [module(structure)[0] for _ in range(3)]
    parameters, buffers = stack_module_state(acts)
    together = vmap(lambda p, b, x: functional_call(act, (p, b), (x,)))(parameters, buffers, stacked)
    torch.testing.assert_close(together, torch.stack([a(x) for a, x in zip(acts, stacked, strict=True)]))


@pytest.mark.parametrize("name", ["coupling", "gain", "threshold"])
def test_functional_gradient_of_one_parameter_alone(name: str) -> None:
    act, z = module("conv2d")
    loss = grad(lambda p: functional_call(act, {name: p}, (z,)).square().sum())
    act(z).square().sum().backward()
    torch.testing.assert_close(loss(act.get_parameter(name).detach()), act.get_parameter(name).grad)


def test_deepcopy_state_dict_and_repr() -> None:
    act, z = module("conv2d, groups", tolerance=1e-3, zero_diagonal=False)
    twin = copy.deepcopy(act)
    assert torch.equal(twin(z), act(z))
    assert twin.coupling is not act.coupling
    file = io.BytesIO()
    torch.save(act.state_dict(), file)
    file.seek(0)
    other = module("conv2d, groups")[0].eval()
    other.load_state_dict(torch.load(file, weights_only=True))
    assert list(act.state_dict()) == ["coupling", "gain", "threshold"]
    torch.testing.assert_close(other(z), act(z))
    expected = "4, kernel_size=(3, 3), iterations=3, groups=2, zero_diagonal=False, tolerance=0.001"
    assert repr(act) == f"QMetricReLU({expected})"
    assert repr(QMetricReLU(4, dim=0)) == "QMetricReLU(4, dim=0, iterations=2)"
    assert repr(QMetricReLU(4, dim=1)) == "QMetricReLU(4, kernel_size=(3,), iterations=2, dim=1)"


def assert_projected(act: QMetricReLU) -> None:
    assert (operators.diagonal(act.coupling) == 0).all()
    assert act.gain.min() >= 0
    assert act.gain.max() <= 1
    assert act.threshold.min() >= 0


def spoilt(**options: Any) -> QMetricReLU:
    act, _ = module("conv2d, groups", **options)
    with torch.no_grad():
        for p in act.parameters():
            p.normal_(0, 3)
    return act


def test_projection_is_the_nearest_point_of_the_constraints() -> None:
    act = spoilt()
    coupling, gain, threshold = (p.detach().clone() for p in act.parameters())
    detrame.project_(nn.Sequential(nn.Linear(2, 2), nn.ModuleList([act])))
    assert_projected(act)
    operators.diagonal(coupling).zero_()
    assert torch.equal(act.coupling, coupling)
    assert torch.equal(act.gain, gain.clamp(0, 1))
    assert torch.equal(act.threshold, threshold.clamp(min=0))


def test_projection_respects_a_coupling_with_a_diagonal() -> None:
    act = spoilt(zero_diagonal=False)
    before = act.coupling.detach().clone()
    detrame.project_(act)
    assert torch.equal(act.coupling, before)
    assert act.threshold.min() >= 0


def test_a_subclass_projects_by_itself() -> None:
    class Wider(QMetricReLU):
        def project_(self) -> None:
            gain = self.gain.detach().clamp(0, 2)
            super().project_()
            self.gain.data.copy_(gain)

    acts = Wider(4), QMetricReLU(4)
    for act in acts:
        act.coupling.data.fill_(1)
        act.gain.data.fill_(5)
    detrame.project_(nn.Sequential(*acts))
    for act, gain in zip(acts, (2, 1), strict=True):
        assert (operators.diagonal(act.coupling) == 0).all()
        assert act.gain.tolist() == [gain] * 4


def test_modules_of_others_are_not_taken_for_constrained_ones() -> None:
    class Onto(nn.Module):
        def project_(self, points: Tensor) -> None:
            raise AssertionError("a method of the same name, and of another meaning")

    class Wrapper(nn.Module):
        """Has what the module inside has, as those of torch.compile do."""

        def __init__(self, inside: nn.Module) -> None:
            super().__init__()
            self.inside = inside

        def __getattr__(self, name: str) -> Any:
            return super().__getattr__(name) if name == "inside" else getattr(self.inside, name)

    act = spoilt()
    detrame.project_(nn.Sequential(Onto(), Wrapper(act)))
    assert_projected(act)


@pytest.mark.parametrize("name", ["coupling", "gain", "threshold"])
def test_what_is_pruned_is_projected_and_grouped_alike(name: str) -> None:
    act = spoilt()
    twin = copy.deepcopy(act)
    prune.random_unstructured(act, name, amount=1)
    detrame.project_(nn.ModuleList([act, twin]))
    for kept in ("coupling", "gain", "threshold"):
        assert torch.equal(act.get_parameter(f"{kept}_orig" if kept == name else kept), twin.get_parameter(kept))
    groups, expected = (detrame.parameter_groups(net) for net in (act, twin))
    assert [len(group["params"]) for group in groups] == [len(group["params"]) for group in expected] == [1, 2]


def test_what_is_parametrised_is_refused() -> None:
    coupling, gain = QMetricReLU(4), QMetricReLU(4)
    parametrize.register_parametrization(coupling, "coupling", nn.Tanh())
    parametrize.register_parametrization(gain, "gain", nn.Sigmoid())
    with pytest.raises(ValueError, match="cannot reach the coupling of a QMetricReLU, which is param"):
        detrame.project_(coupling)
    assert len(detrame.parameter_groups(coupling)) == 2  # a coupling is decayed, whatever is made of it
    for call in (detrame.project_, detrame.parameter_groups):
        with pytest.raises(ValueError, match="cannot reach the gain of a QMetricReLU, which is param"):
            call(gain)


def test_a_coupling_that_is_flattened_is_refused() -> None:
    act = QMetricReLU(4)
    act.coupling = nn.Parameter(act.coupling.detach().flatten())  # as FSDP1 does with use_orig_params=True
    with pytest.raises(ValueError, match="parametrised or flattened"):
        detrame.project_(act)


def test_an_optimizer_of_another_network_is_refused() -> None:
    """As one made before the network was converted: it would go on training the copy that was converted from."""
    trained = nn.Sequential(nn.Linear(4, 8), nn.ReLU())
    optimizer = torch.optim.SGD(trained.parameters(), lr=0.1)
    converted = detrame.convert(trained, torch.randn(2, 4))
    with pytest.raises(ValueError, match=r"holds no parameter of the network.* after detrame.convert, which copies"):
        detrame.project_after(optimizer, converted)
    detrame.project_after(torch.optim.SGD(list(converted.parameters())[-1:], lr=0.1), converted)  # the rest is frozen


def test_parameters_that_an_optimizer_gets_later_are_projected() -> None:
    act, z = module("conv2d")
    head = nn.Conv2d(3, 3, 1)
    optimizer = torch.optim.SGD(head.parameters(), lr=0.1)
    with pytest.raises(ValueError, match="or call add_param_group first"):
        detrame.project_after(optimizer, act)  # nothing of it is held, now
    model = nn.Sequential(act, head)
    detrame.project_after(optimizer, model)
    optimizer.add_param_group({"params": act.parameters(), "lr": 10.0})
    model(z).square().mean().backward()
    optimizer.step()
    assert_projected(act)


def test_project_after_every_step_until_removed() -> None:
    act, z = module("conv2d")
    model = nn.Sequential(nn.Conv2d(3, 3, 1), act)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    handle = detrame.project_after(optimizer, model)

    def step() -> None:
        optimizer.zero_grad()
        model(z).square().mean().backward()
        optimizer.step()

    step()
    assert_projected(act)
    handle.remove()
    step()
    assert (operators.diagonal(act.coupling) != 0).any()


def test_parameter_groups_decay_all_but_gain_and_threshold() -> None:
    act, _ = module("conv2d")
    linear = nn.Linear(2, 2)
    linear.bias.requires_grad_(False)
    decayed, free = detrame.parameter_groups(nn.ModuleList([linear, act, act]), weight_decay=0.1)
    assert [id(p) for p in decayed["params"]] == [id(linear.weight), id(act.coupling)]
    assert [id(p) for p in free["params"]] == [id(act.gain), id(act.threshold)]
    assert (decayed["weight_decay"], free["weight_decay"]) == (0.1, 0.0)
    assert [group["weight_decay"] for group in detrame.parameter_groups(nn.Linear(2, 2))] == [5e-4]


@pytest.mark.parametrize("kind", [detrame.LISTA, detrame.SLSTM])
def test_parameter_groups_decay_all_of_lista_and_slstm(kind: type[nn.Module]) -> None:
    (decayed,) = detrame.parameter_groups(kind(4))  # as in the runs whose results are stored
    assert len(decayed["params"]) == len(list(kind(4).parameters()))


@pytest.mark.parametrize("weight_decay", [-1, float("nan"), float("inf")])
def test_a_weight_decay_that_is_none(weight_decay: float) -> None:
    with pytest.raises(ValueError, match="weight_decay must be finite and >= 0, got"):
        detrame.parameter_groups(nn.Linear(2, 2), weight_decay=weight_decay)


def test_what_is_no_network_and_no_optimizer() -> None:
    net: Any = nn.Linear(2, 2)
    optimizer: Any = torch.optim.SGD(net.parameters(), lr=0.1)
    with pytest.raises(TypeError, match=r"optimizer must be a torch.optim.Optimizer, got Linear"):
        detrame.project_after(net, optimizer)
    with pytest.raises(TypeError, match=r"model must be an nn.Module, got SGD"):
        detrame.project_after(optimizer, optimizer)
    with pytest.raises(TypeError, match=r"model must be an nn.Module, got SGD"):
        detrame.project_(optimizer)
    with pytest.raises(TypeError, match=r"model must be an nn.Module, got str"):
        detrame.parameter_groups("x")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"weight_decay must be a number, got 'x'"):
        detrame.parameter_groups(net, weight_decay="x")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ({"iterations": 0}, "iterations must be at least 1, got 0"),
        ({"kernel_size": 2}, "kernel_size must be odd, so that the coupling has a centre, got 2"),
        ({"kernel_size": -3}, "got -3"),
        ({"kernel_size": (3, 4)}, r"got \(3, 4\)"),
        ({"kernel_size": (3, 3, 3)}, "has 3 axes, dim is 2"),
        ({"kernel_size": (3,)}, "has 1 axes, dim is 2"),
        ({"groups": 3}, "groups must divide channels, got groups=3 for 4 channels"),
        ({"groups": 0}, "groups must be at least 1, got 0"),
        ({"channels": 0}, "channels must be at least 1, got 0"),
        ({"dim": 4}, "dim must be 0"),
        ({"dim": 0, "kernel_size": 3}, "takes no kernel_size, got 3"),
        ({"init": "rleu"}, "unknown init 'rleu': did you mean 'relu'"),
        ({"tolerance": -1.0}, "tolerance must be a number >= 0, got -1.0"),
    ],
)
def test_bad_arguments(arguments: dict[str, object], complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        QMetricReLU(**({"channels": 4} | arguments))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ({"channels": 4.0}, "channels must be an int, got 4.0"),
        ({"channels": "4"}, "channels must be an int, got '4'"),
        ({"groups": 2.0}, "groups must be an int, got 2.0"),
        ({"kernel_size": 3.0}, "kernel_size must be an int, got 3.0"),
        ({"kernel_size": True}, "kernel_size must be an int, got True"),
        ({"iterations": 1.5}, "iterations must be an int, got 1.5"),
        ({"dim": 2.0}, "dim must be an int, got 2.0"),
        ({"tolerance": "a"}, "tolerance must be a number, got 'a'"),
        ({"dtype": torch.complex64}, r"dtype must be a real floating-point type, got torch.complex64"),
        ({"dtype": torch.int64}, r"dtype must be a real floating-point type, got torch.int64"),
    ],
)
def test_arguments_of_a_wrong_type(arguments: dict[str, object], complaint: str) -> None:
    with pytest.raises(TypeError, match=complaint):
        QMetricReLU(**({"channels": 4} | arguments))  # type: ignore[arg-type]


def test_a_numpy_integer_is_an_integer() -> None:
    assert QMetricReLU(np.int64(4), iterations=np.int64(3)).iterations == 3  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", [np.array, torch.tensor])
def test_a_kernel_size_in_an_array_or_a_tensor(kind: Any) -> None:
    assert QMetricReLU(4, kind([1, 3])).coupling.shape == (4, 4, 1, 3)
    assert QMetricReLU(4, kind(5)).coupling.shape == (4, 4, 5, 5)


def test_an_input_of_another_dtype() -> None:
    with pytest.raises(TypeError, match=r"the input is torch.float64 and the weight torch.float32"):
        QMetricReLU(4, dim=0)(torch.zeros(1, 4, dtype=torch.float64))


@pytest.mark.parametrize("z", [torch.zeros(1, 3, 4, 4), torch.zeros(4, 4)])
def test_an_input_that_does_not_fit(z: Tensor) -> None:
    with pytest.raises(ValueError, match="expected"):
        QMetricReLU(4)(z)
