import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from detrame.activations import ACTIVATIONS
from detrame.data import Batches
from detrame.data import load as load_dataset
from detrame.errors import Failure
from detrame.experiments import RECIPES, default_recipe
from detrame.experiments.paper import tables
from detrame.training import Recipe
from tests.training import tiny


@pytest.mark.parametrize("name", RECIPES)
def test_the_schedule_is_that_of_multi_step_lr(name: str) -> None:
    recipe = default_recipe("plainnet9", "digits", recipe=name)
    optimizer = torch.optim.SGD([nn.Parameter(torch.zeros(1))], lr=recipe.lr)
    reference = torch.optim.lr_scheduler.MultiStepLR(optimizer, list(recipe.lr_milestones), gamma=recipe.lr_factor)
    for epoch in range(recipe.epochs):
        assert recipe.lr_at(epoch) == pytest.approx(optimizer.param_groups[0]["lr"], rel=1e-12)
        optimizer.step()
        reference.step()


def test_the_paper_s_recipes() -> None:
    cifar = default_recipe("plainnet9", "cifar10")
    assert (cifar.epochs, cifar.batch_size, cifar.lr, cifar.lr_factor) == (200, 128, 0.1, 0.2)
    assert cifar.lr_milestones == (60, 120, 160)
    assert (cifar.momentum, cifar.weight_decay, cifar.nesterov) == (0.9, 5e-4, False)
    assert (cifar.crop_padding, cifar.flip, cifar.normalise, cifar.iterations) == (4, True, True, 2)
    svhn = default_recipe("plainnet9", "svhn")
    assert (svhn.epochs, svhn.lr, svhn.lr_factor, svhn.lr_milestones) == (160, 0.01, 0.1, (80, 120))
    assert (svhn.crop_padding, svhn.flip, svhn.normalise, svhn.iterations) == (0, False, False, 5)


def test_iterations_are_the_paper_s_for_every_cell() -> None:
    cells = [(m, d, cell["iterations"]) for m, row in tables()["accuracy"].items() for d, cell in row.items()]
    assert len(cells) == 29
    for model, dataset, iterations in cells:
        assert default_recipe(model, dataset).iterations == iterations
    assert default_recipe("plainnet3", "svhn_extra").iterations == 8
    assert default_recipe("resnet164", "cifar10").iterations == 2
    assert default_recipe("plainnet3", "cifar10", iterations=4).iterations == 4


def test_milestones_move_with_the_epochs() -> None:
    assert default_recipe("resnet8", "cifar10", epochs=20).lr_milestones == (6, 12, 16)
    assert default_recipe("resnet8", "cifar10", epochs=20, lr_milestones=(3,)).lr_milestones == (3,)


def test_digits_draw_their_split_by_the_seed() -> None:
    assert default_recipe("plainnet3", "digits", seed=7).split_seed == 7
    assert default_recipe("plainnet3", "digits", seed=7, split_seed=1).split_seed == 1


def test_runs_of_all_seeds_share_a_recipe() -> None:
    assert tiny(seed=1, split_seed=2).seedless() == tiny(seed=3, split_seed=4).seedless() != tiny(lr=0.1).seedless()


def test_which_activations_iterate() -> None:
    iterating = {name for name in (*ACTIVATIONS, "dictionary") if tiny(activation=name).iterates}
    assert iterating == {"qmetric", "lista", "slstm"}


def test_json_round_trip(tmp_path: Path) -> None:
    recipe = tiny(norm=None, lr_milestones=(1, 2), nesterov=True)
    assert Recipe.from_json(recipe.to_json()) == recipe
    path = tmp_path / "my.json"
    path.write_text(recipe.to_json())
    assert Recipe.read(path) == recipe


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"epochs": 0}, "epochs must be at least 1, got 0"),
        ({"batch_size": -1}, "batch_size must be at least 1, got -1"),
        ({"lr": 0.0}, "lr must be a positive number, got 0.0"),
        ({"lr": float("nan")}, "lr must be a positive number, got nan"),
        ({"lr_factor": -0.1}, "lr_factor must be a positive number"),
        ({"momentum": -0.5}, "momentum must be a number >= 0, got -0.5"),
        ({"weight_decay": float("inf")}, "weight_decay must be a number >= 0, got inf"),
        ({"seed": -1}, "seed must be a number >= 0, got -1"),
        ({"nesterov": True, "momentum": 0.0}, "nesterov needs a momentum"),
        ({"epoch": 3}, "unknown field of a recipe 'epoch': did you mean 'epochs'"),
        ({"lr": "fast"}, "lr must be a number, got 'fast'"),
        ({"flip": 1}, "flip must be true or false, got 1"),
        ({"epochs": 2.5}, "epochs must be a whole number, got 2.5"),
        ({"lr_milestones": [1.5]}, r"lr_milestones must be a list of whole numbers, as \[60, 120\], got \[1.5\]"),
        ({"norm": 3}, "norm must be text or null, got 3"),
    ],
)
def test_wrong_fields(changes: dict[str, Any], complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        tiny().replace(**changes)


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("{", "is not a recipe"),
        ("[]", "a recipe is a JSON object, got list"),
        ('{"model": "plainnet3"}', "a recipe needs a dataset"),
        ('{"model": "plainnet3", "dataset": "digits", "lrr": 1}', "did you mean 'lr'"),
        ("\xff", "is not a recipe"),
    ],
)
def test_files_that_hold_no_recipe(text: str, complaint: str, tmp_path: Path) -> None:
    path = tmp_path / "my.json"
    path.write_bytes(text.encode("latin-1"))
    with pytest.raises(Failure, match=complaint):
        Recipe.read(path)


def test_an_unknown_recipe() -> None:
    with pytest.raises(ValueError, match="unknown recipe 'cifr': did you mean 'cifar'"):
        default_recipe("plainnet3", "digits", recipe="cifr")


def test_printed_recipes_are_json() -> None:
    assert json.loads(tiny().to_json())["lr_milestones"] == [1]


def test_borders_are_of_the_mean_colour_unless_they_mirror_the_image() -> None:
    digits = load_dataset("digits")
    for reflect in (False, True):
        ours = tiny(crop_padding=2, reflect=reflect).batches(digits.train, digits)
        wanted = Batches(digits.train, 128, seed=0, crop_padding=2, mean=digits.mean, reflect=reflect)
        for (images, _), (expected, _) in zip(ours.epoch(0), wanted.epoch(0), strict=True):
            assert torch.equal(images, expected)


def test_a_network_trains_channels_last() -> None:
    step = tiny().step(load_dataset("digits"), torch.device("cpu"))
    convolutions = [module.weight for module in step.model.modules() if isinstance(module, nn.Conv2d)]
    assert convolutions
    assert all(weight.is_contiguous(memory_format=torch.channels_last) for weight in convolutions)
