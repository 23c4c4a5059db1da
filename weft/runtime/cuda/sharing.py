"""Memory of a GPU that other libraries have, or that Weft has of them: work on it is ordered by events between streams.

Others have streams of their own. Who is given memory waits for the work that writes to it; when it comes back, the
stream of Weft waits for the stream that it was given to. Memory that Weft was given is returned when no work that was
started reads it any more.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from weft.runtime.cuda.memory import Block, CudaMemory

# Streams by the numbers that DLPack has for them: the default one, and that nobody has to wait.
DEFAULT_STREAM, NOT_ORDERED = 1, -1


class Lent:
    """Memory that another library reads, for as long as this object is referenced."""

    def __init__(self, block: Block, stream: int | None) -> None:
        self._block = block
        self._stream = stream or DEFAULT_STREAM
        if self._stream != NOT_ORDERED:
            block.owner.driver.precede(self._stream)

    def __del__(self) -> None:
        if self._stream != NOT_ORDERED:
            self._block.owner.driver.follow(self._stream)


class BorrowedBlock(Block):
    """Memory of another library; `array` is a NumPy array at its address, which nobody reads, that returns it when it
    is deleted."""

    __slots__ = ("_array",)

    def __init__(self, owner: CudaMemory, array: np.ndarray) -> None:
        super().__init__(owner, array.__array_interface__["data"][0], array.nbytes, [])
        self._array: Any = array

    def __del__(self) -> None:
        self.owner.driver.hold(self._array)
