"""The area under a curve of rates at many thresholds."""

from __future__ import annotations

from typing import Any

import numpy as np

import weft.numpy as wnp
from weft import Array, nn
from weft.errors import ArgumentError
from weft.keras.core import config
from weft.keras.metrics.confusion import _AtThresholds
from weft.keras.metrics.counts import are_even, even_thresholds
from weft.keras.ops.numpy import divide_no_nan

_CURVES = ("ROC", "PR", "PRGAIN")
_SUMMATIONS = ("interpolation", "majoring", "minoring")


class AUC(_AtThresholds):
    """The area under the ROC or the precision-recall curve, as a Riemann sum over thresholds.

    Args:
        num_thresholds: how many thresholds there are from 0 to 1, in equal steps.
        curve: "ROC" (true over false positive rate), "PR" (precision over recall) or "PRGAIN" (their gains).
        summation_method: "interpolation" (trapezoids; for PR that of Davis and Goadrich), "majoring" or "minoring".
        name: what histories call it.
        dtype: as of `Metric`.
        thresholds: thresholds between 0 and 1, instead of equal steps.
        multi_label: whether each entry of the last axis has a curve of its own; the result is the mean of the areas.
        num_labels: how many such entries there are; needed to create the variables before the first batch.
        label_weights: a weight for each entry: of its area with `multi_label`, else of its predictions.
        from_logits: whether predictions are logits.

    >>> from weft import keras
    >>> metric = keras.metrics.AUC(num_thresholds=3)
    >>> metric.update_state([0, 0, 1, 1], [0.0, 0.5, 0.3, 0.9])
    >>> print(metric.result())
    0.75
    """

    _direction = "up"

    def __init__(
        self,
        num_thresholds: int = 200,
        curve: str = "ROC",
        summation_method: str = "interpolation",
        name: str | None = None,
        dtype: Any = None,
        thresholds: Any = None,
        multi_label: bool = False,
        num_labels: int | None = None,
        label_weights: Any = None,
        from_logits: bool = False,
    ) -> None:
        super().__init__(name=name, dtype=dtype)
        self.curve = _choice("curve", str(curve).upper(), _CURVES)
        self.summation_method = _choice("summation_method", str(summation_method).lower(), _SUMMATIONS)
        self._init_from_thresholds = thresholds is not None
        if thresholds is None:
            if num_thresholds <= 1:
                raise ArgumentError("AUC: `num_thresholds` is at least 2.", received=f"num_thresholds={num_thresholds}")
            listed = even_thresholds(num_thresholds)
            self._even = True
        else:
            listed = [0.0, *sorted(thresholds), 1.0]
            self._even = are_even(listed)
        self.num_thresholds = len(listed)
        # All predictions are above the first, and none above the last.
        self._thresholds = [0.0 - config.epsilon(), *listed[1:-1], 1.0 + config.epsilon()]
        self.multi_label = multi_label
        self.num_labels = num_labels
        self.label_weights = None if label_weights is None else np.asarray(label_weights, self.dtype)
        self._from_logits = from_logits
        self._built = False
        if num_labels and not multi_label:
            raise ArgumentError(
                "AUC: `num_labels` is for `multi_label=True` only.", received=f"num_labels={num_labels}"
            )
        if not multi_label:
            self._build(())
        elif num_labels:
            self._build((num_labels,))

    def _build(self, shape: tuple[int, ...]) -> None:
        self._add_counts(self._thresholds, self._even, shape)
        self._built = True

    def update_state(self, y_true: Any, y_pred: Any, sample_weight: Any = None) -> None:
        """Take in a batch: targets, predictions, and weights for them."""
        y_pred = wnp.asarray(y_pred)
        if not self._built:
            if y_pred.ndim != 2:
                raise ArgumentError(
                    f"{self.name}: with `multi_label=True`, predictions must have two axes, [batch, labels].",
                    received=f"y_pred of shape {y_pred.shape}",
                )
            self._build((y_pred.shape[1],))
        if self._from_logits:
            y_pred = nn.sigmoid(y_pred)
        options = {} if self.multi_label else {"label_weights": self.label_weights}
        self._count(y_true, y_pred, sample_weight, multi_label=self.multi_label, **options)

    def _average(self, terms: Array) -> Array:
        if not self.multi_label:
            return wnp.sum(terms)
        areas = wnp.sum(terms, axis=0)
        if self.label_weights is None:
            return wnp.mean(areas)
        return divide_no_nan(wnp.sum(areas * self.label_weights), wnp.sum(wnp.asarray(self.label_weights)))

    def interpolate_pr_auc(self) -> Array:
        """Compute the area under the precision-recall curve, interpolated as in Davis and Goadrich (2006).

        Between thresholds the count of true positives grows in a fixed proportion to the count of positives.
        """
        right, missed = self._accumulator("true_positives"), self._accumulator("false_negatives")
        positives = right + self._accumulator("false_positives")
        gained = right[:-1] - right[1:]
        share = divide_no_nan(gained, wnp.maximum(positives[:-1] - positives[1:], 0))
        offset = right[1:] - share * positives[1:]
        both = (positives[:-1] > 0) & (positives[1:] > 0)
        growth = wnp.where(both, divide_no_nan(positives[:-1], positives[1:]), 1.0)
        terms = share * (gained + offset * wnp.log(growth))
        return self._average(divide_no_nan(terms, wnp.maximum(right[1:] + missed[1:], 0)))

    def _curve(self) -> tuple[Array, Array]:
        """Return the coordinates of the curve's points."""
        recall = self._ratio("true_positives", "false_negatives")
        if self.curve == "ROC":
            return self._ratio("false_positives", "true_negatives"), recall
        if self.curve == "PR":
            return recall, self._ratio("true_positives", "false_positives")
        right, false, true_negatives, missed = (self._accumulator(name) for name in self._counted)
        scale = divide_no_nan(right + missed, true_negatives + false)
        none = right == 0.0
        recall_gain = wnp.where(none, 0.0, 1.0 - scale * divide_no_nan(missed, right))
        precision_gain = wnp.where(none, 1.0, 1.0 - scale * divide_no_nan(false, right))
        return wnp.maximum(recall_gain, 0.0), precision_gain

    def result(self) -> Array:
        if self.curve == "PR" and self.summation_method == "interpolation":
            return self.interpolate_pr_auc()
        x, y = self._curve()
        if self.summation_method == "interpolation":
            heights = (y[:-1] + y[1:]) / 2.0
        else:
            choose = wnp.minimum if self.summation_method == "minoring" else wnp.maximum
            heights = choose(y[:-1], y[1:])
        return self._average((x[:-1] - x[1:]) * heights)

    def get_config(self) -> dict[str, Any]:
        settings = {
            **super().get_config(),
            "num_thresholds": self.num_thresholds,
            "curve": self.curve,
            "summation_method": self.summation_method,
            "multi_label": self.multi_label,
            "num_labels": self.num_labels,
            "label_weights": None if self.label_weights is None else self.label_weights.tolist(),
            "from_logits": self._from_logits,
        }
        if self._init_from_thresholds:
            settings["thresholds"] = self.thresholds[1:-1]
        return settings


def _choice(what: str, value: str, accepted: tuple[str, ...]) -> str:
    if value not in accepted:
        raise ArgumentError(f"AUC: `{what}` must be one of {', '.join(accepted)}.", received=f"{what}={value!r}")
    return value
