"""Fold for inference what is linear into the layer before it: fewer passes over the same numbers.

Batch normalisation goes into the convolution before it. The first step of a Q-Metric ReLU whose coupling does not mix
pixels (1x1, or feature vectors) is linear up to its ReLU, so it goes into the layer before as well, and leaves only
the later steps: from ``y = (diag(h) - W) z - b``, ``u <- ReLU(W u + y)``.
"""

import copy

import torch
from torch import Tensor, fx, nn
from torch.nn.utils.fusion import fuse_conv_bn_eval, fuse_linear_bn_eval

from detrame import operators
from detrame.activations import CoupledReLU, QMetricReLU
from detrame.errors import check_type
from detrame.functional import FLOAT32_ENOUGH
from detrame.tracing import module_of, traced, uses

Linear = nn.Conv1d | nn.Conv2d | nn.Conv3d | nn.Linear
Norm = nn.BatchNorm1d | nn.BatchNorm2d | nn.BatchNorm3d


class LaterSteps(CoupledReLU):
    """The iterations of a Q-Metric ReLU after the linear part of the first: ``u_1 = ReLU(y), u <- ReLU(W u + y)``."""

    def __init__(self, coupling: Tensor, iterations: int) -> None:
        channels, inputs, *kernel = coupling.shape
        super().__init__(
            channels,
            kernel or None,
            iterations,
            dim=len(kernel),
            groups=channels // inputs,
            device=coupling.device,
            dtype=coupling.dtype,
        )
        self.coupling = nn.Parameter(coupling, requires_grad=False)

    @property
    def applications(self) -> int:
        """One fewer than there are iterations: the first is folded away."""
        return self.iterations - 1

    def forward(self, y: Tensor) -> Tensor:
        """The code, of the shape of `y`."""
        u = y.relu()
        for _ in range(self.iterations - 1):
            u = operators.apply(self.coupling, u).add_(y).relu_()
        return u


@torch.no_grad()
def fold(model: nn.Module, *, first_steps: bool = True) -> fx.GraphModule:
    """A copy of `model` for inference, with the same outputs up to rounding.

    Args:
        model: a network that torch.fx can trace without losing anything (otherwise you get a ValueError), and in which
            a norm after an `nn.Linear` is one of (N, features). Arguments keep a default of None, True or False.
        first_steps: whether to fold the first steps of Q-Metric ReLUs too, or only norms.
    """
    check_type("model", model, nn.Module, "an nn.Module")
    net = copy.deepcopy(model).eval()
    folded = traced(net)
    for node in list(folded.graph.nodes):
        module = module_of(folded, node)
        before = _linear_before(folded, node) if module else None
        if before is None:
            continue
        linear = folded.get_submodule(str(before.target))
        assert isinstance(linear, Linear)
        if isinstance(module, Norm) and _norm_folds(linear, module):
            folded.set_submodule(str(before.target), _without_norm(linear, module))
            node.replace_all_uses_with(before)
            folded.graph.erase_node(node)
        elif first_steps and type(module) is QMetricReLU and _first_step_folds(linear, module):
            folded.set_submodule(str(before.target), _with_first_step(linear, module))
            folded.set_submodule(str(node.target), LaterSteps(module.coupling.clone(), module.iterations))
    folded.delete_all_unused_submodules()
    folded.recompile()
    return folded


def _linear_before(net: fx.GraphModule, node: fx.Node) -> fx.Node | None:
    """The convolution or linear layer whose only use is as the input of `node`, itself used in one place only."""
    if not node.args or not isinstance(node.args[0], fx.Node):
        return None
    before = node.args[0]
    linear = module_of(net, before)
    if not isinstance(linear, Linear) or not {"weight", "bias"} <= linear._parameters.keys():  # one is computed
        return None
    alone = len(before.users) == 1 and uses(net, before) == uses(net, node) == 1
    return before if alone else None


def _norm_folds(linear: Linear, norm: Norm) -> bool:
    """Whether it norms the layer's outputs, by statistics that it keeps: no linear layer has them where images do."""
    same_axis = not isinstance(linear, nn.Linear) or isinstance(norm, nn.BatchNorm1d)
    return same_axis and norm.running_mean is not None and len(norm.running_mean) == len(linear.weight)


def _first_step_folds(linear: Linear, module: QMetricReLU) -> bool:
    """Whether it couples the layer's outputs, pixel by pixel, in a fixed number of steps, few enough for float32."""
    same_channels = linear.weight.ndim == module.coupling.ndim and getattr(linear, "groups", 1) == 1
    pointwise = all(size == 1 for size in module.coupling.shape[2:])
    return same_channels and pointwise and module.tolerance is None and module.iterations <= FLOAT32_ENOUGH


def _without_norm(linear: Linear, norm: Norm) -> nn.Module:
    if not norm.affine:
        assert norm.running_mean is not None
        norm.weight = nn.Parameter(torch.ones_like(norm.running_mean))
        norm.bias = nn.Parameter(torch.zeros_like(norm.running_mean))
    return fuse_linear_bn_eval(linear, norm) if isinstance(linear, nn.Linear) else fuse_conv_bn_eval(linear, norm)


def _with_first_step(linear: Linear, module: QMetricReLU) -> nn.Module:
    """The layer that computes ``(diag(h) - W)(V x + c) - b`` in the place of ``V x + c``."""
    coupling = operators.ungroup(module.coupling).flatten(1)
    step = torch.diag(module.gain) - coupling
    result = copy.deepcopy(linear)
    bias = linear.bias if linear.bias is not None else torch.zeros_like(module.gain)
    result.weight = nn.Parameter(torch.tensordot(step, linear.weight, dims=1))
    result.bias = nn.Parameter(step @ bias - module.threshold)
    return result
