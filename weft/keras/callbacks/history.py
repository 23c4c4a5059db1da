"""What `fit` returns: the logs of its epochs."""

from __future__ import annotations

from typing import Any

from weft.keras.callbacks.base import Callback, Logs


class History(Callback):
    """The logs of all epochs: `history` by name, `epoch` the list of their indices. `fit` adds one and returns it.

    >>> from weft.keras.callbacks import History
    >>> history = History()
    >>> history.on_train_begin()
    >>> history.on_epoch_end(0, {"loss": 2.0})
    >>> history.on_epoch_end(1, {"loss": 1.0})
    >>> history.history, history.epoch
    ({'loss': [2.0, 1.0]}, [0, 1])
    """

    def __init__(self) -> None:
        super().__init__()
        self.history: dict[str, list[Any]] = {}
        self.epoch: list[int] = []

    def get_state(self) -> Logs:
        return {"history": self.history, "epoch": self.epoch}

    def set_state(self, state: Logs) -> None:
        self.history, self.epoch = state["history"], state["epoch"]

    def on_train_begin(self, logs: Logs | None = None) -> None:
        self.epoch = []

    def on_epoch_end(self, epoch: int, logs: Logs | None = None) -> None:
        self.epoch.append(epoch)
        for name, value in (logs or {}).items():
            self.history.setdefault(name, []).append(value)
