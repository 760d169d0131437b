"""DeTraMeClassifier on feature vectors: what it learns, and how it behaves among scikit-learn's tools."""

import pickle
import warnings
from copy import deepcopy
from pathlib import Path
from typing import Any, NoReturn

import joblib
import numpy as np
import pytest
import torch
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning, NotFittedError
from sklearn.model_selection import GridSearchCV, cross_val_score, train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from torch import nn

import detrame
from detrame import operators
from detrame.activations import ACTIVATIONS
from detrame.estimators.loop import Loop
from tests.estimators.conftest import Digits

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")


def quick(**parameters: Any) -> detrame.DeTraMeClassifier:
    """A classifier that trains in a fraction of a second, and the same way every time."""
    defaults: dict[str, Any] = {"network": (32,), "max_iter": 30, "learning_rate": 0.02, "random_state": 0}
    return detrame.DeTraMeClassifier(**{**defaults, **parameters})


def test_it_learns_digits_by_sparse_codes(digits: Digits) -> None:
    model = quick(network=(48, 32), iterations=3, batch_size=50).fit(digits.X, digits.y)
    assert model.score(digits.X_test, digits.y_test) > 0.88
    codes = model.transform(digits.X_test)
    assert codes.shape == (400, 32)
    assert codes.min() == 0
    assert 0.2 < (codes == 0).mean() < 1
    assert list(model.get_feature_names_out())[:2] == ["detrameclassifier0", "detrameclassifier1"]
    assert len(model.get_feature_names_out()) == 32


def test_the_codes_are_what_the_linear_classifier_sees(digits: Digits) -> None:
    model = quick().fit(digits.X, digits.y)
    last = model.network_[-1]
    scores = model.transform(digits.X_test) @ last.weight.detach().numpy().T + last.bias.detach().numpy()
    np.testing.assert_allclose(scores, model.decision_function(digits.X_test), atol=1e-10)
    np.testing.assert_array_equal(model.classes_[scores.argmax(1)], model.predict(digits.X_test))
    probabilities = np.exp(scores) / np.exp(scores).sum(1, keepdims=True)
    np.testing.assert_allclose(model.predict_proba(digits.X_test), probabilities, atol=1e-10)


def test_the_network_is_the_papers_and_keeps_its_constraints(digits: Digits) -> None:
    model = quick(iterations=3, learning_rate=0.1).fit(digits.X, digits.y)
    linear, activation, last = model.network_
    assert isinstance(linear, nn.Linear)
    assert isinstance(last, nn.Linear)
    assert isinstance(activation, detrame.QMetricReLU)
    assert activation.iterations == 3
    assert activation.coupling.shape == (32, 32)
    assert activation.coupling.abs().max() > 0.01, "the coupling was not trained"
    assert (operators.diagonal(activation.coupling) == 0).all()
    assert ((activation.gain >= 0) & (activation.gain <= 1)).all()
    assert (activation.threshold >= 0).all()


@pytest.mark.parametrize("activation", [None, *ACTIVATIONS])
def test_every_activation_trains_on_features(activation: str, digits: Digits) -> None:
    model = quick(activation=activation, max_iter=10).fit(digits.X, digits.y)
    assert model.loss_curve_[-1] < 0.8 * model.loss_curve_[0]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_the_precision_is_that_of_the_input(dtype: Any, digits: Digits) -> None:
    model = quick(max_iter=2).fit(digits.X.astype(dtype), digits.y)
    assert model.transform(digits.X_test.astype(dtype)).dtype == dtype
    assert next(model.network_.parameters()).dtype == torch.from_numpy(np.zeros(1, dtype)).dtype


def global_numpy_state() -> str:
    return str(np.random.get_state())


def test_a_random_state_decides_everything_and_the_global_one_is_left_alone(digits: Digits) -> None:
    torch_before, numpy_before = torch.get_rng_state(), global_numpy_state()
    one, again, other = (
        quick(max_iter=3, batch_size=64, early_stopping=True, random_state=seed).fit(digits.X, digits.y)
        for seed in (0, 0, 1)
    )
    assert torch.equal(torch.get_rng_state(), torch_before)
    assert global_numpy_state() == numpy_before
    assert one.loss_curve_ == again.loss_curve_ != other.loss_curve_
    np.testing.assert_array_equal(one.transform(digits.X_test), again.transform(digits.X_test))


