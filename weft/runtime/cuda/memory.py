"""Allocator of a GPU: blocks of size classes, which are reused when they are not referenced any more.

The driver takes 50 to 80 microseconds to allocate, and waits for all work to free; so freed blocks are pooled.
Nothing is allocated in advance.
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

# Alignment of addresses, and smallest size of a block.
ALIGNMENT = 512
# Least bytes of a block that records the user's line; and how many of these an error lists.
LARGE, LISTED = 1 << 20, 5


class Gpu(Protocol):
    """Interface of a `Driver`."""

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
    """Block of a GPU's memory. It returns to its allocator when it is not referenced any more.

    `origin` is the user's line that allocated a large block, and `host_copy` an array of the host that another thread
    copies it to. `epoch` is the driver's epoch when work was last started that writes to the block.
    """

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
    """Allocator of one GPU. Free blocks are in lists by size, which threads pop and append to without a lock."""

    def __init__(self, driver: Gpu) -> None:
        self.driver = driver
        self._free: dict[int, list[int]] = {}
        self._lock = held(threading.RLock())
        self.bytes_reserved = self.peak_bytes_in_use = 0
        self._flags: deque[PendingFlag] = deque()
        self._count = self._largest = 0  # allocations of the driver

    @property
    def bytes_pooled(self) -> int:
        """Bytes of free blocks."""
        return sum(size * len(free) for size, free in list(self._free.items()))

    @property
    def bytes_in_use(self) -> int:
        """Bytes of referenced blocks."""
        return self.bytes_reserved - self.bytes_pooled

    def allocate(self, size: int) -> tuple[int, Block]:
        """Allocate memory; return its address and its block."""
        block = self.take(size)
        return block.address, block

    def take(self, size: int) -> Block:
        """Allocate a block of at least `size` bytes."""
        return self.taker(size)()

    def taker(self, size: int) -> Callable[[], Block]:
        """Return a function that allocates blocks of at least `size` bytes."""
        size = round_up_size(size)
        free = self._free.setdefault(size, [])

        def take() -> Block:
            try:
                address = free.pop()
            except IndexError:
                address = self._allocate_new(size)
            return Block(self, address, size, free)

        def take_large() -> Block:
            block = take()
            block.origin = user_location()
            return block

        return take if size < LARGE else take_large

    def _allocate_new(self, size: int) -> int:
        """Allocate memory of the driver, and count it."""
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
        """Describe the memory for an error: the bytes that are left, and the largest arrays with their lines."""
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
        """Return allocator statistics under the names that JAX has for them."""
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
        """Add the error flag of a run, which must be checked later."""
        self._flags.append(flag)
        if len(self._flags) > MOST_PENDING:
            self._flags.popleft().check()

    def forget_flags(self) -> None:
        """Drop all flags: the results of their runs are lost."""
        self._flags.clear()

    def check_flags(self) -> None:
        """Wait for the flags of all runs so far, and raise the error of the first failed check."""
        while self._flags:
            try:
                self._flags.popleft().check()
            except BaseException:
                self._flags.clear()  # of runs that used its results
                raise

    def clear(self) -> None:
        """Return free memory to the driver."""
        with self._lock:
            for size, free in list(self._free.items()):
                while free:
                    self.driver.free(free.pop())
                    self.bytes_reserved -= size

    def allocate_copy(self, value: np.ndarray, shape: tuple[Any, ...]) -> Block:
        """Copy an array of the host, broadcast to a shape, to a new block."""
        whole = value
        if value.shape != shape or not value.flags.c_contiguous:
            whole = np.ascontiguousarray(np.broadcast_to(value, shape))
        block = self.take(whole.nbytes)
        if whole.nbytes:
            self.driver.copy_in(block.address, whole)
        return block


def round_up_size(size: int) -> int:
    """Round a size up to that of a class of blocks: at most an eighth larger."""
    size = max(ALIGNMENT, -(-size // ALIGNMENT) * ALIGNMENT)
    step = max(ALIGNMENT, 1 << max(0, size.bit_length() - 4))
    return -(-size // step) * step
