"""A network's passes fused, on a GPU: the same parameters, fewer passes over memory.

Convolutions, batch norms and what follows them (a ReLU, a residual sum, a Q-Metric ReLU) are found in the network's
graph and computed by `detrame.kernels`; all else stays as it is, and so does the network itself. What is fused is the
pass of one mode: forward and backward in training; in evaluation forward alone, by the running statistics.
"""

import math
import operator
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, fx, nn

from detrame.activations import QMetricReLU
from detrame.kernels.convolution import Convolution, convolve, output_size
from detrame.kernels.few_channels import Shape
from detrame.kernels.normalisation import Norm, NormReLU, SumNormReLU, channels_last, normalise_by_running
from detrame.kernels.q_metric import NormQMetric, norm_q_metric
from detrame.kernels.tiles import check_size
from detrame.tracing import is_relu, module_of, traced, uses, written


class _Halves(torch.autograd.Function):
    """Copies of weights in half precision, all in a few launches; the gradients come back the same way."""

    @staticmethod
    def forward(ctx: Any, dtype: torch.dtype, *weights: Tensor) -> tuple[Tensor, ...]:
        """One copy a weight, in the layout that the kernels read."""
        ctx.dtype = weights[0].dtype
        ctx.set_materialize_grads(False)  # a weight that does not matter has no gradient, rather than 0
        return _copies(weights, dtype, torch.channels_last)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor | None) -> tuple[Tensor | None, ...]:
        """In the weights' own precision."""
        copies = iter(_copies(tuple(grad for grad in grads if grad is not None), ctx.dtype, torch.preserve_format))
        return None, *[None if grad is None else next(copies) for grad in grads]


def _copies(tensors: tuple[Tensor, ...], dtype: torch.dtype, layout: torch.memory_format) -> tuple[Tensor, ...]:
    copies = [torch.empty_like(tensor, dtype=dtype, memory_format=layout) for tensor in tensors]
    torch._foreach_copy_(copies, tensors)
    return tuple(copies)


class _Conv(nn.Module):
    def __init__(self, conv: nn.Conv2d) -> None:
        super().__init__()
        self.shape = Shape(conv.kernel_size[0], conv.stride[0], int(conv.padding[0]))
        self.weight = conv.weight
        self.working: Tensor  # the weight in half precision, set before each forward pass

    def forward(self, x: Tensor) -> Tensor:
        check_size(max(x.numel(), math.prod(output_size(x, self.weight, self.shape))))
        x = channels_last(x.to(self.working.dtype))
        if self.training:
            return Convolution.apply(x, self.working, self.shape)
        return convolve(x, self.working, self.shape, often=False)


class _Norm(nn.Module):
    def __init__(self, norm: nn.BatchNorm2d, *, relu: bool) -> None:
        super().__init__()
        self.norm, self.relu = norm, relu

    def forward(self, x: Tensor, residual: Tensor | None = None) -> Tensor:
        x = channels_last(x)
        if residual is not None and not _alike(x, residual):
            out = _normalised(x, self.norm, None, relu=False, training=self.training) + residual
            return out.relu() if self.relu else out
        residual = None if residual is None else channels_last(residual)
        return _normalised(x, self.norm, residual, relu=self.relu, training=self.training)


