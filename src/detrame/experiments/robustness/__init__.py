"""Trained networks under attack: what is measured, where it is stored, and what the paper claims."""

from detrame.experiments.robustness import page, tables
from detrame.experiments.robustness.measure import ATTACKS, Bench, Figure, Measured, Settings

__all__ = [
    "ATTACKS",
    "Bench",
    "Figure",
    "Measured",
    "Settings",
    "page",
    "tables",
]
