"""Interrupts of loops on GPUs: a loop that is one kernel reads a word of the host now and then, and ends if it is set.

Whoever waits for a GPU that runs such loops looks again and again whether it is idle, so that Python sees signals. An
exception there (KeyboardInterrupt) sets the word; then all work ends soon, and arrays that were being computed have no
elements.
"""

from __future__ import annotations

import ctypes
import time
from typing import Protocol

from weft.runtime.cuda.memory import Gpu
from weft.runtime.cuda.unfinished import delete_unfinished

# How often a thread that waits looks at once, and how many seconds it sleeps between looking after that.
AT_ONCE, SLEEP = 200, 2e-4


class Waited(Gpu, Protocol):
    """A GPU that is waited for: a `Driver`."""

    def pinned(self, size: int) -> int: ...


class Interrupts:
    """The word of a GPU that loops read, and how their end is waited for."""

    def __init__(self, driver: Waited) -> None:
        self._driver = driver
        self.address = driver.pinned(64)
        self._word = ctypes.c_uint32.from_address(self.address)
        self._word.value = 0

    def wait(self) -> None:
        """Return when the GPU is idle; if something is raised meanwhile, its loops end."""
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
