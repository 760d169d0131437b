"""The single-layer methods: their codes are the minimisers they claim, and each loss is the one it is called."""

import re
import warnings
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.base import BaseEstimator
from sklearn.datasets import load_digits
from sklearn.decomposition import sparse_encode
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression, RidgeClassifier
from sklearn.svm import LinearSVC

from detrame import prox
from detrame.estimators import AnalysisClassifier, SynthesisClassifier, TaskDrivenClassifier
from detrame.estimators.losses import LOSSES
from detrame.estimators.transform_learning import learn_transform, soft_threshold
from tests.estimators.conftest import Digits

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")

CLASSIFIERS = {"cross_entropy": LogisticRegression, "least_squares": RidgeClassifier, "hinge": LinearSVC}


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize(
    "estimator",
    [
        AnalysisClassifier(sparsity=0.03, random_state=0),
        SynthesisClassifier(32, max_iter=1, random_state=0),
        TaskDrivenClassifier(32, max_iter=12, learning_rate=0.05, batch_size=80, random_state=0),
    ],
    ids=lambda estimator: type(estimator).__name__,
)
def test_each_learns_digits_with_each_loss(estimator: Any, loss: str, digits: Digits) -> None:
    estimator.set_params(loss=loss).fit(digits.X, digits.y)
    assert estimator.score(digits.X_test, digits.y_test) > 0.8
    assert (estimator.transform(digits.X_test) == 0).mean() > 0.2
    if loss == "cross_entropy":
        np.testing.assert_allclose(estimator.predict_proba(digits.X_test).sum(1), 1)
    else:
        assert not hasattr(estimator, "predict_proba")
        with pytest.raises(AttributeError, match="predict_proba"):
            _ = estimator.predict_proba


@pytest.mark.parametrize("estimator", [AnalysisClassifier, SynthesisClassifier])
def test_one_class_is_refused_before_anything_is_learned(estimator: type, digits: Digits) -> None:
    with pytest.raises(
        ValueError, match=f"{estimator.__name__} needs samples of at least 2 classes, got only one class"
    ):
        estimator().fit(digits.X, np.zeros(len(digits.X)))


@pytest.mark.parametrize("estimator", [AnalysisClassifier, SynthesisClassifier])
def test_a_fit_that_failed_leaves_the_model_there_was(estimator: type, digits: Digits) -> None:
    model = estimator(8, max_iter=2, random_state=0).fit(digits.X, digits.y)
    expected = model.predict(digits.X_test)
    with pytest.raises(ValueError, match="got only one class"):
        model.fit(digits.X[:, :10], np.zeros(len(digits.X)))
    np.testing.assert_array_equal(model.predict(digits.X_test), expected)


def test_no_warning_about_codes_of_a_dictionary_that_is_still_learned() -> None:
    X, y = load_digits(return_X_y=True)
    with warnings.catch_warnings():
        warnings.simplefilter("error", ConvergenceWarning)
        model = SynthesisClassifier(random_state=0).fit(X[:200] / 16, y[:200])
    assert isinstance(model.n_iter_, int)


def test_codes_that_are_not_exact_are_told_in_one_warning() -> None:
    X, y = load_digits(return_X_y=True)
    with pytest.warns(ConvergenceWarning) as told:
        SynthesisClassifier(max_iter=1, random_state=0).fit(X[:300], y[:300])
    message = str(told.pop(ConvergenceWarning).message)
    assert not told.list
    assert re.match(r"SynthesisClassifier: \d+ of 300 codes stayed short of scikit-learn's tolerance: ", message)


@pytest.mark.parametrize("loss", LOSSES)
def test_the_linear_classifier_is_the_one_of_the_loss(loss: str, digits: Digits) -> None:
    model = AnalysisClassifier(loss=loss, C=0.5, random_state=0).fit(digits.X, digits.y)
    assert isinstance(model.classifier_, CLASSIFIERS[loss])
    strength = model.classifier_.get_params()
    assert strength["alpha"] == 2.0 if loss == "least_squares" else strength["C"] == 0.5


def test_the_losses() -> None:
    scores, labels = torch.randn(5, 3, dtype=torch.float64), torch.tensor([0, 2, 1, 1, 0])
    for s, y, cross_entropy, least_squares, hinge in zip(
        scores.numpy(), labels.numpy(), *(loss(scores, labels).numpy() for loss in LOSSES.values()), strict=True
    ):
        signs = np.where(np.arange(3) == y, 1, -1)
        assert cross_entropy == pytest.approx(np.log(np.exp(s).sum()) - s[y])
        assert least_squares == pytest.approx(((s - signs) ** 2).sum() / 2)
        assert hinge == pytest.approx(sum(max(0, 1 - t * v) for t, v in zip(signs, s, strict=True)))


