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
