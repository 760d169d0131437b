"""ResNet 6n + 2 for small images. The Q-Metric ReLU takes the place of the ReLU inside each block, and only there."""

from torch import Tensor, nn

from detrame.models.blocks import Options, initialise_
from detrame.models.registry import register

WIDTHS = (16, 32, 64)


class Block(nn.Module):
    """Two 3x3 convolutions with a shortcut: ``relu(norm(conv(activation(norm(conv(x))))) + shortcut(x))``."""

    def __init__(self, inputs: int, outputs: int, stride: int, options: Options) -> None:
        super().__init__()
        self.conv1 = options.conv(inputs, outputs, 3, stride)
        self.norm1 = options.norm_layer(outputs)
        self.activation = options.activation(outputs, 3)
        self.conv2 = options.conv(outputs, outputs, 3)
        self.norm2 = options.norm_layer(outputs)
        self.shortcut: nn.Module = nn.Identity()
        if (inputs, stride) != (outputs, 1):
            self.shortcut = nn.Sequential(options.conv(inputs, outputs, 1, stride), options.norm_layer(outputs))
        self.relu = nn.ReLU(inplace=True)

    def forward(self, x: Tensor) -> Tensor:
        """(N, inputs, H, W) to (N, outputs, H / stride, W / stride)."""
        out = self.activation(self.norm1(self.conv1(x)))
        out = self.norm2(self.conv2(out)) + self.shortcut(x)
        return self.relu(out)


class ResNet(nn.Module):
    """A residual network of 6n + 2 layers: (N, in_channels, H, W) pixels to (N, num_classes) logits."""

    def __init__(self, depth: int, options: Options) -> None:
        super().__init__()
        if depth < 8 or (depth - 2) % 6:
            raise ValueError(f"a ResNet has 6n + 2 layers (8, 14, 20, ...), got {depth}")
        refuse_last_activation(options)
        widths = [options.channels(width) for width in WIDTHS]
        self.normalise = options.normalise()
        self.conv = options.conv(options.in_channels, widths[0], 3)
        self.norm = options.norm_layer(widths[0])
        self.relu = nn.ReLU(inplace=True)
        self.blocks = stages(Block, (depth - 2) // 6, widths[0], widths, options)
        self.head = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(widths[-1], options.num_classes))
        initialise_(self)

    def forward(self, x: Tensor) -> Tensor:
        """Logits (N, num_classes) of pixels (N, in_channels, H, W)."""
        out = self.relu(self.norm(self.conv(self.normalise(x))))
        return self.head(self.blocks(out))


def stages(block: type[nn.Module], count: int, inputs: int, widths: list[int], options: Options) -> nn.Sequential:
    """`count` blocks at each width; every stage but the first halves the size."""
    blocks = []
    for stage, outputs in enumerate(widths):
        for index in range(count):
            stride = 2 if stage and not index else 1
            blocks.append(block(inputs, outputs, stride, options))
            inputs = outputs
    return nn.Sequential(*blocks)


def refuse_last_activation(options: Options) -> None:
    """Raise a ValueError if the class layer is to have an activation."""
    if options.last_activation:
        raise ValueError("last_activation is PlainNet's: a residual network ends with a linear layer")


register(r"resnet(\d+)", ResNet, listed=("resnet8", "resnet20", "resnet56", "resnet110", "resnet164"))
