"""Hosts for tests: network namespaces of this machine, which are connected to one switch.

`python -m tests.processes.hosts` says whether they can be made here.
"""

from __future__ import annotations

import contextlib
import functools
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from typing import NamedTuple

import pytest


class Host(NamedTuple):
    """Namespace of a host, and its addresses in the common network."""

    name: str
    address: str
    address6: str

    def command(self, *arguments: str) -> list[str]:
        """Return the command that runs another one on this host."""
        return ["ip", "netns", "exec", self.name, *arguments]

    def set_link(self, state: str) -> None:
        """Plug or unplug the cable of this host ("up" or "down"), at the switch, so the host does not notice."""
        unique, _, index = self.name.rpartition("h")
        _ip("-n", f"{unique}s", "link", "set", f"port{index}", state)

    def lose(self, other: Host) -> None:
        """Send all packets for another host to an address that no host has."""
        nowhere = ["lladdr", "02:00:00:00:00:01", "nud", "permanent", "dev", "eth0"]
        _ip("-n", self.name, "neighbor", "replace", other.address, *nowhere)


def _ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True, capture_output=True, text=True)


@contextlib.contextmanager
def hosts(count: int) -> Iterator[list[Host]]:
    """Make hosts, and remove them at the end. The switch is a namespace of its own, so this host is not changed."""
    unique = f"wt{os.getpid()}"
    switch, names = f"{unique}s", []
    result = [Host(f"{unique}h{i}", f"10.77.0.{i + 1}", f"fd77::{i + 1}") for i in range(count)]
    try:
        for name in (switch, *(host.name for host in result)):
            _ip("netns", "add", name)
            names.append(name)
        _ip("-n", switch, "link", "add", "bridge", "type", "bridge")
        _ip("-n", switch, "link", "set", "bridge", "up")
        for i, host in enumerate(result):
            _ip("-n", switch, "link", "add", f"port{i}", "type", "veth", "peer", "name", "eth0", "netns", host.name)
            _ip("-n", switch, "link", "set", f"port{i}", "master", "bridge", "up")
            _ip("-n", host.name, "address", "add", f"{host.address}/24", "dev", "eth0")
            _ip("-n", host.name, "address", "add", f"{host.address6}/64", "dev", "eth0", "nodad")
            for device in ("lo", "eth0"):
                _ip("-n", host.name, "link", "set", device, "up")
        yield result
    finally:
        for name in names:
            with contextlib.suppress(subprocess.CalledProcessError):
                _ip("netns", "delete", name)


@functools.cache
def can_make_hosts() -> bool:
    """Return whether this process may make network namespaces."""
    if shutil.which("ip") is None:
        return False
    try:
        with hosts(1):
            return True
    except (OSError, subprocess.CalledProcessError):
        return False


needs_hosts = pytest.mark.skipif(
    not can_make_hosts(), reason="needs the right to make network namespaces (ip netns add), as root has it"
)

if __name__ == "__main__":
    sys.exit(0 if can_make_hosts() else "network namespaces cannot be made here")
