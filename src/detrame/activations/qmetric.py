"""The Q-Metric ReLU as a module, and the constraints on its parameters over a whole model."""

from collections.abc import Callable, Sequence
from typing import Any, Protocol, runtime_checkable

import torch
from torch import Tensor, fx, nn
from torch.optim import Optimizer
from torch.utils.hooks import RemovableHandle

from detrame import operators
from detrame.activations.coupled import CoupledReLU
from detrame.errors import check_number, check_tolerance, check_type, unknown
from detrame.functional import q_metric_relu

fx.wrap("q_metric_relu")  # one node in any torch.fx graph, as feature extractors make them


def _relu(coupling: Tensor, gain: Tensor, threshold: Tensor) -> None:
    coupling.zero_()
    gain.fill_(1)
    threshold.zero_()


def _uniform(coupling: Tensor, gain: Tensor, threshold: Tensor) -> None:
    _relu(coupling, gain, threshold)
    bound = coupling[0].numel() ** -0.5
    coupling.uniform_(-bound, bound)


def _random(coupling: Tensor, gain: Tensor, threshold: Tensor) -> None:
    _uniform(coupling, gain, threshold)
    gain.uniform_(0, 1)
    threshold.uniform_(0, coupling[0].numel() ** -0.5)


INITIALISATIONS: dict[str, Callable[[Tensor, Tensor, Tensor], None]] = {
    "relu": _relu,
    "uniform": _uniform,
    "random": _random,
}


