"""Metrics of right and wrong predictions at a threshold: counts, precision, recall, and one of a pair at the other."""

from __future__ import annotations

from typing import Any

import weft.numpy as wnp
from weft import Array
from weft.errors import ArgumentError
from weft.keras.core.variable import Variable
from weft.keras.metrics.base import Metric
from weft.keras.metrics.counts import LOWEST, Counts, are_even, count, even_thresholds, threshold_list
from weft.keras.ops.numpy import divide_no_nan


class _AtThresholds(Metric):
    """Accumulates some of the four counts, at one threshold or several, in variables of their names."""

    _counted: tuple[str, ...] = Counts._fields
    _thresholds: list[float]
    _even: bool

    def _add_counts(self, thresholds: list[float], even: bool, shape: tuple[int, ...] = ()) -> None:
        self._thresholds, self._even = thresholds, even
        for name in self._counted:
            setattr(self, name, self.add_variable((len(thresholds), *shape), name=name))

    @property
    def thresholds(self) -> list[float]:
        """The thresholds: predictions that are greater are positive."""
        return list(self._thresholds)

    def _accumulator(self, name: str) -> Array:
        variable: Variable = getattr(self, name)
        return variable.value

    def _count(self, y_true: Any, y_pred: Any, sample_weight: Any, **options: Any) -> None:
        dtype = getattr(self, self._counted[0]).dtype
        counts = count(
            self.name,
            y_true,
            y_pred,
            self._thresholds,
            even=self._even,
            dtype=dtype,
            sample_weight=sample_weight,
            **options,
        )
        for name in self._counted:
            getattr(self, name).assign_add(getattr(counts, name))

    def _ratio(self, name: str, other: str) -> Array:
        value = self._accumulator(name)
        return divide_no_nan(value, value + self._accumulator(other))

    def _unwrap(self, values: Array) -> Array:
        return values[0] if len(self._thresholds) == 1 else values


class _Count(_AtThresholds):
    """One of the four counts, in a variable `accumulator`."""

    _counted = ("accumulator",)
    _field: str

    def __init__(self, thresholds: Any = None, name: str | None = None, dtype: Any = None) -> None:
        super().__init__(name=name, dtype=dtype)
        self.init_thresholds = thresholds
        listed = threshold_list(self.name, thresholds)
        self._add_counts(listed, are_even(listed))

    def update_state(self, y_true: Any, y_pred: Any, sample_weight: Any = None) -> None:
        """Take in a batch: targets, predictions, and weights for them."""
        accumulator: Variable = self.accumulator  # type: ignore[attr-defined]
        counts = count(
            self.name,
            y_true,
            y_pred,
            self._thresholds,
            even=self._even,
            dtype=accumulator.dtype,
            sample_weight=sample_weight,
        )
        accumulator.assign_add(getattr(counts, self._field))

    def result(self) -> Array:
        return self._unwrap(self._accumulator("accumulator"))

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "thresholds": self.init_thresholds}


class TruePositives(_Count):
    """How many predictions above `thresholds` (one or a list; 0.5 if None) have true targets, by weight.

    Args:
        thresholds: predictions above are positive; one value, or a list for as many results. 0.5 if None.
        name, dtype: as of `Metric`.

    >>> from weft import keras
    >>> print(keras.metrics.TruePositives()([0, 1, 1], [0.2, 0.3, 0.8]))
    1.0
    """

    _direction = "up"
    _field = "true_positives"


class FalsePositives(_Count):
    """How many predictions above `thresholds` (one or a list; 0.5 if None) have false targets, by weight.

    Args:
        thresholds: predictions above are positive; one value, or a list for as many results. 0.5 if None.
        name, dtype: as of `Metric`.

    >>> from weft import keras
    >>> print(keras.metrics.FalsePositives()([0, 1, 1], [0.2, 0.3, 0.8]))
    0.0
    """

    _direction = "down"
    _field = "false_positives"


class TrueNegatives(_Count):
    """How many predictions not above `thresholds` (one or a list; 0.5 if None) have false targets, by weight.

    Args:
        thresholds: predictions above are positive; one value, or a list for as many results. 0.5 if None.
        name, dtype: as of `Metric`.

    >>> from weft import keras
    >>> print(keras.metrics.TrueNegatives()([0, 1, 1], [0.2, 0.3, 0.8]))
    1.0
    """

    _direction = "up"
    _field = "true_negatives"


