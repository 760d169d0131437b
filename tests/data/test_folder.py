from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from detrame.data import get_folder, load
from detrame.data.dataset import Dataset
from detrame.errors import Failure


def paint(path: Path, colour: int | tuple[int, ...], *, size: tuple[int, int] = (6, 5), mode: str = "RGB") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new(mode, size, colour).save(path)
    return path


@pytest.fixture
def split_folder(tmp_path: Path) -> Path:
    home = tmp_path / "pets"
    for part, count in (("train", 3), ("test", 2)):
        for i in range(count):
            paint(home / part / "cat" / f"{i}.png", (200, i, 0))
            paint(home / part / "dog" / f"{i}.bmp", (10, i, 0))
    return home


@pytest.fixture
def flat_folder(tmp_path: Path) -> Path:
    for i in range(20):
        paint(tmp_path / "flat" / "ab"[i % 2] / f"{i}.png", (i, i, i))
    return tmp_path / "flat"


def colours(dataset: Dataset, label: int) -> set[int]:
    return set(dataset.train.images[dataset.train.labels == label, 0].flatten().tolist())


def test_train_and_test_folders(split_folder: Path) -> None:
    (split_folder / "train" / "cat" / ".DS_Store").write_bytes(b"junk")
    dataset = get_folder("pets", split_folder)
    assert dataset.classes == ("cat", "dog")
    assert (len(dataset.train), len(dataset.test)) == (6, 4)
    assert dataset.train.images.shape[1:] == (3, 5, 6)
    assert (colours(dataset, 0), colours(dataset, 1)) == ({200}, {10})
    assert load("pets").digest == dataset.digest
    assert load("pets").source == "the images of the folder pets"


def test_a_name_goes_on_standing_for_the_same_images(split_folder: Path, flat_folder: Path, cache_folder: Path) -> None:
    kept = get_folder("pets", split_folder)
    assert get_folder("pets", split_folder).digest == kept.digest
    with pytest.raises(Failure, match=r"pets stands for other images already, .*pets: .*delete .*pets.safetensors fir"):
        get_folder("pets", flat_folder)
    assert load("pets").digest == kept.digest
    (cache_folder / "pets.safetensors").write_bytes(b"damaged")
    assert get_folder("pets", flat_folder).digest == load("pets").digest


def test_class_folders_are_split_by_the_seed(flat_folder: Path) -> None:
    dataset = get_folder("flat", flat_folder)
    assert (len(dataset.train), len(dataset.test)) == (16, 4)
    assert dataset.test.labels.bincount().tolist() == [2, 2]
    assert get_folder("flat", flat_folder, split_seed=0).digest == dataset.digest
    (flat_folder / "a" / "0.png").rename(flat_folder / "a" / "renamed.png")
    assert get_folder("flat", flat_folder).digest == dataset.digest
    assert get_folder("other", flat_folder, split_seed=1).digest != dataset.digest


def test_images_are_resized_on_request(split_folder: Path) -> None:
    paint(split_folder / "train" / "cat" / "large.png", (200, 9, 0), size=(40, 30))
    assert get_folder("pets", split_folder, size=8).image_size == (8, 8)
    with pytest.raises(Failure, match=r"large.png is 40x30, 0.png is 6x5: give the size .* --size 32"):
        get_folder("pets", split_folder)


def test_grey_stays_grey_unless_one_image_has_colour(flat_folder: Path) -> None:
    for i in range(20):
        paint(flat_folder / "ab"[i % 2] / f"{i}.png", i, mode="L")
    assert get_folder("flat", flat_folder).in_channels == 1
    paint(flat_folder / "a" / "x.png", (1, 2, 3))
    assert get_folder("coloured", flat_folder).in_channels == 3


def test_palettes_are_painted_before_they_are_resized(flat_folder: Path) -> None:
    board = Image.fromarray(np.tile(np.array([[0, 255], [255, 0]], np.uint8), (8, 8)))
    board.convert("P").save(flat_folder / "a" / "p.png")
    assert get_folder("flat", flat_folder, size=4).in_channels == 3


def test_photographs_are_turned_the_right_way_up(tmp_path: Path) -> None:
    exif = Image.Exif()
    exif[0x0112] = 6  # taken with the camera on its side
    for i in range(6):
        (tmp_path / "p" / "ab"[i % 2]).mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (6, 4), (i, 0, 0)).save(tmp_path / "p" / "ab"[i % 2] / f"{i}.jpg", exif=exif)
    assert get_folder("p", tmp_path / "p").image_size == (6, 4)


def test_what_is_no_8_bit_image_is_named(flat_folder: Path) -> None:
    Image.fromarray(np.zeros((5, 6), np.uint16)).save(flat_folder / "a" / "deep.png")
    with pytest.raises(Failure, match=r"deep.png has more than 8 bits"):
        get_folder("flat", flat_folder)
    (flat_folder / "a" / "deep.png").write_bytes(b"text")
    with pytest.raises(Failure, match=r"deep.png is not an image that can be read"):
        get_folder("flat", flat_folder)


def test_folders_must_make_sense(split_folder: Path, tmp_path: Path) -> None:
    paint(split_folder / "test" / "cow" / "0.png", (1, 1, 1))
    with pytest.raises(Failure, match=r"cow is a class without training images"):
        get_folder("pets", split_folder)
    paint(tmp_path / "one" / "a" / "0.png", (1, 1, 1))
    with pytest.raises(Failure, match="one has 1 class folders"):
        get_folder("one", tmp_path / "one")
    (tmp_path / "one" / "b").mkdir()
    with pytest.raises(Failure, match="too few"):
        get_folder("one", tmp_path / "one")
    for i in range(5):
        paint(tmp_path / "one" / "a" / f"{i}.png", (1, 1, 1))
    with pytest.raises(Failure, match="one has no training image of class 'b'"):
        get_folder("one", tmp_path / "one")
    for i in range(5):
        (tmp_path / "one" / "a" / f"{i}.png").unlink()
    with pytest.raises(Failure, match="one has no images"):
        get_folder("one", tmp_path / "one")


def test_wrong_arguments_are_named(split_folder: Path) -> None:
    for name in ("cifar10", "../pets", "", "a b", "-x"):
        with pytest.raises(ValueError, match="cannot name your own images"):
            get_folder(name, split_folder)
    with pytest.raises(ValueError, match="size must be at least 1, got 0"):
        get_folder("pets", split_folder, size=0)
    with pytest.raises(ValueError, match="is not a folder"):
        get_folder("pets", split_folder / "none")


def test_labels_follow_the_alphabet(split_folder: Path) -> None:
    dataset = get_folder("pets", split_folder)
    assert torch.equal(dataset.train.labels.bincount(), torch.tensor([3, 3]))


def test_the_smallest_folder_is_kept_whatever_its_order(tmp_path: Path) -> None:
    for i in range(8):  # some of them are in the order of their digests already
        for part in ("train", "test"):
            for name in "ab":
                paint(tmp_path / str(i) / part / name / "0.png", (i, ord(name), 0))
        assert get_folder(f"own{i}", tmp_path / str(i)).digest == load(f"own{i}").digest
