"""Turn the ReLUs of any PyTorch network into Q-Metric ReLUs that leave its outputs unchanged until trained.

One run of an example finds every ReLU call, the tensor it acts on and the last convolution or linear layer upstream
of it. ReLU modules called in one place are exchanged where they stand, so that the network keeps its class. Where a
ReLU is a function call, one module serves in several places, or what an in-place one changes is used again, the forward
pass is traced (torch.fx) first, and each place gets a module of its own. Calls after a layer that the pass calls more
than once, as a siamese network does, are one place. What a trace does not reach is listed in ``unconverted``.
"""

import copy
import warnings
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from itertools import count
from typing import Any, NamedTuple

import torch
from torch import Tensor, fx, nn
from torch.nn.parameter import is_lazy

from detrame.activations import QMetricReLU
from detrame.errors import check_count, check_type
from detrame.tracing import Arguments, Call, has_hooks, is_relu, is_relu_node, run, same_outputs, trace, written

_EXPORTED_RELUS = (torch.ops.aten.relu.default, torch.ops.aten.relu_.default)


class Unconverted(NamedTuple):
    """A ReLU that was left as it is: where it stands, and why."""

    where: str
    reason: str

    def __str__(self) -> str:
        return f"{self.where}: {self.reason}"


class Converted(fx.GraphModule):
    """A converted network whose forward pass had to be traced."""

    def _kept(self) -> dict[str, Any]:
        """What the copies of a GraphModule leave behind where its graph does not use it."""
        names = ("_modules", "_parameters", "_buffers", "_non_persistent_buffers_set", "training", "unconverted")
        return {name: vars(self)[name] for name in names}

    def __deepcopy__(self, memo: Any) -> fx.GraphModule:
        twin = super().__deepcopy__(memo)
        vars(twin).update(copy.deepcopy(self._kept(), memo))
        return twin

    def __reduce__(self) -> tuple[Any, ...]:
        return _unpickled, super().__reduce__(), self._kept()


def _unpickled(make: Callable[..., fx.GraphModule], arguments: tuple[Any, ...]) -> Converted:
    """As one of its own class, or the next copy would lose what this one keeps."""
    found = make(*arguments)
    return Converted(found, found.graph)


def convert(
    model: nn.Module,
    example_input: Tensor | tuple[Any, ...] | dict[str, Any],
    *,
    iterations: int = 2,
    inplace: bool = False,
) -> nn.Module:
    """Replace the ReLUs of a network by Q-Metric ReLUs. The outputs stay the same until the network is trained.

    The network is run once on the example. Channels and dimension are those of the tensor that each ReLU acts on. The
    channels are followed from the last layer upstream: they are on axis 1 after a convolution, and on the last axis
    after a linear layer. If they end up on any other axis, or on none that is known, the ReLU is left as it is. The
    coupling has the filter size of the last convolution upstream (an even size k becomes k - 1; without one it is 1).

    Args:
        model: any network. torch.fx must be able to trace its forward pass if ReLU is called as a function, if one
            nn.ReLU serves in several places, or if the input of an in-place one is used again.
        example_input: what the network is called with: a tensor, a tuple of arguments, or a dict of named ones.
        iterations: of each Q-Metric ReLU.
        inplace: share modules and parameters with `model`. If no trace is needed, `model` itself is changed and
            returned.

    Returns:
        The converted network. Its attribute ``unconverted`` lists every ReLU that was left, and a warning says so. The
        list has every nn.ReLU, and the functional ones that the example's run meets; it cannot see those in a branch
        that the run does not take. A network that had to be traced is a torch.fx.GraphModule. It keeps the names of
        modules and parameters, but not the methods and containers of the original, and takes the arguments of the
        example. Those that the example leaves out keep their defaults.
    """
    check_count("iterations", iterations)
    _check_model(model)
    if not inplace and any(map(is_lazy, model.parameters())):
        raise ValueError("lazy layers have no weights yet, and the copy would get others: run the network once first")
    example = Arguments.of(example_input)
    with torch.inference_mode(False):  # or the parameters made here, and copies of the network's, could not be trained
        net = nn.Sequential(model).train(model.training) if isinstance(model, nn.ReLU) else model
        net = net if inplace else copy.deepcopy(net)
        calls, expected = run(net, example)
        in_place = _needed_in_place(net, example, calls, expected)
        why_not_traced = None
        if in_place or _needs_tracing(calls):
            traced = _with_a_module_each(net, example, expected)
            if isinstance(traced, str):
                why_not_traced = traced
            else:
                (net, calls), in_place = traced, set()
        unconverted = _exchange_modules(net, calls, in_place, iterations, why_not_traced)
        unconverted += _unseen(net, {call.module for call in calls})
        net.unconverted = unconverted  # type: ignore[assignment]  # a plain list, neither parameter nor module
        if not calls and not unconverted:
            warnings.warn("the network has no ReLU: nothing was converted", stacklevel=2)
        _report(unconverted, same_outputs(expected, run(net, example)[1]))
        return net


