"""Looking at values while a program runs: print, callback, breakpoint; and at how arrays are split over devices."""

from weft.api.callbacks import breakpoint, debug_callback as callback, debug_log as log, debug_print as print
from weft.api.device_steps import DeviceStop, devices
from weft.api.visualize import inspect_array_sharding, visualize_array_sharding, visualize_sharding
from weft.base.publish import publish as _publish
from weft.primitives.control.callback import DebugEffect, OrderedDebugEffect

__all__ = [
    "DebugEffect",
    "DeviceStop",
    "OrderedDebugEffect",
    "breakpoint",
    "callback",
    "devices",
    "inspect_array_sharding",
    "log",
    "print",
    "visualize_array_sharding",
    "visualize_sharding",
]

_publish(__name__)
