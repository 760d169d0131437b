"""The few-channel convolutions against PyTorch's, in float32."""

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

pytest.importorskip("triton", reason="needs Triton, which this PyTorch came without")

from detrame.kernels import few_channels
from detrame.kernels.few_channels import Shape, Tile

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"

CASES = [
    # inputs, outputs, kernel, stride, padding, height, width
    (3, 16, 3, 1, 1, 5, 8),
    (3, 70, 3, 1, 1, 4, 5),
    (16, 16, 3, 1, 1, 8, 8),
    (16, 32, 3, 2, 1, 7, 5),
    (16, 32, 1, 2, 0, 8, 8),
    (24, 24, 3, 1, 1, 6, 6),
    (32, 32, 3, 1, 1, 6, 4),
    (32, 64, 3, 2, 1, 4, 8),
    (48, 16, 3, 1, 1, 5, 6),
    (64, 64, 3, 1, 1, 3, 4),
    (96, 10, 1, 1, 0, 4, 5),
    (20, 96, 3, 1, 1, 4, 3),
    (10, 6, 5, 1, 2, 6, 6),
    (6, 10, 5, 3, 1, 9, 11),
    (8, 8, 2, 1, 0, 6, 5),
    (16, 16, 3, 2, 1, 1, 1),
]


@pytest.fixture(autouse=True)
def float32_in_full(monkeypatch: pytest.MonkeyPatch) -> None:
    """As the kernels have it: a GPU's default convolutions would be the less exact ones."""
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)


def images(*shape: int, seed: int = 0) -> Tensor:
    drawn = torch.randn(shape, generator=torch.Generator().manual_seed(seed))
    return drawn.to(DEVICE).to(memory_format=torch.channels_last)


def close(ours: Tensor, reference: Tensor) -> None:
    assert ours.shape == reference.shape
    assert (ours - reference).norm() <= 1e-5 * reference.norm().clamp_min(1e-3)


def check(x: Tensor, weight: Tensor, shape: Shape, tile: Tile | None = None) -> None:
    """All that the kernels compute, with each epilogue."""
    x, weight = x.requires_grad_(), weight.requires_grad_()
    plain = F.conv2d(x, weight, stride=shape.stride, padding=shape.padding)
    grad = images(*plain.shape, seed=2)
    x_grad, weight_grad = torch.autograd.grad((plain * grad).sum(), [x, weight])
    x, weight, plain = x.detach(), weight.detach(), plain.detach()

    raw, threshold = images(*plain.shape, seed=3), images(1, plain.shape[1], 1, 1, seed=4)
    out = torch.empty_like(raw)
    close(few_channels.convolve(x, weight, shape, out, tile=tile), plain)
    stepped = few_channels.convolve(
        x, weight, shape, out, epilogue="step", raw=raw, threshold=threshold.flatten(), tile=tile
    )
    close(stepped, (plain - raw - threshold).relu())
    back = torch.full_like(x, torch.nan)
    close(few_channels.convolve_back(grad, weight, shape, back, tile=tile), x_grad)
    close(few_channels.convolve_back(grad, weight, shape, back, code=x, tile=tile), x_grad * (x > 0))
    close(few_channels.weight_gradient(grad, x, weight, shape, tile=tile, programs=6), weight_grad)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_convolutions(case: tuple[int, ...]) -> None:
    inputs, outputs, kernel, stride, padding, height, width = case
    weight = images(outputs, inputs, kernel, kernel, seed=1)
    check(images(2, inputs, height, width), weight, Shape(kernel, stride, padding))


@pytest.mark.parametrize(
    "tile",
    [Tile(1, 64, 16, 16), Tile(1, 16, 256, 32), Tile(2, 32, 32, 32), Tile(2, 16, 64, 16), Tile(4, 16, 128, 64)],
    ids=str,
)
@pytest.mark.parametrize("stride", [1, 2])
def test_every_tile_gives_the_same(tile: Tile, stride: int) -> None:
    check(images(2, 10, 6, 8), images(12, 10, 3, 3, seed=1), Shape(3, stride, 1), tile)
