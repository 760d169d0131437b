"""DeTraMe as a scikit-learn classifier."""

import math
from collections.abc import Sequence
from copy import deepcopy
from numbers import Integral, Real
from typing import Any, ClassVar, Self

import numpy as np
import torch
from numpy.typing import ArrayLike
from sklearn.utils._param_validation import Interval, StrOptions
from sklearn.utils.validation import validate_data
from torch import Tensor, nn

from detrame.activations import ACTIVATIONS, activation_factory
from detrame.errors import check_count, unknown
from detrame.estimators.fitting import all_or_nothing
from detrame.estimators.losses import Loss, cross_entropy
from detrame.estimators.network import FLOATS, NetworkClassifier
from detrame.inference import as_pixels
from detrame.models import check_name, create_model

NETWORK_OPTIONS = ("norm", "width")


class DeTraMeClassifier(NetworkClassifier):
    r"""A deep transform and metric learning network as a scikit-learn classifier: NumPy in, NumPy out.

    On feature vectors, each layer is a linear map followed by a Q-Metric ReLU,
    :math:`U \leftarrow \mathrm{ReLU}(h \odot Z + \tilde W (U - Z) - b)` iterated T times. The last layer is linear, and
    there is no batch norm and no dropout. On images, the network is one of :func:`detrame.create_model`. It is trained
    by AdamW on the cross-entropy, with the paper's constraints restored after every step.

    Args:
        network: the widths of the hidden layers, for X ``(N, features)``; or the name of a network such as "plainnet3",
            for images X ``(N, channels, height, width)``, uint8 or float in [0, 1]. An image network normalises its
            input by the mean and std of the training pixels. Scale features yourself, for example with StandardScaler.
        network_options: "width" and "norm" of a network given by name, such as ``{"width": 0.5}``; see
            :func:`detrame.create_model`.
        activation: "qmetric" (the default), "relu" or another that the library knows by name. A dictionary network,
            such as "ddl3", takes none.
        iterations: T of each Q-Metric ReLU.
        learning_rate, weight_decay: of AdamW; see :func:`detrame.parameter_groups` for what is not decayed.
        batch_size: samples per step, or "auto": all of them up to 256 samples, otherwise 128.
        max_iter: the maximum number of epochs.
        tol, n_iter_no_change: stop after `n_iter_no_change` epochs in which the best training loss (with
            `early_stopping`, the best validation accuracy) has not improved by more than `tol`.
        early_stopping: hold out `validation_fraction` of the samples, and end with the weights that were best on them.
        class_weight: a dict of weights by label, or "balanced".
        random_state: draws the weights, the order, the dropout and the held-out samples; the global state is untouched.
        warm_start: whether `fit` continues from the weights of the last fit, with the same network.
        device: "cpu", "cuda", or "auto" for a GPU where there is one.
        verbose: whether to print a line per epoch.

    Attributes:
        network_, classes_, n_features_in_, n_iter_, loss_curve_: see :class:`NetworkClassifier`.
        validation_scores_: with `early_stopping`, the accuracy on the held-out samples after each epoch.
        image_shape_: ``(channels, height, width)`` seen in `fit`; None for feature vectors.

    Training is in float32 if X is float32 or 8-bit images, otherwise in float64.
    """

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        "network": [str, "array-like"],
        "network_options": [dict, None],
        "activation": [StrOptions(set(ACTIVATIONS)), None],
        "iterations": [Interval(Integral, 1, None, closed="left")],
        "early_stopping": ["boolean"],
        "validation_fraction": [Interval(Real, 0, 1, closed="neither")],
        "class_weight": [dict, StrOptions({"balanced"}), None],
        "warm_start": ["boolean"],
        **NetworkClassifier._parameter_constraints,
    }

    # What the network of the last fit was made of.
    _built: tuple[str | tuple[int, ...], dict[str, Any], str | None, int]

    def __init__(
        self,
        network: str | Sequence[int] = (128,),
        *,
        network_options: dict[str, Any] | None = None,
        activation: str | None = None,
        iterations: int = 2,
        learning_rate: float = 0.003,
        weight_decay: float = 0.01,
        batch_size: int | str = "auto",
        max_iter: int = 200,
        tol: float = 1e-4,
        n_iter_no_change: int = 10,
        early_stopping: bool = False,
        validation_fraction: float = 0.1,
        class_weight: dict[Any, float] | str | None = None,
        random_state: int | np.random.RandomState | None = None,
        warm_start: bool = False,
        device: str = "auto",
        verbose: bool = False,
    ) -> None:
        self.network = network
        self.network_options = network_options
        self.activation = activation
        self.iterations = iterations
        self.learning_rate = learning_rate
        self.weight_decay = weight_decay
        self.batch_size = batch_size
        self.max_iter = max_iter
        self.tol = tol
        self.n_iter_no_change = n_iter_no_change
        self.early_stopping = early_stopping
        self.validation_fraction = validation_fraction
        self.class_weight = class_weight
        self.random_state = random_state
        self.warm_start = warm_start
        self.device = device
        self.verbose = verbose

    def fit(self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None) -> Self:
        """Train on X, ``(N, features)`` or ``(N, C, H, W)``, with labels y ``(N,)`` and weights >= 0 ``(N,)``."""
        self._validate_params()
        if isinstance(self.network, str):
            check_name(self.network)  # before the shape of X is judged by it
        network = self.network if isinstance(self.network, str) else tuple(self.network)
        wanted = (network, self.network_options or {}, self.activation, self.iterations)
        if self.warm_start and hasattr(self, "network_") and wanted != self._built:
            raise ValueError(
                f"warm_start continues with the (network, network_options, activation, iterations) of the last fit, "
                f"{self._built}, got {wanted}: set warm_start=False, or fit a clone"
            )
        with all_or_nothing(self):
            self._fit(
                X,
                y,
                sample_weight,
                class_weight=self.class_weight,
                validation_fraction=self.validation_fraction if self.early_stopping else 0.0,
                warm_start=self.warm_start,
            )
        self._built = deepcopy(wanted)
        return self

    def _check(self, X: ArrayLike, y: ArrayLike | str = "no_validation", *, reset: bool) -> Any:
        if reset:
            self.image_shape_: tuple[int, ...] | None = None
        if not (isinstance(self.network, str) if reset else self.image_shape_):
            if reset and getattr(X, "ndim", 2) == 4:
                raise ValueError(f"images need a network by name, such as network='plainnet3', not {self.network}")
            return super()._check(X, y, reset=reset)
        checked = validate_data(self, X, y, dtype=(*FLOATS, np.uint8), allow_nd=True, ensure_2d=False, reset=reset)
        array = checked[0] if isinstance(checked, tuple) else checked
        if array.ndim != 4:
            raise ValueError(
                f"Expected 4D array (n_samples, channels, height, width) for network={self.network!r}, "
                f"got {array.ndim}D array instead: reshape the images, or give layer widths, such as network=(128,)"
            )
        if not array.size:
            raise ValueError(f"images of shape {array.shape[1:]} have no pixels")
        if array.dtype != np.uint8 and not (array.min() >= 0 and array.max() <= 1):
            raise ValueError(
                f"float images must lie in [0, 1] (or be uint8), got values from {array.min():.3g} to "
                f"{array.max():.3g}: divide them by the largest value a pixel can have"
            )
        if reset:
            self.image_shape_, self.n_features_in_ = array.shape[1:], math.prod(array.shape[1:])
        elif array.shape[1:] != self.image_shape_:
            raise ValueError(
                f"X has images of shape {array.shape[1:]}, but {type(self).__name__} is expecting "
                f"{self.image_shape_} as input."
            )
        return checked

    def _build(self, x: Tensor, classes: int) -> nn.Module:
        options = self.network_options or {}
        for option in options:
            if option not in NETWORK_OPTIONS:
                raise unknown("network option", option, NETWORK_OPTIONS)
        if not isinstance(self.network, str):
            if options:
                raise ValueError(f"network_options go with a network by name, got {options} for {self.network}")
            return self._fully_connected(self.network, x.shape[1], classes)
        std, mean = torch.std_mean(as_pixels(x), dim=(0, 2, 3), correction=0)
        std[std == 0] = 1  # a channel that is constant stays so
        return create_model(
            self.network,
            activation=self.activation,
            iterations=self.iterations,
            num_classes=classes,
            in_channels=x.shape[1],
            mean=mean.tolist(),
            std=std.tolist(),
            **options,
        )

    def _fully_connected(self, widths: Sequence[int], features: int, classes: int) -> nn.Sequential:
        activation = activation_factory(self.activation or "qmetric", iterations=self.iterations)
        layers: list[nn.Module] = []
        for width in widths:
            width = check_count("each width of network", width)
            layers += [nn.Linear(features, width), activation(width, None)]
            features = width
        if not layers:
            raise ValueError("network needs the width of at least one hidden layer, such as (128,)")
        return nn.Sequential(*layers, nn.Linear(features, classes))

    def _loss(self) -> Loss:
        return cross_entropy
