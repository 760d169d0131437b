"""Where data, models and training come together: default recipes, several runs at once, the report."""

from detrame.experiments.plans import compare, summarise, train_all
from detrame.experiments.recipes import RECIPES, default_recipe

__all__ = ["RECIPES", "compare", "default_recipe", "summarise", "train_all"]
