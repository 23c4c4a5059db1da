"""Interrupts of loops on GPUs: a loop that is one kernel polls a word of the host, and ends if it is set.

A wait for a GPU with such loops polls whether it is idle, so that Python handles signals. An exception there
(KeyboardInterrupt) sets the word; then all work ends soon, and arrays that were being computed are deleted.
"""

from __future__ import annotations

import ctypes
import time
from typing import Protocol

from weft.runtime.cuda.memory import Gpu
from weft.runtime.cuda.unfinished import delete_unfinished

# Polls of a wait without a pause, and the seconds that it sleeps between later ones.
AT_ONCE, SLEEP = 200, 2e-4


class Waited(Gpu, Protocol):
    """Interface of a `Driver` for waits."""

    def allocate_pinned(self, size: int) -> int: ...


class Interrupts:
    """Word that the loops of a GPU poll, and the wait for their end."""

    def __init__(self, driver: Waited) -> None:
        self._driver = driver
        self.address = driver.allocate_pinned(64)
        self._word = ctypes.c_uint32.from_address(self.address)
        self._word.value = 0

    def wait(self) -> None:
        """Wait until the GPU is idle; an exception meanwhile ends its loops."""
        try:
            self._until_idle()
        except BaseException:
            self._word.value = 1
            try:
                self._until_idle()
            finally:
                self._word.value = 0
            delete_unfinished(self._driver)
            raise

    def _until_idle(self) -> None:
        looked = 0
        while not self._driver.is_idle():
            looked += 1
            if looked > AT_ONCE:
                time.sleep(SLEEP)
