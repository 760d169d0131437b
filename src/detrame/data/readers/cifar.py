"""CIFAR's binary archives: records of one or two label bytes and 3072 pixels, channel by channel."""

from pathlib import Path

import numpy as np
import torch

from detrame.data.dataset import Split
from detrame.data.readers import archive
from detrame.errors import Failure

_PIXELS = 3 * 32 * 32


def read_cifar10(path: Path) -> tuple[Split, Split]:
    """Train and test of ``cifar-10-binary.tar.gz``."""
    return _read(path, [f"data_batch_{i}.bin" for i in range(1, 6)], "test_batch.bin", label_bytes=1)


def read_cifar100(path: Path) -> tuple[Split, Split]:
    """Train and test of ``cifar-100-binary.tar.gz``, with the fine labels."""
    return _read(path, ["train.bin"], "test.bin", label_bytes=2)


def _read(path: Path, train: list[str], test: str, *, label_bytes: int) -> tuple[Split, Split]:
    files = archive.files(path, {*train, test})
    missing = [name for name in (*train, test) if name not in files]
    if missing:
        raise Failure(f"{path} is another archive: it has no {missing[0]}")
    content = b"".join(files.pop(name) for name in train)
    return _records(path, content, label_bytes), _records(path, files[test], label_bytes)


def _records(path: Path, content: bytes, label_bytes: int) -> Split:
    length = label_bytes + _PIXELS
    if len(content) % length:
        raise Failure(f"{path} is another archive: its files are not records of {length} bytes")
    records = torch.from_numpy(np.frombuffer(content, np.uint8).reshape(-1, length).copy())
    # Of CIFAR-100's two labels, coarse and fine, the fine one comes last.
    labels, images = records[:, label_bytes - 1], records[:, label_bytes:]
    return Split(images.reshape(-1, 3, 32, 32), labels.long())
