"""How often predictions are right."""

from __future__ import annotations

from typing import Any

import weft.numpy as wnp
from weft import Array, lax
from weft.errors import ArgumentError
from weft.keras.core import config
from weft.keras.losses.argument_docs import document
from weft.keras.losses.arguments import broadcastable, errors, same_rank
from weft.keras.metrics.reduction import MeanMetricWrapper
from weft.keras.ops.math import in_top_k


def accuracy(y_true: Any, y_pred: Any) -> Array:
    """Return 1 where predictions equal targets, else 0.

    >>> print(accuracy([1, 2], [1, 3]))
    [1. 0.]
    """
    y_true, y_pred = errors("accuracy", y_true, y_pred)
    return (y_true == y_pred).astype(config.floatx())


@document("1 or 0 for each prediction.", y_true="targets of 0 and 1.", threshold="predictions above count as 1.")
def binary_accuracy(y_true: Any, y_pred: Any, threshold: float = 0.5) -> Array:
    """Return 1 where (y_pred > threshold) equals the target of 0 or 1, else 0.

    >>> from weft import keras
    >>> print(keras.metrics.binary_accuracy([[1.0], [0.0]], [[0.6], [0.7]]))
    [[1.]
     [0.]]
    """
    y_true, y_pred = same_rank(y_true, y_pred)
    broadcastable("binary_accuracy", y_true, y_pred)
    return (y_true == (y_pred > threshold).astype(y_true.dtype)).astype(config.floatx())


def _labels(name: str, y_true: Array, y_pred: Array) -> Array:
    """Return integer targets without a last axis of size 1, checked against the predictions."""
    if y_true.ndim == y_pred.ndim and y_true.shape[-1] == 1:
        y_true = y_true[..., 0]
    rows = y_pred.shape[:-1]
    if y_true.shape != rows and [n for n in y_true.shape if n != 1] == [n for n in rows if n != 1]:
        y_true = y_true.reshape(rows)  # they differ by axes of size 1
    if y_pred.ndim == 0 or y_true.shape != y_pred.shape[:-1]:
        raise ArgumentError(
            f"{name}: there is an integer target for each row of predictions.",
            received=f"y_true of shape {y_true.shape} and y_pred of shape {y_pred.shape}",
            fix="for one-hot targets use the metric without `sparse`"
            if y_true.shape == y_pred.shape
            else "targets have the shape of the predictions without the last axis",
        )
    return y_true


def _one_hot_labels(name: str, y_true: Array, y_pred: Array) -> Array:
    if y_true.ndim == 0 or y_true.shape != y_pred.shape:
        raise ArgumentError(
            f"{name}: targets must be one-hot and have the shape of the predictions.",
            received=f"y_true of shape {y_true.shape} and y_pred of shape {y_pred.shape}",
            fix=f"for integer targets use sparse_{name}",
        )
    return wnp.argmax(y_true, axis=-1)


@document(
    "1 or 0 for each row.",
    "print(keras.metrics.categorical_accuracy([[0, 1], [1, 0]], [[0.1, 0.9], [0.2, 0.8]])) -> [1. 0.]",
    y_true="one-hot targets.",
    y_pred="predictions of the same shape.",
)
def categorical_accuracy(y_true: Any, y_pred: Any) -> Array:
    """Return 1 where the largest prediction is that of the one-hot target, else 0."""
    y_true, y_pred = wnp.asarray(y_true), wnp.asarray(y_pred)
    labels = _one_hot_labels("categorical_accuracy", y_true, y_pred)
    return (labels == wnp.argmax(y_pred, axis=-1)).astype(config.floatx())


@document(
    "1 or 0 for each row.",
    "print(keras.metrics.sparse_categorical_accuracy([1, 0], [[0.1, 0.9], [0.2, 0.8]])) -> [1. 0.]",
    y_true="integer targets.",
    y_pred="predictions, with an axis of classes more.",
)
def sparse_categorical_accuracy(y_true: Any, y_pred: Any) -> Array:
    """Return 1 where the largest prediction is that of the integer target, else 0."""
    y_true, y_pred = wnp.asarray(y_true), wnp.asarray(y_pred)
    labels = _labels("sparse_categorical_accuracy", y_true, y_pred)
    matches = (labels == wnp.argmax(y_pred, axis=-1).astype(labels.dtype)).astype(config.floatx())
    return matches[..., 0] if matches.ndim > 1 and matches.shape[-1] == 1 else matches


def _in_top_k(labels: Array, y_pred: Array, k: int) -> Array:
    return in_top_k(labels.astype("int32"), y_pred, min(k, y_pred.shape[-1]))


def top_k_categorical_accuracy(y_true: Any, y_pred: Any, k: int = 5) -> Array:
    """Return 1 where the prediction of the one-hot target is among the k largest, else 0.

    Args:
        y_true: one-hot targets.
        y_pred: predictions of the same shape.
        k: how many predictions count.

    Returns:
        1 or 0 for each row.

    >>> from weft import keras
    >>> print(keras.metrics.top_k_categorical_accuracy([[0, 0, 1]], [[0.1, 0.5, 0.4]], k=2))
    [1.]
    """
    y_true, y_pred = wnp.asarray(y_true), wnp.asarray(y_pred)
    labels = _one_hot_labels("top_k_categorical_accuracy", y_true, y_pred)
    return _in_top_k(labels, y_pred, k).astype(config.floatx())


