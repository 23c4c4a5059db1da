"""Copies between the host and a GPU, through rings of pinned memory.

The GPU copies pinned memory at 50 GB/s, five times as fast as other memory of the host, and asynchronously; the threads
of CPU programs fill and drain the ring meanwhile. Large copies have streams of their own:

to the GPU: the ring is copied to a larger one on the GPU while programs run, and from there to its destination in the
order of all work, which takes hardly any time. So memory is overwritten only when earlier work does not read it any
more. On an idle GPU there is no second ring.

to the host: a copy starts when all earlier work has ended, and does not wait for later work.
"""

from __future__ import annotations

import ctypes
import threading
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Protocol

import numpy as np

from weft.base.errors import OutOfMemoryError
from weft.base.forks import held
from weft.compiler.target.cpu import pool

# Copies of at most this many bytes are in the stream of all work, each through one of `DIRECT_SLOTS` slots: they take
# less time than an event between two streams.
SMALL, MEDIUM = 1 << 16, 1 << 20
DIRECT_SLOTS = 16
# Others are in chunks, through `SLOTS` slots of pinned memory and `STAGED` slots on the GPU. The latter are not free
# before concurrent programs have ended.
CHUNK, SLOTS, STAGED = 1 << 23, 4, 8
# Bytes that one thread of the host copies at a time.
OF_ONE_THREAD = 1 << 16


class Machine(Protocol):
    """Interface of a `Driver` for copies; `stream` is that of all work. An event that was never recorded has
    happened."""

    @property
    def stream(self) -> Any: ...

    def new_stream(self) -> Any: ...

    def event(self, timed: bool = True) -> Any: ...

    def allocate_pinned(self, size: int) -> int: ...

    def allocate(self, size: int) -> int: ...

    def is_idle(self) -> bool: ...


class _Slot:
    """Memory that is reused after the event `done`: the GPU has read or written it."""

    def __init__(self, machine: Machine, address: int) -> None:
        self.address, self.done = address, machine.event(timed=False)


class _Ring:
    """Ring of slots."""

    def __init__(self, machine: Machine, addresses: Sequence[int]) -> None:
        self._slots = [_Slot(machine, address) for address in addresses]
        self._next = 0

    def next(self) -> _Slot:
        """Return the slot that was used longest ago."""
        slot = self._slots[self._next]
        self._next = (self._next + 1) % len(self._slots)
        return slot


def _pinned_ring(machine: Machine, size: int, count: int) -> _Ring:
    """Allocate a ring of pinned memory of the host."""
    base = machine.allocate_pinned(size * count)
    return _Ring(machine, [base + size * i for i in range(count)])


def _get_address(value: np.ndarray) -> int:
    address: int = value.__array_interface__["data"][0]
    return address


