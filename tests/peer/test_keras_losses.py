"""Losses beside Keras: values, gradients, weights, masks and reductions."""

from __future__ import annotations

import os
from typing import Any

os.environ.setdefault("KERAS_BACKEND", "jax")

import inspect

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tests.peer.compare  # noqa: F401  (settings of JAX, before it is imported)
import weft
import weft.numpy as wnp
from weft import keras as ours

keras = pytest.importorskip("keras")

RNG = np.random.default_rng(0)
NORMAL = [RNG.normal(size=(5, 3)).astype(np.float32) for _ in range(2)]
POSITIVE = [np.abs(array) + 0.1 for array in NORMAL]
PROBABILITIES = [array / array.sum(-1, keepdims=True) for array in POSITIVE]
BITS = (RNG.uniform(size=(5, 3)) < 0.5).astype(np.float32)
LABELS = np.array([0, 2, 1, 1, 0])
ONE_HOT = np.eye(3, dtype=np.float32)[LABELS]
UNIT = NORMAL[1] / np.linalg.norm(NORMAL[1], axis=-1, keepdims=True)
IMAGES = [RNG.normal(size=(2, 4, 5, 3)).astype(np.float32) for _ in range(2)]
MAP = RNG.integers(-1, 3, size=(2, 4, 5))

# A loss as text, the targets, and the predictions.
CASES: list[tuple[str, Any, Any]] = [
    ("MeanSquaredError()", *NORMAL),
    ("MeanSquaredError()", NORMAL[0][:, 0], NORMAL[1][:, :1]),
    ("MeanSquaredError(dtype='bfloat16')", *NORMAL),
    ("MeanAbsoluteError()", *NORMAL),
    ("MeanAbsoluteError()", IMAGES[0][..., :1], IMAGES[1][..., 0]),
    ("MeanAbsolutePercentageError()", *NORMAL),
    ("MeanSquaredLogarithmicError()", *POSITIVE),
    ("Huber()", *NORMAL),
    ("Huber(delta=0.3)", *NORMAL),
    ("LogCosh()", *NORMAL),
    ("LogCosh()", NORMAL[0] * 100, NORMAL[1] * 100),
    ("CosineSimilarity()", *NORMAL),
    ("CosineSimilarity(axis=0)", *NORMAL),
    ("Hinge()", BITS, NORMAL[1]),
    ("Hinge()", np.sign(NORMAL[0]), NORMAL[1]),
    ("SquaredHinge()", BITS, NORMAL[1]),
    ("CategoricalHinge()", ONE_HOT, NORMAL[1]),
    ("KLDivergence()", *PROBABILITIES),
    ("Poisson()", *POSITIVE),
    ("BinaryCrossentropy()", BITS, PROBABILITIES[1]),
    ("BinaryCrossentropy()", BITS, BITS),
    ("BinaryCrossentropy()", BITS, 1 - BITS),
    ("BinaryCrossentropy(from_logits=True, label_smoothing=0.2)", BITS, NORMAL[1] * 10),
    ("BinaryCrossentropy(axis=0)", BITS, PROBABILITIES[1]),
    ("BinaryFocalCrossentropy()", BITS, PROBABILITIES[1]),
    ("BinaryFocalCrossentropy(apply_class_balancing=True, alpha=0.3, gamma=1.5)", BITS, PROBABILITIES[1]),
    ("BinaryFocalCrossentropy(from_logits=True, label_smoothing=0.1)", BITS, NORMAL[1]),
    ("CategoricalCrossentropy()", ONE_HOT, PROBABILITIES[1]),
    ("CategoricalCrossentropy()", ONE_HOT, POSITIVE[1] * 3),
    ("CategoricalCrossentropy(from_logits=True, label_smoothing=0.1)", ONE_HOT, NORMAL[1]),
    ("CategoricalCrossentropy(axis=0, from_logits=True)", ONE_HOT, NORMAL[1]),
    ("CategoricalFocalCrossentropy()", ONE_HOT, PROBABILITIES[1]),
    ("CategoricalFocalCrossentropy(alpha=[0.1, 0.2, 0.3], gamma=1.0, from_logits=True)", ONE_HOT, NORMAL[1]),
    ("SparseCategoricalCrossentropy()", LABELS, PROBABILITIES[1]),
    ("SparseCategoricalCrossentropy()", LABELS[:, None], PROBABILITIES[1]),
    ("SparseCategoricalCrossentropy(from_logits=True)", LABELS, NORMAL[1]),
    ("SparseCategoricalCrossentropy(from_logits=True, ignore_class=1)", LABELS, NORMAL[1]),
    ("SparseCategoricalCrossentropy(from_logits=True, ignore_class=-1)", MAP, IMAGES[1]),
    ("SparseCategoricalCrossentropy(from_logits=True)", np.maximum(MAP, 0), IMAGES[1]),
    ("CategoricalGeneralizedCrossEntropy(q=0.4)", LABELS, PROBABILITIES[1]),
    ("Dice()", BITS, PROBABILITIES[1]),
    ("Dice(axis=(1, 2))", np.abs(IMAGES[0]), np.abs(IMAGES[1])),
    ("Tversky(alpha=0.3, beta=0.6)", BITS, PROBABILITIES[1]),
    ("Tversky(axis=(1, 2, 3))", np.abs(IMAGES[0]), np.abs(IMAGES[1])),
    ("Circle()", LABELS, UNIT),
    ("Circle(gamma=10.0, margin=0.2, remove_diagonal=False)", LABELS, UNIT),
    ("CTC()", np.array([[1, 2, 2], [2, 1, 0]]), RNG.normal(size=(2, 7, 3)).astype(np.float32)),
]


