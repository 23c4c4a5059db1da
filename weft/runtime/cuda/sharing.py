"""GPU memory that is shared with other libraries; work on it is ordered by events between streams.

Other libraries have streams of their own. The stream of a borrower waits for the work that writes the memory; when the
memory is returned, Weft's stream waits for the borrower's. Memory that Weft borrows is returned when no pending work
reads it any more.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from weft.runtime.cuda.memory import Block, CudaMemory

# Streams by their numbers in DLPack: the default stream, and no synchronization.
DEFAULT_STREAM, NOT_ORDERED = 1, -1


class Lent:
    """Memory that another library uses as long as this object is referenced."""

    def __init__(self, block: Block, stream: int | None) -> None:
        self._block = block
        self._stream = stream or DEFAULT_STREAM
        if self._stream != NOT_ORDERED:
            block.owner.driver.precede(self._stream)

    def __del__(self) -> None:
        if self._stream != NOT_ORDERED:
            self._block.owner.driver.follow(self._stream)


class BorrowedBlock(Block):
    """Memory of another library; `array` is a NumPy array with its address, which returns it when it is deleted."""

    __slots__ = ("_array",)

    def __init__(self, owner: CudaMemory, array: np.ndarray) -> None:
        super().__init__(owner, array.__array_interface__["data"][0], array.nbytes, [])
        self._array: Any = array

    def __del__(self) -> None:
        self.owner.driver.hold(self._array)
