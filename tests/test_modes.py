import subprocess
import sys
from collections.abc import Iterator

import pytest
import torch

from detrame.modes import drawing_from, full_precision

matmul, cudnn = torch.backends.cuda.matmul, torch.backends.cudnn


@pytest.fixture
def in_tf32() -> Iterator[None]:
    """As some users set it: matrix products in TF32."""
    before, matmul.allow_tf32 = matmul.allow_tf32, True
    yield
    matmul.allow_tf32 = before


@pytest.mark.usefixtures("in_tf32")
def test_no_product_is_in_tf32_in_full_precision() -> None:
    with full_precision(torch.device("cpu")):
        assert not matmul.allow_tf32
        assert not cudnn.allow_tf32
    assert matmul.allow_tf32
    assert cudnn.allow_tf32


def run_alone(program: str) -> None:
    """In a process of its own: how PyTorch holds these flags depends on all that was ever set."""
    lines = ["import torch", "from detrame.modes import full_precision", 'cpu = torch.device("cpu")', program]
    done = subprocess.run([sys.executable, "-c", "\n".join(lines)], capture_output=True, text=True, check=False)
    assert not done.returncode, done.stderr


@pytest.mark.parametrize("precision", ["medium", "high", "highest"])
def test_the_precision_of_products_is_as_it_was_after_full_precision(precision: str) -> None:
    run_alone(f"""
torch.set_float32_matmul_precision({precision!r})
with full_precision(cpu), full_precision(cpu):
    assert not torch.backends.cuda.matmul.allow_tf32
assert torch.get_float32_matmul_precision() == {precision!r}
""")


@pytest.mark.skipif(not hasattr(cudnn, "conv"), reason="this version of PyTorch has none")
@pytest.mark.parametrize("where", ["backends", "backends.cuda.matmul", "backends.cudnn", "backends.cudnn.conv"])
@pytest.mark.parametrize("precision", ["tf32", "ieee"])
def test_full_precision_where_the_newer_flags_are_set(where: str, precision: str) -> None:
    run_alone(f"""
parts = torch.backends.cuda.matmul, torch.backends.cudnn.conv, torch.backends.cudnn.rnn
torch.{where}.fp32_precision = {precision!r}
before = [part.fp32_precision for part in parts]
with full_precision(cpu), full_precision(cpu):
    assert "tf32" not in [part.fp32_precision for part in parts]
assert [part.fp32_precision for part in parts] == before
""")


class Generator:
    """What a GPU's generator does with its state, which is passed on by reference."""

    device = torch.device("cuda:0")

    def __init__(self) -> None:
        self.state = object()

    def graphsafe_get_state(self) -> object:
        return self.state

    def graphsafe_set_state(self, state: object) -> None:
        self.state = state


def test_a_generator_takes_the_default_s_place_and_gives_it_back(monkeypatch: pytest.MonkeyPatch) -> None:
    default, own = Generator(), Generator()
    before = default.state
    monkeypatch.setattr(torch.cuda, "default_generators", (default,))

    def fail() -> None:
        with drawing_from(own):  # type: ignore[arg-type]
            assert default.state is own.state
            raise RuntimeError("on purpose")

    with pytest.raises(RuntimeError, match="on purpose"):
        fail()
    assert default.state is before
    with drawing_from(None):
        assert default.state is before
