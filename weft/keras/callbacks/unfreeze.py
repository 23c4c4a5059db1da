"""Fine-tuning: layers are set free when training has stopped to improve."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from weft.keras.callbacks.base import Logs
from weft.keras.callbacks.monitor import MonitorCallback
from weft.keras.callbacks.rates import find_optimizers, learning_rate


class UnfreezeOnPlateau(MonitorCallback):
    """Makes layers trainable, one group after the other, when a value has stopped to improve.

    Args:
        layers: what to set free: layers, names of layers of the model, or lists of them, each set free at once. The
            first group is set free first (the one nearest to the output, usually).
        monitor: name of the value in the logs.
        patience: how many epochs without improvement are waited for, each time.
        factor: what the learning rate is multiplied by, each time.
        min_delta: a change that is smaller is no improvement.
        mode: `min`, `max`, or `auto`: found from the metric.
        verbose: 1 prints what happens.

    The groups are frozen at the start of training.

    >>> from weft.keras.callbacks import UnfreezeOnPlateau
    >>> UnfreezeOnPlateau(["block_2", ["block_1", "stem"]], patience=2, factor=0.1).patience
    2
    """

    def __init__(
        self,
        layers: Sequence[Any],
        monitor: str = "val_loss",
        patience: int = 3,
        factor: float = 0.1,
        min_delta: float = 1e-4,
        mode: str = "auto",
        verbose: int = 0,
    ) -> None:
        super().__init__(monitor, mode, min_delta=min_delta)
        self.groups = [list(group) if isinstance(group, list | tuple) else [group] for group in layers]
        self.patience = patience
        self.factor = factor
        self.verbose = verbose
        self.wait = 0
        self.free = 0

    def get_state(self) -> Logs:
        return {"wait": self.wait, "best": self.best, "free": self.free}

    def set_state(self, state: Logs) -> None:
        self.wait, self.best = state["wait"], state["best"]
        self._set(state["free"])

    def on_train_begin(self, logs: Logs | None = None) -> None:
        self.wait = 0
        self.best = None
        self._set(0)

    def on_epoch_end(self, epoch: int, logs: Logs | None = None) -> None:
        current = self.read_monitor(logs)
        if current is None or self.free == len(self.groups):
            return
        if self.is_improvement(current, self.best):
            self.best = current
            self.wait = 0
            return
        self.wait += 1
        if self.wait < self.patience:
            return
        self.wait = 0
        self._set(self.free + 1)
        optimizers = find_optimizers(self.model, "UnfreezeOnPlateau")
        for optimizer in optimizers:
            optimizer.learning_rate = learning_rate(optimizer) * self.factor
        if self.verbose > 0:
            rate = ", ".join(str(learning_rate(optimizer)) for optimizer in optimizers)
            names = ", ".join(self._layer(layer).name for layer in self.groups[self.free - 1])
            print(f"\nEpoch {epoch + 1}: UnfreezeOnPlateau sets {names} free, learning rate {rate}.")

    def _set(self, free: int) -> None:
        self.free = free
        for i, group in enumerate(self.groups):
            for layer in group:
                self._layer(layer).trainable = i < free

    def _layer(self, layer: Any) -> Any:
        return self.model.get_layer(layer) if isinstance(layer, str) else layer
