import json
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import detrame
from detrame.activations import ACTIVATIONS, CoupledReLU, QMetricReLU, activation_factory, q_metric_relus
from detrame.models import cost, registry
from detrame.models.blocks import Normalise
from detrame.models.registry import listed_names

# Millions of parameters, ReLU and Q-Metric, and the share by which they may differ.
PARAMETERS = {
    "plainnet3": (0.094, 0.26, 0.01),
    "plainnet6": (0.68, 1.60, 0.01),
    "plainnet9": (1.37, 2.99, 0.01),
    "plainnet12": (2.37, 4.98, 0.01),
    "resnet8": (0.08, 0.13, 0.05),
    "resnet20": (0.27, 0.42, 0.01),
    "resnet56": (0.86, 1.29, 0.01),
    "resnet110": (1.73, 2.61, 0.01),
    "wideresnet16_4": (2.75, 4.30, 0.01),
    "wideresnet16_8": (10.96, 17.16, 0.01),
}


@pytest.fixture(scope="module")
def infos() -> dict[str, detrame.models.ModelInfo]:
    return detrame.list_models()


def test_the_paper_s_networks_are_listed_in_its_order(infos: dict[str, detrame.models.ModelInfo]) -> None:
    assert list(infos) == [*list(PARAMETERS)[:8], "resnet164", *list(PARAMETERS)[8:]]


@pytest.mark.parametrize("name", PARAMETERS)
def test_parameter_counts(name: str, infos: dict[str, detrame.models.ModelInfo]) -> None:
    relu, qmetric, share = PARAMETERS[name]
    assert infos[name].relu.parameters == pytest.approx(relu * 1e6, rel=share)
    assert infos[name].qmetric.parameters == pytest.approx(qmetric * 1e6, rel=share)


def test_multiply_adds_by_hand() -> None:
    info = detrame.list_models(iterations=5)["plainnet3"]
    first, second = 32 * 32 * 96 * 9, 16 * 16 * 96 * 9
    convolutions = first * 3 + second * 96 + 8 * 8 * 10 * 96 * 9
    assert info.relu.multiply_adds == convolutions
    assert info.qmetric.multiply_adds == convolutions + 5 * 96 * (first + second)


def test_multiply_adds_are_counted_without_iterating() -> None:
    infos = detrame.list_models(iterations=1_000_000, image_size=1_000_000)  # which nobody would wait for
    assert infos["plainnet3"].qmetric.multiply_adds > 10**23


@pytest.mark.parametrize(("activation", "maps"), [("qmetric", 3), ("lista", 3), ("slstm", 11)])
def test_counting_leaves_the_iterations(activation: str, maps: int) -> None:
    module = activation_factory(activation, iterations=3)(4, 3)
    assert isinstance(module, CoupledReLU)
    assert cost(module, (4, 5, 5)).multiply_adds == maps * 4 * 4 * 3 * 3 * 5 * 5
    assert module.iterations == 3


@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("name", listed_names())
def test_every_network_with_every_activation(name: str, activation: str) -> None:
    """Digits-sized images: logits of the right shape, and a gradient in every parameter."""
    net = detrame.create_model(name, activation=activation, num_classes=7, in_channels=1)
    logits = net(torch.rand(4, 1, 8, 8))
    assert logits.shape == (4, 7)
    assert bool(q_metric_relus(net)) == (activation == "qmetric")
    nn.functional.cross_entropy(logits, torch.arange(4)).backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in net.parameters())


@pytest.mark.parametrize("name", ["plainnet9", "resnet8", "wideresnet10_1"])
@pytest.mark.parametrize("size", [(32, 32), (13, 9)])
def test_q_metric_starts_as_its_relu_twin(name: str, size: tuple[int, int]) -> None:
    relu = detrame.create_model(name, activation="relu").eval()
    qmetric = detrame.create_model(name, activation="qmetric").eval()
    missing, unexpected = qmetric.load_state_dict(relu.state_dict(), strict=False)
    assert not unexpected
    assert all(key.rsplit(".")[-1] in ("coupling", "gain", "threshold") for key in missing)
    x = torch.rand(2, 3, *size)
    torch.testing.assert_close(qmetric(x), relu(x))


