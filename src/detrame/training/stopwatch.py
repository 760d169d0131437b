"""The time that work takes, on the device where it is done."""

import time
from typing import Any

import torch


class Stopwatch:
    """The seconds from its making to its stop, of what was queued between on a GPU, of the clock on a CPU."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._start = self._now()

    def _now(self) -> Any:
        if self._device.type != "cuda":
            return time.perf_counter()
        event = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
        event.record()
        return event

    def stop(self) -> None:
        """End here what is timed."""
        self._end = self._now()

    def seconds(self) -> float:
        """The time between, once the device has come so far."""
        if self._device.type != "cuda":
            return self._end - self._start
        self._end.synchronize()
        return self._start.elapsed_time(self._end) / 1000