def test_threads_do_not_disturb_each_other(digits: Digits) -> None:
    model = quick(max_iter=3, batch_size=64)
    alone = cross_val_score(model, digits.X, digits.y, cv=4)
    with joblib.parallel_config(backend="threading", n_jobs=2):
        np.testing.assert_array_equal(cross_val_score(model, digits.X, digits.y, cv=4), alone)


def test_in_a_pipeline_and_a_grid_search(digits: Digits) -> None:
    pipeline = make_pipeline(StandardScaler(), quick(max_iter=10, batch_size=50))
    grid = {"detrameclassifier__iterations": [1, 2], "detrameclassifier__network": [(8,), (32,)]}
    search = GridSearchCV(pipeline, grid, cv=2, error_score="raise").fit(digits.X, digits.y)
    assert search.best_params_["detrameclassifier__network"] == (32,)
    assert search.score(digits.X_test, digits.y_test) > 0.8


def test_pickle_joblib_and_clone(digits: Digits, tmp_path: Path) -> None:
    model = quick(max_iter=3).fit(digits.X, digits.y)
    expected = model.predict_proba(digits.X_test)
    joblib.dump(model, tmp_path / "model")
    for copy in (pickle.loads(pickle.dumps(model)), joblib.load(tmp_path / "model")):
        np.testing.assert_array_equal(copy.predict_proba(digits.X_test), expected)
    fresh = clone(model)
    with pytest.raises(NotFittedError):
        fresh.predict(digits.X)
    np.testing.assert_array_equal(fresh.fit(digits.X, digits.y).predict_proba(digits.X_test), expected)


def test_a_fit_that_failed_leaves_no_fitted_model(digits: Digits) -> None:
    model = quick(device="gpu")
    with pytest.raises(ValueError, match="unknown device"):
        model.fit(digits.X, digits.y)
    with pytest.raises(NotFittedError):
        model.predict(digits.X)
    with pytest.raises(ValueError, match="network needs"):
        model.set_params(device="cpu", network=()).fit(digits.X, digits.y)
    with pytest.raises(NotFittedError):
        model.transform(digits.X)


def test_a_loss_that_rose_is_no_convergence(digits: Digits) -> None:
    with pytest.warns(
        ConvergenceWarning, match=r"^DeTraMeClassifier ended with a loss of .*e\+.*, after .*: scale the input"
    ):
        model = quick(learning_rate=1e3).fit(digits.X, digits.y)
    assert model.n_iter_ < model.max_iter  # it no longer fell, as if it had converged


@pytest.mark.parametrize("warm_start", [False, True])
def test_a_fit_that_failed_leaves_the_model_there_was(warm_start: bool, digits: Digits) -> None:
    model = quick(max_iter=3, warm_start=warm_start).fit(digits.X, digits.y)
    expected = model.predict_proba(digits.X_test)
    with pytest.raises(ValueError, match="the loss became"):
        model.set_params(learning_rate=1e200).fit(digits.X if warm_start else digits.X[:, :10], digits.y)
    np.testing.assert_array_equal(model.predict_proba(digits.X_test), expected)


def test_an_interrupted_fit_leaves_the_model_there_was(digits: Digits, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*arguments: object) -> NoReturn:
        raise KeyboardInterrupt

    model = quick(max_iter=1).fit(digits.X, digits.y)
    monkeypatch.setattr(Loop, "run", interrupted)
    with pytest.raises(KeyboardInterrupt):
        model.fit(digits.X[:, :10], digits.y)
    assert model.predict(digits.X_test).shape == (400,)


def test_labels_of_any_kind_and_two_classes(digits: Digits) -> None:
    names = np.where(digits.y < 5, "low", "high")
    model = quick().fit(digits.X, names)
    assert list(model.classes_) == ["high", "low"]
    scores, probabilities = model.decision_function(digits.X_test), model.predict_proba(digits.X_test)
    assert scores.shape == (400,)
    np.testing.assert_array_equal(model.predict(digits.X_test) == "low", scores > 0)
    np.testing.assert_allclose(probabilities[:, 1], 1 / (1 + np.exp(-scores)), atol=1e-12)


