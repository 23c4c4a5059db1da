"""Losses of margins: targets are -1 and 1 (or 0 and 1), predictions any value."""

from __future__ import annotations

from typing import Any

import weft.numpy as wnp
from weft import Array
from weft.keras.losses.argument_docs import document
from weft.keras.losses.arguments import broadcastable, pair
from weft.keras.losses.base import LossFunctionWrapper
from weft.keras.ops.dispatch import operation


def signs(y_true: Array) -> Array:
    """Convert targets of 0 and 1 to -1 and 1; targets with any other value are unchanged."""
    binary = wnp.all((y_true == 0) | (y_true == 1))
    return wnp.where(binary, 2.0 * y_true - 1.0, y_true).astype(y_true.dtype)


def _margins(name: str, y_true: Any, y_pred: Any) -> Array:
    y_true, y_pred = pair(y_true, y_pred)
    broadcastable(name, y_true, y_pred)
    return wnp.maximum(1.0 - signs(y_true) * y_pred, 0.0)


@operation
@document(
    "values without the last axis.",
    "print(keras.losses.hinge([[1, 0]], [[0.5, 0.5]])) -> [1.]",
    y_true="targets: -1 and 1, or 0 and 1.",
    y_pred="predictions of any size; the shapes broadcast.",
)
def hinge(y_true: Any, y_pred: Any) -> Array:
    """Compute the mean of max(1 - y_true * y_pred, 0) over the last axis; targets are -1 and 1, or 0 and 1."""
    return wnp.mean(_margins("hinge", y_true, y_pred), axis=-1)


@operation
@document(
    "values without the last axis.",
    "print(keras.losses.squared_hinge([[1, 0]], [[0.5, 0.5]])) -> [1.25]",
    y_true="targets: -1 and 1, or 0 and 1.",
    y_pred="predictions of any size; the shapes broadcast.",
)
def squared_hinge(y_true: Any, y_pred: Any) -> Array:
    """Compute the mean of max(1 - y_true * y_pred, 0)^2 over the last axis; targets are -1 and 1, or 0 and 1."""
    return wnp.mean(wnp.square(_margins("squared_hinge", y_true, y_pred)), axis=-1)


@operation
@document(
    "values without the last axis.",
    "print(keras.losses.categorical_hinge([[0, 1]], [[0.6, 0.4]])) -> [1.2]",
    y_true="one-hot targets.",
    y_pred="predictions of any size; the shapes broadcast.",
)
def categorical_hinge(y_true: Any, y_pred: Any) -> Array:
    """Compute max(1 + the largest prediction of a wrong class - that of the right class, 0); targets are one-hot."""
    y_true, y_pred = pair(y_true, y_pred)
    broadcastable("categorical_hinge", y_true, y_pred)
    right = wnp.sum(y_true * y_pred, axis=-1)
    wrong = wnp.max((1.0 - y_true) * y_pred, axis=-1)
    return wnp.maximum(wrong - right + 1.0, 0.0)


class Hinge(LossFunctionWrapper):
    """The mean of max(1 - y_true * y_pred, 0); the arguments are those of `Loss`.

    >>> from weft import keras
    >>> print(keras.losses.Hinge()([[1.0], [0.0]], [[0.5], [0.5]]))
    1.0
    """

    def __init__(
        self, reduction: str | None = "sum_over_batch_size", name: str | None = "hinge", dtype: Any = None
    ) -> None:
        super().__init__(hinge, reduction, name, dtype)


class SquaredHinge(LossFunctionWrapper):
    """The mean of max(1 - y_true * y_pred, 0)^2; the arguments are those of `Loss`."""

    def __init__(
        self, reduction: str | None = "sum_over_batch_size", name: str | None = "squared_hinge", dtype: Any = None
    ) -> None:
        super().__init__(squared_hinge, reduction, name, dtype)


class CategoricalHinge(LossFunctionWrapper):
    """max(1 + largest of the wrong classes - the right class, 0); the arguments are those of `Loss`."""

    def __init__(
        self, reduction: str | None = "sum_over_batch_size", name: str | None = "categorical_hinge", dtype: Any = None
    ) -> None:
        super().__init__(categorical_hinge, reduction, name, dtype)
