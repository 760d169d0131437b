import numpy as np
import numpy.typing as npt
import pytest
import torch

from detrame.data import Batches, Split
from detrame.data.augment import Plan, augmented, epoch_plan, mirrored, pad

MEAN = (0.2, 0.4, 0.95)


def images(count: int, *, height: int = 5, width: int = 4, seed: int = 0) -> Split:
    generator = torch.Generator().manual_seed(seed)
    pixels = torch.randint(256, (count, 3, height, width), generator=generator, dtype=torch.uint8)
    return Split(pixels, torch.arange(count))


def reference(image: npt.NDArray[np.uint8], padding: int, row: int, column: int, mirror: bool) -> npt.NDArray[np.uint8]:
    """A crop and a flip, pixel by pixel."""
    channels, height, width = image.shape
    crop = np.empty_like(image)
    for c, i, j in np.ndindex(channels, height, width):
        y, x = i + row - padding, (width - 1 - j if mirror else j) + column - padding
        inside = 0 <= y < height and 0 <= x < width
        crop[c, i, j] = image[c, y, x] if inside else round(MEAN[c] * 255)
    return crop


@pytest.mark.parametrize("padding", [0, 1, 2])
def test_every_crop_and_flip_equals_the_reference(padding: int) -> None:
    """All offsets, both ways round, of every image: enumerated, not drawn."""
    split = images(3)
    places = range(2 * padding + 1)
    cases = [(n, i, j, f) for n in range(3) for i in places for j in places for f in (False, True)]
    plan = Plan(
        torch.tensor([n for n, *_ in cases]),
        torch.tensor([[i for _, i, _, _ in cases], [j for _, _, j, _ in cases]]),
        torch.tensor([f for *_, f in cases]),
    )
    padded = pad(split.images, padding, torch.tensor(MEAN).mul(255).round())
    ours = augmented(padded, plan, (5, 4)).numpy()
    expected = [reference(split.images[n].numpy(), padding, i, j, f) for n, i, j, f in cases]
    assert np.array_equal(ours, np.stack(expected))


def test_an_epoch_serves_what_its_plan_says() -> None:
    split = images(50)
    batches = Batches(split, 8, seed=1, crop_padding=2, flip=True, mean=MEAN)
    plan = batches.plan(4)
    assert set(plan.offsets.flatten().tolist()) == set(range(5))
    assert set(plan.flips.tolist()) == {False, True}
    served = list(batches.epoch(4))
    assert len(served) == len(batches) == 7
    pixels = torch.cat([x for x, _ in served])
    assert pixels.dtype == torch.float32
    expected = [
        reference(split.images[n].numpy(), 2, i, j, f)
        for n, i, j, f in zip(plan.order, *plan.offsets.tolist(), plan.flips.tolist(), strict=True)
    ]
    torch.testing.assert_close(pixels, torch.from_numpy(np.stack(expected)).float() / 255, rtol=0, atol=1e-7)
    assert torch.equal(torch.cat([y for _, y in served]), plan.order)


# Borders as wide as the image or wider are mirrored again.
@pytest.mark.parametrize(("width", "padding"), [(4, 1), (4, 3), (4, 4), (4, 12), (1, 2)])
def test_borders_may_mirror_the_image(width: int, padding: int) -> None:
    split = images(6, width=width)
    border = ((0, 0), (0, 0), (padding, padding), (padding, padding))
    expected = torch.from_numpy(np.pad(split.images.numpy(), border, mode="reflect"))
    assert torch.equal(mirrored(split.images, padding), expected)
    batches = Batches(split, 6, seed=1, crop_padding=padding, reflect=True)
    plan = batches.plan(0)
    ((served, _),) = batches.epoch(0, as_float=False)
    assert torch.equal(served, augmented(expected, plan, (5, width)))


