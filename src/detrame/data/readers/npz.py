"""A NumPy archive with x, xt, uint8 ``(N, H, W, C)``, and y, yt, the labels of train and test."""

import zipfile
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import torch

from detrame.data.dataset import Split
from detrame.errors import Failure


def read(path: Path) -> tuple[Split, Split]:
    """Train and test of the ``.npz`` at `path`; pickled objects inside are refused."""
    try:
        # Opened here, since np.load leaves a broken file open.
        with path.open("rb") as file, np.load(file, allow_pickle=False) as content:
            return _split(content, "x", "y"), _split(content, "xt", "yt")
    except (OSError, EOFError, KeyError, TypeError, ValueError, zipfile.BadZipFile, zlib.error) as error:
        raise Failure(f"{path} is not an .npz with x, y, xt and yt ({error}): make it again") from error


def _split(content: Any, x: str, y: str) -> Split:
    images = torch.from_numpy(content[x])
    if images.ndim != 4:
        raise ValueError(f"{x} has {images.ndim} axes instead of 4")
    labels = content[y]
    if not np.issubdtype(labels.dtype, np.integer):
        raise ValueError(f"{y} holds {labels.dtype} instead of integers")
    return Split(images.permute(0, 3, 1, 2).contiguous(), torch.from_numpy(labels.astype(np.int64)))
