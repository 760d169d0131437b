"""What the estimators that train a network share: NumPy in, NumPy out, around a PyTorch module."""

import threading
import warnings
from abc import abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from copy import deepcopy
from numbers import Integral, Real
from typing import Any, ClassVar, Self

import numpy as np
import torch
from numpy.typing import ArrayLike
from scipy.special import softmax
from sklearn.base import BaseEstimator, ClassifierMixin, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import train_test_split
from sklearn.utils import check_random_state, compute_class_weight
from sklearn.utils._param_validation import Interval, StrOptions
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import _check_sample_weight, check_is_fitted, validate_data
from torch import Tensor, nn

from detrame.dictionary import DictionaryLayer
from detrame.estimators.loop import Loop, Samples, scores
from detrame.estimators.losses import Loss
from detrame.training import pick_device

FLOATS = (np.float64, np.float32)
_RANDOM = threading.Lock()  # PyTorch's random state is one for all threads


class NetworkClassifier(ClassNamePrefixFeaturesOutMixin, ClassifierMixin, TransformerMixin, BaseEstimator):
    """A network trained on arrays, that codes and classifies; a subclass says which network, and how to train it.

    Attributes:
        network_: the trained module, from an input to one score a class.
        classes_: ``(K,)``, the labels seen in `fit`.
        n_features_in_: the number of values of a sample seen in `fit`.
        n_iter_: epochs of the last `fit`.
        loss_curve_: the mean loss of each of them.
    """

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        "learning_rate": [Interval(Real, 0, None, closed="neither")],
        "weight_decay": [Interval(Real, 0, None, closed="left")],
        "batch_size": [StrOptions({"auto"}), Interval(Integral, 1, None, closed="left")],
        "max_iter": [Interval(Integral, 1, None, closed="left")],
        "tol": [Interval(Real, 0, None, closed="left")],
        "n_iter_no_change": [Interval(Integral, 1, None, closed="left")],
        "random_state": ["random_state"],
        "device": [str],
        "verbose": ["verbose"],
    }

    learning_rate: float
    weight_decay: float
    batch_size: int | str
    max_iter: int
    tol: float
    n_iter_no_change: int
    random_state: int | np.random.RandomState | None
    device: str
    verbose: bool

    network_: Any  # a module: the network's own interface, which Module does not tell
    classes_: np.ndarray

    @abstractmethod
    def _build(self, x: Tensor, classes: int) -> nn.Module:
        """A network for inputs like `x`, on any device, in any precision; PyTorch's random state is seeded."""

    @abstractmethod
    def _loss(self) -> Loss:
        """What is minimised."""

    def _loop(self) -> Loop:
        return Loop(
            loss=self._loss(),
            learning_rate=self.learning_rate,
            weight_decay=self.weight_decay,
            batch_size=self.batch_size,
            max_iter=self.max_iter,
            tol=self.tol,
            n_iter_no_change=self.n_iter_no_change,
            verbose=bool(self.verbose),
        )

    def _check(self, X: ArrayLike, y: ArrayLike | str = "no_validation", *, reset: bool) -> Any:
        """X (and y) as arrays, or scikit-learn's own complaint."""
        return validate_data(self, X, y, dtype=FLOATS, reset=reset)

    def _fit(
        self,
        X: ArrayLike,
        y: ArrayLike,
        sample_weight: ArrayLike | None = None,
        *,
        class_weight: dict[Any, float] | str | None = None,
        validation_fraction: float = 0.0,
        warm_start: bool = False,
    ) -> Self:
        self._validate_params()
        device = torch.device(pick_device(self.device))
        warm = warm_start and hasattr(self, "network_")
        inputs, targets = self._check(X, y, reset=not warm)
        check_classification_targets(targets)
        weights = _check_sample_weight(sample_weight, inputs, dtype=np.float64, ensure_non_negative=True)
        classes, labels = np.unique(targets, return_inverse=True)
        if warm and not np.array_equal(classes, self.classes_):
            raise ValueError(f"warm_start needs the classes of the last fit, {self.classes_}, got {classes}")
        with np.errstate(divide="ignore"):  # a class of no weight has none to be balanced
            by_class = compute_class_weight(class_weight, classes=classes, y=targets, sample_weight=weights)
        if isinstance(class_weight, dict) and not (np.isfinite(by_class) & (by_class >= 0)).all():
            raise ValueError(f"the weights in class_weight must be finite and >= 0, got {class_weight}")
        by_class = np.nan_to_num(by_class, posinf=0.0)
        weights = weights * by_class[labels]
        if not weights.any():
            raise ValueError("no sample has a weight above 0 with this class_weight")
        seed = check_random_state(self.random_state).randint(2**31)
        train, held = _samples(inputs, labels, weights, validation_fraction, seed, device)
        with _seeded(seed, device):
            network = deepcopy(self.network_) if warm else self._build(train.x, len(classes))
            history = self._loop().run(network.to(device, train.weights.dtype), train, held)
        if problem := history.problem():
            warnings.warn(f"{type(self).__name__} {problem}", ConvergenceWarning, stacklevel=3)
        self.network_, self.classes_ = network, classes
        self.n_iter_, self.loss_curve_ = history.epochs, history.losses
        self.__dict__.pop("validation_scores_", None)  # of a fit before this one
        if held is not None:
            self.validation_scores_ = history.scores
        self._n_features_out = self._codes(train.x[:1]).shape[1]
        return self

    def decision_function(self, X: ArrayLike) -> np.ndarray:
        """The score of each class, ``(N, K)``; of the second over the first, ``(N,)``, where there are two."""
        check_is_fitted(self)
        found = scores(self.network_, self._input(X)).cpu().numpy()
        return found[:, 1] - found[:, 0] if len(self.classes_) == 2 else found

    def predict(self, X: ArrayLike) -> np.ndarray:
        """The label ``(N,)`` of the highest score."""
        found = self.decision_function(X)
        return self.classes_[found.argmax(1) if found.ndim == 2 else (found > 0).astype(int)]

    def predict_proba(self, X: ArrayLike) -> np.ndarray:
        """The probability of each class, ``(N, K)``: the softmax of the scores."""
        found = self.decision_function(X).astype(np.float64)
        logits = np.stack([np.zeros_like(found), found], axis=1) if found.ndim == 1 else found
        return softmax(logits, axis=1)

    def transform(self, X: ArrayLike) -> np.ndarray:
        """The sparse codes of the last hidden layer, ``(N, codes)``.

        Those of an image are flattened, or pooled over the image where the network pools them before its class layer,
        as residual ones do.
        """
        check_is_fitted(self)
        return self._codes(self._input(X)).cpu().numpy()

    def _input(self, X: ArrayLike) -> Tensor:
        device = pick_device(self.device)
        self.network_.to(device)
        return torch.as_tensor(_writeable(self._check(X, reset=False)), device=device)

    def _codes(self, x: Tensor) -> Tensor:
        """What the last dictionary layer gives (a batch norm may follow), or else what the last linear map is given."""
        seen: list[Tensor] = []
        modules = [*self.network_.modules()]
        if dictionaries := [module for module in modules if isinstance(module, DictionaryLayer)]:
            handle = dictionaries[-1].register_forward_hook(lambda module, args, code: seen.append(code.flatten(1)))
        else:
            *_, class_layer = (module for module in modules if isinstance(module, nn.Linear | nn.Conv2d))
            handle = class_layer.register_forward_pre_hook(lambda module, args: seen.append(args[0].flatten(1)))
        try:
            scores(self.network_, x)
        finally:
            handle.remove()
        return torch.cat(seen)

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "network_")

    def __getstate__(self) -> dict[str, Any]:
        # Pickled on a GPU, it must open on a machine without.
        state: dict[str, Any] = super().__getstate__()
        if "network_" in state:
            state = {**state, "network_": deepcopy(self.network_).cpu()}
        return state


