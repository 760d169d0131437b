import pytest
import torch

from detrame.data import Split
from detrame.data.proof import proven

from .forms import toy


def test_a_data_set_knows_its_sizes_and_moments() -> None:
    dataset = proven("toy", *toy(300, 6), classes=list("abcdefghij"), source="made up")
    assert (dataset.num_classes, dataset.in_channels, dataset.image_size) == (10, 3, (32, 32))
    pixels = dataset.train.images.double() / 255
    torch.testing.assert_close(torch.tensor(dataset.mean).double(), pixels.mean((0, 2, 3)), rtol=1e-6, atol=0)
    std = pixels.std((0, 2, 3), correction=0)
    torch.testing.assert_close(torch.tensor(dataset.std).double(), std, rtol=1e-6, atol=0)


def test_images_of_one_colour_have_no_deviation() -> None:
    split = Split(torch.full((3, 1, 2, 2), 77, dtype=torch.uint8), torch.tensor([0, 1, 2]))
    dataset = proven("flat", split, split, classes=list("abc"), source="")
    assert dataset.std == (0.0,)
    assert dataset.mean == (77 / 255,)


def test_a_split_refuses_other_types_and_shapes() -> None:
    images, labels = torch.zeros(2, 1, 4, 4, dtype=torch.uint8), torch.zeros(2, dtype=torch.int64)
    assert len(Split(images, labels).to("cpu")) == 2
    with pytest.raises(ValueError, match=r"images must be uint8 \(N, C, H, W\), got float32"):
        Split(images.float(), labels)
    with pytest.raises(ValueError, match="images must be"):
        Split(images[0], labels)
    with pytest.raises(ValueError, match=r"labels must be int64 \(2,\), got int64 \(1,\)"):
        Split(images, labels[:1])
    with pytest.raises(ValueError, match="labels must be"):
        Split(images, labels.int())
