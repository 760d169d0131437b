"""PlainNet: the paper's All-CNN shapes (its table "Model Description of PlainNet"), as data.

The 12-layer column of the paper lists 11 convolutions; with three of 192 channels in its third stage it has 12 and
the 2.4M parameters announced, so that is how it stands here.
"""

from typing import NamedTuple

from torch import nn

from detrame.models.blocks import Options
from detrame.models.registry import register

INPUT_DROPOUT = 0.2


class Layer(NamedTuple):
    """One convolution with its activation; no channels stands for the class layer."""

    channels: int | None
    kernel_size: int = 3
    stride: int = 1
    dropout: float = 0.0


_CLASSES = Layer(None, kernel_size=1)
LAYERS: dict[int, list[Layer]] = {
    3: [Layer(96), Layer(96, stride=2), Layer(None, stride=2)],
    6: [
        *[Layer(96)] * 2,
        Layer(96, stride=2, dropout=0.5),
        Layer(192, stride=2, dropout=0.5),
        Layer(192),
        Layer(None, stride=2),
    ],
    9: [
        *[Layer(96)] * 2,
        Layer(96, stride=2, dropout=0.5),
        *[Layer(192)] * 2,
        Layer(192, stride=2, dropout=0.5),
        Layer(192),
        Layer(192, kernel_size=1),
        _CLASSES,
    ],
}
_STAGED = 12  # and more: three stages, then three layers


def layers(depth: int, family: str = "PlainNet") -> list[Layer]:
    """The layers of a network: the paper's, and for more than 12 those of 12 with longer stages."""
    if depth in LAYERS:
        return LAYERS[depth]
    if depth < _STAGED:
        raise ValueError(f"{family} has {', '.join(map(str, LAYERS))}, {_STAGED} or more layers, got {depth}")
    long, rest = divmod(depth - 3, 3)  # three stages, the first ones longer by one where need be
    first, second, third = (long + (stage < rest) - 1 for stage in range(3))
    return [
        *[Layer(96)] * first,
        Layer(96, stride=2, dropout=0.5),
        *[Layer(192)] * second,
        Layer(192, stride=2, dropout=0.5),
        *[Layer(192)] * third,
        Layer(192, stride=2),
        Layer(192),
        Layer(192, kernel_size=1),
        _CLASSES,
    ]


def plainnet(depth: int, options: Options) -> nn.Sequential:
    """The PlainNet of `depth` layers: (N, in_channels, H, W) pixels to (N, num_classes) logits.

    Every layer is convolution, norm, activation; the activation after the class layer is left out unless
    ``last_activation`` asks for it (the paper's table has it, its Algorithm 2 has not).
    """
    modules: list[nn.Module] = [options.normalise(), nn.Dropout(INPUT_DROPOUT)]
    inputs = options.in_channels
    for layer in layers(depth):
        outputs = options.channels(layer.channels) if layer.channels else options.num_classes
        modules += [options.conv(inputs, outputs, layer.kernel_size, layer.stride), options.norm_layer(outputs)]
        if layer.channels or options.last_activation:
            modules.append(options.activation(outputs, layer.kernel_size))
        if layer.dropout:
            modules.append(nn.Dropout(layer.dropout))
        inputs = outputs
    return nn.Sequential(*modules, nn.AdaptiveAvgPool2d(1), nn.Flatten())


register(r"plainnet(\d+)", plainnet, listed=("plainnet3", "plainnet6", "plainnet9", "plainnet12"))
