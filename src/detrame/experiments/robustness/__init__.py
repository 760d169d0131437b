"""Trained networks under attack: what is measured, where it is stored, and what the paper claims."""

from detrame.experiments.robustness import page, tables
from detrame.experiments.robustness.measure import ATTACKS, Bench, Figure, Measured, Settings
from detrame.experiments.robustness.networks import Network, named, told_apart, trained, twin

__all__ = [
    "ATTACKS",
    "Bench",
    "Figure",
    "Measured",
    "Network",
    "Settings",
    "named",
    "page",
    "tables",
    "told_apart",
    "trained",
    "twin",
]
