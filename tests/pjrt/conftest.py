"""Devices of OpenXLA's plugin for CPUs, which `make test-xla` installs."""

from __future__ import annotations

import os

import numpy as np
import pytest

import weft
from weft.sharding.device import Device

# XLA writes a line for each program otherwise.
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
PLATFORM = "pjrt:cpu"


@pytest.fixture(scope="session")
def devices() -> list[Device]:
    """Return the devices of the plugin; skip if it is not installed."""
    try:
        return weft.devices(PLATFORM)
    except RuntimeError as error:
        pytest.skip(str(error))


@pytest.fixture
def device(devices: list[Device]) -> Device:
    """Return the first device of the plugin."""
    return devices[0]


@pytest.fixture
def mesh(devices: list[Device]) -> weft.sharding.Mesh:
    """Return a mesh of 2 x 4 devices of the plugin."""
    return weft.sharding.Mesh(np.array(devices[:8]).reshape(2, 4), ("a", "b"))