def _check_model(model: nn.Module) -> None:
    check_type("model", model, nn.Module, "an nn.Module")
    for module in model.modules():
        if isinstance(module, torch.jit.ScriptModule):
            raise TypeError("a scripted network cannot be converted: convert it before torch.jit.script")
        if type(module).__name__ == "OptimizedModule":
            raise TypeError("a compiled network cannot be converted: convert it before torch.compile")
        if isinstance(module, fx.GraphModule) and any(node.target in _EXPORTED_RELUS for node in module.graph.nodes):
            raise TypeError("an exported network cannot be converted: convert it before torch.export")


def _needs_tracing(calls: list[Call]) -> bool:
    return not all(is_relu(call.module) and _in_one_place(call, calls) for call in calls)


def _in_one_place(call: Call, calls: list[Call]) -> bool:
    """Whether all calls of its module are the same call again."""
    return all(other is call or other.again(call) for other in calls if other.module is call.module)


def _needed_in_place(net: nn.Module, example: Arguments, calls: list[Call], expected: list[Tensor]) -> set[nn.ReLU]:
    """The in-place ReLU modules, if the outputs would be others without: what they change is used again then."""
    relus = {call.module for call in calls if isinstance(call.module, nn.ReLU) and call.module.inplace}
    if not relus:
        return relus
    for relu in relus:
        relu.inplace = False
    try:
        _, outputs = run(net, example)
    finally:
        for relu in relus:
            relu.inplace = True
    if same_outputs(expected, outputs):
        return set()
    random = not same_outputs(expected, run(net, example)[1])
    return set() if random else relus


def _with_a_module_each(
    net: nn.Module, example: Arguments, expected: list[Tensor]
) -> tuple[Converted, list[Call]] | str:
    """The network's trace, where every place of a ReLU has a module of its own, and its calls; or why there is none.

    It gives the expected outputs.
    """
    traced = trace(net, example, expected)
    if isinstance(traced, str):
        return traced
    converted = Converted(traced, traced.graph)
    _keep_state(net, converted)
    places = [node for node in converted.graph.nodes if is_relu_node(converted, node)]
    uses = Counter(node.target for node in places if node.op == "call_module")
    before: dict[str, object] = {}
    for node in places:
        served = converted.get_submodule(str(node.target)) if node.op == "call_module" else converted
        in_place = written(converted, node) is not None
        name = str(node.target) if uses[node.target] == 1 else _free_name(converted, node)
        converted.add_submodule(name, nn.ReLU().train(served.training))
        before[name] = node.target
        _replace(node, name, in_place)
    for target in uses:
        if uses[target] > 1:
            converted.delete_submodule(str(target))
    converted.recompile()
    calls, outputs = run(converted, example)
    if not same_outputs(expected, outputs):  # as where a view is written in place
        return "its trace gives other outputs where no ReLU is in place"
    return converted, _tied(converted, calls, before)


def _tied(net: Converted, calls: list[Call], before: dict[str, object]) -> list[Call]:
    """Let one module serve all calls after one and the same layer: what the network shares stays shared.

    By its name `before` has the module or function that each ReLU stands for: those that were two stay two.
    """
    nodes = {node.target: node for node in net.graph.nodes}
    tied: list[Call] = []
    for call in calls:
        alike = (one for one in tied if one.path in before and before[one.path] == before.get(call.path))
        first = next((earlier for earlier in alike if call.again(earlier)), call)
        if first is not call:
            nodes[call.path].target = first.path
            net.delete_submodule(call.path)
        tied.append(replace(call, path=first.path, module=first.module))
    net.recompile()
    return tied


def _report(unconverted: list[Unconverted], same: bool) -> None:
    if unconverted:
        lines = "; ".join(map(str, unconverted))
        warnings.warn(f"{len(unconverted)} ReLU left unconverted: {lines}", stacklevel=3)
    if not same:
        warnings.warn("the converted network's outputs differ on the example: is it random in eval mode?", stacklevel=3)


