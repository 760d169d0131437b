"""The captured evaluation, on a GPU: `pytest -m cuda`."""

import pytest
import torch
from torch import Tensor, nn

import detrame
from detrame import inference
from detrame.activations import QMetricReLU
from detrame.errors import TooLarge
from detrame.inference import Predictor, accuracy, predict

pytestmark = [
    pytest.mark.cuda,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]


def network(name: str, activation: str) -> nn.Module:
    """Its norms have the statistics of random images, so that logits differ from image to image."""
    torch.manual_seed(0)
    model = detrame.create_model(name, activation=activation).cuda().to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    for module in model.modules():
        if isinstance(module, QMetricReLU):
            nn.init.normal_(module.coupling, std=0.3 / module.coupling[0].numel() ** 0.5)
            module.project_()
    with torch.no_grad():
        for _ in range(20):
            model(images(128).float() / 255)
    return model


def images(count: int) -> Tensor:
    return torch.randint(256, (count, 3, 32, 32), dtype=torch.uint8, device="cuda")


def close(ours: Tensor, plain: Tensor, exact: Tensor) -> None:
    """As far from float32 as the plain pass in bfloat16 is, and the same classes but for ties."""
    assert ours.dtype == torch.float32
    assert (ours - exact).norm() <= 1.5 * (plain - exact).norm() + 1e-3 * exact.norm()
    assert accuracy(ours, exact.argmax(1)) >= accuracy(plain, exact.argmax(1)) - 0.5


@pytest.mark.parametrize("activation", ["relu", "qmetric"])
@pytest.mark.parametrize("name", ["plainnet3", "plainnet9", "resnet20", "wideresnet16_4"])
def test_fused_and_plain_predict_alike(name: str, activation: str) -> None:
    model, pixels = network(name, activation), images(2500)
    statistics = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    for net in (model, detrame.fold(model)):
        predictor = Predictor(net)
        close(predictor(pixels), predict(net, pixels), predict(net, pixels, exact=True))
        assert predictor._pass is not net
    assert model.training
    for name, tensor in model.state_dict().items():
        assert torch.equal(tensor, statistics[name]), name


def test_changes_in_place_are_seen() -> None:
    model, pixels = network("resnet8", "qmetric"), images(1000)
    predictor = Predictor(model)
    before = predictor(pixels)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(0.8)
        model(pixels.float() / 255)  # in training mode: it moves the statistics
    after = predictor(pixels)
    assert (after - before).norm() > 0.05 * before.norm()
    close(after, predict(model, pixels), predict(model, pixels, exact=True))


def test_what_the_kernels_do_not_reach_takes_the_plain_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    class Refused(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            raise TooLarge("for a test")

    monkeypatch.setattr(inference, "fused_pass", lambda model: Refused())
    model, pixels = network("resnet8", "relu"), images(100)
    torch.testing.assert_close(Predictor(model)(pixels), predict(model, pixels))


def test_exact_predictions_are_those_of_the_cpu() -> None:
    """In float32 proper, channels first."""
    model, batch = network("resnet8", "qmetric"), images(64)
    exact = predict(model, batch, exact=True)
    on_cpu = predict(model.cpu().to(memory_format=torch.contiguous_format), batch.cpu(), exact=True)  # type: ignore[call-overload]
    assert (exact.cpu() - on_cpu).abs().max() <= 1e-4 * on_cpu.abs().max()
