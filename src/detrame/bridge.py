"""Between dictionaries and DeTraMe: a dictionary layer as a linear layer and a Q-Metric ReLU, and the way back."""

import copy
import math
import warnings
from dataclasses import dataclass
from typing import overload

import torch
from torch import Tensor, nn

from detrame import operators
from detrame.activations import QMetricReLU
from detrame.dictionary import DictionaryConv2d, DictionaryLayer, DictionaryLinear
from detrame.errors import check_type
from detrame.prox import dual_frame, extreme_eigenvalues, metric, recover, reparametrise, shift

_WORTH = 2  # times as many iterations the paper's own form may take before the preconditioned form is preferred
_WORTH_A_WARNING, _TOO_MANY = 10_000, 10_000_000  # iterations


@overload
def from_dictionary(
    model: DictionaryLayer, *, iterations: int | None = ..., tolerance: float | None = ...
) -> nn.Sequential: ...
@overload
def from_dictionary(model: nn.Module, *, iterations: int | None = ..., tolerance: float | None = ...) -> nn.Module: ...


@torch.no_grad()
def from_dictionary(model: nn.Module, *, iterations: int | None = None, tolerance: float | None = None) -> nn.Module:
    r"""Replace every dictionary layer of a network by a linear layer and a Q-Metric ReLU, with the same output.

    Theorem 1 gives the linear layer, with weight :math:`F = Q^{-1} D'` and bias :math:`-Q^{-1} d`, where
    :math:`Q = D'D + \alpha I`. Theorem 2 gives the Q-Metric ReLU. After a convolution its coupling is 1x1, because each
    patch is coded on its own. All these are then free parameters: the result is a DeTraMe network that can be trained
    further.

    The iteration is the paper's, with zero diagonal, where that converges and is not much slower than the other form.
    Elsewhere it is the preconditioned form of the appendix (``zero_diagonal=False``) with
    :math:`\Theta = \tau\,\mathrm{diag}(Q)`, which always converges; :math:`\tau` is chosen for the fastest rate.

    In float32, outputs agree to about 1e-5 for condition numbers of Q up to 1000. Beyond that, convert in float64:
    rounding errors are eps times the condition number, and the number of iterations is proportional to it too.

    Args:
        model: a dictionary layer, or a network with dictionary layers anywhere inside; it is not changed.
        iterations: of each Q-Metric ReLU; by default as many as the rate of convergence needs for `tolerance`.
        tolerance: the error of a code relative to the code (in the norm of Theta); by default 4 eps of the precision.

    Returns:
        The network, with an ``nn.Sequential`` of the two in place of each dictionary layer.
    """
    check_type("model", model, nn.Module, "an nn.Module")
    if tolerance is not None and not 0 < tolerance < 1:
        raise ValueError(f"tolerance must be a number between 0 and 1, got {tolerance}")
    if isinstance(model, DictionaryLayer):
        return _decoupled(model, iterations, tolerance)
    model = copy.deepcopy(model)
    decoupled = {
        module: _decoupled(module, iterations, tolerance)
        for module in model.modules()
        if isinstance(module, DictionaryLayer)
    }
    if not decoupled:
        raise ValueError("the network has no dictionary layer: detrame.convert is for networks with ReLUs")
    for name, module in list(model.named_modules(remove_duplicate=False)):  # a layer may stand in several places
        if isinstance(module, DictionaryLayer):
            model.set_submodule(name, decoupled[module])
    return model


def _decoupled(layer: DictionaryLayer, iterations: int | None, tolerance: float | None) -> nn.Sequential:
    """The linear layer and the Q-Metric ReLU of one dictionary layer."""
    matrix, damping = layer.matrix.double(), layer.damping.item()
    transform = _transform(layer, matrix, damping)
    activation = _activation(layer, metric(matrix, damping), iterations, tolerance)
    return nn.Sequential(transform, activation).train(layer.training)


def _transform(layer: DictionaryLayer, matrix: Tensor, damping: float) -> nn.Linear | nn.Conv2d:
    """The linear layer of Theorem 1."""
    like = layer.dictionary
    transform: nn.Linear | nn.Conv2d
    if isinstance(layer, DictionaryConv2d):
        atoms, channels, *_ = like.shape
        transform = nn.Conv2d(channels, atoms, layer.kernel_size, layer.stride, layer.padding, device="meta")
    else:
        transform = nn.Linear(len(matrix), len(layer.shift), device="meta")
    frame = dual_frame(matrix, damping).reshape(transform.weight.shape)
    transform.weight = nn.Parameter(frame.to(like))
    transform.bias = nn.Parameter(-shift(matrix, damping, layer.shift.double()).to(like))
    return transform