def _activation(call: Call, iterations: int) -> QMetricReLU | str:
    """The Q-Metric ReLU for a place, or the reason why there can be none."""
    shape, layer, axis = call.shape, call.upstream, call.axis
    if not call.dtype.is_floating_point or not shape or len(shape) > 5:
        return f"it acts on a {call.dtype} tensor of shape {shape}"
    if axis is None and layer is None:  # nothing says where the channels are: the input's are where images have theirs
        axis = -max(len(shape) - 1, 1)
    if axis is None:
        return f"which axis of its shape {shape} holds the channels is not known"
    if axis != -1 and len(shape) + axis != 1:
        batch = "" if len(shape) + axis else ": give an example with a batch"
        return f"the channels are on axis {len(shape) + axis} of its shape {shape}, neither on 1 nor on the last{batch}"
    dim = 0 if axis == -1 else len(shape) - 2
    kernel = [1] * dim
    if layer is not None and len(layer.kernel) == dim:
        kernel = [size - (size % 2 == 0) for size in layer.kernel]
    activation = QMetricReLU(
        shape[axis], kernel if dim else None, iterations, dim=dim, device=call.device, dtype=call.dtype
    )
    return activation.train(call.module.training)


def _exchange_modules(
    net: nn.Module, calls: list[Call], in_place: set[nn.ReLU], iterations: int, why_not_traced: str | None
) -> list[Unconverted]:
    """Exchange every nn.ReLU called in one place, but those `in_place`; return the called ReLUs that are left."""
    unconverted = []
    exchanged: dict[nn.Module, QMetricReLU] = {}
    for call in calls:
        if call.module in exchanged:
            continue
        owner = _fused_owner(net, call.path)
        if not is_relu(call.module):
            within = type(call.module).__name__ if call.path else "a function"
            reason = (
                f"a function call, and {why_not_traced}" if why_not_traced else f"inside {within}, which is not traced"
            )
        elif has_hooks(call.module):
            reason = "its hooks, or a forward pass of its own, would be lost"
        elif owner:
            reason = f"inside {owner}, whose fused inference would pass it by"
        elif not _in_one_place(call, calls):
            reason = f"one module in several places, and {why_not_traced or 'not all of them are traced'}"
        elif call.module in in_place:
            reason = f"what in-place ReLUs change is used again, and {why_not_traced}"
        elif isinstance(activation := _activation(call, iterations), str):
            reason = activation
        else:
            exchanged[call.module] = activation
            continue
        unconverted.append(Unconverted(call.path or "forward", reason))
    for name, module in list(net.named_modules(remove_duplicate=False)):
        if module in exchanged:
            net.set_submodule(name, exchanged[module])
    return unconverted


def _fused_owner(net: nn.Module, path: str) -> str | None:
    """The class of PyTorch's own that holds the ReLU at `path`, if that is more than a container."""
    owner = type(net.get_submodule(path.rpartition(".")[0]))
    containers = (nn.Module, nn.Sequential, nn.ModuleList, nn.ModuleDict)  # the first in a graph that looks into them
    return owner.__name__ if owner.__module__.startswith("torch.nn.") and owner not in containers else None


def _unseen(net: nn.Module, called: set[nn.Module]) -> list[Unconverted]:
    """The ReLUs of the network that no call was seen of."""
    unseen = []
    for name, module in net.named_modules():
        if isinstance(module, nn.ReLU) and module not in called:
            unseen.append(Unconverted(name, "no call of it was seen in the example's run"))
        if isinstance(module, nn.RNNBase | nn.RNNCell) and getattr(module, "nonlinearity", None) == "relu":
            unseen.append(Unconverted(name or "the network", "a recurrent layer computes its ReLU itself"))
    return unseen


def _keep_state(net: nn.Module, converted: Converted) -> None:
    """Give the graph all modules under all their names, used or not, so that a state_dict of the original still fits.

    A module that the graph looks into is an empty one there, and gets what it had of its own.
    """
    there = {name for name, _ in converted.named_modules(remove_duplicate=False)}
    twins: dict[nn.Module, nn.Module] = {}
    for name, module in net.named_modules(remove_duplicate=False):
        if module in twins and is_relu(module):
            continue  # it has no state, and each of its places gets a module of its own
        if name not in there:
            new = nn.Module() if any(True for _ in module.children()) else module
            converted.add_submodule(name, twins.get(module, new))
        twin = converted.get_submodule(name)
        twins.setdefault(module, twin)
        if twin is not module:
            _give_own(module, twin)


def _give_own(module: nn.Module, twin: nn.Module) -> None:
    """Give the twin of a module its parameters, buffers and mode; tensors that were no state of it stay none."""
    twin.training = module.training
    for name, parameter in module.named_parameters(recurse=False, remove_duplicate=False):
        if not hasattr(twin, name):
            twin.register_parameter(name, parameter)
    for name, buffer in module.named_buffers(recurse=False, remove_duplicate=False):
        if not hasattr(twin, name):
            twin.register_buffer(name, buffer)
    persistent = set(module._buffers) - module._non_persistent_buffers_set
    twin._non_persistent_buffers_set = set(twin._buffers) - persistent


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
