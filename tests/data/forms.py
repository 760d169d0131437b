"""Small data sets in the real formats, written by hand: independent of the readers they test."""

import gzip
import hashlib
import io
import json
import tarfile
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from scipy.io import savemat

from detrame.data import Split

Splits = tuple[Split, Split]


def toy(train: int = 10, test: int = 6, *, classes: int = 10, seed: int = 0) -> Splits:
    """Random colour images, 32x32, in an order of no meaning."""
    generator = torch.Generator().manual_seed(seed)

    def split(count: int) -> Split:
        images = torch.randint(256, (count, 3, 32, 32), generator=generator, dtype=torch.uint8)
        return Split(images, torch.randperm(count, generator=generator) * 7 % classes)

    return split(train), split(test)


def write_tar(path: Path, files: dict[str, bytes], *odd: tarfile.TarInfo) -> Path:
    with tarfile.open(path, "w:gz") as tar:
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
        for member in odd:
            tar.addfile(member)
    return path


def write_cifar10(path: Path, splits: Splits) -> Path:
    train, test = splits
    files = {f"cifar-10-batches-bin/data_batch_{i + 1}.bin": _cifar10(train[i::5]) for i in range(5)}
    return write_tar(path, {"readme.html": b"<p>", **files, "cifar-10-batches-bin/test_batch.bin": _cifar10(test)})


def write_cifar100(path: Path, splits: Splits) -> Path:
    names = ("cifar-100-binary/train.bin", "cifar-100-binary/test.bin")
    records = (
        b"".join(bytes([7, label]) + image.numpy().tobytes() for image, label in zip(s.images, s.labels, strict=True))
        for s in splits
    )
    return write_tar(path, dict(zip(names, records, strict=True)))


def write_npm(path: Path, splits: Splits) -> Path:
    train, test = splits
    parts = [train[i::5] for i in range(5)]
    files = {f"package/data_batch_{i + 1}.png": _strip(part) for i, part in enumerate(parts)}
    labels = [label for part in parts for label in part.labels.tolist()]
    return write_tar(
        path,
        files
        | {
            "package/package.json": b"{}",
            "package/test_batch.png": _strip(test),
            "package/train_lables.json": json.dumps(labels).encode(),
            "package/test_lables.json": json.dumps(test.labels.tolist()).encode(),
        },
    )


def write_npz(path: Path, splits: Splits) -> Path:
    (x, y), (xt, yt) = ((_rows(s), s.labels.numpy().astype(np.uint8)) for s in splits)
    np.savez(path, x=x, y=y, xt=xt, yt=yt)
    return path


def write_mat(path: Path, split: Split) -> Path:
    labels = np.where(split.labels.numpy() == 0, 10, split.labels.numpy())
    savemat(path, {"X": _rows(split).transpose(1, 2, 3, 0), "y": labels[:, None].astype(np.uint8)}, do_compression=True)
    return path


def md5(path: Path) -> str:
    return hashlib.md5(path.read_bytes(), usedforsecurity=False).hexdigest()


def flipped(path: Path, position: int) -> Path:
    """The file with one byte changed."""
    content = bytearray(path.read_bytes())
    content[position] ^= 0xFF
    path.write_bytes(content)
    return path


def same(a: Split, b: Split) -> bool:
    return torch.equal(a.images, b.images) and torch.equal(a.labels, b.labels)


def gzipped(path: Path, content: bytes) -> Path:
    path.write_bytes(gzip.compress(content))
    return path


def _cifar10(split: Split) -> bytes:
    return b"".join(
        bytes([label]) + image.numpy().tobytes() for image, label in zip(split.images, split.labels, strict=True)
    )


def _rows(split: Split) -> np.ndarray:
    return split.images.numpy().transpose(0, 2, 3, 1)


def _strip(split: Split) -> bytes:
    written = io.BytesIO()
    Image.fromarray(np.ascontiguousarray(_rows(split)).reshape(len(split), 1024, 3)).save(written, "PNG")
    return written.getvalue()
