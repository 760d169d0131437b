from pathlib import Path

import pytest

from detrame.data.catalogue import CATALOGUE, Archive, Entry
from detrame.data.proof import proven

from .forms import Splits, toy


@pytest.fixture(autouse=True)
def cache_folder(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache for every test; those of the real data use the real one."""
    folder = tmp_path / "cache"
    if "real_data" not in request.keywords:
        monkeypatch.setenv("DETRAME_DATA", str(folder))
    return folder


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> Splits:
    """Make the catalogue's cifar10 a set of 16 images; returns them."""
    splits = toy()
    digest = proven("cifar10", *splits, classes=[], source="").digest
    archive = Archive("http://127.0.0.1:9/cifar-10-binary.tar.gz", "0" * 32)
    classes = CATALOGUE["cifar10"].classes
    monkeypatch.setitem(CATALOGUE, "cifar10", Entry("Small", classes, (10, 6), (archive,), {digest: "small"}))
    return splits
