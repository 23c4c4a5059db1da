"""JAX's environment variables, read when JAX would read them: a script may set them before its `import jax`."""

from __future__ import annotations

import os
import re

from weft.base.settings import config, find, num_cpu_devices
from weft.compat.report import REPORT

_PREFIX = "JAX_"
_DEVICES = re.compile(r"--xla_force_host_platform_device_count=(\d+)")


def apply_environment() -> None:
    """Set what JAX_ENABLE_X64, JAX_NUM_CPU_DEVICES and their like say; to be called when `jax` is imported.

    A variable of Weft's own (WEFT_ENABLE_X64) is stronger. What has no counterpart is in the report. The number of
    devices in XLA_FLAGS is read later, when devices are first asked for.
    """
    for variable, text in os.environ.items():
        if not variable.startswith(_PREFIX) or "WEFT_" + variable.removeprefix(_PREFIX) in os.environ:
            continue
        name = variable.lower()
        try:
            state = find(name)
        except AttributeError:
            REPORT.count_ignored(f"environment variable {variable}")
        else:
            state.set_global(state.parse(text))
    num_cpu_devices.before_use = _apply_flags


def _apply_flags() -> None:
    """Apply the number of devices of XLA_FLAGS, unless the setting has been changed."""
    devices = _DEVICES.search(os.environ.get("XLA_FLAGS", ""))
    untouched = num_cpu_devices.global_value == num_cpu_devices.default
    if devices and untouched and "WEFT_NUM_CPU_DEVICES" not in os.environ:
        config.update("num_cpu_devices", int(devices[1]))
