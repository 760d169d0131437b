"""The convolutions by tiles of whole lines against PyTorch's in float32, from numbers in half precision."""

from unittest.mock import Mock

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

pytest.importorskip("triton.tools.tensor_descriptor", reason="needs Triton 3.4, where descriptors of tensors began")

from detrame.kernels import convolution, whole_lines
from detrame.kernels.few_channels import Shape
from detrame.kernels.whole_lines import tiles_for

CUDA = torch.cuda.is_available() and torch.cuda.get_device_capability() == (9, 0)
DEVICE = "cuda" if CUDA else "cpu"
DTYPES = [torch.float16, torch.bfloat16] if CUDA else [torch.float16]  # which Triton's interpreter can multiply
TOLERANCE = {torch.float16: 1e-3, torch.bfloat16: 6e-3}

SAME = Shape(3, 1, 1)

CASES = [
    # images, inputs, outputs, kernel, height, width, tile
    (2, 96, 96, 3, 8, 8, 64),  # an image each
    (3, 48, 96, 3, 4, 8, 16),  # two lines each
    (5, 96, 48, 3, 4, 4, 32),  # two images each, and half a tile
    (2, 64, 96, 1, 4, 4, 16),
    (1, 16, 192, 3, 2, 16, 16),  # a line each
    (1, 32, 160, 5, 4, 4, 16),
    (1, 96, 96, 3, 16, 32, 256),
    (3, 192, 192, 3, 8, 8, 128),
]


def images(*shape: int, dtype: torch.dtype, seed: int = 0) -> Tensor:
    drawn = torch.randn(shape, generator=torch.Generator().manual_seed(seed))
    return drawn.to(DEVICE, dtype, memory_format=torch.channels_last)


