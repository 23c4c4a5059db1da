"""JAX's environment variables, read when Weft takes its name."""

from __future__ import annotations

import os
import re

from weft.base.settings import config, find
from weft.compat.report import REPORT

_PREFIX = "JAX_"
_DEVICES = re.compile(r"--xla_force_host_platform_device_count=(\d+)")


def apply_environment() -> None:
    """Set what JAX_ENABLE_X64, JAX_NUM_CPU_DEVICES and their like say, and the number of devices of XLA_FLAGS.

    A variable of Weft's own (WEFT_ENABLE_X64) is stronger. What has no counterpart is in the report.
    """
    devices = _DEVICES.search(os.environ.get("XLA_FLAGS", ""))
    if devices and "WEFT_NUM_CPU_DEVICES" not in os.environ:
        config.update("num_cpu_devices", int(devices[1]))
    for variable, text in os.environ.items():
        if not variable.startswith(_PREFIX) or "WEFT_" + variable.removeprefix(_PREFIX) in os.environ:
            continue
        name = variable.lower()
        try:
            state = find(name)
        except AttributeError:
            REPORT.ignored(f"environment variable {variable}")
        else:
            state.set_global(state.parse(text))
