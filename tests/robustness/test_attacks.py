import re
import sys
from typing import Any

import pytest
import torch
from torch import nn

from detrame import QMetricReLU
from detrame.errors import Failure
from detrame.inference import accuracy, predict
from detrame.robustness import PER_IMAGE, Ball, autoattack, pgd, square, trust
from detrame.robustness.attacks import PGD_REACH
from detrame.robustness.trust import Check, checks, iterated, verdict
from tests.robustness import CLASSES, PIXELS, Linear, pictures


class Hidden(nn.Module):
    """A network whose logits are so far apart that the cross-entropy has no gradient left."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        logits: torch.Tensor = 1e6 * self.model(images)
        return logits


class Rounding(nn.Module):
    """A network that, where TF32 is allowed, is taken in too soon: as if it rounded the winner down."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        logits: torch.Tensor = self.model(images)
        winner = nn.functional.one_hot(logits.argmax(1), logits.shape[1])
        return logits - 0.1 * winner * torch.backends.cudnn.allow_tf32


@pytest.mark.parametrize("norm", ["inf", "2"])
@pytest.mark.parametrize("name", PER_IMAGE)
def test_attacks_stay_in_the_ball_and_fool_a_linear_network(name: str, norm: str) -> None:
    model, images = Linear(), pictures(4)
    labels = predict(model, images).argmax(1)
    radius = 0.3 if norm == "inf" else 1.2  # beyond the nearest boundary of every image
    options = {"queries": 100} if name == "square" else {}
    found = PER_IMAGE[name](model, images, labels, Ball(radius, "pixels", norm), **options)
    moved = torch.linalg.vector_norm((found - images).flatten(1), float(norm), dim=1)
    assert moved.max() <= radius * (1 + 1e-5)
    assert found.min() >= 0
    assert found.max() <= 1
    assert accuracy(predict(model, found), labels) == 0


def test_more_images_than_are_attacked_at_once_keep_their_labels() -> None:
    model, images = Linear(), pictures(130)
    labels = predict(model, images).argmax(1)
    labels[::2] = (labels[::2] + 1) % CLASSES  # as if the network were wrong about every other image
    found = pgd(model, images, labels, Ball(0.3, "pixels"), steps=5)
    assert len(found) == len(images)
    assert accuracy(predict(model, found), labels) == 0


def test_what_the_ball_does_not_reach_is_not_fooled() -> None:
    model, images = Linear(), pictures(4)
    labels = predict(model, images).argmax(1)
    assert accuracy(predict(model, pgd(model, images, labels, Ball(1e-4, "pixels"))), labels) == 100


@pytest.mark.parametrize(("name", "options"), [("square", {"queries": 200}), ("deepfool", {})])
def test_what_fools_in_tf32_alone_is_attacked_again_in_float32(name: str, options: dict[str, Any]) -> None:
    model, images = Rounding(Linear()), pictures(20)
    labels = predict(model, images, exact=True).argmax(1)
    with torch.backends.cudnn.flags(enabled=True, allow_tf32=True):
        found = PER_IMAGE[name](model, images, labels, Ball(0.3, "pixels"), **options)
    assert accuracy(predict(model, found, exact=True), labels) == 0


def test_a_batch_that_takes_too_much_memory_is_attacked_by_halves() -> None:
    class Large(Linear):
        def forward(self, images: torch.Tensor) -> torch.Tensor:
            if torch.is_grad_enabled() and len(images) > most:  # what backward needs is what fills memory
                raise torch.OutOfMemoryError
            return super().forward(images)

    model, images, most = Large(), pictures(7), 2
    labels = predict(Linear(), images).argmax(1)
    found = pgd(model, images, labels, Ball(0.3, "pixels"))
    assert accuracy(predict(Linear(), found), labels) == 0
    most = 0
    with pytest.raises(torch.OutOfMemoryError):
        pgd(model, images, labels, Ball(0.3, "pixels"))


def test_seeds_decide_and_the_global_generator_is_left_alone() -> None:
    model, images = Linear(), pictures(4)
    labels = predict(model, images).argmax(1)
    state = torch.get_rng_state()
    first, again, other = (pgd(model, images, labels, Ball(0.1, "pixels", "2"), seed=s, steps=2) for s in (0, 0, 1))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)
    assert torch.equal(torch.get_rng_state(), state)


