"""The estimators on a GPU: what they learn on the CPU, and a pickle that opens without one."""

import pickle

import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits

import detrame
from detrame.estimators import TaskDrivenClassifier

pytestmark = [
    pytest.mark.cuda,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU"),
    pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning"),
]


@pytest.mark.parametrize("kind", [detrame.DeTraMeClassifier, TaskDrivenClassifier])
def test_a_fit_on_the_gpu_is_that_on_the_cpu(kind: type) -> None:
    X, y = load_digits(return_X_y=True)
    X, y = X[:300] / 16, y[:300]
    before = torch.cuda.get_rng_state()
    gpu, cpu = (kind(max_iter=5, random_state=0, device=device).fit(X, y) for device in ("cuda", "cpu"))
    assert next(gpu.network_.parameters()).is_cuda
    assert torch.equal(torch.cuda.get_rng_state(), before)
    np.testing.assert_allclose(gpu.predict_proba(X), cpu.predict_proba(X), atol=1e-6)
    state = gpu.__getstate__()
    assert not next(state["network_"].parameters()).is_cuda
    copy = pickle.loads(pickle.dumps(gpu)).set_params(device="cpu")
    np.testing.assert_allclose(copy.transform(X), gpu.transform(X), atol=1e-9)


def test_images_train_on_the_gpu() -> None:
    X, y = load_digits(return_X_y=True)
    images = (X * 15).astype(np.uint8).reshape(-1, 1, 8, 8)
    model = detrame.DeTraMeClassifier("plainnet3", network_options={"width": 0.3}, max_iter=10, random_state=0)
    assert model.fit(images, y).score(images, y) > 0.95
    assert next(model.network_.parameters()).is_cuda
