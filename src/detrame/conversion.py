"""Turn the ReLUs of any PyTorch network into Q-Metric ReLUs that leave its outputs unchanged until trained.

One run of an example finds every ReLU call, the tensor it acts on and the last convolution or linear layer upstream
of it. ReLU modules called once are exchanged where they stand, so that the network keeps its class. Where a ReLU is a
function call, or one module serves in several places, the forward pass is traced (torch.fx) and each place gets its
own Q-Metric ReLU. What neither way reaches is listed in ``unconverted``.
"""

import copy
import warnings
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count
from typing import Any, NamedTuple

import torch
from torch import Tensor, fx, nn
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode

from detrame.activations import QMetricReLU
from detrame.functional import check_iterations
from detrame.modes import evaluating

_RELUS = frozenset({F.relu, F.relu_, torch.relu, torch.relu_, Tensor.relu, Tensor.relu_})
_CONVOLUTIONS = {
    F.conv1d: 1,
    F.conv2d: 2,
    F.conv3d: 3,
    F.conv_transpose1d: 1,
    F.conv_transpose2d: 2,
    F.conv_transpose3d: 3,
}


class Unconverted(NamedTuple):
    """A ReLU that was left as it is: where it stands, and why."""

    where: str
    reason: str

    def __str__(self) -> str:
        return f"{self.where}: {self.reason}"


class _Layer(NamedTuple):
    """A convolution (with its kernel) or a linear layer (without), numbered in the order of execution."""

    order: int
    kernel: tuple[int, ...]


@dataclass(frozen=True)
class _Call:
    """One call of ReLU during the example's run."""

    path: str  # of the innermost module
    module: nn.Module  # that module: an nn.ReLU, or one whose forward calls relu as a function
    shape: tuple[int, ...]
    device: torch.device
    dtype: torch.dtype
    upstream: _Layer | None


def convert(
    model: nn.Module, example_input: Tensor | tuple[Any, ...], *, iterations: int = 2, inplace: bool = False
) -> nn.Module:
    """A network whose ReLUs are Q-Metric ReLUs, with the same outputs until it is trained.

    Channels and dimension are those of the tensor each ReLU acts on in the example's run. The coupling's filter is
    that of the last convolution upstream (an even size k becomes k - 1; without one it is 1); after a linear layer the
    coupling acts on the last axis.

    Args:
        model: any network; one whose forward pass torch.fx can trace if ReLU is called as a function, or if one
            nn.ReLU serves in several places.
        example_input: what the network is called with: a tensor, or a tuple of arguments.
        iterations: of each Q-Metric ReLU.
        inplace: share modules and parameters with `model`, whose ReLU modules are then exchanged too. Use what is
            returned: a traced network is a new object all the same.

    Returns:
        The converted network. Its attribute ``unconverted`` lists every ReLU that was left, which is also warned of.
    """
    check_iterations(iterations)
    if isinstance(model, torch.jit.ScriptModule):
        raise TypeError("a scripted network cannot be converted: convert it before torch.jit.script")
    args = example_input if isinstance(example_input, tuple) else (example_input,)
    net = nn.Sequential(model) if isinstance(model, nn.ReLU) else model
    net = net if inplace else copy.deepcopy(net)
    calls, expected = _record(net, args)
    traced = _trace(net) if _needs_tracing(calls) else None
    if isinstance(traced, fx.GraphModule):
        net = traced
        unconverted = _rewrite_graph(net, _record(net, args)[0], iterations)
    else:
        unconverted = _exchange_modules(net, calls, iterations, why_not_traced=traced)
    _, outputs = _record(net, args)
    _report(unconverted, expected, outputs)
    net.unconverted = unconverted  # type: ignore[assignment]  # a plain list, neither parameter nor module
    return net


def _report(unconverted: list[Unconverted], expected: list[Tensor], outputs: list[Tensor]) -> None:
    if unconverted:
        lines = "; ".join(map(str, unconverted))
        warnings.warn(f"{len(unconverted)} ReLU left unconverted: {lines}", stacklevel=3)
    if not all(torch.allclose(a, b, rtol=1e-4, atol=1e-5) for a, b in zip(expected, outputs, strict=True)):
        warnings.warn(
            "the converted network's outputs differ on the example: it is random in eval mode, or the input of an "
            "in-place ReLU is used again (set inplace=False there)",
            stacklevel=3,
        )


