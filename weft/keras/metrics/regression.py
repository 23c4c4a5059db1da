"""Metrics of values: errors, similarities, correlations, and the share of variance that is explained."""

from __future__ import annotations

from typing import Any

import weft.numpy as wnp
from weft import Array
from weft.errors import ArgumentError
from weft.keras.core import config
from weft.keras.losses import regression
from weft.keras.losses.argument_docs import document
from weft.keras.losses.arguments import equal_shapes, errors, same_rank
from weft.keras.metrics.base import Metric
from weft.keras.metrics.reduction import Mean, MeanMetricWrapper


def cosine_similarity(y_true: Any, y_pred: Any, axis: int = -1) -> Array:
    """Compute the cosine similarity of targets and predictions along an axis: 1 is best (the loss is minus that)."""
    return -regression.cosine_similarity(y_true, y_pred, axis)


def _center(values: Array, axis: int) -> Array:
    return values - wnp.mean(values, axis=axis, keepdims=True)


@document(
    "values without that axis.",
    "print(keras.metrics.pearson_correlation([[0.0, 1.0]], [[0.0, 1.0]]).round(3)) -> [1.]",
    axis="what the correlation is along.",
)
def pearson_correlation(y_true: Any, y_pred: Any, axis: int = -1) -> Array:
    """Compute the correlation of targets and predictions along an axis."""
    y_true, y_pred = errors("pearson_correlation", y_true, y_pred)
    y_true, y_pred = (_center(values, axis) for values in (y_true, y_pred))
    y_true, y_pred = (values / wnp.std(values, axis=axis, keepdims=True) for values in (y_true, y_pred))
    return wnp.mean(y_true * y_pred, axis=axis)


@document(
    "values without that axis.",
    "print(keras.metrics.concordance_correlation([[0.0, 1.0]], [[0.0, 1.0]]).round(3)) -> [1.]",
    axis="what the correlation is along.",
)
def concordance_correlation(y_true: Any, y_pred: Any, axis: int = -1) -> Array:
    """Compute the concordance along an axis: 2 * covariance / (both variances + the squared distance of the means)."""
    y_true, y_pred = errors("concordance_correlation", y_true, y_pred)
    true_mean, mean = (wnp.mean(values, axis=axis, keepdims=True) for values in (y_true, y_pred))
    variances = wnp.var(y_true, axis=axis, keepdims=True) + wnp.var(y_pred, axis=axis, keepdims=True)
    covariances = (y_true - true_mean) * (y_pred - mean)
    return wnp.mean(2 * covariances / (variances + wnp.square(true_mean - mean) + config.epsilon()), axis=axis)


class MeanSquaredError(MeanMetricWrapper):
    """The mean of squared errors; `name` and `dtype` are those of `Metric`.

    >>> from weft import keras
    >>> print(keras.metrics.MeanSquaredError()([[1.0], [1.0]], [[1.0], [1.0]]))
    0.0
    """

    _direction = "down"

    def __init__(self, name: str | None = "mean_squared_error", dtype: Any = None) -> None:
        super().__init__(regression.mean_squared_error, name, dtype)


class MeanAbsoluteError(MeanMetricWrapper):
    """The mean of absolute errors.

    Args:
        name: what histories call it.
        dtype: as of `Metric`.

    >>> from weft import keras
    >>> metric = keras.metrics.MeanAbsoluteError()
    >>> metric.update_state([[0.0, 1.0], [0.0, 0.0]], [[1.0, 1.0], [0.0, 0.0]])
    >>> print(metric.result())
    0.25
    """

    _direction = "down"

    def __init__(self, name: str | None = "mean_absolute_error", dtype: Any = None) -> None:
        super().__init__(regression.mean_absolute_error, name, dtype)


