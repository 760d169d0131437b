"""SVHN's MATLAB files: X is (32, 32, 3, N), y is (N, 1) with 10 for the digit 0."""

import zlib
from pathlib import Path

import torch
from scipy.io import loadmat
from scipy.io.matlab import MatReadError

from detrame.data.dataset import Split
from detrame.errors import Failure, why_not


def read(train: Path, test: Path, *extra: Path) -> tuple[Split, Split]:
    """Train, with the extra images if they are given, and test, from the ``.mat`` files."""
    parts = [_read(path) for path in (train, *extra)]
    images = torch.cat([part.images for part in parts])
    return Split(images, torch.cat([part.labels for part in parts])), _read(test)


def _read(path: Path) -> Split:
    try:
        content = loadmat(path, variable_names=["X", "y"])
        images = torch.from_numpy(content["X"]).permute(3, 2, 0, 1).contiguous()
        return Split(images, torch.from_numpy(content["y"]).flatten().long() % 10)
    except (MatReadError, OSError, LookupError, TypeError, ValueError, RuntimeError, zlib.error) as error:
        raise Failure(f"{path} is not one of SVHN's .mat files ({why_not(error)}): fetch it again") from error
