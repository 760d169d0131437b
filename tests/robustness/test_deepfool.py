import pytest
import torch
from torch import Tensor, nn

from detrame.robustness.deepfool import BEYOND, deepfool, nearest_classes
from tests.robustness import CLASSES, PIXELS, Linear, pictures


def test_a_linear_network_is_fooled_in_one_step_of_known_length() -> None:
    network, images = Linear().eval(), pictures()
    logits = network(images).detach()
    found, fooled = deepfool(network, images, nearest_classes(logits, CLASSES), overshoot=0.02)
    assert fooled.all()
    assert (network(images + found).argmax(1) != logits.argmax(1)).all()
    weight = network.layer.weight.detach()
    for image, perturbation, values in zip(images, found, logits, strict=True):
        own = int(values.argmax())
        ways = [
            (values[own] - values[other] + BEYOND) / (weight[other] - weight[own]).norm()
            for other in range(CLASSES)
            if other != own
        ]
        assert perturbation.norm() == pytest.approx(1.02 * min(ways).item(), rel=1e-4)
        assert perturbation.shape == image.shape


class Cubed(Linear):
    """A network so curved that a step, which takes it to be straight, does not reach the boundary."""

    def forward(self, images: Tensor) -> Tensor:
        return super().forward(images) ** 3


@pytest.mark.parametrize("steps", [1, 3, 10])
def test_a_curved_network_is_linearised_anew_at_every_step(steps: int) -> None:
    network, images = Cubed().eval(), pictures(12)
    found, fooled = deepfool(network, images, nearest_classes(network(images), CLASSES), overshoot=0.1, steps=steps)
    ends = [published(network, image, overshoot=0.1, steps=steps) for image in images]
    torch.testing.assert_close(found, torch.stack([perturbation for perturbation, _ in ends]))
    assert fooled.tolist() == [done for _, done in ends]
    assert fooled.all() == (steps == 10)


def published(network: nn.Module, image: Tensor, *, overshoot: float, steps: int) -> tuple[Tensor, bool]:
    """DeepFool for one image, as its docstring has it; whether the image is fooled in the end."""

    def logits(perturbation: Tensor) -> Tensor:
        return network((image + (1 + overshoot) * perturbation)[None])[0]

    r = torch.zeros_like(image)
    said = int(logits(r).argmax())
    for _ in range(steps):
        if logits(r).argmax() != said:
            break
        slopes = torch.autograd.functional.jacobian(logits, r) / (1 + overshoot)
        here, ways = logits(r), []
        for other in set(range(CLASSES)) - {said}:
            w = slopes[other] - slopes[said]
            gap = (here[other] - here[said]).abs() + BEYOND
            ways.append((gap / w.norm(), gap / w.norm() ** 2 * w))
        r = r + min(ways, key=lambda way: way[0])[1]
    return (1 + overshoot) * r.detach(), bool(logits(r).argmax() != said)


def test_few_candidates_find_no_shorter_way() -> None:
    network, images = Linear().eval(), pictures()
    network.layer.weight.data[2] *= 5  # so steep that its boundary is near even where its logit is low
    logits = network(images).detach()
    lengths = [
        deepfool(network, images, nearest_classes(logits, count))[0].flatten(1).norm(dim=1) for count in (2, CLASSES)
    ]
    assert (lengths[0] >= lengths[1] - 1e-6).all()
    assert (lengths[0] > lengths[1] + 1e-3).any()


def test_a_flat_network_is_not_fooled_and_nothing_breaks() -> None:
    last = nn.Linear(PIXELS, 3).requires_grad_(False)
    last.weight.zero_()
    network = nn.Sequential(nn.Flatten(), last)
    images = pictures(3)
    found, fooled = deepfool(network, images, nearest_classes(network(images), 3))
    assert not fooled.any()
    assert not found.any()


def test_no_image_is_no_work() -> None:
    network = Linear().eval()
    found, fooled = deepfool(network, pictures()[:0], torch.zeros(0, 2, dtype=torch.int64))
    assert (len(found), len(fooled)) == (0, 0)


def test_one_candidate_is_no_choice() -> None:
    with pytest.raises(ValueError, match="candidates must be at least 2, got 1"):
        nearest_classes(torch.randn(2, 3), 1)
