"""On a GPU decisions go by way of TF32, and are those of float32 proper all the same."""

import pytest
import torch

import detrame
from detrame.inference import predict
from detrame.robustness import Decisions

pytestmark = [pytest.mark.cuda, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")]


@pytest.mark.parametrize("activation", ["relu", "qmetric"])
def test_decisions_are_those_of_float32(activation: str) -> None:
    torch.manual_seed(0)
    model = detrame.create_model("resnet20", activation=activation, pretrained="cifar10").cuda()
    smooth = torch.nn.functional.interpolate(torch.rand(4000, 3, 8, 8), size=32, mode="bilinear").cuda()
    said = Decisions(model, smooth[:1000])
    others = (smooth + 0.02 * torch.randn_like(smooth)).clamp(0, 1)
    assert torch.equal(said(others).argmax(1), predict(model, others, exact=True).argmax(1))
