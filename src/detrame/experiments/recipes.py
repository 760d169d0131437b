"""The recipes: the paper's two, and one for small images and short budgets."""

from typing import Any

from detrame.errors import unknown
from detrame.experiments import paper
from detrame.models import default_activation
from detrame.training import Recipe

# Where the paper is silent, open or cannot be meant (batch norm, the last activation, decay of h and b, the kind of
# momentum), these follow the departures that docs/departures.md lists.
RECIPES: dict[str, dict[str, Any]] = {
    "cifar": {
        "epochs": 200,
        "lr": 0.1,
        "lr_milestones": (60, 120, 160),
        "lr_factor": 0.2,
        "crop_padding": 4,
        "flip": True,
    },
    "svhn": {"epochs": 160, "lr": 0.01, "lr_milestones": (80, 120), "lr_factor": 0.1, "normalise": False},
    "small": {"epochs": 20, "batch_size": 32, "lr": 0.1, "lr_milestones": (12, 17), "lr_factor": 0.2, "width": 1 / 3},
}
# Data sets that come without a split: each seed draws one of its own.
OWN_SPLITS = ("digits",)
_FOR_DATASET = {"cifar10": "cifar", "cifar100": "cifar", "svhn": "svhn", "svhn_extra": "svhn"}


def default_recipe(
    model: str, dataset: str, *, recipe: str | None = None, epochs: int | None = None, **changes: Any
) -> Recipe:
    """The recipe for a network on a data set: the paper's where it has one, "small" elsewhere.

    Args:
        model, dataset: their names.
        recipe: "cifar", "svhn" or "small"; by default that of the data set.
        epochs: by default the recipe's. The learning-rate milestones scale with it, unless `changes` has
            `lr_milestones`.
        changes: fields of the recipe to set. Without `iterations`, a Q-Metric network takes the paper's number for
            the network and the data set, or 2. Digits come without a split: the seed draws it, unless you give
            `split_seed`.
    """
    name = recipe or _FOR_DATASET.get(dataset, "small")
    if name not in RECIPES:
        raise unknown("recipe", name, RECIPES)
    base = Recipe(model=model, dataset=dataset, **RECIPES[name])
    changes.setdefault("activation", default_activation(model))
    changes.setdefault("iterations", paper.iterations(model, dataset.removesuffix("_extra")) or 2)
    changed = base.replace(epochs=base.epochs if epochs is None else epochs, **changes)
    if dataset in OWN_SPLITS and "split_seed" not in changes:
        changed = changed.replace(split_seed=changed.seed)
    if "lr_milestones" not in changes:
        share = changed.epochs / base.epochs
        changed = changed.replace(lr_milestones=tuple(max(1, round(epoch * share)) for epoch in base.lr_milestones))
    return changed