def _activation(layer: DictionaryLayer, metric: Tensor, iterations: int | None, tolerance: float | None) -> QMetricReLU:
    """The Q-Metric ReLU of Theorem 2."""
    like, convolutional = layer.dictionary, isinstance(layer, DictionaryConv2d)
    tolerance = 4 * torch.finfo(like.dtype).eps if tolerance is None else tolerance
    theta, rate = _fastest(metric, tolerance)
    if iterations is None:
        needed = _iterations(rate, tolerance)
        if needed > _TOO_MANY:
            raise ValueError("the atoms of a dictionary layer are too nearly dependent: raise its damping")
        iterations = int(needed)
        if iterations > _WORTH_A_WARNING:
            warnings.warn(
                f"a dictionary layer needs {iterations:,} iterations, as its atoms are nearly dependent: give "
                "iterations or a larger tolerance, or raise its damping",
                stacklevel=2,
            )
    activation = QMetricReLU(
        len(metric),
        1 if convolutional else None,
        iterations,
        dim=2 if convolutional else 0,
        zero_diagonal=theta is None,
        device=like.device,
        dtype=like.dtype,
    )
    coupling, gain, threshold = reparametrise(metric, layer.sparsity.item(), theta=theta)
    activation.coupling.copy_(coupling.reshape(activation.coupling.shape))
    activation.gain.copy_(gain)
    activation.threshold.copy_(threshold)
    return activation


def _fastest(metric: Tensor, tolerance: float) -> tuple[Tensor | None, float]:
    r"""The theta of the iteration to take, None for the paper's, and its rate (:func:`detrame.prox.convergence`).

    That is the largest :math:`|1 - e / \tau|` of the eigenvalues e of Q scaled to a diagonal of 1, for
    :math:`\Theta = \tau\,\mathrm{diag}(Q)`; the paper's :math:`\tau` is 1.
    """
    diagonal = metric.diagonal()
    scale = diagonal.rsqrt()
    low, high = extreme_eigenvalues(scale[:, None] * metric * scale)
    own, tuned = max(1 - low, high - 1), (high - low) / (high + low)
    if _iterations(own, tolerance) <= _WORTH * _iterations(tuned, tolerance):
        return None, own
    return (low + high) / 2 * diagonal, tuned


def _iterations(rate: float, tolerance: float) -> float:
    """How many iterations shrink the error, at first the code itself, to `tolerance` of it; if none do, infinity."""
    if rate >= 1:
        return math.inf
    return max(1, math.ceil(math.log(tolerance) / math.log(rate))) if rate > 0 else 1


@dataclass(frozen=True)
class NearestDictionary:
    """The dictionary that a learned layer is nearest to; print it for the sentences.

    Attributes:
        layer: the dictionary layer, with as many atoms as the learned one determines.
        determined: ``(C,)`` of bool: the channels these atoms are; the others say nothing
            (:func:`detrame.prox.recover`).
        distance: ``|Q - (D'D + alpha I)| / |Q|`` (Frobenius) over these channels, Q being the metric the learned
            Q-Metric ReLU stands for, with all its taps: 0 for a layer that comes from a dictionary.
        asymmetry: ``|Q - Q'| / |Q|`` over these channels, which no dictionary can account for.
    """

    layer: DictionaryLayer
    determined: Tensor
    distance: float
    asymmetry: float

    def __str__(self) -> str:
        size, atoms = self.layer.matrix.shape
        parts = [
            f"the nearest dictionary has {atoms} atoms of {size} values",
            f"its metric is {self.distance:.3g} of the learned one's norm away",
            f"the learned one differs from its transpose by {self.asymmetry:.3g} of its norm",
        ]
        if missing := len(self.determined) - atoms:
            parts.append(f"{missing} of {len(self.determined)} channels determine no atom")
        return "; ".join(parts)


