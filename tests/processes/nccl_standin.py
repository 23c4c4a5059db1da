"""A stand-in for NCCL that records its calls: processes are threads, memory of devices is memory of the host.

It has the functions of NCCL's C API that a transport needs, with NCCL's rules: sends and receives between two ranks
match by order alone, what is between GroupStart and GroupEnd is started together and enqueued on a stream, and nothing
has ended until the stream says so. `NcclTransport` is what the real one will be, over these functions.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Sequence
from typing import Any

import numpy as np

from weft.runtime.cpu import memory
from weft.runtime.processes.transport import Message, Messages, NothingBorrowed, Request

SUCCESS, IN_PROGRESS = 0, 7


class Network:
    """What connects the ranks of one communicator: for each pair what was sent and not yet received."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.lock = threading.Lock()
        self.sent: dict[tuple[int, int], deque[bytes]] = {}


class Stream:
    """Operations in order; those of one group progress together."""

    def __init__(self) -> None:
        self.groups: deque[list[tuple[str, int, Any]]] = deque()


class Nccl:
    """The calls of one rank. `calls` has all of them."""

    def __init__(self, network: Network, rank: int) -> None:
        self.network, self.rank = network, rank
        self.calls: list[tuple[Any, ...]] = []
        self._group: list[tuple[str, int, Any]] | None = None

    def group_start(self) -> None:
        self.calls.append(("ncclGroupStart",))
        assert self._group is None
        self._group = []

    def send(self, buffer: np.ndarray, peer: int, stream: Stream) -> None:
        self.calls.append(("ncclSend", buffer.nbytes, peer))
        assert self._group is not None, "sends and receives that depend on each other are in a group"
        self._group.append(("send", peer, buffer))

    def receive(self, buffer: np.ndarray, peer: int, stream: Stream) -> None:
        self.calls.append(("ncclRecv", buffer.nbytes, peer))
        assert self._group is not None
        self._group.append(("receive", peer, buffer))

    def group_end(self, stream: Stream) -> None:
        self.calls.append(("ncclGroupEnd",))
        assert self._group is not None
        stream.groups.append(self._group)
        self._group = None

    def query(self, stream: Stream) -> int:
        """As cudaEventQuery of an event behind the stream's last group; it makes them progress."""
        while stream.groups:
            group = stream.groups[0]
            with self.network.lock:
                for operation in list(group):
                    kind, peer, buffer = operation
                    if kind == "send":
                        self.network.sent.setdefault((self.rank, peer), deque()).append(buffer.tobytes())
                        group.remove(operation)
                for operation in list(group):
                    waiting = self.network.sent.get((operation[1], self.rank))
                    if not waiting:
                        continue
                    data = waiting.popleft()
                    assert len(data) == operation[2].nbytes, "NCCL would hang or write beyond the end"
                    operation[2][...] = np.frombuffer(data, np.uint8)
                    group.remove(operation)
            if group:
                return IN_PROGRESS
            stream.groups.popleft()
        return SUCCESS

    def abort(self) -> None:
        self.calls.append(("ncclCommAbort",))


class NcclTransport(Messages):
    """Messages by NCCL: one group of calls for each exchange. It has no tags: all are started in one order."""

    def __init__(self, nccl: Nccl) -> None:
        self.nccl = nccl
        self.stream = Stream()
        self.name = "NCCL stand-in"
        self.rank, self.size = nccl.rank, nccl.network.size
        self.tags = 1 << 30

    def start(self, sends: Sequence[Message], receives: Sequence[Message]) -> Request:
        self.nccl.group_start()
        for message in receives:
            self.nccl.receive(bytes_of(message), message.peer, self.stream)
        for message in sends:
            self.nccl.send(bytes_of(message), message.peer, self.stream)
        self.nccl.group_end(self.stream)
        return _NcclRequest(self.nccl, self.stream)

    def close(self) -> None:
        self.nccl.abort()


class _NcclRequest(NothingBorrowed):
    def __init__(self, nccl: Nccl, stream: Stream) -> None:
        self._nccl, self._stream = nccl, stream

    def test(self) -> bool:
        return self._nccl.query(self._stream) == SUCCESS


def bytes_of(message: Message) -> np.ndarray:
    assert message.address is not None
    return memory.view(message.address, (message.nbytes,), np.dtype(np.uint8))
