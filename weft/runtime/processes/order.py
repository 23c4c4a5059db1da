"""The order of what is started together and goes on by itself, as collectives of GPUs do: these have no tags, so
processes tell each other what they have started, and nobody takes results before it was compared."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Any

import numpy as np

from weft.runtime.processes.transport import Message, TransportError
from weft.runtime.processes.world import ORDER, World

# So many messages are under way before somebody looks at them, if nobody waits for results.
MOST_UNDER_WAY = 64


class Order:
    """What processes have started, compared along a ring of them: each tells the next one."""

    def __init__(self, world: World, ranks: Sequence[int]) -> None:
        own = ranks.index(world.rank)
        self._world = world
        self._next, self._previous = ranks[(own + 1) % len(ranks)], ranks[own - 1]
        # Requests, with what was sent and what is received.
        self._under_way: deque[tuple[Any, np.ndarray, np.ndarray]] = deque()

    def tell(self, chain: str) -> None:
        """Tell the next process the digest of all that was started so far, and have that of the one before compared
        when it comes. Who tells has the world's lock."""
        if len(self._under_way) >= MOST_UNDER_WAY:
            try:
                self.is_compared()
            except TransportError as error:
                self._world.raise_lost(error, "the comparison of what was started")
        sent = np.frombuffer(bytes.fromhex(chain), np.uint8)
        received = np.empty_like(sent)
        request = self._world.transport.start(
            [Message(self._next, ORDER, sent.ctypes.data, sent.nbytes)],
            [Message(self._previous, ORDER, received.ctypes.data, received.nbytes)],
        )
        self._under_way.append((request, sent, received))

    def is_compared(self) -> bool:
        """Whether all that was told has been compared; not yet, if another thread does something with other processes.
        A `TransportError` says that it differs."""
        if not self._world.lock.acquire(blocking=False):
            return False
        try:
            while self._under_way:
                request, sent, received = self._under_way[0]
                if not request.test():
                    return False
                if not np.array_equal(sent, received):
                    raise TransportError(f"process {self._previous} has started other programs, or in another order")
                self._under_way.popleft()
            return True
        finally:
            self._world.lock.release()


def order_of(world: World, ranks: tuple[int, ...]) -> Order:
    """The order of these processes, one object for each set of them."""
    return world.orders.get(ranks) or world.orders.setdefault(ranks, Order(world, ranks))
