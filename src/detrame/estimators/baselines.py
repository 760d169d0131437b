"""The classical single layers: a dictionary learned without labels, then a linear classifier on its sparse codes."""

import warnings
from abc import abstractmethod
from collections.abc import Callable
from numbers import Integral, Real
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator, ClassifierMixin, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.decomposition import MiniBatchDictionaryLearning
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression, RidgeClassifier
from sklearn.svm import LinearSVC
from sklearn.utils import check_random_state
from sklearn.utils._param_validation import Interval, StrOptions
from sklearn.utils.metaestimators import available_if
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data

from detrame.estimators.fitting import all_or_nothing
from detrame.estimators.losses import LOSSES, is_probabilistic
from detrame.estimators.transform_learning import learn_transform, soft_threshold

# Each minimises 1/2 |C|^2 + strength * (sum of losses) over the classifier C.
_CLASSIFIERS: dict[str, Callable[[float, int], BaseEstimator]] = {
    "cross_entropy": lambda strength, seed: LogisticRegression(C=strength, max_iter=1000),
    "least_squares": lambda strength, seed: RidgeClassifier(alpha=1 / strength),
    "hinge": lambda strength, seed: LinearSVC(C=strength, loss="hinge", max_iter=10_000, random_state=seed),
}


class DictionaryClassifier(ClassNamePrefixFeaturesOutMixin, ClassifierMixin, TransformerMixin, BaseEstimator):
    """Learn a dictionary on X, code X by it, and fit a linear classifier to the codes; a subclass says how to code."""

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        "n_components": [Interval(Integral, 1, None, closed="left"), None],
        "sparsity": [Interval(Real, 0, None, closed="left")],
        "loss": [StrOptions(set(LOSSES))],
        "C": [Interval(Real, 0, None, closed="neither")],
        "max_iter": [Interval(Integral, 1, None, closed="left")],
        "random_state": ["random_state"],
    }

    n_components: int | None
    loss: str
    C: float
    random_state: Any

    @abstractmethod
    def _learn(self, X: np.ndarray, n_components: int, random_state: np.random.RandomState) -> int:
        """Learn the dictionary, and return after how many iterations."""

    @abstractmethod
    def _code(self, X: np.ndarray) -> np.ndarray:
        """The codes ``(N, n_components)`` of X."""

    def fit(self, X: ArrayLike, y: ArrayLike) -> Self:
        """Learn from X ``(N, features)`` with labels y ``(N,)``."""
        with all_or_nothing(self):
            return self._fit(X, y)

    def _fit(self, X: ArrayLike, y: ArrayLike) -> Self:
        self._validate_params()
        inputs, targets = validate_data(self, X, y, dtype=np.float64)
        check_classification_targets(targets)
        if len(np.unique(targets)) < 2:
            raise ValueError(f"{type(self).__name__} needs samples of at least 2 classes, got only one class")
        random_state = check_random_state(self.random_state)
        self._n_features_out = self.n_components or inputs.shape[1]
        self.n_iter_ = self._learn(inputs, self._n_features_out, random_state)
        classifier = _CLASSIFIERS[self.loss](self.C, random_state.randint(2**31))
        self.classifier_ = classifier.fit(self._code(inputs), targets)
        self.classes_ = self.classifier_.classes_
        return self

    def transform(self, X: ArrayLike) -> np.ndarray:
        """The sparse codes ``(N, n_components)``."""
        check_is_fitted(self)
        return self._code(validate_data(self, X, dtype=np.float64, reset=False))

    def decision_function(self, X: ArrayLike) -> np.ndarray:
        """The score of each class, ``(N, K)``; of the second, ``(N,)``, where there are two."""
        return self._classified("decision_function", X)

    def predict(self, X: ArrayLike) -> np.ndarray:
        """The label ``(N,)`` of the highest score."""
        return self._classified("predict", X)

    @available_if(is_probabilistic)
    def predict_proba(self, X: ArrayLike) -> np.ndarray:
        """The probability of each class, ``(N, K)``; with the cross-entropy only."""
        return self._classified("predict_proba", X)

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "classifier_")

    def _classified(self, method: str, X: ArrayLike) -> np.ndarray:
        check_is_fitted(self)
        codes = self._code(validate_data(self, X, dtype=np.float64, reset=False))
        return getattr(self.classifier_, method)(codes)


