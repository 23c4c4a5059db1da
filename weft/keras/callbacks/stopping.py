"""Callbacks that end training."""

from __future__ import annotations

import math
from typing import Any

from weft.keras.callbacks.base import Callback, Logs
from weft.keras.callbacks.monitor import MonitorCallback


class EarlyStopping(MonitorCallback):
    """Ends training when a value has stopped to improve.

    Args:
        monitor: name of the value in the logs.
        min_delta: a change that is smaller is no improvement.
        patience: how many epochs without improvement are waited for.
        verbose: 1 prints what happens.
        mode: `min`, `max`, or `auto`: found from the metric.
        baseline: the value must also be better than this.
        restore_best_weights: whether the model gets the weights of the best epoch at the end.
        start_from_epoch: earlier epochs are not looked at.

    >>> from weft.keras.callbacks import EarlyStopping
    >>> EarlyStopping(monitor="val_accuracy", patience=3).patience
    3
    """

    def __init__(
        self,
        monitor: str = "val_loss",
        min_delta: float = 0,
        patience: int = 0,
        verbose: int = 0,
        mode: str = "auto",
        baseline: float | None = None,
        restore_best_weights: bool = False,
        start_from_epoch: int = 0,
    ) -> None:
        super().__init__(monitor, mode, min_delta=min_delta)
        self.patience = patience
        self.verbose = verbose
        self.baseline = baseline
        self.restore_best_weights = restore_best_weights
        self.start_from_epoch = start_from_epoch
        self.wait = 0
        self.stopped_epoch = 0
        self.best_epoch = 0
        self.best_weights: list[Any] | None = None

    def get_state(self) -> Logs:
        weights = None if self.best_weights is None else list(self.best_weights)
        return {
            "wait": self.wait,
            "stopped_epoch": self.stopped_epoch,
            "best": self.best,
            "best_epoch": self.best_epoch,
            "best_weights": weights,
        }

    def set_state(self, state: Logs) -> None:
        for name, value in state.items():
            setattr(self, name, value)

    def on_train_begin(self, logs: Logs | None = None) -> None:
        self.wait = 0
        self.stopped_epoch = 0
        self.best = None
        self.best_epoch = 0
        self.best_weights = None

    def on_epoch_end(self, epoch: int, logs: Logs | None = None) -> None:
        # A name that no metric has is an error, and not a value that is missing in this epoch.
        self.direction()
        current = self.read_monitor(logs)
        if current is None or epoch < self.start_from_epoch:
            return
        if self.restore_best_weights and self.best_weights is None:
            # If nothing ever improves there must still be weights to go back to.
            self._remember(epoch)
        self.wait += 1
        if self.is_improvement(current, self.best):
            self.best = current
            self.best_epoch = epoch
            if self.restore_best_weights:
                self._remember(epoch)
            if self.baseline is None or self.is_improvement(current, self.baseline):
                self.wait = 0
            return
        if self.wait >= self.patience and epoch > 0:
            self.stopped_epoch = epoch
            self.model.stop_training = True

    def on_train_end(self, logs: Logs | None = None) -> None:
        if self.stopped_epoch > 0 and self.verbose > 0:
            print(f"Epoch {self.stopped_epoch + 1}: early stopping")
        if self.restore_best_weights and self.best_weights is not None:
            if self.verbose > 0:
                print(f"Restoring the weights of the best epoch: {self.best_epoch + 1}.")
            self.model.set_weights(self.best_weights)

    def _remember(self, epoch: int) -> None:
        # Arrays do not change, so references are enough: nothing is copied.
        self.best_weights = [variable.value for variable in self.model.weights]
        self.best_epoch = epoch


class TerminateOnNaN(Callback):
    """Ends training when the loss is NaN or infinite. It looks at the end of chunks.

    Args:
        raise_error: whether that raises `RuntimeError` instead.

    >>> from weft.keras.callbacks import TerminateOnNaN
    >>> TerminateOnNaN(raise_error=True).on_train_chunk_end(7, {"loss": float("nan")})
    Traceback (most recent call last):
    ...
    RuntimeError: The loss of batch 7 is nan: training ends
    """

    def __init__(self, raise_error: bool = False) -> None:
        super().__init__()
        self.raise_error = raise_error

    def on_train_chunk_end(self, batch: int, logs: Logs | None = None) -> None:
        loss = (logs or {}).get("loss")
        if loss is not None and not math.isfinite(loss):
            message = f"The loss of batch {batch} is {float(loss)}: training ends"
            if self.raise_error:
                raise RuntimeError(message)
            print(message)
            self.model.stop_training = True

    def on_epoch_end(self, epoch: int, logs: Logs | None = None) -> None:
        if not self.model.stop_training:
            self.on_train_chunk_end((self.params or {}).get("steps") or 0, logs)
