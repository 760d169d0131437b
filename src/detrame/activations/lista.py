"""LISTA, learned iterative shrinkage and thresholding, as an activation."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from detrame import operators
from detrame.activations.coupled import CoupledReLU


class LISTA(CoupledReLU):
    r"""Learned ISTA (Gregor and LeCun, 2010) for non-negative codes; the layer before it computes :math:`Z = W_e X`.

    .. math:: U_0 = \mathrm{ReLU}(Z - b), \quad U_t = \mathrm{ReLU}(Z + S U_{t-1} - b), \quad t = 1, \dots, T

    ISTA is the case :math:`W_e = D^\top / L`, :math:`S = I - D^\top D / L`, :math:`b = \lambda / L`. Here the three are
    learned freely, and all iterations share one S and one b, as published. The published shrinkage is two-sided; for
    codes :math:`U \ge 0` it is the shifted ReLU. Unlike in :class:`QMetricReLU`, the coupling acts on the code alone,
    not on :math:`U - Z`; it may have a diagonal, and there is no gain and no constraint.

    A new module (S = 0, b = 0) computes exactly ReLU of finite input. Arguments and shapes are those of
    :class:`CoupledReLU`, with ``coupling (C, C / groups, *kernel)`` for S and ``threshold (C,)`` for b. The output has
    the input's shape.
    """

    threshold: nn.Parameter

    def __init__(
        self,
        channels: int,
        kernel_size: int | Sequence[int] | None = None,
        iterations: int = 2,
        *,
        dim: int = 2,
        groups: int = 1,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__(channels, kernel_size, iterations, dim=dim, groups=groups, device=device, dtype=dtype)
        self.threshold = nn.Parameter(torch.empty(channels, device=device, dtype=dtype))
        self.reset_parameters()

    @torch.no_grad()
    def reset_parameters(self) -> None:
        """Reset to a ReLU."""
        self.coupling.zero_()
        self.threshold.zero_()

    def forward(self, input: Tensor) -> Tensor:  # named as nn.ReLU's, whose place it takes
        """The code of `input`, of the same shape."""
        operators.check_input(input, self.coupling)
        # Under autocast the input may be in half precision: follow it, or the codes would be kept in both precisions.
        y = input - operators.per_channel(self.threshold.to(input.dtype), self.coupling.ndim - 2)
        u = y.relu()
        for _ in range(self.iterations):
            # In place: nothing else holds the fresh product, and autograd needs only the code it becomes.
            u = operators.apply(self.coupling, u).add_(y).relu_()
        return u
