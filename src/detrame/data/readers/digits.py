"""Handwritten digits that come inside scikit-learn: 1797 real images, 1x8x8, half to train and half to test."""

import torch

from detrame.data.dataset import Split
from detrame.data.holdout import holdout
from detrame.data.proof import in_order
from detrame.errors import Failure

_LEVELS = 15  # 17 grey levels, 0 to 16, spread over 0 to 240: in steps of 15 nothing is lost
_DIGEST = "d6b0c8aa8aa986d5382dda36708857167aa452466670814ca9f40fe5f8bb938f"  # of all of them, as one split


def read(split_seed: int) -> tuple[Split, Split]:
    """Train and test; each `split_seed` shuffles each class anew before it is halved."""
    from sklearn.datasets import load_digits  # which takes longer than the rest of the package

    pixels, labels = load_digits(return_X_y=True)
    images = torch.from_numpy(pixels).mul(_LEVELS).to(torch.uint8).reshape(-1, 1, 8, 8)
    everything, digest = in_order(Split(images, torch.from_numpy(labels).long()))
    if digest.hex() != _DIGEST:
        raise Failure("scikit-learn's digits are not the known ones: install scikit-learn again")
    return holdout(everything, len(everything) // 2, seed=split_seed)
