"""WideResNet 6n + 4 with widening factor q, as published: pre-activation, a stem of 16 channels, no dropout."""

from torch import Tensor, nn

from detrame.models.blocks import Options, initialise_
from detrame.models.registry import register
from detrame.models.resnet import WIDTHS, refuse_last_activation, stages

STEM = 16


class PreactivatedBlock(nn.Module):
    """``conv(activation(norm(conv(p)))) + shortcut`` with ``p = relu(norm(x))``; the Q-Metric is the inner one."""

    def __init__(self, inputs: int, outputs: int, stride: int, options: Options) -> None:
        super().__init__()
        self.norm1 = options.norm_layer(inputs)
        self.relu = nn.ReLU(inplace=options.norm is not None)  # without a norm, its input is the shortcut too
        self.conv1 = options.conv(inputs, outputs, 3, stride)
        self.norm2 = options.norm_layer(outputs)
        self.activation = options.activation(outputs, 3)
        self.conv2 = options.conv(outputs, outputs, 3)
        changes_shape = (inputs, stride) != (outputs, 1)
        self.shortcut = options.conv(inputs, outputs, 1, stride) if changes_shape else None

    def forward(self, x: Tensor) -> Tensor:
        """(N, inputs, H, W) to (N, outputs, H / stride, W / stride)."""
        preactivated = self.relu(self.norm1(x))
        out = self.conv2(self.activation(self.norm2(self.conv1(preactivated))))
        return out + (x if self.shortcut is None else self.shortcut(preactivated))


class WideResNet(nn.Module):
    """A wide residual network of 6n + 4 layers: (N, in_channels, H, W) pixels to (N, num_classes) logits."""

    def __init__(self, depth: int, width: int, options: Options) -> None:
        super().__init__()
        if depth < 10 or (depth - 4) % 6 or width < 1:
            raise ValueError(
                f"a WideResNet has 6n + 4 layers (10, 16, 22, ...) and a width of at least 1, got {depth}, {width}"
            )
        refuse_last_activation(options)
        widths = [options.channels(base * width) for base in WIDTHS]
        self.normalise = options.normalise()
        self.conv = options.conv(options.in_channels, STEM, 3)
        self.blocks = stages(PreactivatedBlock, (depth - 4) // 6, STEM, widths, options)
        self.norm = options.norm_layer(widths[-1])
        self.relu = nn.ReLU(inplace=True)
        self.head = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(widths[-1], options.num_classes))
        initialise_(self)

    def forward(self, x: Tensor) -> Tensor:
        """Logits (N, num_classes) of pixels (N, in_channels, H, W)."""
        out = self.blocks(self.conv(self.normalise(x)))
        return self.head(self.relu(self.norm(out)))


register(r"wideresnet(\d+)_(\d+)", WideResNet, listed=("wideresnet16_4", "wideresnet16_8"))
