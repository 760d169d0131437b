from collections.abc import Iterator

import pytest
import torch

from detrame.modes import full_precision

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
