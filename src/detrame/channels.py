"""Where the channels of a tensor are: the last layer upstream of it, and their axis, followed through a run.

An axis is counted from the end, -1 for the last, so that it stays what it is where tensors are broadcast.
"""

from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.modules.conv import _ConvNd
from torch.utils._pytree import tree_map_only

# Functions by name: most are there twice, as torch.f and as Tensor.f.
_CONVOLUTIONS = frozenset(f"conv{kind}{dim}d" for kind in ("", "_transpose") for dim in (1, 2, 3))
_TO_LAST_AXIS = frozenset(
    {"bilinear", "embedding", "lstm", "gru", "rnn_tanh", "rnn_relu", "multi_head_attention_forward"}
)
_PRODUCTS = frozenset({"matmul", "__matmul__", "mm", "bmm", "addmm", "baddbmm"})
_CONTRACTIONS = frozenset({"einsum", "tensordot", "cdist"})
_NORMS = frozenset({"batch_norm", "group_norm", "instance_norm"})  # of the channels on axis 1
# What may move axes and leave their number: all that changes the number is taken for a move anyway.
_MOVES = frozenset(
    {
        *("permute", "transpose", "transpose_", "t", "t_", "adjoint", "movedim", "moveaxis", "swapaxes", "swapdims"),
        *("swapaxes_", "swapdims_", "rot90", "reshape", "reshape_as", "view", "view_as", "flatten", "unflatten"),
        *("__getitem__", "__get__"),  # the latter is x.T and its kin
    }
)


class Layer(NamedTuple):
    """A convolution (with its kernel) or a linear layer (without), numbered in the order of execution.

    One that is called again is known by its source: its module, or a function's weight; None if it has neither.
    """

    order: int
    kernel: tuple[int, ...]
    source: object


class Origin(NamedTuple):
    """Where a tensor comes from; an axis that is None is not known."""

    tensor: Tensor  # itself, lest a freed one's identity be used again
    shape: torch.Size  # as it was made: a function may change it in place
    layer: Layer | None
    axis: int | None


class Origins:
    """The origin of every tensor of a run that depends on its inputs."""

    def __init__(self, inputs: Any) -> None:
        self._of: dict[int, Origin] = {}
        self._layers = 0
        for each in tensors(inputs):
            self._put(each, None, None)

    def of(self, tensor: Tensor) -> tuple[Layer | None, int | None]:
        """The last layer upstream of a tensor, and the axis of its channels."""
        origin = self._of.get(id(tensor))
        return (origin.layer, origin.axis) if origin else (None, None)

    def follow(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any, module: nn.Module) -> None:
        """Note the origins of what a function gave that was called in a module."""
        inputs, outputs = list(tensors((args, kwargs))), list(tensors(result))
        sources = [self._of[id(each)] for each in inputs if id(each) in self._of]
        layer = max((source.layer for source in sources if source.layer), default=None)
        name = getattr(func, "__name__", "")
        if name == "__setitem__" and id(args[0]) not in self._of:  # which gives nothing, but fills a fresh tensor
            outputs = [args[0]]
        axes: list[int | None]
        if name in _CONVOLUTIONS or name == "linear":
            weight = args[1] if len(args) > 1 else kwargs["weight"]
            # Not always by the weight: a parametrised layer makes it anew at every call.
            source = module if isinstance(module, nn.Linear | _ConvNd) else weight
            layer = self._next_layer(tuple(weight.shape[2:]), source)
            axes = [-1 - len(layer.kernel)]
        elif name in _TO_LAST_AXIS:
            layer, axes = self._next_layer(), [-1] * len(outputs)
        elif name in _PRODUCTS:
            layer, axes = self._next_layer(), [self._axis_of_product(*inputs[-2:])]
        elif name in _CONTRACTIONS:
            layer, axes = self._next_layer(), [None]
        elif not sources or not outputs:
            return
        elif name in _MOVES or outputs[0].ndim != max(len(source.shape) for source in sources):
            axes = self._axes_of_move(func, args, kwargs, sources)
            axes = axes if len(axes) == len(outputs) else [None] * len(outputs)
        else:
            axes = [_one_of({source.axis for source in sources})] * len(outputs)
        if name in _NORMS and axes == [None]:
            axes = [1 - outputs[0].ndim]
        for output, axis in zip(outputs, axes, strict=True):
            self._put(output, layer, axis)

    def _put(self, tensor: Tensor, layer: Layer | None, axis: int | None) -> None:
        self._of[id(tensor)] = Origin(tensor, tensor.shape, layer, axis)

    def _next_layer(self, kernel: tuple[int, ...] = (), source: object = None) -> Layer:
        self._layers += 1
        return Layer(self._layers, kernel, source)

    def _axis_of_product(self, a: Tensor, b: Tensor) -> int | None:
        """Channels that are not summed over stay where they are; else a matrix of weights puts its own last."""
        if min(a.ndim, b.ndim) < 2:
            return None
        kept = {self.of(a)[1]} - {-1} | {self.of(b)[1]} - {-2}
        return -1 if kept <= {None} and id(b) not in self._of else _one_of(kept)

    def _axes_of_move(
        self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], sources: list[Origin]
    ) -> list[int | None]:
        """Do the same to tensors that hold the number of the channel: the result varies along its channels' axes.

        Empty if that cannot be done.
        """
        if any(source.axis is None for source in sources):
            return []
        try:
            args, kwargs = tree_map_only(Tensor, self._numbered, (args, kwargs))
            return [_varying(each) for each in tensors(func(*args, **kwargs))]
        except Exception:  # whatever a function does that cannot take these
            return []

    def _numbered(self, tensor: Tensor) -> Tensor:
        """A tensor's channels by their numbers, whole: a sum of many stays exact; other tensors by a copy."""
        origin = self._of.get(id(tensor))
        if origin is None or origin.axis is None:
            return tensor.detach().to("cpu", copy=True)
        numbers = torch.arange(origin.shape[origin.axis], dtype=torch.float64, device="cpu")
        return numbers.view(-1, *[1] * (-1 - origin.axis)).expand(origin.shape).contiguous()


def _one_of(axes: set[int | None]) -> int | None:
    """The one axis that is known, if they do not contradict each other."""
    known = axes - {None}
    return known.pop() if len(known) == 1 else None


def _varying(numbers: Tensor) -> int | None:
    """The axis along which numbers vary, if it is one."""
    axes = [axis for axis in range(-numbers.ndim, 0) if (numbers != numbers.narrow(axis, 0, 1)).any()]
    return axes[0] if len(axes) == 1 else None


def tensors(value: Any) -> Iterator[Tensor]:
    """Every tensor in nested lists, tuples, dicts and dataclasses."""
    if isinstance(value, Tensor):
        yield value
    elif is_dataclass(value) and not isinstance(value, type):
        yield from tensors([getattr(value, field.name, None) for field in fields(value)])
    elif isinstance(value, dict):
        yield from tensors(list(value.values()))
    elif isinstance(value, list | tuple):
        for item in value:
            yield from tensors(item)
