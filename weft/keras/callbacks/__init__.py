"""Callbacks: what `fit`, `evaluate` and `predict` tell while they run, and what may act on it."""

import importlib as _importlib
from typing import TYPE_CHECKING as _TYPE_CHECKING, Any as _Any

from weft.errors import publish as _publish
from weft.keras.callbacks.base import Callback as Callback
from weft.keras.callbacks.callback_list import CallbackList as CallbackList
from weft.keras.callbacks.history import History as History
from weft.keras.callbacks.progress import Progbar as Progbar, ProgbarLogger as ProgbarLogger

if _TYPE_CHECKING:
    from weft.keras.callbacks.backup import BackupAndRestore as BackupAndRestore
    from weft.keras.callbacks.checkpoint import ModelCheckpoint as ModelCheckpoint, OrbaxCheckpoint as OrbaxCheckpoint
    from weft.keras.callbacks.csv_logger import CSVLogger as CSVLogger
    from weft.keras.callbacks.curves import LiveCurves as LiveCurves
    from weft.keras.callbacks.lambda_callback import LambdaCallback as LambdaCallback
    from weft.keras.callbacks.mail import MailOnThreshold as MailOnThreshold
    from weft.keras.callbacks.monitor import MonitorCallback as MonitorCallback
    from weft.keras.callbacks.rates import (
        LearningRateScheduler as LearningRateScheduler,
        ReduceLROnPlateau as ReduceLROnPlateau,
    )
    from weft.keras.callbacks.remote import RemoteMonitor as RemoteMonitor
    from weft.keras.callbacks.stopping import EarlyStopping as EarlyStopping, TerminateOnNaN as TerminateOnNaN
    from weft.keras.callbacks.swap_ema import SwapEMAWeights as SwapEMAWeights
    from weft.keras.callbacks.tensorboard import TensorBoard as TensorBoard
    from weft.keras.callbacks.unfreeze import UnfreezeOnPlateau as UnfreezeOnPlateau

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


def __getattr__(name: str) -> _Any:
    if name in _LATER:
        return getattr(_importlib.import_module(f"weft.keras.callbacks.{_LATER[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *_LATER})


_publish(__name__, later=list(_LATER))
