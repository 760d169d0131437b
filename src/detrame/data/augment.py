"""Random crops and flips of a whole epoch at once, on the device where the images are."""

import hashlib
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True, eq=False)
class Plan:
    """What one epoch does with n images, in the order they are seen.

    Attributes:
        order: ``(n,)``, which image.
        offsets: ``(2, n)``, the row and column of the crop's corner in the padded image.
        flips: bool ``(n,)``, which ones are mirrored left to right.
    """

    order: Tensor
    offsets: Tensor
    flips: Tensor

    def to(self, device: torch.device) -> "Plan":
        """The same plan on `device`; a GPU is not waited for."""
        parts = [self.order, self.offsets, self.flips]
        if device.type == "cuda":
            parts = [part.pin_memory() for part in parts]
        return Plan(*[part.to(device, non_blocking=True) for part in parts])


def epoch_plan(seed: int, epoch: int, count: int, *, crop_padding: int = 0, flip: bool = False) -> Plan:
    """The plan of one epoch of `count` images: a pure function of its arguments.

    It is drawn on the CPU, so that a CPU and a GPU see the same epoch and a killed run finds its place again. The order
    does not depend on the crops and flips asked for.
    """
    # Hashed, since a generator seeded with seed + epoch would give two seeds the same epochs, shifted.
    mixed = hashlib.sha256(f"{seed} {epoch}".encode()).digest()
    generator = torch.Generator().manual_seed(int.from_bytes(mixed[:4], "little"))
    order = torch.randperm(count, generator=generator)
    offsets = torch.randint(2 * crop_padding + 1, (2, count), generator=generator)
    flips = torch.rand(count, generator=generator) < (0.5 if flip else 0.0)
    return Plan(order, offsets, flips)


def pad(images: Tensor, padding: int, fill: Tensor) -> Tensor:
    """Put a border of `padding` pixels of the colour `fill`, uint8 ``(C,)``, around ``(N, C, H, W)`` images."""
    count, _, height, width = images.shape
    padded = fill.to(images).reshape(1, -1, 1, 1).repeat(count, 1, height + 2 * padding, width + 2 * padding)
    padded[:, :, padding : padding + height, padding : padding + width] = images
    return padded


def mirrored(images: Tensor, padding: int) -> Tensor:
    """Put a border of `padding` pixels, in which the image is mirrored at its edge, around ``(N, C, H, W)`` images."""
    rows, columns = (_mirrored(size, padding).to(images.device) for size in images.shape[2:])
    return images[:, :, rows][..., columns]


def _mirrored(size: int, padding: int) -> Tensor:
    """Which pixel of a line stands at each place of the bordered line; that at the edge is not repeated."""
    period = max(1, 2 * (size - 1))  # there and back
    places = torch.arange(-padding, size + padding) % period
    return torch.minimum(places, period - places)


def augmented(padded: Tensor, plan: Plan, size: tuple[int, int]) -> Tensor:
    """The images of a plan, ``(n, C, *size)``: each a crop of a padded image, mirrored where the plan says so."""
    # A view of every crop of every image; indexing then copies one crop each, and the shuffle costs nothing more.
    windows = padded.unfold(2, size[0], 1).unfold(3, size[1], 1)
    crops = windows[plan.order, :, plan.offsets[0], plan.offsets[1]]
    # All are mirrored, and half of that left out: a GPU would have to be asked which ones, and waited for.
    return torch.where(plan.flips.reshape(-1, 1, 1, 1), crops.flip(3), crops)
