import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits

from detrame.data import load
from detrame.errors import Failure

from .forms import same


def test_digits_are_halved_class_by_class() -> None:
    dataset = load("digits")
    assert (len(dataset.train), len(dataset.test)) == (899, 898)
    assert dataset.train.images.shape[1:] == (1, 8, 8)
    difference = dataset.train.labels.bincount() - dataset.test.labels.bincount()
    assert difference.abs().max() <= 2


def test_no_level_is_lost() -> None:
    dataset = load("digits")
    pixels = torch.cat([dataset.train.images, dataset.test.images]).reshape(-1, 64).numpy()
    ours = np.sort((pixels / 15) @ np.arange(1, 65))
    assert np.array_equal(ours, np.sort(load_digits().data @ np.arange(1, 65)))


def test_a_seed_means_one_split() -> None:
    first, again, other = load("digits"), load("digits", split_seed=0), load("digits", split_seed=1)
    assert first.digest == again.digest != other.digest
    assert same(first.test, again.test)


def test_other_digits_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    data, labels = load_digits(return_X_y=True)
    monkeypatch.setattr("sklearn.datasets.load_digits", lambda return_X_y: (data, labels[::-1].copy()))
    with pytest.raises(Failure, match="install scikit-learn again"):
        load("digits")
