"""Laws of losses: compiled = eager, configs come back, weights and masks, and errors that say what to do."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import weft
import weft.numpy as wnp
from weft import keras
from weft.keras import losses
from weft.keras.core import context

RNG = np.random.default_rng(0)
VALUES = [RNG.uniform(0.1, 0.9, size=(4, 3)).astype(np.float32) for _ in range(2)]
LABELS = np.array([0, 2, 1, 1])
INTEGER_TARGETS = ("Sparse", "Generalized", "Circle")
CLASSES = sorted(
    name for name in losses.__all__ if name[0].isupper() and name not in ("Loss", "LossFunctionWrapper", "CTC")
)


def arguments(name: str) -> tuple[Any, Any]:
    return (LABELS if any(part in name for part in INTEGER_TARGETS) else VALUES[0]), VALUES[1]


@pytest.mark.parametrize("name", CLASSES)
def test_every_loss(name: str) -> None:
    loss = getattr(losses, name)()
    y_true, y_pred = arguments(name)
    eager = loss(y_true, y_pred)
    assert eager.shape == () and eager.dtype == np.float32 and np.isfinite(eager)
    compiled, gradient = weft.jit(weft.value_and_grad(lambda y: loss(y_true, y)))(wnp.asarray(y_pred))
    np.testing.assert_allclose(compiled, eager, rtol=1e-6, atol=1e-7)
    assert np.isfinite(gradient).all()
    again = losses.deserialize(losses.serialize(loss))
    assert type(again) is type(loss) and again.get_config() == loss.get_config()
    np.testing.assert_array_equal(again(y_true, y_pred), eager)
    assert losses.get(name).get_config() == loss.get_config()


def test_ctc_is_the_likelihood_of_all_alignments() -> None:
    """Two steps, the label 1: alignments 1 1, 1 blank, and blank 1."""
    logits = RNG.normal(size=(1, 2, 3)).astype(np.float32)
    p = np.exp(logits[0]) / np.exp(logits[0]).sum(-1, keepdims=True)
    want = -np.log(p[0, 1] * p[1, 1] + p[0, 1] * p[1, 0] + p[0, 0] * p[1, 1])
    np.testing.assert_allclose(losses.CTC()([[1, 0]], logits), want, rtol=1e-5)


def test_reductions_and_weights() -> None:
    y_true, y_pred = np.zeros((4, 1)), np.array([[1.0], [2.0], [3.0], [4.0]])
    weights = [1.0, 1.0, 0.0, 0.0]
    of = lambda reduction: np.asarray(losses.MeanSquaredError(reduction=reduction)(y_true, y_pred, weights)).tolist()
    assert of("sum_over_batch_size") == of("mean") == 1.25
    assert (of("sum"), of("mean_with_sample_weight"), of("none")) == (5.0, 2.5, [1.0, 4.0, 0.0, 0.0])
    assert losses.MeanSquaredError(reduction="mean_with_sample_weight")(y_true, y_pred, np.zeros(4)) == 0


def test_masks_of_predictions_and_of_values() -> None:
    loss = losses.MeanAbsoluteError()
    y_pred, mask = wnp.asarray(VALUES[1]), np.array([True, False, True, False])

    def masked(y: Any, mask: Any) -> Any:
        y = y * 1.0
        context.set_keras_mask(y, wnp.asarray(mask))
        return loss(VALUES[0], y)

    want = np.abs(VALUES[0] - VALUES[1])[mask].mean()
    np.testing.assert_allclose(masked(y_pred, mask), want, rtol=1e-6)
    value, gradient = weft.jit(weft.value_and_grad(masked))(y_pred, mask)
    np.testing.assert_allclose(value, want, rtol=1e-6)
    assert (np.asarray(gradient)[~mask] == 0).all() and (np.asarray(gradient)[mask] != 0).all()
    assert masked(y_pred, np.zeros(4, bool)) == 0

    ignoring = losses.SparseCategoricalCrossentropy(ignore_class=1)
    want = losses.SparseCategoricalCrossentropy()(LABELS[:2], VALUES[1][:2])
    np.testing.assert_allclose(weft.jit(ignoring)(LABELS, VALUES[1]), want, rtol=1e-6)
    assert ignoring(np.ones(4, int), VALUES[1]) == 0


def test_a_loss_of_ones_own() -> None:
    @keras.saving.register_keras_serializable("tests")
    class Quartic(losses.Loss):
        def call(self, y_true: Any, y_pred: Any) -> Any:
            return wnp.mean((y_true - y_pred) ** 4, axis=-1)

    loss = Quartic(reduction="sum", dtype="float16")
    assert loss([[0.0]], [[2.0]]) == 16 and loss([[0.0]], [[2.0]]).dtype == np.float16
    again = losses.deserialize(losses.serialize(loss))
    assert type(again) is Quartic and again.get_config() == loss.get_config()
    wrapped = losses.LossFunctionWrapper(losses.huber, delta=0.5)
    assert losses.deserialize(losses.serialize(wrapped))(*VALUES) == wrapped(*VALUES)


ERRORS = [
    (lambda: losses.MeanSquaredError()(np.zeros((4, 3)), np.zeros((4, 2))), "mean_squared_error", "(4, 3)", "(4, 2)"),
    (lambda: losses.CategoricalCrossentropy()(LABELS, VALUES[0]), "categorical_crossentropy", "(4,)", "sparse"),
    (lambda: losses.SparseCategoricalCrossentropy()(VALUES[0], VALUES[1]), "(4, 3)", "categorical_crossentropy"),
    (lambda: losses.SparseCategoricalCrossentropy()(LABELS[:2], VALUES[1]), "(2,)", "(4, 3)", "axis of classes"),
    (lambda: losses.BinaryCrossentropy()(VALUES[0][:, :2], VALUES[1]), "binary_crossentropy", "(4, 2)", "one unit"),
    (lambda: losses.MeanSquaredError()(np.zeros((4, 4, 1)), np.zeros((4, 4, 1)), np.ones(4)), "(4,)", "(-1, 1)"),
    (lambda: losses.MeanSquaredError(reduction="average"), "'average'", "sum_over_batch_size"),
    (lambda: losses.CTC()(LABELS, VALUES[0]), "[batch, time, classes]", "(4, 3)"),
    (lambda: losses.get("mean_square"), "mean_square"),
]


@pytest.mark.parametrize("case", ERRORS)
def test_errors_say_what_was_received_and_what_to_do(case: Any) -> None:
    with pytest.raises(ValueError) as caught:
        case[0]()
    for part in case[1:]:
        assert part in str(caught.value), str(caught.value)


def test_functions_of_symbolic_tensors_record_themselves() -> None:
    first, second = keras.Input((3,)), keras.Input((3,))
    model = keras.Model([first, second], losses.mean_squared_error(first, second))
    np.testing.assert_allclose(model(VALUES), losses.mean_squared_error(*VALUES), rtol=1e-6)
