"""The arithmetic of attacks, with half precision put on the CPU as a GPU has it."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from detrame import inference
from detrame.inference import predict
from detrame.robustness import PER_IMAGE, Ball, Decisions, batched, gradient, perturbed
from detrame.robustness.attacked import attacked, check_images, check_logits
from detrame.robustness.trust import checks
from tests.robustness import PIXELS, Linear, pictures

BALL = Ball(0.05, "pixels")


class Seen(torch.autograd.Function):
    """Nothing is changed; whether cuDNN may take TF32 is noted, forward and backward."""

    flags: set[bool]

    @staticmethod
    def forward(ctx: Any, images: Tensor) -> Tensor:
        Seen.flags.add(torch.backends.cudnn.allow_tf32)
        return images.clone()

    @staticmethod
    def backward(ctx: Any, slopes: Tensor) -> Tensor:
        Seen.flags.add(torch.backends.cudnn.allow_tf32)
        return slopes


class Watched(nn.Module):
    """A linear network that notes the precision it is run in."""

    def __init__(self) -> None:
        super().__init__()
        self.model, self.dtypes = Linear(), set[torch.dtype]()

    def forward(self, images: Tensor) -> Tensor:
        logits: Tensor = self.model(Seen.apply(images))
        self.dtypes.add(logits.dtype)
        return logits


Attack = Callable[[nn.Module, Tensor, Tensor], object]
MADE: dict[str, Attack] = {  # scored elsewhere
    "batched": lambda model, images, labels: batched(model, images, [BALL], [0], passes=1),
    "gradient": lambda model, images, labels: gradient(model, images, [BALL], [0], passes=1),
    "pgd": lambda model, images, labels: PER_IMAGE["pgd"](model, images, labels, BALL),
    "checks": lambda model, images, labels: checks(model, images, labels, BALL, queries=5),
}
SCORED: dict[str, Attack] = {
    "predict": lambda model, images, labels: predict(model, images, exact=True),
    "decisions": lambda model, images, labels: Decisions(model, images)(images),
}


def test_pixels_that_leave_their_range_are_clipped_and_those_at_its_ends_are_taken() -> None:
    model, images = Linear(), pictures(3).round()
    beyond = 0.3 * torch.randn(images.shape)
    clipped = (images + beyond).clamp(0, 1)
    assert torch.equal(perturbed(images, beyond), clipped)
    with attacked(model, images.device) as network:
        assert not any(parameter.requires_grad for parameter in model.parameters())
        assert torch.equal(network(images + beyond), predict(model, clipped))
    check_logits(model, check_images(images))


@pytest.mark.parametrize("logits", [[2.0, 0.5], [1.5, -0.5]])
def test_logits_that_could_be_no_probabilities_are_taken(logits: list[float]) -> None:
    """They are not below 0, but do not sum to 1; or sum to 1, but are below 0."""
    bias = nn.Linear(PIXELS, 2)
    nn.init.zeros_(bias.weight)
    bias.bias.data = torch.tensor(logits)
    check_logits(nn.Sequential(nn.Flatten(), bias), pictures(3))


@pytest.mark.parametrize("attack", MADE | SCORED)
def test_attacks_and_their_scores_are_in_float32(attack: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Proper, but for the making of attacks, which TF32 makes faster; what they are given is checked without."""
    monkeypatch.setattr(inference, "precision", lambda device: torch.autocast(device.type, dtype=torch.bfloat16))
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", True)
    monkeypatch.setattr(Seen, "flags", set(), raising=False)
    model, images = Watched(), pictures(6)
    with torch.autocast("cpu", dtype=torch.bfloat16):  # the caller's own
        (MADE | SCORED)[attack](model, images, torch.zeros(6, dtype=torch.int64))
    assert model.dtypes == {torch.float32}
    assert Seen.flags == ({True, False} if attack in MADE else {False})
    assert torch.backends.cudnn.allow_tf32
    predict(model, images)
    assert torch.bfloat16 in model.dtypes
