import operator
import random
from collections.abc import Callable
from types import MethodType
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils.parametrizations import weight_norm
from torch.utils.checkpoint import checkpoint

import detrame
from detrame.activations import QMetricReLU, q_metric_relus
from detrame.folding import LaterSteps, fold
from detrame.models.registry import listed_names


def lived_in(net: nn.Module, x: Tensor) -> nn.Module:
    """A network whose statistics and Q-Metric parameters are no longer those it started with."""
    for act in q_metric_relus(net):
        with torch.no_grad():
            act.coupling.normal_(0, 0.05)
            act.gain.uniform_(0.5, 1)
            act.threshold.uniform_(0, 0.1)
            act.project_()
    for module in net.modules():
        if isinstance(module, nn.modules.batchnorm._BatchNorm):
            nn.init.uniform_(module.weight, 0.5, 1.5)
            nn.init.normal_(module.bias, 0, 0.1)
    net.train()
    net(x)
    return net.eval()


@pytest.mark.parametrize("activation", ["relu", "qmetric"])
@pytest.mark.parametrize("name", [n for n in listed_names() if n not in ("resnet110", "resnet164")])
def test_a_folded_network_gives_the_same_outputs(name: str, activation: str) -> None:
    x = torch.rand(8, 3, 16, 16)
    net = lived_in(detrame.create_model(name, activation=activation, iterations=3, width=0.25), x)
    folded = fold(net)
    with torch.no_grad():
        expected = net(x)
        torch.testing.assert_close(folded(x), expected, rtol=1e-3, atol=1e-4 * expected.abs().max().item())
    if not name.startswith("wide"):
        assert not any(isinstance(m, nn.BatchNorm2d) for m in folded.modules())
    assert any(isinstance(m, nn.BatchNorm2d) for m in net.modules())


@pytest.mark.parametrize("network", ["ddl3", "plainnet3:lista", "plainnet3:slstm"])
def test_networks_of_the_other_methods_fold(network: str) -> None:
    name, _, activation = network.partition(":")
    x = torch.rand(8, 3, 16, 16)
    net = lived_in(detrame.create_model(name, activation=activation or None, width=0.1), x)
    with torch.no_grad():
        expected = net(x)
        torch.testing.assert_close(fold(net)(x), expected, rtol=1e-3, atol=1e-4 * expected.abs().max().item())


def test_the_first_step_of_a_1x1_coupling_is_folded() -> None:
    folded = fold(lived_in(detrame.create_model("plainnet9", width=0.1), torch.rand(4, 3, 8, 8)))
    (later,) = [m for m in folded.modules() if isinstance(m, LaterSteps)]
    assert later.applications == later.iterations - 1
    assert sum(isinstance(m, QMetricReLU) for m in folded.modules()) == 7


def test_norms_alone_leave_q_metric_relus_of_which_a_dictionary_can_be_read() -> None:
    net = detrame.create_model("plainnet9", pretrained="cifar10")
    folded, images = fold(net, first_steps=False), torch.rand(2, 3, 32, 32)
    torch.testing.assert_close(folded(images), net(images), rtol=1e-4, atol=1e-4)
    assert not any(isinstance(module, nn.BatchNorm2d | LaterSteps) for module in folded.modules())
    layers = [module for module in folded.modules() if isinstance(module, nn.Conv2d | QMetricReLU)]
    conv, activation = layers[-3:-1]  # the last one with an activation, which is 1x1
    assert isinstance(conv, nn.Conv2d)
    assert isinstance(activation, QMetricReLU)
    assert 0 < detrame.nearest_dictionary(conv, activation).distance < 1


@pytest.mark.parametrize("groups", [1, 2])
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("iterations", [1, 3])
def test_feature_vectors_fold_exactly(groups: int, bias: bool, iterations: int) -> None:
    act = QMetricReLU(6, dim=0, groups=groups, iterations=iterations, init="random")
    net = nn.Sequential(nn.Linear(4, 6, bias=bias), act, nn.Linear(6, 6), nn.BatchNorm1d(6)).double().eval()
    x = torch.randn(5, 4, dtype=torch.float64)
    torch.testing.assert_close(fold(net)(x), net(x), rtol=1e-12, atol=1e-12)


