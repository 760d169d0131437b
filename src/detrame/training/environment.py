"""Where a run ran: enough to say, beside every figure, on what it was measured."""

import os
import platform
import subprocess
from pathlib import Path
from typing import Any

import numpy
import torch

import detrame
from detrame.data import Dataset


def describe(dataset: Dataset, device: str) -> dict[str, Any]:
    """Versions, hardware, commit and data, as a JSON object."""
    return {
        "detrame": detrame.__version__,
        "commit": commit(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "numpy": numpy.__version__,
        "device": device,
        "hardware": hardware(device),
        "threads": torch.get_num_threads(),
        "data": {"digest": dataset.digest, "source": dataset.source},
    }


def sittings(environment: dict[str, Any]) -> list[dict[str, Any]]:
    """The environments that a run was trained in: the one it began in, and each in which it was resumed, if another."""
    found = [environment]
    for changed in environment.get("resumed", []):
        found.append(found[-1] | changed)
    return found


def hardware(device: str) -> str:
    """The name of the processor that `device` stands for."""
    if torch.device(device).type == "cuda":
        return torch.cuda.get_device_name(device)
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        model = next(line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        model = platform.processor() or platform.machine()
    return f"{model}, {os.cpu_count()} cores"


def commit() -> str | None:
    """The commit this package runs from: $DETRAME_COMMIT if set, else that of its checkout, marked if changed."""
    if given := os.environ.get("DETRAME_COMMIT"):
        return given
    here = Path(detrame.__file__).parent
    try:
        _git(here, "ls-files", "--error-unmatch", "__init__.py")  # and not of a project that merely holds our venv
        head = _git(here, "rev-parse", "HEAD")
        return head + ("+changes" if _git(here, "status", "--porcelain", "--", ".") else "")
    except (OSError, subprocess.CalledProcessError):
        return None


def short_commit(commit: str | None) -> str:
    """A commit to its first seven digits, with the mark of a changed checkout."""
    if not commit:
        return "unknown"
    digits, mark, rest = commit.partition("+")
    return digits[:7] + mark + rest


def _git(folder: Path, *arguments: str) -> str:
    return subprocess.run(["git", *arguments], cwd=folder, check=True, capture_output=True, text=True).stdout.strip()
