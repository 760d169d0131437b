"""What must hold before a theorem applies, and the message when it does not."""

from collections.abc import Sequence

import torch
from torch import Tensor

from detrame import operators
from detrame.errors import check_type


def check_floating(name: str, tensor: Tensor) -> None:
    """Raise unless `tensor` is of a real floating-point dtype, and finite."""
    check_type(f"the {name}", tensor, Tensor, "a real floating-point tensor")
    if not tensor.is_floating_point():
        raise TypeError(f"the {name} must be a real floating-point tensor, got {tensor.dtype}")
    if not torch.isfinite(tensor).all():
        raise ValueError(f"the {name} must be finite, but holds NaN or infinity")


def check_one_dtype(name: str, tensor: Tensor, other_name: str, other: Tensor) -> None:
    """Raise a TypeError unless the two tensors have one dtype."""
    if tensor.dtype != other.dtype:
        raise TypeError(f"the {name} is {tensor.dtype} and the {other_name} {other.dtype}: convert one of them")


def check_size(weight: Tensor, size: tuple[int, ...]) -> None:
    """Raise a ValueError unless `size` has one entry for each axis of a convolution's kernel."""
    if not isinstance(size, Sequence) or len(size) != weight.ndim - 2 or any(length < 1 for length in size):
        raise ValueError(f"a weight of shape {tuple(weight.shape)} needs a size of {weight.ndim - 2} axes, got {size}")


def check_symmetric(name: str, weight: Tensor) -> None:
    """Raise unless `weight` is the finite weight of a symmetric operator, to half the digits of its precision.

    Rounding leaves an inverse no more than that: its error is that of the precision, times the condition number.
    """
    check_floating(name, weight)
    operators.check_weight(weight, name)
    asymmetry = (weight - operators.transpose(weight)).abs().amax().item()
    if asymmetry > torch.finfo(weight.dtype).eps ** 0.5 * weight.abs().amax().item():
        raise ValueError(f"the {name} must be symmetric, but differs from its transpose by up to {asymmetry:.3g}")


def channel_values(name: str, value: float | Tensor, metric: Tensor, *, above_zero: bool = False) -> Tensor:
    """`value` as one number a channel ``(C,)`` in the dtype and device of `metric`, or a ValueError."""
    channels = metric.shape[0]
    try:
        values = torch.as_tensor(value, dtype=torch.float64)
    except (TypeError, ValueError) as error:
        raise TypeError(f"{name} must be one number or {channels}, one a channel, got {value!r}") from error
    if values.shape not in ((), (channels,)):
        raise ValueError(f"{name} must be one number or {channels}, one a channel, got shape {tuple(values.shape)}")
    wanted = "> 0" if above_zero else ">= 0"
    if not (torch.isfinite(values) & ((values > 0) if above_zero else (values >= 0))).all():
        raise ValueError(f"{name} must be finite and {wanted}, got {value}")
    return values.to(metric).expand(channels)
