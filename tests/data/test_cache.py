import os
from pathlib import Path

import pytest
import safetensors.torch

from detrame.data import cache, get, load
from detrame.data.dataset import Dataset
from detrame.data.proof import proven
from detrame.errors import Failure

from .forms import flipped, same, toy


@pytest.fixture
def dataset() -> Dataset:
    return proven("mine", *toy(), classes=[f"class {i}" for i in range(10)], source="made up")


def test_what_is_saved_is_loaded(dataset: Dataset, cache_folder: Path) -> None:
    assert cache.names() == []
    assert cache.label("mine") is None
    cache.save(dataset)
    assert [path.name for path in cache_folder.iterdir()] == ["mine.safetensors"]
    loaded = load("mine")
    assert (loaded.classes, loaded.digest, loaded.source) == (dataset.classes, dataset.digest, dataset.source)
    assert same(loaded.train, dataset.train)
    assert same(loaded.test, dataset.test)
    label = cache.label("mine")
    assert label is not None
    assert label.counts == (10, 6)


def test_the_folder_is_the_users_choice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DETRAME_DATA", "~/elsewhere")
    assert cache.folder() == Path.home() / "elsewhere"
    monkeypatch.delenv("DETRAME_DATA")
    assert cache.folder() == Path.home() / ".cache" / "detrame"


def test_every_flipped_byte_is_noticed(dataset: Dataset, cache_folder: Path) -> None:
    cache.save(dataset)
    path = cache_folder / "mine.safetensors"
    for position in [*range(8), *range(path.stat().st_size - 200, 1000, -997)]:
        flipped(path, position)
        with pytest.raises(Failure, match=r"mine.safetensors is damaged .* `detrame data get mine` again"):
            load("mine")
        flipped(path, position)
    assert load("mine").digest == dataset.digest


def test_a_cut_or_foreign_file_is_refused(dataset: Dataset, cache_folder: Path) -> None:
    cache.save(dataset)
    path = cache_folder / "mine.safetensors"
    whole = path.read_bytes()
    for length in (0, 4, 100, len(whole) - 1):
        path.write_bytes(whole[:length])
        with pytest.raises(Failure, match="damaged"):
            cache.label("mine")
    safetensors.torch.save_file({"weight": dataset.train.images}, path)
    with pytest.raises(Failure, match=r"damaged \(it has other fields\)"):
        load("mine")
    safetensors.torch.save_file({"weight": dataset.train.images}, path, metadata={"detrame": "{}"})
    with pytest.raises(Failure, match=r"damaged \(it lacks 'digest'\)"):
        load("mine")


def test_a_file_can_be_read_by_whom_the_umask_lets(dataset: Dataset, cache_folder: Path) -> None:
    cache.save(dataset)
    (cache_folder / "other").touch()
    assert (cache_folder / "mine.safetensors").stat().st_mode == (cache_folder / "other").stat().st_mode


def test_lack_of_a_permission_is_no_damage(
    dataset: Dataset, cache_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache.save(dataset)
    monkeypatch.setattr(os, "access", lambda *_: False)
    with pytest.raises(Failure, match=r"^you have no permission to read .*mine\.safetensors: change that with chmod"):
        load("mine")


def test_a_failed_write_leaves_what_was_there(
    dataset: Dataset, cache_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache.save(dataset)

    def no_space(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", no_space)
    with pytest.raises(Failure, match=r"No space left on device.*set DETRAME_DATA to another folder"):
        cache.save(dataset)
    assert [path.name for path in cache_folder.iterdir()] == ["mine.safetensors"]
    assert load("mine").digest == dataset.digest


def test_a_folder_that_cannot_be_made_is_named(
    dataset: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("DETRAME_DATA", str(tmp_path / "file" / "inside"))
    with pytest.raises(
        Failure, match=r"^cannot make .*inside \(Not a directory\): set DETRAME_DATA to another folder$"
    ):
        cache.save(dataset)
    monkeypatch.setenv("DETRAME_DATA", str(tmp_path / "file"))
    with pytest.raises(Failure, match=r"file is a file: set DETRAME_DATA to a folder$"):
        cache.save(dataset)
    with pytest.raises(Failure, match=r"file is a file: set DETRAME_DATA to a folder$"):
        get("cifar10")
    monkeypatch.setenv("DETRAME_DATA", str(tmp_path / os.fsdecode(b"d\xff")))
    with pytest.raises(
        Failure, match=r"is not UTF-8, and could not be read again: set DETRAME_DATA to another folder$"
    ):
        cache.save(dataset)
