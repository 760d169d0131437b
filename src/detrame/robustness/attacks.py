"""Attacks on each image by itself, by the libraries that are the measure of it: foolbox and pyautoattack.

Both come with ``pip install "detrame[attacks]"``. Every attack takes pixels in [0, 1] ``(N, C, H, W)`` and true labels
``(N,)``, and gives images inside the ball; their :func:`~detrame.robustness.effect` is a fooling rate and the accuracy
under attack.
"""

import sys
import warnings
from collections.abc import Callable
from importlib import import_module
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from detrame.errors import Failure, check_count
from detrame.inference import in_passes, predict
from detrame.modes import full_precision
from detrame.robustness.attacked import Attacked, attacked, check_images, check_labels, check_logits, perturbed
from detrame.robustness.ball import Ball, project, stacked

PGD_STEPS = 40
PGD_REACH = 2.5  # times the radius: across the ball, and some way along its edge
QUERIES = 5000  # of the Square attack, as AutoAttack sets them


def pgd(
    model: nn.Module,
    images: Tensor,
    labels: Tensor,
    ball: Ball,
    *,
    seed: int = 0,
    steps: int = PGD_STEPS,
    reach: float = PGD_REACH,
) -> Tensor:
    """Projected gradient ascent of the cross-entropy from a random start (Madry et al., 2018), by foolbox.

    All steps together go `reach` times the radius, whatever their number.
    """
    check_count("steps", steps)
    name = {"inf": "LinfProjectedGradientDescentAttack", "2": "L2ProjectedGradientDescentAttack"}[ball.norm]
    return _by_foolbox(model, images, labels, ball, seed, name, steps=steps, rel_stepsize=reach / steps)


def deepfool_images(model: nn.Module, images: Tensor, labels: Tensor, ball: Ball, *, seed: int = 0) -> Tensor:
    """DeepFool (Moosavi-Dezfooli et al., 2016) by foolbox, cut back to the ball."""
    name = {"inf": "LinfDeepFoolAttack", "2": "L2DeepFoolAttack"}[ball.norm]
    return _by_foolbox(model, images, labels, ball, seed, name)


def autoattack(model: nn.Module, images: Tensor, labels: Tensor, ball: Ball, *, seed: int = 0) -> Tensor:
    """AutoAttack (Croce and Hein, 2020): two APGD, FAB and Square in turn, by pyautoattack."""
    return _by_autoattack(model, images, labels, ball, seed)


def square(
    model: nn.Module, images: Tensor, labels: Tensor, ball: Ball, *, seed: int = 0, queries: int = QUERIES
) -> Tensor:
    """The Square attack (Andriushchenko et al., 2020), which asks for outputs and uses no gradient, by pyautoattack."""
    return _by_autoattack(model, images, labels, ball, seed, queries=check_count("queries", queries))


PER_IMAGE: dict[str, Callable[..., Tensor]] = {
    "pgd": pgd,
    "deepfool": deepfool_images,
    "square": square,
    "autoattack": autoattack,
}


class Found(NamedTuple):
    """Attacked images ``(N, C, H, W)``, and ``(N,)`` of bool: which of them the library takes to be fooled."""

    images: Tensor
    fooled: Tensor


Run = Callable[[Attacked, Tensor, Tensor], Found]


def _by_foolbox(
    model: nn.Module, images: Tensor, labels: Tensor, ball: Ball, seed: int, name: str, **options: float
) -> Tensor:
    foolbox = _library("foolbox")
    attack = getattr(foolbox.attacks, name)(**options)

    def run(network: Attacked, shown: Tensor, truth: Tensor) -> Found:
        wrapped = foolbox.PyTorchModel(network, bounds=(0, 1), device=shown.device)
        _, cut, fooled = attack(wrapped, shown, foolbox.criteria.Misclassification(truth), epsilons=[ball.radius])
        return Found(cut[0], fooled[0])

    return _in_batches(model, images, labels, ball, seed, run)


