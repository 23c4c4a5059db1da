"""Looking at values while a program runs: print, callback, breakpoint; and at how arrays are split over devices."""

from weft.api.callbacks import (
    breakpoint as breakpoint,
    debug_callback as _debug_callback,
    debug_log as _debug_log,
    debug_print as _debug_print,
)
from weft.api.device_steps import DeviceStop as DeviceStop, devices as devices
from weft.api.visualize import (
    inspect_array_sharding as inspect_array_sharding,
    visualize_array_sharding as visualize_array_sharding,
    visualize_sharding as visualize_sharding,
)
from weft.base.publish import publish as _publish
from weft.primitives.control.callback import DebugEffect as DebugEffect, OrderedDebugEffect as OrderedDebugEffect

callback = _debug_callback
log = _debug_log
print = _debug_print

_publish(__name__)
