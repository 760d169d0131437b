"""Sparse coding of many patches: ours against scikit-learn and spams, and how the cost grows with atoms and patches.

The solvers are interleaved in one run, so that whatever else the machine does falls on all; figures are medians. All
solve min over a >= 0 of 1/2|x - Da|^2 + lambda|a|_1 in float64, for random unit atoms and patches, with a lambda that
leaves about a tenth of the codes. scikit-learn and spams run on the CPU with as many threads, ours on --device, where
its patches lie and its codes stay.

    python benchmarks/coding.py [--device cuda] [--repeats 3] [--threads 1] [--out results/coding.json]

--out writes the figures, and beside them two plots: coding-atoms.svg and coding-patches.svg.
"""

import argparse
import json
import math
import os
import statistics
import time
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import sklearn
import torch
from sklearn.decomposition import sparse_encode
from torch import Tensor, nn
from torch.nn import functional as F

from detrame import DictionaryLinear
from detrame.experiments.report.charts import Series, line_chart
from detrame.experiments.report.html import standalone
from detrame.training.environment import commit, hardware
from detrame.training.files import write_text


class Case(NamedTuple):
    patches: int = 10_000
    size: int = 64
    atoms: int = 128

    def __str__(self) -> str:
        return f"{self.patches:>6} patches of {self.size}, {self.atoms:>4} atoms"


HEADLINE = Case()
BY_ATOMS = [HEADLINE._replace(atoms=atoms) for atoms in (32, 64, 128, 256)]
BY_PATCHES = [HEADLINE._replace(patches=patches) for patches in (100, 1_000, 10_000, 100_000)]
ACTIVE = 0.1  # the share of codes that are not zero


class Problem:
    """Patches ``(n, m)`` and a dictionary ``(m, k)``, with the sparsity that leaves a tenth of the codes."""

    def __init__(self, case: Case, device: str) -> None:
        generator = torch.Generator().manual_seed(0)
        self.case = case
        self.patches = F.normalize(
            torch.randn(case.patches, case.size, generator=generator, dtype=torch.float64), dim=1
        )
        self.layer = DictionaryLinear(case.size, case.atoms, sparsity=1.0, damping=0.0, dtype=torch.float64)
        nn.init.normal_(self.layer.dictionary, generator=generator)
        self.layer.dictionary.data = F.normalize(self.layer.dictionary.data, dim=0)
        self.sparsity = self._sparsity()
        self.layer = self.layer.to(device)
        self.on_device = self.patches.to(device)

    def _sparsity(self) -> float:
        """By bisection, on some of the patches."""
        low, high = 0.0, 1.0
        for _ in range(12):
            middle = (low + high) / 2
            self.layer.sparsity.fill_(middle)
            active = (self.layer(self.patches[:200]) > 0).double().mean().item()
            low, high = (middle, high) if active > ACTIVE else (low, middle)
        return self.layer.sparsity.item()


def by_us(problem: Problem, threads: int) -> Tensor:
    code: Tensor = problem.layer(problem.on_device)
    if code.is_cuda:
        torch.cuda.synchronize()
    return code


def by_scikit_learn(problem: Problem, threads: int) -> Tensor:
    patches, atoms = problem.patches.numpy(), problem.layer.dictionary.T.cpu().numpy()
    return torch.from_numpy(
        sparse_encode(
            patches, atoms, algorithm="lasso_cd", alpha=problem.sparsity, positive=True, n_jobs=threads, max_iter=10_000
        )
    )


def by_spams(problem: Problem, threads: int) -> Tensor:
    import spams

    patches = np.asfortranarray(problem.patches.numpy().T)
    dictionary = np.asfortranarray(problem.layer.dictionary.cpu().numpy())
    code = spams.lasso(patches, D=dictionary, lambda1=problem.sparsity, mode=2, pos=True, numThreads=threads)
    return torch.from_numpy(code.toarray().T)


CODERS: dict[str, Callable[[Problem, int], Tensor]] = {
    "detrame": by_us,
    "scikit-learn": by_scikit_learn,
    "spams": by_spams,
}
if find_spec("spams") is None:  # it has no wheel for every machine
    del CODERS["spams"]


@torch.no_grad()
def measure(case: Case, device: str, threads: int, repeats: int) -> dict[str, Any]:
    """Median seconds of each solver, the share of codes that are not zero, and how far the others are from ours."""
    problem = Problem(case, device)
    seconds: dict[str, list[float]] = {name: [] for name in CODERS}
    codes = {}
    for repeat in range(repeats + 1):
        for name, coder in CODERS.items():
            start = time.perf_counter()
            codes[name] = coder(problem, threads)
            if repeat:  # the first warms up
                seconds[name].append(time.perf_counter() - start)
    medians = {name: statistics.median(measured) for name, measured in seconds.items()}
    mine = codes["detrame"].cpu()
    return {
        **case._asdict(),
        "sparsity": problem.sparsity,
        "active": (mine > 0).double().mean().item(),
        "seconds": medians,
        "difference": {name: (mine - code).abs().max().item() for name, code in codes.items() if name != "detrame"},
        "times_as_fast_as": {name: medians[name] / medians["detrame"] for name in CODERS if name != "detrame"},
    }


def plot(results: dict[Case, dict[str, Any]], cases: list[Case], x: Callable[[Case], float], x_label: str) -> str:
    series = [Series(name, [x(c) for c in cases], [results[c]["seconds"][name] for c in cases]) for name in CODERS]
    title = f"Seconds to code the patches, by {x_label}"
    chart = line_chart(series, title=title, x_label=x_label, y_label="seconds", log=True, digits=4)
    return standalone(chart)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu", help="where our solver runs")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    print(f"ours on {hardware(options.device)}; the others on {hardware('cpu')}; {options.threads} threads")
    started = {"commit": commit(), "load": os.getloadavg()[0]}  # of the code that is measured, and of the machine then
    results = {}
    for case in dict.fromkeys([HEADLINE, *BY_ATOMS, *BY_PATCHES]):
        result = results[case] = measure(case, options.device, options.threads, options.repeats)
        times = ", ".join(f"{name} {seconds:.4f} s" for name, seconds in result["seconds"].items())
        ratios = ", ".join(f"{ratio:.2f} times as fast as {name}" for name, ratio in result["times_as_fast_as"].items())
        largest = max(result["difference"].values())
        print(f"{case}: {times}; {ratios}; {result['active']:.1%} active, codes differ by {largest:.1e}", flush=True)
    if options.out:
        document = {
            "device": hardware(options.device),
            "hardware": hardware("cpu"),
            "threads": options.threads,
            "torch": torch.__version__,
            "scikit-learn": sklearn.__version__,
            **started,
            "load_at_the_end": os.getloadavg()[0],
            "repeats": options.repeats,
            "cases": list(results.values()),
        }
        write_text(options.out, json.dumps(document, indent=1) + "\n")
        plots = {
            "atoms": plot(results, BY_ATOMS, lambda case: case.atoms, "atoms"),
            "patches": plot(results, BY_PATCHES, lambda case: math.log10(case.patches), "patches, log10"),
        }
        for name, svg in plots.items():
            write_text(options.out.with_name(f"{options.out.stem}-{name}.svg"), svg)


if __name__ == "__main__":
    main()