class MeanAbsolutePercentageError(MeanMetricWrapper):
    """The mean of absolute errors in percent of the targets; `name` and `dtype` are those of `Metric`.

    >>> from weft import keras
    >>> print(keras.metrics.MeanAbsolutePercentageError()([[1.0], [1.0]], [[1.0], [1.0]]))
    0.0
    """

    _direction = "down"

    def __init__(self, name: str | None = "mean_absolute_percentage_error", dtype: Any = None) -> None:
        super().__init__(regression.mean_absolute_percentage_error, name, dtype)


class MeanSquaredLogarithmicError(MeanMetricWrapper):
    """The mean of squared differences of logarithms; `name` and `dtype` are those of `Metric`.

    >>> from weft import keras
    >>> print(keras.metrics.MeanSquaredLogarithmicError()([[1.0], [1.0]], [[1.0], [1.0]]))
    0.0
    """

    _direction = "down"

    def __init__(self, name: str | None = "mean_squared_logarithmic_error", dtype: Any = None) -> None:
        super().__init__(regression.mean_squared_logarithmic_error, name, dtype)


class LogCoshError(MeanMetricWrapper):
    """The mean of log(cosh(error)); `name` and `dtype` are those of `Metric`.

    >>> from weft import keras
    >>> print(keras.metrics.LogCoshError()([[1.0], [1.0]], [[1.0], [1.0]]))
    0.0
    """

    _direction = "down"

    def __init__(self, name: str | None = "logcosh", dtype: Any = None) -> None:
        super().__init__(regression.log_cosh, name, dtype)


class CosineSimilarity(MeanMetricWrapper):
    """The cosine of the angle between targets and predictions along `axis`; the others are those of `Metric`.

    Args:
        name, dtype: as of `Metric`.
        axis: what the vectors are along.

    >>> from weft import keras
    >>> print(keras.metrics.CosineSimilarity()([[1.0, 0.0]], [[2.0, 0.0]]))
    1.0
    """

    _direction = "up"

    def __init__(self, name: str | None = "cosine_similarity", dtype: Any = None, axis: int = -1) -> None:
        super().__init__(cosine_similarity, name, dtype, axis=axis)


class PearsonCorrelation(MeanMetricWrapper):
    """The mean correlation of targets and predictions along `axis`; the others are those of `Metric`."""

    _direction = "up"

    def __init__(self, name: str | None = "pearson_correlation", dtype: Any = None, axis: int = -1) -> None:
        super().__init__(pearson_correlation, name, dtype, axis=axis)
        self.axis = axis


class ConcordanceCorrelation(MeanMetricWrapper):
    """The mean concordance correlation of targets and predictions along `axis`; the others are those of `Metric`."""

    _direction = "up"

    def __init__(self, name: str | None = "concordance_correlation", dtype: Any = None, axis: int = -1) -> None:
        super().__init__(concordance_correlation, name, dtype, axis=axis)
        self.axis = axis


class RootMeanSquaredError(Mean):
    """The root of the mean of squared errors over all batches.

    Args:
        name: what histories call it.
        dtype: as of `Metric`.

    >>> from weft import keras
    >>> metric = keras.metrics.RootMeanSquaredError()
    >>> metric.update_state([[0.0, 1.0], [0.0, 0.0]], [[1.0, 1.0], [0.0, 0.0]])
    >>> print(metric.result())
    0.5
    """

    _direction = "down"

    def __init__(self, name: str | None = "root_mean_squared_error", dtype: Any = None) -> None:
        super().__init__(name, dtype)

    def update_state(self, y_true: Any, y_pred: Any, sample_weight: Any = None) -> None:  # type: ignore[override]
        """Take in a batch: targets, predictions, and weights for its samples."""
        y_true, y_pred = errors(self.name, y_true, wnp.asarray(y_pred).astype(self.dtype))
        super().update_state(wnp.square(y_pred - y_true), sample_weight)

    def result(self) -> Array:
        return wnp.sqrt(super().result())


