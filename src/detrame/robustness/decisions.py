"""What a network says of very many images, as in float32 proper, but on a GPU in a fraction of the time."""

import torch
from torch import Tensor, nn

from detrame.inference import as_pixels, in_passes, predict
from detrame.modes import evaluating

SLACK = 10


class Decisions:
    """Calling it with images ``(N, C, H, W)`` gives logits ``(N, classes)`` that decide as float32 proper does.

    A GPU is several times as fast in TF32, which rounds what it multiplies to three digits. So it is asked first in
    TF32, and again in float32 proper about those images whose two largest logits are so close that the rounding is
    taken to be able to swap them: no logit is taken to move by more than `SLACK` times as much as any of `images` did.

    Attributes:
        logits: of `images`, in float32 proper throughout.
    """

    def __init__(self, model: nn.Module, images: Tensor) -> None:
        self._model = model
        self.logits = predict(model, images, exact=True)
        self._close = None
        if _rounds(images.device):
            self._close = 2 * SLACK * (_in_tf32(model, images) - self.logits).abs().max()

    def __call__(self, images: Tensor) -> Tensor:
        """The logits of other images of the same kind."""
        if self._close is None:
            return predict(self._model, images, exact=True)
        logits = _in_tf32(self._model, images)
        largest = logits.topk(2, dim=1).values
        doubtful = (~(largest[:, 0] - largest[:, 1] > self._close)).nonzero()[:, 0]
        if len(doubtful):
            logits[doubtful] = predict(self._model, images[doubtful], exact=True)
        return logits


def _rounds(device: torch.device) -> bool:
    """Whether there is anything faster than float32 proper there."""
    return device.type == "cuda"


@torch.no_grad()
def _in_tf32(model: nn.Module, images: Tensor) -> Tensor:
    """Logits in float32, but for TF32 in convolutions, which PyTorch allows unless told otherwise."""
    with evaluating(model), torch.autocast(images.device.type, enabled=False):
        return torch.cat([model(as_pixels(batch)).float() for batch in in_passes(images)])