def _samples(
    X: np.ndarray, labels: np.ndarray, weights: np.ndarray, validation_fraction: float, seed: int, device: torch.device
) -> tuple[Samples, Samples | None]:
    """What to train on, with weights of mean 1; and what is held out, for a fraction > 0, in proportion to classes."""

    def samples(X: np.ndarray, labels: np.ndarray, weights: np.ndarray) -> Samples:
        weights = (weights / weights.mean()).astype(np.float64 if X.dtype == np.float64 else np.float32)
        return Samples(*(torch.as_tensor(part, device=device) for part in (_writeable(X), labels, weights)))

    if not validation_fraction:
        return samples(X, labels, weights), None
    counted = weights > 0  # a sample of no weight is no sample, and none to hold out
    X, labels, weights = X[counted], labels[counted], weights[counted]
    split = train_test_split(X, labels, weights, test_size=validation_fraction, stratify=labels, random_state=seed)
    return samples(*split[0::2]), samples(*split[1::2])


def _writeable(X: np.ndarray) -> np.ndarray:
    """X, copied if it is read-only or strided backwards, as memory-mapped input is and PyTorch does not take."""
    return np.require(X, requirements=["C", "W"])


@contextmanager
def _seeded(seed: int, device: torch.device) -> Iterator[None]:
    """PyTorch's random state seeded inside the block, and as it was after it; one thread at a time."""
    on_gpu = device.type == "cuda"
    with _RANDOM, torch.random.fork_rng([device] if on_gpu else []):
        torch.default_generator.manual_seed(seed)  # torch.manual_seed would seed every GPU too
        if on_gpu:
            with torch.cuda.device(device):
                torch.cuda.manual_seed(seed)
        yield
