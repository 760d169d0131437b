"""Trained networks under attack: what is measured, where it is stored, and what the paper claims."""

from detrame.experiments.robustness import lacking, page, tables
from detrame.experiments.robustness.measure import ATTACKS, Figure, Measured, Settings, Subject

__all__ = [
    "ATTACKS",
    "Figure",
    "Measured",
    "Settings",
    "Subject",
    "lacking",
    "page",
    "tables",
]
