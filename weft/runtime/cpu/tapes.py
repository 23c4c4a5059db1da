"""Conversion of tapes between Python and native code, by copies."""

from __future__ import annotations

from typing import Any

import numpy as np

from weft.base import dtypes
from weft.compiler.target.cpu.tape import HEAD
from weft.ir.types import TapeType
from weft.primitives.control.tape import Tape
from weft.runtime.cpu import memory


def to_native(tape: Tape, held: list[Any]) -> np.ndarray:
    """Return the native handle of a tape, whose entries are in memory that `held` keeps alive.

    It has no spare capacity, so native code that appends to it copies it first.
    """
    entries = [
        to_native(e, held) if isinstance(e, Tape) else np.ascontiguousarray(e) for e in tape.entries[: tape.length]
    ]
    size = sum(e.nbytes for e in entries)
    block = memory.allocate_aligned(HEAD + size)
    block[:HEAD].view(np.int64)[:] = [0, tape.length, tape.length, 0]
    offset = HEAD
    for entry in entries:
        block[offset : offset + entry.nbytes] = entry.reshape(-1).view(np.uint8)
        offset += entry.nbytes
    held.append(block)
    return np.array([block.ctypes.data + HEAD if tape.length else 0, tape.length], np.int64)


def from_native(handle: np.ndarray, aval: TapeType) -> Tape:
    """Return the tape of a native handle, with copies of its entries."""
    address, length = (int(word) for word in handle)
    element: Any = aval.element
    entries: list[Any] = []
    for position in range(length):
        if isinstance(element, TapeType):
            inner = memory.view(address + 16 * position, (2,), np.dtype(np.int64))
            entries.append(from_native(inner, element))
        else:
            dtype = dtypes.storage(element.dtype)
            size = int(np.prod(element.shape, dtype=np.int64)) * dtype.itemsize
            entries.append(memory.view(address + size * position, element.shape, dtype).copy())
    return Tape(element, entries, length)
