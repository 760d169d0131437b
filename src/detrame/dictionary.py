"""Dictionary layers: their parameter is the dictionary, their output the exact sparse code of what comes in."""

from abc import abstractmethod
from collections.abc import Collection, Sequence
from math import isfinite

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from detrame.errors import check_count, check_number, check_type, unknown
from detrame.modes import full_precision
from detrame.operators import autocasts
from detrame.prox import nonnegative_minimiser

SPARSITY, DAMPING = 0.1, 0.1
SMALLEST_DAMPING = 1e-4  # of a learned one, so that the code stays unique
LEARNABLE = ("sparsity", "damping", "shift")


class DictionaryLayer(nn.Module):
    r"""What the dictionary layers share: the coding problem, its parameters and their constraints.

    .. math:: \arg\min_{a \ge 0} \tfrac12 |x - Da|^2 + \lambda |a|_1 + \tfrac{\alpha}{2} |a|^2 + d'a

    The code is the minimiser itself, solved in float64 to 1e-11 (:func:`detrame.prox.nonnegative_minimiser`; a
    warning says where atoms are too nearly dependent for that), and its gradient is that of the optimality condition:
    no iteration is unrolled, and none is kept. How long a code takes depends on the data, which a CUDA graph cannot
    follow: hence ``capturable`` is False.

    The dictionary starts with random atoms of unit norm. ``sparsity``, ``damping`` (scalars) and ``shift`` (``(k,)``,
    zero at first) are parameters if they are `learned`, else buffers.
    """

    capturable = False
    _within_atom: tuple[int, ...]  # the axes of the dictionary along which an atom lies
    dictionary: nn.Parameter
    sparsity: Tensor
    damping: Tensor
    shift: Tensor

    def __init__(
        self,
        dictionary: Tensor,
        atoms: int,
        sparsity: float,
        damping: float,
        learned: Collection[str],
    ) -> None:
        super().__init__()
        if not dictionary.is_floating_point():
            raise TypeError(f"dtype must be a real floating-point type, got {dictionary.dtype}")
        learned = (learned,) if isinstance(learned, str) else learned
        _check_problem(dictionary.numel() // atoms, atoms, sparsity, damping, learned)
        self.dictionary = nn.Parameter(dictionary)
        for name, start in (("sparsity", float(sparsity)), ("damping", float(damping)), ("shift", [0.0] * atoms)):
            value = torch.tensor(start, device=dictionary.device, dtype=dictionary.dtype)
            if name in learned:
                self.register_parameter(name, nn.Parameter(value))
            else:
                self.register_buffer(name, value)
        self.reset_parameters()

    @property
    @abstractmethod
    def matrix(self) -> Tensor:
        """D, ``(m, k)``, one column per atom."""

    @torch.no_grad()
    def reset_parameters(self) -> None:
        """Draw random atoms of unit norm; sparsity, damping and shift stay."""
        self.dictionary.normal_()
        self.dictionary.div_(torch.linalg.vector_norm(self.dictionary, dim=self._within_atom, keepdim=True))

    @torch.no_grad()
    def project_(self) -> None:
        """Restore the constraints on what is learned, in place: sparsity >= 0, damping above 0."""
        if isinstance(self.sparsity, nn.Parameter):
            self.sparsity.clamp_(min=0)
        if isinstance(self.damping, nn.Parameter):
            self.damping.clamp_(min=SMALLEST_DAMPING)

    def undecayed(self) -> list[nn.Parameter]:
        """The parameters that weight decay would only distort: all but the dictionary."""
        return [parameter for parameter in self.parameters() if parameter is not self.dictionary]

    def extra_repr(self) -> str:
        """What is seen of this module when it is printed."""
        numbers = {"sparsity": self.sparsity, "damping": self.damping}
        parts = [f"{name}={'?' if value.is_meta else f'{value.item():.4g}'}" for name, value in numbers.items()]
        learned = tuple(name for name in LEARNABLE if isinstance(getattr(self, name), nn.Parameter))
        return ", ".join([*parts, *[f"learned={learned}"] * bool(learned)])

    def _input(self, x: Tensor) -> Tensor:
        """`x` in the precision of the dictionary, which it may have left only under autocast."""
        check_type("the input", x, Tensor, "a tensor")
        if x.dtype != self.dictionary.dtype and not autocasts(x):
            raise TypeError(f"the input is {x.dtype} and the dictionary {self.dictionary.dtype}: convert one of them")
        return x.to(self.dictionary.dtype)

    def _code(self, correlation: Tensor) -> Tensor:
        """The codes ``(..., k)`` of inputs whose correlations with the atoms, D'x, are ``(..., k)``."""
        matrix = self.matrix.double()  # it is small, and its rounding errors would grow with its condition
        gram = matrix.mT @ matrix
        hessian = gram + self.damping * torch.eye(len(gram), dtype=gram.dtype, device=gram.device)
        return nonnegative_minimiser(hessian, correlation - self.shift - self.sparsity)


class DictionaryLinear(DictionaryLayer):
    r"""The sparse codes of feature vectors in a learned dictionary.

    .. math:: \arg\min_{a \ge 0} \tfrac12 |x - Da|^2 + \lambda |a|_1 + \tfrac{\alpha}{2} |a|^2 + d'a

    Args:
        in_features: m, on the last axis of the input.
        atoms: k, on the last axis of the code.
        sparsity: lambda >= 0.
        damping: alpha >= 0. With more atoms than features, it may be 0 only with a positive sparsity and no shift.
        learned: which of "sparsity", "damping" and "shift" (d) to learn with the dictionary: one name, or several.

    Shapes: ``dictionary (m, k)``; input ``(..., m)``, output ``(..., k)``.
    """

    _within_atom = (0,)

    def __init__(
        self,
        in_features: int,
        atoms: int,
        *,
        sparsity: float = SPARSITY,
        damping: float = DAMPING,
        learned: Collection[str] = (),
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        shape = check_count("in_features", in_features), check_count("atoms", atoms)
        super().__init__(torch.empty(shape, device=device, dtype=dtype), atoms, sparsity, damping, learned)

    @property
    def matrix(self) -> Tensor:
        """D, ``(m, k)``, one column per atom."""
        return self.dictionary

    def forward(self, x: Tensor) -> Tensor:
        """The codes ``(..., k)`` of vectors ``(..., m)``."""
        x = self._input(x)
        if not x.ndim or x.shape[-1] != len(self.dictionary):
            raise ValueError(f"expected {len(self.dictionary)} features on the last axis, got shape {tuple(x.shape)}")
        with torch.autocast(x.device.type, enabled=False):
            return self._code(x @ self.dictionary)

    def extra_repr(self) -> str:
        """What is seen of this module when it is printed."""
        return f"{self.dictionary.shape[0]}, {self.dictionary.shape[1]}, {super().extra_repr()}"


class DictionaryConv2d(DictionaryLayer):
    r"""The sparse codes of the patches of an image, each on its own, in a learned dictionary.

    .. math:: \arg\min_{a \ge 0} \tfrac12 |x - Da|^2 + \lambda |a|_1 + \tfrac{\alpha}{2} |a|^2 + d'a

    for every patch x that a convolution with this kernel, stride and zero padding would look at. On a GPU the
    correlations are in true float32. Their gradient may be in TF32, depending on cuDNN's flag in the backward pass.

    Args:
        in_channels: C.
        atoms: k, the channels of the code.
        kernel_size, stride, padding: one number, or one per axis.
        sparsity: lambda >= 0.
        damping: alpha >= 0. With more atoms than values in a patch, it may be 0 only with a positive sparsity and no
            shift.
        learned: which of "sparsity", "damping" and "shift" (d) to learn with the dictionary: one name, or several.

    Shapes: ``dictionary (k, C, *kernel_size)``, one filter per atom; input ``(N, C, H, W)``, output ``(N, k, H', W')``.
    """

    _within_atom = (1, 2, 3)

    def __init__(
        self,
        in_channels: int,
        atoms: int,
        kernel_size: int | Sequence[int],
        *,
        stride: int | Sequence[int] = 1,
        padding: int | Sequence[int] = 0,
        sparsity: float = SPARSITY,
        damping: float = DAMPING,
        learned: Collection[str] = (),
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        kernel = _pair("kernel_size", kernel_size)
        shape = check_count("atoms", atoms), check_count("in_channels", in_channels), *kernel
        super().__init__(torch.empty(shape, device=device, dtype=dtype), atoms, sparsity, damping, learned)
        self.kernel_size = kernel
        self.stride = _pair("stride", stride)
        self.padding = _pair("padding", padding, minimum=0)

    @property
    def matrix(self) -> Tensor:
        """D, ``(m, k)`` with m = C x the kernel's size, one column per atom."""
        return self.dictionary.flatten(1).mT

    def forward(self, x: Tensor) -> Tensor:
        """The codes ``(N, k, H', W')`` of the patches of images ``(N, C, H, W)``."""
        x = self._input(x)
        if x.ndim != 4 or x.shape[1] != self.dictionary.shape[1]:
            channels = self.dictionary.shape[1]
            raise ValueError(f"expected images (batch, {channels}, height, width), got shape {tuple(x.shape)}")
        padded = [size + 2 * padding for size, padding in zip(x.shape[2:], self.padding, strict=True)]
        if padded[0] < self.kernel_size[0] or padded[1] < self.kernel_size[1]:
            raise ValueError(f"no patch of {self.kernel_size} fits into images of {tuple(x.shape[2:])}")
        with full_precision(x.device):
            correlation = F.conv2d(x, self.dictionary, stride=self.stride, padding=self.padding)
            return self._code(correlation.movedim(1, -1)).movedim(-1, 1)

    def extra_repr(self) -> str:
        """What is seen of this module when it is printed."""
        atoms, channels, *_ = self.dictionary.shape
        shape = f"{channels}, {atoms}, kernel_size={self.kernel_size}, stride={self.stride}, padding={self.padding}"
        return f"{shape}, {super().extra_repr()}"


def _pair(name: str, value: int | Sequence[int], minimum: int = 1) -> tuple[int, int]:
    values = tuple(value) if isinstance(value, Sequence) else (value, value)
    if len(values) != 2:
        raise ValueError(f"{name} must be one number or two, got {value!r}")
    return check_count(name, values[0], minimum), check_count(name, values[1], minimum)


def _check_problem(size: int, atoms: int, sparsity: float, damping: float, learned: Collection[str]) -> None:
    """Raise a ValueError unless the coding problem has a minimum, and keeps one while it is learned."""
    for name in learned:
        if name not in LEARNABLE:
            raise unknown("parameter to learn", name, LEARNABLE)
    for name, value in (("sparsity", sparsity), ("damping", damping)):
        check_number(name, value)
        if not (isfinite(value) and value >= 0):
            raise ValueError(f"{name} must be finite and >= 0, got {value}")
    if damping == 0 and "damping" in learned:
        raise ValueError("a damping that is learned must start above 0, got 0")
    if damping == 0 and atoms > size and (sparsity == 0 or not {"sparsity", "shift"}.isdisjoint(learned)):
        raise ValueError(
            f"{atoms} atoms for vectors of {size} values need a damping above 0, or a fixed, positive sparsity and no "
            "learned shift: without either the code is not unique, or does not exist"
        )
