"""Handwritten digits, few enough to train on in a second."""

from typing import NamedTuple

import numpy as np
import pytest
from sklearn.datasets import load_digits
from sklearn.utils import shuffle


class Digits(NamedTuple):
    """Training and test digits: pixels in [0, 1] as rows of 64, and labels."""

    X: np.ndarray
    y: np.ndarray
    X_test: np.ndarray
    y_test: np.ndarray

    @property
    def images(self) -> np.ndarray:
        """The training digits as 8-bit images, (N, 1, 8, 8)."""
        return np.rint(self.X * 255).astype(np.uint8).reshape(-1, 1, 8, 8)


@pytest.fixture(scope="session")
def digits() -> Digits:
    X, y = shuffle(*load_digits(return_X_y=True), random_state=0)  # they come sorted by writer
    return Digits(X[:400] / 16, y[:400], X[400:800] / 16, y[400:800])
