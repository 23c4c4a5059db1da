"""The average of the weights in place of the weights."""

from __future__ import annotations

from typing import Any

from weft.keras.callbacks.base import Callback, Logs


class SwapEMAWeights(Callback):
    """Evaluates (and saves) with the average of the weights that an optimizer with `use_ema=True` computes.

    Args:
        swap_on_epoch: also swap at the end of each epoch, so that callbacks that come later (`ModelCheckpoint`) see the
            average. At the end of training the weights are the average then.

    >>> from weft.keras.callbacks import SwapEMAWeights
    >>> SwapEMAWeights(swap_on_epoch=True).swap_on_epoch
    True
    """

    def __init__(self, swap_on_epoch: bool = False) -> None:
        super().__init__()
        self.swap_on_epoch = swap_on_epoch
        self._swapped = False
        self._averages: list[Any] = []

    def get_state(self) -> Logs:
        return {"swapped": self._swapped}

    def set_state(self, state: Logs) -> None:
        self._swapped = state["swapped"]

    def on_epoch_begin(self, epoch: int, logs: Logs | None = None) -> None:
        if self._swapped:
            self._swap()

    def on_epoch_end(self, epoch: int, logs: Logs | None = None) -> None:
        if self.swap_on_epoch and not self._swapped:
            self._swap()
        # `fit` ends by copying the slots of the averages into the weights, and these slots hold the raw weights now.
        self._averages = [variable.value for variable, _ in self._pairs()] if self._swapped else []

    def on_train_end(self, logs: Logs | None = None) -> None:
        if self._averages:
            for (variable, average), value in zip(self._pairs(), self._averages, strict=True):
                variable.assign(value)
                average.assign(value)
        self._averages = []
        self._swapped = False

    def on_test_begin(self, logs: Logs | None = None) -> None:
        if not self._swapped:
            self._swap()

    def on_test_end(self, logs: Logs | None = None) -> None:
        if self._swapped:
            self._swap()

    def on_predict_begin(self, logs: Logs | None = None) -> None:
        if not self._swapped:
            self._swap()

    def on_predict_end(self, logs: Logs | None = None) -> None:
        if self._swapped:
            self._swap()

    def _swap(self) -> None:
        for variable, average in self._pairs():
            value = variable.value
            variable.assign(average.value)
            average.assign(value)
        self._swapped = not self._swapped

    def _pairs(self) -> list[tuple[Any, Any]]:
        return ema_variables(getattr(self.model, "optimizer", None))


def ema_variables(optimizer: Any) -> list[tuple[Any, Any]]:
    """Return pairs of a variable and its average: those of the inner optimizers where an optimizer has some."""
    inner = getattr(optimizer, "inner_optimizer", optimizer)
    averaging = [one for one in getattr(inner, "optimizers", (inner,)) if getattr(one, "use_ema", False)]
    if not averaging:
        raise ValueError(f"SwapEMAWeights: the optimizer must have use_ema=True, received {optimizer!r}")
    return [pair for one in averaging for pair in one.averages()]
