"""Data sets by name, from this machine only: nothing here downloads."""

from pathlib import Path

from detrame.data import cache
from detrame.data.catalogue import CATALOGUE, Entry, unknown_data_set
from detrame.data.dataset import Dataset
from detrame.data.proof import proven
from detrame.data.readers import digits
from detrame.errors import Failure


def load(name: str, *, split_seed: int = 0) -> Dataset:
    """The data set `name`, verified.

    Args:
        name: one of the catalogue, or what `get` was told to call the user's own images.
        split_seed: for digits, which come without a split: what shuffles them before they are halved.
    """
    if name == "digits":
        train, test = digits.read(split_seed)
        return proven(name, train, test, classes=CATALOGUE[name].classes, source=CATALOGUE[name].title)
    if split_seed:
        raise ValueError(f"split_seed must be 0 for {name}, which has one split, got {split_seed}")
    if name not in cache.names():
        if name not in CATALOGUE:
            raise unknown_data_set(name, dict.fromkeys([*CATALOGUE, *cache.names()]))
        raise Failure(f"{name} is not on this machine yet: type `detrame data get {name}`")
    dataset = cache.load(name)
    if name in CATALOGUE:
        check_known(dataset, CATALOGUE[name], cache.path(name))
    return dataset


def check_known(dataset: Dataset, known: Entry, where: str | Path) -> None:
    """Raise a Failure unless the data set, which came from `where`, is the one its name promises."""
    counts = len(dataset.train), len(dataset.test)
    if counts != known.counts:
        raise Failure(
            f"{where} is not {known.title}: it has {counts[0]} training and {counts[1]} test images, "
            f"where there should be {known.counts[0]} and {known.counts[1]}; take another source"
        )
    if dataset.source == known.official:  # known by the MD5 of its archives, which were checked before they were read
        return
    if known.digests.get(dataset.digest) != dataset.source:
        raise Failure(
            f"{where} is not {known.title}: the digest of its content, {dataset.digest}, is not a known one; "
            "take another source"
        )
