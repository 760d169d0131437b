import copy
import pickle
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor, fx, nn
from torch.nn import functional as F
from torch.nn.utils.parametrizations import weight_norm
from torch.utils.checkpoint import checkpoint

import detrame
from detrame.activations import QMetricReLU, q_metric_relus
from detrame.conversion import Unconverted

IMAGES = torch.randn(2, 3, 8, 8)


class Residual(nn.Module):
    """A residual block with one shared ReLU module, as they are often written."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.norm1 = nn.Conv2d(3, 6, 5, padding=2), nn.BatchNorm2d(6)
        self.conv2, self.norm2 = nn.Conv2d(6, 6, 3, padding=1), nn.BatchNorm2d(6)
        self.shortcut = nn.Conv2d(3, 6, 1)
        self.relu = nn.ReLU(inplace=True)
        self.head = nn.Linear(6, 4)

    def forward(self, x: Tensor) -> Tensor:
        shortcut = self.shortcut(x)
        out = self.relu(self.norm1(self.conv1(x)))
        out = self.relu(self.norm2(self.conv2(out)) + shortcut)
        return self.head(out.mean((2, 3)))


class Functional(nn.Module):
    """Every way to call relu as a function, in place and not."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 4, padding=2)
        self.linear1, self.linear2 = nn.Linear(4, 5), nn.Linear(5, 5)

    def forward(self, x: Tensor) -> Tensor:
        x = F.relu(self.conv(x))
        x = torch.relu(x.mean((2, 3)))
        x = self.linear1(x).relu()
        x = self.linear2(x)
        x.relu_()
        F.relu(input=x - 0.1, inplace=True)
        return F.relu_(x - 0.1) + F.relu(x - 0.2, inplace=True)


class Branches(nn.Module):
    """Cannot be traced: what it does depends on the data."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.relu, self.unused = nn.Conv2d(3, 4, 3), nn.ReLU(), nn.ReLU()
        self.shared = nn.ReLU()

    def forward(self, x: Tensor) -> Tensor:
        x = self.relu(self.conv(x))
        if x.sum() > 0:
            x = self.shared(x - 0.1)
        return F.relu(self.shared(x - 0.1))


class Dropped(nn.Module):
    """Its forward pass differs between training and evaluation, unseen by a trace."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(3, 3)

    def forward(self, x: Tensor) -> Tensor:
        return F.dropout(F.relu(self.linear(x)), training=self.training)


def sequential() -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(3, 4, 3),
        nn.BatchNorm2d(4),
        nn.ReLU(),
        nn.Conv2d(4, 6, 1),
        nn.ReLU(True),
        nn.Flatten(),
        nn.Linear(216, 5),
    )


NETWORKS = {
    "a Sequential": sequential,
    "a residual network with a shared ReLU": Residual,
    "functional relu": Functional,
    "ours": lambda: detrame.create_model("resnet8", activation="relu"),
    "ours, wide": lambda: detrame.create_model("wideresnet10_1", activation="relu"),
}


@pytest.mark.parametrize("name", NETWORKS)
def test_outputs_are_unchanged_and_the_network_trains(name: str) -> None:
    net = NETWORKS[name]()
    before = copy.deepcopy(net.state_dict())
    converted = detrame.convert(net, IMAGES, iterations=3)
    assert converted.unconverted == []
    for x in (IMAGES, torch.randn(5, 3, 8, 8)):
        torch.testing.assert_close(converted.eval()(x), net.eval()(x), rtol=1e-5, atol=1e-5)
    acts = q_metric_relus(converted)
    assert acts
    assert {act.iterations for act in acts} == {3}
    assert not any(isinstance(m, nn.ReLU) for m in converted.modules())
    assert set(before) <= set(converted.state_dict())
    converted.train()
    optimizer = torch.optim.SGD(detrame.parameter_groups(converted), lr=0.01)
    detrame.project_after(optimizer, converted)
    old = [p.detach().clone() for p in acts[0].parameters()]
    converted(IMAGES).square().mean().backward()
    optimizer.step()
    assert any((p != q).any() for p, q in zip(acts[0].parameters(), old, strict=True))
    assert not q_metric_relus(net)
    assert all(torch.equal(before[key], value) for key, value in net.state_dict().items())


def left_in(net: nn.Module) -> list[Unconverted]:
    left = net.unconverted
    assert isinstance(left, list)
    return left


def kernels(net: nn.Module) -> list[tuple[int, ...]]:
    return [tuple(act.coupling.shape) for act in q_metric_relus(net)]


