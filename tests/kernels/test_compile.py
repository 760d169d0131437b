"""The kernels compile for the GPU they are written for, which none of the other tests here would notice."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("triton", minversion="3.4", reason="needs Triton 3.4, in whose terms launches are compiled")

from detrame import kernels

SOURCES = Path(kernels.__file__).parent.glob("*.py")


def test_every_kernel_compiles_for_an_h200() -> None:
    launched = {name for source in SOURCES for name in re.findall(r"^ +(_\w+)\[.*\]\(", source.read_text(), re.M)}
    assert "_convolve" in launched
    script = Path(__file__).with_name("compile_kernels.py")
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    assert set(done.stdout.split()) == launched
