"""Batches made on the device: the data set lives there as 8-bit pixels, and so does the epoch drawn from it."""

import math
from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from detrame.data.augment import Plan, augmented, epoch_plan, mirrored, pad
from detrame.data.dataset import Split
from detrame.errors import check_count


class Batches:
    """Epochs of shuffled, cropped and flipped batches, each a pure function of the seed and the epoch's number.

    Pixels come out in [0, 1]: the network normalises them. The border that a crop may show is the `mean` pixel, so
    that it is zero after normalisation, as when normalised images are padded with zeros; up to rounding to the
    nearest of 256 levels, since images stay 8-bit until they are served.

    Args:
        split: the images; batches are made on their device.
        batch_size: images a batch.
        seed: what draws order, crops and flips.
        crop_padding: how far a crop may reach over the edge.
        flip: whether half of the images are mirrored left to right.
        mean: colour of the border, ``(C,)`` in [0, 1]; needed for crops, unless they `reflect`.
        reflect: whether the image is mirrored in the border instead.
    """

    def __init__(
        self,
        split: Split,
        batch_size: int,
        *,
        seed: int,
        crop_padding: int = 0,
        flip: bool = False,
        mean: Sequence[float] | None = None,
        reflect: bool = False,
    ) -> None:
        check_count("batch_size", batch_size)
        check_count("crop_padding", crop_padding, 0)
        if crop_padding and not reflect and (mean is None or len(mean) != split.images.shape[1]):
            raise ValueError(f"crops need the mean pixel, {split.images.shape[1]} numbers, got {mean}")
        self._split = split
        self._batch_size = batch_size
        self._seed = seed
        self._crop_padding = crop_padding
        self._flip = flip
        self._prepared: dict[int, tuple[Tensor, Tensor]] = {}
        self._padded = split.images
        if crop_padding and reflect:
            self._padded = mirrored(split.images, crop_padding)
        elif crop_padding and mean is not None:
            self._padded = pad(split.images, crop_padding, torch.tensor(mean).mul(255).round())

    def __len__(self) -> int:
        """Batches an epoch."""
        return math.ceil(len(self._split) / self._batch_size)

    def plan(self, epoch: int) -> Plan:
        """What `epoch` will do with every image, on the CPU."""
        return epoch_plan(self._seed, epoch, len(self._split), crop_padding=self._crop_padding, flip=self._flip)

    def prepare(self, epoch: int) -> None:
        """Make an epoch's images ahead of time: on a GPU, while it still works on what was queued before."""
        if epoch in self._prepared:
            return
        plan = self.plan(epoch).to(self._split.images.device)
        height, width = self._split.images.shape[2:]
        self._prepared = {epoch: (augmented(self._padded, plan, (height, width)), self._split.labels[plan.order])}

    def epoch(self, epoch: int, *, start: int = 0, as_float: bool = True) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield the batches of an epoch from step `start` on: float images ``(B, C, H, W)`` in [0, 1], labels ``(B,)``.

        Those from step k on are the same whether or not the ones before were asked for. Without `as_float` the images
        stay 8-bit, which is less to copy for who can take them so.
        """
        self.prepare(epoch)
        images, labels = self._prepared.pop(epoch)
        for step in range(start, len(self)):
            batch = slice(step * self._batch_size, (step + 1) * self._batch_size)
            yield images[batch].float().div_(255) if as_float else images[batch], labels[batch]
