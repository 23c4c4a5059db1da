"""Memory of CPU devices: aligned to cache lines, so that vectors do not straddle them, and reused.

Small results are cut from chunks, which live as long as one of them does. Larger ones have a block each; a block goes
back into the pool when its array dies, unless there are still NumPy views of it. Each device has memory of its own.
Temporaries of programs that do not run at the same time share memory, so that its pages are touched once.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import itertools
import math
import mmap
import os
import sys
import threading
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from weft.base.forks import held
from weft.runtime.memory import out_of_memory

ALIGNMENT = 64
CHUNK = 1 << 16
# Results up to this size share chunks.
SMALL = 1 << 12
# Memory of at least this size is mapped in large pages: with small ones, a TLB miss takes as long again as reading the
# page. Memory that the allocator of the C library has used before is in small pages and stays so.
LARGE = 1 << 22
LARGE_PAGE = 1 << 21
# Large pieces begin at different offsets in their pages: equal offsets cause set conflicts in the cache.
STAGGER, STAGGERS = (1 << 12) + ALIGNMENT, 16
# Temporaries of at least this size may reuse the temporaries of another program.
SHARED = 1 << 18
# Temporaries of at least `LARGE_TEMPORARIES` bytes are in large pages, in an address range that is `RESERVED` times as
# large, up to `MOST_RESERVED` bytes: a later program that needs more finds the beginning of its temporaries paged in.
# Pages that no program touches take no memory.
LARGE_TEMPORARIES, RESERVED, MOST_RESERVED = 1 << 20, 8, 1 << 30
# The most bytes of free blocks in the pools of all devices; beyond, memory goes back to the system.
MOST_POOLED = 1 << 29


class Chunk:
    """Memory with its address; arrays in it keep it alive."""

    __slots__ = ("address", "array")

    def __init__(self, size: int, system_memory: Callable[[int], _Memory] | None = None) -> None:
        take = system_memory or _system_memory
        try:
            whole, alignment, first = take(size)
        except _NO_MEMORY:
            # Pooled memory may make the difference.
            clear_all()
            try:
                whole, alignment, first = take(size)
            except _NO_MEMORY:
                raise out_of_memory("an array", size) from None
        address = whole.__array_interface__["data"][0]
        self.array = whole
        self.address: int = address + -address % alignment + first

    @property
    def room(self) -> int:
        """Bytes from the address to the end."""
        result: int = self.array.nbytes - (self.address - self.array.__array_interface__["data"][0])
        return result

    def view(self, pointer: int, shape: Any, dtype: Any) -> np.ndarray:
        """Return a part of the memory as an array."""
        count = math.prod(shape)
        if not count * dtype.itemsize:
            return np.empty(shape, dtype)
        start = pointer - self.array.__array_interface__["data"][0]
        result: np.ndarray = self.array[start : start + count * dtype.itemsize].view(dtype).reshape(shape)
        return result


_staggers = itertools.count()
# Errors that NumPy and the system raise for sizes that are not available or not possible.
_NO_MEMORY = (MemoryError, OSError, OverflowError, ValueError)


@functools.cache
def most_memory() -> int:
    """Return all memory that the machine has, including swap.

    Some systems promise more and kill processes that use it.
    """
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") + _swap()
    except (AttributeError, ValueError, OSError):
        return sys.maxsize


def _swap() -> int:
    """Return the size of swap, or 0 if the system does not report it."""
    try:
        with open("/proc/meminfo", encoding="ascii") as file:
            return sum(int(line.split()[1]) << 10 for line in file if line.startswith("SwapTotal"))
    except OSError:
        return 0


# New memory, the alignment of its content, and the offset of the content from the aligned address.
_Memory = tuple[np.ndarray, int, int]


def _system_memory(size: int) -> _Memory:
    """Allocate memory with room for `size` aligned bytes."""
    if size >= LARGE and size > most_memory():
        raise MemoryError
    if size < LARGE or not hasattr(mmap, "MADV_HUGEPAGE"):
        return np.empty(size + ALIGNMENT, np.uint8), ALIGNMENT, 0
    return _large(size)


def _temporary_memory(size: int) -> _Memory:
    """Allocate temporaries of `size` bytes, with room for larger ones of later programs."""
    if size < LARGE_TEMPORARIES or size > most_memory() or not _promises_freely():
        return _system_memory(size)
    try:
        return _large(max(size, min(RESERVED * size, MOST_RESERVED)))
    except _NO_MEMORY:  # the address space may be limited as well
        return _system_memory(size)


def _large(size: int) -> _Memory:
    """Map `size` bytes in large pages, with room for alignment and for the stagger."""
    whole = size + LARGE_PAGE + STAGGER * STAGGERS
    pages = mmap.mmap(-1, whole, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    pages.madvise(mmap.MADV_HUGEPAGE)
    return np.frombuffer(pages, np.uint8), LARGE_PAGE, next(_staggers) % STAGGERS * STAGGER


@functools.cache
def _promises_freely() -> bool:
    """Return whether the system has large pages and allows reservations without memory behind them."""
    try:
        with open("/proc/sys/vm/overcommit_memory", encoding="ascii") as file:
            return int(file.read()) != 2 and hasattr(mmap, "MADV_HUGEPAGE")
    except (OSError, ValueError):
        return False


def rounded_up(size: int) -> int:
    """Round a size up to a multiple of the alignment."""
    return -(-size // ALIGNMENT) * ALIGNMENT


class Block(Chunk):
    """Memory of a size class, which goes back to its pool."""

    __slots__ = ("pool", "size_class")

    def __init__(self, size_class: int, pool: Pool) -> None:
        self.size_class, self.pool = size_class, pool
        super().__init__(class_size(size_class))

    def __del__(self) -> None:
        # Views have the array as their base: then there are more references than this slot and the call below. A block
        # whose allocation failed has no array.
        if hasattr(self, "array") and sys.getrefcount(self.array) <= 2:
            self.pool.give(self.size_class, self.array, self.address)


def find_size_class(size: int) -> int:
    """Return the size class of a number of bytes: there are four classes an octave."""
    size = max(size, 4096) - 1
    octave = size.bit_length() - 3  # `size >> octave` is one of 4 to 7
    return octave * 4 + (size >> octave) - 4


def class_size(size_class: int) -> int:
    """Return the largest size of a class."""
    octave, quarter = divmod(size_class, 4)
    return (quarter + 5) << octave


# Reentrant, since finalizers may run inside of `take`. All pools share it, since their total size is limited.
_lock = held(threading.RLock())
_pooled = 0


class Pool:
    """Free memory of a device by size class."""

    def __init__(self) -> None:
        self._free: dict[int, list[tuple[np.ndarray, int]]] = {}

    def take(self, size: int) -> Block:
        """Return a block of at least `size` bytes."""
        global _pooled
        size_class = find_size_class(size)
        with _lock:
            free = self._free.get(size_class)
            if free:
                array, address = free.pop()
                _pooled -= array.nbytes
                block = Block.__new__(Block)
                block.array, block.address, block.size_class, block.pool = array, address, size_class, self
                return block
        return Block(size_class, self)

    def give(self, size_class: int, array: np.ndarray, address: int) -> None:
        """Return unused memory to the pool, or to the system if the pools are full."""
        global _pooled
        with _lock:
            if _pooled + array.nbytes <= MOST_POOLED:
                self._free.setdefault(size_class, []).append((array, address))
                _pooled += array.nbytes

    def clear(self) -> None:
        """Return all free memory to the system."""
        global _pooled
        with _lock:
            _pooled -= self.bytes
            self._free.clear()

    @property
    def bytes(self) -> int:
        """Bytes of free memory."""
        with _lock:
            return sum(array.nbytes for free in self._free.values() for array, _ in free)


def take_each(pools: Sequence[Pool], size: int) -> list[Block]:
    """Take a block of at least `size` bytes from each pool."""
    global _pooled
    size_class = find_size_class(size)
    found: list[Block] = []
    with _lock:
        for pool in pools:
            free = pool._free.get(size_class)
            if not free:
                break
            array, address = free.pop()
            _pooled -= array.nbytes
            block = Block.__new__(Block)
            block.array, block.address, block.size_class, block.pool = array, address, size_class, pool
            found.append(block)
    return found + [pool.take(size) for pool in pools[len(found) :]]


class Arena(threading.local):
    """The chunk that a thread cuts small results from."""

    chunk: Chunk | None = None
    next = 0
    end = 0


class Temporaries(list[Chunk]):
    """Pool of temporaries of one size class.

    A run takes a chunk and puts it back afterwards; dispatchers do so inline.
    """

    __slots__ = ("_others", "_size_class")

    def __init__(self, size_class: int, others: dict[int, Temporaries]) -> None:
        super().__init__()
        self._size_class, self._others = size_class, others

    def take(self) -> Chunk:
        """Take a free chunk for one run, or allocate one."""
        with contextlib.suppress(IndexError):
            return self.pop()
        size = class_size(self._size_class)
        if size >= SHARED:
            free = [(chunk.room, i, chunk) for i, other in list(self._others.items()) for chunk in list(other)]
            for _, i, chunk in sorted((f for f in free if f[0] >= size), key=lambda f: f[0]):
                if self._others[i].drop(chunk):
                    return chunk
            # Drop smaller ones, since those programs can use the new chunk.
            for room, i, chunk in free:
                if room >= SHARED:
                    self._others[i].drop(chunk)
            free.clear()
        return Chunk(size, _temporary_memory)

    def drop(self, chunk: Chunk) -> bool:
        """Remove a chunk from the pool; return whether it was still free."""
        try:
            self.remove(chunk)
        except ValueError:  # another thread has taken it
            return False
        return True


class DeviceMemory:
    """Allocator of one device, for its arrays and programs."""

    __slots__ = ("_queued", "_temporaries", "cut", "pool")

    def __init__(self) -> None:
        self.pool = Pool()
        self.cut = _cutter(Arena())
        self._temporaries: dict[int, Temporaries] = {}
        self._queued: Chunk | None = None
        _memories.append(self)

    def allocate(self, size: int) -> tuple[int, Chunk]:
        """Allocate `size` bytes; return their address and the object that frees them with its last reference."""
        if size <= SMALL:
            return self.cut(rounded_up(size))
        block = self.pool.take(size)
        return block.address, block

    def statistics(self) -> None:
        """Return None: host memory is not tracked by device."""

    def temporaries(self, size: int) -> Temporaries:
        """Return the pool of temporaries for programs that need `size` bytes."""
        size_class = find_size_class(size)
        return self._temporaries.setdefault(size_class, Temporaries(size_class, self._temporaries))

    def queued(self, size: int) -> Chunk:
        """Return memory for the temporaries of queued programs.

        They run one after the other, so all share it. Programs in the queue keep theirs when a larger one is needed.
        """
        found = self._queued
        if found is None or found.room < size:
            self._queued = None  # free the smaller one first, so that there are never two
            found = self._queued = Chunk(class_size(find_size_class(size)), _temporary_memory)
        return found

    def empty(self, shape: Any, dtype: Any) -> np.ndarray:
        """Return an uninitialised array."""
        address, chunk = self.allocate(math.prod(shape) * dtype.itemsize)
        return chunk.view(address, shape, dtype)

    def allocate_copy(self, value: np.ndarray, shape: Any) -> Block:
        """Copy the elements of an array, broadcast to a shape, to a new block."""
        block = self.pool.take(math.prod(shape) * value.itemsize)
        block.view(block.address, shape, value.dtype)[...] = value
        return block

    def clear(self) -> None:
        """Return all unused memory to the system."""
        self.pool.clear()
        self._queued = None
        for free in list(self._temporaries.values()):
            free.clear()


_memories: list[DeviceMemory] = []


def clear_all() -> None:
    """Return the unused memory of all devices to the system: on CPUs they share it."""
    for memory in _memories:
        memory.clear()


def _cutter(arena: Arena) -> Callable[[int], tuple[int, Chunk]]:
    """Return a function that cuts small results from chunks."""

    def cut(size: int) -> tuple[int, Chunk]:
        """Allocate an aligned address with room for `size` bytes; return it and the chunk that contains it."""
        chunk, address = arena.chunk, arena.next
        if chunk is None or address + size > arena.end:
            room = max(CHUNK, size)
            chunk = Chunk(room)
            address = chunk.address
            # Signal handlers and finalizers run at calls, and may cut too. From here on there is no call, so they see
            # either the previous state or the new chunk.
            arena.chunk, arena.end = chunk, address + room
        arena.next = address + size
        return address, chunk

    return cut


def allocate_aligned(size: int) -> np.ndarray:
    """Allocate bytes that are aligned to a cache line, outside of the pool."""
    chunk = Chunk(size)
    return chunk.view(chunk.address, (size,), np.dtype(np.uint8))


def view(address: int, shape: Any, dtype: Any) -> np.ndarray:
    """Return memory at an address as an array; the caller keeps the memory alive."""
    size = math.prod(shape) * dtype.itemsize
    if not size:
        return np.empty(shape, dtype)
    return np.frombuffer((ctypes.c_char * size).from_address(address), dtype).reshape(shape)