def _by_autoattack(
    model: nn.Module, images: Tensor, labels: Tensor, ball: Ball, seed: int, queries: int | None = None
) -> Tensor:
    """The standard attack, or Square alone where its number of queries is given."""
    library = _library("pyautoattack")

    def run(network: Attacked, shown: Tensor, truth: Tensor) -> Found:
        options: dict[str, Any] = {"version": "standard"}
        if queries is not None:
            options = {"version": "custom", "attacks": ["square"]}
        attack = library.AutoAttack(
            network, norm=f"L{ball.norm}", eps=ball.radius, seed=seed, device=shown.device, **options
        )
        with torch.no_grad():
            before = network(shown)
        others = before.shape[1] - 1
        if queries is not None:
            attack.square.n_queries = queries
        elif others < 3:
            raise ValueError(f"AutoAttack needs at least 4 classes, the network has {others + 1}: take pgd and square")
        attack.fab.n_target_classes = attack.apgd_targeted.n_target_classes = min(9, others)
        tracer = sys.gettrace()  # of a debugger or of coverage: AutoAttack's check for dynamic defences takes it away
        found, _ = attack.run_standard_evaluation(shown, truth, batch_size=len(shown))
        sys.settrace(tracer)
        changed = (found != shown).flatten(1).any(1)  # AutoAttack gives back as it was what it does not fool
        return Found(found, changed | (before.argmax(1) != truth))

    return _in_batches(model, images, labels, ball, seed, run)


def _in_batches(model: nn.Module, images: Tensor, labels: Tensor, ball: Ball, seed: int, run: Run) -> Tensor:
    """Attack batch by batch, seeded, and hold the libraries to the ball and to valid pixels."""
    if ball.unit != "pixels":
        raise ValueError("attacks on each image take a radius in pixels: foolbox and AutoAttack know no other unit")
    pixels = check_images(images).contiguous()
    check_labels(labels, pixels)
    check_logits(model, pixels)
    extents, norm = stacked([ball], pixels.device)
    found = []
    with torch.random.fork_rng(), attacked(model, pixels.device) as network:
        torch.manual_seed(seed)  # the libraries draw from the global generators
        batches = in_passes(pixels)
        for shown, truth in zip(batches, torch.split(labels, len(batches[0])), strict=True):
            moved = _in_full(run, network, shown, truth) - shown
            found.append(perturbed(shown, project(moved, extents, norm)))
    return torch.cat(found)


def _in_full(run: Run, network: Attacked, shown: Tensor, truth: Tensor) -> Tensor:
    """A batch attacked; what is fooled in TF32 alone, in which a GPU computes, again in float32 proper.

    Many attacks are done with an image once it is fooled, and so end where the two may well disagree.
    """
    found, fooled = _in_parts(run, network, shown, truth)
    alone = fooled & (predict(network, found, exact=True).argmax(1) == truth)
    if alone.any():
        with full_precision(shown.device):
            found[alone] = _in_parts(run, network, shown[alone], truth[alone]).images
    return found


def _in_parts(run: Run, network: Attacked, shown: Tensor, truth: Tensor) -> Found:
    """A batch attacked at once, or by halves if that takes too much memory."""
    try:
        found, fooled = run(network, shown, truth)
        return Found(found.detach(), fooled)
    except torch.OutOfMemoryError:
        if len(shown) == 1:
            raise
    torch.cuda.empty_cache()
    halves = zip(shown.chunk(2), truth.chunk(2), strict=True)
    parts = [_in_parts(run, network, *half) for half in halves]
    return Found(torch.cat([part.images for part in parts]), torch.cat([part.fooled for part in parts]))


def _library(name: str) -> Any:
    try:
        with warnings.catch_warnings():  # foolbox imports SciPy by a deprecated name
            warnings.simplefilter("ignore", DeprecationWarning)
            return import_module(name)
    except ImportError:
        raise Failure(f"{name} is not installed: type `pip install 'detrame[attacks]'`") from None
