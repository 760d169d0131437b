"""Random noise whose energy is a given share of the image's."""

import torch
from torch import Tensor

from detrame.errors import unknown
from detrame.robustness.attacked import check_images
from detrame.robustness.ball import UNITS


def noisy(
    images: Tensor,
    noise_ratio: float,
    *,
    unit: str,
    mean: tuple[float, ...] | None = None,
    std: tuple[float, ...] | None = None,
    seed: int = 0,
) -> Tensor:
    r"""Images with zero-mean Gaussian noise v, :math:`E|v|^2 = \rho |x|^2` for every image x by itself.

    In pixels, x is the image in [0, 1]; in normalised units it is what the network sees,
    ``(image - mean) / std``, and so is v. The noisy pixels are not clipped, which would take energy from the noise.

    Args:
        images: ``(N, C, H, W)``, uint8 or float pixels.
        noise_ratio: rho, at least 0.
        unit: "pixels" or "normalised": which x.
        mean, std: by channel, those of the network; needed in normalised units, and used in no other.
        seed: draws the noise, on the device of the images.
    """
    if not 0 <= noise_ratio < float("inf"):
        raise ValueError(f"noise_ratio must be a number >= 0, got {noise_ratio}")
    if unit not in UNITS:
        raise unknown("unit of noise", unit, UNITS)
    pixels = check_images(images)
    if unit == "pixels":
        mean, std = (0.0,), (1.0,)
    elif mean is None or std is None:
        raise ValueError("noise in normalised units needs mean and std, what the network normalises each channel by")
    shift, scale = (pixels.new_tensor(values).reshape(-1, 1, 1) for values in (mean, std))
    energy = ((pixels - shift) / scale).square().mean(dim=(1, 2, 3), keepdim=True)
    draw = torch.Generator(pixels.device).manual_seed(seed)
    normal = torch.randn(pixels.shape, generator=draw, device=pixels.device)
    return pixels + scale * (noise_ratio * energy).sqrt() * normal
