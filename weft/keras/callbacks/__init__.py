"""Callbacks: what `fit`, `evaluate` and `predict` tell while they run, and what may act on it."""

import importlib as _importlib
from typing import Any as _Any

from weft.errors import publish as _publish
from weft.keras.callbacks.base import Callback
from weft.keras.callbacks.callback_list import CallbackList
from weft.keras.callbacks.history import History
from weft.keras.callbacks.progress import Progbar, ProgbarLogger

# Imported when they are first used: what they need (mail, HTTP, checkpoints) takes long to import.
_LATER = {
    "BackupAndRestore": "backup",
    "CSVLogger": "csv_logger",
    "EarlyStopping": "stopping",
    "LambdaCallback": "lambda_callback",
    "LearningRateScheduler": "rates",
    "LiveCurves": "curves",
    "MailOnThreshold": "mail",
    "ModelCheckpoint": "checkpoint",
    "MonitorCallback": "monitor",
    "OrbaxCheckpoint": "checkpoint",
    "ReduceLROnPlateau": "rates",
    "RemoteMonitor": "remote",
    "SwapEMAWeights": "swap_ema",
    "TensorBoard": "tensorboard",
    "TerminateOnNaN": "stopping",
    "UnfreezeOnPlateau": "unfreeze",
}

__all__ = ["Callback", "CallbackList", "History", "Progbar", "ProgbarLogger", *_LATER]


def __getattr__(name: str) -> _Any:
    if name in _LATER:
        return getattr(_importlib.import_module(f"weft.keras.callbacks.{_LATER[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *_LATER})


_publish(__name__, later=list(_LATER))