class _Recorder(TorchFunctionMode):
    """Follows a run: every ReLU call, with the last convolution or linear layer that its input depends on."""

    def __init__(self, stack: list[tuple[str, nn.Module]]) -> None:
        super().__init__()
        self.stack = stack
        self.calls: list[_Call] = []
        self.layers = 0
        # By identity, with the tensor itself, lest a freed one's identity be used again.
        self.upstream: dict[int, tuple[Tensor, _Layer]] = {}

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        tensors = list(_tensors((args, kwargs)))
        before = [self.upstream[id(t)][1] for t in tensors if id(t) in self.upstream]
        layer = max(before, default=None)
        path, module = self.stack[-1]
        if func in _RELUS and not isinstance(module, QMetricReLU):
            z = tensors[0]
            # Under autocast the tensor is in half precision, its parameters are not.
            dtype = torch.get_default_dtype() if torch.is_autocast_enabled(z.device.type) else z.dtype
            self.calls.append(_Call(path, module, tuple(z.shape), z.device, dtype, layer))
        result = func(*args, **kwargs)
        if func in _CONVOLUTIONS or func is F.linear:
            self.layers += 1
            layer = _Layer(self.layers, tuple(tensors[1].shape[2:]))
        if layer is not None:
            for t in _tensors(result):
                self.upstream[id(t)] = (t, layer)
        return result


def _tensors(value: Any) -> Iterator[Tensor]:
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, dict):
        for item in value.values():
            yield from _tensors(item)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _tensors(item)


@contextmanager
def _module_stack(net: nn.Module) -> Iterator[list[tuple[str, nn.Module]]]:
    """Keep, while the network runs, the path of modules that are being called."""
    stack: list[tuple[str, nn.Module]] = [("", net)]
    handles = []
    for name, module in net.named_modules():
        entry = (name, module)
        handles.append(module.register_forward_pre_hook(lambda *_, entry=entry: stack.append(entry)))
        handles.append(module.register_forward_hook(lambda *_: _pop(stack)))
    try:
        yield stack
    finally:
        for handle in handles:
            handle.remove()


def _pop(stack: list[tuple[str, nn.Module]]) -> None:
    stack.pop()  # and return None: what a hook returns would replace the module's output


def _record(net: nn.Module, args: tuple[Any, ...]) -> tuple[list[_Call], list[Tensor]]:
    """Run the example in eval mode, so that no statistics move: every ReLU call in order, and the outputs."""
    with evaluating(net), _module_stack(net) as stack, _Recorder(stack) as recorder:
        result = net(*copy.deepcopy(args))
    return recorder.calls, [output.detach() for output in _tensors(result)]


def _needs_tracing(calls: list[_Call]) -> bool:
    modules = [call.module for call in calls]
    return any(not isinstance(m, nn.ReLU) for m in modules) or len(set(modules)) < len(modules)


def _activation(call: _Call, iterations: int) -> QMetricReLU | str:
    """The Q-Metric ReLU for a place, or the reason why there can be none."""
    after_linear = call.upstream is not None and not call.upstream.kernel
    kernel = call.upstream.kernel if call.upstream else ()
    dim = 0 if after_linear or len(call.shape) <= 2 else len(call.shape) - 2
    if not call.dtype.is_floating_point or not call.shape or dim > 3:
        return f"it acts on a {call.dtype} tensor of shape {call.shape}"
    if dim and kernel and len(kernel) != dim:
        return f"it acts on shape {call.shape} after a {len(kernel)}-dimensional convolution: give a batched example"
    odd = [size - (size % 2 == 0) for size in kernel] if kernel else [1] * dim
    activation = QMetricReLU(
        call.shape[1 if dim else -1],
        odd if dim else None,
        iterations,
        dim=dim,
        device=call.device,
        dtype=call.dtype,
    )
    return activation.train(call.module.training)