def close(ours: Tensor, reference: Tensor) -> None:
    assert ours.shape == reference.shape
    assert (ours.float() - reference).norm() <= TOLERANCE[ours.dtype] * reference.norm()


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("case", CASES, ids=str)
def test_convolutions(case: tuple[int, int, int, int, int, int, int], dtype: torch.dtype) -> None:
    count, inputs, outputs, kernel, height, width, tile = case
    x = images(count, inputs, height, width, dtype=dtype)
    weight = images(outputs, inputs, kernel, kernel, dtype=dtype, seed=1)
    plain = F.conv2d(x.double(), weight.double(), padding=kernel // 2).float()
    out = torch.full_like(plain, torch.nan, dtype=dtype, memory_format=torch.channels_last)
    close(whole_lines.convolve(x, weight, out, tile), plain)
    raw = images(*plain.shape, dtype=dtype, seed=2)
    threshold = torch.rand(outputs, device=DEVICE)
    stepped = whole_lines.convolve(x, weight, out, tile, epilogue="step", raw=raw, threshold=threshold)
    close(stepped, (plain - raw.float() - threshold[:, None, None]).relu())


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("case", CASES, ids=str)
def test_gradients(case: tuple[int, int, int, int, int, int, int], dtype: torch.dtype) -> None:
    count, outputs, inputs, kernel, height, width, tile = case  # it is the gradient's channels that are summed over
    grad = images(count, outputs, height, width, dtype=dtype)
    weight = images(outputs, inputs, kernel, kernel, dtype=dtype, seed=1)
    plain = F.conv_transpose2d(grad.double(), weight.double(), padding=kernel // 2).float()
    out = torch.full_like(plain, torch.nan, dtype=dtype, memory_format=torch.channels_last)
    close(whole_lines.convolve(grad, weight, out, tile, back=True), plain)
    code = images(*plain.shape, dtype=dtype, seed=2)
    masked = whole_lines.convolve(grad, weight, out, tile, back=True, epilogue="mask", raw=code)
    close(masked, plain * (code > 0))


@pytest.mark.skipif(not CUDA, reason="needs a Hopper GPU")
@pytest.mark.parametrize(("channels", "size"), [(96, 32), (96, 16), (192, 16), (192, 8)])
@pytest.mark.parametrize("back", [False, True])
def test_each_launch_gives_the_same_bits(channels: int, size: int, back: bool) -> None:
    """As it does not where a product reads registers that the next step has loaded."""
    x, weight = (
        images(*shape, dtype=torch.bfloat16) for shape in [(128, channels, size, size), (channels,) * 2 + (3, 3)]
    )
    for tile in tiles_for(x, weight, channels, SAME):
        first = whole_lines.convolve(x, weight, torch.empty_like(x), tile, back=back)
        for _ in range(200):
            assert torch.equal(whole_lines.convolve(x, weight, torch.empty_like(x), tile, back=back), first), tile


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(whole_lines, "_has_engine", lambda x: True)


@pytest.mark.usefixtures("engine")
def test_tiles_fit_the_image_and_the_registers() -> None:
    def pixels(channels: int, size: int) -> list[int]:
        x = torch.empty(2, channels, size, size, dtype=torch.bfloat16)
        return tiles_for(x, x, channels, SAME)

    assert pixels(96, 32) == [256, 128]
    assert pixels(192, 16) == [128, 64]
    assert pixels(160, 128) == [128]


@pytest.mark.usefixtures("engine")
@pytest.mark.parametrize(
    ("x", "outputs", "shape"),
    [
        (torch.empty(2, 96, 32, 32), 96, SAME),  # float32
        (torch.empty(2, 96, 32, 32).half(), 96, Shape(3, 2, 1)),
        (torch.empty(2, 96, 32, 32).half(), 96, Shape(3, 1, 0)),
        (torch.empty(2, 96, 32, 32).half(), 96, Shape(2, 1, 1)),
        (torch.empty(2, 96, 28, 32).half(), 96, SAME),
        (torch.empty(2, 96, 32, 28).half(), 96, SAME),
        (torch.empty(2, 100, 32, 32).half(), 96, SAME),
        (torch.empty(2, 96, 32, 32).half(), 128, SAME),  # cuDNN's own size
        (torch.empty(2, 96, 32, 32).half(), 112, SAME),  # three parts
        (torch.empty(2, 96, 32, 32).half(), 72, SAME),  # a rest of 8
        (torch.empty(2, 96, 512, 512).half(), 96, SAME),
        (torch.empty(2, 96, 32, 32).half(), 768, SAME),
    ],
    ids=lambda value: f"{value.dtype} {tuple(value.shape)}" if isinstance(value, Tensor) else str(value),
)
def test_what_does_not_fit_is_left_to_others(x: Tensor, outputs: int, shape: Shape) -> None:
    assert tiles_for(x, torch.empty(1).half(), outputs, shape) == []


@pytest.mark.usefixtures("engine")
def test_the_engine_takes_lines_of_16_bytes() -> None:
    x, weight = torch.empty(2, 96, 32, 32).half(), torch.empty(8).half()
    assert tiles_for(x, weight, 96, SAME)
    assert not tiles_for(x, weight[1:], 96, SAME)


def test_a_cpu_has_no_engine() -> None:
    assert tiles_for(x := torch.empty(2, 96, 32, 32).half(), x, 96, SAME) == []


@pytest.mark.usefixtures("engine")
def test_the_fused_operations_ask_for_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a GPU the first way is taken, which these are where channels are not few."""
    monkeypatch.setattr(whole_lines, "_TILES", (128,))
    x, weight = (images(*shape, dtype=torch.float16) for shape in [(1, 96, 8, 8), (96, 96, 3, 3)])
    raw, threshold = images(1, 96, 8, 8, dtype=torch.float16, seed=3), torch.rand(96, device=DEVICE)
    plain = F.conv2d(x.double(), weight.double(), padding=1).float()
    back = F.conv_transpose2d(x.double(), weight.double(), padding=1).float()
    step = (plain - raw.float() - threshold[:, None, None]).relu()
    ours = Mock(wraps=whole_lines.convolve)
    monkeypatch.setattr(whole_lines, "convolve", ours)
    close(convolution.convolve(x, weight, SAME), plain)
    close(convolution.convolve_back(x, x, weight, SAME), back)
    out = torch.empty_like(x)
    close(convolution.convolve_back(x, x, weight, SAME, code=raw, out=out), back * (raw > 0))
    close(out, back * (raw > 0))
    close(convolution.step(x, weight, raw, threshold), step)
    close(convolution.step(x, weight, raw, threshold, out), step)
    close(out, step)
    assert ours.call_count == 5 or CUDA
