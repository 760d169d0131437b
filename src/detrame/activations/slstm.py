"""SLSTM, the sparse long short-term memory of SC2Net, as an activation."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from detrame import operators
from detrame.activations.coupled import CoupledReLU


class Gate(nn.Module):
    r"""How much passes, value by value: :math:`\sigma(A Z + B U + a)`; as built, one half everywhere.

    Shapes: ``from_input`` (A) and ``from_code`` (B) are ``(C, C / groups, *kernel)``, ``bias`` (a) is ``(C,)``.
    """

    def __init__(self, shape: torch.Size, device: torch.device | str | None, dtype: torch.dtype | None) -> None:
        super().__init__()
        self.from_input = nn.Parameter(torch.empty(shape, device=device, dtype=dtype))
        self.from_code = nn.Parameter(torch.empty(shape, device=device, dtype=dtype))
        self.bias = nn.Parameter(torch.empty(shape[0], device=device, dtype=dtype))

    def driven(self, z: Tensor) -> Tensor:
        """``A z + a``: the part that is the same at every iteration."""
        return operators.apply(self.from_input, z, self.bias)

    def forward(self, driven: Tensor, u: Tensor) -> Tensor:
        """The gate, of the shape of the code `u`."""
        return operators.apply(self.from_code, u).add_(driven).sigmoid_()


class SLSTM(CoupledReLU):
    r"""The sparse LSTM of SC2Net (Zhou et al., 2018) for non-negative codes; the layer before gives :math:`Z = W_e X`.

    .. math::
        I_t &= \sigma(A_i Z + B_i U_{t-1} + a_i), \quad F_t = \sigma(A_f Z + B_f U_{t-1} + a_f) \\
        C_t &= F_t \odot C_{t-1} + I_t \odot (Z + S U_{t-1}) \\
        U_t &= \mathrm{ReLU}(C_t - b), \quad t = 1, \dots, T

    It is LISTA with a memory. The input gate is a step size and the forget gate a momentum; both depend on the value
    and the iteration. With :math:`F = 0` and :math:`I = 1` it is LISTA. All iterations share the parameters, as
    published. The gates look at Z, because that is what an activation sees of X. The shrinkage is the non-negative half
    of the published one.

    It starts where LISTA does, at :math:`C_0 = Z, U_0 = \mathrm{ReLU}(Z - b)`. A new module has every parameter 0: both
    gates are then one half, :math:`C_t = Z`, and it computes exactly ReLU of finite input. Arguments and shapes are
    those of :class:`CoupledReLU`, with ``coupling (C, C / groups, *kernel)`` for S, ``threshold (C,)`` for b, and two
    gates (:class:`Gate`). The output has the input's shape.
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
        self.input_gate = Gate(self.coupling.shape, device, dtype)
        self.forget_gate = Gate(self.coupling.shape, device, dtype)
        self.reset_parameters()

    @torch.no_grad()
    def reset_parameters(self) -> None:
        """Reset to a ReLU."""
        for parameter in self.parameters():
            parameter.zero_()

    @property
    def applications(self) -> int:
        """Three maps an iteration, and the gates' two of the input."""
        return 3 * self.iterations + 2

    def forward(self, input: Tensor) -> Tensor:  # named as nn.ReLU's, whose place it takes
        """The code of `input`, of the same shape."""
        operators.check_input(input, self.coupling)
        threshold = operators.per_channel(self.threshold.to(input.dtype), self.coupling.ndim - 2)
        let_in, keep = self.input_gate.driven(input), self.forget_gate.driven(input)
        memory, u = input, (input - threshold).relu()
        for _ in range(self.iterations):
            candidate = operators.apply(self.coupling, u).add_(input)
            memory = self.forget_gate(keep, u) * memory + self.input_gate(let_in, u) * candidate
            u = (memory - threshold).relu_()
        return u
