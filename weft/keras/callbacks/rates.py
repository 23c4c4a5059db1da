"""Callbacks that change the learning rate."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from weft.keras.callbacks.base import Callback, Logs
from weft.keras.callbacks.monitor import MonitorCallback


def find_optimizers(model: Any, who: str | None = None) -> list[Any]:
    """Return the optimizers of a model that have a learning rate of their own.

    Args:
        model: a model.
        who: the callback that needs a learning rate, for its error; None if there may be none.
    """
    optimizer = getattr(model, "optimizer", None)
    inner = getattr(optimizer, "inner_optimizer", optimizer)
    found = [one for one in getattr(inner, "optimizers", (optimizer,)) if hasattr(one, "learning_rate")]
    if not found and who is not None:
        raise ValueError(f"{who}: the model's optimizer needs a learning_rate, received {optimizer!r}")
    return found


def learning_rate(optimizer: Any) -> float:
    """Return the learning rate that an optimizer has now."""
    return float(np.asarray(optimizer.learning_rate))


class LearningRateScheduler(Callback):
    """Sets the learning rate at the start of each epoch.

    Args:
        schedule: `schedule(epoch, learning_rate) -> float`, or `schedule(epoch) -> float`.
        verbose: 1 prints the new rate.

    >>> from weft.keras.callbacks import LearningRateScheduler
    >>> halving = LearningRateScheduler(lambda epoch, rate: rate / 2)
    """

    def __init__(self, schedule: Callable[..., float], verbose: int = 0) -> None:
        super().__init__()
        if not callable(schedule):
            raise TypeError(f"LearningRateScheduler: schedule must be a function of the epoch, received {schedule!r}")
        self.schedule = schedule
        self.verbose = verbose
        self._arguments = _positional_count(schedule)

    def on_epoch_begin(self, epoch: int, logs: Logs | None = None) -> None:
        for optimizer in find_optimizers(self.model, "LearningRateScheduler"):
            self._schedule(optimizer, epoch)

    def _schedule(self, optimizer: Any, epoch: int) -> None:
        rate = self.schedule(*(epoch, learning_rate(optimizer))[: self._arguments])
        if not isinstance(rate, float | np.floating) and np.shape(rate) != ():
            raise ValueError(f"LearningRateScheduler: the schedule must return a float, it returned {rate!r}")
        if isinstance(rate, str | bytes) or rate is None:
            raise ValueError(f"LearningRateScheduler: the schedule must return a float, it returned {rate!r}")
        optimizer.learning_rate = float(rate)
        if self.verbose > 0:
            print(f"\nEpoch {epoch + 1}: LearningRateScheduler sets the learning rate to {float(rate)}.")

    def on_epoch_end(self, epoch: int, logs: Logs | None = None) -> None:
        if logs is not None:
            logs.update(learning_rates(find_optimizers(self.model, "LearningRateScheduler")))


def learning_rates(optimizers: Sequence[Any]) -> Logs:
    """Return the entries of the logs for learning rates: `learning_rate`, or `learning_rate_<i>` of several."""
    if len(optimizers) == 1:
        return {"learning_rate": learning_rate(optimizers[0])}
    return {f"learning_rate_{i}": learning_rate(optimizer) for i, optimizer in enumerate(optimizers)}


def _positional_count(schedule: Callable[..., float]) -> int:
    """Return the number of positional arguments that a schedule takes, at most two."""
    try:
        signature = inspect.signature(schedule)
    except (TypeError, ValueError):
        return 2
    kinds = [p.kind for p in signature.parameters.values()]
    if inspect.Parameter.VAR_POSITIONAL in kinds:
        return 2
    positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return min(2, sum(kind in positional for kind in kinds))


class ReduceLROnPlateau(MonitorCallback):
    """Multiplies the learning rate by `factor` when a value has stopped to improve.

    Args:
        monitor: name of the value in the logs.
        factor: below 1.
        patience: how many epochs without improvement are waited for.
        verbose: 1 prints what happens.
        mode: `min`, `max`, or `auto`: found from the metric.
        min_delta: a change that is smaller is no improvement.
        cooldown: how many epochs after a change are not counted.
        min_lr: the rate never gets below this.

    >>> from weft.keras.callbacks import ReduceLROnPlateau
    >>> ReduceLROnPlateau(factor=0.5, patience=2).factor
    0.5
    """

    def __init__(
        self,
        monitor: str = "val_loss",
        factor: float = 0.1,
        patience: int = 10,
        verbose: int = 0,
        mode: str = "auto",
        min_delta: float = 1e-4,
        cooldown: int = 0,
        min_lr: float = 0.0,
    ) -> None:
        super().__init__(monitor, mode, min_delta=min_delta)
        if factor >= 1.0:
            raise ValueError(f"ReduceLROnPlateau: factor must be below 1, received {factor}")
        self.factor = factor
        self.patience = patience
        self.verbose = verbose
        self.cooldown = cooldown
        self.min_lr = min_lr
        self.cooldown_counter = 0
        self.wait = 0

    def get_state(self) -> Logs:
        return {"wait": self.wait, "best": self.best, "cooldown_counter": self.cooldown_counter}

    def set_state(self, state: Logs) -> None:
        for name, value in state.items():
            setattr(self, name, value)

    def on_train_begin(self, logs: Logs | None = None) -> None:
        self.best = None
        self.cooldown_counter = 0
        self.wait = 0

    def on_epoch_end(self, epoch: int, logs: Logs | None = None) -> None:
        logs = {} if logs is None else logs
        optimizers = find_optimizers(self.model, "ReduceLROnPlateau")
        logs.update(learning_rates(optimizers))
        # A name that no metric has is an error, and not a value that is missing in this epoch.
        self.direction()
        current = self.read_monitor(logs)
        if current is None:
            return
        if self.in_cooldown():
            self.cooldown_counter -= 1
            self.wait = 0
        if self.is_improvement(current, self.best):
            self.best = current
            self.wait = 0
        elif not self.in_cooldown():
            self.wait += 1
            larger = [one for one in optimizers if learning_rate(one) > float(np.float32(self.min_lr))]
            if self.wait >= self.patience and larger:
                for optimizer in larger:
                    rate = max(learning_rate(optimizer) * self.factor, self.min_lr)
                    optimizer.learning_rate = rate
                    if self.verbose > 0:
                        print(f"\nEpoch {epoch + 1}: ReduceLROnPlateau reduces the learning rate to {rate}.")
                self.cooldown_counter = self.cooldown
                self.wait = 0

    def in_cooldown(self) -> bool:
        """Return whether the last change is too recent for another one."""
        return self.cooldown_counter > 0
