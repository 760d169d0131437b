"""A network as an attack sees it: frozen, in eval mode, in float32, its input clipped to valid pixels.

Half precision would round small perturbations away, and with them gradients and what they change: attacks that fail
for it look like robustness. TF32, in which a GPU has far more arithmetic than in float32 proper, is allowed to make
attacks, since what they are worth is not decided here, but where they are scored.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

import torch
from torch import Tensor, nn

from detrame.inference import accuracy, as_pixels, fooling_rate, predict
from detrame.modes import evaluating

SAMPLE = 16  # images, enough to tell logits from probabilities


def check_images(images: Tensor) -> Tensor:
    """Float pixels in [0, 1] of images ``(N, C, H, W)``; a ValueError if they are none."""
    if images.ndim != 4 or not len(images):
        raise ValueError(f"images must be (N, C, H, W) with N at least 1, got shape {tuple(images.shape)}")
    if images.dtype in (torch.float16, torch.bfloat16):
        raise ValueError(f"images must be uint8, float32 or float64: in {images.dtype} small perturbations are lost")
    if images.dtype != torch.uint8:
        low, high = images.min().item(), images.max().item()
        if not (low >= 0 and high <= 1):  # true for NaN as well
            raise ValueError(
                f"images must be pixels in [0, 1] (or uint8), got values from {low:.3g} to {high:.3g}: "
                "the network normalises them itself"
            )
    return as_pixels(images)


def check_labels(labels: Tensor, images: Tensor) -> None:
    """A ValueError if the labels are not one whole number ``(N,)`` for each of the images."""
    if labels.shape != images.shape[:1] or labels.dtype != torch.int64:
        raise ValueError(
            f"labels must be int64, one for each of {len(images)} images, got {labels.dtype} {tuple(labels.shape)}"
        )


def check_logits(model: nn.Module, images: Tensor) -> None:
    """A ValueError if `model` outputs probabilities, whose gradients would hide how close the decision is."""
    outputs = predict(model, images[:SAMPLE], exact=True)
    if outputs.ndim != 2 or outputs.shape[1] < 2:
        raise ValueError(
            f"the network must output logits (N, classes) of two classes or more, got shape {tuple(outputs.shape)}"
        )
    total = outputs.sum(1)
    if outputs.min() >= 0 and torch.allclose(total, torch.ones_like(total), atol=1e-3):
        raise ValueError("the network outputs probabilities: attacks need its logits, so leave out the last softmax")


class Attacked(nn.Module):
    """Logits ``(N, classes)`` in float32 of `model` on clipped images.

    The gradient is that of the clipped network, so that no attack pushes a pixel where the clipping undoes it.
    """

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, images: Tensor) -> Tensor:
        """Logits of images that may have left [0, 1]."""
        logits: Tensor = self.model(as_pixels(images.clamp(0, 1)))
        return logits.float()


@contextmanager
def attacked(model: nn.Module, device: torch.device) -> Iterator[Attacked]:
    """`model`, on `device`, to be attacked inside the block; all is undone after it.

    In eval mode, without gradients of its parameters, and in float32, forward and backward; on a GPU, convolutions may
    round their inputs to TF32, as PyTorch does by default.
    """
    wanted = {parameter: parameter.requires_grad for parameter in model.parameters()}
    with evaluating(model), torch.autocast(device.type, enabled=False):
        model.requires_grad_(False)
        try:
            yield Attacked(model).eval()
        finally:
            for parameter, wants in wanted.items():
                parameter.requires_grad_(wants)


def perturbed(images: Tensor, perturbation: Tensor) -> Tensor:
    """Images ``(N, C, H, W)`` in [0, 1] with one perturbation, or one each, clipped to valid pixels."""
    return (images + perturbation).clamp(0, 1)


class Effect(NamedTuple):
    """What changing the images does to a network, in percent: predictions changed, and accuracy on what was made."""

    fooling: float
    accuracy: float


def effect(before: Tensor, after: Tensor, labels: Tensor) -> Effect:
    """The effect of a change to the images: from logits ``(N, classes)`` before and after it, and labels ``(N,)``."""
    return Effect(fooling_rate(before, after), accuracy(after, labels))
