"""Training as research code usually has it: the paper's equation as printed, eager float32, a DataLoader on the CPU.

It is what our speed is measured against, and the reference of our accuracy.
"""

import time
import warnings
from collections.abc import Iterable, Iterator

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.optim import SGD
from torch.utils import data

from detrame import operators
from detrame.activations import QMetricReLU, parameter_groups, project_after
from detrame.data import Dataset, Split
from detrame.models import create_model
from detrame.training import Recipe

WORKERS = 4
WARM_UPS = 10  # more steps than the workers prepare in advance
AT_LEAST = 5  # steps, however long they take


def literal(z: Tensor, coupling: Tensor, gain: Tensor, threshold: Tensor, iterations: int) -> Tensor:
    """U <- ReLU(h*Z + W(U - Z) - b) from U = 0, as printed in the paper; arguments as of `q_metric_relu`."""
    dim = coupling.ndim - 2
    h, b = operators.per_channel(gain, dim), operators.per_channel(threshold, dim)
    u = torch.zeros_like(z)
    for _ in range(iterations):
        u = torch.relu(h * z + operators.apply(coupling, u - z) - b)
    return u


class Literal(QMetricReLU):
    """The Q-Metric ReLU by the equation as printed."""

    def forward(self, input: Tensor) -> Tensor:
        """The code of `input`, of the same shape."""
        return literal(input, self.coupling, self.gain, self.threshold, self.iterations)


def network(recipe: Recipe, dataset: Dataset) -> nn.Module:
    """The recipe's network, with the literal equation in its Q-Metric ReLUs; the initial weights are the same."""

    def literal_activation(channels: int, kernel_size: int | None) -> nn.Module:
        return Literal(channels, kernel_size, recipe.iterations)

    activation = literal_activation if recipe.activation == "qmetric" else recipe.activation
    return create_model(recipe.model, activation=activation, **recipe.options(dataset))


def optimizer(model: nn.Module, recipe: Recipe) -> SGD:
    """SGD with the projections after each step."""
    groups = parameter_groups(model, recipe.weight_decay)
    made = SGD(groups, lr=recipe.lr, momentum=recipe.momentum, nesterov=recipe.nesterov)
    project_after(made, model)
    return made


def steps(model: nn.Module, optimizer: SGD, batches: Iterable[tuple[Tensor, Tensor]]) -> Iterator[float]:
    """Take one step a batch, and yield its loss, for which the host waits."""
    device = next(model.parameters()).device
    model.train()
    for images, labels in batches:
        images, labels = images.to(device), labels.to(device)
        optimizer.zero_grad()
        loss = F.cross_entropy(model(images), labels)
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        yield loss.item()


class Augmented(data.Dataset[tuple[Tensor, Tensor]]):
    """A split whose images are cropped and mirrored one by one, when they are asked for."""

    def __init__(self, split: Split, crop_padding: int) -> None:
        self.split, self.crop_padding = split, crop_padding

    def __len__(self) -> int:
        return len(self.split)

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        image = self.split.images[index].float() / 255
        height, width = image.shape[1:]
        top, left = torch.randint(2 * self.crop_padding + 1, (2,)).tolist()
        image = F.pad(image, (self.crop_padding,) * 4)[:, top : top + height, left : left + width]
        return image.flip(2) if torch.rand(()) < 0.5 else image, self.split.labels[index]


def milliseconds(recipe: Recipe, dataset: Dataset, device: torch.device, *, seconds: float) -> float:
    """Milliseconds a step, data included, over about `seconds` after a warm-up."""
    model = network(recipe, dataset).to(device)
    with warnings.catch_warnings():  # a loader would rather have as many workers as there are cores, each time round
        warnings.filterwarnings("ignore", message="This DataLoader will create")
        running = steps(model, optimizer(model, recipe), _forever(_loader(recipe, dataset)))
        for _ in range(WARM_UPS):
            next(running)
        taken, start = 0, time.perf_counter()
        while taken < AT_LEAST or time.perf_counter() - start < seconds:
            next(running)
            taken += 1
        return 1e3 * (time.perf_counter() - start) / taken


def _loader(recipe: Recipe, dataset: Dataset) -> data.DataLoader[tuple[Tensor, Tensor]]:
    return data.DataLoader(
        Augmented(dataset.train, recipe.crop_padding),
        batch_size=recipe.batch_size,
        shuffle=True,
        drop_last=True,
        num_workers=WORKERS,
    )


def _forever(loader: data.DataLoader[tuple[Tensor, Tensor]]) -> Iterator[tuple[Tensor, Tensor]]:
    while True:
        yield from loader
