"""Trainings side by side on a GPU: each round takes one step of every network.

A round is either a captured step each, on the stream of its training, or one graph of all steps. The latter lets the
device overlap more, mostly; which is faster is measured.
"""

import time
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

import torch
from torch import Tensor

from detrame.training.step import Graph, Step, Taken, unchanged

_OFTEN = 10  # in a row, after which steps are worth capturing together: full batches are, the last of an epoch is not
_ROUNDS, _TRIES = 5, 3  # to measure


def queued_on(stream: torch.cuda.Stream | None) -> AbstractContextManager[object]:
    """Queue what the block does on the stream of a training; on a CPU there is none, and it is done at once."""
    return torch.cuda.stream(stream) if stream is not None else nullcontext()


@dataclass(frozen=True, eq=False)
class Wanted:
    """A step that a training wants to take, and the stream on which its data comes and its result is awaited."""

    step: Step
    stream: torch.cuda.Stream | None
    images: Tensor
    labels: Tensor

    def alone(self) -> Taken:
        """Take it by itself."""
        with queued_on(self.stream):
            return self.step(self.images, self.labels)


class Rounds:
    """Calling it with the steps that are wanted takes them all, and returns what each came to."""

    def __init__(self) -> None:
        self._last: object = None
        self._in_a_row = 0
        self._together: dict[object, _Together | None] = {}

    def __call__(self, wanted: Sequence[Wanted]) -> list[Taken]:
        """The losses and hits, in the order of `wanted`; on a GPU they are queued only."""
        together = self._known(wanted) if len(wanted) > 1 else None
        return [one.alone() for one in wanted] if together is None else together(wanted)

    def _known(self, wanted: Sequence[Wanted]) -> "_Together | None":
        """The graph for steps that have been wanted together often, if it is the faster way."""
        key = tuple((one.step, one.images.shape, one.images.dtype) for one in wanted)
        self._in_a_row = self._in_a_row + 1 if key == self._last else 1
        self._last = key
        if self._in_a_row == _OFTEN and key not in self._together and _can_be_captured(wanted):
            self._together[key] = _faster(wanted)
        return self._together.get(key)


def _can_be_captured(wanted: Sequence[Wanted]) -> bool:
    return all(one.step.captured for one in wanted) and len({one.step.device for one in wanted}) == 1


def _faster(wanted: Sequence[Wanted]) -> "_Together | None":
    """A graph of all steps, unless taking them apart is faster, or leaves no memory for it."""
    with torch.cuda.device(wanted[0].step.device):
        torch.cuda.synchronize()  # weights and batches come from streams of their own, and go back to them
        try:
            with unchanged([one.step for one in wanted]):
                ways = (_Together(wanted), None)
                times = {way: min(_seconds(way, wanted) for _ in range(_TRIES)) for way in ways}
        except torch.OutOfMemoryError:
            torch.cuda.empty_cache()
            return None
        torch.cuda.synchronize()
    best = min(ways, key=lambda way: times[way])
    if best is not None:
        for one in wanted:
            one.step.forget(one.images)
    return best


def _seconds(way: "_Together | None", wanted: Sequence[Wanted]) -> float:
    torch.cuda.synchronize()
    start = time.perf_counter()
    for _ in range(_ROUNDS):
        _ = [one.alone() for one in wanted] if way is None else way(wanted)
    torch.cuda.synchronize()
    return time.perf_counter() - start


class _Together:
    """The steps of several trainings as one graph, on a stream that waits for all of theirs, and they for it."""

    def __init__(self, wanted: Sequence[Wanted]) -> None:
        self._graph = Graph([one.step for one in wanted], [(one.images, one.labels) for one in wanted])
        self._stream: torch.cuda.Stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]

    def __call__(self, wanted: Sequence[Wanted]) -> list[Taken]:
        for number, one in enumerate(wanted):
            with queued_on(one.stream):
                self._graph.load(number, one.images, one.labels)
                self._stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self._stream):
            self._graph.replay()
        taken = []
        for number, one in enumerate(wanted):
            with queued_on(one.stream):
                torch.cuda.current_stream().wait_stream(self._stream)
                taken.append(self._graph.taken(number))
        return taken
