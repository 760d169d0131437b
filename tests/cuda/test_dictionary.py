"""Dictionary layers on a GPU: `pytest -m cuda`."""

import copy

import pytest
import torch

import detrame
from detrame.inference import predict
from detrame.training.step import Step

pytestmark = [
    pytest.mark.cuda,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-9), (torch.float32, 1e-5)])
@pytest.mark.parametrize("atoms", [8, 48])
def test_codes_and_gradients_are_those_of_the_cpu(atoms: int, dtype: torch.dtype, tolerance: float) -> None:
    """With PyTorch's defaults, which allow TF32 in convolutions: three digits only, were it used."""
    layer = detrame.DictionaryConv2d(3, atoms, 3, padding=1, learned=["shift"], dtype=dtype)
    twin = copy.deepcopy(layer).cuda()
    images = torch.randn(8, 3, 16, 16, dtype=dtype)
    codes, theirs = layer(images), twin(images.cuda())
    assert (theirs.cpu() - codes).abs().max() <= tolerance * codes.max()
    codes.square().sum().backward()
    theirs.square().sum().backward()
    for (name, ours), other in zip(layer.named_parameters(), twin.parameters(), strict=True):
        assert ours.grad is not None
        assert other.grad is not None
        share = 1e-2 if dtype == torch.float32 else 1e-9  # the convolution's own backward pass may use TF32
        assert (other.grad.cpu() - ours.grad).norm() <= share * ours.grad.norm(), name


def test_a_dictionary_network_takes_eager_steps_and_learns() -> None:
    net = detrame.create_model("ddl3", width=1 / 6).cuda().to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    step = Step(net, momentum=0.9, nesterov=False, weight_decay=5e-4)
    step.set_lr(0.05)
    labels = torch.arange(64, device="cuda") % 10
    images = torch.rand(64, 3, 16, 16, device="cuda") * 0.3
    images[torch.arange(64), :, labels] += 0.7
    losses = [step(images, labels)[0].item() for _ in range(20)]
    assert losses[-1] < 0.8 * losses[0]
    assert not step._graphs
    assert predict(net, images).shape == (64, 10)
