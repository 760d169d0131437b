"""One perturbation for all images (Moosavi-Dezfooli, Fawzi, Fawzi and Frossard, CVPR 2017), in three forms.

`sequential` is the algorithm as published, on clipped pixels: image by image, DeepFool's increment is added wherever
the network is not fooled yet. `batched` adds up the increments of many images at once. `gradient` leaves DeepFool out
and descends the margin of the network directly, which is stronger. All craft any number of perturbations side by side,
each with a radius and a seed of its own.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn

from detrame.errors import check_count
from detrame.inference import fooling_rate, in_passes
from detrame.robustness.attacked import Attacked, attacked, check_images, check_logits, perturbed
from detrame.robustness.ball import Ball, project, stacked, steepest
from detrame.robustness.deepfool import deepfool, nearest_classes

TARGET = 80.0  # percent fooled, at which the published algorithm stops
PASSES = 10
OVERSHOOT = 0.02
FIRST_STEP, WAY = 0.2, 5.0  # of the gradient form, in radii: the first step, and the least way if none got shorter
MARGIN = 5.0  # by which another logit has to lead before the gradient form lets go of an image
# (image, perturbation) pairs that go through the network together: what fits the memory of either.
PAIRS = {"cpu": 200, "cuda": 2000}

OnStep = Callable[[int, int], None]


class Crafted(NamedTuple):
    """What crafting gives.

    Attributes:
        perturbations: ``(K, C, H, W)``, in pixels.
        fooling: for each, the percent of the crafting images that it fools the network about, after every pass.
    """

    perturbations: Tensor
    fooling: list[list[float]]


def sequential(
    model: nn.Module,
    images: Tensor,
    balls: Sequence[Ball],
    seeds: Sequence[int],
    *,
    target: float = TARGET,
    overshoot: float = OVERSHOOT,
    passes: int = PASSES,
    on_step: OnStep | None = None,
) -> Crafted:
    r"""The published algorithm: for each image x in a random order whose prediction v does not change yet,

    .. math:: v \leftarrow P(v + \Delta), \quad \Delta = \mathrm{DeepFool}(x + v),

    with P the projection on the ball; pass after pass until `target` percent of the images are fooled.

    Args:
        model: pixels in [0, 1] to logits; it normalises inside.
        images: to craft on, ``(N, C, H, W)``, uint8 or float pixels.
        balls: for every perturbation its radius, with norm and unit; all in the same norm.
        seeds: for every perturbation what draws the order of the images, anew for each pass.
        target: percent of the images to be fooled, after which no further pass is begun.
        overshoot: of DeepFool, which looks at 10 classes and takes 10 steps at most.
        passes: at most this many; they decide the figure where the target is out of reach.
        on_step: told after every step how many there have been, and how many there are at most.
    """
    options = {"candidates": 10, "steps": 10, "step_images": 1}
    return batched(
        model, images, balls, seeds, target=target, overshoot=overshoot, passes=passes, on_step=on_step, **options
    )


def batched(
    model: nn.Module,
    images: Tensor,
    balls: Sequence[Ball],
    seeds: Sequence[int],
    *,
    target: float = TARGET,
    overshoot: float = OVERSHOOT,
    passes: int = PASSES,
    candidates: int = 3,
    steps: int = 3,
    step_images: int = 100,
    on_step: OnStep | None = None,
) -> Crafted:
    r"""The same with `step_images` images a step, whose increments are added up before the projection.

    :math:`v \leftarrow P(v + \sum_i \Delta_i)`: what many images share outweighs what is particular to one, and the
    network works on batches, which takes far less time.

    Args:
        model, images, balls, seeds, target, overshoot, passes, on_step: as in :func:`sequential`.
        candidates, steps: classes that DeepFool looks at, and steps that it takes at most.
        step_images: images that move a perturbation at once.
    """

    def update(step: Step) -> Tensor:
        shifted = step.shifted(step.perturbations)
        with torch.no_grad():
            classes = nearest_classes(step.network(shifted), candidates)
        unfooled = (classes[:, 0] == step.said.flatten()).nonzero()[:, 0]
        increments, fooled = deepfool(
            step.network, shifted[unfooled], classes[unfooled], overshoot=overshoot, steps=steps
        )
        owners = unfooled.div(step.said.shape[1], rounding_mode="floor")
        return step.perturbations.index_add(0, owners[fooled], increments[fooled])

    return _craft(model, images, balls, seeds, update, target, passes, step_images, on_step)


def gradient(
    model: nn.Module,
    images: Tensor,
    balls: Sequence[Ball],
    seeds: Sequence[int],
    *,
    passes: int = PASSES,
    step_images: int = 50,
    on_step: OnStep | None = None,
) -> Crafted:
    r"""Projected gradient descent on the perturbation itself, along the steepest way in the norm of its ball.

    .. math:: \min_v \sum_i \max(0, m + f_k(x_i + v) - \max_{l \ne k} f_l(x_i + v))

    with k the class said of :math:`x_i` and a margin m, beyond which a fooled image pulls no longer. The steps shrink
    linearly from a fifth of the radius to nothing; where there are few, they start longer, so as to reach the edge.

    Args:
        model, images, balls, seeds, on_step: as in :func:`sequential`.
        passes: over the images; a perturbation that fools all of them is done before.
        step_images: images that move a perturbation at once.
    """

    def update(step: Step) -> Tensor:
        perturbations = step.perturbations.detach().requires_grad_()
        with torch.enable_grad():
            logits = step.network(step.shifted(perturbations))
            said = step.said.reshape(-1, 1)
            own = logits.gather(1, said)[:, 0]
            rival = logits.scatter(1, said, -torch.inf).amax(dim=1)
            loss = (MARGIN + own - rival).relu().sum()
        (slopes,) = torch.autograd.grad(loss, perturbations)
        length = max(FIRST_STEP, WAY / step.total) * (1 - step.done / step.total)
        return step.perturbations - length * steepest(slopes, step.extents, step.norm)

    return _craft(model, images, balls, seeds, update, 100.0, passes, step_images, on_step)


class Step(NamedTuple):
    """What moves K perturbations once.

    Attributes:
        network: attacked.
        images, said: ``(K, B, C, H, W)`` and ``(K, B)``, for each perturbation its images and what is said of them.
        perturbations, extents, norm: where they are, and their balls.
        done, total: how many steps have been taken, and how many there are at most.
    """

    network: Attacked
    images: Tensor
    said: Tensor
    perturbations: Tensor
    extents: Tensor
    norm: str
    done: int
    total: int

    def shifted(self, perturbations: Tensor) -> Tensor:
        """The images with their perturbations, as one batch ``(K * B, C, H, W)``."""
        return (self.images + perturbations[:, None]).flatten(0, 1)


def _craft(
    model: nn.Module,
    images: Tensor,
    balls: Sequence[Ball],
    seeds: Sequence[int],
    update: Callable[[Step], Tensor],
    target: float,
    passes: int,
    step_images: int,
    on_step: OnStep | None,
) -> Crafted:
    """Pass over the images and `update` the perturbations by `step_images` at a time, until they fool enough."""
    if len(balls) != len(seeds):
        raise ValueError(f"every perturbation needs a ball and a seed, got {len(balls)} balls and {len(seeds)} seeds")
    check_count("passes", passes)
    pixels = check_images(images)
    check_logits(model, pixels)
    extents, norm = stacked(balls, pixels.device)
    if extents.shape[1] not in (1, pixels.shape[1]):
        raise ValueError(f"std has {extents.shape[1]} channels and the images have {pixels.shape[1]}")
    perturbations = pixels.new_zeros(len(balls), *pixels.shape[1:])
    fooling: list[list[float]] = [[] for _ in balls]
    draws = [torch.Generator().manual_seed(seed) for seed in seeds]
    active = torch.arange(len(balls), device=pixels.device)
    together = max(1, PAIRS["cuda" if pixels.is_cuda else "cpu"] // check_count("step_images", step_images))
    with attacked(model, pixels.device) as network:
        before = _logits(network, pixels)
        said = before.argmax(1)
        for number in range(passes):
            orders = torch.stack([torch.randperm(len(pixels), generator=draw) for draw in draws]).to(pixels.device)
            batches = torch.split(orders, step_images, dim=1)
            for done, batch in enumerate(batches, start=number * len(batches)):
                for group in torch.split(active, together):
                    chosen, own = batch[group], extents[group]
                    at = perturbations[group]
                    step = Step(network, pixels[chosen], said[chosen], at, own, norm, done, passes * len(batches))
                    perturbations[group] = project(update(step), own, norm)
                if on_step is not None:
                    on_step(done + 1, passes * len(batches))
            for k in active.tolist():
                fooling[k].append(fooling_rate(before, _logits(network, perturbed(pixels, perturbations[k]))))
            active = active[[fooling[k][-1] < target for k in active.tolist()]]
            if not len(active):
                break
    return Crafted(perturbations, fooling)


@torch.no_grad()
def _logits(network: Attacked, images: Tensor) -> Tensor:
    return torch.cat([network(batch) for batch in in_passes(images)])
