"""What to say of an installation when asking a question about it."""

from __future__ import annotations

import platform
import sys

import numpy as np

from weft.api.devices import local_devices, process_count


def print_environment_info(return_string: bool = False) -> str | None:
    """Print the versions of Weft, NumPy and Python, the devices and the platform; or return that as a string.

    >>> import weft
    >>> weft.print_environment_info(return_string=True).startswith("weft:")
    True
    """
    there = local_devices()
    lines = [
        f"weft:   {sys.modules['weft'].__version__}",
        f"numpy:  {np.__version__}",
        f"python: {sys.version}",
        f"device info: {there[0].device_kind}, {len(there)} local devices",
        f"process_count: {process_count()}",
        f"platform: {platform.system()} {platform.release()} {platform.machine()}",
    ]
    if return_string:
        return "\n".join(lines)
    print("\n".join(lines))
    return None
