"""What a data set is: images as 8-bit pixels, labels, and the digest by which it is known."""

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

_BLOCK = 256


@dataclass(frozen=True, eq=False)
class Split:
    """Images, uint8 ``(N, C, H, W)``, and their labels, int64 ``(N,)``."""

    images: Tensor
    labels: Tensor

    def __post_init__(self) -> None:
        if self.images.dtype != torch.uint8 or self.images.ndim != 4:
            raise ValueError(f"images must be uint8 (N, C, H, W), got {_described(self.images)}")
        if self.labels.dtype != torch.int64 or self.labels.shape != self.images.shape[:1]:
            raise ValueError(f"labels must be int64 ({len(self.images)},), got {_described(self.labels)}")

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, indices: Tensor | slice) -> "Split":
        return Split(self.images[indices], self.labels[indices])

    def to(self, device: torch.device | str) -> "Split":
        """The same split on `device`."""
        return Split(self.images.to(device), self.labels.to(device))


@dataclass(frozen=True, eq=False)
class Dataset:
    """Two splits in the order of their content (see :mod:`detrame.data.proof`), and what is known about them.

    Attributes:
        name: what `load` calls it.
        train: the training images.
        test: the test images.
        classes: the name of each label.
        digest: the order-free checksum of both splits.
        source: where the images came from, as a report would say it.
    """

    name: str
    train: Split
    test: Split
    classes: tuple[str, ...]
    digest: str
    source: str

    @property
    def num_classes(self) -> int:
        """How many classes there are."""
        return len(self.classes)

    @property
    def in_channels(self) -> int:
        """Channels of an image: 1 for grey, 3 for colour."""
        return self.train.images.shape[1]

    @property
    def image_size(self) -> tuple[int, int]:
        """Height and width."""
        height, width = self.train.images.shape[2:]
        return height, width

    @property
    def mean(self) -> tuple[float, ...]:
        """Mean of each channel over the training images, pixels in [0, 1]."""
        return self._moments[0]

    @property
    def std(self) -> tuple[float, ...]:
        """Standard deviation of each channel over the training images, pixels in [0, 1]."""
        return self._moments[1]

    @cached_property
    def _moments(self) -> tuple[tuple[float, ...], tuple[float, ...]]:
        # In integers, so that the figures are exact: the same on every machine and with every number of threads.
        total = squares = torch.zeros(self.in_channels, dtype=torch.int64)
        for block in torch.split(self.train.images, _BLOCK):
            pixels = block.int()
            total = total + pixels.sum(dim=(0, 2, 3))
            squares = squares + pixels.square().sum(dim=(0, 2, 3))
        count = self.train.images[:, 0].numel()
        mean = total.double() / count
        std = (squares.double() / count - mean.square()).clamp_min(0).sqrt()
        return tuple((mean / 255).tolist()), tuple((std / 255).tolist())


def _described(tensor: Tensor) -> str:
    return f"{tensor.dtype} {tuple(tensor.shape)}".removeprefix("torch.")