def test_early_stopping_ends_with_the_best_weights(digits: Digits) -> None:
    model = quick(early_stopping=True, validation_fraction=0.25, max_iter=200, n_iter_no_change=5, tol=0.0)
    model.fit(digits.X, digits.y)
    assert model.n_iter_ == len(model.validation_scores_) == len(model.loss_curve_) < 200
    best = int(np.argmax(model.validation_scores_))
    assert model.n_iter_ == best + 1 + 5
    seed = np.random.RandomState(0).randint(2**31)
    split = train_test_split(digits.X, digits.y, test_size=0.25, stratify=digits.y, random_state=seed)
    assert model.score(*split[1::2]) == pytest.approx(model.validation_scores_[best])
    assert quick(max_iter=3).fit(*split[0::2]).loss_curve_ == model.loss_curve_[:3], "what is held out is not learned"


def test_it_stops_where_the_loss_stops_falling_and_says_where_it_did_not(digits: Digits) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        stopped = quick(max_iter=500, tol=0.05, n_iter_no_change=3).fit(digits.X, digits.y)
    assert stopped.n_iter_ < 100
    best = np.minimum.accumulate(stopped.loss_curve_)
    assert best[-4] - best[-1] < 3 * 0.05
    with pytest.warns(ConvergenceWarning, match="DeTraMeClassifier reached max_iter=2 before it converged"):
        quick(max_iter=2).fit(digits.X, digits.y)


def test_balanced_classes_count_by_their_weights(digits: Digits) -> None:
    weights = np.random.default_rng(0).integers(0, 3, len(digits.y))
    balanced = quick(max_iter=5, class_weight="balanced", batch_size=1200)
    weighted = clone(balanced).fit(digits.X, digits.y, sample_weight=weights)
    repeated = clone(balanced).fit(digits.X.repeat(weights, 0), digits.y.repeat(weights))
    np.testing.assert_allclose(weighted.transform(digits.X_test), repeated.transform(digits.X_test), atol=1e-9)
    plain = clone(balanced).set_params(class_weight=None).fit(digits.X, digits.y, sample_weight=weights)
    assert np.abs(plain.transform(digits.X_test) - weighted.transform(digits.X_test)).max() > 1e-4


def test_warm_start_goes_on(digits: Digits) -> None:
    model = quick(max_iter=10, warm_start=True, batch_size=400).fit(digits.X, digits.y)
    first = model.loss_curve_[-1]
    model.fit(digits.X.astype(np.float32), digits.y)
    assert model.n_iter_ == 10
    assert model.loss_curve_[0] < 1.05 * first
    assert model.loss_curve_[-1] < 0.9 * first
    with pytest.raises(ValueError, match=r"warm_start needs the classes of the last fit, \[0 1 2 .* got \[0 1 2 3 4\]"):
        model.fit(digits.X[digits.y < 5], digits.y[digits.y < 5])
    with pytest.raises(ValueError, match="X has 63 features, but DeTraMeClassifier is expecting 64"):
        model.fit(digits.X[:, 1:], digits.y)


def test_warm_start_refuses_another_network(digits: Digits) -> None:
    model = quick(network=(8,), max_iter=1, warm_start=True).fit(digits.X, digits.y)
    model.set_params(network=[8]).fit(digits.X, digits.y)
    for changed in ({"network": (9,)}, {"iterations": 3}, {"activation": "relu"}):
        other = deepcopy(model).set_params(**changed)
        with pytest.raises(ValueError, match="warm_start continues with the"):
            other.fit(digits.X, digits.y)
        other.set_params(warm_start=False).fit(digits.X, digits.y)


def test_validation_scores_are_those_of_the_last_fit(digits: Digits) -> None:
    model = quick(network=(8,), max_iter=1, early_stopping=True).fit(digits.X, digits.y)
    assert len(model.validation_scores_) == 1
    model.set_params(early_stopping=False).fit(digits.X, digits.y)
    assert not hasattr(model, "validation_scores_")


