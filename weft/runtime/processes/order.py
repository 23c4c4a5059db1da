"""The order in which processes start asynchronous collectives, such as those of GPUs.

These have no tags, so processes compare digests of what they have started, and results are read only after that.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Any

import numpy as np

from weft.runtime.processes.transport import Message, TransportError
from weft.runtime.processes.world import ORDER, World

# Most pending messages before they are checked, if no results are waited for.
MOST_UNDER_WAY = 64


class Order:
    """Comparison of what processes have started, along a ring: each sends its digest to the next one."""

    def __init__(self, world: World, ranks: Sequence[int]) -> None:
        own = ranks.index(world.rank)
        self._world = world
        self._next, self._previous = ranks[(own + 1) % len(ranks)], ranks[own - 1]
        # Requests, with what was sent and what is received.
        self._under_way: deque[tuple[Any, np.ndarray, np.ndarray]] = deque()

    def tell(self, chain: str) -> None:
        """Send the digest of everything that was started to the next process, and receive that of the previous one.

        The caller holds the world's lock.
        """
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
        """Return whether all digests have been compared; False while another thread is in a section.

        Raise TransportError if they differ.
        """
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


def get_order(world: World, ranks: tuple[int, ...]) -> Order:
    """Return the order of these processes, one object for each set of them."""
    return world.orders.get(ranks) or world.orders.setdefault(ranks, Order(world, ranks))
