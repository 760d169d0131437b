"""The choice between ways to compute one thing, by measurement."""

import warnings
from collections.abc import Callable, Hashable, Sequence

import torch
from torch import Tensor

from detrame.modes import capturing

Candidate = Callable[..., Tensor]
_chosen: dict[Hashable, int] = {}
_CALLS, _REPLAYS = 10, 5
_ROUNDING = 0.03  # of half precision, in norm


def fastest(key: Hashable, candidates: Sequence[Candidate], *args: Tensor | None) -> Tensor:
    """The result, from `args`, of the candidate that was fastest when `key` was first met.

    All candidates compute the same thing. The last, a library's, is the reference: one that fails on this machine or
    disagrees is not taken, with a warning. They are timed as they will run, inside a CUDA graph, but on random numbers:
    on the zeros that a coupling starts with, nobody disagrees, and a GPU is faster. Without CUDA, where only Triton's
    interpreter runs them, the first is taken; where there is nothing to compute or no memory for a trial, the last.
    """
    if len(candidates) == 1 or not torch.cuda.is_available():
        return candidates[0](*args)
    if not all(arg is None or arg.numel() for arg in args):  # of no images, nothing agrees with anything
        return candidates[-1](*args)
    key = torch.cuda.current_device(), len(candidates), key
    if key not in _chosen:
        if torch.cuda.is_current_stream_capturing():  # nothing can be timed then; the warm-up has met every key
            return candidates[-1](*args)
        try:
            _chosen[key] = _choose(key, candidates, _random_like(args))
        except torch.OutOfMemoryError:  # there may be room for the work alone
            torch.cuda.empty_cache()
            return candidates[-1](*args)
    return candidates[_chosen[key]](*args)


def _random_like(args: Sequence[Tensor | None]) -> list[Tensor | None]:
    """Of a generator of their own, so that a training's numbers stay as they are.

    No two are alike: the weights' gradient of two that are would be sums of squares, too large for float16.
    """
    device = next(arg.device for arg in args if arg is not None)
    random = torch.Generator(device).manual_seed(0)
    return [None if arg is None else torch.empty_like(arg).normal_(generator=random) for arg in args]


def _choose(key: Hashable, candidates: Sequence[Candidate], args: Sequence[Tensor | None]) -> int:
    *others, reference = range(len(candidates))
    expected = _result(candidates[reference], args)
    right = [*(n for n in others if _agrees(candidates[n], args, expected, key)), reference]
    return min(right, key=lambda n: _microseconds(candidates[n], args))


def _result(candidate: Candidate, args: Sequence[Tensor | None]) -> Tensor:
    """In float32; lost where it was computed, or what the next candidate leaves unwritten there would seem right."""
    found = candidate(*args)
    result = found.to(torch.float32, copy=True)
    found.fill_(torch.nan)
    return result


def _agrees(candidate: Candidate, args: Sequence[Tensor | None], expected: Tensor, key: Hashable) -> bool:
    try:
        error = float((_result(candidate, args) - expected).norm() / expected.norm())
    except torch.OutOfMemoryError:
        raise
    except Exception as failure:  # whatever a compiler or a driver raises
        warnings.warn(f"a kernel fails on this machine, so the library's is taken for {key}: {failure}", stacklevel=2)
        return False
    if not error <= _ROUNDING:
        warnings.warn(f"a kernel is {error:.1%} off on this machine, so the library's is taken for {key}", stacklevel=2)
        return False
    return True


def _microseconds(candidate: Candidate, args: Sequence[Tensor | None]) -> float:
    for _ in range(2):  # compiled and loaded before the capture
        candidate(*args)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with capturing(graph):
        for _ in range(_CALLS):
            candidate(*args)
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
