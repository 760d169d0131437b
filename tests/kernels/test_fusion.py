"""The fused pass is the network's own, or leaves it alone: networks of users' kinds, against the plain pass."""

import copy
import random
from collections.abc import Callable
from types import MethodType
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

pytest.importorskip("triton", reason="needs Triton, which this PyTorch came without")

import detrame
from detrame import inference
from detrame.activations import QMetricReLU
from detrame.errors import TooLarge
from detrame.fusion import Fused, fused
from detrame.inference import Predictor
from detrame.modes import evaluating

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


@pytest.fixture(autouse=True)
def float32_in_full(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)


def conv(inputs: int = 3, outputs: int = 8, kernel: int = 1) -> nn.Conv2d:
    return nn.Conv2d(inputs, outputs, kernel, padding=kernel // 2, bias=False)


class Net(nn.Module):
    """Two convolutions, a norm and a ReLU, in the order that a function says."""

    def __init__(self, order: Callable[[Any, Tensor], Tensor]) -> None:
        super().__init__()
        self.order = order
        self.c, self.d, self.n, self.r = conv(), conv(), nn.BatchNorm2d(8), nn.ReLU()
        self.p = nn.Parameter(torch.randn(1, 8, 1, 1))

    def forward(self, x: Tensor) -> Tensor:
        return self.order(self, x)


def in_place(net: Any, x: Tensor) -> Tensor:
    y = net.n(net.c(x))
    y += net.d(x)
    return net.r(y) + net.p


def sum_scaled_in_place(net: Any, x: Tensor) -> Tensor:
    y, shortcut = net.c(x), net.d(x)
    y += shortcut
    y *= 2
    return net.r(net.n(y)) + shortcut + net.p


def norms_and_relus_in_turn(net: Any, x: Tensor) -> Tensor:
    first, second = net.n(net.c(x)), net.n(net.d(2 * x))
    second = net.r(second)  # after which the first is read: where it is fused, its statistics would move then
    return net.r(first) + second + net.p


def statistics_read_between(net: Any, x: Tensor) -> Tensor:
    y = net.n(net.c(x))
    mean = net.n.running_mean.mean()
    return net.r(y) * mean + net.d(x) + net.p


ORDERS: dict[str, Callable[[Any, Tensor], Tensor]] = {
    "a residual that broadcasts": lambda s, x: s.r(s.n(s.c(x)) + s.p) + s.d(x),
    "a sum that broadcasts": lambda s, x: s.r(s.n(s.c(x) + s.p)) + s.d(x),
    "a residual in another layout": lambda s, x: s.r(s.n(s.c(x)) + (s.d(x) + s.p).contiguous()),
    "a scaled residual": lambda s, x: s.r(torch.add(s.n(s.c(x)), s.d(x), alpha=0.5)) + s.p,
    "a scaled sum": lambda s, x: s.r(s.n(torch.add(s.c(x), s.d(x), alpha=0.5))) + s.p,
    "a sum in place": in_place,
    "a sum scaled in place": sum_scaled_in_place,
    "a sum with itself": lambda s, x: (lambda y: s.r(s.n(y + y)) + s.d(x) + s.p)(s.c(x)),
    "a residual of itself": lambda s, x: (lambda y: s.r(y + y) + s.d(x) + s.p)(s.n(s.c(x))),
    "a named argument": lambda s, x: s.r(s.n(s.c(input=x))) + s.d(x) + s.p,
    "a sum of which only itself is used": lambda s, x: (lambda y: s.r(s.n(y)).detach() + y + s.p)(s.c(x) + s.d(x)),
    "a block that normalises first": lambda s, x: (lambda y: y + s.r(s.n(y)) + s.p)(s.c(x) + s.d(x)),
    "a norm whose result is used twice": lambda s, x: (lambda y: s.r(y) * y + s.d(x) + s.p)(s.n(s.c(x))),
    "a norm called twice": lambda s, x: s.r(s.n(s.c(x))) + s.r(s.n(s.d(x))) + s.p,
    "a norm called twice, in turn with its ReLU": norms_and_relus_in_turn,
    "statistics read between": statistics_read_between,
    "a convolution called twice": lambda s, x: s.r(s.n(s.c(x))) + s.c(2 * x) + s.d(x) + s.p,
    "a convolution without gradient": lambda s, x: s.r(s.n(s.c(x))) + s.d(x).detach() + s.p,
}


def aliased(net: Any, x: Tensor) -> Tensor:
    y = net.c(x)
    kept = y
    y += net.d(x)
    return net.r(net.n(y)) + kept + net.p


def aliased_product(net: Any, x: Tensor) -> Tensor:
    y = net.c(x)
    kept = y
    y *= 2
    return net.r(net.n(y)) + kept + net.d(x) + net.p


def shortcut_in_place(net: Any, x: Tensor) -> Tensor:
    shortcut = net.d(x)
    out = net.n(net.c(x)) + shortcut
    shortcut.relu_()
    return net.r(out) + shortcut + net.p


def shortcut_through_a_view(net: Any, x: Tensor) -> Tensor:
    shortcut = net.d(x)
    out = net.n(net.c(x)) + shortcut
    shortcut.permute(0, 2, 3, 1).relu_()
    return net.r(out) + shortcut + net.p


def read_before_and_after(net: Any, x: Tensor) -> Tensor:
    y = net.c(x)
    out = net.d(x) + y
    torch.relu_(y)
    return net.r(net.n(out)) + y + net.p


def summed_in_a_tensor_of_its_own(net: Any, x: Tensor) -> Tensor:
    total = torch.zeros(3, 8, 4, 4, device=DEVICE)
    total += net.r(net.n(net.c(x)))
    return total + net.d(x) + net.p


def partly_without_gradients(net: Any, x: Tensor) -> Tensor:
    with torch.no_grad():
        y = net.c(x)
    return net.r(net.n(y)) + net.d(x) + net.p


def partly_without_autocast(net: Any, x: Tensor) -> Tensor:
    y = net.r(net.n(net.c(x)))
    with torch.autocast(DEVICE, enabled=False):
        return net.d(x) + y.float() + net.p


LEFT_ALONE: dict[str, Callable[[Any, Tensor], Tensor]] = {
    "a sum under two names": aliased,
    "a product under two names": aliased_product,
    "a shortcut in place": shortcut_in_place,
    "a shortcut through a view": shortcut_through_a_view,
    "read before it is written": read_before_and_after,
    "summed in a tensor of its own": summed_in_a_tensor_of_its_own,
    "partly without gradients": partly_without_gradients,
    "partly without autocast": partly_without_autocast,
}


def same(net: nn.Module, x: Tensor, *, fuses: bool = True) -> None:
    """The same output, gradients and statistics as the plain pass in training, and then the same in evaluation.

    By a pass of which something `fuses`; otherwise it is the network's own, since an error would look the same.
    """
    net = net.to(DEVICE).train()
    twin = copy.deepcopy(net)
    x = x.to(DEVICE)
    ours = fused(net, torch.float32)
    assert isinstance(ours, Fused) == fuses
    results = [model(x) for model in (ours, twin)]
    for result in results:
        result.square().sum().backward()
    torch.testing.assert_close(*results, rtol=1e-4, atol=1e-4)
    for (name, mine), theirs in zip(net.named_parameters(), twin.parameters(), strict=True):
        assert (mine.grad is None) == (theirs.grad is None), name
        if mine.grad is not None:
            torch.testing.assert_close(mine.grad, theirs.grad, rtol=1e-3, atol=1e-3, msg=name)
    for a, b in zip(net.buffers(), twin.buffers(), strict=True):
        torch.testing.assert_close(a, b)
    same_in_evaluation(net, x, fuses=fuses)


@torch.no_grad()
def same_in_evaluation(net: nn.Module, x: Tensor, *, fuses: bool = True) -> nn.Module:
    """The fused pass of a network in eval mode, after a look that it is the plain one and changes nothing."""
    with evaluating(net):
        before = {name: tensor.clone() for name, tensor in net.state_dict().items()}
        ours = fused(net, torch.float32)
        assert isinstance(ours, Fused) == fuses
        torch.testing.assert_close(ours(x), net(x), rtol=1e-5, atol=1e-5)
    for name, tensor in net.state_dict().items():
        assert torch.equal(tensor, before[name]), name
    return ours


def called(ours: nn.Module) -> list[type[nn.Module]]:
    """Of which kinds the modules are that a fused pass calls, in order."""
    assert isinstance(ours, Fused)
    nodes = [node for node in ours.graph.graph.nodes if node.op == "call_module"]
    return [type(ours.graph.get_submodule(str(node.target))) for node in nodes]


@pytest.mark.parametrize("order", ORDERS)
def test_networks_of_every_order(order: str) -> None:
    torch.manual_seed(0)
    same(Net(ORDERS[order]), torch.randn(3, 3, 4, 4))


@pytest.mark.parametrize("order", LEFT_ALONE)
def test_what_a_fused_pass_would_do_otherwise_is_left_alone(order: str) -> None:
    torch.manual_seed(0)
    same(Net(LEFT_ALONE[order]), torch.randn(3, 3, 4, 4), fuses=False)


@pytest.mark.parametrize(
    "order",
    [lambda s, x: s.r(s.n(s.c(x.relu_()))), lambda s, x: s.r(s.n(s.c(x))) + s.d.weight.data.relu_().mean()],
    ids=["the input", "a parameter"],
)
def test_a_pass_that_writes_what_it_did_not_make_is_left_alone(order: Callable[[Any, Tensor], Tensor]) -> None:
    net = Net(order)
    assert fused(net, torch.float32) is net


class Doubled(QMetricReLU):
    """A subclass with a forward pass of its own."""

    def forward(self, input: Tensor) -> Tensor:
        return 2 * super().forward(input)


class FrozenNorm(nn.Sequential):
    """Its norm stays in eval mode."""

    def train(self, mode: bool = True) -> "FrozenNorm":
        super().train(mode)
        self[1].eval()
        return self


def frozen() -> QMetricReLU:
    activation = QMetricReLU(8, 1, init="random")
    activation.coupling.requires_grad_(False)
    activation.gain.requires_grad_(False)
    return activation


def hooked(index: int, activation: nn.Module) -> nn.Sequential:
    net = nn.Sequential(conv(), nn.BatchNorm2d(8), activation, conv(8))
    net[index].register_forward_hook(lambda module, args, out: 2 * out)
    return net


def hooked_outside() -> nn.Sequential:
    net = nn.Sequential(nn.Sequential(conv(), nn.BatchNorm2d(8)), nn.ReLU())
    net.register_forward_pre_hook(lambda module, args: (2 * args[0] + 1,))
    net[0].register_forward_hook(lambda module, args, out: 3 * out)
    return net


def with_forward_of_its_own(place: Callable[[nn.Sequential], nn.Module]) -> nn.Sequential:
    net = nn.Sequential(conv(), nn.BatchNorm2d(8), nn.ReLU())
    module = place(net)
    module.forward = MethodType(lambda self, x: 2 * type(self).forward(self, x) + 1, module)
    return net


def then_norm(layer: nn.Conv2d, **attributes: Any) -> nn.Sequential:
    """A layer and a norm, of which some attributes were set by hand."""
    norm = nn.BatchNorm2d(layer.out_channels)
    for name, value in attributes.items():
        setattr(norm, name, value)
    return nn.Sequential(layer, norm, nn.ReLU())


LAYERS: dict[str, Callable[[], nn.Module]] = {
    "a subclass": lambda: nn.Sequential(conv(), nn.BatchNorm2d(8), Doubled(8, 1, init="random")),
    "a norm in eval mode": lambda: FrozenNorm(conv(), nn.BatchNorm2d(8), nn.ReLU()),
    "a hook of a convolution": lambda: hooked(0, nn.ReLU()),
    "a hook of a norm": lambda: hooked(1, nn.ReLU()),
    "a hook of a ReLU": lambda: hooked(2, nn.ReLU()),
    "a hook of a Q-Metric ReLU": lambda: hooked(2, QMetricReLU(8, 1, init="random")),
    "no batch norm": lambda: nn.Sequential(conv(), nn.GroupNorm(2, 8), nn.ReLU()),
    "a norm of all time": lambda: nn.Sequential(conv(), nn.BatchNorm2d(8, momentum=None), nn.ReLU()),
    "a norm without parameters": lambda: nn.Sequential(conv(), nn.BatchNorm2d(8, affine=False), nn.ReLU()),
    "a norm without statistics": lambda: then_norm(conv(), running_mean=None, running_var=None),
    "a norm whose statistics rest": lambda: then_norm(conv(), track_running_stats=False),
    "in place": lambda: nn.Sequential(conv(), nn.BatchNorm2d(8), nn.ReLU(inplace=True), conv(8), nn.ReLU(inplace=True)),
    "in place after nothing": lambda: nn.Sequential(conv(), nn.Identity(), nn.ReLU(inplace=True)),
    "frozen parameters": lambda: nn.Sequential(conv().requires_grad_(False), nn.BatchNorm2d(8), frozen()),
    "groups": lambda: nn.Sequential(conv(), nn.BatchNorm2d(8), QMetricReLU(8, 1, groups=2, init="random")),
    "an oblong coupling": lambda: nn.Sequential(conv(), nn.BatchNorm2d(8), QMetricReLU(8, (1, 3), init="random")),
    "a diagonal": lambda: nn.Sequential(
        conv(), nn.BatchNorm2d(8, momentum=0.3, eps=0.01), QMetricReLU(8, 1, 6, init="random", zero_diagonal=False)
    ),
}


@pytest.mark.parametrize("layers", LAYERS)
def test_layers_of_every_kind(layers: str) -> None:
    torch.manual_seed(0)
    same(LAYERS[layers](), torch.randn(3, 3, 4, 4))


def test_a_norm_of_what_no_kernel_computed_is_left() -> None:
    ours = fused(nn.Sequential(nn.BatchNorm2d(3), conv(), nn.BatchNorm2d(8)), torch.float32)
    assert called(ours).count(nn.BatchNorm2d) == 1


PLAIN_LAYERS: dict[str, Callable[[], nn.Module]] = {
    "groups": lambda: then_norm(nn.Conv2d(3, 6, 3, groups=3, bias=False)),
    "padding around": lambda: then_norm(nn.Conv2d(3, 8, 3, padding=1, padding_mode="circular", bias=False)),
    "padding by name": lambda: then_norm(nn.Conv2d(3, 8, 3, padding="same", bias=False)),
    "dilation": lambda: then_norm(nn.Conv2d(3, 8, 3, padding=2, dilation=2, bias=False)),
    "an oblong kernel": lambda: then_norm(nn.Conv2d(3, 8, (3, 1), padding=1, bias=False)),
    "an oblong stride": lambda: then_norm(nn.Conv2d(3, 8, 3, stride=(2, 1), padding=1, bias=False)),
    "oblong padding": lambda: then_norm(nn.Conv2d(3, 8, 3, padding=(1, 0), bias=False)),
    "hooks of what is looked into": hooked_outside,
    "a convolution with a forward pass of its own": lambda: with_forward_of_its_own(lambda net: net[0]),
    "a network with a forward pass of its own": lambda: with_forward_of_its_own(lambda net: net),
}


@pytest.mark.parametrize("layers", PLAIN_LAYERS)
def test_layers_that_the_kernels_do_not_know(layers: str) -> None:
    torch.manual_seed(0)
    same(PLAIN_LAYERS[layers](), torch.randn(3, 3, 4, 4), fuses=False)


@pytest.mark.parametrize("given", ["labels=None", "pooled=True"])
def test_arguments_that_are_left_out_keep_their_defaults(given: str) -> None:
    class Optional(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = nn.Sequential(conv(), nn.BatchNorm2d(8))

    class Labels(Optional):
        def forward(self, x: Tensor, labels: Tensor | None = None) -> Tensor:
            y: Tensor = self.layers(x)
            return y.mean((2, 3)) if labels is None else y.flatten(1)

    class Pooled(Optional):
        def forward(self, x: Tensor, *, pooled: bool = True) -> Tensor:
            y: Tensor = self.layers(x)
            return y.mean((2, 3)) if pooled else y.flatten(1)

    same(Labels() if given == "labels=None" else Pooled(), torch.randn(3, 3, 4, 4))


@pytest.mark.parametrize("activation", ["relu", "qmetric"])
@pytest.mark.parametrize("training", [True, False])
def test_a_norm_reads_what_it_is_given(activation: str, training: bool) -> None:
    """In float32, that is: in half precision nothing would be left of what lies beside a large mean."""
    torch.manual_seed(0)
    net = Net(lambda s, x: s.a(s.n(s.c(x) + 1000 * s.p.detach())))
    net.a = nn.ReLU() if activation == "relu" else QMetricReLU(8, 5, 3, init="random")
    net = net.to(DEVICE)
    x = torch.randn(4, 3, 6, 6, device=DEVICE)
    net.n.momentum = 1.0
    net(x)  # so that the statistics are those of the batch
    net.train(training)
    twin = copy.deepcopy(net)
    with torch.set_grad_enabled(training):
        ours = fused(net, torch.float16)
        assert isinstance(ours, Fused)
        results = [ours(x).float(), twin(x)]
    torch.testing.assert_close(*results, rtol=0.01, atol=0.02)
    if training:
        for result in results:
            result.square().mean().backward()
        for (name, mine), theirs in zip(net.named_parameters(), twin.parameters(), strict=True):
            if mine.grad is not None:
                assert theirs.grad is not None
                torch.testing.assert_close(mine.grad, theirs.grad, rtol=0.02, atol=0.02, msg=name)


@pytest.mark.parametrize("activation", ["relu", "qmetric"])
@pytest.mark.parametrize("training", [True, False])
def test_a_network_that_diverged_is_seen_to_have(activation: str, training: bool) -> None:
    net = detrame.create_model("resnet8", activation=activation, width=0.1).to(DEVICE).train(training)
    with torch.no_grad():
        next(net.parameters()).fill_(torch.nan)
        assert fused(net, torch.float32)(torch.rand(2, 3, 4, 4, device=DEVICE)).isnan().all()


@pytest.mark.parametrize(
    "drawn",
    [
        lambda: torch.rand(8, 1, 1, device=DEVICE),
        lambda: 2 if float(torch.rand((), device=DEVICE)) < 0.5 else 3,
        lambda: 2 if random.random() < 0.5 else 3,
    ],
    ids=["a tensor", "a branch", "a branch by Python"],
)
def test_random_numbers_of_the_forward_pass_stay_random(drawn: Callable[[], Tensor | int]) -> None:
    net = Net(lambda s, x: s.r(s.n(s.c(x))) * drawn()).to(DEVICE)
    assert fused(net, torch.float32) is net


def test_a_network_is_traced_in_the_mode_it_is_in() -> None:
    net = Net(lambda s, x: F.dropout(s.r(s.n(s.c(x))), 0.5, s.training)).to(DEVICE)
    x = torch.randn(8, 3, 4, 4, device=DEVICE)
    assert (fused(net, torch.float32)(x) == 0).float().mean() > 0.6
    same_in_evaluation(net, x)
    assert net.training


BIASES: dict[str, Callable[[], nn.Module]] = {
    "alone": lambda: nn.Sequential(nn.Conv2d(3, 8, 3, stride=2, padding=1)),
    "then ReLU": lambda: nn.Sequential(nn.Conv2d(3, 8, 1), nn.ReLU(inplace=True), nn.Conv2d(8, 10, 1)),
    "then a norm": lambda: nn.Sequential(nn.Conv2d(3, 8, 1), nn.BatchNorm2d(8), nn.ReLU()),
    "then a Q-Metric ReLU": lambda: nn.Sequential(nn.Conv2d(3, 8, 1), QMetricReLU(8, 3, 3, init="random")),
    "used twice": lambda: (lambda layer: nn.Sequential(layer, nn.ReLU(), layer, nn.ReLU()))(nn.Conv2d(3, 3, 1)),
}


@pytest.mark.parametrize("layers", BIASES)
def test_a_bias_is_served_in_evaluation(layers: str) -> None:
    net = BIASES[layers]().to(DEVICE)
    same_in_evaluation(net, torch.randn(3, 3, 5, 4, device=DEVICE))
    assert fused(net, torch.float32) is net


def test_a_tolerance_is_kept_in_evaluation() -> None:
    net = nn.Sequential(conv(), nn.BatchNorm2d(8), QMetricReLU(8, 1, 20, init="random", tolerance=0.5)).to(DEVICE)
    same_in_evaluation(net, torch.randn(3, 3, 4, 4, device=DEVICE))


def trained(name: str, activation: str) -> nn.Module:
    """A narrow network whose parameters and statistics are none of those it started with."""
    net = detrame.create_model(name, activation=activation, width=0.1)
    generator = torch.Generator().manual_seed(0)
    for module in net.modules():
        if isinstance(module, nn.BatchNorm2d):
            for tensor in (module.weight.data, module.bias.data, module.running_mean, module.running_var):
                assert tensor is not None
                tensor.copy_(0.5 + torch.rand(tensor.shape, generator=generator))
        if isinstance(module, QMetricReLU):
            module.coupling.data.copy_(0.1 * torch.randn(module.coupling.shape, generator=generator))
            module.threshold.data.fill_(0.1)
            module.gain.data.fill_(0.9)
            module.project_()
    return net.to(DEVICE)


@pytest.mark.parametrize("activation", ["relu", "qmetric"])
@pytest.mark.parametrize(
    "name",
    [
        "plainnet3",
        "resnet8",
        *[pytest.param(n, marks=pytest.mark.slow) for n in ("plainnet9", "resnet20", "wideresnet16_4")],
    ],
)
def test_whole_networks_in_evaluation(name: str, activation: str) -> None:
    net, x = trained(name, activation), torch.rand(2, 3, 4, 4, device=DEVICE)
    ours = same_in_evaluation(net, x)
    assert net.training
    with torch.no_grad():
        for parameter in net.parameters():
            parameter.mul_(0.9)  # in place: seen by the pass that was fused before
        with evaluating(net):
            torch.testing.assert_close(ours(x), net(x), rtol=1e-5, atol=1e-5)
    folded = same_in_evaluation(detrame.fold(net), x)
    for fast in (ours, folded):
        assert not {nn.Conv2d, nn.BatchNorm2d, nn.ReLU, QMetricReLU}.intersection(called(fast))


def test_the_plain_pass_where_there_is_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    class Branching(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x if x.sum() > 0 else -x

    branching, net = Branching(), nn.Sequential(conv(), nn.BatchNorm2d(8), nn.ReLU())
    assert Predictor(branching)._pass is branching
    assert isinstance(Predictor(net)._pass, Fused)
    assert net.training
    monkeypatch.setattr(inference, "find_spec", lambda name: None)
    assert Predictor(net)._pass is net


def test_a_tensor_beyond_the_kernels_reach() -> None:
    net = nn.Sequential(conv()).to(DEVICE)
    with pytest.raises(TooLarge, match="take a smaller batch_size"):
        fused(net, torch.float32)(torch.zeros(1, device=DEVICE).expand(2**28, 3, 1, 1))


@pytest.mark.filterwarnings("ignore:This overload of add is deprecated")
def test_a_sum_scaled_by_an_argument_of_old_is_no_plain_sum() -> None:
    same(Net(lambda s, x: s.r(s.n(torch.add(s.c(x), 2, s.d(x)))) + s.p), torch.randn(4, 3, 8, 8))


def test_an_output_beyond_the_kernels_reach() -> None:
    net = nn.Sequential(nn.Conv2d(3, 8, 1, padding=1 << 14, bias=False)).to(DEVICE)
    with pytest.raises(TooLarge, match="take a smaller batch_size"):
        fused(net, torch.float32)(torch.zeros(1, 3, 1, 1, device=DEVICE))


class Keeping(nn.Module):
    """Keeps its last output, and in a list and a dict all there were."""

    def __init__(self, *kept: str) -> None:
        super().__init__()
        self.layers, self.kept = nn.Sequential(conv(), nn.BatchNorm2d(8), nn.ReLU()), kept
        self.listed: list[Tensor] = []
        self.named: dict[str, Tensor] = {"first": torch.zeros(1)}

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.layers(x)
        if "last" in self.kept:
            self.last = y
        if "listed" in self.kept:
            self.listed.append(y)
        if "named" in self.kept:
            self.named["first"] = y
        return y


@pytest.mark.parametrize("kept", ["last", "listed", "named"])
def test_a_network_that_keeps_something_of_its_pass_is_left_alone(kept: str) -> None:
    net = Keeping(kept).to(DEVICE)
    assert isinstance(fused(Keeping().to(DEVICE), torch.float32), Fused)
    for times in range(2):
        assert fused(net, torch.float32) is net
        assert hasattr(net, "last") == (kept == "last" and times > 0)
        assert len(net.listed) == (times if kept == "listed" else 0)
        assert list(net.named) == ["first"]
        assert all(isinstance(value, Tensor) for value in (*net.listed, *net.named.values()))
        net(torch.zeros(2, 3, 4, 4, device=DEVICE))
    assert kept != "last" or isinstance(net.last, Tensor)


def test_one_value_for_a_channel_has_no_variance() -> None:
    net = nn.Sequential(conv(), nn.BatchNorm2d(8), nn.ReLU()).to(DEVICE)
    net.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    with pytest.raises(ValueError, match="more than one value for a channel"):
        fused(net, torch.float32)(torch.randn(1, 3, 1, 1, device=DEVICE))
