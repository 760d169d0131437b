"""Is it a defence, or are its gradients hidden? Checks after Athalye et al. (2018) and Carlini et al. (2019).

A network whose gradients mislead looks robust to attacks that follow them. Each check compares two attacks of which one
has to be the stronger if gradients tell the truth; where it is not, the accuracy under attack cannot be trusted.
"""

import copy
from collections.abc import Sequence
from typing import NamedTuple

from torch import Tensor, nn

from detrame.activations.qmetric import q_metric_relus
from detrame.inference import accuracy, predict
from detrame.robustness.attacks import PGD_REACH, PGD_STEPS, pgd, square
from detrame.robustness.ball import Ball

ENOUGH = 200  # images, of which the slack is a few
SLACK = 1.0  # percentage points by which the weaker attack may seem the stronger, by chance
FEW_STEPS, LONGER = 10, 4
_PGD = f"PGD, {PGD_STEPS} steps"
_WORDS = {True: "holds", False: "FAILS", None: "says nothing"}
EVERYTHING = 0.5  # a radius in pixels (norm inf) at which every image can be made grey


class Check(NamedTuple):
    """One check: what has to hold, whether it does, and the accuracies under attack (percent) that say so.

    Where it could hardly have failed, it says nothing: `holds` is None.
    """

    name: str
    holds: bool | None
    figures: dict[str, float]

    def __str__(self) -> str:
        figures = "; ".join(f"{name}: {value:.1f}%" for name, value in self.figures.items())
        return f"{_WORDS[self.holds]}: {self.name} (accuracy left by {figures})"


def checks(
    model: nn.Module,
    images: Tensor,
    labels: Tensor,
    ball: Ball,
    *,
    twin: nn.Module | None = None,
    queries: int = 1000,
    seed: int = 0,
) -> list[Check]:
    """Run every check that applies to `model` on images ``(N, C, H, W)`` with their labels.

    Args:
        model: to be judged.
        images, labels: test images.
        ball: the radius at which it is judged, in pixels.
        twin: a network of the same task, as the one with ReLUs, from which attacks are transferred.
        queries: that the gradient-free attack may make for each image.
        seed: of the random starts.
    """

    def left(attacked_images: Tensor) -> float:
        return accuracy(predict(model, attacked_images, exact=True), labels)

    def through(source: nn.Module) -> float:
        return left(pgd(source, images, labels, ball, seed=seed))

    clean, gradient = left(images), through(model)
    rivals = {
        "an attack without gradients is no better": (
            f"Square, {queries} queries",
            left(square(model, images, labels, ball, seed=seed, queries=queries)),
        ),
        "fewer steps are no better": (
            f"PGD, {FEW_STEPS} steps",
            left(pgd(model, images, labels, ball, seed=seed, steps=FEW_STEPS)),
        ),
        "longer steps are no better": (
            f"PGD, steps {LONGER} times as long",
            left(pgd(model, images, labels, ball, seed=seed, reach=LONGER * PGD_REACH)),
        ),
    }
    if twin is not None:
        rivals["an attack on the twin is no better"] = "PGD on the twin", through(twin)
    for count in _other_iterations(model):
        name = f"through {count} iteration{'s' * (count > 1)}"
        rivals[f"an attack {name} is no better"] = f"PGD {name}", through(iterated(model, count))
    everything = left(pgd(model, images, labels, _whole(ball, images), seed=seed))
    return [
        *(
            Check(name, _no_better(kept, gradient, clean), {_PGD: gradient, other: kept})
            for name, (other, kept) in rivals.items()
        ),
        Check("a radius large enough leaves nothing", everything <= SLACK, {"PGD, any pixel": everything}),
    ]


def verdict(found: Sequence[Check], images: int) -> str:
    """What the checks, made on some images, say together, in one sentence."""
    failed = [check.name for check in found if check.holds is False]
    if failed:
        return f"Not to be trusted: it does not hold that {', nor that '.join(failed)}; PGD leaves more than it has to."
    silent = [check for check in found if check.holds is None]
    if silent and silent[0].figures[_PGD] <= SLACK:
        return "PGD leaves nothing at this radius: there is no accuracy to trust; check at a smaller one."
    if silent:
        return "PGD takes nothing off the accuracy at this radius: the checks say nothing; check at a larger one."
    if images < ENOUGH:
        return f"All {len(found)} checks hold, but {images} images are too few to tell: take {ENOUGH} or more."
    return (
        f"All {len(found)} checks hold: nothing says that gradients are hidden; a stronger attack may still take more."
    )


def iterated(model: nn.Module, iterations: int) -> nn.Module:
    """A copy of `model` whose Q-Metric ReLUs iterate another number of times."""
    copied = copy.deepcopy(model)
    for module in q_metric_relus(copied):
        module.iterations = iterations
    return copied


def _other_iterations(model: nn.Module) -> list[int]:
    """Fewer and more iterations than those of the network; none where it has no Q-Metric ReLU."""
    own = {module.iterations for module in q_metric_relus(model)}
    return sorted({max(1, min(own) - 1), 2 * max(own)} - own) if own else []


def _no_better(kept: float, gradient: float, clean: float) -> bool | None:
    """Does another attack leave no less than PGD does? None if so, but PGD leaves all or nothing, as any might."""
    if kept < gradient - SLACK:
        return False
    return True if SLACK < gradient < clean - SLACK else None


def _whole(ball: Ball, images: Tensor) -> Ball:
    """A ball in the same norm in which every image can be made grey."""
    radius = EVERYTHING if ball.norm == "inf" else EVERYTHING * images[0].numel() ** 0.5
    return Ball(radius, "pixels", ball.norm, ball.std)
