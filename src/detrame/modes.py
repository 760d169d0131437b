"""How a network can be run: in eval mode without leaving a trace, in full precision, or captured."""

import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

import torch
from torch import nn


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """Put `model` in eval mode inside the block, and every module back in its own mode after it."""
    modes = {module: module.training for module in model.modules()}
    model.eval()
    try:
        yield
    finally:
        for module, training in modes.items():
            module.training = training


@contextmanager
def full_precision(device: torch.device) -> Iterator[None]:
    """Float32 proper inside the block: no autocast on `device`, and no TF32, cuDNN's default, which keeps three digits.

    A gradient is computed as the flags stand in its backward pass, so that belongs in the block too.
    """
    with torch.autocast(device.type, enabled=False), _without_tf32():
        yield


@contextmanager
def _without_tf32() -> Iterator[None]:
    matmul: Any = torch.backends.cuda.matmul
    cudnn: Any = torch.backends.cudnn
    on: bool | str
    off: bool | str
    try:
        name, on, off = "allow_tf32", True, False
        places = [place for place in (matmul, cudnn) if place.allow_tf32]
        medium = torch.get_float32_matmul_precision() == "medium"  # bfloat16 on a CPU, of which the flag knows nothing
    except RuntimeError:  # where PyTorch's newer flags were set, what these are need not be what the older ones can say
        name, on, off = "fp32_precision", "tf32", "ieee"
        places = [place for place in (matmul, cudnn.conv, cudnn.rnn) if place.fp32_precision == on]
        medium = False
    try:
        for place in places:
            setattr(place, name, off)
        if medium:
            torch.set_float32_matmul_precision("highest")
        yield
    finally:
        for place in places:
            setattr(place, name, on)
        if medium:
            torch.set_float32_matmul_precision("medium")


@contextmanager
def drawing_from(generator: torch.Generator | None) -> Iterator[None]:
    """Let what draws from the default generator of a GPU, as dropout does, draw from this one of it inside the block.

    It is the state itself that takes the other's place: a graph captured in the block draws from it at every replay.
    """
    if generator is None:
        yield
        return
    default = torch.cuda.default_generators[generator.device.index]
    before = default.graphsafe_get_state()
    default.graphsafe_set_state(generator.graphsafe_get_state())
    try:
        yield
    finally:
        default.graphsafe_set_state(before)


def capturable(model: nn.Module) -> bool:
    """Whether a pass through `model` can be captured as a CUDA graph.

    A module whose work depends on the data, as a dictionary layer's does, says that it cannot: ``capturable = False``.
    """
    return all(getattr(module, "capturable", True) for module in model.modules())


@contextmanager
def capturing(graph: torch.cuda.CUDAGraph, generators: Iterable[torch.Generator] = ()) -> Iterator[None]:
    """Capture what the block queues; what it draws may come from `generators`.

    cuBLAS keeps one workspace a stream, and all captures of a device share a stream: without one in its own memory for
    each, graphs that are replayed at the same time would write into each other's.
    """
    with warnings.catch_warnings():  # newer versions of PyTorch find the generators themselves, and say so
        warnings.simplefilter("ignore", FutureWarning)
        for generator in generators:
            graph.register_generator_state(generator)
    torch._C._cuda_clearCublasWorkspaces()
    with torch.cuda.graph(graph, stream=_capture_stream(torch.cuda.current_device())):
        yield
    torch._C._cuda_clearCublasWorkspaces()


@cache
def _capture_stream(device: int) -> torch.cuda.Stream:
    """PyTorch's own is of the device that was current when it captured first."""
    return torch.cuda.Stream(device)  # type: ignore[no-untyped-call]


def warm_up(run: Callable[[], object]) -> None:
    """Run what is about to be captured, three times on a stream aside.

    Libraries choose and load their kernels in the first calls, which they may not do under capture.
    """
    side = torch.cuda.Stream()  # type: ignore[no-untyped-call]
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            run()
    torch.cuda.current_stream().wait_stream(side)
