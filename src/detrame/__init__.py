"""DeTraMe: deep transform and metric learning networks."""

__version__ = "0.1.0"
