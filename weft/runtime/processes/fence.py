"""Identities of the processes of a host: their state as the kernel has it, and their end.

A process that is stopped, or that holds Python's lock for good, cannot end itself. When the others have given it up,
those of its host end it, so that it neither stays behind nor writes files later. A process id may belong to another
process by then, so it is used only together with the start time of the process.
"""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Sequence
from typing import Any

# The letters of process states that say why a process does not answer.
STATES = {"T": "stopped by a signal (SIGSTOP)", "t": "stopped by a debugger", "D": "waiting for a disk or file server"}


def host_identifier() -> str:
    """Return an identifier of this host, or "" where the system has none."""
    try:
        with open("/proc/sys/kernel/random/boot_id") as file:
            return file.read().strip()
    except OSError:
        return ""


def identify_process() -> list[Any]:
    """Return the identity of this process for others: boot and namespace of its ids, id and start time; [] where the
    system does not tell."""
    try:
        start = _fields(os.getpid())[1]
        return [host_identifier(), os.readlink("/proc/self/ns/pid"), os.getpid(), start]
    except (OSError, ValueError):
        return []


class Fence:
    """Processes of this host among all processes, by rank."""

    def __init__(self, identities: Sequence[Sequence[Any]], rank: int) -> None:
        own = list(identities[rank][:2]) if identities else []
        self._near = {
            r: (int(pid), str(start))
            for r, (boot, space, pid, start) in ((r, i) for r, i in enumerate(identities) if len(i) == 4)
            if r != rank and [boot, space] == own
        }

    def describe_state(self, rank: int) -> str:
        """Describe why the kernel does not run a process; "" if it runs, or is not of this host."""
        with contextlib.suppress(OSError, ValueError, KeyError):
            pid, start = self._near[rank]
            state, found = _fields(pid)
            if found == start and state in STATES:
                return STATES[state]
        return ""

    def kill(self, rank: int) -> bool:
        """Kill a process of this host; return whether there was one."""
        with contextlib.suppress(OSError, ValueError, KeyError, AttributeError):
            pid, start = self._near[rank]
            # The open descriptor refers to one process; compare its start time only now.
            descriptor = os.pidfd_open(pid)
            try:
                if _fields(pid)[1] == start:
                    signal.pidfd_send_signal(descriptor, signal.SIGKILL)
                    return True
            finally:
                os.close(descriptor)
        return False


def _fields(pid: int) -> tuple[str, str]:
    """Return the state and the start time of a process, in clock ticks since boot."""
    with open(f"/proc/{pid}/stat") as file:
        fields = file.read().rpartition(")")[2].split()
    return fields[0], fields[19]