def test_a_layer_that_serves_twice_is_left_alone() -> None:
    class Twice(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv, self.norm = nn.Conv2d(3, 3, 1), nn.BatchNorm2d(3)

        def forward(self, x: Tensor) -> Tensor:
            z = self.conv(x)
            return self.norm(z) + z

    x = torch.rand(4, 3, 5, 5)
    net = lived_in(Twice(), x)
    torch.testing.assert_close(fold(net)(x), net(x))


def test_only_networks_fold() -> None:
    with pytest.raises(TypeError, match=r"model must be an nn\.Module, got str"):
        fold("plainnet3")  # type: ignore[arg-type]


def coupled(*, dim: int, **options: Any) -> QMetricReLU:
    return QMetricReLU(6, 1 if dim else None, dim=dim, iterations=4, init="random", **options)


def lived_in_norm(norm: nn.BatchNorm1d | nn.BatchNorm2d) -> nn.Module:
    nn.init.uniform_(norm.weight, 0.5, 1.5)
    return norm


@pytest.mark.parametrize(
    ("before", "activation", "shape"),
    [
        (nn.Conv2d(6, 6, 1, groups=2), coupled(dim=2), (2, 6, 5, 5)),
        (nn.Linear(5, 5), coupled(dim=1), (2, 6, 5)),
        (nn.Conv2d(3, 6, 1), coupled(dim=0), (2, 3, 5, 6)),
        (nn.Conv2d(6, 6, 1), coupled(dim=2, tolerance=0.1), (2, 6, 5, 5)),
        (nn.Conv2d(6, 6, 1), nn.BatchNorm2d(6, track_running_stats=False), (2, 6, 5, 5)),
        (nn.Linear(5, 6), lived_in_norm(nn.BatchNorm2d(6)), (2, 6, 4, 5)),
        (nn.Linear(5, 6), lived_in_norm(nn.BatchNorm1d(4)), (2, 4, 5)),
    ],
    ids=["groups", "pixels and channels", "channels and pixels", "tolerance", "no statistics", "images", "points"],
)
def test_what_does_not_fold_is_left_alone(before: nn.Module, activation: nn.Module, shape: tuple[int, ...]) -> None:
    net, x = nn.Sequential(before, activation).double().eval(), torch.randn(shape, dtype=torch.float64)
    folded = fold(net)
    torch.testing.assert_close(folded(x), net(x), rtol=1e-12, atol=1e-12)
    assert type(folded.get_submodule("1")) is type(activation)


class Tied(nn.Module):
    """An autoencoder whose decoder is the transpose of its encoder."""

    def __init__(self, after: nn.Module) -> None:
        super().__init__()
        self.encoder, self.after = nn.Linear(3, 6), after

    def forward(self, x: Tensor) -> Tensor:
        """The input again."""
        code: Tensor = self.after(self.encoder(x))
        return code @ self.encoder.weight


class ByName(nn.Sequential):
    """Calls its layers with named arguments."""

    def forward(self, input: Tensor) -> Tensor:
        first, second = self
        return second(input=first(input=input))


@pytest.mark.parametrize(
    ("net", "shape", "stays"),
    [
        (Tied(coupled(dim=0)), (9, 3), QMetricReLU),
        (Tied(nn.BatchNorm1d(6)), (9, 3), nn.BatchNorm1d),
        (nn.Sequential(nn.Linear(3, 6), nn.BatchNorm1d(6, affine=False)), (9, 3), nn.Linear),
        (nn.Sequential(nn.Conv2d(3, 6, 3), nn.BatchNorm2d(6, affine=False)), (2, 3, 5, 5), nn.Conv2d),
        (nn.Sequential(weight_norm(nn.Conv2d(3, 6, 3)), nn.BatchNorm2d(6)), (2, 3, 5, 5), nn.BatchNorm2d),
        (nn.Sequential(weight_norm(nn.Conv2d(3, 6, 3), "bias"), nn.BatchNorm2d(6)), (2, 3, 5, 5), nn.BatchNorm2d),
        (ByName(nn.Linear(3, 6), nn.BatchNorm1d(6)), (9, 3), nn.BatchNorm1d),
    ],
    ids=["tied", "tied with a norm", "no affine", "no affine, convolution", "weight norm", "norm of the bias", "named"],
)
def test_layers_of_others_that_fold_or_stay(net: nn.Module, shape: tuple[int, ...], stays: type) -> None:
    """What stays is the last of the layers that the folded network calls."""
    net, x = net.double(), torch.randn(shape, dtype=torch.float64)
    net.train()(x)  # for statistics
    net.eval()
    folded = fold(net)
    torch.testing.assert_close(folded(x), net(x), rtol=1e-10, atol=1e-10)
    *_, last = (node for node in folded.graph.nodes if node.op == "call_module")
    assert type(folded.get_submodule(last.target)) is stays


class Doubled(QMetricReLU):
    """A subclass with a forward pass of its own."""

    def forward(self, input: Tensor) -> Tensor:
        return 2 * super().forward(input)


def hooked(index: int) -> nn.Sequential:
    net = nn.Sequential(nn.Conv2d(6, 6, 1), nn.BatchNorm2d(6), nn.Conv2d(6, 6, 1), coupled(dim=2))
    net[index].register_forward_hook(lambda module, args, out: out.abs() + 1)
    return net


def with_forward_of_its_own() -> nn.Sequential:
    net = nn.Sequential(nn.Conv2d(6, 6, 1), nn.BatchNorm2d(6))
    net[0].forward = MethodType(lambda self, x: 2 * nn.Conv2d.forward(self, x).abs(), net[0])
    return net


@pytest.mark.parametrize(
    "net",
    [
        nn.Sequential(nn.Conv2d(6, 6, 1), Doubled(6, 1, init="random")),
        *map(hooked, range(4)),
        with_forward_of_its_own(),
    ],
)
def test_code_that_a_folded_layer_would_not_run_is_run(net: nn.Module) -> None:
    x = torch.randn(2, 6, 5, 5)
    net(x)  # for statistics
    net.eval()
    torch.testing.assert_close(fold(net)(x), net(x))


class Unlike(nn.Module):
    """A layer, and something that its trace would not do."""

    def __init__(self, forward: Callable[[nn.Module, Tensor], Tensor]) -> None:
        super().__init__()
        self.layers, self.then = nn.Sequential(nn.Conv2d(3, 6, 1), nn.BatchNorm2d(6)), forward

    def forward(self, x: Tensor) -> Tensor:
        return self.then(self, self.layers(x))


def hooked_outside() -> nn.Module:
    net = nn.Sequential(nn.Sequential(nn.Conv2d(3, 6, 1), nn.BatchNorm2d(6)))
    net[0].register_forward_hook(lambda module, args, out: 2 * out)
    return net


def keeping(net: nn.Module, y: Tensor) -> Tensor:
    net.last = y
    return y


def aliased(net: nn.Module, y: Tensor) -> Tensor:
    kept = y
    y *= 2
    return y + kept


def aliased_number(net: nn.Module, y: Tensor) -> Tensor:
    size = kept = y.shape[1]
    size //= 2
    return y[:, :size] * kept


def summed(net: nn.Module, y: Tensor) -> Tensor:
    total = torch.zeros(6, 1, 1)
    total += y.mean((0, 2, 3))[:, None, None]
    return total + y


def put_together(net: nn.Module, y: Tensor) -> Tensor:
    both = torch.zeros(2, 6)
    both[0] = y.mean((0, 2, 3))
    return both + y.sum()


def without_gradients(net: nn.Module, y: Tensor) -> Tensor:
    with torch.no_grad():
        return 2 * y


def without_autocast(net: nn.Module, y: Tensor) -> Tensor:
    with torch.autocast("cpu", enabled=False):
        return y.float() @ y.float()


@pytest.mark.parametrize(
    ("net", "reason"),
    [
        (Unlike(lambda net, y: y + torch.rand(1)), "random numbers"),
        (Unlike(lambda net, y: y if random.random() < 0.5 else 2 * y), "random numbers"),
        (Unlike(lambda net, y: y * float(np.random.rand())), "random numbers"),
        (Unlike(keeping), "keeps in attributes"),
        (Unlike(aliased_number), "ifloordiv assigns to what is read under another name"),
        (Unlike(summed), "would be made only once"),
        (Unlike(put_together), "would be made only once"),
        (Unlike(without_gradients), "a block without gradients"),
        (Unlike(without_autocast), "with its own autocast"),
        (hooked_outside(), "hooks or a forward pass of 0 itself"),
    ],
    ids=[
        *("random numbers", "random branches", "numpy's random numbers", "attributes", "a number under two names"),
        *("a sum of its own", "a tensor of its own", "no gradients", "no autocast", "hooks"),
    ],
)
def test_what_a_trace_would_lose_is_said(net: nn.Module, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        fold(net)


def test_checkpoints_are_no_matter_in_evaluation() -> None:
    net = Unlike(lambda net, y: checkpoint(torch.relu, y, use_reentrant=False)).eval()
    x = torch.randn(2, 3, 5, 5)
    torch.testing.assert_close(fold(net)(x), net(x))


def on_tensors(y: Tensor) -> Tensor:
    before = y.sum()
    y += 1
    y -= 3
    y *= 2
    y /= 3
    y //= 0.1
    y %= 5
    y **= 2
    y @= torch.ones(5, 5)
    return y + before


def on_numbers(y: Tensor) -> Tensor:
    size = y.shape[0]
    size <<= 4
    size |= 3
    size ^= 1
    size &= 62
    size >>= 1
    return y * size


@pytest.mark.parametrize("assigning", [on_tensors, on_numbers])
def test_assignments_that_change_what_is_there(assigning: Callable[[Tensor], Tensor]) -> None:
    net, x = Unlike(lambda net, y: assigning(y)).eval(), torch.randn(2, 3, 5, 5)
    folded = fold(net)
    assert any(node.target in (operator.imul, operator.ilshift) for node in folded.graph.nodes)
    with torch.no_grad():
        torch.testing.assert_close(folded(x), net(x))


def test_what_is_written_in_place_and_read_again() -> None:
    class Reading(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = nn.Sequential(nn.Conv2d(3, 6, 1), nn.BatchNorm2d(6))

        def forward(self, x: Tensor) -> Tensor:
            y: Tensor = self.layers(x)
            y.permute(0, 2, 3, 1).relu_()
            return y

    net, x = Reading().eval(), torch.randn(2, 3, 5, 5)
    with torch.no_grad():
        torch.testing.assert_close(fold(net)(x), net(x))


class Optional(nn.Module):
    """Arguments of all kinds that are left out."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Conv2d(3, 6, 1), nn.BatchNorm2d(6))

    def forward(
        self,
        x: Tensor,
        labels: Tensor | None = None,
        *,
        pooled: bool = True,
        dims: tuple[int, ...] = (2, 3),
        scale: float = 2.0,
    ) -> Tensor:
        y: Tensor = scale * self.layers(x)
        return y.mean(dims) if labels is None and pooled else y.flatten(1)


def test_arguments_that_are_left_out_keep_their_defaults() -> None:
    net, x = Optional().eval(), torch.randn(2, 3, 5, 5)
    folded = fold(net)
    torch.testing.assert_close(folded(x), net(x))
    with pytest.raises(AssertionError, match="labels has been specialized to have value None"):
        folded(x, torch.zeros(2))


def test_a_layer_s_output_changes_under_its_other_name_too() -> None:
    net, x = Unlike(aliased).eval(), torch.randn(2, 3, 5, 5)
    torch.testing.assert_close(fold(net)(x), net(x))


class Weighted(nn.Module):
    """A network with a number and a switch among its arguments."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Conv2d(2, 3, 1), nn.BatchNorm2d(3))

    def forward(self, x: Tensor, alpha: float = 0.5, double: bool = False) -> Tensor:
        out: Tensor = alpha * self.layers(x)
        return 2 * out if double else out


def test_a_number_can_still_be_given_to_a_folded_network() -> None:
    model, x = Weighted().eval(), torch.randn(2, 2, 3, 3)
    folded = fold(model)
    torch.testing.assert_close(folded(x), model(x))
    torch.testing.assert_close(folded(x, alpha=0.3), model(x, alpha=0.3))