def test_channels_and_filters_come_from_the_example() -> None:
    assert kernels(detrame.convert(sequential(), IMAGES)) == [(4, 4, 3, 3), (6, 6, 1, 1)]
    # The last convolution upstream: 5x5, then the second 3x3 (the shortcut ran before it).
    assert kernels(detrame.convert(Residual(), IMAGES)) == [(6, 6, 5, 5), (6, 6, 3, 3)]
    # A 4x4 filter becomes 3x3; averages after a convolution and linear layers are feature vectors.
    assert kernels(detrame.convert(Functional(), IMAGES)) == [(4, 4, 3, 3), (4, 4), *[(5, 5)] * 5]
    assert kernels(detrame.convert(nn.Sequential(nn.ReLU()), IMAGES)) == [(3, 3, 1, 1)]
    assert kernels(detrame.convert(nn.ReLU(), IMAGES)) == [(3, 3, 1, 1)]
    assert not detrame.convert(nn.ReLU().eval(), IMAGES).training
    tokens = nn.Sequential(nn.Linear(8, 5), nn.ReLU())
    assert kernels(detrame.convert(tokens, IMAGES)) == [(5, 5)]
    line = nn.Sequential(nn.Conv1d(3, 4, 5), nn.ReLU(), nn.ConvTranspose1d(4, 2, 2), nn.ReLU())
    assert kernels(detrame.convert(line, torch.randn(1, 3, 9))) == [(4, 4, 5), (2, 2, 1)]
    volume = nn.Sequential(nn.Conv3d(1, 2, 3), nn.ReLU())
    assert kernels(detrame.convert(volume, torch.randn(1, 1, 4, 4, 4))) == [(2, 2, 3, 3, 3)]


def test_a_network_of_modules_keeps_its_class_and_modes() -> None:
    net = sequential()
    net[1].eval()
    converted = detrame.convert(net, IMAGES)
    assert type(converted) is nn.Sequential
    assert isinstance(converted[2], QMetricReLU)
    assert [m.training for m in converted] == [m.training for m in net] == [True, False, True, True, True, True, True]
    assert torch.equal(converted[1].running_mean, torch.zeros(4))  # type: ignore[arg-type]


@pytest.mark.parametrize("training", [True, False])
def test_a_traced_network_keeps_its_mode(training: bool) -> None:
    assert detrame.convert(Residual().train(training), IMAGES).training is training


def test_in_place_conversion() -> None:
    net = sequential()
    assert detrame.convert(net, IMAGES, inplace=True) is net
    assert len(q_metric_relus(net)) == 2
    functional = Functional()
    converted = detrame.convert(functional, IMAGES, inplace=True)
    assert converted.conv is functional.conv


def test_converting_again_changes_nothing() -> None:
    once = detrame.convert(Residual(), IMAGES)
    with pytest.warns(UserWarning, match="the network has no ReLU: nothing was converted"):
        twice = detrame.convert(once, IMAGES)
    assert kernels(twice) == kernels(once)
    torch.testing.assert_close(twice.eval()(IMAGES), once.eval()(IMAGES))


def test_what_cannot_be_traced_is_listed() -> None:
    with pytest.warns(UserWarning, match="4 ReLU left unconverted"):
        converted = detrame.convert(Branches(), IMAGES)
    assert isinstance(converted.relu, QMetricReLU)
    left = {entry.where: entry.reason for entry in left_in(converted)}
    assert set(left) == {"shared", "forward", "unused"}
    assert "several places, and the forward pass cannot be traced" in left["shared"]
    assert "a function call, and the forward pass cannot be traced" in left["forward"]
    assert left["unused"] == "no call of it was seen in the example's run"


class Scaled(nn.Module):
    """Likewise, in nothing but the value of a tensor."""

    def forward(self, x: Tensor) -> Tensor:
        return F.relu(x) * torch.tensor(2.0 if self.training else 1.0)


@pytest.mark.parametrize("net", [Dropped(), Scaled()])
def test_a_forward_pass_that_depends_on_the_mode_is_not_traced(net: nn.Module) -> None:
    with pytest.warns(UserWarning, match="differs between training and evaluation"):
        converted = detrame.convert(net, torch.randn(2, 3))
    assert type(converted) is type(net)


def without_gradients(net: nn.Module, x: Tensor) -> Tensor:
    with torch.no_grad():
        return F.relu(net(x))


def without_autocast(net: nn.Module, x: Tensor) -> Tensor:
    with torch.autocast("cpu", enabled=False):
        return F.relu(net(x.float()))


def with_autocast(net: nn.Module, x: Tensor) -> Tensor:
    with torch.autocast("cpu", dtype=torch.bfloat16):
        return F.relu(net(x)).float()


def checkpointed(net: nn.Module, x: Tensor) -> Tensor:
    out: Tensor = checkpoint(lambda x: F.relu(net(x)), x, use_reentrant=False)
    return out


