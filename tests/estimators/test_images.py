"""DeTraMeClassifier on images, through the networks of create_model."""

import pickle
from typing import Any

import numpy as np
import pytest
from sklearn.model_selection import GridSearchCV
from torch import nn

import detrame
from detrame.activations import q_metric_relus
from tests.estimators.conftest import Digits

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")


def quick(network: str = "plainnet3", **parameters: Any) -> detrame.DeTraMeClassifier:
    """A narrow network, trained for a few epochs."""
    defaults: dict[str, Any] = {"network_options": {"width": 0.1}, "max_iter": 2, "batch_size": 100, "random_state": 0}
    return detrame.DeTraMeClassifier(network, **{**defaults, **parameters})


def test_it_learns_images(digits: Digits) -> None:
    model = quick(max_iter=8, batch_size=25, network_options={"width": 0.15}).fit(digits.images, digits.y)
    assert model.image_shape_ == (1, 8, 8)
    assert model.n_features_in_ == 64
    assert model.score(digits.images, digits.y) > 0.8
    assert model.predict_proba(digits.images[:5]).shape == (5, 10)


def test_the_network_normalises_by_the_training_pixels(digits: Digits) -> None:
    normalise = quick().fit(digits.images, digits.y).network_[0]
    pixels = digits.images / 255
    assert normalise.mean.item() == pytest.approx(pixels.mean(), rel=1e-5)
    assert normalise.std.item() == pytest.approx(pixels.std(), rel=1e-5)
    constant = quick().fit(np.ones((20, 1, 8, 8)), np.arange(20) % 2)
    assert constant.network_[0].std.item() == 1


@pytest.mark.parametrize("network", ["plainnet3", "resnet8", "wideresnet10_1", "ddl3"])
def test_every_family_codes_and_pickles(network: str, digits: Digits) -> None:
    images, labels = digits.images[:30], digits.y[:30]
    model = quick(network, max_iter=1).fit(images, labels)
    codes = model.transform(images)
    assert codes.shape == (30, len(model.get_feature_names_out()))
    assert codes.min() >= 0
    copy = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(copy.predict_proba(images), model.predict_proba(images))


def test_eight_bits_and_float_pixels_are_the_same_images(digits: Digits) -> None:
    pixels = digits.images / 255
    bytes_, single = (quick().fit(X, digits.y) for X in (digits.images, pixels.astype(np.float32)))
    np.testing.assert_array_equal(bytes_.transform(digits.images), single.transform(digits.images))
    double = quick().fit(pixels, digits.y)
    assert double.transform(pixels).dtype == np.float64
    np.testing.assert_allclose(double.transform(digits.images), double.transform(pixels), atol=1e-6)


def test_a_random_state_decides_dropout_too(digits: Digits) -> None:
    one, again = (quick().fit(digits.images, digits.y) for _ in range(2))
    assert one.loss_curve_ == again.loss_curve_


def test_in_a_grid_search(digits: Digits) -> None:
    grid = {"network_options": [{"width": 0.05}, {"width": 0.1, "norm": None}], "activation": ["relu"]}
    search = GridSearchCV(quick(), grid, cv=2, error_score="raise").fit(digits.images, digits.y)
    assert search.predict(digits.images).shape == digits.y.shape


def test_a_warm_start_notices_options_changed_in_place(digits: Digits) -> None:
    model = quick(network_options={"width": 0.05}, max_iter=1, warm_start=True).fit(digits.images, digits.y)
    model.network_options["width"] = 0.1  # type: ignore[index]
    with pytest.raises(ValueError, match="warm_start continues with the"):
        model.fit(digits.images, digits.y)


def test_options_are_the_network_s(digits: Digits) -> None:
    model = quick(network_options={"width": 0.05, "norm": None}, iterations=3, max_iter=1).fit(digits.images, digits.y)
    first, *_ = (module for module in model.network_.modules() if isinstance(module, nn.Conv2d))
    assert (first.out_channels, first.bias is None) == (5, False)
    assert {act.iterations for act in q_metric_relus(model.network_)} == {3}


def test_wrong_images(digits: Digits) -> None:
    with pytest.raises(ValueError, match=r"Expected 4D array .* for network='plainnet3', got 2D array instead"):
        quick().fit(digits.X, digits.y)
    with pytest.raises(ValueError, match=r"images need a network by name, such as network='plainnet3', not \(128,\)"):
        detrame.DeTraMeClassifier().fit(digits.images, digits.y)
    with pytest.raises(ValueError, match="unknown model 'planenet3': did you mean 'plainnet3'"):
        quick("planenet3").fit(digits.X, digits.y)  # flat, which is not what is wrong here
    with pytest.raises(ValueError, match=r"images of shape \(1, 0, 8\) have no pixels"):
        quick().fit(digits.images[:, :, :0], digits.y)
    with pytest.raises(ValueError, match="ddl3 takes no activation"):
        quick("ddl3", activation="relu").fit(digits.images, digits.y)
    model = quick().fit(digits.images, digits.y)
    for method in (lambda images: model.fit(images, digits.y), model.predict):
        with pytest.raises(
            ValueError, match=r"float images must lie in \[0, 1\] \(or be uint8\), got values from 0 to 255"
        ):
            method(digits.images.astype(float))
    for wrong in (np.full_like(digits.images, 1.01, dtype=float), np.full_like(digits.images, -0.01, dtype=float)):
        with pytest.raises(ValueError, match=r"float images must lie in \[0, 1\]"):
            model.predict(wrong)
    with pytest.raises(ValueError, match=r"X has images of shape \(1, 4, 16\), but .* expecting \(1, 8, 8\)"):
        model.predict(digits.images.reshape(-1, 1, 4, 16))
