"""Callbacks that look at one value of the logs and ask whether it has improved."""

from __future__ import annotations

import math
import warnings
from typing import Any

import numpy as np

from weft.keras import ops
from weft.keras.callbacks.base import Callback, Logs

# Parts of names of metrics that are better when larger; those that do not say so themselves are looked up here.
LARGER_IS_BETTER = ("acc", "auc", "precision", "recall", "f1", "fbeta", "iou", "r2", "similarity", "positives")
SMALLER_IS_BETTER = (
    "loss",
    "error",
    "crossentropy",
    "mse",
    "mae",
    "mape",
    "msle",
    "rmse",
    "hinge",
    "divergence",
    "logcosh",
)


class MonitorCallback(Callback):
    """Base of the callbacks that follow the best value of one metric.

    Args:
        monitor: the name in the logs, such as `val_loss`.
        mode: `min`, `max`, or `auto`: found from the metric.
        initial_value_threshold: the value that the first one must be better than; None if any is.
        min_delta: a change that is smaller is no improvement.
    """

    def __init__(
        self,
        monitor: str = "val_loss",
        mode: str = "auto",
        initial_value_threshold: float | None = None,
        min_delta: float = 0.0,
    ) -> None:
        super().__init__()
        if mode not in ("auto", "min", "max"):
            text = f"{type(self).__name__}: mode must be 'auto', 'min' or 'max', received {mode!r}; it is 'auto' now"
            warnings.warn(text, stacklevel=3)
            mode = "auto"
        self.monitor = monitor
        self.mode = mode
        self.best = initial_value_threshold
        self.min_delta = abs(min_delta)

    def read_monitor(self, logs: Logs | None) -> float | None:
        """Return the monitored value; warn and return None if the logs do not have it."""
        value = (logs or {}).get(self.monitor)
        if value is None:
            warnings.warn(
                f"{type(self).__name__}: there is no '{self.monitor}' to look at; there are: {', '.join(logs or ())}",
                stacklevel=3,
            )
            return None
        if np.size(value) != 1:
            received = f"an array of shape {np.shape(value)}"
            raise ValueError(f"{type(self).__name__}: '{self.monitor}' must be one value, received {received}")
        return float(np.reshape(value, ()))

    def is_improvement(self, value: float, reference: float | None) -> bool:
        """Return whether `value` is better than `reference` by more than `min_delta`."""
        if math.isnan(value):
            return False
        if reference is None or math.isnan(reference):
            return True
        if self.direction() == "max":
            return value - self.min_delta > reference
        return value + self.min_delta < reference

    @property
    def monitor_op(self) -> Any:
        """Comparison by which a value is better: `ops.greater` or `ops.less`."""
        return ops.greater if self.direction() == "max" else ops.less

    def direction(self) -> str:
        """Return "min" or "max"; for mode `auto` as the metric declares, else by its name."""
        if self.mode == "auto":
            self.mode = self._direction_of_metric(self.monitor.removeprefix("val_"))
        return self.mode

    def _direction_of_metric(self, name: str) -> str:
        if name == "loss" or name.endswith("_loss"):
            return "min"
        for metric in all_metrics(self.model):
            # Names of outputs come before those of metrics.
            if metric.name == name or name.endswith("_" + metric.name):
                said = getattr(metric, "_direction", None) or getattr(metric, "direction", None)
                if said in ("up", "down"):
                    return "max" if said == "up" else "min"
        lowered = name.lower()
        if any(part in lowered for part in SMALLER_IS_BETTER):
            return "min"
        if any(part in lowered for part in LARGER_IS_BETTER):
            return "max"
        raise ValueError(
            f"{type(self).__name__}: cannot tell whether '{self.monitor}' should become larger or smaller. "
            "Write mode='max' or mode='min'."
        )


def all_metrics(model: Any) -> list[Any]:
    """Return the metrics of a model, including those inside of others."""
    found: list[Any] = []
    todo = list(getattr(model, "metrics", None) or ())
    while todo:
        metric = todo.pop(0)
        found.append(metric)
        todo += list(getattr(metric, "metrics", None) or ())
    return found
