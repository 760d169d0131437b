"""q_metric_relu against the paper's equation written literally: time and memory kept for backward, as ratios.

The two are interleaved in one run, so that whatever else the machine does falls on both; figures are medians.

    python benchmarks/q_metric_relu.py [--repeats 9] [--threads 2] [--json FILE]
"""

import argparse
import json
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from detrame import operators
from detrame.experiments.bench.research import literal
from detrame.functional import q_metric_relu
from detrame.training.environment import commit, hardware


class Case(NamedTuple):
    shape: tuple[int, ...]
    kernel: tuple[int, ...]
    iterations: int
    backward: bool
    channels_last: bool = False

    def __str__(self) -> str:
        layout = "channels_last" if self.channels_last else "contiguous"
        kernel = "x".join(map(str, self.kernel)) or "dense"
        work = "forward+backward" if self.backward else "forward"
        return f"{'x'.join(map(str, self.shape)):>14} {kernel:>5} T={self.iterations} {layout:<13} {work:<16}"


CASES = [
    *[Case((32, 96, 32, 32), (3, 3), t, b, c) for t in (1, 2, 3) for b in (True, False) for c in (False, True)],
    *[Case((128, 16, 32, 32), (3, 3), 3, b) for b in (True, False)],
    *[Case((32, 192, 8, 8), (1, 1), 2, b) for b in (True, False)],
    *[Case((1, 96, 32, 32), (3, 3), 2, b) for b in (True, False)],
    *[Case((4, 512, 4, 4), (3, 3), 2, b) for b in (True, False)],
    *[Case((4096, 64), (), 3, b) for b in (True, False)],
    *[Case((128, 512), (), 3, b) for b in (True, False)],
    *[Case((1, 512), (), 3, b) for b in (True, False)],
]


def inputs(case: Case) -> list[Tensor]:
    channels = case.shape[1]
    coupling = torch.randn(channels, channels, *case.kernel) / (channels * 9)
    operators.diagonal(coupling).zero_()
    z = torch.randn(case.shape)
    if case.channels_last:
        z = z.contiguous(memory_format=torch.channels_last)
    return [t.requires_grad_(case.backward) for t in (z, coupling, torch.rand(channels), torch.rand(channels) / 10)]


Function = Callable[..., Tensor]


def seconds(function: Function, arguments: list[Tensor], case: Case) -> float:
    """The time of one call; a call of less than a few milliseconds is repeated within the measurement."""
    calls = max(1, 2_000_000 // (arguments[0].numel() * case.iterations))
    start = time.perf_counter()
    for _ in range(calls):
        u = function(*arguments, case.iterations)
        if case.backward:
            torch.autograd.grad(u, arguments, torch.ones_like(u))
    return (time.perf_counter() - start) / calls


def kept_for_backward(function: Function, arguments: list[Tensor], case: Case) -> int:
    """Bytes that autograd keeps beside the parameters, each storage once."""
    kept: dict[int, int] = {}
    parameters = {argument.untyped_storage().data_ptr() for argument in arguments[1:]}

    def keep(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in parameters:
            kept[storage.data_ptr()] = storage.nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        function(*arguments, case.iterations)
    return sum(kept.values())


def measure(case: Case, repeats: int) -> dict[str, object]:
    arguments = inputs(case)
    times: dict[Function, list[float]] = {literal: [], q_metric_relu: []}
    for repeat in range(repeats + 1):
        for function, measured in times.items():
            elapsed = seconds(function, arguments, case)
            if repeat:  # the first warms up
                measured.append(elapsed)
    theirs, ours = (statistics.median(measured) for measured in times.values())
    result: dict[str, object] = {**case._asdict(), "literal_ms": 1e3 * theirs, "ms": 1e3 * ours, "speed": theirs / ours}
    if case.backward:
        memory = [kept_for_backward(function, arguments, case) for function in times]
        result["memory"] = memory[1] / memory[0]
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=9)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    torch.manual_seed(0)
    print(f"{hardware('cpu')}, {options.threads} threads, torch {torch.__version__}")
    print("speed: times as fast as the literal equation; memory: share of what it keeps for backward")
    results = []
    for case in CASES:
        result = measure(case, options.repeats)
        memory = f", memory {result['memory']:.2f}" if case.backward else ""
        print(
            f"{case} {result['literal_ms']:8.2f} ms -> {result['ms']:8.2f} ms, speed {result['speed']:.2f}{memory}",
            flush=True,
        )
        results.append(result)
    if options.json:
        document = {
            "hardware": hardware("cpu"),
            "threads": options.threads,
            "torch": torch.__version__,
            "commit": commit(),
            "repeats": options.repeats,
            "cases": results,
        }
        options.json.write_text(json.dumps(document, indent=1) + "\n")


if __name__ == "__main__":
    main()
