"""What the families share: the options of a network, its normalisation, and a convolution with its norm."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from detrame.activations import ActivationFactory
from detrame.errors import unknown

NORMS = ("batch", None)


@dataclass(frozen=True)
class Options:
    """What every network can be told, whatever its family; see :func:`detrame.create_model`."""

    activation: ActivationFactory
    num_classes: int = 10
    in_channels: int = 3
    mean: Sequence[float] | None = None
    std: Sequence[float] | None = None
    norm: str | None = "batch"
    last_activation: bool = False
    width: float = 1.0

    def __post_init__(self) -> None:
        if self.norm not in NORMS:
            raise unknown("norm", self.norm, ["batch", "None"])
        for name in ("num_classes", "in_channels"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, got {getattr(self, name)}")
        if not 0 < self.width < float("inf"):
            raise ValueError(f"width must be a positive number, got {self.width}")
        for name in ("mean", "std"):
            values = getattr(self, name)
            if values is not None and len(values) != self.in_channels:
                raise ValueError(f"{name} needs one number for each of {self.in_channels} channels, got {values}")
        if self.std is not None and not all(value > 0 for value in self.std):
            raise ValueError(f"std must be positive, got {self.std}")

    def channels(self, published: int) -> int:
        """The number of channels of a layer: the published one, times the width."""
        return max(1, round(published * self.width))

    def norm_layer(self, channels: int) -> nn.Module:
        """Batch normalisation, or nothing."""
        return nn.BatchNorm2d(channels) if self.norm == "batch" else nn.Identity()

    def conv(self, inputs: int, outputs: int, kernel_size: int, stride: int = 1) -> nn.Conv2d:
        """A convolution that keeps the size (over the stride); with a norm after it, it needs no bias."""
        bias = self.norm is None
        return nn.Conv2d(inputs, outputs, kernel_size, stride, padding=kernel_size // 2, bias=bias)

    def normalise(self) -> nn.Module:
        """The first layer: from pixels to what the network was trained on."""
        if self.mean is None and self.std is None:
            return nn.Identity()
        return Normalise(self.mean or [0.0] * self.in_channels, self.std or [1.0] * self.in_channels)


class Normalise(nn.Module):
    """``(x - mean) / std`` by channel, inside the network, so that attacks and users deal in pixels."""

    mean: Tensor
    std: Tensor

    def __init__(self, mean: Sequence[float], std: Sequence[float]) -> None:
        super().__init__()
        self.register_buffer("mean", torch.tensor(mean).reshape(-1, 1, 1))
        self.register_buffer("std", torch.tensor(std).reshape(-1, 1, 1))

    def forward(self, x: Tensor) -> Tensor:
        """`x` of shape (N, C, H, W), normalised."""
        return (x - self.mean) / self.std


def initialise_(model: nn.Module) -> None:
    """He's initial weights for every convolution and linear layer, as the residual networks were published with."""
    for module in model.modules():
        if isinstance(module, nn.Conv2d | nn.Linear):
            nn.init.kaiming_normal_(module.weight, mode="fan_out" if isinstance(module, nn.Conv2d) else "fan_in")
            if module.bias is not None:
                nn.init.zeros_(module.bias)