def close(got: Any, want: Any, tolerance: float) -> None:
    np.testing.assert_allclose(
        np.asarray(got, np.float32), np.asarray(want, np.float32), rtol=tolerance, atol=tolerance, equal_nan=True
    )


@pytest.mark.parametrize(("text", "y_true", "y_pred"), CASES, ids=[f"{i}-{case[0]}" for i, case in enumerate(CASES)])
def test_values_and_gradients(text: str, y_true: Any, y_pred: Any) -> None:
    loss, theirs = eval(f"l.{text}", {"l": ours.losses}), eval(f"l.{text}", {"l": keras.losses})
    tolerance = 1e-2 if "bfloat16" in text else 1e-6
    want = theirs(y_true, y_pred)
    close(loss(y_true, y_pred), want, tolerance)
    assert str(loss(y_true, y_pred).dtype) == str(want.dtype)
    compiled = weft.jit(weft.value_and_grad(lambda y: loss(y_true, y).astype("float32")))
    value, gradient = compiled(wnp.asarray(y_pred))
    close(value, want, tolerance)
    close(gradient, jax.grad(lambda y: theirs(y_true, y).astype("float32"))(jnp.asarray(y_pred)), max(tolerance, 1e-5))
    assert not set(theirs.get_config()) - set(loss.get_config())
    assert {**loss.get_config(), **theirs.get_config()} == loss.get_config()
    keras.losses.deserialize(ours.losses.serialize(loss))
    again = ours.losses.deserialize(keras.losses.serialize(theirs))
    assert set(again.get_config()) >= set(theirs.get_config())


@pytest.mark.parametrize("reduction", ["sum_over_batch_size", "mean", "sum", "mean_with_sample_weight", "none", None])
@pytest.mark.parametrize("masked", [None, "some", "all"])
@pytest.mark.parametrize("weights", [None, "rows", "steps", "scalar", "zeros"])
def test_weights_masks_reductions(reduction: str | None, masked: str | None, weights: str | None) -> None:
    y_true, y_pred = RNG.normal(size=(2, 4, 6, 3)).astype(np.float32)
    weight = {
        None: None,
        "rows": np.arange(4.0, dtype=np.float32)[:, None],
        "steps": RNG.uniform(size=(4, 6)).astype(np.float32),
        "scalar": 2.0,
        "zeros": np.zeros((4, 6), np.float32),
    }[weights]
    mask = None if masked is None else RNG.uniform(size=(4, 6)) < (0.5 if masked == "some" else -1)
    values = []
    for library, array in ((ours, wnp.asarray), (keras, jnp.asarray)):
        loss = library.losses.MeanSquaredError(reduction=reduction)
        predictions = array(y_pred)
        if mask is not None:
            if library is ours:
                ours.core.context.set_keras_mask(predictions, wnp.asarray(mask))
            else:
                predictions._keras_mask = jnp.asarray(mask)
        values.append(loss(y_true, predictions, sample_weight=weight))
    close(*values, 1e-6)


def test_functions_have_keras_signatures_and_values() -> None:
    for name in sorted(set(dir(keras.losses)) & set(ours.losses.__all__)):
        want, got = getattr(keras.losses, name), getattr(ours.losses, name)
        parameters = inspect.signature(want).parameters
        assert list(inspect.signature(got).parameters) == list(parameters), name
        for parameter in parameters.values():
            assert inspect.signature(got).parameters[parameter.name].default == parameter.default, name
    assert not {name for name in dir(keras.losses) if not name.startswith("_")} - set(ours.losses.__all__)


def test_gradients_are_finite_where_keras_is_not() -> None:
    """A class that is ignored, of probabilities; a vector of zeros."""
    loss = ours.losses.SparseCategoricalCrossentropy(ignore_class=0)
    gradient = weft.grad(lambda y: loss(LABELS, y))(wnp.asarray(PROBABILITIES[0]))
    assert np.isfinite(gradient).all() and (np.asarray(gradient)[LABELS == 0] == 0).all()
    assert np.isfinite(weft.grad(lambda y: ours.losses.CosineSimilarity()(NORMAL[0], y))(wnp.zeros((5, 3)))).all()
