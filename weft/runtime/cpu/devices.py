"""The CPU devices: as many as the user has configured, each with memory of its own; all run on all cores."""

from __future__ import annotations

import os
from collections.abc import Sequence

from weft.base.settings import num_cpu_devices
from weft.sharding.device import Device


def _make(index: int) -> Device:
    return Device(index, "cpu", 0, f"cpu with {os.cpu_count()} cores")


# The first CPU device of this process. It always exists: arrays of programs that name no device are on it.
CPU = _make(0)
# The CPU devices after their first use, and those of all processes once this process is one of a group.
_used: tuple[Device, ...] = ()
_in_group: tuple[Device, ...] = ()


class CpuPlatform:
    """The CPU devices of all processes."""

    def devices(self) -> tuple[Device, ...]:
        """Return the devices. The first call fixes their number."""
        global _used
        if not _used:
            _used = _in_group or (CPU, *map(_make, range(1, num_cpu_devices.fixed())))
        return _used

    def are_enumerated(self) -> bool:
        """Return whether the number of devices is fixed."""
        return bool(_used)

    def join(self, counts: Sequence[int], rank: int, chosen: tuple[int, ...] | None) -> None:
        """Assign numbers to the devices of all processes.

        The first device of this process stays the same object under another id, since arrays are on it. When processes
        have been lost, all devices get ids that no device had before, so that objects of earlier meshes are not
        mistaken for current ones.
        """
        global _used, _in_group
        start = max((d.id + 1 for d in _in_group), default=0)
        first = start + sum(counts[:rank])
        object.__setattr__(CPU, "id", first)
        object.__setattr__(CPU, "process_index", rank)
        owners = [process for process, count in enumerate(counts) for _ in range(count)]
        _in_group = tuple(
            CPU if i == first else Device(i, "cpu", process, CPU.device_kind) for i, process in enumerate(owners, start)
        )
        _used = ()

    def absence(self) -> str:
        """Return a sentence for users; not needed, since the first CPU device always exists."""
        return "There is no CPU device."
