"""What the families share: the options of a network, its normalisation, and a convolution with its norm."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import isfinite

import torch
from torch import Tensor, fx, nn

from detrame.activations import ActivationFactory
from detrame.errors import check_count, check_number


@dataclass(frozen=True)
class Options:
    """What every network can be told, whatever its family; see :func:`detrame.create_model`."""

    activation: ActivationFactory
    num_classes: int
    in_channels: int
    mean: Sequence[float] | None
    std: Sequence[float] | None
    norm: str | None
    last_activation: bool
    width: float

    def __post_init__(self) -> None:
        if self.norm not in ("batch", None):
            raise ValueError(f"norm must be 'batch' or None (null in a recipe), got {self.norm!r}")
        for name in ("num_classes", "in_channels"):
            check_count(name, getattr(self, name))
        check_number("width", self.width)
        if not 0 < self.width < float("inf"):
            raise ValueError(f"width must be a positive number, got {self.width}")
        for name in ("mean", "std"):
            values = getattr(self, name)
            if values is None:
                continue
            if not hasattr(values, "__len__") or len(values) != self.in_channels:
                raise ValueError(f"{name} needs one number for each of {self.in_channels} channels, got {values}")
            for value in values:
                check_number(name, value)
            if not all(isfinite(value) and (name == "mean" or value > 0) for value in values):
                raise ValueError(f"{name} must be finite{' and positive' if name == 'std' else ''}, got {values}")

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
        mean = [0.0] * self.in_channels if self.mean is None else self.mean
        std = [1.0] * self.in_channels if self.std is None else self.std
        return Normalise(mean, std)


class Normalise(nn.Module):
    """``(x - mean) / std`` by channel, inside the network, so that attacks and users deal in pixels."""

    mean: Tensor
    std: Tensor

    def __init__(self, mean: Sequence[float], std: Sequence[float]) -> None:
        super().__init__()
        self.register_buffer("mean", torch.tensor([float(value) for value in mean]).reshape(-1, 1, 1))
        self.register_buffer("std", torch.tensor([float(value) for value in std]).reshape(-1, 1, 1))

    def forward(self, x: Tensor) -> Tensor:
        """`x` of shape (N, C, H, W), normalised."""
        return _normalised(x, self.mean, self.std)


@fx.wrap  # a trace takes it whole: what is checked here is known only when the network runs
def _normalised(x: Tensor, mean: Tensor, std: Tensor) -> Tensor:
    if not x.is_floating_point():  # bytes, like images of one channel, would give wrong answers without a word
        raise TypeError(f"the network takes pixels as floating-point numbers in [0, 1], got {x.dtype}: divide by 255")
    if x.ndim != 4 or x.shape[1] != len(mean):
        raise ValueError(f"the network takes images of shape (N, {len(mean)}, H, W), got {tuple(x.shape)}")
    return (x - mean) / std


def initialise_(model: nn.Module) -> None:
    """He's initial weights for every convolution and linear layer, as the residual networks were published with."""
    for module in model.modules():
        if isinstance(module, nn.Conv2d | nn.Linear):
            nn.init.kaiming_normal_(module.weight, mode="fan_out" if isinstance(module, nn.Conv2d) else "fan_in")
            if module.bias is not None:
                nn.init.zeros_(module.bias)