class QMetricReLU(CoupledReLU):
    r"""A learned, non-separable ReLU: a few steps of the iteration whose fixed point is a prox in a metric.

    .. math:: U_{t+1} = \mathrm{ReLU}\bigl(h \odot Z + \tilde W (U_t - Z) - b\bigr), \quad U_0 = 0

    The constraints are diag(coupling) = 0, gain in [0, 1] and threshold >= 0. :func:`project_` restores them after an
    optimiser step; :func:`project_after` does so after every step. A new module computes exactly ReLU of finite input.
    (Infinite input gives NaN: infinity times a coupling of 0.)

    Args:
        channels: C, on the last axis for ``dim=0``, on axis 1 otherwise.
        kernel_size: odd; one number, or one per axis; 3 by default. None for ``dim=0``.
        iterations: T, at least 1.
        dim: 0 for feature vectors ``(..., C)``; 1, 2, 3 for ``(N, C, *size)``.
        groups: number of diagonal blocks of the coupling; divides `channels`.
        init: "relu" (coupling 0, gain 1, threshold 0), "uniform" (the coupling as PyTorch initialises a convolution)
            or "random" (all three at random, as in the paper's Algorithm 2).
        zero_diagonal: False allows a coupling with a diagonal, as in the preconditioned form of the paper's appendix.
        tolerance: in eval mode, stop early; see :func:`detrame.functional.q_metric_relu`.

    Shapes: ``coupling (C, C / groups, *kernel)``, ``gain (C,)``, ``threshold (C,)``; the output has the input's shape.
    """

    gain: nn.Parameter
    threshold: nn.Parameter

    def __init__(
        self,
        channels: int,
        kernel_size: int | Sequence[int] | None = None,
        iterations: int = 2,
        *,
        dim: int = 2,
        groups: int = 1,
        init: str = "relu",
        zero_diagonal: bool = True,
        tolerance: float | None = None,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__(channels, kernel_size, iterations, dim=dim, groups=groups, device=device, dtype=dtype)
        check_tolerance(tolerance)
        if init not in INITIALISATIONS:
            raise unknown("init", init, INITIALISATIONS)
        self.init = init
        self.zero_diagonal = zero_diagonal
        self.tolerance = tolerance
        self.gain = nn.Parameter(torch.empty(channels, device=device, dtype=dtype))
        self.threshold = nn.Parameter(torch.empty(channels, device=device, dtype=dtype))
        self.reset_parameters()

    @torch.no_grad()
    def reset_parameters(self) -> None:
        """Reset to the initialisation chosen at construction."""
        INITIALISATIONS[self.init](self.coupling, self.gain, self.threshold)
        self.project_()

    def project_(self) -> None:
        """Restore the constraints in place: diag(coupling) = 0, gain in [0, 1], threshold >= 0."""
        _project_together([self])

    def undecayed(self) -> list[nn.Parameter]:
        """The parameters that weight decay would only distort: gain and threshold."""
        return [_kept(self, "gain"), _kept(self, "threshold")]

    @property
    def capturable(self) -> bool:
        """Whether the pass is the same for any data, which it is not with a tolerance in eval mode."""
        return self.training or self.tolerance is None

    def forward(self, input: Tensor) -> Tensor:  # named as nn.ReLU's, whose place it takes
        """The code of `input`, of the same shape."""
        tolerance = None if self.training else self.tolerance
        return q_metric_relu(input, self.coupling, self.gain, self.threshold, self.iterations, tolerance=tolerance)

    def extra_repr(self) -> str:
        """What is seen of this module when it is printed."""
        parts = [super().extra_repr()]
        if not self.zero_diagonal:
            parts.append("zero_diagonal=False")
        if self.tolerance is not None:
            parts.append(f"tolerance={self.tolerance}")
        return ", ".join(parts)


def _kept(module: QMetricReLU, name: str) -> nn.Parameter:
    """The parameter with the values of `name`, which pruning gives another name; a ValueError if there is none."""
    parameter = module._parameters.get(name, module._parameters.get(f"{name}_orig"))
    if parameter is None or parameter.ndim < (2 if name == "coupling" else 1):
        raise ValueError(
            f"project_ and parameter_groups cannot reach the {name} of a QMetricReLU, which is parametrised or "
            "flattened: undo that (FSDP2 flattens nothing), or override project_ and undecayed in a subclass"
        )
    return parameter


def q_metric_relus(model: nn.Module) -> list[QMetricReLU]:
    """Every Q-Metric ReLU inside `model`, `model` itself included."""
    return [module for module in model.modules() if isinstance(module, QMetricReLU)]


@runtime_checkable
class Constrained(Protocol):
    """A module that keeps its parameters within constraints, and says which of them weight decay would distort."""

    def project_(self) -> None:
        """Restore the constraints, in place."""

    def undecayed(self) -> list[nn.Parameter]:
        """The parameters to leave out of weight decay."""


def project_(model: nn.Module) -> None:
    """Restore the constraints of every Q-Metric ReLU and dictionary layer inside `model`, in place."""
    check_type("model", model, nn.Module, "an nn.Module")
    own = QMetricReLU.project_  # which a subclass may have replaced
    _project_together([module for module in q_metric_relus(model) if type(module).project_ is own])
    for module in model.modules():
        # The class is asked first: a Protocol takes its time, and most modules of a network are not constrained.
        if getattr(type(module), "project_", own) is not own and isinstance(module, Constrained):
            module.project_()


@torch.no_grad()
def _project_together(modules: list[QMetricReLU]) -> None:
    if not modules:
        return
    for module in modules:
        if module.zero_diagonal:
            operators.zero_diagonal_(_kept(module, "coupling"))
    # All layers at once: a GPU would take longer to start these than to do them.
    gains = [operators.local(_kept(module, "gain")) for module in modules]
    thresholds = [operators.local(_kept(module, "threshold")) for module in modules]
    torch._foreach_clamp_min_(gains, 0)
    torch._foreach_clamp_max_(gains, 1)
    torch._foreach_clamp_min_(thresholds, 0)


def project_after(optimizer: Optimizer, model: nn.Module) -> RemovableHandle:
    """Call :func:`project_` after every ``optimizer.step()``. Call ``.remove()`` on the returned handle to undo this.

    It follows parameters of the network that the optimizer gets later, by ``add_param_group``. Raises a ValueError if
    the optimizer holds none yet, for instance because it was made before the network was converted.
    """
    check_type("optimizer", optimizer, Optimizer, "a torch.optim.Optimizer")
    check_type("model", model, nn.Module, "an nn.Module")
    held = {id(parameter) for group in optimizer.param_groups for parameter in group["params"]}
    if held.isdisjoint(map(id, model.parameters())):
        raise ValueError(
            "the optimizer holds no parameter of the network, so it would train another one: make it from this "
            "network's parameters, after detrame.convert, which copies, or call add_param_group first"
        )

    def project(optimizer: Optimizer, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        project_(model)

    return optimizer.register_step_post_hook(project)


def parameter_groups(model: nn.Module, weight_decay: float = 5e-4) -> list[dict[str, Any]]:
    """Parameter groups for an optimiser: `weight_decay` on everything but gain and threshold of Q-Metric ReLUs.

    Decay would pull the gain away from 1 and the threshold to 0, although neither is naturally small. The learned
    sparsity, damping and shift of a dictionary layer are not decayed either, for the same reason. The threshold of
    :class:`LISTA` and :class:`SLSTM`, which has no constraint, is decayed like any other parameter. Parameters that
    need no gradient are left out, and so is an empty group.
    """
    check_type("model", model, nn.Module, "an nn.Module")
    check_number("weight_decay", weight_decay)
    if not 0 <= weight_decay < float("inf"):
        raise ValueError(f"weight_decay must be finite and >= 0, got {weight_decay}")
    free = {id(p) for module in model.modules() if isinstance(module, Constrained) for p in module.undecayed()}
    parameters = [p for p in model.parameters() if p.requires_grad]
    groups: list[dict[str, Any]] = [
        {"params": [p for p in parameters if id(p) not in free], "weight_decay": weight_decay},
        {"params": [p for p in parameters if id(p) in free], "weight_decay": 0.0},
    ]
    return [group for group in groups if group["params"]]