@torch.no_grad()
def nearest_dictionary(transform: nn.Linear | nn.Conv2d, activation: QMetricReLU) -> NearestDictionary:
    r"""Find the dictionary that a learned linear layer with its Q-Metric ReLU is nearest to, and how near it is.

    The Q-Metric ReLU determines Q, lambda and beta up to one factor s (:func:`detrame.prox.recover`). By Theorem 1,
    :math:`D = s\,(QW)'`, where W is the weight. The factor s and alpha >= 0 are chosen so that :math:`sQ` is nearest
    to :math:`D'D + \alpha I`; where atoms do not help, s and all atoms are 0. A layer made by :func:`from_dictionary`
    gives its dictionary back, unless its sparsity is 0: then nothing determines Q.

    Args:
        transform: the linear layer. Fold a norm after it into it first: ``detrame.fold(net, first_steps=False)`` keeps
            both layers under their names (``folded.get_submodule("...")``).
        activation: the Q-Metric ReLU after it. Only the centre of a coupling with a kernel can come from a dictionary
            that codes each patch on its own; the other taps count as distance.
    """
    _check_layers(transform, activation)
    found = recover(
        activation.coupling.double(),
        activation.gain.double(),
        activation.threshold.double(),
        size=tuple(activation.coupling.shape[2:]),
    )
    if not found.determined.any():
        raise ValueError(
            "with gain 1 and threshold 0 everywhere (sparsity 0, or a plain ReLU) the layer determines no dictionary"
        )
    rows = operators.ungroup(found.metric)[found.determined]
    taps = rows.reshape(*rows.shape[:2], -1)
    middle = taps.shape[2] // 2
    centre, known = taps[..., middle], taps[:, found.determined]
    columns = centre @ transform.weight.flatten(1).double()
    gram, sparsity = columns @ columns.mT, found.sparsity[found.determined]
    factor, damping = _fit(known[..., middle], gram)
    fitted = torch.zeros_like(known)
    fitted[..., middle] = factor * gram + damping * torch.eye(len(gram)).to(gram)
    distance = (known - fitted).norm() / known.norm() if known.norm() > 0 else known.new_zeros(())
    scale = factor or 1.0  # without atoms, every scale of what is left is the same problem
    layer = _dictionary_layer(
        transform, factor * columns, scale * sparsity.mean().item(), scale * (damping + found.ridge)
    )
    layer.shift.copy_(scale * (sparsity - sparsity.mean()))
    if transform.bias is not None:
        layer.shift.sub_(scale * (centre @ transform.bias.double()))
    return NearestDictionary(layer, found.determined, distance.item(), found.asymmetry)


def _check_layers(transform: nn.Module, activation: nn.Module) -> None:
    if not isinstance(transform, nn.Linear | nn.Conv2d) or not isinstance(activation, QMetricReLU):
        given = f"{type(transform).__name__} and {type(activation).__name__}"
        raise TypeError(f"expected a linear layer or convolution, and the Q-Metric ReLU after it, got {given}")
    if transform.weight.ndim != activation.coupling.ndim:
        raise ValueError(f"the Q-Metric ReLU couples another axis than that of the outputs of {transform}")
    outputs, channels = transform.weight.shape[0], activation.coupling.shape[0]
    if outputs != channels:
        raise ValueError(f"the linear layer has {outputs} outputs, the Q-Metric ReLU {channels} channels")


def _fit(metric: Tensor, gram: Tensor) -> tuple[float, float]:
    """The s and alpha, neither below 0, for which s G + alpha I is nearest to Q."""
    squared, trace, size = gram.square().sum().item(), gram.trace().item(), len(gram)
    product, metric_trace = (metric * gram).sum().item(), metric.trace().item()
    determinant = squared * size - trace**2  # 0 if the Gram matrix is a multiple of the identity
    if determinant > 1e-12 * squared * size:
        factor = (product * size - metric_trace * trace) / determinant
        damping = (metric_trace - factor * trace) / size
    else:
        factor, damping = (product / squared if squared else 0.0), 0.0
    if factor <= 0:
        return 0.0, metric_trace / size
    return (factor, damping) if damping >= 0 else (max(product / squared, 0.0), 0.0)


def _dictionary_layer(
    transform: nn.Linear | nn.Conv2d, atoms: Tensor, sparsity: float, damping: float
) -> DictionaryLinear | DictionaryConv2d:
    """The dictionary layer of some atoms ``(k, m)`` in the place of a linear layer."""
    weight = transform.weight
    if isinstance(transform, nn.Linear):
        linear = DictionaryLinear(
            weight.shape[1], len(atoms), sparsity=sparsity, damping=damping, device=weight.device, dtype=weight.dtype
        )
        linear.dictionary.copy_(atoms.mT)
        return linear
    whole = transform.groups == 1 and set(transform.dilation) == {1}
    if not whole or isinstance(transform.padding, str) or transform.padding_mode != "zeros":
        raise ValueError(
            f"a dictionary codes whole patches, padded by a number of zeros: no dictionary is near {transform}"
        )
    layer = DictionaryConv2d(
        weight.shape[1],
        len(atoms),
        transform.kernel_size,
        stride=transform.stride,
        padding=transform.padding,
        sparsity=sparsity,
        damping=damping,
        device=weight.device,
        dtype=weight.dtype,
    )
    layer.dictionary.copy_(atoms.reshape(layer.dictionary.shape))
    return layer
