"""Links of the control thread: sockets that carry messages as lines of JSON and never block their writer."""

from __future__ import annotations

import contextlib
import json
import socket
import struct
import threading
import time
from typing import Any

# A heartbeat for a process that has more bytes than this to read is dropped: a later one says the same.
MOST_UNSENT = 1 << 20
# Offsets of the 32-bit words `unacked` and `last_ack_recv` (milliseconds) in Linux's `struct tcp_info`.
_UNACKED, _LAST_ACK = 8 + 4 * 4, 8 + 4 * 12


class Link:
    """Connection to another process, its last page, and the times at which it was heard."""

    def __init__(self, connection: socket.socket | None) -> None:
        self.socket = connection
        self.page: dict[str, Any] = {}
        self.heard = time.monotonic()
        self._received = b""
        self._unsent = bytearray()
        self._writing = threading.Lock()
        if connection is not None:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            connection.setblocking(False)

    def send(self, message: dict[str, Any], droppable: bool = False) -> None:
        """Send a message; what the other process has no room for stays here, for `flush`."""
        with self._writing:
            if self.socket is not None and not (droppable and len(self._unsent) > MOST_UNSENT):
                self._unsent += json.dumps(message).encode() + b"\n"
        self.flush()

    def flush(self) -> None:
        """Send as much as the other process has room for."""
        with self._writing, contextlib.suppress(OSError):  # a closed socket is found by reading
            while self._unsent and self.socket is not None:
                del self._unsent[: self.socket.send(self._unsent)]

    def receive(self) -> list[dict[str, Any]] | None:
        """Return the messages that have arrived; None if the connection is closed."""
        assert self.socket is not None
        try:
            data = self.socket.recv(1 << 16)
        except BlockingIOError:
            return []
        except OSError:
            data = b""
        if not data:
            return None
        *lines, self._received = (self._received + data).split(b"\n")
        self.heard = time.monotonic()
        return [json.loads(line) for line in lines]

    def close(self) -> None:
        """Close the socket."""
        if self.socket is not None:
            self.socket.close()
            self.socket = None

    def host_silence(self) -> float | None:
        """Return for how many seconds the other host has not confirmed what was sent to it; 0.0 if nothing is
        unconfirmed, and None where the system does not tell.

        A process that is stopped or holds Python's lock sends no heartbeats, but the kernel of its host confirms those
        that it gets. A host behind a cut network confirms nothing.
        """
        if self.socket is None or not hasattr(socket, "TCP_INFO"):
            return None
        try:
            info = self.socket.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _LAST_ACK + 4)
            unconfirmed, last = struct.unpack_from("I", info, _UNACKED)[0], struct.unpack_from("I", info, _LAST_ACK)[0]
        except (OSError, struct.error):
            return None
        return float(last) / 1000 if unconfirmed else 0.0


def read_line(connection: socket.socket) -> str:
    """Read the first line that a process sends, and no more."""
    data = b""
    with contextlib.suppress(OSError):
        while len(data) < 100 and (byte := connection.recv(1)) not in (b"", b"\n"):
            data += byte
    return data.decode(errors="replace")


def reachable_address() -> str:
    """Return an address of this host that other hosts can reach."""
    for find in (_routed_address, lambda: socket.gethostbyname(socket.gethostname())):
        with contextlib.suppress(OSError):
            return find()
    return "127.0.0.1"


def _routed_address() -> str:
    """Return the address of the interface that routes to other hosts; no packet is sent."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect(("192.0.2.1", 9))
        return str(probe.getsockname()[0])
