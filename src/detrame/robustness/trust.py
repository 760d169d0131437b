"""Is it a defence, or are its gradients hidden? Checks after Athalye et al. (2018) and Carlini et al. (2019).

A network whose gradients mislead looks robust to attacks that follow them. Each check compares two attacks of which one
has to be the stronger if gradients tell the truth; where it is not, the accuracy under attack cannot be trusted.
"""

import copy
from typing import NamedTuple

from torch import Tensor, nn

from detrame.activations.qmetric import q_metric_relus
from detrame.inference import accuracy, predict
from detrame.robustness.attacks import PGD_STEPS, pgd, square
from detrame.robustness.ball import Ball

SLACK = 1.0  # percentage points by which the weaker attack may seem the stronger, by chance
FEW_STEPS = 10
EVERYTHING = 0.5  # a radius in pixels (norm inf) at which every image can be made grey


class Check(NamedTuple):
    """One check: what has to hold, whether it does, and the accuracies under attack (percent) that say so."""

    name: str
    holds: bool
    figures: dict[str, float]

    def __str__(self) -> str:
        figures = ", ".join(f"{name} {value:.1f}%" for name, value in self.figures.items())
        return f"{'holds' if self.holds else 'FAILS'}: {self.name} ({figures})"


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

    gradient = through(model)
    free = left(square(model, images, labels, ball, seed=seed, queries=queries))
    few = left(pgd(model, images, labels, ball, seed=seed, steps=FEW_STEPS))
    everything = left(pgd(model, images, labels, _whole(ball, images), seed=seed))
    found = [
        _no_better("an attack without gradients is no better", gradient, f"Square, {queries} queries", free),
        Check(
            "more steps are not weaker",
            gradient <= few + SLACK,
            {f"PGD, {FEW_STEPS} steps": few, f"PGD, {PGD_STEPS} steps": gradient},
        ),
        Check("a radius large enough leaves nothing", everything <= SLACK, {"PGD, any pixel": everything}),
    ]
    if twin is not None:
        found.append(_no_better("an attack on the twin is no better", gradient, "PGD on the twin", through(twin)))
    for count in _other_iterations(model):
        name = f"PGD through {count} iterations"
        found.append(
            _no_better(
                f"an {name.replace('PGD', 'attack')} is no better", gradient, name, through(iterated(model, count))
            )
        )
    return found


def verdict(found: list[Check]) -> str:
    """What the checks say together, in one sentence."""
    failed = [check.name for check in found if not check.holds]
    if failed:
        return f"Not to be trusted: it does not hold that {', nor that '.join(failed)}; gradients may be hidden."
    return (
        f"All {len(found)} checks hold: nothing says that gradients are hidden, so the accuracy under attack can stand."
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


def _no_better(name: str, gradient: float, other: str, left: float) -> Check:
    return Check(name, left >= gradient - SLACK, {f"PGD, {PGD_STEPS} steps": gradient, other: left})


def _whole(ball: Ball, images: Tensor) -> Ball:
    """A ball in the same norm in which every image can be made grey."""
    radius = EVERYTHING if ball.norm == "inf" else EVERYTHING * images[0].numel() ** 0.5
    return Ball(radius, "pixels", ball.norm, ball.std)
