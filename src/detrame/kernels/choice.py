"""The choice between ways to compute one thing, by measurement."""

from collections.abc import Callable, Hashable, Sequence
from typing import TypeVar

import torch

from detrame.modes import capturing

Result = TypeVar("Result")
_chosen: dict[Hashable, int] = {}
_CALLS, _REPLAYS = 10, 5


def fastest(key: Hashable, candidates: Sequence[Callable[[], Result]]) -> Result:
    """The result of the candidate that was fastest when `key` was first met.

    All candidates compute the same thing. They are timed as they will run, inside a CUDA graph; without CUDA, where
    only Triton's interpreter runs them, the first is taken.
    """
    if len(candidates) == 1 or not torch.cuda.is_available():
        return candidates[0]()
    key = torch.cuda.current_device(), key
    if key not in _chosen:
        if torch.cuda.is_current_stream_capturing():  # nothing can be timed then; the warm-up has met every key
            return candidates[0]()
        times = [_microseconds(candidate) for candidate in candidates]
        _chosen[key] = times.index(min(times))
    return candidates[_chosen[key]]()


def _microseconds(candidate: Callable[[], object]) -> float:
    for _ in range(2):  # compiled and loaded before the capture
        candidate()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with capturing(graph):
        for _ in range(_CALLS):
            candidate()
    graph.replay()
    times = []
    for _ in range(_REPLAYS):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        graph.replay()
        end.record()
        end.synchronize()
        times.append(1000 * start.elapsed_time(end) / _CALLS)
    return min(times)
