"""The cache: one verified safetensors file a data set, in ``$DETRAME_DATA`` or ``~/.cache/detrame``."""

import json
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file

from detrame.data.dataset import Dataset, Split
from detrame.data.proof import proven
from detrame.errors import Failure, check_utf8, why_not

_SUFFIX = ".safetensors"


@dataclass(frozen=True)
class Label:
    """What a cached file says of itself, known without reading the images."""

    digest: str
    source: str
    classes: tuple[str, ...]
    counts: tuple[int, int]


def folder() -> Path:
    """Where the data sets are kept."""
    chosen = os.environ.get("DETRAME_DATA")
    return Path(chosen).expanduser() if chosen else Path.home() / ".cache" / "detrame"


def path(name: str) -> Path:
    """Where the data set `name` is or would be."""
    return folder() / (name + _SUFFIX)


def made() -> Path:
    """The folder of the data sets, which is made if need be; a Failure if it cannot be."""
    check_utf8(folder(), "set DETRAME_DATA to another folder")
    try:
        folder().mkdir(parents=True, exist_ok=True)
    except FileExistsError:
        raise Failure(f"{folder()} is a file: set DETRAME_DATA to a folder") from None
    except OSError as error:
        raise Failure(f"cannot make {folder()} ({error.strerror}): set DETRAME_DATA to another folder") from error
    return folder()


@contextmanager
def workspace() -> Iterator[Path]:
    """A folder inside the cache, gone afterwards: what is made there is moved out whole, or never seen."""
    try:
        with tempfile.TemporaryDirectory(dir=made(), prefix=".work-") as inside:
            yield Path(inside)
    except (OSError, SafetensorError) as error:
        hint = "free some space or set DETRAME_DATA to another folder"
        raise Failure(f"cannot write into {folder()} ({error}): {hint}") from error


def names() -> list[str]:
    """The data sets in the cache."""
    return sorted(file.stem for file in folder().glob("*" + _SUFFIX))


def save(dataset: Dataset) -> None:
    """Write the data set whole, or leave what was there before."""
    label = Label(dataset.digest, dataset.source, dataset.classes, (len(dataset.train), len(dataset.test)))
    tensors = {
        "train.images": dataset.train.images,
        "train.labels": dataset.train.labels,
        "test.images": dataset.test.images,
        "test.labels": dataset.test.labels,
    }
    with workspace() as writing:
        whole = writing / "whole"
        whole.touch()
        mode = whole.stat().st_mode  # which safetensors would make the owner's alone
        save_file(tensors, whole, metadata={"detrame": json.dumps(vars(label))})
        whole.chmod(mode)
        os.replace(whole, path(dataset.name))


def load(name: str) -> Dataset:
    """The data set `name` from the cache, its content checked against the digest it was stored with."""
    with _opened(name) as file:
        label = _label(file)
        train = Split(file.get_tensor("train.images"), file.get_tensor("train.labels"))
        test = Split(file.get_tensor("test.images"), file.get_tensor("test.labels"))
        dataset = proven(name, train, test, classes=label.classes, source=label.source)
        if dataset.digest != label.digest:
            raise ValueError(f"its digest is {dataset.digest}")
        return dataset


def label(name: str) -> Label | None:
    """What the cached file of `name` says of itself, or None when there is none."""
    if not path(name).exists():
        return None
    with _opened(name) as file:
        return _label(file)


@contextmanager
def _opened(name: str) -> Iterator[Any]:
    if path(name).exists() and not os.access(path(name), os.R_OK):  # which safetensors takes for a missing file
        hint = "change that with chmod, or set DETRAME_DATA to a folder of your own"
        raise Failure(f"you have no permission to read {path(name)}: {hint}")
    try:
        with safe_open(path(name), framework="pt") as file:
            yield file
    except (OSError, SafetensorError, KeyError, TypeError, ValueError, OverflowError) as error:
        hint = f"type `detrame data get {name}` again, with the --from it had"
        raise Failure(f"{path(name)} is damaged ({why_not(error)}): {hint}") from error


def _label(file: Any) -> Label:
    said = json.loads(file.metadata()["detrame"])
    return Label(said["digest"], said["source"], tuple(said["classes"]), tuple(said["counts"]))
