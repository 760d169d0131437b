from hashlib import sha256

import torch
from hypothesis import given
from hypothesis import strategies as st

from detrame.data.dataset import Split
from detrame.data.proof import in_order, proven

from .forms import same, toy

TRAIN, TEST = toy(12, 5)


def test_the_digest_is_what_its_definition_says() -> None:
    def of(split: Split) -> bytes:
        images = [
            sha256(int(label).to_bytes(4, "little") + bytes(image.flatten().tolist())).digest()
            for image, label in zip(split.images, split.labels, strict=True)
        ]
        return sha256(b"".join(sorted(images))).digest()

    assert proven("toy", TRAIN, TEST, classes=[], source="").digest == sha256(of(TRAIN) + of(TEST)).hexdigest()


@given(st.permutations(range(12)))
def test_neither_digest_nor_order_depends_on_the_order_read(order: list[int]) -> None:
    expected, digest = in_order(TRAIN)
    split, shuffled_digest = in_order(TRAIN[torch.tensor(order)])
    assert shuffled_digest == digest
    assert same(split, expected)


@given(st.integers(0, 11), st.integers(0, 3 * 32 * 32 - 1), st.integers(1, 255))
def test_every_pixel_counts(image: int, pixel: int, change: int) -> None:
    images = TRAIN.images.clone()
    images.view(12, -1)[image, pixel] += change
    assert in_order(Split(images, TRAIN.labels))[1] != in_order(TRAIN)[1]


def test_labels_and_splits_count() -> None:
    assert in_order(Split(TRAIN.images, TRAIN.labels + 1))[1] != in_order(TRAIN)[1]
    swapped = proven("toy", TEST, TRAIN, classes=[], source="")
    assert swapped.digest != proven("toy", TRAIN, TEST, classes=[], source="").digest


def test_a_split_in_order_is_not_copied() -> None:
    once, _ = in_order(TRAIN)
    twice, _ = in_order(once)
    assert twice.images is once.images


def test_an_image_twice_is_counted_twice() -> None:
    assert in_order(TRAIN[torch.tensor([0, 0, 1])])[1] != in_order(TRAIN[torch.tensor([0, 1, 1])])[1]
