"""Look into a network's forward pass: which ReLU calls it makes, on what, and its graph where it has one."""

import inspect
import operator
import pickle
import random
from collections import Counter
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from functools import partialmethod
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, fx, nn
from torch.autograd.graph import disable_saved_tensors_hooks
from torch.fx._symbolic_trace import _assert_is_none
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_map_only

from detrame.activations import CoupledReLU
from detrame.channels import Layer, Origins, tensors
from detrame.dictionary import DictionaryLayer
from detrame.modes import evaluating
from detrame.operators import autocasts

_RELUS = frozenset({F.relu, F.relu_, torch.relu, torch.relu_, Tensor.relu, Tensor.relu_})

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
        return Arguments(*tree_map_only(Tensor, lambda tensor: tensor.detach().clone(), (self.args, self.kwargs)))


@dataclass(frozen=True)
class Call:
    """One call of ReLU: the innermost module it happened in, the tensor, the last layer upstream of it, the axis
    of its channels, counted from the end, None if that is not known, and how many calls came before it after the layer.
    """

    path: str
    module: nn.Module
    shape: tuple[int, ...]
    device: torch.device
    dtype: torch.dtype
    upstream: Layer | None
    axis: int | None
    rank: int

    def again(self, other: "Call") -> bool:
        """Whether it is the same call as `other` in another pass through the same layer, as of a siamese network."""
        ours, theirs = (call.upstream.source if call.upstream else None for call in (self, other))
        if ours is None or ours is not theirs or self.axis is None or self.axis != other.axis:
            return False
        alike = [(len(call.shape), call.shape[self.axis], call.dtype, call.rank) for call in (self, other)]
        return alike[0] == alike[1]


def is_relu(module: nn.Module | None) -> bool:
    """Whether a module is PyTorch's ReLU itself: a subclass may do something else."""
    return type(module) is nn.ReLU


def is_relu_node(net: fx.GraphModule, node: fx.Node) -> bool:
    """Whether a node of the network's graph is a ReLU: PyTorch's module (without hooks), function or method."""
    method = node.op == "call_method" and node.target in ("relu", "relu_")
    return method or node.target in _RELUS or is_relu(module_of(net, node))


class _Recorder(TorchFunctionMode):
    """Follows a run: every ReLU call, with where its input comes from."""

    def __init__(self, stack: list[tuple[str, nn.Module]], inputs: Any) -> None:
        super().__init__()
        self.stack = stack
        self.calls: list[Call] = []
        self.after = Counter[int | None]()  # the calls after each layer
        self.origins = Origins(inputs)

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        path, module = self.stack[-1]
        if func in _RELUS and not isinstance(module, CoupledReLU):
            z = next(tensors((args, kwargs)))
            layer, axis = self.origins.of(z)
            order = layer and layer.order
            tensor = tuple(z.shape), z.device, _parameter_dtype(z)
            self.calls.append(Call(path, module, *tensor, layer, axis, self.after[order]))
            self.after[order] += 1
        result = func(*args, **kwargs)
        self.origins.follow(func, args, kwargs, result, module)
        return result


def _parameter_dtype(z: Tensor) -> torch.dtype:
    """The dtype for parameters that act on `z`: under autocast it is in half precision, they are not."""
    half = z.dtype in (torch.float16, torch.bfloat16)
    return torch.get_default_dtype() if half and autocasts(z) else z.dtype


@contextmanager
def _recording(net: nn.Module, inputs: Arguments) -> Iterator[_Recorder]:
    """Record the ReLU calls of `net` on its inputs, in eval mode, so that no statistics move."""
    stack: list[tuple[str, nn.Module]] = [("", net)]
    handles = []
    for name, module in net.named_modules():
        entry = (name, module)
        handles.append(module.register_forward_pre_hook(lambda *_, entry=entry: stack.append(entry)))
        handles.append(module.register_forward_hook(lambda *_: _pop(stack)))
    try:
        with evaluating(net), _Recorder(stack, inputs) as recorder:
            yield recorder
    finally:
        for handle in handles:
            handle.remove()


def _pop(stack: list[tuple[str, nn.Module]]) -> None:
    stack.pop()  # and return None: what a hook returns would replace the module's output


def run(net: nn.Module, example: Arguments) -> tuple[list[Call], list[Tensor]]:
    """Run the example: every ReLU call in order, and the tensors that come out."""
    inputs = example.fresh()
    with _recording(net, inputs) as recorder:
        result = net(*inputs.args, **inputs.kwargs)
    return recorder.calls, [output.detach() for output in tensors(result)]


_ASSIGNMENTS = (
    *(operator.iadd, operator.isub, operator.imul, operator.imatmul, operator.itruediv, operator.ifloordiv),
    *(operator.imod, operator.ipow, operator.ilshift, operator.irshift, operator.iand, operator.ior, operator.ixor),
)


