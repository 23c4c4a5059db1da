"""Keras models as estimators of scikit-learn."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from weft import keras
from weft.errors import ArgumentError, NotSupportedError
from weft.keras.wrappers import SKLearnClassifier, SKLearnRegressor, SKLearnTransformer, targets

sklearn = pytest.importorskip("sklearn")
QUIET = {"verbose": 0, "epochs": 2}


def make(X: Any, y: Any, loss: str = "categorical_crossentropy", units: int = 8) -> Any:
    activation = "softmax" if loss == "categorical_crossentropy" else None
    layers = [keras.Input(X.shape[1:]), keras.layers.Dense(units, "relu"), keras.layers.Dense(y.shape[1], activation)]
    model = keras.Sequential(layers)
    model.compile(keras.optimizers.Adam(0.05), loss)
    return model


X = np.random.default_rng(0).normal(size=(60, 3)).astype(np.float32)


def test_classifier_in_a_search_over_a_pipeline() -> None:
    from sklearn.model_selection import GridSearchCV
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    names = np.where(X[:, 0] > 0, "high", "low")
    estimator = SKLearnClassifier(make, model_kwargs={"units": 4}, fit_kwargs={"verbose": 0, "epochs": 15})
    search = GridSearchCV(
        make_pipeline(StandardScaler(), estimator),
        {"sklearnclassifier__model_kwargs": [{"units": 4}, {"units": 8}]},
        cv=2,
    )
    search.fit(X, names)
    assert search.score(X, names) > 0.8 and set(search.predict(X)) <= {"high", "low"}
    best = search.best_estimator_[-1]
    assert best.epoch_ == 15 and list(best.classes_) == ["high", "low"]
    np.testing.assert_array_equal(best.decision_function(X).argmax(1) == 1, best.predict(X) == "low")


def test_regressor_of_a_model_and_of_several_targets() -> None:
    model = make(X, X[:, :2], "mse")
    before = model.get_weights()[0]
    estimator = SKLearnRegressor(model, fit_kwargs=QUIET, warm_start=True)
    assert estimator.fit(X, X[:, :2]).predict(X).shape == (60, 2)
    np.testing.assert_array_equal(model.get_weights()[0], before)  # a copy was trained
    trained = estimator.model_
    assert estimator.fit(X, X[:, :2], epochs=1).model_ is trained and estimator.epoch_ == 1
    flat = SKLearnRegressor(make, model_kwargs={"loss": "mse"}, fit_kwargs=QUIET).fit(X, X[:, 0])
    assert flat.predict(X).shape == (60,) and np.isfinite(flat.score(X, X[:, 0]))
    again = sklearn.clone(flat)
    assert again.fit_kwargs == QUIET and not hasattr(again, "model_")
    with pytest.raises(ValueError, match="features"):
        flat.predict(X[:, :2])


def test_transformer_and_checks_of_scikit_learn() -> None:
    from sklearn.utils.estimator_checks import (
        check_fit2d_predict1d,
        check_n_features_in,
        check_no_attributes_set_in_init,
    )

    estimator = SKLearnTransformer(make, model_kwargs={"loss": "mse"}, fit_kwargs={"verbose": 0})
    assert estimator.fit_transform(X, X[:, 0]).shape == (60, 1)
    for check in (check_fit2d_predict1d, check_n_features_in, check_no_attributes_set_in_init):
        check("SKLearnTransformer", estimator)


def test_errors(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(RuntimeError, match="needs a loss and an optimizer"):
        SKLearnRegressor(keras.Sequential([keras.layers.Dense(1)])).fit(X, X[:, 0])
    with pytest.raises(ArgumentError, match="must be a compiled model"):
        SKLearnRegressor(3).fit(X, X[:, 0])  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="Unknown label type: continuous"):
        SKLearnClassifier(make).fit(X, X[:, 0])
    with pytest.raises(ValueError, match="only one class"):
        SKLearnClassifier(make).fit(X, np.zeros(60, int))
    with pytest.raises(RuntimeError, match="needs metadata routing"):
        SKLearnClassifier(make).set_fit_request(sample_weight=True)
    monkeypatch.setattr(targets, "find_module", lambda name: None)
    with pytest.raises(NotSupportedError, match="pip install scikit-learn"):
        SKLearnClassifier(make)
