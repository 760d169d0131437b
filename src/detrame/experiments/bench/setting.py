"""Where to measure, on what, and how thoroughly."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch

from detrame.data import Dataset, Split
from detrame.data import load as load_dataset
from detrame.errors import check_count
from detrame.experiments.bench.ceilings import Ceilings
from detrame.experiments.bench.clock import Effort
from detrame.experiments.recipes import default_recipe
from detrame.training import Recipe, pick_device
from detrame.training.environment import hardware

PAPER_BATCH, CPU_BATCH = 128, 32
ON_GPU = Effort(groups=7, group_s=0.08, research_s=1.5, images=50_000, test_images=10_000)
ON_CPU = Effort(groups=5, group_s=0.2, research_s=1.0, images=2_000, test_images=200)
QUICK = Effort(groups=3, group_s=0.02, research_s=0.2, images=2_000, test_images=100)


@dataclass(frozen=True)
class Setting:
    """One device, one size of batch, one data set to train on.

    Attributes:
        device: its name.
        batch: images a step.
        dataset_name: what epochs and accuracies are measured on; steps take random images.
        effort: how thoroughly to measure.
    """

    device: str
    batch: int
    dataset_name: str
    effort: Effort

    @property
    def torch_device(self) -> torch.device:
        """The device."""
        return torch.device(self.device)

    @property
    def on_gpu(self) -> bool:
        """Whether the device is one."""
        return self.torch_device.type == "cuda"

    @property
    def hardware(self) -> str:
        """The name of the processor."""
        return hardware(self.device)

    @cached_property
    def ceilings(self) -> Ceilings:
        """What the device can do at most, measured once."""
        return Ceilings.measured(self.torch_device, self.effort)

    @cached_property
    def random_images(self) -> Dataset:
        """Random pixels of CIFAR-10's shape: the time of a step does not depend on what is to be seen."""
        return Dataset(
            name="random",
            train=_random_split(self.effort.images),
            test=_random_split(self.effort.test_images),
            classes=tuple("0123456789"),
            digest="",
            source="random pixels of the shape of CIFAR-10",
        )

    @cached_property
    def dataset(self) -> Dataset:
        """The data set to train on."""
        return load_dataset(self.dataset_name)

    def step_recipe(self, model: str, activation: str) -> Recipe:
        """The paper's recipe on CIFAR-10, with a learning rate at which a network stays finite on random labels."""
        return default_recipe(model, "cifar10", activation=activation, batch_size=self.batch, lr=1e-3)

    def recipe(self, model: str, activation: str, **changes: Any) -> Recipe:
        """The default recipe on the data set, with the batch of this setting."""
        return default_recipe(model, self.dataset_name, activation=activation, batch_size=self.batch, **changes)


def setting_on(
    device: str = "auto", *, batch: int | None = None, dataset: str | None = None, quick: bool = False
) -> Setting:
    """The paper's batch and CIFAR-10 on a GPU, small cases on a CPU, unless said otherwise."""
    name = pick_device(device)
    on_gpu = torch.device(name).type == "cuda"
    return Setting(
        device=name,
        batch=check_count("--batch", batch if batch is not None else PAPER_BATCH if on_gpu else CPU_BATCH),
        dataset_name=dataset or ("cifar10" if on_gpu else "digits"),
        effort=QUICK if quick else ON_GPU if on_gpu else ON_CPU,
    )


def _random_split(count: int) -> Split:
    generator = torch.Generator().manual_seed(0)
    images = torch.randint(256, (count, 3, 32, 32), generator=generator, dtype=torch.uint8)
    return Split(images, torch.randint(10, (count,), generator=generator))
