import pytest
import torch

from detrame.modes import full_precision


def test_no_product_is_in_tf32_in_full_precision(monkeypatch: pytest.MonkeyPatch) -> None:
    matmul, cudnn = torch.backends.cuda.matmul, torch.backends.cudnn
    monkeypatch.setattr(matmul, "allow_tf32", True)
    with full_precision(torch.device("cpu")):
        assert not matmul.allow_tf32
        assert not cudnn.allow_tf32
    assert matmul.allow_tf32
    assert cudnn.allow_tf32