class _Proxy(fx.Proxy):
    """``a += b`` stays what it is: torch.fx would make it ``a = a + b``, and another name of a would miss it."""

    def _assign(self, assignment: Any, other: Any) -> fx.Proxy:
        return self.tracer.create_proxy("call_function", assignment, (self, other), {})


for _assignment in _ASSIGNMENTS:
    setattr(_Proxy, f"__{_assignment.__name__}__", partialmethod(_Proxy._assign, _assignment))


def _mode() -> tuple[bool, bool, int]:
    """Whether there are gradients, and the number of autocast blocks around: one may ask for what there is already."""
    torch.autocast_increment_nesting()
    return torch.is_grad_enabled(), torch.is_inference_mode_enabled(), torch.autocast_decrement_nesting()


class _Tracer(fx.Tracer):
    """Traces through a network, not into PyTorch's own modules, iterated activations and dictionary layers."""

    proxy_buffer_attributes = True  # or a buffer's value at the time of tracing would be kept for good

    def __init__(self) -> None:
        super().__init__()
        self.mode = _mode()

    def create_node(self, kind: str, target: Any, args: tuple[Any, ...], *rest: Any, **kwargs: Any) -> fx.Node:
        """A node of the graph; a ValueError in a block of which the graph would not know."""
        if _mode() != self.mode:  # inside an autograd function of the network's own there are no gradients either
            raise ValueError("a block without gradients or with its own autocast, or its own backward, would be lost")
        if target is _assert_is_none:  # of an argument left out; once such a node is unpickled, torch.fx traces no more
            is_none = super().create_node(kind, operator.eq, (args[0], None), {})
            target, args = torch._assert, (is_none, *args[1:])
        return super().create_node(kind, target, args, *rest, **kwargs)

    def proxy(self, node: fx.Node) -> fx.Proxy:
        """What stands for the value of a node."""
        return _Proxy(node, self)

    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        """Whether a module is one node of the graph."""
        return isinstance(m, CoupledReLU | DictionaryLayer) or super().is_leaf_module(m, module_qualified_name)


def trace(net: nn.Module, example: Arguments, expected: list[Tensor]) -> fx.GraphModule | str:
    """The forward pass as a graph that gives `expected` on the example, or the reason why it has none."""
    try:
        with evaluating(net):
            net.train()
            in_training = traced(net, example)
            net.eval()
            found = traced(net, example)
            same_constants = same_outputs(_constants(found), _constants(in_training), rtol=0, atol=0)
            if str(found.graph) != str(in_training.graph) or not same_constants:
                return "the forward pass differs between training and evaluation, so that no one trace serves"
            _, outputs = run(found, example)
    except Exception as error:  # whatever a forward pass does to a proxy that it cannot stand for
        said = str(error).splitlines() or [type(error).__name__]
        return f"the forward pass cannot be traced ({said[0]})"
    if not same_outputs(expected, outputs):
        return "its trace gives other outputs"
    return found


def _constants(net: fx.GraphModule) -> list[Tensor]:
    """The tensors that a forward pass made while it was traced."""
    return [getattr(net, str(node.target)) for node in net.graph.nodes if str(node.target).startswith(CONSTANT)]


def traced(net: nn.Module, example: Arguments | None = None) -> fx.GraphModule:
    """The forward pass as a graph of the network's own modules; an error if that would do something else.

    Arguments that the example leaves out keep their defaults; without an example, so do those that are switches.
    """
    before = _random_states()
    with _attributes_kept(net), torch.inference_mode(False), torch.enable_grad(), _checkpoints_refused(net.training):
        left_out = _left_out(net, example)
        passes = _Tracer().trace(net, concrete_args=left_out)
        for node in passes.find_nodes(op="placeholder"):
            if (name := str(node.target).removesuffix("_1")) in left_out:  # which torch.fx has added
                node.target = name  # so that the default can be given by name
        graph = fx.GraphModule(net, passes)
    if _random_states() != before:
        raise ValueError("random numbers drawn in the forward pass would be kept for good")
    _check_hooks(net, graph)
    _check_writes(graph)
    return graph


def _checkpoints_refused(training: bool) -> AbstractContextManager[None]:
    """Inside, a RuntimeError where a pass to be trained keeps its tensors its own way; one in evaluation keeps none."""
    message = "activation checkpointing, or other hooks of tensors saved for the backward pass, would be lost"
    return disable_saved_tensors_hooks(message) if training else nullcontext()


def _left_out(net: nn.Module, example: Arguments | None) -> dict[str, Any]:
    """The arguments of the forward pass that are to keep their defaults: None stays None in the trace.

    Without an example these are the switches, None, True and False, on which a pass branches: others can be given, and
    all to a graph, which has no branches. Containers are not among them: torch.fx has no code for such.
    """
    if isinstance(net, fx.GraphModule):
        return {}
    signature = inspect.signature(net.forward)
    first = list(signature.parameters)[:1]
    given = first if example is None else signature.bind(*example.args, **example.kwargs).arguments
    return {
        name: parameter.default
        for name, parameter in signature.parameters.items()
        if name not in given
        and parameter.default is not parameter.empty
        and not isinstance(parameter.default, tuple | list | dict)
        and (example is not None or parameter.default is None or isinstance(parameter.default, bool))
    }


