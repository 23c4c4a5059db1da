"""Tapes on a GPU: growing sequences of residuals, for the reverse mode of unbounded loops.

A tape is a handle of two integers in device memory, the address of its entries and their count, as on CPUs
(`compiler/target/cpu/tape.py`); loops copy handles like other values. The host reads handles and positions, allocates,
and starts copies; entries never leave the GPU while a program runs.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from weft.base import dtypes
from weft.base.dataclass import dataclass
from weft.compiler.program.ir import TAPE_BYTES, byte_size
from weft.ir.types import TapeType
from weft.primitives.control.tape import Tape
from weft.runtime.cuda.memory import Block, CudaMemory

LEAST_ROOM = 16  # entries of a new block


@dataclass
class _Entries:
    """Block of entries, and the number of bytes that are written."""

    block: Block
    used: int


class Tapes:
    """Tapes of one run: their blocks by address, kept alive until the run has been started."""

    def __init__(self, memory: CudaMemory) -> None:
        self._memory, self._driver = memory, memory.driver
        self._entries: dict[int, _Entries] = {}

    # -- steps of programs -----------------------------------------------------------------------------------------

    def call(self, routine: str, addresses: list[int], parameters: tuple[int, ...]) -> None:
        """Execute a step that works on tapes."""
        if routine == "weft_tape_length":
            handle, out = addresses
            self._put(out, np.array([self._handle(handle)[1]], np.int32))
            return
        (size,) = parameters
        handle, position_address, *rest = addresses
        known, index = np.zeros(2, np.int64), np.zeros(1, np.int32)
        self._driver.copy_out_together([(known, handle), (index, position_address)])
        data, length, position = int(known[0]), int(known[1]), int(index[0])
        if routine == "weft_tape_read":
            self._read(data, length, position, rest[0], size)
        else:
            value, out = rest
            self._put(out, np.array(self._write(data, length, position, value, size), np.int64))

    def _read(self, data: int, length: int, position: int, target: int, size: int) -> None:
        """Copy an entry, or zeros if there is none."""
        if size and 0 <= position < length:
            self._driver.copy(target, data + position * size, size)
        elif size:
            self._driver.fill(target, size)

    def _write(self, data: int, length: int, position: int, value: int, size: int) -> tuple[int, int]:
        """Return the handle of a tape with a value at a position.

        A write at the end of the newest handle is done in place if there is room; other handles keep their entries. A
        negative position writes nothing.
        """
        if position < 0:
            return data, length
        after = max(position + 1, length)
        if size == 0:
            return data, after
        entries = self._entries.get(data)
        newest = entries is not None and entries.used == length * size and position >= length
        if entries is None or not newest or after * size > entries.block.size:
            entries = self._new(max(2 * after, LEAST_ROOM) * size)
            if length:
                self._driver.copy(entries.block.address, data, length * size)
        data, entries.used = entries.block.address, after * size
        if position > length:  # entries in between are zero
            self._driver.fill(data + length * size, (position - length) * size)
        self._driver.copy(data + position * size, value, size)
        return data, after

    def _new(self, size: int) -> _Entries:
        entries = _Entries(self._memory.take(size), 0)
        self._entries[entries.block.address] = entries
        return entries

    def _handle(self, address: int) -> tuple[int, int]:
        known = np.zeros(2, np.int64)
        self._driver.copy_out(known, address)
        return int(known[0]), int(known[1])

    def _put(self, address: int, value: np.ndarray) -> None:
        self._driver.copy_in(address, value)

    # -- arguments and results are copied --------------------------------------------------------------------------

    def put_tape(self, tape: Tape) -> Block:
        """Copy a tape of the host to the GPU; return the block of its handle."""
        block = self._memory.take(TAPE_BYTES)
        self._put(block.address, np.array(self._copy_entries(tape), np.int64))
        return block

    def _copy_entries(self, tape: Tape) -> tuple[int, int]:
        entries = [
            np.array(self._copy_entries(e), np.int64) if isinstance(e, Tape) else np.ascontiguousarray(e)
            for e in tape.entries[: tape.length]
        ]
        size = sum(e.nbytes for e in entries)
        if not size:
            return 0, tape.length
        found = self._new(size)
        found.used = size
        self._put(found.block.address, np.concatenate([e.reshape(-1).view(np.uint8) for e in entries]))
        return found.block.address, tape.length

    def get_tape(self, address: int, aval: TapeType) -> Tape:
        """Copy the tape whose handle is at an address to the host."""
        data, length = self._handle(address)
        return self._tape(data, length, aval.element)

    def _tape(self, data: int, length: int, element: Any) -> Tape:
        size = byte_size(element)
        whole = np.empty(length * size, np.uint8)
        if whole.nbytes:
            self._driver.copy_out(whole, data)
        if isinstance(element, TapeType):
            handles = whole.view(np.int64).reshape(length, 2)
            inside = [self._tape(int(a), int(n), element.element) for a, n in handles]
            return Tape(element, inside, length)
        rows = whole.view(dtypes.storage(element.dtype)).reshape(length, *element.shape)
        return Tape(element, list(rows), length)
