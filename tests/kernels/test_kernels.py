"""The fused operations against the plain ones, in float32."""

import copy
from collections.abc import Callable
from functools import partial
from typing import Any
from unittest.mock import Mock

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import detrame
from detrame.functional import q_metric_relu

pytest.importorskip("triton", reason="needs Triton, which this PyTorch came without")

from detrame.fusion import Fused, fused
from detrame.kernels import choice, convolution
from detrame.kernels.convolution import Convolution
from detrame.kernels.few_channels import Shape
from detrame.kernels.normalisation import Norm, NormReLU
from detrame.kernels.q_metric import NormQMetric

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
TOLERANCE = 1e-5


@pytest.fixture(autouse=True)
def float32_in_full(monkeypatch: pytest.MonkeyPatch) -> None:
    """As the kernels have it: a GPU's default convolutions would be the less exact ones."""
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)


def images(*shape: int, seed: int = 0) -> Tensor:
    drawn = torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(DEVICE)
    return drawn.to(memory_format=torch.channels_last).requires_grad_()


def vector(size: int, seed: int = 0) -> Tensor:
    drawn = torch.rand(size, generator=torch.Generator().manual_seed(seed))
    return (0.2 + 0.6 * drawn).to(DEVICE).requires_grad_()


def compare(fast: Callable[..., Tensor], plain: Callable[..., Tensor], *inputs: Tensor | None) -> None:
    """The same output, and the same gradients of a random functional of it."""
    tensors = [tensor for tensor in inputs if tensor is not None]
    results = [function(*inputs) for function in (fast, plain)]
    weight = torch.randn_like(results[1])
    gradients = [torch.autograd.grad((result * weight).sum(), tensors) for result in results]
    close(results[0], results[1])
    for ours, reference in zip(*gradients, strict=True):
        close(ours, reference)


def close(ours: Tensor, reference: Tensor, tolerance: float = TOLERANCE) -> None:
    assert ours.shape == reference.shape
    assert (ours - reference).norm() <= tolerance * reference.norm().clamp_min(1e-3)


