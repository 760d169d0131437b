"""The fused pass is the network's own, or leaves it alone: networks of users' kinds, against the plain pass."""

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

pytest.importorskip("triton", reason="needs Triton, which this PyTorch came without")

from detrame.activations import QMetricReLU
from detrame.training.fusion import fused

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


def aliased(net: Any, x: Tensor) -> Tensor:
    y = net.c(x)
    kept = y
    y += net.d(x)
    return net.r(net.n(y)) + kept + net.p


def in_place(net: Any, x: Tensor) -> Tensor:
    y = net.n(net.c(x))
    y += net.d(x)
    return net.r(y) + net.p


ORDERS: dict[str, Callable[[Any, Tensor], Tensor]] = {
    "a residual that broadcasts": lambda s, x: s.r(s.n(s.c(x)) + s.p) + s.d(x),
    "a sum that broadcasts": lambda s, x: s.r(s.n(s.c(x) + s.p)) + s.d(x),
    "a residual in another layout": lambda s, x: s.r(s.n(s.c(x)) + (s.d(x) + s.p).contiguous()),
    "a scaled residual": lambda s, x: s.r(torch.add(s.n(s.c(x)), s.d(x), alpha=0.5)) + s.p,
    "a scaled sum": lambda s, x: s.r(s.n(torch.add(s.c(x), s.d(x), alpha=0.5))) + s.p,
    "a sum under two names": aliased,
    "a sum in place": in_place,
    "a named argument": lambda s, x: s.r(s.n(s.c(input=x))) + s.d(x) + s.p,
    "a sum of which only itself is used": lambda s, x: (lambda y: s.r(s.n(y)).detach() + y + s.p)(s.c(x) + s.d(x)),
    "a norm used twice": lambda s, x: (lambda y: s.r(y) * y + s.d(x) + s.p)(s.n(s.c(x))),
}


def same(net: nn.Module, x: Tensor) -> None:
    """The same output, gradients and statistics as the plain pass."""
    net = net.to(DEVICE).to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    twin = copy.deepcopy(net).train()
    x = x.to(DEVICE)
    results = [model(x) for model in (fused(net, torch.float32), twin)]
    for result in results:
        result.square().sum().backward()
    torch.testing.assert_close(*results, rtol=1e-4, atol=1e-4)
    for (name, ours), theirs in zip(net.named_parameters(), twin.parameters(), strict=True):
        assert (ours.grad is None) == (theirs.grad is None), name
        if ours.grad is not None:
            torch.testing.assert_close(ours.grad, theirs.grad, rtol=1e-3, atol=1e-3, msg=name)
    for a, b in zip(net.buffers(), twin.buffers(), strict=True):
        torch.testing.assert_close(a, b)


@pytest.mark.parametrize("order", ORDERS)
def test_networks_of_every_order(order: str) -> None:
    torch.manual_seed(0)
    same(Net(ORDERS[order]), torch.randn(3, 3, 4, 4))


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


def hooked() -> nn.Sequential:
    net = nn.Sequential(conv(), nn.BatchNorm2d(8), nn.ReLU())
    for module in (net[0], net[2]):
        module.register_forward_hook(lambda module, args, out: 2 * out)
    return net


LAYERS: dict[str, Callable[[], nn.Module]] = {
    "a subclass": lambda: nn.Sequential(conv(), nn.BatchNorm2d(8), Doubled(8, 1, init="random")),
    "a norm in eval mode": lambda: FrozenNorm(conv(), nn.BatchNorm2d(8), nn.ReLU()),
    "hooks": hooked,
    "no batch norm": lambda: nn.Sequential(conv(), nn.GroupNorm(2, 8), nn.ReLU()),
    "a norm of all time": lambda: nn.Sequential(conv(), nn.BatchNorm2d(8, momentum=None), nn.ReLU()),
    "frozen parameters": lambda: nn.Sequential(conv().requires_grad_(False), nn.BatchNorm2d(8), frozen()),
    "groups": lambda: nn.Sequential(conv(), nn.BatchNorm2d(8), QMetricReLU(8, 1, groups=2, init="random")),
    "a diagonal": lambda: nn.Sequential(
        conv(), nn.BatchNorm2d(8, momentum=0.3, eps=0.01), QMetricReLU(8, 1, 6, init="random", zero_diagonal=False)
    ),
}


@pytest.mark.parametrize("layers", LAYERS)
def test_layers_of_every_kind(layers: str) -> None:
    torch.manual_seed(0)
    same(LAYERS[layers](), torch.randn(3, 3, 4, 4))


def test_random_numbers_of_the_forward_pass_stay_random() -> None:
    net = Net(lambda s, x: s.r(s.n(s.c(x))) + torch.randn(8, 1, 1))
    assert fused(net, torch.float32) is net


def test_a_network_in_eval_mode_is_traced_as_it_trains() -> None:
    net = Net(lambda s, x: F.dropout(s.r(s.n(s.c(x))), 0.5, s.training)).to(DEVICE)
    net.to(memory_format=torch.channels_last).eval()  # type: ignore[call-overload]
    assert (fused(net, torch.float32)(torch.randn(8, 3, 4, 4, device=DEVICE)) == 0).float().mean() > 0.6


def test_one_value_for_a_channel_has_no_variance() -> None:
    net = nn.Sequential(conv(), nn.BatchNorm2d(8), nn.ReLU()).to(DEVICE)
    net.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    with pytest.raises(ValueError, match="more than one value for a channel"):
        fused(net, torch.float32)(torch.randn(1, 3, 1, 1, device=DEVICE))
