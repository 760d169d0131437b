"""Setting images aside, every class in proportion."""

import torch

from detrame.data.dataset import Split


def holdout(split: Split, count: int, *, seed: int) -> tuple[Split, Split]:
    """Set `count` images aside, in proportion to the classes; the same ones for the same `seed`.

    Returns:
        What remains and what is held out, both in the order they had.
    """
    if not 0 < count < len(split):
        raise ValueError(f"count must be between 1 and {len(split) - 1}, got {count}")
    shuffled = torch.randperm(len(split), generator=torch.Generator().manual_seed(seed))
    labels = split.labels.cpu()[shuffled]
    # Where each image stands in its class, from 0 to 1. The first `count` by that place take the same share of each.
    by_class = labels.argsort(stable=True)
    sizes = labels.bincount()
    starts = sizes.cumsum(0) - sizes
    rank = torch.empty_like(by_class)
    rank[by_class] = torch.arange(len(split)) - starts[labels[by_class]]
    place = (rank.double() + 0.5) / sizes[labels]
    held = torch.zeros(len(split), dtype=torch.bool)
    held[shuffled[place.argsort(stable=True)[:count]]] = True
    held = held.to(split.labels.device)
    return split[~held], split[held]
