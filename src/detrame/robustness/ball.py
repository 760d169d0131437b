"""How far a perturbation may go: a radius with its norm and its unit."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import isfinite
from statistics import fmean

import torch
from torch import Tensor

from detrame.errors import unknown

NORMS = ("inf", "2")
UNITS = ("pixels", "normalised")


@dataclass(frozen=True)
class Ball:
    """The perturbations v with ``|v| <= radius`` in pixels in [0, 1], or ``|v / std| <= radius`` in normalised units.

    Attributes:
        radius: above 0.
        unit: "pixels", or "normalised": what the network sees after it has divided by `std`.
        norm: "inf" or "2".
        std: by channel, what the network divides by; needed in normalised units, and to print a radius in both.
    """

    radius: float
    unit: str
    norm: str = "inf"
    std: tuple[float, ...] | None = None

    def __post_init__(self) -> None:
        if not (isfinite(self.radius) and self.radius > 0):
            raise ValueError(f"radius must be a number above 0, got {self.radius}")
        if self.unit not in UNITS:
            raise unknown("unit of a radius", self.unit, UNITS)
        if self.norm not in NORMS:
            raise unknown("norm", self.norm, NORMS)
        if (self.unit, self.norm) == ("pixels", "inf") and self.radius > 1:
            raise ValueError(
                f"a radius of {self.radius:g} in pixels: pixels are in [0, 1]; did you mean {self.radius:g}/255?"
            )
        if self.std is not None and not all(isfinite(value) and value > 0 for value in self.std):
            raise ValueError(f"std must be finite and positive for every channel, got {self.std}")
        if self.unit == "normalised" and self.std is None:
            raise ValueError("a radius in normalised units needs std, what the network divides each channel by")

    @property
    def pixels(self) -> float:
        """The radius in pixels in [0, 1]; for a network that normalises channels differently, in the mean."""
        return self.radius * (fmean(self.std) if self.unit == "normalised" and self.std else 1.0)

    @property
    def normalised(self) -> float | None:
        """The radius in the network's units, likewise; None where `std` is not known."""
        if self.unit == "normalised":
            return self.radius
        return self.radius / fmean(self.std) if self.std else None

    @property
    def extent(self) -> Tensor:
        """The half-axes of the ball, ``(C, 1, 1)`` or ``(1, 1, 1)``: it is where ``|v / extent| <= 1``."""
        scale = self.std if self.unit == "normalised" and self.std else (1.0,)
        return self.radius * torch.tensor(scale).reshape(-1, 1, 1)

    def __str__(self) -> str:
        grey = f"{255 * self.pixels:.4g}/255 in pixels"
        other = "" if self.normalised is None else f", {self.normalised:.3g} normalised"
        return f"{grey}{other}, norm {self.norm}"


def stacked(balls: Sequence[Ball], device: torch.device) -> tuple[Tensor, str]:
    """The extents of several balls, ``(K, C, 1, 1)`` on `device`, and the norm they share."""
    norms = {ball.norm for ball in balls}
    if len(norms) != 1:
        raise ValueError(f"perturbations are crafted together in one norm, got {', '.join(sorted(norms)) or 'none'}")
    channels = max(len(ball.extent) for ball in balls)
    return torch.stack([ball.extent.expand(channels, 1, 1) for ball in balls]).to(device), norms.pop()


def project(perturbations: Tensor, extents: Tensor, norm: str) -> Tensor:
    """Perturbations ``(K, C, H, W)`` put back into their balls, each in the metric of its own unit."""
    if norm == "inf":
        return perturbations.clamp(-extents, extents)
    sizes = (perturbations / extents).flatten(1).norm(dim=1)
    return perturbations / sizes.clamp_min(1).reshape(-1, 1, 1, 1)


def steepest(gradients: Tensor, extents: Tensor, norm: str) -> Tensor:
    """The way of steepest ascent for each gradient ``(K, C, H, W)``, as long as its ball's radius."""
    if norm == "inf":
        return extents * gradients.sign()
    scaled = gradients * extents
    sizes = scaled.flatten(1).norm(dim=1).clamp_min(torch.finfo(scaled.dtype).tiny)
    return extents * scaled / sizes.reshape(-1, 1, 1, 1)