class FalseNegatives(_Count):
    """How many predictions not above `thresholds` (one or a list; 0.5 if None) have true targets, by weight.

    Args:
        thresholds: predictions above are positive; one value, or a list for as many results. 0.5 if None.
        name, dtype: as of `Metric`.

    >>> from weft import keras
    >>> print(keras.metrics.FalseNegatives()([0, 1, 1], [0.2, 0.3, 0.8]))
    1.0
    """

    _direction = "down"
    _field = "false_negatives"


class _RatioOfTrue(_AtThresholds):
    """Precision and recall: true positives over those and another count."""

    _direction = "up"

    def __init__(
        self,
        thresholds: Any = None,
        top_k: int | None = None,
        class_id: int | None = None,
        name: str | None = None,
        dtype: Any = None,
    ) -> None:
        super().__init__(name=name, dtype=dtype)
        self.init_thresholds = thresholds
        self.top_k = top_k
        self.class_id = class_id
        listed = threshold_list(self.name, thresholds, 0.5 if top_k is None else LOWEST)
        self._add_counts(listed, are_even(listed))

    def update_state(self, y_true: Any, y_pred: Any, sample_weight: Any = None) -> None:
        """Take in a batch: targets, predictions, and weights for them."""
        self._count(y_true, y_pred, sample_weight, top_k=self.top_k, class_id=self.class_id)

    def result(self) -> Array:
        return self._unwrap(self._ratio(*self._counted))

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "thresholds": self.init_thresholds,
            "top_k": self.top_k,
            "class_id": self.class_id,
        }


class Precision(_RatioOfTrue):
    """How many of the positive predictions have true targets.

    Args:
        thresholds: predictions above are positive; one value, or a list for as many results. 0.5 if None.
        top_k: only so many of the largest predictions of each row may be positive (all of them, without thresholds).
        class_id: the one class that counts.
        name: what histories call it.
        dtype: as of `Metric`.

    >>> from weft import keras
    >>> metric = keras.metrics.Precision()
    >>> metric.update_state([0, 1, 1, 1], [1.0, 0.0, 1.0, 1.0])
    >>> print(metric.result())
    0.6666667
    """

    _counted = ("true_positives", "false_positives")


class Recall(_RatioOfTrue):
    """How many of the true targets have positive predictions.

    Args:
        thresholds: predictions above are positive; one value, or a list for as many results. 0.5 if None.
        top_k: only so many of the largest predictions of each row may be positive (all of them, without thresholds).
        class_id: the one class that counts.
        name: what histories call it.
        dtype: as of `Metric`.

    >>> from weft import keras
    >>> metric = keras.metrics.Recall()
    >>> metric.update_state([0, 1, 1, 1], [1.0, 0.0, 1.0, 1.0])
    >>> print(metric.result())
    0.6666667
    """

    _counted = ("true_positives", "false_negatives")


class _BestAt(_AtThresholds):
    """The largest of one ratio over those thresholds at which another is at least a value."""

    _direction = "up"
    _required: str  # the argument with the least value of the other ratio
    _ratios: tuple[tuple[str, str], tuple[str, str]]  # the ratio that is required, and the one that is the result

    def _start(self, value: float, num_thresholds: int, class_id: int | None, name: str | None, dtype: Any) -> None:
        super().__init__(name=name, dtype=dtype)
        if not 0 <= value <= 1:
            raise ArgumentError(
                f"{type(self).__name__}: `{self._required}` must be in [0, 1].", received=f"{self._required}={value}"
            )
        if num_thresholds <= 0:
            raise ArgumentError(
                f"{type(self).__name__}: `num_thresholds` is at least 1.", received=f"num_thresholds={num_thresholds}"
            )
        self.value = value
        setattr(self, self._required, value)
        self.num_thresholds = num_thresholds
        self.class_id = class_id
        single = num_thresholds == 1
        self._add_counts([0.5] if single else even_thresholds(num_thresholds), not single)

    def update_state(self, y_true: Any, y_pred: Any, sample_weight: Any = None) -> None:
        """Take in a batch: targets, predictions, and weights for them."""
        self._count(y_true, y_pred, sample_weight, class_id=self.class_id)

    def result(self) -> Array:
        required, wanted = (self._ratio(*names) for names in self._ratios)
        return wnp.max(wnp.where(required >= self.value, wanted, 0))

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "class_id": self.class_id,
            "num_thresholds": self.num_thresholds,
            self._required: self.value,
        }


