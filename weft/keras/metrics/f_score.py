"""F-scores: precision and recall in one."""

from __future__ import annotations

from typing import Any

import weft.numpy as wnp
from weft import Array
from weft.errors import ArgumentError
from weft.keras.core import config
from weft.keras.losses.arguments import equal_shapes
from weft.keras.metrics.base import Metric

_COUNTS = ("true_positives", "false_positives", "false_negatives", "intermediate_weights")


class FBetaScore(Metric):
    """(1 + beta^2) * precision * recall / (beta^2 * precision + recall), by class.

    Args:
        average: None is a score for each class; "micro" counts all classes together, "macro" is the mean over classes,
            and "weighted" the mean weighted by how many targets each class has.
        beta: how much more recall counts than precision.
        threshold: predictions above are positive; None is the largest of each row.
        name: what histories call it.
        dtype: as of `Metric`.

    Targets and predictions have the shape [batch, classes].

    >>> from weft import keras
    >>> metric = keras.metrics.FBetaScore(average="macro", beta=2.0, threshold=0.5)
    >>> print(metric([[1, 0], [0, 1]], [[0.9, 0.2], [0.3, 0.8]]).round(3))
    1.0
    """

    _direction = "up"

    def __init__(
        self,
        average: str | None = None,
        beta: float = 1.0,
        threshold: float | None = None,
        name: str | None = "fbeta_score",
        dtype: Any = None,
    ) -> None:
        super().__init__(name=name, dtype=dtype)
        if average not in (None, "micro", "macro", "weighted"):
            raise ArgumentError(
                f"{self.name}: `average` must be None, 'micro', 'macro' or 'weighted'.", received=f"average={average!r}"
            )
        if not isinstance(beta, (int, float)) or beta <= 0:
            raise ArgumentError(f"{self.name}: `beta` must be positive.", received=f"beta={beta!r}")
        if threshold is not None and (not isinstance(threshold, (int, float)) or not 0 < threshold <= 1):
            raise ArgumentError(f"{self.name}: `threshold` must be in (0, 1].", received=f"threshold={threshold!r}")
        self.average = average
        self.beta = beta
        self.threshold = threshold
        self._built = False

    def _build(self, classes: int) -> None:
        for name in _COUNTS:
            shape = () if self.average == "micro" else (classes,)
            setattr(self, name, self.add_variable(shape, dtype=self.dtype, name=name))
        self._built = True

    def update_state(self, y_true: Any, y_pred: Any, sample_weight: Any = None) -> None:
        """Take in a batch: targets, predictions, and a weight for each sample."""
        y_true, y_pred = (wnp.asarray(values).astype(self.dtype) for values in (y_true, y_pred))
        equal_shapes(self.name, y_true, y_pred)
        if y_pred.ndim != 2:
            raise ArgumentError(
                f"{self.name}: targets and predictions must have the shape [batch, classes].",
                received=f"shape {y_pred.shape}",
            )
        if not self._built:
            self._build(y_pred.shape[1])
        if self.threshold is None:
            largest = wnp.max(y_pred, axis=-1, keepdims=True)
            positive = (y_pred >= largest) & (wnp.abs(y_pred) > 1e-9)
        else:
            positive = y_pred > self.threshold
        predicted = positive.astype(self.dtype)
        weights = wnp.ones((), self.dtype)
        if sample_weight is not None:
            weights = wnp.reshape(wnp.asarray(sample_weight).astype(self.dtype), (-1, 1))
        batch = (predicted * y_true, predicted * (1 - y_true), (1 - predicted) * y_true, y_true)
        axis = None if self.average == "micro" else 0
        for name, values in zip(_COUNTS, batch, strict=True):
            getattr(self, name).assign_add(wnp.sum(values * weights, axis=axis))

    def result(self) -> Array:
        if not self._built:
            raise ArgumentError(f"{self.name} has no result before its first batch.", fix="call `update_state` first")
        right, wrong, missed, weights = (getattr(self, name).value for name in _COUNTS)
        epsilon = config.epsilon()
        precision = right / (right + wrong + epsilon)
        recall = right / (right + missed + epsilon)
        scores = precision * recall / (self.beta**2 * precision + recall + epsilon) * (1 + self.beta**2)
        if self.average == "weighted":
            return wnp.sum(scores * (weights / (wnp.sum(weights) + epsilon)))
        return scores if self.average is None else wnp.mean(scores)

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "average": self.average, "beta": self.beta, "threshold": self.threshold}


class F1Score(FBetaScore):
    """2 * precision * recall / (precision + recall), by class; the arguments are those of `FBetaScore`."""

    def __init__(
        self,
        average: str | None = None,
        threshold: float | None = None,
        name: str | None = "f1_score",
        dtype: Any = None,
    ) -> None:
        super().__init__(average, 1.0, threshold, name, dtype)

    def get_config(self) -> dict[str, Any]:
        settings = super().get_config()
        del settings["beta"]
        return settings
