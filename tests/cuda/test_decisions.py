"""On a GPU attacks are made, and decisions first taken, in TF32: neither loses anything by it."""

import pytest
import torch
from torch import Tensor, nn

import detrame
from detrame.inference import accuracy, predict
from detrame.modes import full_precision
from detrame.robustness import Ball, Decisions, pgd

pytestmark = [pytest.mark.cuda, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")]


def network(activation: str) -> nn.Module:
    return detrame.create_model("resnet20", activation=activation, pretrained="cifar10").cuda()


def smooth(count: int) -> Tensor:
    torch.manual_seed(0)
    return nn.functional.interpolate(torch.rand(count, 3, 8, 8), size=32, mode="bilinear").cuda()


@pytest.mark.parametrize("activation", ["relu", "qmetric"])
def test_decisions_are_those_of_float32(activation: str) -> None:
    model, images = network(activation), smooth(4000)
    said = Decisions(model, images[:1000])
    others = (images + 0.02 * torch.randn_like(images)).clamp(0, 1)
    assert torch.equal(said(others).argmax(1), predict(model, others, exact=True).argmax(1))


@pytest.mark.parametrize("activation", ["relu", "qmetric"])
@pytest.mark.parametrize("radius", [0.5 / 255, 1 / 255])
def test_pgd_is_no_weaker_for_being_made_in_tf32(activation: str, radius: float) -> None:
    model, images = network(activation), smooth(1000)
    labels = predict(model, images, exact=True).argmax(1)
    left = []
    with torch.backends.cudnn.flags(enabled=True, allow_tf32=True):
        left.append(pgd(model, images, labels, Ball(radius, "pixels")))
    with full_precision(images.device):
        left.append(pgd(model, images, labels, Ball(radius, "pixels")))
    in_tf32, in_float32 = (accuracy(predict(model, attacked, exact=True), labels) for attacked in left)
    assert in_float32 < 99, "the attack does something"
    assert in_tf32 <= in_float32 + 1
