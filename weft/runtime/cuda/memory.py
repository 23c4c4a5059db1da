"""The memory of a GPU: blocks of size classes, which are used again when nobody refers to them any more.

The driver takes 50 to 80 microseconds to allocate and waits for all work to free; blocks that were given back are kept
for the next one who asks. Nothing is allocated in advance.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from weft.base.errors import OutOfMemoryError
from weft.base.forks import held
from weft.runtime.memory import in_units, out_of_memory

# Every address is a multiple of this, and every block at least as long.
ALIGNMENT = 512


class Gpu(Protocol):
    """What allocates, copies, runs and waits: a `Driver`."""

    def allocate(self, size: int) -> int: ...

    def free(self, address: int) -> None: ...

    def memory_left(self) -> tuple[int, int]: ...

    def copy_in(self, address: int, value: np.ndarray) -> None: ...

    def copy_out(self, value: np.ndarray, address: int) -> None: ...

    def copy(self, target: int, source: int, size: int) -> None: ...

    def fill(self, target: int, size: int) -> None: ...

    def load(self, kernels: Mapping[str, Any], target: Any, loops: Sequence[Any] = ()) -> Any: ...

    @property
    def processors(self) -> int: ...

    def launch_loop(self, entry: Any, loop: Any, parameters: Sequence[int]) -> None: ...

    def set_word(self, address: int, value: int) -> None: ...

    def launch(self, entry: Any, kernel: Any, addresses: Sequence[int]) -> None: ...

    @property
    def libraries(self) -> Any: ...

    @property
    def library_names(self) -> frozenset[str]: ...

    def call(self, prepared: Any, addresses: Sequence[int], workspace: int) -> None: ...

    def record(self, work: Callable[[Any], None]) -> Any: ...

    def start(self, graph: Any) -> None: ...

    def synchronize(self) -> None: ...

    def is_idle(self) -> bool: ...


class Block:
    """A piece of a GPU's memory. It goes back to its allocator when nobody refers to it any more."""

    __slots__ = ("_free", "address", "owner", "size")

    def __init__(self, owner: CudaMemory, address: int, size: int, free: list[int]) -> None:
        self.owner, self.address, self.size, self._free = owner, address, size, free

    def __del__(self) -> None:
        self._free.append(self.address)


class CudaMemory:
    """The allocator of one GPU. Free blocks are in lists by size, of which several threads take and to which they
    return without a lock."""

    def __init__(self, driver: Gpu) -> None:
        self.driver = driver
        self._free: dict[int, list[int]] = {}
        self._lock = held(threading.RLock())
        self.bytes_reserved = self.peak_bytes_in_use = 0

    @property
    def bytes_pooled(self) -> int:
        """The bytes of free blocks."""
        return sum(size * len(free) for size, free in list(self._free.items()))

    @property
    def bytes_in_use(self) -> int:
        """The bytes of blocks that somebody refers to."""
        return self.bytes_reserved - self.bytes_pooled

    def allocate(self, size: int) -> tuple[int, Block]:
        """Memory for so many bytes: its address, and its block."""
        block = self.take(size)
        return block.address, block

    def take(self, size: int) -> Block:
        """A block of at least so many bytes."""
        return self.taker(size)()

    def taker(self, size: int) -> Callable[[], Block]:
        """A function that returns a block of at least so many bytes."""
        size = size_of_class(size)
        free = self._free.setdefault(size, [])

        def take() -> Block:
            try:
                address = free.pop()
            except IndexError:
                address = self._allocated(size)
            return Block(self, address, size, free)

        return take

    def _allocated(self, size: int) -> int:
        """New memory of the driver."""
        with self._lock:
            address = self._from_driver(size)
            self.bytes_reserved += size
            self.peak_bytes_in_use = max(self.peak_bytes_in_use, self.bytes_in_use)
        return address

    def _from_driver(self, size: int) -> int:
        try:
            return self.driver.allocate(size)
        except OutOfMemoryError:
            self.clear()
        try:
            return self.driver.allocate(size)
        except OutOfMemoryError:
            free, total = self.driver.memory_left()
            said = f"{in_units(free)} of {in_units(total)} are free, {in_units(self.bytes_in_use)} are those of arrays"
            raise out_of_memory("an array on the GPU", size, said) from None

    def clear(self) -> None:
        """Give free memory back to the driver."""
        with self._lock:
            for size, free in list(self._free.items()):
                while free:
                    self.driver.free(free.pop())
                    self.bytes_reserved -= size

    def copied(self, value: np.ndarray, shape: tuple[Any, ...]) -> Block:
        """A block with a copy of an array of the host, broadcast to a shape."""
        whole = np.ascontiguousarray(np.broadcast_to(value, shape))
        block = self.take(whole.nbytes)
        if whole.nbytes:
            self.driver.copy_in(block.address, whole)
        return block


def size_of_class(size: int) -> int:
    """The size of the blocks that so many bytes are taken from: an eighth more than is asked for at most."""
    size = max(ALIGNMENT, -(-size // ALIGNMENT) * ALIGNMENT)
    step = max(ALIGNMENT, 1 << max(0, size.bit_length() - 4))
    return -(-size // step) * step