_AGGREGATIONS = (None, "uniform_average", "variance_weighted_average")
_SUMS = ("squared_sum", "sum", "total_mse", "count")


class R2Score(Metric):
    """1 - the sum of squared errors / the sum of squared distances of the targets from their mean.

    Args:
        class_aggregation: None is a score for each output; "uniform_average" is their mean, and
            "variance_weighted_average" the mean weighted by the variance of the targets.
        num_regressors: how many inputs the model has, for the adjusted score; 0 is the plain one.
        name: what histories call it.
        dtype: as of `Metric`.

    Targets and predictions have the shape [batch, outputs].

    >>> from weft import keras
    >>> print(keras.metrics.R2Score()([[0.0], [1.0]], [[0.0], [1.0]]))
    1.0
    """

    _direction = "up"

    def __init__(
        self,
        class_aggregation: str | None = "uniform_average",
        num_regressors: int = 0,
        name: str | None = "r2_score",
        dtype: Any = None,
    ) -> None:
        super().__init__(name=name, dtype=dtype)
        if class_aggregation not in _AGGREGATIONS:
            raise ArgumentError(
                f"{self.name}: `class_aggregation` must be one of {_AGGREGATIONS}.",
                received=f"class_aggregation={class_aggregation!r}",
            )
        if num_regressors < 0:
            raise ArgumentError(f"{self.name}: `num_regressors` is not negative.", received=f"{num_regressors}")
        self.class_aggregation = class_aggregation
        self.num_regressors = num_regressors
        self.num_samples = self.add_variable((), name="num_samples")
        self._built = False

    def _build(self, outputs: int) -> None:
        for name in _SUMS:
            label = "residual" if name == "total_mse" else name
            setattr(self, name, self.add_variable((outputs,), name=label))
        self._built = True

    def update_state(self, y_true: Any, y_pred: Any, sample_weight: Any = None) -> None:
        """Take in a batch: targets, predictions, and weights for its samples."""
        targets, predictions = (wnp.asarray(values).astype(self.dtype) for values in (y_true, y_pred))
        y_true, y_pred = same_rank(targets, predictions)
        equal_shapes(self.name, y_true, y_pred)
        if y_pred.ndim != 2:
            raise ArgumentError(
                f"{self.name}: targets and predictions must have the shape [batch, outputs].",
                received=f"shape {y_pred.shape}",
            )
        if not self._built:
            self._build(y_pred.shape[1])
        weights = wnp.asarray(1 if sample_weight is None else sample_weight).astype(self.dtype)
        weights = wnp.broadcast_to(weights[:, None] if weights.ndim == 1 else weights, y_true.shape)
        batch = (y_true * y_true * weights, y_true * weights, (y_true - y_pred) ** 2 * weights, weights)
        for name, values in zip(_SUMS, batch, strict=True):
            getattr(self, name).assign_add(wnp.sum(values, axis=0))
        self.num_samples.assign_add(y_true.size)

    def result(self) -> Array:
        if not self._built:
            raise ArgumentError(f"{self.name} has no result before its first batch.", fix="call `update_state` first")
        squares, total, residual, count = (getattr(self, name).value for name in _SUMS)
        distances = squares - total * (total / count)
        scores = 1 - residual / distances
        scores = wnp.where(wnp.isinf(scores), 0.0, scores)
        if self.class_aggregation == "uniform_average":
            scores = wnp.mean(scores)
        elif self.class_aggregation == "variance_weighted_average":
            scores = wnp.sum(distances * scores) / wnp.sum(distances)
        if not self.num_regressors:
            return scores
        # With as many inputs as samples or more there is no adjusted score.
        samples = self.num_samples.value
        left = samples - self.num_regressors - 1.0
        return wnp.where(left > 0, 1.0 - (1.0 - scores) * (samples - 1.0) / wnp.where(left > 0, left, 1.0), scores)

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "class_aggregation": self.class_aggregation,
            "num_regressors": self.num_regressors,
        }