def test_iterations_and_filter_sizes_are_those_of_the_convolution_before() -> None:
    net = detrame.create_model("plainnet9", iterations=4)
    acts = q_metric_relus(net)
    assert [tuple(act.coupling.shape[2:]) for act in acts] == [(3, 3)] * 7 + [(1, 1)]
    assert [act.coupling.shape[0] for act in acts] == [96] * 3 + [192] * 5
    assert {act.iterations for act in acts} == {4}


def test_a_residual_network_has_one_q_metric_a_block() -> None:
    assert len(q_metric_relus(detrame.create_model("resnet20"))) == 9
    assert len(q_metric_relus(detrame.create_model("wideresnet16_4"))) == 6


def test_residual_blocks_by_hand() -> None:
    resnet: Any = detrame.create_model("resnet8").eval()
    wide: Any = detrame.create_model("wideresnet16_1").eval()
    x = torch.randn(2, 16, 8, 8)
    for block in resnet.blocks:
        inner = block.norm2(block.conv2(block.activation(block.norm1(block.conv1(x)))))
        expected = (inner + block.shortcut(x)).relu()
        x = block(x)
        torch.testing.assert_close(x, expected)
    x = torch.randn(2, 16, 8, 8)
    for index, block in enumerate(wide.blocks):
        before = block.norm1(x).relu()
        inner = block.conv2(block.activation(block.norm2(block.conv1(before))))
        expected = inner + (block.shortcut(before) if index in (2, 4) else x)
        x = block(x)
        torch.testing.assert_close(x, expected)


def test_residual_networks_start_with_he_s_weights() -> None:
    torch.manual_seed(0)
    net: Any = detrame.create_model("wideresnet10_4", norm=None)
    last, classes = net.blocks[-1].conv1, net.head[-1]
    assert last.weight.std().item() == pytest.approx((2 / (256 * 9)) ** 0.5, rel=0.02), "by 256 outputs, not 128 inputs"
    assert classes.weight.std().item() == pytest.approx((2 / 256) ** 0.5, rel=0.05), "by 256 inputs"
    assert not last.bias.any()
    assert not classes.bias.any()


@pytest.mark.parametrize(
    ("depth", "dropouts"), [(3, [0.2]), (6, [0.2, 0.5, 0.5]), (9, [0.2, 0.5, 0.5]), (12, [0.2, 0.5, 0.5])]
)
def test_dropout_as_in_the_table(depth: int, dropouts: list[float]) -> None:
    net = detrame.create_model(f"plainnet{depth}")
    layers = list(net.modules())
    assert [m.p for m in layers if isinstance(m, nn.Dropout)] == dropouts
    convolutions = [m for m in layers if isinstance(m, nn.Conv2d)]
    assert len(convolutions) == depth
    for i, module in enumerate(layers):
        if isinstance(module, nn.Dropout) and module.p == 0.5:
            before = [m for m in layers[:i] if isinstance(m, nn.Conv2d)]
            assert before[-1].stride == (2, 2)


def test_last_activation_is_plainnet_s() -> None:
    net = detrame.create_model("plainnet3", last_activation=True)
    assert q_metric_relus(net)[-1].coupling.shape == (10, 10, 3, 3)
    with pytest.raises(ValueError, match="last_activation is PlainNet's"):
        detrame.create_model("resnet8", last_activation=True)


def test_without_batch_norm_convolutions_have_a_bias() -> None:
    net = detrame.create_model("resnet8", norm=None)
    assert not any(isinstance(m, nn.BatchNorm2d) for m in net.modules())
    assert all(m.bias is not None for m in net.modules() if isinstance(m, nn.Conv2d))


@pytest.mark.parametrize("name", ["resnet8", "wideresnet10_1", "plainnet3"])
def test_what_works_in_place_does_not_change_a_network_without_norm(name: str) -> None:
    net, x = detrame.create_model(name, norm=None).eval(), torch.rand(2, 3, 16, 16)  # at full width shortcuts are plain
    expected = net(x)
    for module in net.modules():
        if isinstance(module, nn.ReLU):
            module.inplace = False
    torch.testing.assert_close(net(x), expected)


