"""DeepFool (Moosavi-Dezfooli, Fawzi and Frossard, CVPR 2016), in batches."""

import torch
from torch import Tensor, nn

from detrame.errors import check_count

# Added to the difference of two logits, so that a step from on top of their boundary still crosses it.
BEYOND = 1e-4
FLAT = 1e-12  # the least steepness to divide by: where the network does not change at all, no step is taken


def nearest_classes(logits: Tensor, candidates: int) -> Tensor:
    """The most likely classes ``(N, candidates)`` of logits ``(N, classes)``, what is said of each image first."""
    return logits.topk(min(check_count("candidates", candidates, 2), logits.shape[1]), dim=1).indices


def deepfool(
    network: nn.Module, images: Tensor, classes: Tensor, *, overshoot: float = 0.02, steps: int = 10
) -> tuple[Tensor, Tensor]:
    r"""Small perturbations (in the 2-norm) that change what `network` says about each image.

    Every step goes to the nearest boundary of the network, linearised where it stands:

    .. math:: r \leftarrow r + \frac{|f_l - f_k|}{\|w\|^2} w, \quad w = \nabla f_l - \nabla f_k,

    with k the class said of the image and l the one of the other candidates whose boundary is nearest.

    Args:
        network: pixels ``(N, C, H, W)`` to logits, in eval mode.
        images: ``(N, C, H, W)``.
        classes: ``(N, candidates)`` of :func:`nearest_classes` at the images.
        overshoot: the share by which a perturbation is stretched beyond the boundary.
        steps: at most.

    Returns: ``(1 + overshoot) r``, of the shape of the images, and for each image whether that fools the network.
    """
    stretch = 1 + overshoot
    shifts = torch.zeros_like(images)
    fooled = torch.zeros(len(images), dtype=torch.bool, device=images.device)
    left = torch.arange(len(images), device=images.device)
    for _ in range(steps):
        if not len(left):
            break
        shifts[left] += _to_nearest_boundary(network, images[left] + stretch * shifts[left], classes[left])
        with torch.no_grad():
            said = network(images[left] + stretch * shifts[left]).argmax(1)
        fooled[left] = said != classes[left, 0]
        left = left[said == classes[left, 0]]
    return stretch * shifts, fooled


def _to_nearest_boundary(network: nn.Module, images: Tensor, classes: Tensor) -> Tensor:
    """One step for each image, to the nearest of the linearised boundaries between its class and the others."""
    images = images.detach().requires_grad_()
    with torch.enable_grad():
        logits = network(images).gather(1, classes)
        gaps = logits[:, 1:] - logits[:, :1]
    last = gaps.shape[1] - 1
    slopes = torch.stack(
        [torch.autograd.grad(gaps[:, i].sum(), images, retain_graph=i < last)[0] for i in range(last + 1)], dim=1
    )
    steepness = slopes.flatten(2).norm(dim=2).clamp_min(FLAT)
    distances = (gaps.detach().abs() + BEYOND) / steepness
    nearest = distances.argmin(dim=1, keepdim=True)
    row = torch.arange(len(images), device=images.device)
    length = (distances / steepness).gather(1, nearest).reshape(-1, 1, 1, 1)
    return length * slopes[row, nearest[:, 0]]