@pytest.mark.parametrize("size", [(8, 8), (7, 5)])
@pytest.mark.parametrize(
    ("inputs", "outputs", "kernel", "stride"),
    [(16, 16, 3, 1), (3, 20, 3, 1), (16, 32, 3, 2), (16, 32, 1, 2), (80, 10, 1, 1)],
)
def test_convolution(inputs: int, outputs: int, kernel: int, stride: int, size: tuple[int, int]) -> None:
    shape = Shape(kernel, stride, kernel // 2)
    compare(
        lambda x, w: Convolution.apply(x, w, shape),
        lambda x, w: F.conv2d(x, w, stride=stride, padding=kernel // 2),
        images(3, inputs, *size),
        images(outputs, inputs, kernel, kernel, seed=1),
    )


def norm(channels: int) -> Norm:
    mean, var = torch.zeros(channels, device=DEVICE), torch.ones(channels, device=DEVICE)
    return Norm(vector(channels), vector(channels, 1), mean, var, 0.1, 1e-5)


@pytest.mark.parametrize("relu", [False, True])
@pytest.mark.parametrize("residual", [False, True])
@pytest.mark.parametrize("channels", [10, 32])
def test_norm(channels: int, residual: bool, relu: bool) -> None:
    ours = norm(channels)
    means, variances = torch.zeros(channels, device=DEVICE), torch.ones(channels, device=DEVICE)

    def plain(x: Tensor, weight: Tensor, bias: Tensor, other: Tensor | None) -> Tensor:
        out = F.batch_norm(x, means, variances, weight, bias, training=True)
        out = out if other is None else out + other
        return out.relu() if relu else out

    other = images(3, channels, 9, 8, seed=2) if residual else None
    x = images(3, channels, 9, 8)
    compare(lambda *args: NormReLU.apply(*args, ours, relu), plain, x, ours.weight, ours.bias, other)
    close(ours.running_mean, means)
    close(ours.running_var, variances)


def test_a_large_mean_costs_no_precision() -> None:
    ours = norm(16)
    x = (images(4, 16, 8, 8).detach() + 1000).requires_grad_()
    out = NormReLU.apply(x, ours.weight, ours.bias, None, ours, False)
    reference = F.batch_norm(x.double(), None, None, ours.weight.double(), ours.bias.double(), training=True)
    assert (out - reference).norm() < 1e-3 * reference.norm()


@pytest.mark.parametrize("kernel", [1, 3])
@pytest.mark.parametrize("iterations", [1, 2, 3, 4])
@pytest.mark.parametrize("few", [True, False], ids=["tiles", "library"])
def test_norm_and_q_metric_relu(kernel: int, iterations: int, few: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if not few:
        monkeypatch.setattr(convolution, "FEW", 0)
    ours = norm(16)
    coupling = (0.1 * images(16, 16, kernel, kernel, seed=3).detach()).requires_grad_()

    def fast(x: Tensor, weight: Tensor, bias: Tensor, coupling: Tensor, gain: Tensor, threshold: Tensor) -> Tensor:
        return NormQMetric.apply(x, weight, bias, coupling, gain, threshold, ours, iterations)

    def plain(x: Tensor, weight: Tensor, bias: Tensor, coupling: Tensor, gain: Tensor, threshold: Tensor) -> Tensor:
        z = F.batch_norm(x, None, None, weight, bias, training=True)
        return q_metric_relu(z, coupling, gain, threshold, iterations)

    compare(fast, plain, images(3, 16, 6, 6), ours.weight, ours.bias, coupling, vector(16, 2), vector(16, 4))


def network(name: str, **options: Any) -> nn.Module:
    torch.manual_seed(0)
    net = detrame.create_model(name, **options).to(DEVICE).to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    for module in net.modules():
        if isinstance(module, nn.Dropout):
            module.p = 0.0
    for coupling in (p for name, p in net.named_parameters() if "coupling" in name):
        nn.init.normal_(coupling, std=0.05)
    return net.train()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "activation"),
    [("plainnet3", "qmetric"), ("resnet8", "qmetric"), ("wideresnet10_1", "relu"), ("wideresnet10_1", "qmetric")],
)
def test_whole_networks(name: str, activation: str) -> None:
    net = network(name, activation=activation, width=0.2)
    twin = copy.deepcopy(net)
    x, labels = torch.rand(3, 3, 4, 4, device=DEVICE), torch.tensor([0, 1, 2], device=DEVICE)
    for model in (Fused(net, torch.float32), twin):
        F.cross_entropy(model(x), labels).backward()
    for (where, ours), reference in zip(net.named_parameters(), twin.parameters(), strict=True):
        assert ours.grad is not None, where
        assert reference.grad is not None
        close(ours.grad, reference.grad, 10 * TOLERANCE)
    for buffer, other in zip(net.buffers(), twin.buffers(), strict=True):
        close(buffer.float(), other.float(), 10 * TOLERANCE)


def test_every_layer_of_the_papers_networks_is_fused() -> None:
    for name in detrame.list_models():
        graph = Fused(network(name, activation="qmetric"), torch.float32).graph
        left = {type(module).__name__ for module in graph.modules() if not list(module.children())}
        used = {
            type(graph.get_submodule(str(node.target))).__name__
            for node in graph.graph.nodes
            if node.op == "call_module"
        }
        assert left
        assert not used & {"Conv2d", "BatchNorm2d", "QMetricReLU", "ReLU"}, name


def test_what_cannot_be_fused_stays_as_it_is() -> None:
    class Branching(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x if x.sum() > 0 else -x

    for model in (Branching(), nn.Sequential(nn.Flatten(), nn.Linear(4, 2)), network("plainnet3", norm=None)):
        assert fused(model, torch.float32) is model


class Chosen:
    """Candidates that add their name to a list, of times and with results that a test says."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, **times: float) -> None:
        self.times, self.device, self.capturing = times, 0, False
        self.results = {name: torch.ones(2) for name in times}
        self.called: list[str] = []
        self.candidates = [partial(self.compute, name) for name in times]
        monkeypatch.setattr(choice, "_microseconds", lambda candidate, args: self.times[candidate.args[0]])
        monkeypatch.setattr(choice, "_chosen", {})
        monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
        monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: self.capturing)
        monkeypatch.setattr(torch.cuda, "current_device", lambda: self.device)

    def compute(self, name: str, x: Tensor) -> Tensor:
        self.called.append(name)
        if name not in self.results:
            raise RuntimeError("no such instruction")
        return self.results[name] * x

    def taken(self) -> str:
        choice.fastest("key", self.candidates, torch.full((2,), 2.0))
        return self.called[-1]


def test_the_faster_candidate_is_taken_and_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    trial = Chosen(monkeypatch, slow=2, fast=1)
    assert trial.taken() == "fast"
    trial.times["fast"] = 3
    assert trial.taken() == "fast"
    trial.device = 1
    assert trial.taken() == "slow", "another device chooses for itself"


def test_fewer_candidates_are_another_choice(monkeypatch: pytest.MonkeyPatch) -> None:
    trial = Chosen(monkeypatch, lines=1, few=3, library=2)
    assert trial.taken() == "lines"
    lines = trial.candidates.pop(0)  # as of a tensor that it cannot take
    assert trial.taken() == "library", "not whatever came into the place of the first choice"
    trial.candidates.insert(0, lines)
    assert trial.taken() == "lines", "nor is that lost"


def test_nothing_is_timed_while_a_graph_is_captured(monkeypatch: pytest.MonkeyPatch) -> None:
    trial = Chosen(monkeypatch, ours=1, library=2)
    trial.capturing = True
    assert trial.taken() == "library"
    assert trial.called == ["library"]
    trial.capturing = False
    assert trial.taken() == "ours"


def test_without_memory_for_a_trial_the_library_works_on(monkeypatch: pytest.MonkeyPatch) -> None:
    trial = Chosen(monkeypatch, ours=1, library=2)
    with monkeypatch.context() as full:
        full.setattr(choice, "_random_like", Mock(side_effect=torch.OutOfMemoryError))
        assert trial.taken() == "library"
        assert trial.called == ["library"]
    assert trial.taken() == "ours"


def test_a_candidate_that_is_wrong_or_fails_here_is_left_with_a_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    trial = Chosen(monkeypatch, ours=1, library=2)
    trial.results["ours"] = torch.tensor([1.0, 1.5])
    with pytest.warns(UserWarning, match=r"a kernel is \d+\.\d% off on this machine, so the library's is taken for"):
        assert trial.taken() == "library"
    trial.device, trial.results["ours"] = 1, torch.tensor([1.0, torch.nan])
    with pytest.warns(UserWarning, match="nan% off"):
        assert trial.taken() == "library"
    trial.device = 2
    del trial.results["ours"]
    with pytest.warns(UserWarning, match="a kernel fails on this machine, .*: no such instruction"):
        assert trial.taken() == "library"
    trial.device, trial.results["ours"] = 3, torch.tensor([1.0, 1.004])  # as rounding has it
    assert trial.taken() == "ours"


def test_a_choice_is_made_on_random_numbers_and_moves_none_of_a_training(monkeypatch: pytest.MonkeyPatch) -> None:
    trial = Chosen(monkeypatch, ours=1, library=2)
    trial.results["ours"] = torch.tensor([1.0, 1.5])
    before = torch.get_rng_state()
    with pytest.warns(UserWarning, match="off on this machine"):  # on zeros the two would agree
        assert torch.equal(choice.fastest("key", trial.candidates, torch.zeros(2)), torch.zeros(2))
    assert torch.equal(torch.get_rng_state(), before)


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Tensor, ...]]:
    """What a library was given, that adds two tensors into a third; candidates are as fast as each other."""
    Chosen(monkeypatch)
    monkeypatch.setattr(choice, "_microseconds", lambda candidate, args: 1.0)
    return []


def choose(seen: list[tuple[Tensor, ...]], ours: Callable[..., Tensor], *args: Tensor) -> Tensor:
    def library(a: Tensor, b: Tensor, out: Tensor) -> Tensor:
        seen.append((a.clone(), b.clone()))
        return torch.add(a, b, out=out)

    return choice.fastest("key", [ours, library], *args)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_what_a_candidate_leaves_unwritten_is_wrong(seen: list[tuple[Tensor, ...]], dtype: torch.dtype) -> None:
    """Though the library's result be there, which is right."""
    a, b, out = (torch.full((8,), value, dtype=dtype) for value in (1.0, 2.0, 0.0))
    with pytest.warns(UserWarning, match="nan% off"):
        found = choose(seen, lambda a, b, out: out, a, b, out)
    assert found is out
    assert torch.equal(out, a + b)


def test_the_random_numbers_are_independent(seen: list[tuple[Tensor, ...]]) -> None:
    choose(seen, lambda a, b, out: torch.add(a, b, out=out), *torch.zeros(3, 100))
    a, b = seen[0]
    assert abs(torch.corrcoef(torch.stack([a, b]))[0, 1]) < 0.5


@pytest.mark.filterwarnings("error")
def test_of_no_images_nothing_is_chosen(seen: list[tuple[Tensor, ...]]) -> None:
    def ours(*args: Tensor) -> Tensor:
        raise AssertionError

    assert choose(seen, ours, *torch.zeros(3, 0)).shape == (0,)
    assert not choice._chosen
