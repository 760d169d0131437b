"""Deep dictionary learning: the PlainNet's shapes, where every layer but the last is an exact dictionary layer."""

from torch import nn

from detrame.dictionary import DictionaryConv2d
from detrame.models.blocks import Options
from detrame.models.plainnet import INPUT_DROPOUT, layers
from detrame.models.registry import register


def ddl(depth: int, options: Options) -> nn.Sequential:
    """The dictionary network of `depth` layers: (N, in_channels, H, W) pixels to (N, num_classes) logits.

    A dictionary layer stands where PlainNet has a convolution and an activation, so that the norm comes after the
    code; the class layer is linear unless ``last_activation`` makes it code too. ``options.activation`` has no place
    here: the code is the activation.
    """
    modules: list[nn.Module] = [options.normalise(), nn.Dropout(INPUT_DROPOUT)]
    inputs = options.in_channels
    for layer in layers(depth, "DDL"):
        outputs = options.channels(layer.channels) if layer.channels else options.num_classes
        if layer.channels or options.last_activation:
            modules.append(
                DictionaryConv2d(
                    inputs, outputs, layer.kernel_size, stride=layer.stride, padding=layer.kernel_size // 2
                )
            )
        else:
            modules.append(options.conv(inputs, outputs, layer.kernel_size, layer.stride))
        modules.append(options.norm_layer(outputs))
        if layer.dropout:
            modules.append(nn.Dropout(layer.dropout))
        inputs = outputs
    return nn.Sequential(*modules, nn.AdaptiveAvgPool2d(1), nn.Flatten())


register(r"ddl(\d+)", ddl, listed=("ddl3", "ddl6", "ddl9", "ddl12"), dictionary=True)
