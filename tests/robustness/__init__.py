"""Networks small enough to be understood: what they say follows from a matrix."""

import torch
from torch import Tensor, nn

from detrame.models.blocks import Normalise

CLASSES, SHAPE = 4, (2, 5, 5)
PIXELS = 50


class Linear(nn.Sequential):
    """A linear classifier of (2, 5, 5) images, with a dropout that eval mode must silence."""

    def __init__(self, seed: int = 0, normalise: bool = False) -> None:
        first = Normalise((0.5, 0.4), (0.25, 0.2)) if normalise else nn.Identity()
        super().__init__(first, nn.Dropout(0.5), nn.Flatten(), nn.Linear(PIXELS, CLASSES))
        draw = torch.Generator().manual_seed(seed)
        with torch.no_grad():
            self.layer.weight.copy_(torch.randn(CLASSES, PIXELS, generator=draw))
            self.layer.bias.copy_(-self.layer.weight.sum(1) / 2)  # no class is favoured at grey

    @property
    def layer(self) -> nn.Linear:
        layer = self[-1]
        assert isinstance(layer, nn.Linear)
        return layer


def pictures(count: int = 40, seed: int = 0) -> Tensor:
    """Float images around grey, far from the edges of [0, 1]."""
    return 0.4 + 0.2 * torch.rand(count, *SHAPE, generator=torch.Generator().manual_seed(seed))
