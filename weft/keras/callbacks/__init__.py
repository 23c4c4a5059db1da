"""Callbacks: what `fit`, `evaluate` and `predict` tell while they run, and what may act on it."""

from weft.errors import publish as _publish
from weft.keras.callbacks.base import Callback
from weft.keras.callbacks.callback_list import CallbackList
from weft.keras.callbacks.checkpoint import ModelCheckpoint
from weft.keras.callbacks.csv_logger import CSVLogger
from weft.keras.callbacks.curves import LiveCurves
from weft.keras.callbacks.history import History
from weft.keras.callbacks.lambda_callback import LambdaCallback
from weft.keras.callbacks.mail import MailOnThreshold
from weft.keras.callbacks.monitor import MonitorCallback
from weft.keras.callbacks.progress import Progbar, ProgbarLogger
from weft.keras.callbacks.rates import LearningRateScheduler, ReduceLROnPlateau
from weft.keras.callbacks.remote import RemoteMonitor
from weft.keras.callbacks.stopping import EarlyStopping, TerminateOnNaN
from weft.keras.callbacks.swap_ema import SwapEMAWeights
from weft.keras.callbacks.unfreeze import UnfreezeOnPlateau

__all__ = [
    "Callback",
    "CallbackList",
    "CSVLogger",
    "EarlyStopping",
    "History",
    "LambdaCallback",
    "LearningRateScheduler",
    "LiveCurves",
    "MailOnThreshold",
    "ModelCheckpoint",
    "MonitorCallback",
    "Progbar",
    "ProgbarLogger",
    "ReduceLROnPlateau",
    "RemoteMonitor",
    "SwapEMAWeights",
    "TerminateOnNaN",
    "UnfreezeOnPlateau",
]

_publish(__name__)
