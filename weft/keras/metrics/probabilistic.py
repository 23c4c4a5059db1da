"""Metrics of probabilities and of margins: the losses of the same names, as means over batches."""

from __future__ import annotations

from typing import Any

from weft.keras.losses import margins, probabilistic
from weft.keras.metrics.reduction import MeanMetricWrapper


class BinaryCrossentropy(MeanMetricWrapper):
    """The cross-entropy of binary targets; `from_logits` and `label_smoothing` as of the loss."""

    _direction = "down"

    def __init__(
        self,
        name: str | None = "binary_crossentropy",
        dtype: Any = None,
        from_logits: bool = False,
        label_smoothing: float = 0,
    ) -> None:
        super().__init__(
            probabilistic.binary_crossentropy, name, dtype, from_logits=from_logits, label_smoothing=label_smoothing
        )


class CategoricalCrossentropy(MeanMetricWrapper):
    """The cross-entropy of one-hot targets; `from_logits`, `label_smoothing` and `axis` as of the loss."""

    _direction = "down"

    def __init__(
        self,
        name: str | None = "categorical_crossentropy",
        dtype: Any = None,
        from_logits: bool = False,
        label_smoothing: float = 0,
        axis: int = -1,
    ) -> None:
        super().__init__(
            probabilistic.categorical_crossentropy,
            name,
            dtype,
            from_logits=from_logits,
            label_smoothing=label_smoothing,
            axis=axis,
        )


class SparseCategoricalCrossentropy(MeanMetricWrapper):
    """The cross-entropy of integer targets; `from_logits`, `ignore_class` and `axis` as of the loss."""

    _direction = "down"

    def __init__(
        self,
        name: str | None = "sparse_categorical_crossentropy",
        dtype: Any = None,
        from_logits: bool = False,
        ignore_class: int | None = None,
        axis: int = -1,
    ) -> None:
        super().__init__(
            probabilistic.sparse_categorical_crossentropy,
            name,
            dtype,
            from_logits=from_logits,
            ignore_class=ignore_class,
            axis=axis,
        )


class KLDivergence(MeanMetricWrapper):
    """The Kullback-Leibler divergence of predictions from targets; `name` and `dtype` are those of `Metric`."""

    _direction = "down"

    def __init__(self, name: str | None = "kl_divergence", dtype: Any = None) -> None:
        super().__init__(probabilistic.kl_divergence, name, dtype)


class Poisson(MeanMetricWrapper):
    """The mean of y_pred - y_true * log(y_pred); `name` and `dtype` are those of `Metric`."""

    _direction = "down"

    def __init__(self, name: str | None = "poisson", dtype: Any = None) -> None:
        super().__init__(probabilistic.poisson, name, dtype)


class Hinge(MeanMetricWrapper):
    """The mean of max(1 - y_true * y_pred, 0); `name` and `dtype` are those of `Metric`."""

    _direction = "down"

    def __init__(self, name: str | None = "hinge", dtype: Any = None) -> None:
        super().__init__(margins.hinge, name, dtype)


class SquaredHinge(MeanMetricWrapper):
    """The mean of max(1 - y_true * y_pred, 0)^2; `name` and `dtype` are those of `Metric`."""

    _direction = "down"

    def __init__(self, name: str | None = "squared_hinge", dtype: Any = None) -> None:
        super().__init__(margins.squared_hinge, name, dtype)


class CategoricalHinge(MeanMetricWrapper):
    """The mean of the hinge of classes; `name` and `dtype` are those of `Metric`."""

    _direction = "down"

    def __init__(self, name: str | None = "categorical_hinge", dtype: Any = None) -> None:
        super().__init__(margins.categorical_hinge, name, dtype)
