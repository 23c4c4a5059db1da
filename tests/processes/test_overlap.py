"""Collectives between processes are under way while devices compute."""

from __future__ import annotations

import json
import pathlib
from typing import Any

import pytest

from tests.processes.launching import SCRIPTS, launched, needs_mpi

pytestmark = needs_mpi


def measured(folder: pathlib.Path) -> dict[str, Any]:
    """Return the output of scripts/overlap.py."""
    file = folder / "seconds.json"
    done = launched(2, SCRIPTS / "overlap.py", str(file), WEFT_DISTRIBUTED_TRANSPORT="messages")
    assert done.code == 0, done.errors
    return json.loads(file.read_text())


def test_messages_are_under_way_while_others_are_started(tmp_path: pathlib.Path) -> None:
    """The gradient of one layer while that of the next is computed and sent, and the weights of two layers."""
    found = measured(tmp_path)
    for name in ("dp", "fsdp"):
        _, losses, _ = found[f"{name} one after the other"]
        _, same, alone = found[f"{name} overlapped"]
        assert losses == same and not alone, name


@pytest.mark.timing
def test_messages_cost_no_time_while_devices_compute(tmp_path: pathlib.Path) -> None:
    found = measured(tmp_path)
    for name in ("dp", "fsdp"):
        apart, overlapped = found[f"{name} one after the other"][0], found[f"{name} overlapped"][0]
        # Each of the collectives takes 30 ms: four of dp, and eight of fsdp.
        assert overlapped < 0.7 * apart, (name, overlapped, apart)