_SENSITIVITY = ("true_positives", "false_negatives")
_SPECIFICITY = ("true_negatives", "false_positives")
_PRECISION = ("true_positives", "false_positives")


class SensitivityAtSpecificity(_BestAt):
    """The best sensitivity TP / (TP + FN) where the specificity TN / (TN + FP) is at least `specificity`.

    `num_thresholds` are tried, in equal steps; with `class_id` one class counts.

    Args:
        specificity: the least specificity.
        num_thresholds: how many thresholds are tried, in equal steps from 0 to 1.
        class_id: the one class that counts.
        name, dtype: as of `Metric`.

    >>> from weft import keras
    >>> print(keras.metrics.SensitivityAtSpecificity(0.5)([0, 0, 1, 1], [0.0, 0.4, 0.3, 0.9]))
    1.0
    """

    _required = "specificity"
    _ratios = (_SPECIFICITY, _SENSITIVITY)

    def __init__(
        self,
        specificity: float,
        num_thresholds: int = 200,
        class_id: int | None = None,
        name: str | None = None,
        dtype: Any = None,
    ) -> None:
        self._start(specificity, num_thresholds, class_id, name, dtype)


class SpecificityAtSensitivity(_BestAt):
    """The best specificity TN / (TN + FP) where the sensitivity TP / (TP + FN) is at least `sensitivity`.

    `num_thresholds` are tried, in equal steps; with `class_id` one class counts.

    Args:
        sensitivity: the least sensitivity.
        num_thresholds: how many thresholds are tried, in equal steps from 0 to 1.
        class_id: the one class that counts.
        name, dtype: as of `Metric`.

    >>> from weft import keras
    >>> print(keras.metrics.SpecificityAtSensitivity(0.5)([0, 0, 1, 1], [0.0, 0.4, 0.3, 0.9]))
    1.0
    """

    _required = "sensitivity"
    _ratios = (_SENSITIVITY, _SPECIFICITY)

    def __init__(
        self,
        sensitivity: float,
        num_thresholds: int = 200,
        class_id: int | None = None,
        name: str | None = None,
        dtype: Any = None,
    ) -> None:
        self._start(sensitivity, num_thresholds, class_id, name, dtype)


class PrecisionAtRecall(_BestAt):
    """The best precision TP / (TP + FP) where the recall TP / (TP + FN) is at least `recall`.

    `num_thresholds` are tried, in equal steps; with `class_id` one class counts.

    Args:
        recall: the least recall.
        num_thresholds: how many thresholds are tried, in equal steps from 0 to 1.
        class_id: the one class that counts.
        name, dtype: as of `Metric`.

    >>> from weft import keras
    >>> print(keras.metrics.PrecisionAtRecall(0.5)([0, 0, 1, 1], [0.0, 0.4, 0.3, 0.9]))
    1.0
    """

    _required = "recall"
    _ratios = (_SENSITIVITY, _PRECISION)

    def __init__(
        self,
        recall: float,
        num_thresholds: int = 200,
        class_id: int | None = None,
        name: str | None = None,
        dtype: Any = None,
    ) -> None:
        self._start(recall, num_thresholds, class_id, name, dtype)


class RecallAtPrecision(_BestAt):
    """The best recall TP / (TP + FN) where the precision TP / (TP + FP) is at least `precision`.

    `num_thresholds` are tried, in equal steps; with `class_id` one class counts.

    Args:
        precision: the least precision.
        num_thresholds: how many thresholds are tried, in equal steps from 0 to 1.
        class_id: the one class that counts.
        name, dtype: as of `Metric`.

    >>> from weft import keras
    >>> print(keras.metrics.RecallAtPrecision(0.5)([0, 0, 1, 1], [0.0, 0.4, 0.3, 0.9]))
    1.0
    """

    _required = "precision"
    _ratios = (_PRECISION, _SENSITIVITY)

    def __init__(
        self,
        precision: float,
        num_thresholds: int = 200,
        class_id: int | None = None,
        name: str | None = None,
        dtype: Any = None,
    ) -> None:
        self._start(precision, num_thresholds, class_id, name, dtype)