class Reversed(torch.autograd.Function):
    """The identity, with a backward pass of its own."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x.clone()

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Tensor:
        return -grads[0]


@pytest.mark.parametrize(
    "block",
    [without_gradients, without_autocast, with_autocast, checkpointed, lambda net, x: Reversed.apply(F.relu(net(x)))],
    ids=["without gradients", "without autocast", "with autocast", "checkpointed", "a backward pass of its own"],
)
def test_blocks_that_a_trace_would_lose_are_left(block: Callable[[nn.Module, Tensor], Tensor]) -> None:
    class Blocks(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.back, self.head = nn.Linear(3, 4), nn.Linear(4, 2)

        def forward(self, x: Tensor) -> Tensor:
            out: Tensor = self.head(block(self.back, x))
            return out

    net = Blocks()
    with pytest.warns(UserWarning, match="cannot be traced .* would be lost"):
        converted = detrame.convert(net, torch.randn(5, 3))
    assert isinstance(converted, Blocks)
    assert [entry.where for entry in left_in(converted)] == ["forward"]


@pytest.mark.parametrize("inplace", [False, True])
def test_a_trace_leaves_nothing_in_the_network(inplace: bool) -> None:
    class Keeping(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.kept: list[Tensor] = []

        def forward(self, x: Tensor) -> Tensor:
            self.last = F.relu(x * torch.ones(3))
            self.kept.append(self.last)
            return self.last

    net = Keeping()
    with pytest.warns(UserWarning, match="cannot be traced .* keeps in attributes"):
        converted = detrame.convert(net, torch.randn(5, 3), inplace=inplace)
    assert type(converted) is Keeping
    assert type(converted.last) is Tensor
    assert {type(kept) for kept in converted.kept} == {Tensor}
    assert not any(name.startswith("_tensor_constant") for name in vars(converted))


def test_relus_inside_modules_that_are_not_traced_are_listed() -> None:
    net = nn.Sequential(nn.TransformerEncoderLayer(4, 2, 8, batch_first=True), nn.ReLU())
    with pytest.warns(UserWarning, match="0: inside TransformerEncoderLayer, which is not traced"):
        converted = detrame.convert(net, torch.randn(2, 3, 4))
    assert len(q_metric_relus(converted)) == 1


def test_modules_and_functions_in_blocks_that_a_trace_looks_into() -> None:
    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear, self.relu, self.tail = nn.Linear(3, 3), nn.ReLU(), nn.Sequential(nn.Linear(3, 3), nn.ReLU())

        def forward(self, x: Tensor) -> Tensor:
            return F.relu(self.tail(self.relu(self.linear(x))) - 0.1)

    converted = detrame.convert(nn.Sequential(Block(), Block()), torch.randn(2, 3))
    assert left_in(converted) == []
    names = {name.rpartition(".")[0] for name in converted.state_dict() if name.endswith("gain")}
    assert names == {"0.relu", "0.tail.1", "1.relu", "1.tail.1", "q_metric_relu_0", "q_metric_relu_1"}


@pytest.mark.parametrize("places", [1, 2])
def test_a_relu_with_hooks_is_left(places: int) -> None:
    relu, seen = nn.ReLU(), list[Tensor]()
    relu.register_forward_hook(lambda module, args, output: seen.append(output))
    net = nn.Sequential(nn.Linear(3, 3), nn.ReLU(), *[relu] * places)
    with pytest.warns(UserWarning, match="2: its hooks, or a forward pass of its own, would be lost"):
        converted = detrame.convert(net, torch.randn(2, 3), inplace=True)
    assert len(q_metric_relus(converted)) == 1
    seen.clear()
    converted(torch.randn(2, 3))
    assert len(seen) == places


@fx.wrap
def doubled(x: Tensor) -> Tensor:
    return 2 * F.relu(x)


def test_a_function_that_is_not_traced_stands_in_nothing_s_way() -> None:
    class Wrapping(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return doubled(F.relu(x) - 0.5)

    with pytest.warns(UserWarning, match="forward: inside a function, which is not traced"):
        converted = detrame.convert(Wrapping(), torch.randn(2, 3))
    assert len(q_metric_relus(converted)) == len(left_in(converted)) == 1


@pytest.mark.parametrize(
    ("net", "x", "reason"),
    [
        (nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU()), IMAGES[0], "give an example with a batch"),
        (nn.Sequential(nn.ReLU()), torch.ones(2, 3, dtype=torch.int64), "int64"),
        (nn.Sequential(nn.ReLU()), torch.ones(1, 1, 1, 1, 1, 1), r"shape \(1, 1, 1, 1, 1, 1\)"),
    ],
)
def test_tensors_no_coupling_fits(net: nn.Module, x: Tensor, reason: str) -> None:
    with pytest.warns(UserWarning, match=reason):
        converted = detrame.convert(net, x)
    assert len(left_in(converted)) == 1


def test_a_place_that_fits_beside_one_that_does_not() -> None:
    class Mixed(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return F.relu(x) + F.relu(x[None, None, None])[0, 0, 0]

    with pytest.warns(UserWarning, match="1 ReLU left unconverted"):
        converted = detrame.convert(Mixed(), torch.ones(1, 1, 1))
    assert len(q_metric_relus(converted)) == 1


class Reused(nn.Module):
    """The input of its in-place ReLU is used again, in a way of its own."""

    def __init__(self, use: Callable[[nn.Module, Tensor], Tensor]) -> None:
        super().__init__()
        self.linear, self.relu, self.use = nn.Linear(3, 3), nn.ReLU(inplace=True), use

    def forward(self, x: Tensor) -> Tensor:
        return self.use(self.relu, self.linear(x))


def alone(relu: nn.Module, z: Tensor) -> Tensor:
    relu(z)
    return z


def again(relu: nn.Module, z: Tensor) -> Tensor:
    relu(relu(z) - 0.1)
    return z


def branching(relu: nn.Module, z: Tensor) -> Tensor:
    return z + relu(z) if z.numel() else z.sum(0)


def in_part(relu: nn.Module, z: Tensor) -> Tensor:
    relu(z[:, :2])
    return z


@pytest.mark.parametrize("use", [alone, again, lambda relu, z: z + relu(z)])
def test_an_in_place_relu_whose_input_is_used_again(use: Callable[[nn.Module, Tensor], Tensor]) -> None:
    net, x = Reused(use), torch.randn(4, 3)
    converted = detrame.convert(net, x)  # a warning would be an error
    assert left_in(converted) == []
    torch.testing.assert_close(converted(x), net(x))


@dataclass
class Output:
    logits: Tensor


def test_outputs_in_a_dataclass_are_looked_at() -> None:
    net, x = Reused(lambda relu, z: Output(z + relu(z))), torch.randn(4, 3)  # type: ignore[arg-type, return-value]
    torch.testing.assert_close(detrame.convert(net, x)(x).logits, net(x).logits)


@pytest.mark.parametrize("inplace", [False, True])
@pytest.mark.parametrize(("use", "reason"), [(branching, "cannot be traced"), (in_part, "gives other outputs")])
def test_an_in_place_relu_that_only_itself_serves_is_left(use: Any, reason: str, inplace: bool) -> None:
    net, x = Reused(use), torch.randn(4, 3)
    expected = net(x)
    with pytest.warns(UserWarning, match=f"relu: what in-place ReLUs change is used again, and .*{reason}"):
        converted = detrame.convert(net, x, inplace=inplace)
    assert [entry.where for entry in left_in(converted)] == ["relu"]
    assert torch.equal(converted(x), expected)
    assert converted.relu.inplace  # type: ignore[union-attr]


def test_a_network_that_is_random_in_evaluation_is_converted_with_a_warning() -> None:
    net = Reused(lambda relu, z: relu(z + torch.rand(3)))
    with pytest.warns(UserWarning, match="outputs differ on the example: is it random in eval mode"):
        converted = detrame.convert(net, torch.randn(4, 3))
    assert len(q_metric_relus(converted)) == 1


def test_several_arguments_half_precision_and_autocast() -> None:
    class Two(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear, self.relu = nn.Linear(3, 4), nn.ReLU()

        def forward(self, x: Tensor, options: dict[str, Tensor]) -> Tensor:
            with torch.autocast("cpu", dtype=torch.bfloat16, enabled=x.dtype == torch.float32):
                return self.relu(self.linear(x + options["shift"]))

    example = (torch.randn(2, 3), {"shift": torch.randn(3)})
    converted = detrame.convert(Two(), example)
    assert converted.relu.coupling.dtype == torch.float32  # type: ignore[union-attr]
    converted = detrame.convert(Two().double(), (example[0].double(), {"shift": torch.zeros(3).double()}))
    assert converted.relu.coupling.dtype == torch.float64  # type: ignore[union-attr]


class Optional(nn.Module):
    """An argument that the example leaves out, a constant, and a buffer."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(3, 3)
        self.unused = nn.Linear(2, 2)
        self.scale: Tensor
        self.register_buffer("scale", torch.ones(3))
        self.register_buffer("spare", torch.ones(1), persistent=False)
        self.token = nn.Parameter(torch.zeros(1))

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        x = F.relu(self.linear(x)) * torch.tensor([1.0, 2.0, 3.0]) * self.scale
        return x if mask is None else x * mask


