"""Losses of values: squares, absolute values, and what is between them."""

from __future__ import annotations

import math
from typing import Any

import weft.numpy as wnp
from weft import Array, nn
from weft.keras.core import config
from weft.keras.losses.argument_docs import document
from weft.keras.losses.arguments import errors
from weft.keras.losses.base import LossFunctionWrapper
from weft.keras.ops.dispatch import operation


@operation
@document(
    "values without the last axis.", "print(keras.losses.mean_squared_error([[0.0, 1.0]], [[1.0, 3.0]])) -> [2.5]"
)
def mean_squared_error(y_true: Any, y_pred: Any) -> Array:
    """Compute the mean of (y_true - y_pred)^2 over the last axis."""
    y_true, y_pred = errors("mean_squared_error", y_true, y_pred)
    return wnp.mean(wnp.square(y_true - y_pred), axis=-1)


@operation
@document(
    "values without the last axis.", "print(keras.losses.mean_absolute_error([[0.0, 1.0]], [[1.0, 3.0]])) -> [1.5]"
)
def mean_absolute_error(y_true: Any, y_pred: Any) -> Array:
    """Compute the mean of |y_true - y_pred| over the last axis."""
    y_true, y_pred = errors("mean_absolute_error", y_true, y_pred)
    return wnp.mean(wnp.abs(y_true - y_pred), axis=-1)


@operation
@document(
    "values without the last axis.",
    "print(keras.losses.mean_absolute_percentage_error([[1.0, 2.0]], [[2.0, 2.0]])) -> [50.]",
)
def mean_absolute_percentage_error(y_true: Any, y_pred: Any) -> Array:
    """Compute 100 times the mean of |y_true - y_pred| / max(|y_true|, epsilon) over the last axis."""
    y_true, y_pred = errors("mean_absolute_percentage_error", y_true, y_pred)
    relative = wnp.abs((y_true - y_pred) / wnp.maximum(wnp.abs(y_true), config.epsilon()))
    return 100.0 * wnp.mean(relative, axis=-1)


@operation
@document(
    "values without the last axis.",
    "print(keras.losses.mean_squared_logarithmic_error([[1.0, 2.0]], [[1.0, 2.0]])) -> [0.]",
)
def mean_squared_logarithmic_error(y_true: Any, y_pred: Any) -> Array:
    """Compute the mean of (log(1 + y_true) - log(1 + y_pred))^2 over the last axis; both are at least epsilon."""
    y_true, y_pred = errors("mean_squared_logarithmic_error", y_true, y_pred)
    logarithm = lambda values: wnp.log(wnp.maximum(values, config.epsilon()) + 1.0)
    return wnp.mean(wnp.square(logarithm(y_true) - logarithm(y_pred)), axis=-1)


@operation
@document(
    "values without the last axis.",
    "print(keras.losses.huber([[0.0, 0.0]], [[0.5, 3.0]], delta=1.0)) -> [1.3125]",
    delta="where the square ends.",
)
def huber(y_true: Any, y_pred: Any, delta: float = 1.0) -> Array:
    """Compute the mean over the last axis of e^2 / 2 for |e| up to delta, and of delta * |e| - delta^2 / 2 beyond."""
    y_true, y_pred = errors("huber", y_true, y_pred)
    error = y_pred - y_true
    size = wnp.abs(error)
    return wnp.mean(wnp.where(size <= delta, 0.5 * wnp.square(error), delta * size - 0.5 * delta**2), axis=-1)


@operation
@document("values without the last axis.", "print(keras.losses.log_cosh([[1.0, 2.0]], [[1.0, 2.0]])) -> [0.]")
def log_cosh(y_true: Any, y_pred: Any) -> Array:
    """Compute the mean of log(cosh(y_pred - y_true)) over the last axis, without overflow."""
    y_true, y_pred = errors("log_cosh", y_true, y_pred)
    error = y_pred - y_true
    return wnp.mean(error + nn.softplus(error * -2.0) - math.log(2.0), axis=-1)


