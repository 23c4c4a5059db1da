"""Transport between threads, as if they were processes, that records messages. Messages between two ranks match by
order alone, and complete only when a test polls them."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Sequence

import numpy as np

from weft.runtime.cpu import memory
from weft.runtime.processes.transport import Message, Messages, NothingBorrowed, Request


class Network:
    """Connections of ranks: for each pair the messages that were sent and not yet received."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.lock = threading.Lock()
        self.sent: dict[tuple[int, int], deque[bytes]] = {}


class RecordingTransport(Messages):
    """Messages of one rank. It has no tags: all are started in one order. `sent` has the bytes and the receiver of each
    message."""

    def __init__(self, network: Network, rank: int) -> None:
        self.network, self.rank, self.size = network, rank, network.size
        self.name, self.tags = "threads", 1 << 30
        self.sent: list[tuple[int, int]] = []
        self._under_way: deque[_Exchange] = deque()

    def start(self, sends: Sequence[Message], receives: Sequence[Message]) -> Request:
        self.sent += [(m.nbytes, m.peer) for m in sends]
        self._under_way.append(_Exchange(self, [*sends], [*receives]))
        return self._under_way[-1]

    def progress(self) -> None:
        """Deliver the messages that can be delivered, in order."""
        while self._under_way and self._under_way[0].progress():
            self._under_way.popleft()

    def finish(self) -> None:
        """Return when all messages have ended."""
        while self._under_way:
            self.progress()

    def close(self) -> None:
        """There is nothing to free."""


class _Exchange(NothingBorrowed):
    """Messages that were started together."""

    def __init__(self, transport: RecordingTransport, sends: list[Message], receives: list[Message]) -> None:
        self._transport, self._sends, self._receives = transport, sends, receives

    def test(self) -> bool:
        self._transport.progress()
        return not self._sends and not self._receives

    def progress(self) -> bool:
        """Return whether all messages have ended."""
        network, rank = self._transport.network, self._transport.rank
        with network.lock:
            for message in self._sends:
                network.sent.setdefault((rank, message.peer), deque()).append(_bytes_of(message).tobytes())
            self._sends = []
            for message in list(self._receives):
                waiting = network.sent.get((message.peer, rank))
                if waiting:
                    data = waiting.popleft()
                    assert len(data) == message.nbytes, "the wrong message"
                    _bytes_of(message)[...] = np.frombuffer(data, np.uint8)
                    self._receives.remove(message)
        return not self._receives


def _bytes_of(message: Message) -> np.ndarray:
    assert message.address is not None
    return memory.view(message.address, (message.nbytes,), np.dtype(np.uint8))
