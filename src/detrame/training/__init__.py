"""Training: a recipe, a loop, and a folder a run."""

from detrame.training.loop import OnEpoch, pick_device, plan, resume, resume_all, train
from detrame.training.recipe import Recipe
from detrame.training.runs import Epoch, Run, Scores, find, load

__all__ = [
    "Epoch",
    "OnEpoch",
    "Recipe",
    "Run",
    "Scores",
    "find",
    "load",
    "pick_device",
    "plan",
    "resume",
    "resume_all",
    "train",
]
