"""Where data, models and training come together: default recipes, several runs at once, the report."""

from detrame.experiments.plans import summarise
from detrame.experiments.recipes import RECIPES, default_recipe

__all__ = ["RECIPES", "default_recipe", "summarise"]