class Copies:
    """Copies of one GPU. Memory and streams are allocated with the first copy of a kind."""

    def __init__(self, machine: Machine, enter: Callable[[], None]) -> None:
        """Create the copies of a GPU; `enter` makes its context current in a thread."""
        self._machine, self._enter = machine, enter
        self._lock, self._out_lock = held(threading.RLock()), held(threading.RLock())
        self._direct: dict[int, _Ring] = {}
        self._small_out: _Ring | None = None
        self._in: tuple[Any, _Ring] | None = None
        self._staging: _Ring | None = None
        self._out: tuple[Any, _Ring] | None = None
        self._reader: ThreadPoolExecutor | None = None

    # -- to the GPU ------------------------------------------------------------------------------------------------

    def copy_in(self, address: int, value: np.ndarray) -> None:
        """Copy a contiguous array to an address, in the order of all work. The array may change when this returns."""
        source, size = _get_address(value), value.nbytes
        with self._lock:
            if size <= MEDIUM:
                self._copy_direct(address, source, size)
            else:
                self._copy_chunks(address, source, size)

    def _copy_direct(self, address: int, source: int, size: int) -> None:
        """Copy through one slot, in the stream of all work."""
        work, most = self._machine.stream, SMALL if size <= SMALL else MEDIUM
        ring = self._direct[most] = self._direct.get(most) or _pinned_ring(self._machine, most, DIRECT_SLOTS)
        slot = ring.next()
        slot.done.synchronize()
        pool.copy(slot.address, source, size, OF_ONE_THREAD)
        work.copy_in(address, slot.address, size)
        work.mark(slot.done)

    def _copy_chunks(self, address: int, source: int, size: int) -> None:
        machine, work = self._machine, self._machine.stream
        if self._in is None:
            self._in = machine.new_stream(), _pinned_ring(machine, CHUNK, SLOTS)
        stream, ring = self._in
        staging = None if machine.is_idle() else self._staged()
        for offset in range(0, size, CHUNK):
            slot, length = ring.next(), min(CHUNK, size - offset)
            slot.done.synchronize()
            pool.copy(slot.address, source + offset, length, OF_ONE_THREAD)
            staged = None if staging is None else staging.next()
            if staged is not None:
                stream.wait(staged.done)
            stream.copy_in(address + offset if staged is None else staged.address, slot.address, length)
            stream.mark(slot.done)
            work.wait(slot.done)
            if staged is not None:
                work.copy(address + offset, staged.address, length)
                work.mark(staged.done)

    def _staged(self) -> _Ring | None:
        """Return the ring on the GPU; if it has no memory left for it, wait for all work and return None."""
        if self._staging is None:
            addresses: list[int] = []
            try:
                for _ in range(STAGED):
                    addresses.append(self._machine.allocate(CHUNK))
            except OutOfMemoryError:
                if not addresses:
                    self._machine.stream.synchronize()
                    return None
            self._staging = _Ring(self._machine, addresses)
        return self._staging

    # -- to the host -----------------------------------------------------------------------------------------------

    def copy_out(self, value: np.ndarray, address: int) -> None:
        """Copy device memory to a contiguous array, after all earlier work has ended."""
        if value.nbytes <= SMALL:
            self.copy_out_together([(value, address)])
        else:
            self._copy_out(value, address, self._after_work())

    def copy_out_together(self, pairs: Sequence[tuple[np.ndarray, int]]) -> None:
        """Copy device memory to several small arrays, with one wait."""
        machine, stream = self._machine, self._machine.stream
        with self._out_lock:
            ring = self._small_out = self._small_out or _pinned_ring(machine, SMALL, 1)
            base = ring.next().address
            offsets = [SMALL // len(pairs) * i for i in range(len(pairs))]
            for (value, address), offset in zip(pairs, offsets, strict=True):
                stream.copy_out(base + offset, address, value.nbytes)
            stream.synchronize()
            for (value, _), offset in zip(pairs, offsets, strict=True):
                ctypes.memmove(_get_address(value), base + offset, value.nbytes)

    def copy_out_later(self, value: np.ndarray, address: int, holds: Any) -> Future[None]:
        """Copy device memory to an array in another thread, which keeps `holds` alive until then."""
        event = self._after_work()
        self._reader = self._reader or ThreadPoolExecutor(1, "weft reads a GPU")

        def copy(held: Any) -> None:
            self._enter()
            self._copy_out(value, address, event)

        return self._reader.submit(copy, holds)

    def _after_work(self) -> Any:
        """Return an event after all work so far."""
        event = self._machine.event(timed=False)
        self._machine.stream.mark(event)
        return event

    def _copy_out(self, value: np.ndarray, address: int, event: Any) -> None:
        """Copy after an event."""
        machine, target, size = self._machine, _get_address(value), value.nbytes
        with self._out_lock:
            if self._out is None:
                self._out = machine.new_stream(), _pinned_ring(machine, CHUNK, SLOTS)
            stream, ring = self._out
            stream.wait(event)
            under_way: deque[tuple[_Slot, int, int]] = deque()
            for offset in range(0, size, CHUNK):
                if len(under_way) == SLOTS:
                    _empty(*under_way.popleft())
                slot, length = ring.next(), min(CHUNK, size - offset)
                stream.copy_out(slot.address, address + offset, length)
                stream.mark(slot.done)
                under_way.append((slot, target + offset, length))
            while under_way:
                _empty(*under_way.popleft())


def _empty(slot: _Slot, target: int, size: int) -> None:
    """Wait until the GPU has written a slot, and copy its content."""
    slot.done.synchronize()
    pool.copy(target, slot.address, size, OF_ONE_THREAD)
