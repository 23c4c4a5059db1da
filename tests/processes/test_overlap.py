"""Collectives between processes are under way while devices compute."""

from __future__ import annotations

import json
import pathlib

from tests.processes.launching import SCRIPTS, launched, needs_mpi

pytestmark = needs_mpi


def test_messages_are_under_way_while_devices_compute(tmp_path: pathlib.Path) -> None:
    file = tmp_path / "seconds.json"
    done = launched(2, SCRIPTS / "overlap.py", str(file), WEFT_DISTRIBUTED_TRANSPORT="messages")
    assert done.code == 0, done.errors
    found = json.loads(file.read_text())
    for name in ("dp", "fsdp"):
        (apart, losses), (overlapped, same) = found[f"{name} one after the other"], found[f"{name} overlapped"]
        assert losses == same, name
        # Each of the collectives takes 30 ms: four of dp, and eight of fsdp.
        assert overlapped < 0.7 * apart, (name, overlapped, apart)
