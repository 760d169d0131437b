"""Small, real runs on digits."""

from typing import Any

from detrame.training import Recipe


def tiny(**changes: Any) -> Recipe:
    """A recipe that trains in a fraction of a second."""
    fields: dict[str, Any] = {
        "model": "plainnet3",
        "dataset": "digits",
        "width": 0.05,
        "epochs": 2,
        "batch_size": 128,
        "lr": 0.05,
        "lr_milestones": (1,),
    }
    return Recipe(**(fields | changes))