def sparse_top_k_categorical_accuracy(y_true: Any, y_pred: Any, k: int = 5, from_sorted_ids: bool = False) -> Array:
    """Return 1 where the prediction of the integer target is among the k largest, else 0.

    With `from_sorted_ids`, predictions are classes instead, the likeliest first.

    Args:
        y_true: integer targets.
        y_pred: predictions, with an axis of classes more.
        k: how many predictions count.
        from_sorted_ids: whether predictions are classes, the likeliest first.

    Returns:
        1 or 0 for each row.

    >>> from weft import keras
    >>> print(keras.metrics.sparse_top_k_categorical_accuracy([2], [[0.1, 0.5, 0.4]], k=2))
    [1.]
    """
    y_true, y_pred = wnp.asarray(y_true), wnp.asarray(y_pred)
    labels = _labels("sparse_top_k_categorical_accuracy", y_true, y_pred)
    if from_sorted_ids:
        first = lax.slice_in_dim(y_pred, 0, min(k, y_pred.shape[-1]), axis=-1)
        matches = wnp.any(first == labels[..., None].astype(y_pred.dtype), axis=-1)
    else:
        matches = _in_top_k(labels, y_pred, k)
    return wnp.reshape(matches, y_true.shape).astype(config.floatx())


class Accuracy(MeanMetricWrapper):
    """How often predictions equal targets.

    Args:
        name: what histories call it.
        dtype: as of `Metric`.

    >>> from weft import keras
    >>> metric = keras.metrics.Accuracy()
    >>> metric.update_state([[1], [2], [3], [4]], [[0], [2], [3], [4]])
    >>> print(metric.result())
    0.75
    """

    _direction = "up"

    def __init__(self, name: str | None = "accuracy", dtype: Any = None) -> None:
        super().__init__(accuracy, name, dtype)


class BinaryAccuracy(MeanMetricWrapper):
    """How often (y_pred > threshold) equals the target.

    Args:
        name: what histories call it.
        dtype: as of `Metric`.
        threshold: from where on a prediction counts as 1.

    >>> from weft import keras
    >>> metric = keras.metrics.BinaryAccuracy()
    >>> metric.update_state([[1], [1], [0], [0]], [[0.98], [1.0], [0.0], [0.6]])
    >>> print(metric.result())
    0.75
    """

    _direction = "up"

    def __init__(self, name: str | None = "binary_accuracy", dtype: Any = None, threshold: float = 0.5) -> None:
        super().__init__(binary_accuracy, name, dtype, threshold=threshold)
        self.threshold = threshold


class CategoricalAccuracy(MeanMetricWrapper):
    """How often the largest prediction is that of the one-hot target.

    Args:
        name: what histories call it.
        dtype: as of `Metric`.

    >>> from weft import keras
    >>> metric = keras.metrics.CategoricalAccuracy()
    >>> metric.update_state([[0, 0, 1], [0, 1, 0]], [[0.1, 0.9, 0.8], [0.05, 0.95, 0]])
    >>> print(metric.result())
    0.5
    """

    _direction = "up"

    def __init__(self, name: str | None = "categorical_accuracy", dtype: Any = None) -> None:
        super().__init__(categorical_accuracy, name, dtype)


class SparseCategoricalAccuracy(MeanMetricWrapper):
    """How often the largest prediction is that of the integer target.

    Args:
        name: what histories call it.
        dtype: as of `Metric`.

    >>> from weft import keras
    >>> metric = keras.metrics.SparseCategoricalAccuracy()
    >>> metric.update_state([[2], [1]], [[0.1, 0.6, 0.3], [0.05, 0.95, 0]])
    >>> print(metric.result())
    0.5
    """

    _direction = "up"

    def __init__(self, name: str | None = "sparse_categorical_accuracy", dtype: Any = None) -> None:
        super().__init__(sparse_categorical_accuracy, name, dtype)


class TopKCategoricalAccuracy(MeanMetricWrapper):
    """How often the prediction of the one-hot target is among the `k` largest.

    Args:
        k: how many predictions count.
        name, dtype: as of `Metric`.

    >>> from weft import keras
    >>> print(keras.metrics.TopKCategoricalAccuracy(k=2)([[0, 0, 1]], [[0.1, 0.5, 0.4]]))
    1.0
    """

    _direction = "up"

    def __init__(self, k: int = 5, name: str | None = "top_k_categorical_accuracy", dtype: Any = None) -> None:
        super().__init__(top_k_categorical_accuracy, name, dtype, k=k)
        self.k = k


class SparseTopKCategoricalAccuracy(MeanMetricWrapper):
    """How often the prediction of the integer target is among the `k` largest.

    With `from_sorted_ids`, predictions are classes instead of scores, the likeliest first.

    Args:
        k: how many predictions count.
        name, dtype: as of `Metric`.
        from_sorted_ids: whether predictions are classes, the likeliest first.

    >>> from weft import keras
    >>> print(keras.metrics.SparseTopKCategoricalAccuracy(k=2)([2], [[0.1, 0.5, 0.4]]))
    1.0
    """

    _direction = "up"

    def __init__(
        self,
        k: int = 5,
        name: str | None = "sparse_top_k_categorical_accuracy",
        dtype: Any = None,
        from_sorted_ids: bool = False,
    ) -> None:
        super().__init__(sparse_top_k_categorical_accuracy, name, dtype, k=k, from_sorted_ids=from_sorted_ids)
        self.k = k
        self.from_sorted_ids = from_sorted_ids
