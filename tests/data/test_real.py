"""The real data sets, where this machine has them: `detrame data get NAME` brings them."""

import pytest

from detrame.data import CATALOGUE, Dataset, cache, load

pytestmark = pytest.mark.real_data

MEANS = {
    "cifar10": (0.49140, 0.48216, 0.44653),
    "cifar100": (0.50708, 0.48655, 0.44092),
    "svhn": (0.43768, 0.44377, 0.47280),
}
STDS = {
    "cifar10": (0.24703, 0.24349, 0.26159),
    "cifar100": (0.26733, 0.25644, 0.27615),
    "svhn": (0.19803, 0.20102, 0.19704),
}
HISTOGRAMS = {
    "cifar10": ([5000] * 10, [1000] * 10),
    "cifar100": ([500] * 100, [100] * 100),
    "svhn": (
        [4948, 13861, 10585, 8497, 7458, 6882, 5727, 5595, 5045, 4659],
        [1744, 5099, 4149, 2882, 2523, 2384, 1977, 2019, 1660, 1595],
    ),
}


@pytest.fixture(scope="module", params=list(MEANS))
def dataset(request: pytest.FixtureRequest) -> Dataset:
    if request.param not in cache.names():
        pytest.skip(f"{request.param} is not on this machine: `detrame data get {request.param}` brings it")
    return load(request.param)


def test_known_counts(dataset: Dataset) -> None:
    assert (len(dataset.train), len(dataset.test)) == CATALOGUE[dataset.name].counts
    assert dataset.train.images.shape[1:] == dataset.test.images.shape[1:] == (3, 32, 32)


def test_known_moments(dataset: Dataset) -> None:
    assert dataset.mean == pytest.approx(MEANS[dataset.name], abs=5e-6)
    assert dataset.std == pytest.approx(STDS[dataset.name], abs=5e-6)


def test_known_label_histograms(dataset: Dataset) -> None:
    train, test = HISTOGRAMS[dataset.name]
    assert dataset.train.labels.bincount().tolist() == train
    assert dataset.test.labels.bincount().tolist() == test
