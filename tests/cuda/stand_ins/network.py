"""What connects stand-ins of NCCL in several processes: a process that makes the id of a communicator listens there,
collects what its ranks contribute to each call, and sends all of it to each of them."""

from __future__ import annotations

import contextlib
import pickle
import socket
import struct
import threading
from typing import Any

Address = tuple[str, int, str]  # host, port, and a token for each communicator


class Network:
    """The connections of one process. What was sent by others of a process that is gone never comes."""

    def __init__(self) -> None:
        self._listener: socket.socket | None = None
        self._connections: dict[tuple[str, int], socket.socket] = {}
        self._received: dict[tuple[Address, Any], dict[int, Any]] = {}
        self._changed = threading.Condition()

    def listen(self) -> tuple[str, int]:
        """Where others connect to."""
        if self._listener is None:
            self._listener = socket.create_server(("127.0.0.1", 0), backlog=64)
            threading.Thread(target=_Hub(self._listener).run, daemon=True).start()
        host, port = self._listener.getsockname()
        return host, port

    def send(self, address: Address, count: int, index: Any, contributed: dict[int, Any]) -> None:
        """Send what ranks of this process contribute to a call in which so many of a communicator take part."""
        with self._changed:
            connection = self._connections.get(address[:2])
            if connection is None:
                connection = self._connections[address[:2]] = socket.create_connection(address[:2])
                threading.Thread(target=self._read, args=(connection,), daemon=True).start()
            with contextlib.suppress(OSError):  # nobody is there, and nobody will answer
                write(connection, (address, count, index, contributed))

    def _read(self, connection: socket.socket) -> None:
        while (message := read(connection)) is not None:
            address, index, contributed = message
            with self._changed:
                self._received[address, index] = contributed
                self._changed.notify_all()

    def received(self, address: Address, index: Any, seconds: float = 0.0) -> dict[int, Any] | None:
        """What all ranks have contributed to a call; None if it is not there, after so many seconds."""
        with self._changed:
            self._changed.wait_for(lambda: (address, index) in self._received, seconds)
            return self._received.get((address, index))


class _Hub:
    """Collects contributions until all ranks have sent theirs."""

    def __init__(self, listener: socket.socket) -> None:
        self._listener, self._lock = listener, threading.Lock()
        self._collected: dict[tuple[Address, Any], dict[int, Any]] = {}
        self._from: dict[tuple[Address, Any], list[socket.socket]] = {}

    def run(self) -> None:
        while True:
            connection, _ = self._listener.accept()
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        while (message := read(connection)) is not None:
            address, count, index, contributed = message
            with self._lock:
                key = address, index
                collected = self._collected.setdefault(key, {})
                assert collected.keys().isdisjoint(contributed)
                collected.update(contributed)
                if connection not in self._from.setdefault(key, []):
                    self._from[key].append(connection)
                if len(collected) == count:
                    for other in self._from.pop(key):
                        with contextlib.suppress(OSError):  # it is gone
                            write(other, (address, index, self._collected[key]))
                    del self._collected[key]


def write(connection: socket.socket, message: Any) -> None:
    data = pickle.dumps(message)
    connection.sendall(struct.pack("<q", len(data)) + data)


def read(connection: socket.socket) -> Any:
    """The next message; None if there is none any more."""
    head = _exactly(connection, 8)
    data = None if head is None else _exactly(connection, struct.unpack("<q", head)[0])
    return None if data is None else pickle.loads(data)


def _exactly(connection: socket.socket, count: int) -> bytes | None:
    data = b""
    while len(data) < count:
        try:
            more = connection.recv(count - len(data))
        except OSError:
            return None
        if not more:
            return None
        data += more
    return data