def test_an_epoch_made_ahead_of_time_is_the_same() -> None:
    ahead, plain = (Batches(images(20), 6, seed=1, crop_padding=2, flip=True, mean=MEAN) for _ in range(2))
    ahead.prepare(3)
    for epoch in (3, 4, 3):
        for (x, y), (a, b) in zip(ahead.epoch(epoch), plain.epoch(epoch), strict=True):
            assert torch.equal(x, a)
            assert torch.equal(y, b)


def test_all_offsets_and_both_flips_occur_equally() -> None:
    plan = epoch_plan(0, 0, 81_000, crop_padding=4, flip=True)
    counts = (plan.offsets[0] * 9 + plan.offsets[1]).bincount(minlength=81)
    chi_squared = ((counts - 1000.0) ** 2 / 1000).sum()
    assert chi_squared < 140  # 80 degrees of freedom: exceeded once in 25,000 draws
    assert abs(plan.flips.float().mean() - 0.5) < 0.01
    assert torch.equal(plan.order.sort().values, torch.arange(81_000))


def test_a_plan_is_a_pure_function_of_seed_and_epoch() -> None:
    torch.manual_seed(1)
    first = epoch_plan(3, 5, 100, crop_padding=4, flip=True)
    torch.manual_seed(2)
    again = epoch_plan(3, 5, 100, crop_padding=4, flip=True)
    assert torch.equal(first.order, again.order)
    assert torch.equal(first.offsets, again.offsets)
    assert torch.equal(first.flips, again.flips)
    orders = {tuple(epoch_plan(seed, epoch, 100).order.tolist()) for seed in range(5) for epoch in range(5)}
    assert len(orders) == 25
    assert torch.equal(first.order, epoch_plan(3, 5, 100).order)  # augmentation does not move the order


def test_an_epoch_can_be_taken_up_in_the_middle() -> None:
    batches = Batches(images(50), 8, seed=1, crop_padding=1, flip=True, mean=MEAN)
    whole = list(batches.epoch(2))
    for start in range(len(batches) + 1):
        resumed = list(batches.epoch(2, start=start))
        assert len(resumed) == len(whole) - start
        for (x, y), (a, b) in zip(resumed, whole[start:], strict=True):
            assert torch.equal(x, a)
            assert torch.equal(y, b)


def test_without_crops_and_flips_images_come_as_they_are_in_the_order_of_the_plan() -> None:
    split, batches = images(20), Batches(images(20), 6, seed=0)
    served = list(batches.epoch(0))
    assert [len(y) for _, y in served] == [6, 6, 6, 2]
    order = batches.plan(0).order
    assert torch.equal(torch.cat([x for x, _ in served]), split.images[order].float() / 255)
    assert torch.equal(torch.cat([y for _, y in served]), split.labels[order])


def test_the_data_set_is_left_as_it_was() -> None:
    split = images(20)
    before = split.images.clone()
    for x, _ in Batches(split, 6, seed=0, flip=True).epoch(0):
        x.zero_()
    assert torch.equal(split.images, before)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("reflect", [False, True])
def test_a_gpu_sees_the_same_batches(reflect: bool) -> None:
    split = images(50)
    splits = split, split.to("cuda")
    both = [Batches(s, 8, seed=1, crop_padding=2, flip=True, mean=MEAN, reflect=reflect) for s in splits]
    on = [batches.epoch(3, as_float=False) for batches in both]
    for (x, y), (a, b) in zip(*on, strict=True):
        assert torch.equal(x, a.cpu())
        assert torch.equal(y, b.cpu())


def test_wrong_arguments_are_named() -> None:
    split = images(4)
    with pytest.raises(ValueError, match="batch_size must be at least 1, got 0"):
        Batches(split, 0, seed=0)
    with pytest.raises(ValueError, match="crop_padding must be at least 0, got -1"):
        Batches(split, 1, seed=0, crop_padding=-1)
    for mean in (None, (0.5,)):
        with pytest.raises(ValueError, match="crops need the mean pixel, 3 numbers"):
            Batches(split, 1, seed=0, crop_padding=1, mean=mean)
