"""A folder of the user's own images: ``train/CLASS/*`` and ``test/CLASS/*``, or ``CLASS/*`` to be split by a seed."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from PIL import Image, ImageOps, UnidentifiedImageError

from detrame.data.dataset import Split
from detrame.data.holdout import holdout
from detrame.data.proof import in_order
from detrame.errors import Failure


def read(path: Path, *, size: int | None, split_seed: int) -> tuple[Split, Split, tuple[str, ...]]:
    """Train, test and the classes, which are the folders' names in alphabetical order.

    Images of any format Pillow knows become colour, or grey where all of them are. Without ``train`` and ``test``
    folders a fifth of the images, drawn by `split_seed` in proportion to the classes, is the test.

    Args:
        path: the folder.
        size: height and width to resize every image to; without it they must all have one size.
        split_seed: what draws the test images.
    """
    parts = [path / "train", path / "test"]
    if not all(part.is_dir() for part in parts):
        parts = [path]
    classes = _subfolders(parts[0])
    if len(classes) < 2:
        raise Failure(f"{parts[0]} has {len(classes)} class folders: two or more are needed, CLASS/*.png in each")
    listed = [_listed(part, classes) for part in parts]
    images = _stacked([file for files in listed for file, _ in files], size)
    everything = Split(images, torch.tensor([label for files in listed for _, label in files]))
    if len(parts) == 2:
        in_train = torch.arange(len(everything)) < len(listed[0])  # a mask copies: the parts share no memory
        train, test = everything[in_train], everything[~in_train]
    elif len(everything) < 5:
        raise Failure(f"{path} has {len(everything)} images: too few to set a fifth aside for the test")
    else:
        everything, _ = in_order(everything)  # so that files may be renamed without moving the split
        train, test = holdout(everything, len(everything) // 5, seed=split_seed)
    for name, count in zip(classes, train.labels.bincount(minlength=len(classes)).tolist(), strict=True):
        if not count:
            raise Failure(f"{path} has no training image of class {name!r}: add some or remove its folder")
    return train, test, classes


def _listed(part: Path, classes: Sequence[str]) -> list[tuple[Path, int]]:
    unexpected = set(_subfolders(part)) - set(classes)
    if unexpected:
        raise Failure(f"{part / min(unexpected)} is a class without training images: add some or remove it")
    files = [
        (file, label)
        for label, name in enumerate(classes)
        if (part / name).is_dir()
        for file in sorted((part / name).iterdir())
        if not file.name.startswith(".")
    ]
    if not files:
        raise Failure(f"{part} has no images: put them in a folder for each class")
    return files


def _stacked(files: Sequence[Path], size: int | None) -> torch.Tensor:
    pictures = [_opened(file, size) for file in files]
    for file, picture in zip(files, pictures, strict=True):
        if picture.size != pictures[0].size:
            raise Failure(
                f"{file} is {picture.width}x{picture.height}, {files[0].name} is "
                f"{pictures[0].width}x{pictures[0].height}: give the size to resize them to, as in --size 32"
            )
    mode = "L" if all(picture.mode == "L" for picture in pictures) else "RGB"
    pixels = np.stack([np.asarray(picture.convert(mode)) for picture in pictures])
    return torch.from_numpy(pixels.reshape(*pixels.shape[:3], -1)).permute(0, 3, 1, 2).contiguous()


def _opened(file: Path, size: int | None) -> Image.Image:
    try:
        with Image.open(file) as opened:
            picture = ImageOps.exif_transpose(opened)
            picture.load()
    except (UnidentifiedImageError, OSError, ValueError, Image.DecompressionBombError) as error:
        raise Failure(f"{file} is not an image that can be read ({error}): mend or remove it") from error
    if picture.mode.startswith(("I", "F")):
        raise Failure(f"{file} has more than 8 bits a pixel: convert it to 8 bits first")
    # Before the resize: a palette cannot be interpolated.
    picture = picture.convert("L" if picture.mode in ("1", "L", "LA") else "RGB")
    return picture if size is None else picture.resize((size, size), Image.Resampling.BILINEAR)


def _subfolders(path: Path) -> tuple[str, ...]:
    return tuple(sorted(child.name for child in path.iterdir() if child.is_dir() and not child.name.startswith(".")))