@pytest.mark.parametrize("inplace", [False, True])
def test_optional_arguments_constants_and_buffers(inplace: bool) -> None:
    net, x = Optional(), torch.randn(4, 3)
    names = set(net.state_dict())
    converted = detrame.convert(net, x, inplace=inplace)
    assert left_in(converted) == []
    assert names <= set(converted.state_dict())
    assert set(converted.state_dict()) - names == {f"q_metric_relu_0.{p}" for p in ("coupling", "gain", "threshold")}
    assert not any(name.startswith("_tensor_constant") for name in vars(net))
    converted.scale.fill_(2)  # type: ignore[operator]
    scale = 1 if inplace else 2
    torch.testing.assert_close(converted(x), scale * net(x))


def test_a_network_with_an_optional_argument_can_be_pickled() -> None:
    converted, x = detrame.convert(Optional(), torch.randn(4, 3)), torch.randn(4, 3)
    twin = pickle.loads(pickle.dumps(pickle.loads(pickle.dumps(converted))))
    torch.testing.assert_close(twin(x), converted(x))
    with pytest.raises(AssertionError, match="mask has been specialized to have value None"):
        twin(x, torch.ones(3))
    assert left_in(detrame.convert(Residual(), IMAGES)) == []  # which could not be traced any more


class Switched(nn.Module):
    """Arguments that are given by name, as one that can be given in no other way."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(3, 3)

    def forward(self, x: Tensor, mask: Tensor | None = None, *, pooled: bool = True) -> Tensor:
        x = F.relu(self.linear(x))
        x = x if mask is None else x * mask
        return x.mean(0) if pooled else x


def test_arguments_that_are_left_out_can_be_given_by_name() -> None:
    converted, x = detrame.convert(Switched(), torch.randn(4, 3)), torch.randn(4, 3)
    assert left_in(converted) == []
    for net in (converted, pickle.loads(pickle.dumps(converted)), detrame.fold(converted.eval())):
        torch.testing.assert_close(net(x, mask=None, pooled=True), converted(x))
        with pytest.raises(AssertionError, match="pooled has been specialized to have value True"):
            net(x, pooled=False)


def test_a_network_converted_with_an_optional_argument_folds() -> None:
    x, mask = torch.randn(4, 3), torch.randn(3)
    converted = detrame.convert(Optional(), (x, mask)).eval()
    torch.testing.assert_close(detrame.fold(converted)(x, mask), converted(x, mask))


def test_a_traced_network_can_be_copied_with_its_list() -> None:
    converted = detrame.convert(Residual(), IMAGES).eval()
    for twin in (copy.deepcopy(converted), pickle.loads(pickle.dumps(converted))):
        assert left_in(twin) == []
        assert torch.equal(twin(IMAGES), converted(IMAGES))


class Stateful(nn.Module):
    """A block with every kind of state, used and not."""

    def __init__(self) -> None:
        super().__init__()
        self.linear, self.unused = nn.Linear(3, 3), nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2))
        self.spare = nn.Parameter(torch.zeros(1))
        self.plain = torch.ones(3)
        self.scale: Tensor
        self.shift: Tensor
        self.register_buffer("scale", torch.ones(3))
        self.register_buffer("shift", torch.zeros(3), persistent=False)
        self.register_buffer("count", torch.zeros(1))
        self.register_buffer("cache", torch.zeros(1), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        return F.relu(self.linear(x) * self.plain * self.scale + self.shift)


class Shared(nn.Module):
    """A block under three names, one of them in a list that the forward pass does not use."""

    def __init__(self) -> None:
        super().__init__()
        self.block, self.relu = Stateful(), nn.ReLU()
        self.again, self.blocks, self.activation = self.block, nn.ModuleList([self.block]), self.relu

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.activation(self.again(self.block(x)))
        return out


def pickled(net: nn.Module) -> nn.Module:
    twin: nn.Module = pickle.loads(pickle.dumps(net))
    return twin


@pytest.mark.parametrize(
    "copied",
    [
        lambda net: net,
        copy.deepcopy,
        pickled,
        lambda net: pickled(pickled(net)),
        lambda net: copy.deepcopy(pickled(net)),
    ],
)
def test_a_traced_network_keeps_the_whole_state(copied: Callable[[nn.Module], nn.Module]) -> None:
    net = Shared().eval()
    net.block.linear.train()
    converted = copied(detrame.convert(net, torch.randn(4, 3)))
    added = {
        name for name, _ in converted.named_parameters() if name.rpartition(".")[2] in ("coupling", "gain", "threshold")
    }
    assert len(added) == 6  # the block, whose layer is called twice, has one
    assert set(converted.state_dict()) - added == set(net.state_dict())
    assert {name for name, _ in net.named_buffers()} <= {name for name, _ in converted.named_buffers()}
    assert converted.again is converted.block
    assert not any(isinstance(module, nn.ReLU) for module in converted.modules())
    assert {module for module in converted.modules() if module.training} == {converted.get_submodule("block.linear")}
    with torch.no_grad():
        net.block.linear.weight.fill_(2)
    converted.load_state_dict(net.state_dict(), strict=False)
    x = torch.randn(4, 3)
    torch.testing.assert_close(converted(x), net(x))


class BothSigns(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(4, 3, 3, 3))

    def forward(self, x: Tensor) -> Tensor:
        y = F.conv2d(x, self.weight)
        return torch.cat([F.relu(y), F.relu(-y)], 1)  # two places after one layer


class Siamese(nn.Module):
    def __init__(self, encoder: nn.Module) -> None:
        super().__init__()
        self.encoder = encoder

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        difference: Tensor = self.encoder(x) - self.encoder(y)
        return difference


@pytest.mark.parametrize(
    ("encoder", "couplings"),
    [
        (nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU()), 1),
        (nn.Sequential(weight_norm(nn.Conv2d(3, 4, 3)), nn.ReLU()), 1),
        (BothSigns(), 2),
    ],
    ids=["modules", "parametrised", "functions"],
)
def test_an_encoder_that_is_called_twice_stays_shared(encoder: nn.Module, couplings: int) -> None:
    net, (x, y) = Siamese(encoder).eval(), torch.randn(2, 5, 3, 8, 8)
    converted = detrame.convert(net, (x, y))
    torch.testing.assert_close(converted(x, y), net(x, y))
    activations = q_metric_relus(converted)
    assert len(activations) == couplings
    assert isinstance(converted, Siamese) == (couplings == 1)  # without a trace, where none is needed
    with torch.no_grad():
        for activation in activations:
            activation.coupling.normal_()
    assert converted(x, x).abs().max() == 0


def test_one_activation_after_several_layers_is_one_for_each() -> None:
    class Activation(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return F.relu(x)

    shared = Activation()
    net = nn.Sequential(nn.Linear(3, 3), shared, nn.Linear(3, 3), shared)
    assert len(q_metric_relus(detrame.convert(net, torch.randn(2, 3)))) == 2


def test_an_activation_of_two_names_is_exchanged_under_both() -> None:
    class Named(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear, self.first = nn.Linear(3, 3), nn.ReLU()
            self.second = self.first

        def forward(self, x: Tensor) -> Tensor:
            return self.second(self.linear(x))

    converted = detrame.convert(Named(), torch.randn(2, 3))
    assert isinstance(converted.second, QMetricReLU)
    assert converted.first is converted.second


def test_two_weights_of_one_module_are_two_layers() -> None:
    class TwoWeights(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = nn.Parameter(torch.randn(3, 3)), nn.Parameter(torch.randn(3, 3))

        def forward(self, x: Tensor) -> Tensor:
            return F.relu(F.linear(F.relu(F.linear(x, self.first)), self.second))

    assert len(q_metric_relus(detrame.convert(TwoWeights(), torch.randn(2, 3)))) == 2


def test_two_activations_after_one_layer_stay_two() -> None:
    class Unrolled(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear, self.first, self.second = nn.Linear(3, 3), nn.ReLU(), nn.ReLU()

        def forward(self, x: Tensor) -> Tensor:
            return F.relu(self.second(self.linear(self.first(self.linear(x)))) - x)

    converted = detrame.convert(Unrolled(), torch.randn(2, 3))
    assert len(q_metric_relus(converted)) == 3
    assert converted.first is not converted.second


def test_calls_after_one_layer_that_differ_are_places_of_their_own() -> None:
    class TwoSizes(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear, self.relu = nn.Linear(3, 4), nn.ReLU()

        def forward(self, x: Tensor) -> Tensor:
            first = self.relu(self.linear(x))
            return first.sum(-1) + self.relu(torch.cat([self.linear(x), x], -1)).sum(-1)

    found = q_metric_relus(detrame.convert(TwoSizes(), torch.randn(2, 3)))
    assert sorted(len(activation.gain) for activation in found) == [4, 7]


def test_stochastic_depth_is_not_frozen_by_a_trace() -> None:
    class Stochastic(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            if self.training and torch.rand(1).item() < 0.5:
                return x
            return F.relu(x)

    for seed in range(8):
        torch.manual_seed(seed)
        with pytest.warns(UserWarning, match="random numbers drawn in the forward pass"):
            assert len(left_in(detrame.convert(Stochastic(), torch.randn(2, 3)))) == 1


def test_a_subclass_of_relu_may_do_something_else() -> None:
    class Double(nn.ReLU):
        def forward(self, input: Tensor) -> Tensor:
            return 2 * super().forward(input)

    class Silent(nn.ReLU):
        def forward(self, input: Tensor) -> Tensor:
            return input.clamp(min=0)

    net = nn.Sequential(nn.Linear(3, 3), Double(), nn.Linear(3, 5), Silent(), nn.Linear(5, 4), nn.ReLU())
    with pytest.warns(UserWarning, match="3: no call of it was seen"):
        converted = detrame.convert(net, torch.randn(2, 3))
    assert sorted(act.coupling.shape[0] for act in q_metric_relus(converted)) == [3, 4]
    x = torch.randn(7, 3)
    torch.testing.assert_close(converted.eval()(x), net.eval()(x))


@pytest.mark.parametrize("function", [False, True])
def test_relus_that_fused_inference_would_pass_by_are_left(function: bool) -> None:
    layer = nn.TransformerEncoderLayer(4, 2, 8, batch_first=True, activation=nn.ReLU(), dropout=0.0)

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer, self.linear = layer, nn.Linear(4, 4)

        def forward(self, x: Tensor) -> Tensor:
            x = self.linear(self.layer(x))
            return F.relu(x) if function else x

    with pytest.warns(UserWarning, match="inside"):
        converted = detrame.convert(Net(), torch.randn(2, 3, 4))
    assert len(left_in(converted)) == 1
    assert len(q_metric_relus(converted)) == int(function)


def test_recurrent_layers_are_listed() -> None:
    class Recurrent(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.rnn = nn.RNN(3, 4, nonlinearity="relu", batch_first=True)

        def forward(self, x: Tensor) -> Tensor:
            out: Tensor = self.rnn(x)[0]
            return out

    with pytest.warns(UserWarning, match="rnn: a recurrent layer computes its ReLU itself"):
        detrame.convert(Recurrent(), torch.randn(2, 5, 3))
    with pytest.warns(UserWarning, match="left unconverted: the network: a recurrent layer"):
        detrame.convert(Recurrent().rnn, torch.randn(2, 5, 3))


def test_a_linear_layer_whose_output_is_made_an_image() -> None:
    stem = nn.Sequential(nn.Linear(5, 96), nn.Unflatten(1, (6, 4, 4)), nn.BatchNorm2d(6), nn.ReLU())
    assert kernels(detrame.convert(stem, torch.randn(2, 5))) == [(6, 6, 1, 1)]
    flat = nn.Sequential(nn.Conv2d(3, 4, 3), nn.Flatten(2), nn.ReLU())
    assert kernels(detrame.convert(flat, IMAGES)) == [(4, 4, 1)]


class Lambda(nn.Module):
    def __init__(self, function: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: Tensor) -> Tensor:
        return self.function(x)


class Product(nn.Module):
    """A linear layer written out, as `x @ W`, and mixed over the points as in a graph network."""

    def __init__(self) -> None:
        super().__init__()
        self.weight, self.points = nn.Parameter(torch.randn(5, 7)), nn.Parameter(torch.randn(4, 4))

    def forward(self, x: Tensor) -> Tensor:
        return self.points @ (x @ self.weight)


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(5, 1, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        attended: Tensor = self.attention(x, x, x)[0]
        return x + attended


def filled(x: Tensor, place: int | slice) -> Tensor:
    """A tensor of zeros with some of the tokens of `x`."""
    out = torch.zeros(x.shape)
    out[:, place] = x[:, place]
    return out


LINE, TOKENS = torch.randn(2, 3, 16), torch.randn(2, 4, 5)


@pytest.mark.parametrize(
    ("x", "layers", "coupling"),
    [
        (LINE, [nn.Conv1d(3, 16, 1), Lambda(lambda x: x.transpose(1, 2))], (16, 16)),
        (LINE, [nn.Conv1d(3, 6, 1), Lambda(lambda x: x.mT)], (6, 6)),
        (LINE, [nn.Conv1d(3, 6, 1), Lambda(lambda x: x.transpose_(1, 2))], (6, 6)),
        (IMAGES, [nn.Conv2d(3, 8, 1), Lambda(lambda x: x.permute(0, 2, 3, 1)), nn.LayerNorm(8)], (8, 8)),
        (IMAGES, [nn.Conv2d(3, 8, 1), Lambda(lambda x: x.flatten(2).movedim(1, 2))], (8, 8)),
        (TOKENS, [nn.Linear(5, 4), Lambda(lambda x: x.transpose(1, 2)), nn.BatchNorm1d(4)], (4, 4, 1)),
        (TOKENS, [nn.Linear(5, 6), Lambda(lambda x: x.transpose(1, 2).reshape(2, 6, 2, 2))], (6, 6, 1, 1)),
        (TOKENS, [nn.Linear(5, 6), Lambda(lambda x: torch.stack((x, -x)).mean(2))], (6, 6)),
        (TOKENS, [nn.Linear(5, 6), Lambda(lambda x: x[:, torch.tensor([0, 2])])], (6, 6)),
        (TOKENS, [Product()], (7, 7)),
        (TOKENS, [nn.LSTM(5, 6), Lambda(lambda x: x[0])], (6, 6)),
        (TOKENS, [Attention()], (5, 5)),
        (TOKENS, [nn.Linear(5, 6), Lambda(lambda x: filled(x, slice(2)))], (6, 6)),
        (LINE, [Lambda(lambda x: F.conv1d(x, bias=torch.ones(6), weight=torch.ones(6, 3, 3)))], (6, 6, 3)),
    ],
)
def test_the_channels_are_followed_wherever_they_go(x: Tensor, layers: list[nn.Module], coupling: Any) -> None:
    converted = detrame.convert(nn.Sequential(*layers, nn.ReLU()), x)
    assert kernels(converted) == [coupling]


@pytest.mark.parametrize(
    ("x", "layers", "reason"),
    [
        (torch.randn(3, 8, 8), [nn.Conv2d(3, 8, 1)], r"on axis 0 of its shape \(8, 8, 8\).* example with a batch"),
        (torch.randn(3, 8), [nn.Conv1d(3, 8, 1)], "on axis 0 .* example with a batch"),
        (
            IMAGES,
            [nn.Conv2d(3, 8, 1), Lambda(lambda x: x.transpose(1, 2))],
            "on axis 2 .* neither on 1 nor on the last",
        ),
        (
            TOKENS,
            [nn.Linear(5, 6), Lambda(lambda x: x.view(2, 4, 3, 2))],
            r"axis of its shape \(2, 4, 3, 2\) .* not known",
        ),
        (TOKENS, [nn.Linear(5, 6), Lambda(lambda x: x @ x.mT)], "not known"),
        (TOKENS, [Lambda(lambda x: torch.einsum("bnc,bmc->bnm", x, x))], "not known"),
        (TOKENS, [nn.Linear(5, 6), Lambda(lambda x: x @ torch.ones(6))], "not known"),
        (TOKENS, [nn.Linear(5, 4), Lambda(lambda x: x + F.conv1d(x, torch.ones(4, 4, 1)))], "not known"),
        (TOKENS, [nn.Linear(5, 6), Lambda(lambda x: filled(x, 1))], "not known"),
        (TOKENS, [nn.Linear(5, 6), Lambda(lambda x: F.one_hot(x.long().abs()).float())], "not known"),
    ],
)
def test_channels_that_no_coupling_reaches(x: Tensor, layers: list[nn.Module], reason: str) -> None:
    with pytest.warns(UserWarning, match=reason):
        converted = detrame.convert(nn.Sequential(*layers, nn.ReLU()), x)
    assert q_metric_relus(converted) == []


def test_a_gate_of_linear_layers_leaves_the_channels_of_an_image_where_they_are() -> None:
    class Gated(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv, self.gate, self.relu = nn.Conv2d(3, 8, 1), nn.Linear(8, 8), nn.ReLU()

        def forward(self, x: Tensor) -> Tensor:
            x = self.conv(x)
            return self.relu(x * self.gate(x.mean((2, 3))).view(2, 8, 1, 1))

    assert kernels(detrame.convert(Gated(), IMAGES)) == [(8, 8, 1, 1)]  # although the images are 8 wide too


def test_named_arguments_and_examples_with_a_history() -> None:
    class Named(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear, self.relu = nn.Linear(3, 3), nn.ReLU()

        def forward(self, *, x: Tensor) -> Tensor:
            out: Tensor = self.relu(input=self.linear(x))
            return out

    grown = nn.Linear(3, 3)(torch.randn(2, 3))
    assert len(q_metric_relus(detrame.convert(Named(), {"x": grown}))) == 1


class Pair(NamedTuple):
    x: Tensor
    y: Tensor


class Bag(dict[str, Tensor]):
    __getattr__ = dict.__getitem__


@pytest.mark.parametrize("kind", [Pair, Bag])
def test_arguments_in_containers_of_their_own_kind(kind: Any) -> None:
    class Both(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear, self.relu = nn.Linear(3, 3), nn.ReLU()

        def forward(self, given: Any) -> Tensor:
            x = given.x.add_(1) if isinstance(given, Pair) else given.x
            out: Tensor = self.relu(self.linear(x) + given.y)
            return out

    given = kind(x=torch.zeros(2, 3), y=torch.ones(3))
    assert len(q_metric_relus(detrame.convert(Both(), (given,)))) == 1  # a warning would be an error
    assert torch.equal(given.x, torch.zeros(2, 3))


@pytest.mark.parametrize("net", [sequential(), Residual()])
def test_a_network_converted_in_inference_mode_can_be_trained(net: nn.Module) -> None:
    with torch.inference_mode():
        converted = detrame.convert(net, IMAGES.clone())
    converted(IMAGES).sum().backward()
    assert all(parameter.grad is not None for parameter in converted.parameters())


@pytest.mark.parametrize("name", NETWORKS)
def test_a_network_on_the_meta_device(name: str) -> None:
    with torch.device("meta"):
        converted = detrame.convert(NETWORKS[name](), torch.empty_like(IMAGES, device="meta"))
    assert left_in(converted) == []
    assert kernels(converted) == kernels(detrame.convert(NETWORKS[name](), IMAGES))
    assert all(parameter.is_meta for parameter in converted.parameters())


def test_a_half_precision_network_on_the_meta_device() -> None:
    net = nn.Sequential(nn.Linear(3, 4), nn.ReLU()).to("meta", torch.bfloat16)
    converted = detrame.convert(net, torch.empty(2, 3, device="meta", dtype=torch.bfloat16))
    assert {parameter.dtype for parameter in converted.parameters()} == {torch.bfloat16}


def test_bad_input() -> None:
    with pytest.raises(ValueError, match="iterations must be at least 1, got 0"):
        detrame.convert(sequential(), IMAGES, iterations=0)
    with pytest.raises(TypeError, match=r"model must be an nn.Module, got function"):
        detrame.convert(F.relu, IMAGES)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="must be a tensor, a tuple or a dict of arguments, got list"):
        detrame.convert(sequential(), [IMAGES])  # type: ignore[arg-type]
    lazy = nn.Sequential(nn.LazyConv2d(4, 3), nn.ReLU())
    with pytest.raises(ValueError, match=r"lazy layers have no weights yet, .* run the network once first"):
        detrame.convert(lazy, IMAGES)
    assert isinstance(detrame.convert(lazy, IMAGES, inplace=True)[1], detrame.QMetricReLU)  # type: ignore[index]
    scripted = torch.jit.script(nn.ReLU())
    with pytest.raises(TypeError, match="scripted"):
        detrame.convert(nn.Sequential(scripted), IMAGES)
    with pytest.raises(TypeError, match=r"before torch.compile"):
        detrame.convert(torch.compile(sequential()), IMAGES)  # type: ignore[arg-type]
    exported = torch.export.export(nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU()), (IMAGES,)).module()
    with pytest.raises(TypeError, match=r"before torch.export"):
        detrame.convert(exported, IMAGES)
    net = sequential()
    with pytest.raises(RuntimeError):
        detrame.convert(net, torch.randn(2, 5, 8, 8), inplace=True)
    assert not any(m._forward_hooks or m._forward_pre_hooks for m in net.modules())
    assert net.training
