"""The memory of a GPU: blocks of size classes, which are used again when nobody refers to them any more.

The driver takes 50 to 80 microseconds to allocate and waits for all work to free; blocks that were given back are kept
for the next one who asks. Nothing is allocated in advance.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Any, Protocol

import numpy as np

from weft.base.errors import OutOfMemoryError
from weft.base.forks import held
from weft.base.source import Location, user_location
from weft.runtime.cuda.flags import MOST_PENDING, PendingFlag
from weft.runtime.held import live_arrays
from weft.runtime.memory import in_units, out_of_memory

# Every address is a multiple of this, and every block at least as long.
ALIGNMENT = 512
# Blocks of so many bytes know the line of the user that they are from; errors list so many of them.
LARGE, LISTED = 1 << 20, 5


class Gpu(Protocol):
    """What allocates, copies, runs and waits: a `Driver`."""

    epoch: int
    with_others: Callable[[Callable[[], bool]], None] | None

    @property
    def interrupts(self) -> Any: ...

    def allocate(self, size: int) -> int: ...

    def free(self, address: int) -> None: ...

    def memory_left(self) -> tuple[int, int]: ...

    def copy_in(self, address: int, value: np.ndarray) -> None: ...

    def copy_out(self, value: np.ndarray, address: int) -> None: ...

    def copy_out_together(self, pairs: Sequence[tuple[np.ndarray, int]]) -> None: ...

    def copy_out_later(self, value: np.ndarray, address: int, holds: Any) -> Future[None]: ...

    def copy(self, target: int, source: int, size: int) -> None: ...

    def fill(self, target: int, size: int) -> None: ...

    @property
    def name(self) -> str: ...

    @property
    def processors(self) -> int: ...

    @property
    def code(self) -> Any: ...

    def set_word(self, address: int, value: int) -> None: ...

    def launch(self, entry: Any, addresses: Sequence[int]) -> None: ...

    @property
    def libraries(self) -> Any: ...

    @property
    def library_names(self) -> frozenset[str]: ...

    def call(self, prepared: Any, addresses: Sequence[int], workspace: int) -> None: ...

    @property
    def beside(self) -> Any: ...

    def begin_beside(self) -> None: ...

    def mark_beside(self) -> Any: ...

    def follow_beside(self, event: Any) -> None: ...

    @property
    def stream_handle(self) -> int: ...

    def precede(self, stream: int) -> None: ...

    def follow(self, stream: int) -> None: ...

    def hold(self, value: Any) -> None: ...

    def record(self, work: Callable[[Any], None]) -> Any: ...

    def start(self, graph: Any) -> None: ...

    def synchronize(self) -> None: ...

    def is_idle(self) -> bool: ...


class Block:
    """A piece of a GPU's memory. It goes back to its allocator when nobody refers to it any more. `origin` is the
    user's line that a large one was taken at, and `host_copy` an array of the host that another thread copies it to.
    `epoch` is how often all work was known to have ended when somebody last was to write there."""

    __slots__ = ("_free", "address", "epoch", "host_copy", "origin", "owner", "size")

    def __init__(
        self, owner: CudaMemory, address: int, size: int, free: list[int], origin: Location | None = None
    ) -> None:
        self.owner, self.address, self.size, self._free = owner, address, size, free
        self.origin, self.epoch = origin, owner.driver.epoch
        self.host_copy: tuple[np.ndarray, Future[None]] | None = None

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
        self._flags: deque[PendingFlag] = deque()
        self._count = self._largest = 0  # what the driver was asked for

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

        def take_large() -> Block:
            block = take()
            block.origin = user_location()
            return block

        return take if size < LARGE else take_large

    def _allocated(self, size: int) -> int:
        """New memory of the driver."""
        with self._lock:
            address = self._from_driver(size)
            self.bytes_reserved += size
            self._count += 1
            self._largest = max(self._largest, size)
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
            raise out_of_memory("an array on the GPU", size, self.summary()) from None

    def summary(self) -> str:
        """What an error says of the memory: how much is left, and the largest arrays with the lines that they are
        from."""
        free, total = self.driver.memory_left()
        found: dict[int, tuple[int, str]] = {}  # arrays may share their memory
        for array in live_arrays():
            block = getattr(array, "_memory", None)
            if isinstance(block, Block) and block.owner is self:
                line = "" if block.origin is None else f" at {block.origin.describe()}"
                found[block.address] = (block.size, f"{in_units(block.size)}: {array.aval.short()}{line}")
        arrays = sum(size for size, _ in found.values())
        said = f"{in_units(free)} of {in_units(total)} are free, arrays have {in_units(arrays)}"
        others = self.bytes_in_use - arrays
        if others:
            said += f", programs {in_units(others)}"
        largest = sorted(found.values(), key=lambda pair: -pair[0])[:LISTED]
        return "\n".join([said, *(text for _, text in largest)])

    def statistics(self) -> dict[str, int]:
        """How much of the memory is used for what, by the names that JAX has for it."""
        free, total = self.driver.memory_left()
        with self._lock:
            self.peak_bytes_in_use = max(self.peak_bytes_in_use, self.bytes_in_use)
            return {
                "bytes_in_use": self.bytes_in_use,
                "peak_bytes_in_use": self.peak_bytes_in_use,
                "bytes_reserved": self.bytes_reserved,
                "pool_bytes": self.bytes_pooled,
                "largest_alloc_size": self._largest,
                "num_allocs": self._count,
                "bytes_limit": total,
                "bytes_reservable_limit": free + self.bytes_reserved,
            }

    def add_flag(self, flag: PendingFlag) -> None:
        """The flag of a run that somebody has to look at."""
        self._flags.append(flag)
        if len(self._flags) > MOST_PENDING:
            self._flags.popleft().check()

    def forget_flags(self) -> None:
        """Nobody needs to look at flags any more: what was computed is lost."""
        self._flags.clear()

    def check_flags(self) -> None:
        """Raise what checks have found in runs that were started before; all of them are waited for."""
        while self._flags:
            try:
                self._flags.popleft().check()
            except BaseException:
                self._flags.clear()  # what was computed from it
                raise

    def clear(self) -> None:
        """Give free memory back to the driver."""
        with self._lock:
            for size, free in list(self._free.items()):
                while free:
                    self.driver.free(free.pop())
                    self.bytes_reserved -= size

    def copied(self, value: np.ndarray, shape: tuple[Any, ...]) -> Block:
        """A block with a copy of an array of the host, broadcast to a shape."""
        whole = value
        if value.shape != shape or not value.flags.c_contiguous:
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