def test_a_network_takes_pixels_when_told_mean_and_std() -> None:
    mean, std = [0.5, 0.4, 0.3], [0.2, 0.2, 0.1]
    pixels = torch.rand(2, 3, 8, 8)
    net = detrame.create_model("resnet8", mean=mean, std=std).eval()
    bare = detrame.create_model("resnet8").eval()
    bare.load_state_dict({k: v for k, v in net.state_dict().items() if not k.startswith("normalise")})
    by_hand = (pixels - torch.tensor(mean).view(3, 1, 1)) / torch.tensor(std).view(3, 1, 1)
    torch.testing.assert_close(net(pixels), bare(by_hand))
    assert "normalise.mean" in net.state_dict()


def test_only_a_mean_or_only_a_std() -> None:
    x = torch.rand(1, 3, 8, 8)
    layer = next(m for m in detrame.create_model("resnet8", mean=[0.5] * 3).modules() if isinstance(m, Normalise))
    torch.testing.assert_close(layer(x), x - 0.5)


def test_what_would_be_broadcast_in_silence_is_refused_by_traced_networks_too() -> None:
    net = detrame.create_model("resnet8", mean=[0.5] * 3, std=[0.2] * 3).eval()
    pixels = torch.rand(2, 3, 32, 32)
    for network in (net, detrame.fold(net), detrame.convert(net, pixels)):
        torch.testing.assert_close(network(pixels), net(pixels))
        with pytest.raises(TypeError, match=r"in \[0, 1\], got torch.uint8: divide by 255"):
            network((255 * pixels).byte())
        for wrong in (pixels[:, :1], pixels.permute(0, 2, 3, 1), pixels[0], pixels[0, 0]):
            with pytest.raises(ValueError, match=r"takes images of shape \(N, 3, H, W\), got \("):
                network(wrong)


def test_mean_and_std_may_be_arrays() -> None:
    net = detrame.create_model("resnet8", mean=np.full(3, 0.5), std=torch.full((3,), 2.0))  # type: ignore[arg-type]
    (layer,) = [module for module in net.modules() if isinstance(module, Normalise)]
    assert torch.equal(layer(torch.ones(1, 3, 2, 2)), torch.full((1, 3, 2, 2), 0.25))


def test_a_factory_of_the_user_s_own() -> None:
    seen = []

    def factory(channels: int, kernel_size: int | None) -> nn.Module:
        seen.append((channels, kernel_size))
        return nn.Identity()

    detrame.create_model("plainnet3", activation=factory)
    assert seen == [(96, 3), (96, 3)]


@pytest.mark.parametrize(
    ("activation", "named"), [(nn.ReLU, "ReLU"), (nn.PReLU, "PReLU"), (nn.ReLU(), "ReLU"), (3, "int")]
)
def test_what_is_no_factory(activation: Any, named: str) -> None:
    with pytest.raises(TypeError, match=rf"a factory of channels and kernel_size, such as `lambda .*`, got {named}$"):
        detrame.create_model("plainnet9", activation=activation)


@pytest.mark.parametrize(("name", "convolutions"), [("resnet14", 13), ("wideresnet22_2", 19)])
def test_the_general_families(name: str, convolutions: int) -> None:
    net = detrame.create_model(name)
    shortcuts = 2 if name == "resnet14" else 3
    assert sum(isinstance(m, nn.Conv2d) for m in net.modules()) == convolutions + shortcuts


