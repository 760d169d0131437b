from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from detrame.inference import fooling_rate, predict
from detrame.robustness import Ball, Crafted, batched, gradient, perturbed, sequential
from detrame.robustness.deepfool import BEYOND
from tests.robustness import CLASSES, Linear, pictures

Form = Callable[..., Crafted]
FORMS: list[Form] = [sequential, batched, gradient]


def fooled(model: nn.Module, images: Tensor, perturbation: Tensor) -> float:
    return fooling_rate(predict(model, images), predict(model, perturbed(images, perturbation)))


def literal(model: Linear, images: Tensor, radius: float, seed: int, passes: int, overshoot: float) -> Tensor:
    """The published algorithm, image by image, with DeepFool in closed form: exact for a linear network."""
    weight, bias = model.layer.weight.detach(), model.layer.bias.detach()
    v = torch.zeros(images[0].numel())
    draw = torch.Generator().manual_seed(seed)
    for _ in range(passes):
        for index in torch.randperm(len(images), generator=draw).tolist():
            x = images[index].flatten()
            said = int((weight @ x + bias).argmax())
            logits = weight @ (x + v) + bias
            if int(logits.argmax()) != said:
                continue
            ways = []
            for other in set(range(CLASSES)) - {said}:
                slope = weight[other] - weight[said]
                gap = logits[said] - logits[other] + BEYOND
                ways.append((gap / slope.norm(), gap / slope.norm() ** 2 * slope))
            v = (v + (1 + overshoot) * min(ways, key=lambda way: way[0])[1]).clamp(-radius, radius)
    return v.reshape(images[0].shape)


def test_the_sequential_form_is_the_published_algorithm() -> None:
    model, images = Linear(), pictures()
    options: dict[str, Any] = {"passes": 2, "overshoot": 0.2}
    crafted = sequential(model, images, [Ball(0.1, "pixels")] * 2, [3, 4], target=100.0, **options)
    for seed, found in zip((3, 4), crafted.perturbations, strict=True):
        assert torch.allclose(found, literal(model, images, 0.1, seed, **options), atol=1e-5)
    assert not torch.equal(*crafted.perturbations)


@pytest.mark.parametrize("norm", ["inf", "2"])
@pytest.mark.parametrize("form", FORMS)
def test_perturbations_stay_in_their_balls_and_larger_ones_fool_more(form: Form, norm: str) -> None:
    model, images, test = Linear(normalise=True), pictures(), pictures(200, seed=1)
    std = (0.25, 0.2)
    factor = 1.0 if norm == "inf" else 3.0
    balls = [Ball(radius * factor, "normalised", norm, std) for radius in (0.05, 0.2, 0.8)]
    crafted = form(model, images, balls, [0, 0, 0], passes=3)
    seen = crafted.perturbations / torch.tensor(std).reshape(-1, 1, 1)
    sizes = torch.linalg.vector_norm(seen.flatten(1), float(norm), dim=1)
    assert (sizes <= factor * torch.tensor([0.05, 0.2, 0.8]) * (1 + 1e-5)).all()
    rates = [fooled(model, test, v) for v in crafted.perturbations]
    assert rates[0] < rates[1] < rates[2]
    assert [rate[-1] for rate in crafted.fooling] == pytest.approx(
        [fooled(model, images, v) for v in crafted.perturbations]
    )


@pytest.mark.parametrize("form", FORMS)
def test_perturbations_crafted_together_are_those_crafted_alone(form: Form, monkeypatch: pytest.MonkeyPatch) -> None:
    model, images = Linear(), pictures(30)
    balls = [Ball(0.05, "pixels"), Ball(0.1, "pixels"), Ball(0.1, "pixels")]
    options: dict[str, Any] = {"passes": 2} if form is sequential else {"passes": 2, "step_images": 10}
    together = form(model, images, balls, [0, 0, 1], **options).perturbations
    monkeypatch.setitem(form.__globals__["PAIRS"], "cpu", 20)
    in_groups = form(model, images, balls, [0, 0, 1], **options).perturbations
    assert torch.allclose(together, in_groups, atol=1e-6)
    for ball, seed, found in zip(balls, (0, 0, 1), together, strict=True):
        alone = form(model, images, [ball], [seed], **options).perturbations[0]
        assert torch.allclose(found, alone, atol=1e-6)


