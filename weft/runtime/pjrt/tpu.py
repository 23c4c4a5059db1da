"""libtpu on machines with and without TPUs."""

from __future__ import annotations

import glob
import os
import pathlib

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


# Google's number as a vendor of PCI devices, and its numbers of TPUs, from v2 on.
VENDOR = "0x1ae0"
TPUS = frozenset({"0x0027", "0x005e", "0x0062", "0x0063", "0x006f", "0x0076"})
PCI_DEVICES = "/sys/bus/pci/devices/*"


def has_hardware() -> bool:
    """Return whether a PCI device of this machine is a TPU."""
    for folder in glob.glob(PCI_DEVICES):
        try:
            numbers = [pathlib.Path(folder, name).read_text().strip() for name in ("vendor", "device")]
        except OSError:
            continue
        if numbers[0] == VENDOR and numbers[1] in TPUS:
            return True
    return False


def prepare_environment() -> None:
    """Set the variables that libtpu reads when it is loaded, where there is no TPU; those of the user stay."""
    if not has_hardware():
        for name, value in _WITHOUT_HARDWARE.items():
            os.environ.setdefault(name, value)
