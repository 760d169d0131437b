"""Data sets known by their content: sources, proof, cache, and batches made on the device."""

from detrame.data.batches import Batches
from detrame.data.catalogue import CATALOGUE
from detrame.data.dataset import Dataset, Split
from detrame.data.getting import get, get_folder
from detrame.data.holdout import holdout
from detrame.data.loading import load

__all__ = ["CATALOGUE", "Batches", "Dataset", "Split", "get", "get_folder", "holdout", "load"]