@pytest.mark.parametrize(
    ("name", "options", "complaint"),
    [
        ("plainet9", {}, "unknown model 'plainet9': did you mean 'plainnet9'"),
        ("vgg", {}, "unknown model 'vgg': choose from plainnet3"),
        ("plainnet4", {}, "PlainNet has 3, 6, 9, 12 or more layers, got 4"),
        ("plainnet99999999999999999999", {}, "plainnet9+ cannot be built: .* at most 4 digits"),
        ("wideresnet16_10000", {}, "at most 4 digits"),
        ("ddl10", {}, "DDL has 3, 6, 9, 12 or more layers, got 10"),
        ("resnet18", {}, r"6n \+ 2 layers .* got 18"),
        ("wideresnet17_4", {}, r"6n \+ 4 layers .* got 17, 4"),
        ("wideresnet16_0", {}, "got 16, 0"),
        ("resnet8", {"activation": "qmetrik"}, "unknown activation 'qmetrik': did you mean 'qmetric'"),
        ("resnet8", {"norm": "layer"}, "norm must be 'batch' or None .*, got 'layer'"),
        ("resnet8", {"width": 0.0}, "width must be a positive number, got 0.0"),
        ("resnet8", {"norm": "None"}, "norm must be 'batch' or None .*, got 'None'"),
        ("resnet8", {"mean": [float("nan")] * 3}, "mean must be finite"),
        ("resnet8", {"iterations": 0}, "iterations must be at least 1, got 0"),
        ("ddl9", {"iterations": -4}, "iterations must be at least 1, got -4"),
        ("resnet8", {"num_classes": 0}, "num_classes must be at least 1, got 0"),
        ("resnet8", {"in_channels": -1}, "in_channels must be at least 1, got -1"),
        ("resnet8", {"std": [0.0] * 3}, "std must be finite and positive"),
        ("resnet8", {"mean": [0.5, 0.5], "std": [0.2, 0.2]}, "mean needs one number for each of 3 channels"),
        ("resnet8", {"std": 0.5}, "std needs one number for each of 3 channels, got 0.5"),
    ],
)
def test_bad_names_and_options(name: str, options: dict[str, object], complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        detrame.create_model(name, **options)  # type: ignore[arg-type]


def test_a_width_that_is_no_number() -> None:
    with pytest.raises(TypeError, match="width must be a number, got 'a'"):
        detrame.create_model("resnet8", width="a")  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["plainnet3", "resnet8", "wideresnet10_2"])
def test_width_multiplies_the_channels(name: str) -> None:
    thin, full = detrame.create_model(name, width=0.5), detrame.create_model(name)
    ratio = cost(thin, (3, 8, 8)).parameters / cost(full, (3, 8, 8)).parameters
    assert 0.24 < ratio < 0.3


def test_a_name_is_registered_once() -> None:
    with pytest.raises(ValueError, match="'resnet8' is registered already"):
        registry.register(r"resnet8", nn.Identity, listed=("resnet8",))
    with pytest.raises(ValueError, match="does not fit the pattern"):
        registry.register(r"new(\d+)", nn.Identity, listed=("old1",))


def test_cost_leaves_the_network_as_it_was() -> None:
    net = nn.Sequential(nn.Linear(4, 3), QMetricReLU(3, dim=0, iterations=2), nn.Dropout())
    net[2].eval()
    assert cost(net, (4,)) == (15 + 9 + 6, 12 + 2 * 9)
    assert (net.training, net[0].training, net[2].training) == (True, True, False)
    assert not net[0]._forward_hooks
    assert cost(nn.ReLU(), (4,)) == (0, 0)


def test_models_as_json_and_as_a_table(capsys: pytest.CaptureFixture[str]) -> None:
    from detrame import cli

    assert cli.run(["models", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert [row["model"] for row in document] == listed_names()
    assert document[2]["qmetric"]["parameters"] == 2_986_292
    assert cli.run(["models", "--iterations", "2"]) == 0
    table = capsys.readouterr().out
    assert "\nQ-Metric ReLUs of 2 iterations; images 32x32, 3 channels, 10 classes\n" in table
    assert all(name in table for name in listed_names())
    assert "17.16" in table


@pytest.mark.parametrize("columns", [40, 60])
def test_a_narrow_terminal_cuts_no_figure(
    columns: int, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from detrame import cli

    monkeypatch.setenv("COLUMNS", str(columns))
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    assert cli.run(["models"]) == 0
    table = capsys.readouterr().out
    assert "…" not in table
    assert "3,360.08" in table