class SynthesisClassifier(DictionaryClassifier):
    r"""Synthesis dictionary learning by scikit-learn, and a linear classifier on its codes.

    .. math:: \min_{D, (a_j)} \sum_j \tfrac12 |x_j - D a_j|^2 + \lambda |a_j|_1, \quad |D_i| \le 1

    Args:
        n_components: k, the number of atoms; the number of features unless given.
        sparsity: lambda.
        loss: of the classifier, "cross_entropy", "least_squares" or "hinge".
        C: the weight of that loss beside half the squared norm of the classifier.
        max_iter: the most passes over X.
        random_state: draws the first dictionary and the order of the batches.

    Attributes:
        dictionary_: ``(k, features)``, an atom a row.
        classifier_: scikit-learn's linear classifier on the codes.
        classes_, n_features_in_, n_iter_: as scikit-learn has them.
    """

    def __init__(
        self,
        n_components: int | None = None,
        *,
        sparsity: float = 0.1,
        loss: str = "cross_entropy",
        C: float = 1.0,
        max_iter: int = 100,
        random_state: int | np.random.RandomState | None = None,
    ) -> None:
        self.n_components = n_components
        self.sparsity = sparsity
        self.loss = loss
        self.C = C
        self.max_iter = max_iter
        self.random_state = random_state

    def _learn(self, X: np.ndarray, n_components: int, random_state: np.random.RandomState) -> int:
        self._coder = MiniBatchDictionaryLearning(
            n_components,
            alpha=self.sparsity,
            fit_algorithm="cd",
            transform_algorithm="lasso_cd",
            max_iter=self.max_iter,
            transform_max_iter=10_000,  # scikit-learn's 1000 leave some codes short of its aim
            random_state=random_state,
        )
        with warnings.catch_warnings():  # codes by a dictionary that is still to change need not be exact
            warnings.simplefilter("ignore", ConvergenceWarning)
            self._coder.fit(X)
        self.dictionary_ = self._coder.components_
        return int(self._coder.n_iter_)

    def _code(self, X: np.ndarray) -> np.ndarray:
        with warnings.catch_warnings(record=True) as told:  # by scikit-learn of each sample, in words of its own
            warnings.simplefilter("always", ConvergenceWarning)
            codes = self._coder.transform(X)
        if short := sum(issubclass(warning.category, ConvergenceWarning) for warning in told):
            what = f"{short} of {len(X)} codes stayed short of scikit-learn's tolerance"
            message = f"{type(self).__name__}: {what}: scale the features down, or raise sparsity"
            warnings.warn(message, ConvergenceWarning, stacklevel=4)
        return codes


class AnalysisClassifier(DictionaryClassifier):
    r"""Analysis dictionary (transform) learning, and a linear classifier on its codes.

    .. math:: \min_{W, (a_j)} \tfrac1N \sum_j \bigl(\tfrac12 |a_j - W x_j|^2 + \lambda |a_j|_1\bigr)
              + \mu \bigl(\tfrac12 |W|_F^2 - \sum_i \log \sigma_i(W H^{1/2})\bigr), \quad H = X'X / N + \mu I

    The last term keeps the transform from vanishing, and well conditioned (Ravishankar and Bresler); both steps of the
    alternation are exact, see :func:`detrame.estimators.transform_learning.learn_transform`.

    Args:
        n_components: k, the rows of W; the number of features unless given.
        sparsity: lambda.
        conditioning: mu.
        loss, C: of the classifier, as in :class:`SynthesisClassifier`.
        max_iter: the most rounds of the alternation.
        tol: stop when the objective falls by less than this share of itself.
        random_state: draws the first transform.

    Attributes:
        transform_: W, ``(k, features)``.
        objective_curve_: the objective after each round.
        classifier_, classes_, n_features_in_, n_iter_: as in :class:`SynthesisClassifier`.
    """

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        **DictionaryClassifier._parameter_constraints,
        "conditioning": [Interval(Real, 0, None, closed="neither")],
        "tol": [Interval(Real, 0, None, closed="left")],
    }

    def __init__(
        self,
        n_components: int | None = None,
        *,
        sparsity: float = 0.1,
        conditioning: float = 0.1,
        loss: str = "cross_entropy",
        C: float = 1.0,
        max_iter: int = 100,
        tol: float = 1e-4,
        random_state: int | np.random.RandomState | None = None,
    ) -> None:
        self.n_components = n_components
        self.sparsity = sparsity
        self.conditioning = conditioning
        self.loss = loss
        self.C = C
        self.max_iter = max_iter
        self.tol = tol
        self.random_state = random_state

    def _learn(self, X: np.ndarray, n_components: int, random_state: np.random.RandomState) -> int:
        left, _, right = np.linalg.svd(random_state.standard_normal((n_components, X.shape[1])), full_matrices=False)
        start = left @ right
        self.transform_, self.objective_curve_ = learn_transform(
            X, start, self.sparsity, self.conditioning, max_iter=self.max_iter, tol=self.tol
        )
        return len(self.objective_curve_)

    def _code(self, X: np.ndarray) -> np.ndarray:
        return soft_threshold(X @ self.transform_.T, self.sparsity)
