"""Trained networks under attack: what is measured, where it is stored, and what the paper claims."""

from detrame.experiments.robustness.measure import UNIVERSAL, Bench, Figure, Measured, Settings
from detrame.experiments.robustness.networks import Network, named, trained

__all__ = ["UNIVERSAL", "Bench", "Figure", "Measured", "Network", "Settings", "named", "trained"]
