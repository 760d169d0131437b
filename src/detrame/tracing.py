"""Look into a network's forward pass: which ReLU calls it makes, on what, and its graph where it has one."""

import inspect
import operator
import random
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor, fx, nn
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode

from detrame.activations import CoupledReLU
from detrame.dictionary import DictionaryLayer
from detrame.modes import evaluating

_RELUS = frozenset({F.relu, F.relu_, torch.relu, torch.relu_, Tensor.relu, Tensor.relu_})
# Each with where its weight (out, in, *kernel) has the number of output channels.
_LAYERS = {
    F.linear: 0,
    F.conv1d: 0,
    F.conv2d: 0,
    F.conv3d: 0,
    F.conv_transpose1d: 1,
    F.conv_transpose2d: 1,
    F.conv_transpose3d: 1,
}

CONSTANT = "_tensor_constant"  # how torch.fx names the tensors that a forward pass makes


class Arguments(NamedTuple):
    """What a network is called with."""

    args: tuple[Any, ...]
    kwargs: dict[str, Any]

    @classmethod
    def of(cls, example: Tensor | tuple[Any, ...] | dict[str, Any]) -> "Arguments":
        """From a tensor, a tuple of arguments or a dict of named ones."""
        if isinstance(example, Tensor):
            return cls((example,), {})
        if isinstance(example, tuple):
            return cls(example, {})
        if isinstance(example, dict):
            return cls((), example)
        raise TypeError(f"the example must be a tensor, a tuple or a dict of arguments, got {type(example).__name__}")

    def fresh(self) -> "Arguments":
        """The same with tensors of their own, so that a network that works in place does no harm."""
        return Arguments(_cloned(self.args), _cloned(self.kwargs))


class Layer(NamedTuple):
    """A convolution (with its kernel) or a linear layer (without), numbered in the order of execution."""

    order: int
    channels: int
    kernel: tuple[int, ...]


@dataclass(frozen=True)
class Call:
    """One call of ReLU: the innermost module it happened in, the tensor, and the last layer upstream of it."""

    path: str
    module: nn.Module
    shape: tuple[int, ...]
    device: torch.device
    dtype: torch.dtype
    upstream: Layer | None


def is_relu(module: nn.Module) -> bool:
    """Whether a module is PyTorch's ReLU itself: a subclass may do something else."""
    return type(module) is nn.ReLU


class _Recorder(TorchFunctionMode):
    """Follows a run: every ReLU call, with the last convolution or linear layer that its input depends on."""

    def __init__(self, stack: list[tuple[str, nn.Module]]) -> None:
        super().__init__()
        self.stack = stack
        self.calls: list[Call] = []
        self.layers = 0
        # By identity, with the tensor itself, lest a freed one's identity be used again.
        self.upstream: dict[int, tuple[Tensor, Layer]] = {}

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        tensors = list(_tensors((args, kwargs)))
        layer = max((self.upstream[id(t)][1] for t in tensors if id(t) in self.upstream), default=None)
        path, module = self.stack[-1]
        if func in _RELUS and not isinstance(module, CoupledReLU):
            z = tensors[0]
            self.calls.append(Call(path, module, tuple(z.shape), z.device, _parameter_dtype(z), layer))
        result = func(*args, **kwargs)
        if func in _LAYERS:
            self.layers += 1
            weight = tensors[1]
            layer = Layer(self.layers, weight.shape[_LAYERS[func]], tuple(weight.shape[2:]))
        if layer is not None:
            for t in _tensors(result):
                self.upstream[id(t)] = (t, layer)
        return result


def _parameter_dtype(z: Tensor) -> torch.dtype:
    """The dtype for parameters that act on `z`: under autocast it is in half precision, they are not."""
    half = z.dtype in (torch.float16, torch.bfloat16)
    return torch.get_default_dtype() if half and torch.is_autocast_enabled(z.device.type) else z.dtype


@contextmanager
def _recording(net: nn.Module) -> Iterator[_Recorder]:
    """Record the ReLU calls of `net` in eval mode, so that no statistics move."""
    stack: list[tuple[str, nn.Module]] = [("", net)]
    handles = []
    for name, module in net.named_modules():
        entry = (name, module)
        handles.append(module.register_forward_pre_hook(lambda *_, entry=entry: stack.append(entry)))
        handles.append(module.register_forward_hook(lambda *_: _pop(stack)))
    try:
        with evaluating(net), _Recorder(stack) as recorder:
            yield recorder
    finally:
        for handle in handles:
            handle.remove()


