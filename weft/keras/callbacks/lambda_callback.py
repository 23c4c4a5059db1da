"""A callback from functions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from weft.keras.callbacks.base import Callback


class LambdaCallback(Callback):
    """Calls functions at hooks.

    Args:
        on_epoch_begin, on_epoch_end: `f(epoch, logs)`.
        on_train_begin, on_train_end: `f(logs)`.
        on_train_batch_begin, on_train_batch_end: `f(batch, logs)`. These make training go batch by batch.
        **kwargs: any other hook of `Callback` by its name.

    >>> from weft.keras.callbacks import LambdaCallback
    >>> printing = LambdaCallback(on_epoch_end=lambda epoch, logs: print(epoch, logs["loss"]))
    >>> printing.on_epoch_end(1, {"loss": 0.5})
    1 0.5
    """

    def __init__(
        self,
        on_epoch_begin: Callable[..., Any] | None = None,
        on_epoch_end: Callable[..., Any] | None = None,
        on_train_begin: Callable[..., Any] | None = None,
        on_train_end: Callable[..., Any] | None = None,
        on_train_batch_begin: Callable[..., Any] | None = None,
        on_train_batch_end: Callable[..., Any] | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__()
        for name, function in {
            "on_epoch_begin": on_epoch_begin,
            "on_epoch_end": on_epoch_end,
            "on_train_begin": on_train_begin,
            "on_train_end": on_train_end,
            "on_train_batch_begin": on_train_batch_begin,
            "on_train_batch_end": on_train_batch_end,
            **kwargs,
        }.items():
            if name.startswith("on_") and not hasattr(Callback, name):
                raise TypeError(f"LambdaCallback: there is no hook {name!r}")
            if function is not None:
                setattr(self, name, function)
