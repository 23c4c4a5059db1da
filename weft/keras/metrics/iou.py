"""Intersection over union of segmentations."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import weft.numpy as wnp
from weft import Array
from weft.errors import ArgumentError
from weft.keras.core import config
from weft.keras.metrics.base import Metric
from weft.keras.metrics.counts import confusion_matrix


class IoU(Metric):
    """TP / (TP + FP + FN) of some classes, and their mean.

    Args:
        num_classes: how many classes there are.
        target_class_ids: the classes that count.
        name: what histories call it.
        dtype: of the confusion matrix; "int32" if None, so that weights are integers.
        ignore_class: a target that does not count, such as that of padding.
        sparse_y_true: whether targets are integers, else one-hot along `axis`.
        sparse_y_pred: whether predictions are integers, else scores along `axis`.
        axis: the axis of classes.

    >>> from weft import keras
    >>> metric = keras.metrics.IoU(num_classes=2, target_class_ids=[0])
    >>> print(metric([0, 0, 1, 1], [0, 1, 0, 1]))
    0.3333333
    """

    _direction = "up"

    def __init__(
        self,
        num_classes: int,
        target_class_ids: Sequence[int],
        name: str | None = None,
        dtype: Any = None,
        ignore_class: int | None = None,
        sparse_y_true: bool = True,
        sparse_y_pred: bool = True,
        axis: int = -1,
    ) -> None:
        super().__init__(name=name, dtype=dtype or "int32")
        if any(not 0 <= target < num_classes for target in target_class_ids):
            raise ArgumentError(
                f"{self.name}: target classes must be in [0, {num_classes - 1}].",
                received=f"target_class_ids={list(target_class_ids)}",
            )
        self.num_classes = num_classes
        self.target_class_ids = list(target_class_ids)
        self.ignore_class = ignore_class
        self.sparse_y_true = sparse_y_true
        self.sparse_y_pred = sparse_y_pred
        self.axis = axis
        self.total_cm = self.add_variable((num_classes, num_classes), dtype=self.dtype, name="total_confusion_matrix")

    def update_state(self, y_true: Any, y_pred: Any, sample_weight: Any = None) -> None:
        """Take in a batch: targets, predictions, and a weight for each of them."""
        y_true, y_pred = wnp.asarray(y_true), wnp.asarray(y_pred)
        labels = y_true if self.sparse_y_true else wnp.argmax(y_true, axis=self.axis)
        predictions = y_pred if self.sparse_y_pred else wnp.argmax(y_pred, axis=self.axis)
        if labels.size != predictions.size:
            raise ArgumentError(
                f"{self.name}: there must be one prediction for each target.",
                received=f"y_true of shape {y_true.shape} and y_pred of shape {y_pred.shape}",
                fix="pass `sparse_y_true` and `sparse_y_pred`: True for integer labels, False for one-hot vectors",
            )
        shape = labels.shape
        labels, predictions = (wnp.reshape(values, (-1,)).astype("int32") for values in (labels, predictions))
        weights = wnp.asarray(1 if sample_weight is None else sample_weight)
        if config.is_float_dtype(weights.dtype) and config.is_int_dtype(self.dtype):
            warnings.warn(
                f"{self.name} counts in {self.dtype}, so that weights lose their fractions; use dtype='float32'",
                stacklevel=2,
            )
        if weights.ndim and weights.shape != shape:
            weights = wnp.reshape(weights, shape) if weights.size == labels.size else weights
            weights = wnp.broadcast_to(weights, shape)
        weights = wnp.broadcast_to(wnp.reshape(weights, (-1,)) if weights.ndim else weights, labels.shape)
        if self.ignore_class is not None:
            labels = wnp.where(labels == self.ignore_class, -1, labels)
        self.total_cm.assign_add(
            confusion_matrix(labels, predictions, self.num_classes, weights.astype(self.dtype), self.dtype)
        )

    def result(self) -> Array:
        matrix = self.total_cm.value
        right = wnp.diagonal(matrix)
        either = wnp.sum(matrix, axis=0) + wnp.sum(matrix, axis=1) - right
        chosen = wnp.asarray(self.target_class_ids)
        right, either = (values[chosen].astype("float32") for values in (right, either))
        valid = either > 1e-9
        ratios = wnp.where(valid, right / (either + config.epsilon()), 0.0)
        return wnp.sum(ratios) / (wnp.sum(valid.astype("float32")) + config.epsilon())

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "num_classes": self.num_classes,
            "target_class_ids": self.target_class_ids,
            "ignore_class": self.ignore_class,
            "sparse_y_true": self.sparse_y_true,
            "sparse_y_pred": self.sparse_y_pred,
            "axis": self.axis,
        }

    def _config_without(self, *fields: str) -> dict[str, Any]:
        return {key: value for key, value in IoU.get_config(self).items() if key not in fields}


class BinaryIoU(IoU):
    """The mean of TP / (TP + FP + FN) of the classes 0 and 1; a prediction of at least `threshold` is a 1."""

    def __init__(
        self,
        target_class_ids: Sequence[int] = (0, 1),
        threshold: float = 0.5,
        name: str | None = None,
        dtype: Any = None,
    ) -> None:
        super().__init__(2, target_class_ids, name, dtype)
        self.threshold = threshold

    def update_state(self, y_true: Any, y_pred: Any, sample_weight: Any = None) -> None:
        """Take in a batch: targets of 0 and 1, predictions, and a weight for each of them."""
        above = wnp.asarray(y_pred).astype("float32") >= self.threshold
        super().update_state(y_true, above.astype("int32"), sample_weight)

    def get_config(self) -> dict[str, Any]:
        settings = self._config_without("num_classes", "ignore_class", "sparse_y_true", "sparse_y_pred", "axis")
        return {**settings, "threshold": self.threshold}


class MeanIoU(IoU):
    """The mean of TP / (TP + FP + FN) of all classes; the arguments are those of `IoU`.

    >>> from weft import keras
    >>> metric = keras.metrics.MeanIoU(num_classes=2)
    >>> metric.update_state([0, 0, 1, 1], [0, 1, 0, 1])
    >>> print(metric.result())
    0.33333334
    """

    def __init__(
        self,
        num_classes: int,
        name: str | None = None,
        dtype: Any = None,
        ignore_class: int | None = None,
        sparse_y_true: bool = True,
        sparse_y_pred: bool = True,
        axis: int = -1,
    ) -> None:
        super().__init__(num_classes, range(num_classes), name, dtype, ignore_class, sparse_y_true, sparse_y_pred, axis)

    def get_config(self) -> dict[str, Any]:
        return self._config_without("target_class_ids")


class OneHotIoU(IoU):
    """`IoU` of one-hot targets, and of scores as predictions unless `sparse_y_pred`."""

    def __init__(
        self,
        num_classes: int,
        target_class_ids: Sequence[int],
        name: str | None = None,
        dtype: Any = None,
        ignore_class: int | None = None,
        sparse_y_pred: bool = False,
        axis: int = -1,
    ) -> None:
        super().__init__(num_classes, target_class_ids, name, dtype, ignore_class, False, sparse_y_pred, axis)

    def get_config(self) -> dict[str, Any]:
        return self._config_without("sparse_y_true")


class OneHotMeanIoU(MeanIoU):
    """`MeanIoU` of one-hot targets, and of scores as predictions unless `sparse_y_pred`."""

    def __init__(
        self,
        num_classes: int,
        name: str | None = None,
        dtype: Any = None,
        ignore_class: int | None = None,
        sparse_y_pred: bool = False,
        axis: int = -1,
    ) -> None:
        super().__init__(num_classes, name, dtype, ignore_class, False, sparse_y_pred, axis)

    def get_config(self) -> dict[str, Any]:
        return self._config_without("target_class_ids", "sparse_y_true")
