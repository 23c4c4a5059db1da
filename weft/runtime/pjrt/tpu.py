"""libtpu on machines with and without TPUs."""

from __future__ import annotations

import glob
import os

# Without a TPU, libtpu asks the metadata service of Google's cloud for minutes, and writes logs about it.
_WITHOUT_HARDWARE = {
    "TPU_SKIP_MDS_QUERY": "1",
    "TPU_WORKER_HOSTNAMES": "localhost",
    "TPU_WORKER_ID": "0",
    "TPU_ACCELERATOR_TYPE": "v5litepod-1",
    "TPU_LOG_DIR": "disabled",
    "TPU_MIN_LOG_LEVEL": "3",
    "TPU_STDERR_LOG_LEVEL": "3",
    # Several processes may plan at once.
    "ALLOW_MULTIPLE_LIBTPU_LOAD": "1",
}


def has_hardware() -> bool:
    """Return whether this machine has the device files of a TPU."""
    return bool(glob.glob("/dev/accel*") or glob.glob("/dev/vfio/[0-9]*"))


def prepare_environment() -> None:
    """Set the variables that libtpu reads when it is loaded, where there is no TPU; those of the user stay."""
    if not has_hardware():
        for name, value in _WITHOUT_HARDWARE.items():
            os.environ.setdefault(name, value)