def _exchange_modules(
    net: nn.Module, calls: list[_Call], iterations: int, *, why_not_traced: str | None
) -> list[Unconverted]:
    """Exchange every nn.ReLU that is called once; return the ReLUs that are left."""
    unconverted = []
    for call in calls:
        if not isinstance(call.module, nn.ReLU):
            unconverted.append(Unconverted(call.path or "forward", f"a function call, and {why_not_traced}"))
        elif sum(other.module is call.module for other in calls) > 1:
            unconverted.append(Unconverted(call.path, f"one module in several places, and {why_not_traced}"))
        elif isinstance(activation := _activation(call, iterations), str):
            unconverted.append(Unconverted(call.path, activation))
        else:
            for name, module in list(net.named_modules(remove_duplicate=False)):
                if module is call.module:
                    net.set_submodule(name, activation)
    called = {call.module for call in calls}
    for name, module in net.named_modules():
        if isinstance(module, nn.ReLU) and module not in called:
            unconverted.append(Unconverted(name, "the example's run does not reach it"))
    return unconverted


class _Tracer(fx.Tracer):
    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        return isinstance(m, nn.ReLU | QMetricReLU) or super().is_leaf_module(m, module_qualified_name)


def _trace(net: nn.Module) -> fx.GraphModule | str:
    """The network as a graph, or the reason why it has none."""
    try:
        with evaluating(net):
            graph = _Tracer().trace(net)
            net.train()
            in_training = _Tracer().trace(net)
    except Exception as error:  # whatever a forward pass does to a proxy that it cannot stand for
        return f"the forward pass cannot be traced ({str(error).splitlines()[0] or type(error).__name__})"
    if str(graph) != str(in_training):
        return "the forward pass differs between training and evaluation, so that no one trace serves"
    return fx.GraphModule(net, graph)


def _rewrite_graph(net: fx.GraphModule, calls: list[_Call], iterations: int) -> list[Unconverted]:
    """Give every ReLU node of the graph a Q-Metric ReLU of its own; return the ReLUs that are left."""
    unconverted = []
    nodes = iter(places := [node for node in net.graph.nodes if _is_relu(net, node)])
    uses = Counter(place.target for place in places)
    for call in calls:
        if call.path and not isinstance(call.module, nn.ReLU):
            unconverted.append(Unconverted(call.path, f"inside {type(call.module).__name__}, which is not traced"))
            continue
        node = next(nodes)
        if isinstance(activation := _activation(call, iterations), str):
            unconverted.append(Unconverted(call.path or str(node), activation))
            continue
        in_place = _acts_in_place(net, node)
        keeps_name = node.op == "call_module" and uses[node.target] == 1
        name = str(node.target) if keeps_name else _free_name(net, node)
        net.add_submodule(name, activation)
        _replace(node, name, in_place)
    net.delete_all_unused_submodules()
    net.recompile()
    return unconverted


def _is_relu(net: fx.GraphModule, node: fx.Node) -> bool:
    if node.op == "call_module":
        return isinstance(net.get_submodule(str(node.target)), nn.ReLU)
    if node.op == "call_method":
        return node.target in ("relu", "relu_")
    return node.op == "call_function" and node.target in _RELUS


def _free_name(net: fx.GraphModule, node: fx.Node) -> str:
    """A name for the module of one place among several, beside the module that served them all if there was one."""
    base = str(node.target) if node.op == "call_module" else "q_metric_relu"
    taken = {name for name, _ in net.named_modules()}
    return next(name for index in count() if (name := f"{base}_{index}") not in taken)


def _replace(node: fx.Node, name: str, in_place: bool) -> None:
    """Call module `name` in a ReLU node's place; if that acts in place, later uses of its input mean the result."""
    source = node.args[0] if node.args else node.kwargs["input"]
    assert isinstance(source, fx.Node)
    nodes = list(node.graph.nodes)
    later = set(nodes[nodes.index(node) + 1 :])
    with node.graph.inserting_before(node):
        new = node.graph.call_module(name, (source,))
    node.replace_all_uses_with(new)
    if in_place:
        source.replace_all_uses_with(new, delete_user_cb=lambda user: user in later)
    node.graph.erase_node(node)


def _acts_in_place(net: fx.GraphModule, node: fx.Node) -> bool:
    if node.op == "call_module":
        return bool(getattr(net.get_submodule(str(node.target)), "inplace", False))
    name = node.target if isinstance(node.target, str) else getattr(node.target, "__name__", "")
    return name.endswith("_") or bool(node.kwargs.get("inplace", False))