def _random_states() -> list[Any]:
    on_gpus = torch.cuda.get_rng_state_all() if torch.cuda.is_initialized() else []  # type: ignore[no-untyped-call]
    of_numpy = pickle.dumps(np.random.get_state(legacy=False))  # which holds an array: no one truth to compare by
    return [random.getstate(), of_numpy, *(state.tolist() for state in (torch.get_rng_state(), *on_gpus))]


@contextmanager
def _attributes_kept(net: nn.Module) -> Iterator[None]:
    """Put back what the block keeps in attributes, or in lists and dicts that are such; a ValueError if it did."""
    attributes = [vars(module) for module in net.modules()]
    held = [value for each in attributes for value in each.values() if isinstance(value, list | dict)]
    kept = [(container, container.copy()) for container in (*attributes, *held)]
    try:
        yield
    finally:
        for name in [name for name in vars(net) if name.startswith(CONSTANT)]:
            delattr(net, name)  # which torch.fx has put there
        changed = [(container, before) for container, before in kept if _parts(container) != _parts(before)]
        for container, before in changed:
            container.clear()
            if isinstance(container, dict):
                container.update(before)
            else:
                container.extend(before)
    if changed:
        raise ValueError("what the forward pass keeps in attributes would not be kept")


def _parts(container: list[Any] | dict[str, Any]) -> list[int]:
    """What tells whether a container holds the same things."""
    return list(map(id, (*container, *container.values()) if isinstance(container, dict) else container))


def _check_hooks(net: nn.Module, graph: fx.GraphModule) -> None:
    """Raise a ValueError if a module that the graph looks into, rather than calls it, has hooks."""
    called = {node.target for node in graph.graph.nodes if node.op == "call_module"}
    for name, module in net.named_modules():
        if has_hooks(module) and name not in called:
            raise ValueError(f"hooks or a forward pass of {name or 'the network'} itself would not be called")


def has_hooks(module: nn.Module) -> bool:
    """Whether more than the forward pass of its class happens when a module is called."""
    hooks = (module._forward_hooks, module._forward_pre_hooks, module._backward_hooks, module._backward_pre_hooks)
    return any(hooks) or "forward" in vars(module)


def module_of(net: fx.GraphModule, node: fx.Node) -> nn.Module | None:
    """The module that a node calls, unless it has hooks: these want it to be called."""
    if node.op != "call_module":
        return None
    module = net.get_submodule(str(node.target))
    return None if has_hooks(module) else module


def uses(net: fx.GraphModule, node: fx.Node) -> int:
    """In how many places of the graph the module that a node calls, or a tensor of it, is used."""
    names = [str(other.target) for other in net.graph.nodes if other.op in ("call_module", "get_attr")]
    return sum(name == node.target or name.startswith(f"{node.target}.") for name in names)


def _check_writes(net: fx.GraphModule) -> None:
    """Raise a ValueError if something written in place would not hold the same."""
    order = {node: index for index, node in enumerate(net.graph.nodes)}
    for node in order:
        if (source := written(net, node)) is None:
            continue
        if str(source.target).startswith(CONSTANT):
            raise ValueError("a tensor that the forward pass makes and then writes to would be made only once")
        # A tensor changes under its other names too, a number does not: a trace knows which it is of layers alone.
        may_be_number = node.target in _ASSIGNMENTS and source.op not in ("call_module", "get_attr")
        if may_be_number and any(order[user] > order[node] for user in source.users):
            raise ValueError(f"{node} assigns to what is read under another name")


def written(net: fx.GraphModule, node: fx.Node) -> fx.Node | None:
    """What a node writes in place, if it does."""
    if node.op == "call_module":
        in_place = getattr(net.get_submodule(str(node.target)), "inplace", False)
    else:
        name = node.target if isinstance(node.target, str) else getattr(node.target, "__name__", "")
        by_name = name == "__setitem__" or (name.endswith("_") and not name.endswith("__"))
        asked_for = by_name or node.target in _ASSIGNMENTS or node.kwargs.get("inplace", False)
        in_place = asked_for and node.op in ("call_method", "call_function")
    return node.all_input_nodes[0] if in_place else None


def same_outputs(expected: list[Tensor], outputs: list[Tensor], *, rtol: float = 1e-4, atol: float = 1e-5) -> bool:
    """Whether two runs gave the same tensors, up to rounding; on the meta device, which holds none, their shapes."""

    def same(a: Tensor, b: Tensor) -> bool:
        alike = (a.shape, a.dtype, a.device) == (b.shape, b.dtype, b.device)
        return alike and (a.is_meta or torch.allclose(a, b, rtol=rtol, atol=atol, equal_nan=True))

    return len(expected) == len(outputs) and all(map(same, expected, outputs))
