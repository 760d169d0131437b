"""How long things take, and how much memory."""

import gc
import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeVar

import torch

T = TypeVar("T")
Action = Callable[[], object]


@dataclass(frozen=True)
class Effort:
    """How thoroughly to measure.

    Attributes:
        groups: of calls; a figure is the median group's.
        group_s: how long a group lasts, in seconds, about.
        research_s: how long the research code runs, in seconds, after its warm-up.
        images, test_images: how many random images there are to train on and to classify.
    """

    groups: int
    group_s: float
    research_s: float
    images: int
    test_images: int


def milliseconds(actions: Mapping[str, Action], device: torch.device, effort: Effort) -> dict[str, float]:
    """Milliseconds a call of each action: groups of calls taken in turn, so that a drift falls on all; medians.

    On a GPU by its own events, the queue never empty; elsewhere by the clock.
    """
    calls = {name: _calls(action, device, effort) for name, action in actions.items()}
    groups: dict[str, list[float]] = {name: [] for name in actions}
    for _ in range(effort.groups):
        for name, action in actions.items():
            groups[name].append(_group(action, calls[name], device))
    return {name: statistics.median(times) for name, times in groups.items()}


def _calls(action: Action, device: torch.device, effort: Effort) -> int:
    """How many calls make a group; finding out is the warm-up."""
    _group(action, 1, device)
    return max(1, min(500, round(1e3 * effort.group_s / _group(action, 2, device))))


def _group(action: Action, calls: int, device: torch.device) -> float:
    """Milliseconds a call."""
    if device.type == "cuda":
        return _group_on_gpu(action, calls)
    start = time.perf_counter()
    for _ in range(calls):
        action()
    return 1e3 * (time.perf_counter() - start) / calls


def _group_on_gpu(action: Action, calls: int) -> float:
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]
    action()  # what is measured waits for this one, not for the host
    start.record()
    for _ in range(calls):
        action()
    end.record()
    end.synchronize()
    return start.elapsed_time(end) / calls


def best_seconds(action: Action, device: torch.device, *, times: int = 3) -> float:
    """Seconds on the wall of the fastest of some calls, until the device is done; one call before them warms up."""
    best = float("inf")
    for number in range(times + 1):
        start = time.perf_counter()
        action()
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        if number:
            best = min(best, time.perf_counter() - start)
    return best


def peak_mib(build: Callable[[], T], device: torch.device) -> tuple[T, float | None]:
    """What `build` makes, and the most memory of the device that making it took, in MiB; None for a CPU."""
    if device.type != "cuda":
        return build(), None
    return _peak_mib_on_gpu(build, device)


def _peak_mib_on_gpu(build: Callable[[], T], device: torch.device) -> tuple[T, float]:
    gc.collect()  # an earlier network may still be held by a cycle
    before = torch.cuda.memory_allocated(device)
    torch.cuda.reset_peak_memory_stats(device)
    built = build()
    return built, (torch.cuda.max_memory_allocated(device) - before) / 2**20