def _pop(stack: list[tuple[str, nn.Module]]) -> None:
    stack.pop()  # and return None: what a hook returns would replace the module's output


def run(net: nn.Module, example: Arguments) -> tuple[list[Call], list[Tensor]]:
    """Run the example: every ReLU call in order, and the tensors that come out."""
    args, kwargs = example.fresh()
    with _recording(net) as recorder:
        result = net(*args, **kwargs)
    return recorder.calls, [output.detach() for output in _tensors(result)]


def run_graph(net: fx.GraphModule, example: Arguments) -> dict[fx.Node, list[Call]]:
    """Run the example node by node: the ReLU calls that each node made, of those that made any."""
    found: dict[fx.Node, list[Call]] = {}
    with _recording(net) as recorder:

        class Interpreter(fx.Interpreter):
            def run_node(self, n: fx.Node) -> Any:
                before = len(recorder.calls)
                result = super().run_node(n)
                if calls := recorder.calls[before:]:
                    found[n] = calls
                return result

        args, kwargs = example.fresh()
        bound = inspect.signature(net.forward).bind(*args, **kwargs)
        bound.apply_defaults()
        Interpreter(net).run(*bound.args)
    return found


class _Proxy(fx.Proxy):
    """``a += b`` stays what it is: torch.fx would make it ``a = a + b``, and another name of a would miss it."""

    def __iadd__(self, other: Any) -> fx.Proxy:
        return self.tracer.create_proxy("call_function", operator.iadd, (self, other), {})


def _mode() -> tuple[bool, bool, int]:
    """Whether there are gradients, and the number of autocast blocks around: one may ask for what there is already."""
    torch.autocast_increment_nesting()
    return torch.is_grad_enabled(), torch.is_inference_mode_enabled(), torch.autocast_decrement_nesting()


class Tracer(fx.Tracer):
    """Traces through a network, not into PyTorch's own modules, ReLUs, iterated activations, dictionary layers."""

    proxy_buffer_attributes = True  # or a buffer's value at the time of tracing would be kept for good

    def __init__(self) -> None:
        super().__init__()
        self.mode = _mode()

    def create_node(self, *args: Any, **kwargs: Any) -> fx.Node:
        """A node of the graph; a ValueError in a block of which the graph would not know."""
        if _mode() != self.mode:  # inside an autograd function of the network's own there are no gradients either
            raise ValueError("a block without gradients or with its own autocast, or its own backward, would be lost")
        return super().create_node(*args, **kwargs)

    def proxy(self, node: fx.Node) -> fx.Proxy:
        """What stands for the value of a node."""
        return _Proxy(node, self)

    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        """Whether a module is one node of the graph."""
        return (
            is_relu(m)
            or isinstance(m, CoupledReLU | DictionaryLayer)
            or super().is_leaf_module(m, module_qualified_name)
        )


def trace(net: nn.Module, example: Arguments, expected: list[Tensor]) -> fx.GraphModule | str:
    """The forward pass as a graph that gives `expected` on the example, or the reason why it has none."""
    try:
        with evaluating(net):
            net.train()
            in_training = traced(net, example)
            net.eval()
            found = traced(net, example)
            if str(found.graph) != str(in_training.graph):
                return "the forward pass differs between training and evaluation, so that no one trace serves"
            _, outputs = run(found, example)
    except Exception as error:  # whatever a forward pass does to a proxy that it cannot stand for
        return (
            f"the forward pass cannot be traced ({str(error).splitlines()[0] if str(error) else type(error).__name__})"
        )
    if not same_outputs(expected, outputs):
        return "its trace gives other outputs"
    return found


def traced(net: nn.Module, example: Arguments | None = None) -> fx.GraphModule:
    """The forward pass as a graph of the network's own modules; a ValueError if that would do something else.

    Arguments that the example leaves out keep their defaults.
    """
    before = _random_states()
    with _attributes_kept(net), torch.inference_mode(False), torch.enable_grad():
        graph = fx.GraphModule(net, Tracer().trace(net, concrete_args=_left_out(net, example)))
    if _random_states() != before:
        raise ValueError("random numbers drawn in the forward pass would be kept for good")
    _check_hooks(net, graph)
    return graph