def test_wrong_input(monkeypatch: pytest.MonkeyPatch) -> None:
    images, labels = pictures(2), torch.zeros(2, dtype=torch.int64)
    ball = Ball(0.1, "pixels")
    with pytest.raises(ValueError, match="take a radius in pixels"):
        pgd(Linear(), images, labels, Ball(0.1, "normalised", std=(0.2, 0.2)))
    for wrong in (torch.zeros(3, dtype=torch.int64), torch.zeros(2, dtype=torch.int32), torch.zeros(2)):
        with pytest.raises(ValueError, match="labels must be int64, one for each of 2 images"):
            pgd(Linear(), images, wrong, ball)
    with pytest.raises(ValueError, match="outputs probabilities"):
        square(nn.Sequential(Linear(), nn.Softmax(1)), images, labels, ball)
    few = nn.Sequential(nn.Flatten(), nn.Linear(PIXELS, 3))
    with pytest.raises(ValueError, match="AutoAttack needs at least 4 classes, the network has 3"):
        autoattack(few, images, labels, ball)
    monkeypatch.setitem(sys.modules, "foolbox", None)
    with pytest.raises(Failure, match=r"foolbox is not installed: type `pip install 'detrame\[attacks\]'`"):
        pgd(Linear(), images, labels, ball)


def test_an_honest_network_passes_every_check() -> None:
    model, images = Linear(), pictures(20)
    labels = predict(model, images).argmax(1)
    found = checks(model, images, labels, Ball(0.02, "pixels"), twin=Linear(seed=1), queries=50)
    assert [check.holds for check in found] == [True] * 5
    assert verdict(found, 1000).startswith("All 5 checks hold: nothing says that gradients are hidden")
    assert verdict(found, len(images)) == "All 5 checks hold, but 20 images are too few to tell: take 200 or more."
    left = r"accuracy left by PGD, 40 steps: \d+\.\d%; Square, 50 queries: \d+\.\d%"
    assert re.fullmatch(rf"holds: an attack without gradients is no better \({left}\)", str(found[0]))


def test_hidden_gradients_are_found_out() -> None:
    model, images = Linear(), pictures(20)
    labels = predict(model, images).argmax(1)
    found = checks(Hidden(model), images, labels, Ball(0.1, "pixels", "2"), twin=model, queries=50)
    failed = {check.name for check in found if check.holds is False}
    assert "an attack on the twin is no better" in failed
    assert "a radius large enough leaves nothing" in failed
    assert verdict(found, 20).startswith("Not to be trusted: it does not hold that ")


def test_steps_that_are_too_short_are_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    model, images = Linear(), pictures(20)
    labels = predict(model, images).argmax(1)

    def stuck(*arguments: Any, reach: float = PGD_REACH, **options: Any) -> torch.Tensor:
        return pgd(*arguments, **options, reach=reach if reach > PGD_REACH else 0.2)

    monkeypatch.setattr(trust, "pgd", stuck)
    found = {check.name: check for check in checks(model, images, labels, Ball(0.02, "pixels"), queries=5)}
    told = found["longer steps are no better"]
    assert told.holds is False
    assert told.figures["PGD, steps 4 times as long"] < told.figures["PGD, 40 steps"]


@pytest.mark.parametrize(
    ("radius", "said"), [(0.4, "PGD leaves nothing at this radius"), (1e-4, "PGD takes nothing off the accuracy")]
)
def test_checks_that_cannot_fail_say_nothing(radius: float, said: str) -> None:
    model, images = Linear(), pictures(20)
    labels = predict(model, images).argmax(1)
    found = checks(model, images, labels, Ball(radius, "pixels"), twin=Linear(seed=1), queries=50)
    assert [check.holds for check in found] == [None, None, None, None, True]
    assert verdict(found, 20).startswith(said)
    assert str(found[0]).startswith("says nothing: an attack without gradients")


def test_attacks_go_through_fewer_and_more_iterations() -> None:
    activation = QMetricReLU(2, kernel_size=3, iterations=2, init="random")
    model = nn.Sequential(activation, Linear()).eval()
    images = pictures(6)
    labels = predict(model, images).argmax(1)
    found = checks(model, images, labels, Ball(0.02, "pixels"), queries=5)
    assert [check.name for check in found[3:-1]] == [
        "an attack through 1 iteration is no better",
        "an attack through 4 iterations is no better",
    ]
    assert activation.iterations == 2
    more = iterated(model, 4)
    assert not torch.equal(more(images), model(images))
    assert isinstance(found[0], Check)