def test_synthesis_codes_are_the_lasso(digits: Digits) -> None:
    model = SynthesisClassifier(16, sparsity=0.2, max_iter=1, random_state=0).fit(digits.X, digits.y)
    assert model.dictionary_.shape == (16, 64)
    codes, x = model.transform(digits.X_test[:20]), digits.X_test[:20]
    np.testing.assert_allclose(codes, sparse_encode(x, model.dictionary_, algorithm="lasso_cd", alpha=0.2), atol=1e-6)
    correlation = (x - codes @ model.dictionary_) @ model.dictionary_.T  # the subgradient: at most lambda, +-lambda
    assert np.abs(correlation).max() < 0.2 * 1.01
    np.testing.assert_allclose(correlation[codes != 0], 0.2 * np.sign(codes[codes != 0]), atol=0.002)


def objective(x: np.ndarray, codes: np.ndarray, transform: np.ndarray, sparsity: float, conditioning: float) -> float:
    """The docstring of learn_transform, literally."""
    values, vectors = np.linalg.eigh(x.T @ x / len(x) + conditioning * np.eye(x.shape[1]))
    root = vectors * np.sqrt(values) @ vectors.T
    fit = sum(((a - transform @ v) ** 2).sum() / 2 + sparsity * np.abs(a).sum() for a, v in zip(codes, x, strict=True))
    volume = np.log(np.linalg.svd(transform @ root, compute_uv=False)).sum()
    return fit / len(x) + conditioning * ((transform**2).sum() / 2 - volume)


@pytest.mark.parametrize("atoms", [3, 6, 9])
def test_transform_learning_minimises_its_objective(atoms: int) -> None:
    random = np.random.default_rng(0)
    x, start = random.standard_normal((40, 6)), random.standard_normal((atoms, 6))
    transform, history = learn_transform(x, start, 0.1, 0.3, max_iter=1, tol=0)
    codes = soft_threshold(x @ start.T, 0.1)
    assert history == [pytest.approx(objective(x, codes, transform, 0.1, 0.3))]
    for scale in (1e-3, 1e-1, 1):
        other = transform + scale * random.standard_normal(transform.shape)
        assert objective(x, codes, other, 0.1, 0.3) > history[0], "the transform's step is not exact"
    _, history = learn_transform(x, start, 0.1, 0.3, max_iter=50, tol=0)
    assert (np.diff(history) <= 1e-12).all()


def test_the_soft_threshold_is_the_argmin() -> None:
    grid = np.linspace(-3, 3, 6001)
    for z in (-2.0, -0.4, 0.0, 0.3, 1.7):
        best = grid[((grid - z) ** 2 / 2 + 0.5 * np.abs(grid)).argmin()]
        assert soft_threshold(np.array(z), 0.5) == pytest.approx(best, abs=1e-3)


def test_analysis_stops_where_the_objective_stops_falling(digits: Digits) -> None:
    model = AnalysisClassifier(random_state=0, tol=1e-2).fit(digits.X, digits.y)
    assert model.n_iter_ == len(model.objective_curve_) < 100
    assert model.transform_.shape == (64, 64)


def test_synthesis_makes_no_more_passes_than_asked_for(digits: Digits) -> None:
    for passes in (1, 3):
        assert SynthesisClassifier(8, max_iter=passes, random_state=0).fit(digits.X, digits.y).n_iter_ == passes


def test_task_driven_codes_are_exact_and_their_atoms_bounded(digits: Digits) -> None:
    model = TaskDrivenClassifier(24, sparsity=0.2, damping=0.05, max_iter=5, learning_rate=0.05, random_state=0)
    model.fit(digits.X, digits.y)
    assert model.dictionary_.shape == (24, 64)
    norms = np.linalg.norm(model.dictionary_, axis=1)
    assert norms.max() <= 1 + 1e-12
    assert norms.min() > 0.1
    x = torch.from_numpy(digits.X_test[:20])
    exact = prox.sparse_code(x, torch.from_numpy(model.dictionary_.T.copy()), 0.2, 0.05, tolerance=1e-10)
    np.testing.assert_allclose(model.transform(digits.X_test[:20]), exact.code.numpy(), atol=1e-7)


def test_task_driven_learns_the_dictionary_from_the_labels(digits: Digits) -> None:
    """The atoms start as samples; learned with the labels, they must leave them, and the loss must fall."""
    one, twelve = (
        TaskDrivenClassifier(16, max_iter=n, learning_rate=0.05, random_state=0).fit(digits.X, digits.y)
        for n in (1, 12)
    )
    assert twelve.loss_curve_[-1] < 0.8 * twelve.loss_curve_[0]
    assert np.abs(twelve.dictionary_ - one.dictionary_).max() > 0.05


def test_a_random_state_decides_each(digits: Digits) -> None:
    estimators: list[BaseEstimator] = [
        AnalysisClassifier(max_iter=2, random_state=0),
        SynthesisClassifier(8, max_iter=1, random_state=0),
        TaskDrivenClassifier(8, max_iter=2, random_state=0),
    ]
    for estimator in estimators:
        first = estimator.fit(digits.X, digits.y).transform(digits.X_test)
        np.testing.assert_array_equal(estimator.fit(digits.X, digits.y).transform(digits.X_test), first)
        other = estimator.set_params(random_state=1).fit(digits.X, digits.y).transform(digits.X_test)
        assert np.abs(other - first).max() > 1e-3
