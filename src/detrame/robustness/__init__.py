"""Is it robust? Universal perturbations, noise, attacks, and checks that tell a defence from hidden gradients.

Everything here takes a model (pixels in [0, 1] to logits) and tensors; data sets and paths are the experiments' part.
"""

from detrame.robustness.attacked import Effect, effect, perturbed
from detrame.robustness.attacks import PER_IMAGE, autoattack, pgd, square
from detrame.robustness.ball import NORMS, UNITS, Ball
from detrame.robustness.decisions import Decisions
from detrame.robustness.noise import noisy
from detrame.robustness.universal import Crafted, batched, gradient, sequential

__all__ = [
    "NORMS",
    "PER_IMAGE",
    "UNITS",
    "Ball",
    "Crafted",
    "Decisions",
    "Effect",
    "autoattack",
    "batched",
    "effect",
    "gradient",
    "noisy",
    "perturbed",
    "pgd",
    "sequential",
    "square",
]
