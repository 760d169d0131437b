import pytest
import torch

from detrame.robustness import noisy
from tests.robustness import pictures

MEAN, STD = (0.5, 0.4), (0.25, 0.2)


@pytest.mark.parametrize("unit", ["pixels", "normalised"])
def test_the_noise_of_every_image_has_the_energy_it_is_told(unit: str) -> None:
    images = torch.rand(4, 2, 60, 60) * torch.tensor([0.1, 0.4, 0.7, 1.0]).reshape(-1, 1, 1, 1)
    noise = noisy(images, 0.04, unit=unit, mean=MEAN, std=STD) - images
    if unit == "normalised":
        mean, std = (torch.tensor(values).reshape(-1, 1, 1) for values in (MEAN, STD))
        images, noise = (images - mean) / std, noise / std
    ratios = noise.square().sum(dim=(1, 2, 3)) / images.square().sum(dim=(1, 2, 3))
    assert ratios.tolist() == pytest.approx([0.04] * 4, rel=0.08)
    assert noise.mean(dim=(1, 2, 3)).abs().max() < 0.02
    by_channel = noise.square().mean(dim=(0, 2, 3))
    assert by_channel[0].item() == pytest.approx(by_channel[1].item(), rel=0.08)


def test_seeds_draw_and_nothing_is_clipped() -> None:
    images = pictures()
    first, again, other = (noisy(images, 4.0, unit="pixels", seed=seed) for seed in (0, 0, 1))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)
    assert first.min() < 0
    assert torch.equal(noisy(images, 0.0, unit="pixels"), images)


def test_wrong_input() -> None:
    with pytest.raises(ValueError, match="noise_ratio must be a number >= 0, got -1"):
        noisy(pictures(), -1, unit="pixels")
    with pytest.raises(ValueError, match="unknown unit of noise 'px'"):
        noisy(pictures(), 0.1, unit="px")
    with pytest.raises(ValueError, match="images must be pixels"):
        noisy(pictures() - 1, 0.1, unit="pixels")
    for mean, std in ((MEAN, None), (None, STD)):
        with pytest.raises(ValueError, match="noise in normalised units needs mean and std, what the network"):
            noisy(pictures(), 0.1, unit="normalised", mean=mean, std=std)