class _SumNorm(nn.Module):
    def __init__(self, norm: nn.BatchNorm2d) -> None:
        super().__init__()
        self.norm = norm

    def forward(self, a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
        if not _alike(a, b):
            summed = a + b
            return summed, _normalised(channels_last(summed), self.norm, None, relu=True, training=self.training)
        norm, a, b = _norm(self.norm), channels_last(a), channels_last(b)
        if self.training:
            return SumNormReLU.apply(a, b, norm.weight, norm.bias, norm)
        summed = torch.empty_like(a)
        return summed, normalise_by_running(a, norm, relu=True, other=b, summed=summed)


class _NormQMetric(nn.Module):
    def __init__(self, norm: nn.BatchNorm2d, activation: QMetricReLU) -> None:
        super().__init__()
        self.norm, self.activation = norm, activation
        self.weight = activation.coupling
        self.working: Tensor

    def forward(self, x: Tensor) -> Tensor:
        norm, activation, x = _norm(self.norm), self.activation, channels_last(x)
        rest = (self.working, activation.gain, activation.threshold, norm, activation.iterations)
        return NormQMetric.apply(x, norm.weight, norm.bias, *rest) if self.training else norm_q_metric(x, *rest)


def _normalised(x: Tensor, module: nn.BatchNorm2d, residual: Tensor | None, *, relu: bool, training: bool) -> Tensor:
    norm = _norm(module)
    if training:
        return NormReLU.apply(x, norm.weight, norm.bias, residual, norm, relu)
    return normalise_by_running(x, norm, residual=residual, relu=relu)


def _alike(a: Tensor, b: Tensor) -> bool:
    return a.shape == b.shape and a.dtype == b.dtype


def _norm(module: nn.BatchNorm2d) -> Norm:
    weight, bias, mean, var = module.weight, module.bias, module.running_mean, module.running_var
    assert mean is not None
    assert var is not None
    assert module.momentum is not None
    return Norm(weight, bias, mean, var, module.momentum, module.eps)


_FUSED_NORMS = (_Norm, _SumNorm, _NormQMetric)


class Fused(nn.Module):
    """A network's pass with its layers fused; called like the network, on the network's own parameters.

    It is the pass of the mode in which the network is now, and is to be called in that mode. In evaluation it has no
    gradients.

    Args:
        model: traceable by torch.fx.
        dtype: of the convolutions.
    """

    def __init__(self, model: nn.Module, dtype: torch.dtype) -> None:
        super().__init__()
        self.graph, self.training = fused_graph(model), model.training
        self._dtype = dtype
        self.layers = [module for module in self.graph.modules() if isinstance(module, _Conv | _NormQMetric)]
        norms = [module.norm for module in self.graph.modules() if isinstance(module, _FUSED_NORMS)]
        self._counts = [norm.num_batches_tracked for norm in norms if norm.num_batches_tracked is not None]

    def forward(self, x: Tensor) -> Tensor:
        """The network's output for `x`."""
        halves = _Halves.apply(self._dtype, *[module.weight for module in self.layers])
        for module, half in zip(self.layers, halves, strict=True):
            module.working = half
        if self.training and self._counts:
            torch._foreach_add_(self._counts, 1)
        try:
            return self.graph(x)
        finally:
            for module in self.layers:
                del module.working  # or the pass that made it would stay alive until the next


def fused(model: nn.Module, dtype: torch.dtype) -> nn.Module:
    """The fused pass of a network in the mode it is in; itself if it cannot be traced or has nothing to fuse."""
    try:
        found = Fused(model, dtype)
    except Exception:  # whatever a forward pass does to a proxy that it cannot stand for
        return model
    return found if found.layers else model


def fused_graph(model: nn.Module) -> fx.GraphModule:
    """The network's graph with the layers that can be fused in the place of those they stand for."""
    net = traced(model)
    _check_order(net)
    for node in list(net.graph.nodes):
        module = module_of(net, node)
        if module is None or len(node.args) != 1:
            continue
        if type(module) is nn.Conv2d and _fusible_conv(net, module):
            _fuse_conv(net, node, module)
        elif type(module) is nn.BatchNorm2d and _fusible_norm(net, node, module):
            _fuse_norm(net, node, module)
    net.graph.lint()
    net.recompile()
    return net


def _check_order(net: fx.GraphModule) -> None:
    """Raise a ValueError if something is written in place that others may read too: when they do so would matter."""
    for node in net.graph.nodes:
        source = written(net, node)
        if source is not None and not _is_read_once(net, source):
            raise ValueError(f"{node} writes in place what others may read")


def _is_read_once(net: fx.GraphModule, node: fx.Node) -> bool:
    """Whether a node's tensor has one reader: it is new, or it may be a view but then of such tensors alone."""
    if len(node.users) > 1 or node.op in ("placeholder", "get_attr"):
        return False
    if type(module_of(net, node)) in _MAKING_NEW or node.target in _MAKING_NEW or written(net, node) is not None:
        return True  # what is written in place is looked at for itself
    return all(_is_read_once(net, source) for source in node.all_input_nodes)


_SUMS: tuple[Callable[..., Any], ...] = (operator.add, operator.iadd, torch.add)
_MAKING_NEW: tuple[Callable[..., Any], ...] = (
    *(nn.Conv2d, nn.Linear, nn.BatchNorm2d, nn.ReLU, QMetricReLU),
    *(operator.add, operator.mul, torch.add, torch.cat),
)


def _fusible_conv(net: fx.GraphModule, conv: nn.Conv2d) -> bool:
    kernel, stride, padding = conv.kernel_size, conv.stride, conv.padding
    return (
        (conv.bias is None or not net.training)
        and conv.groups == 1
        and conv.padding_mode == "zeros"
        and not isinstance(padding, str)
        and all(pair[0] == pair[1] for pair in (kernel, stride, padding))
        and conv.dilation == (1, 1)
    )


def _fuse_conv(net: fx.GraphModule, node: fx.Node, conv: nn.Conv2d) -> None:
    """A bias, in evaluation, is a norm of its own that only shifts: what follows is then fused with it as with any."""
    after = _replace(net, node, _Conv(conv), node.args)
    if conv.bias is None:
        return
    assert isinstance(conv.bias, nn.Parameter)
    shift = nn.BatchNorm2d(conv.out_channels, eps=0.0, device=conv.bias.device).eval()
    shift.bias = conv.bias
    with net.graph.inserting_after(after):
        name = f"bias_{node.name}"
        net.add_submodule(name, shift)
        shifted = net.graph.call_module(name, (after,))
    after.replace_all_uses_with(shifted, delete_user_cb=lambda user: user is not shifted)
    _fuse_norm(net, shifted, shift)


def _fusible_norm(net: fx.GraphModule, node: fx.Node, norm: nn.BatchNorm2d) -> bool:
    """Whether the kernels can compute the norm: its input comes from a fused layer, or is summed from such."""
    before = node.args[0]
    assert isinstance(before, fx.Node)
    fused_before = isinstance(module_of(net, before), _Conv | _Norm | _NormQMetric) or before.target in _SUMS
    statistics = norm.track_running_stats and norm.running_mean is not None and norm.momentum is not None
    alone = uses(net, node) == 1  # or its statistics would move in another order
    return fused_before and norm.affine and statistics and norm.training == net.training and alone


def _fuse_norm(net: fx.GraphModule, node: fx.Node, norm: nn.BatchNorm2d) -> None:
    after = _only_user(node)
    module = module_of(net, after) if after else None
    if after and module and is_relu(module):
        _fuse_norm_relu(net, node, after, norm)
    elif after and type(module) is QMetricReLU and _fusible_activation(module):
        _replace(net, after, _NormQMetric(norm, module), node.args)
        net.graph.erase_node(node)
    elif after and (relu := _relu_of_sum(net, after)):
        residual = next(arg for arg in after.args if arg is not node)
        _replace(net, relu, _Norm(norm, relu=True), (*node.args, residual))
        net.graph.erase_node(after)
        net.graph.erase_node(node)
    else:
        _replace(net, node, _Norm(norm, relu=False), node.args)


def _fuse_norm_relu(net: fx.GraphModule, node: fx.Node, relu: fx.Node, norm: nn.BatchNorm2d) -> None:
    before = node.args[0]
    assert isinstance(before, fx.Node)
    if not _is_sum(before):
        _replace(net, relu, _Norm(norm, relu=True), node.args)
        net.graph.erase_node(node)
        return
    both = _insert(net, before, _SumNorm(norm), tuple(before.all_input_nodes))
    for old, index in ((before, 0), (relu, 1)):
        with net.graph.inserting_after(both):
            old.replace_all_uses_with(net.graph.call_function(operator.getitem, (both, index)))
    for old in (relu, node, before):
        net.graph.erase_node(old)


def _only_user(node: fx.Node) -> fx.Node | None:
    return next(iter(node.users)) if len(node.users) == 1 else None


def _is_sum(node: fx.Node) -> bool:
    """Whether a node is the sum of two different tensors, unscaled."""
    return node.target in _SUMS and not node.kwargs and len(node.args) == len(node.all_input_nodes) == 2


def _relu_of_sum(net: fx.GraphModule, node: fx.Node) -> fx.Node | None:
    """The ReLU of a sum of two different tensors, if that is what `node` is."""
    if not _is_sum(node):
        return None
    after = _only_user(node)
    module = module_of(net, after) if after else None
    return after if module and is_relu(module) else None


def _fusible_activation(activation: QMetricReLU) -> bool:
    channels, inputs, *kernel = activation.coupling.shape
    square = len(kernel) == 2 and kernel[0] == kernel[1]
    return square and channels == inputs and activation.capturable


def _insert(net: fx.GraphModule, before: fx.Node, module: nn.Module, args: tuple[Any, ...]) -> fx.Node:
    name = f"fused_{before.name}"
    module.training = net.training
    net.add_submodule(name, module)
    with net.graph.inserting_before(before):
        return net.graph.call_module(name, args)


def _replace(net: fx.GraphModule, node: fx.Node, module: nn.Module, args: tuple[Any, ...]) -> fx.Node:
    new = _insert(net, node, module, args)
    node.replace_all_uses_with(new)
    net.graph.erase_node(node)
    return new