def test_a_class_of_no_weight_can_be_balanced(digits: Digits) -> None:
    weights = (digits.y != 3).astype(float)
    model = quick(network=(8,), max_iter=1, class_weight="balanced").fit(digits.X, digits.y, weights)
    assert np.isfinite(model.loss_curve_).all()
    assert np.isfinite(model.decision_function(digits.X)).all()


def test_batches_are_used_where_they_are_asked_for(digits: Digits) -> None:
    whole, batched, many = (
        quick(max_iter=3, batch_size=size).fit(digits.X, digits.y) for size in (400, np.int64(50), 10**6)
    )
    assert whole.loss_curve_ == many.loss_curve_
    assert batched.loss_curve_[-1] < 0.7 * whole.loss_curve_[-1], "8 steps an epoch must go further than 1"
    few, more = (quick(max_iter=1, random_state=0).fit(digits.X[:n], digits.y[:n]).loss_curve_ for n in (256, 257))
    assert more[0] < 0.98 * few[0], "the third step must find less to do than the first, which is all there is for few"


def test_verbose_prints_a_line_an_epoch(digits: Digits, capsys: pytest.CaptureFixture[str]) -> None:
    model = quick(max_iter=3, verbose=True, early_stopping=True).fit(digits.X, digits.y)
    lines = capsys.readouterr().out.splitlines()
    expected = f"epoch 3: loss {model.loss_curve_[2]:.6f}, validation accuracy {model.validation_scores_[2]:.4f}"
    assert lines[2:] == [expected]
    quick(max_iter=1, verbose=True).fit(digits.X, digits.y)
    assert capsys.readouterr().out.startswith("epoch 1: loss 2.")
    quick(max_iter=1).fit(digits.X, digits.y)
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"activation": "qmetrik"}, "The 'activation' parameter of DeTraMeClassifier must be a str among"),
        ({"iterations": 0}, "The 'iterations' parameter of DeTraMeClassifier must be an int in the range"),
        ({"network": ()}, "network needs the width of at least one hidden layer"),
        ({"network": (8, 0)}, "each width of network must be at least 1, got 0"),
        ({"network_options": {"width": 2}}, "network_options go with a network by name"),
        ({"network_options": {"wdith": 2}}, "unknown network option 'wdith': did you mean 'width'?"),
        ({"device": "gpu"}, "unknown device 'gpu': choose auto, cpu or cuda"),
        ({"class_weight": {77: 1.0}}, "The classes, .*, are not in class_weight"),
        ({"class_weight": {0: -1.0}}, "the weights in class_weight must be finite and >= 0, got {0: -1.0}"),
        ({"class_weight": {0: np.nan}}, "the weights in class_weight must be finite and >= 0, got {0: nan}"),
        ({"early_stopping": True, "validation_fraction": 0.001}, "The test_size = 1 should be greater or equal"),
    ],
)
def test_wrong_parameters(parameters: dict[str, Any], message: str, digits: Digits) -> None:
    with pytest.raises(ValueError, match=message):
        quick(**parameters).fit(digits.X, digits.y)


def test_a_loss_that_is_not_finite_says_what_to_do(digits: Digits) -> None:
    with pytest.raises(
        ValueError, match="scale the input, for example with StandardScaler, or use a smaller learning_rate"
    ):
        quick(learning_rate=1e200).fit(digits.X, digits.y)


def test_samples_of_no_weight_are_not_held_out(digits: Digits) -> None:
    X, y, weights = digits.X[:60], digits.y[:60] % 2, np.repeat([1.0, 0.0], [8, 52])
    for seed in range(10):  # with some of which only samples of no weight would be held out
        model = quick(network=(4,), max_iter=1, early_stopping=True, validation_fraction=0.25, random_state=seed)
        assert np.isfinite(model.fit(X, y, sample_weight=weights).validation_scores_).all()


def test_weights_that_cancel_are_refused(digits: Digits) -> None:
    with pytest.raises(ValueError, match="no sample has a weight above 0 with this class_weight"):
        quick(class_weight=dict.fromkeys(range(10), 0)).fit(digits.X, digits.y)
