"""Predictions on a CPU: how images are laid out and in what batches they are looked at changes no prediction."""

import pytest
import torch
from torch import Tensor, nn

from detrame import QMetricReLU, create_model
from detrame.inference import Predictor, predict


class Seen(nn.Module):
    """Notes the batches it is shown, and answers with the sum of each image."""

    def __init__(self) -> None:
        super().__init__()
        self.batches: list[Tensor] = []

    def forward(self, images: Tensor) -> Tensor:
        self.batches.append(images)
        return images.sum((1, 2, 3))[:, None]


@pytest.mark.parametrize("exact", [False, True])
def test_images_come_channels_last_a_hundred_at_a_time_and_in_their_order(exact: bool) -> None:
    seen, images = Seen(), torch.randint(256, (205, 3, 4, 5), dtype=torch.uint8)
    logits = predict(seen, images, exact=exact)
    assert [len(batch) for batch in seen.batches] == [100, 100, 5]
    assert all(batch.is_contiguous(memory_format=torch.channels_last) for batch in seen.batches)
    torch.testing.assert_close(torch.cat(seen.batches), images / 255)
    torch.testing.assert_close(logits[:, 0], (images / 255).sum((1, 2, 3)))


def test_predictions_are_those_of_the_network_called_as_it_is() -> None:
    torch.manual_seed(0)
    model, images = create_model("resnet8", width=0.5).eval(), torch.rand(120, 3, 8, 8)
    with torch.no_grad():
        plain = model(images)
    torch.testing.assert_close(predict(model, images), plain)
    torch.testing.assert_close(Predictor(model)(images), plain)


@pytest.mark.parametrize("dim", [0, 1, 3])
def test_networks_of_features_of_signals_and_of_volumes_predict_too(dim: int) -> None:
    model = nn.Sequential(QMetricReLU(4, 3 if dim else None, dim=dim, init="random"), nn.Flatten(), nn.LazyLinear(2))
    x = torch.randn(103, 4, *[5] * dim)
    with torch.no_grad():
        plain = model(x)
    torch.testing.assert_close(predict(model, x), plain)