def unit(values: Array, axis: int | tuple[int, ...] | None = -1) -> Array:
    """Divide values by their Euclidean norm, unless it is tiny."""
    # A bound on the square, not on its root, has a derivative at 0; in half precision it must not be 0 itself.
    least = max(config.epsilon() ** 2, float(wnp.finfo(values.dtype).tiny))
    squares = wnp.sum(wnp.square(values), axis=axis, keepdims=True)
    return values / wnp.sqrt(wnp.maximum(squares, least))


@operation
@document(
    "values without that axis.",
    "print(keras.losses.cosine_similarity([[1.0, 0.0]], [[2.0, 0.0]])) -> [-1.]",
    axis="what the vectors are along.",
)
def cosine_similarity(y_true: Any, y_pred: Any, axis: int = -1) -> Array:
    """Compute minus the cosine of the angle between targets and predictions along an axis: -1 is best."""
    y_true, y_pred = errors("cosine_similarity", y_true, y_pred)
    return -wnp.sum(unit(y_true, axis) * unit(y_pred, axis), axis=axis)


class MeanSquaredError(LossFunctionWrapper):
    """The mean of squared errors.

    Args:
        reduction, name, dtype: as of `Loss`.

    >>> from weft import keras
    >>> print(keras.losses.MeanSquaredError()([[0.0, 1.0], [0.0, 0.0]], [[1.0, 1.0], [1.0, 0.0]]))
    0.5
    """

    def __init__(
        self, reduction: str | None = "sum_over_batch_size", name: str | None = "mean_squared_error", dtype: Any = None
    ) -> None:
        super().__init__(mean_squared_error, reduction, name, dtype)


class MeanAbsoluteError(LossFunctionWrapper):
    """The mean of absolute errors; the arguments are those of `Loss`.

    >>> from weft import keras
    >>> print(keras.losses.MeanAbsoluteError()([[0.0], [0.0]], [[1.0], [2.0]]))
    1.5
    """

    def __init__(
        self, reduction: str | None = "sum_over_batch_size", name: str | None = "mean_absolute_error", dtype: Any = None
    ) -> None:
        super().__init__(mean_absolute_error, reduction, name, dtype)


class MeanAbsolutePercentageError(LossFunctionWrapper):
    """The mean of absolute errors in percent of the targets; the arguments are those of `Loss`."""

    def __init__(
        self,
        reduction: str | None = "sum_over_batch_size",
        name: str | None = "mean_absolute_percentage_error",
        dtype: Any = None,
    ) -> None:
        super().__init__(mean_absolute_percentage_error, reduction, name, dtype)


class MeanSquaredLogarithmicError(LossFunctionWrapper):
    """The mean of squared differences of logarithms; the arguments are those of `Loss`."""

    def __init__(
        self,
        reduction: str | None = "sum_over_batch_size",
        name: str | None = "mean_squared_logarithmic_error",
        dtype: Any = None,
    ) -> None:
        super().__init__(mean_squared_logarithmic_error, reduction, name, dtype)


class Huber(LossFunctionWrapper):
    """Squared for errors up to `delta`, linear beyond: outliers pull less.

    Args:
        delta: where one becomes the other.
        reduction, name, dtype: as of `Loss`.

    >>> from weft import keras
    >>> print(keras.losses.Huber(delta=1.0)([[0.0, 0.0]], [[0.5, 3.0]]))
    1.3125
    """

    def __init__(
        self,
        delta: float = 1.0,
        reduction: str | None = "sum_over_batch_size",
        name: str | None = "huber_loss",
        dtype: Any = None,
    ) -> None:
        super().__init__(huber, reduction, name, dtype, delta=delta)


class LogCosh(LossFunctionWrapper):
    """The mean of log(cosh(error)): a square near 0, an absolute value far out. The arguments are those of `Loss`."""

    def __init__(
        self, reduction: str | None = "sum_over_batch_size", name: str | None = "log_cosh", dtype: Any = None
    ) -> None:
        super().__init__(log_cosh, reduction, name, dtype)


class CosineSimilarity(LossFunctionWrapper):
    """Minus the cosine of the angle between targets and predictions along `axis`; the others are those of `Loss`."""

    def __init__(
        self,
        axis: int = -1,
        reduction: str | None = "sum_over_batch_size",
        name: str | None = "cosine_similarity",
        dtype: Any = None,
    ) -> None:
        super().__init__(cosine_similarity, reduction, name, dtype, axis=axis)
