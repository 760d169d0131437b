import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from detrame.data import Split, holdout

from .forms import same


def numbered(labels: list[int]) -> Split:
    """Images that are their own number, so that each can be told."""
    number = torch.arange(len(labels))
    images = torch.stack([number // 256, number % 256], 1).to(torch.uint8)
    return Split(images.reshape(-1, 1, 1, 2), torch.tensor(labels))


@given(st.lists(st.integers(0, 4), min_size=2, max_size=60), st.data())
def test_every_class_gives_its_share_and_every_image_stays(labels: list[int], data: st.DataObject) -> None:
    split = numbered(labels)
    count = data.draw(st.integers(1, len(labels) - 1))
    rest, held = holdout(split, count, seed=data.draw(st.integers(0, 100)))
    assert (len(rest), len(held)) == (len(split) - count, count)
    both = torch.cat([rest.images, held.images]).flatten(1).tolist()
    assert sorted(both) == split.images.flatten(1).tolist()
    share = split.labels.bincount() * count / len(split)
    assert (held.labels.bincount(minlength=len(share)) - share).abs().max() <= 1.5


def test_equal_classes_give_equally_and_keep_their_order() -> None:
    split = numbered([i % 10 for i in range(500)])
    rest, held = holdout(split, 100, seed=3)
    assert held.labels.bincount().tolist() == [10] * 10
    for part in (rest, held):
        number = part.images[:, 0, 0, 0].int() * 256 + part.images[:, 0, 0, 1]
        assert number.tolist() == sorted(number.tolist())


def test_unequal_classes_give_in_proportion() -> None:
    _, held = holdout(numbered([0] * 300 + [1] * 60 + [2] * 40), 100, seed=3)
    assert held.labels.bincount().tolist() == [75, 15, 10]


def test_a_seed_means_one_holdout() -> None:
    split = numbered([0, 1] * 50)
    assert same(holdout(split, 20, seed=0)[1], holdout(split, 20, seed=0)[1])
    assert not same(holdout(split, 20, seed=0)[1], holdout(split, 20, seed=1)[1])


@pytest.mark.parametrize("count", [-1, 0, 4, 5])
def test_something_must_remain_on_both_sides(count: int) -> None:
    with pytest.raises(ValueError, match=f"count must be between 1 and 3, got {count}"):
        holdout(numbered([0, 1, 0, 1]), count, seed=0)
