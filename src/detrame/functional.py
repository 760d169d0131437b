"""Algorithm 1 of the paper, stateless: the Q-Metric ReLU as a function of its input and three parameters."""

from typing import Literal, overload

import torch
from torch import Tensor

from detrame import operators
from detrame.errors import check_count, check_tolerance, check_type

FLOAT32_ENOUGH = 100  # iterations, far more than a learned layer has; beyond, its rounding errors add up to too much


@overload
def q_metric_relu(
    z: Tensor,
    coupling: Tensor,
    gain: Tensor,
    threshold: Tensor,
    iterations: int = ...,
    *,
    tolerance: float | None = ...,
    return_residuals: Literal[False] = ...,
) -> Tensor: ...
@overload
def q_metric_relu(
    z: Tensor,
    coupling: Tensor,
    gain: Tensor,
    threshold: Tensor,
    iterations: int = ...,
    *,
    tolerance: float | None = ...,
    return_residuals: Literal[True],
) -> tuple[Tensor, Tensor]: ...


def q_metric_relu(
    z: Tensor,
    coupling: Tensor,
    gain: Tensor,
    threshold: Tensor,
    iterations: int = 2,
    *,
    tolerance: float | None = None,
    return_residuals: bool = False,
) -> Tensor | tuple[Tensor, Tensor]:
    r"""Iterate, from :math:`U_0 = 0`, the fixed-point equation of a proximity operator (the paper's Algorithm 1).

    .. math:: U_{t+1} = \mathrm{ReLU}\bigl(h \odot Z + \tilde W (U_t - Z) - b\bigr)

    It is computed as :math:`U_1 = \mathrm{ReLU}(Y)`, :math:`U_{t+1} = \mathrm{ReLU}(\tilde W U_t + Y)` with
    :math:`Y = h \odot Z - \tilde W Z - b`. So T iterations are T linear maps, and the backward pass needs only Z and
    the T codes.

    If the three parameters come from a metric (:func:`detrame.prox.reparametrise`) and
    :func:`detrame.prox.convergence` holds, the limit is the exact prox. A learned coupling may have no limit.

    More than 100 iterations of float32, without a tolerance, are done in float64, because their rounding errors would
    add up. That takes twice the memory, and as long as float64 takes on the device.

    Args:
        z: ``(..., C)`` for a coupling without kernel; ``(N, C, *size)``, with 1 to 3 axes in size, for one with.
        coupling: ``(C, C / groups, *kernel)``, kernel odd; :math:`\tilde W`.
        gain: ``(C,)``; h. Converted if it has another dtype.
        threshold: ``(C,)``; b. Converted likewise.
        iterations: T, at least 1; with a `tolerance`, at most T are done.
        tolerance: stop once the largest change of a code is at most this share of the largest code. The number of
            iterations then depends on the data, so use it for eager inference only.
        return_residuals: also return :math:`\max |U_{t+1} - U_t|`, one number per iteration.

    Returns:
        The code, of the shape of `z`; with `return_residuals`, the code and a tensor ``(iterations done,)``.
    """
    _check(z, coupling, gain, threshold, iterations, tolerance)
    watch = return_residuals or tolerance is not None
    if _needs_float64(z, iterations, tolerance):
        wide = _iterated(z.double(), coupling.double(), gain.double(), threshold.double(), iterations, tolerance, watch)
        u, *residuals = (tensor.float() for tensor in wide)
    else:
        u, *residuals = _iterated(z, coupling, gain, threshold, iterations, tolerance, watch)
    return (u, torch.stack(residuals)) if return_residuals else u


def _iterated(
    z: Tensor,
    coupling: Tensor,
    gain: Tensor,
    threshold: Tensor,
    iterations: int,
    tolerance: float | None,
    watch: bool,
) -> list[Tensor]:
    """The code and, if they are watched, the residuals."""
    coupled = operators.apply(coupling, z, threshold.to(coupling.dtype))
    # Under autocast `coupled` is in half precision: follow it, or every code would be kept in both precisions.
    y = operators.per_channel(gain.to(coupled.dtype), coupling.ndim - 2) * z.to(coupled.dtype) - coupled
    u = y.relu()
    residuals = [_largest(u)] if watch else []
    for _ in range(iterations - 1):
        previous = u
        # In place: nothing else holds the fresh product, and autograd needs only the code it becomes.
        u = operators.apply(coupling, u).add_(y).relu_()
        if watch:
            residuals.append(_largest(u - previous))
            if tolerance is not None and residuals[-1] <= tolerance * _largest(u):
                break
    return [u, *residuals]


def _needs_float64(z: Tensor, iterations: int, tolerance: float | None) -> bool:
    """Whether float32 is not enough, where it was asked for and where there is more."""
    many = iterations > FLOAT32_ENOUGH and tolerance is None
    return many and z.dtype == torch.float32 and not operators.autocasts(z) and z.device.type != "mps"


def _exporting() -> bool:
    return getattr(torch.compiler, "is_exporting", bool)()  # PyTorch 2.6 cannot tell


def _largest(u: Tensor) -> Tensor:
    return u.detach().abs().amax() if u.numel() else u.new_zeros(())


def _check(
    z: Tensor, coupling: Tensor, gain: Tensor, threshold: Tensor, iterations: int, tolerance: float | None
) -> None:
    for name, value in (("z", z), ("coupling", coupling), ("gain", gain), ("threshold", threshold)):
        check_type(name, value, Tensor, "a tensor")
    check_count("iterations", iterations)
    check_tolerance(tolerance)
    if tolerance is not None and _exporting():
        raise ValueError(f"a tolerance looks at the data, which an exported program cannot: leave out {tolerance=}")
    if operators.traced():
        return
    operators.check_weight(coupling, "coupling")
    operators.check_input(z, coupling)
    for name, vector in (("gain", gain), ("threshold", threshold)):
        if vector.shape != coupling.shape[:1]:
            raise ValueError(f"{name} must have shape ({coupling.shape[0]},), got {tuple(vector.shape)}")