def test_the_gradient_form_is_the_strongest_and_the_batched_one_no_weaker_than_the_sequential() -> None:
    model, images, test = Linear(), pictures(60), pictures(500, seed=1)
    ball, seeds = Ball(0.03, "pixels"), [0, 1, 2]
    rates = []
    for form in FORMS:
        crafted = form(model, images, [ball] * 3, seeds, passes=2)
        rates.append(sum([fooled(model, test, v) for v in crafted.perturbations]) / 3)
    assert rates[0] <= rates[1] + 1 <= rates[2] + 2
    assert rates[2] > rates[0]


@pytest.mark.parametrize(("form", "options"), [(batched, {"step_images": 20}), (sequential, {})])
def test_it_stops_at_the_target_or_at_the_last_pass(form: Form, options: dict[str, int]) -> None:
    model, images = Linear(), pictures()
    steps: list[tuple[int, int]] = []

    def tell(done: int, steps_at_most: int) -> None:
        steps.append((done, steps_at_most))

    balls = [Ball(0.4, "pixels"), Ball(0.001, "pixels")]
    crafted = form(model, images, balls, [0, 0], target=50.0, on_step=tell, **options)
    reached, missed = crafted.fooling
    assert all(rate < 50 for rate in reached[:-1])
    assert reached[-1] >= 50
    assert len(reached) < len(missed) == 10
    most = 10 * len(images) // options.get("step_images", 1)
    assert steps == [(done, most) for done in range(1, most + 1)]


def test_the_network_is_left_as_it_was() -> None:
    model = Linear().train()
    model.layer.bias.requires_grad_(False)
    gradient(model, pictures(8), [Ball(0.1, "pixels")], [0], passes=1)
    assert model.training
    assert [p.requires_grad for p in model.layer.parameters()] == [True, False]
    assert all(p.grad is None for p in model.parameters())


def test_8_bit_images_are_taken_as_pixels() -> None:
    model = Linear()
    images = pictures(20).mul(255).round().byte()
    first, second = (
        batched(model, x, [Ball(0.1, "pixels")], [0], passes=1).perturbations for x in (images, images / 255)
    )
    assert torch.allclose(first, second)


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"images": 2 * pictures()}, r"images must be pixels in \[0, 1\] \(or uint8\), got values from 0.8"),
        ({"images": pictures() * float("nan")}, "got values from nan"),
        ({"images": pictures()[0]}, "images must be"),
        (
            {"model": nn.Sequential(Linear(), nn.Softmax(1))},
            "the network outputs probabilities: attacks need its logits",
        ),
        ({"model": nn.Identity()}, "the network must output logits"),
        ({"model": nn.Sequential(Linear(), nn.Flatten(), nn.LazyLinear(1))}, "logits .* of two classes or more"),
        ({"images": pictures().half()}, "in torch.float16 small perturbations are lost"),
        ({"balls": [Ball(0.1, "normalised", std=(0.2,) * 5)]}, "std has 5 channels and the images have"),
        ({"seeds": [0, 1]}, "every perturbation needs a ball and a seed, got 1 balls and 2 seeds"),
        ({"balls": [], "seeds": []}, "one norm, got none"),
        ({"passes": 0}, "passes must be at least 1"),
    ],
)
def test_wrong_input(changes: dict[str, Any], complaint: str) -> None:
    given: dict[str, Any] = {
        "model": Linear(),
        "images": pictures(),
        "balls": [Ball(0.1, "pixels")],
        "seeds": [0],
    } | changes
    with pytest.raises(ValueError, match=complaint):
        gradient(**given)
