"""Sums and means over batches, of values or of a function of targets and predictions."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Self

import weft.numpy as wnp
from weft import Array
from weft.keras.core import context, registry
from weft.keras.losses.arguments import same_rank
from weft.keras.losses.base import with_mask
from weft.keras.metrics.base import Metric
from weft.keras.ops.numpy import divide_no_nan


def samplewise(values: Any, sample_weight: Any, reduce: Callable[..., Array], dtype: Any) -> tuple[Array, Array | None]:
    """Reduce values to one weighted value for each sample; return it and its weight (None without weights).

    Weights with fewer axes than the values apply to all trailing axes, which are reduced first; the remaining axes
    except the first are reduced afterwards. A mask of the values is applied only together with weights.
    """
    mask = context.get_keras_mask(values)
    values = wnp.asarray(values).astype(dtype)
    if sample_weight is None:
        return (reduce(values, axis=tuple(range(1, values.ndim))) if values.ndim > 1 else values), None
    weights = wnp.asarray(sample_weight).astype(dtype)
    if mask is not None:
        weights = with_mask(weights, mask, "sum", dtype)
    values, weights = same_rank(values, weights)
    if values.ndim > weights.ndim:
        values = reduce(values, axis=tuple(range(weights.ndim, values.ndim)))
    axes = tuple(range(1, weights.ndim))
    weights = wnp.broadcast_to(weights, values.shape)
    values = values * weights
    if axes:
        values, weights = reduce(values, axis=axes), reduce(weights, axis=axes)
    return values, weights


class Sum(Metric):
    """The sum of values, each times its weight.

    Args:
        name: what histories call it.
        dtype: as of `Metric`.

    >>> from weft import keras
    >>> metric = keras.metrics.Sum()
    >>> metric.update_state([1.0, 3.0, 5.0])
    >>> print(metric.result())
    9.0
    """

    def __init__(self, name: str | None = "sum", dtype: Any = None) -> None:
        super().__init__(name=name, dtype=dtype)
        self.total = self.add_variable((), dtype=self.dtype, name="total")

    def update_state(self, values: Any, sample_weight: Any = None) -> None:
        """Add values; `sample_weight` is one weight for each, or for each sample."""
        values, _ = samplewise(values, sample_weight, wnp.sum, self.dtype)
        self.total.assign_add(wnp.sum(values))

    def result(self) -> Array:
        return self.total.value


class Mean(Metric):
    """The mean of values, weighted.

    Args:
        name: what histories call it.
        dtype: as of `Metric`.

    >>> from weft import keras
    >>> metric = keras.metrics.Mean()
    >>> metric.update_state([1.0, 3.0])
    >>> metric.update_state([5.0], sample_weight=[2.0])
    >>> print(metric.result())
    3.5
    """

    def __init__(self, name: str | None = "mean", dtype: Any = None) -> None:
        super().__init__(name=name, dtype=dtype)
        self.total = self.add_variable((), dtype=self.dtype, name="total")
        self.count = self.add_variable((), dtype=self.dtype, name="count")

    def update_state(self, values: Any, sample_weight: Any = None) -> None:
        """Take in values; `sample_weight` is one weight for each, or for each sample."""
        values, weights = samplewise(values, sample_weight, wnp.mean, self.dtype)
        self.total.assign_add(wnp.sum(values))
        if weights is not None:
            self.count.assign_add(wnp.sum(weights))
        else:
            self.count.assign_add(values.shape[0] if values.ndim else 1)

    def result(self) -> Array:
        return divide_no_nan(self.total.value, self.count.value)


class MeanMetricWrapper(Mean):
    """The mean of a function of targets and predictions.

    Args:
        fn: takes (y_true, y_pred, **kwargs) and returns a value for each sample.
        name: what histories call it.
        dtype: as of `Metric`.
        **kwargs: handed on to `fn`.

    >>> from weft import keras
    >>> metric = keras.metrics.MeanMetricWrapper(keras.metrics.mean_squared_error, name="mse")
    >>> metric.update_state([[0.0], [0.0]], [[1.0], [2.0]])
    >>> print(metric.result())
    2.5
    """

    def __init__(self, fn: Callable[..., Any], name: str | None = None, dtype: Any = None, **kwargs: Any) -> None:
        super().__init__(name=name, dtype=dtype)
        self._fn = fn
        self._fn_kwargs = kwargs

    def update_state(self, y_true: Any, y_pred: Any, sample_weight: Any = None) -> None:  # type: ignore[override]
        """Take in a batch: targets, predictions, and weights for its samples. A mask of the predictions applies."""
        mask = context.get_keras_mask(y_pred)
        values = self._fn(y_true, y_pred, **self._fn_kwargs)
        if mask is not None:
            sample_weight = with_mask(sample_weight, mask, "sum", self.dtype)
        super().update_state(values, sample_weight)

    def get_config(self) -> dict[str, Any]:
        settings = {**super().get_config(), **self._fn_kwargs}
        if type(self) is MeanMetricWrapper:
            settings["fn"] = registry.serialize_keras_object(self._fn)
        return settings

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> Self:
        settings = dict(config)
        if isinstance(settings.get("fn"), (Mapping, str)):
            settings["fn"] = registry.deserialize_keras_object(settings["fn"], kind="losses")
        return cls(**settings)