def _left_out(net: nn.Module, example: Arguments | None) -> dict[str, Any]:
    """The arguments of the forward pass that the example leaves at their defaults: None stays None in the trace."""
    if example is None:
        return {}
    signature = inspect.signature(net.forward)
    given = signature.bind(*example.args, **example.kwargs).arguments
    return {
        name: parameter.default
        for name, parameter in signature.parameters.items()
        if name not in given and parameter.default is not parameter.empty
    }


def _random_states() -> list[Any]:
    on_gpus = torch.cuda.get_rng_state_all() if torch.cuda.is_initialized() else []  # type: ignore[no-untyped-call]
    return [random.getstate(), *(state.tolist() for state in (torch.get_rng_state(), *on_gpus))]


@contextmanager
def _attributes_kept(net: nn.Module) -> Iterator[None]:
    """Put back what the block sets on modules; a ValueError if it did, since a pass without their code would not."""
    kept = {module: dict(vars(module)) for module in net.modules()}
    set_by_code = []
    try:
        yield
    finally:
        for module, before in kept.items():
            now = vars(module)
            changed = {name for name in now.keys() | before.keys() if now.get(name) is not before.get(name)}
            if changed:
                now.clear()
                now.update(before)
            set_by_code += [name for name in changed if not name.startswith(CONSTANT)]
    if set_by_code:
        raise ValueError(f"the attribute {set_by_code[0]} that the forward pass sets would not be set")


def _check_hooks(net: nn.Module, graph: fx.GraphModule) -> None:
    """Raise a ValueError if a module that the graph looks into, rather than calls it, has hooks."""
    called = {node.target for node in graph.graph.nodes if node.op == "call_module"}
    for name, module in net.named_modules():
        if _has_hooks(module) and name not in called:
            raise ValueError(f"the hooks of {name or 'the network'} would not be called")


def _has_hooks(module: nn.Module) -> bool:
    return any((module._forward_hooks, module._forward_pre_hooks, module._backward_hooks, module._backward_pre_hooks))


def module_of(net: fx.GraphModule, node: fx.Node) -> nn.Module | None:
    """The module that a node calls, unless it has hooks: these want it to be called."""
    if node.op != "call_module":
        return None
    module = net.get_submodule(str(node.target))
    return None if _has_hooks(module) else module


def uses(net: fx.GraphModule, node: fx.Node) -> int:
    """In how many places of the graph the module that a node calls, or a tensor of it, is used."""
    names = [str(other.target) for other in net.graph.nodes if other.op in ("call_module", "get_attr")]
    return sum(name == node.target or name.startswith(f"{node.target}.") for name in names)


def writes(net: fx.GraphModule, node: fx.Node) -> bool:
    """Whether a node writes in place the tensor that is its first input."""
    if node.op == "call_module":
        return bool(getattr(net.get_submodule(str(node.target)), "inplace", False))
    name = node.target if isinstance(node.target, str) else getattr(node.target, "__name__", "")
    called = node.op in ("call_method", "call_function")
    by_name = name.endswith("_") and not name.endswith("__")
    return called and (by_name or node.target in _IN_PLACE or bool(node.kwargs.get("inplace")))


_IN_PLACE = (operator.iadd, operator.isub, operator.imul, operator.itruediv, operator.ifloordiv, operator.ipow)


def same_outputs(expected: list[Tensor], outputs: list[Tensor]) -> bool:
    """Whether two runs gave the same tensors, up to rounding."""
    return len(expected) == len(outputs) and all(
        a.shape == b.shape and torch.allclose(a, b, rtol=1e-4, atol=1e-5, equal_nan=True)
        for a, b in zip(expected, outputs, strict=True)
    )


def _tensors(value: Any) -> Iterator[Tensor]:
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, dict):
        yield from _tensors(list(value.values()))
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _tensors(item)


def _cloned(value: Any) -> Any:
    if isinstance(value, Tensor):
        return value.detach().clone()
    if isinstance(value, dict):
        return {name: _cloned(item) for name, item in value.items()}
    if isinstance(value, list | tuple) and not hasattr(value, "_fields"):
        return type(value)(_cloned(item) for item in value)
    return value
