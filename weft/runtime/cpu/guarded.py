"""Native code with guard pages around all of its memory: an access outside of a buffer ends the process by a signal.

    from weft.runtime.cpu import guarded

    guarded.run(weft.make_jaxpr(f)(x), [x])

Each argument, result, constant and temporary has pages of its own between inaccessible pages. It ends where such a page
begins (`Edge.END`), or begins where one ends (`Edge.BEGIN`). Temporaries, which otherwise share one block of memory by
their lifetimes, are laid out one after the other too: a guard around the whole block would not detect a read that goes
from one of them into the next. Before a run all bits of temporaries and results are set, a pattern that is a nan for
floats; arguments that are not donated and constants are read-only.
"""

from __future__ import annotations

import ctypes
import mmap
import os
from collections.abc import Iterable, Sequence
from enum import Enum
from typing import Any

import numpy as np

from weft.base import dtypes
from weft.base.compile_options import get_compile_options
from weft.base.dataclass import dataclass
from weft.compiler.compilation import Compilation
from weft.compiler.compile import compile_program
from weft.compiler.program.assign import Lifetimes
from weft.compiler.program.ir import Slot
from weft.compiler.target.cpu.targets import host
from weft.compiler.target.target import Target
from weft.ir.jaxpr import Jaxpr
from weft.ir.types import TapeType
from weft.runtime.cpu.executable import Executable
from weft.runtime.cpu.memory import Chunk, DeviceMemory, Temporaries

PAGE = mmap.PAGESIZE
# The content of memory before a run.
POISON = 0xFF
_NOTHING, _READ = 0, 1  # protections of pages


class Edge(Enum):
    """Side of a piece of memory that touches its guard page: the rest of its last page is at the other side."""

    BEGIN = "begin"
    END = "end"


@dataclass(frozen=True)
class Layout:
    """Pieces of memory one after the other: their offsets, their pages (start, length) and the size in bytes. An
    empty piece is at the beginning of a guard page.
    """

    offsets: list[int]
    pages: list[tuple[int, int]]
    size: int

    @staticmethod
    def of(sizes: Iterable[int], edge: Edge) -> Layout:
        """Lay out pieces of these sizes, with a guard page before each and after the last."""
        offsets, pages, total = [], [], PAGE
        for size in sizes:
            length = -(-size // PAGE) * PAGE
            offsets.append(total if edge is Edge.BEGIN else total + length - size)
            pages.append((total, length))
            total += length + PAGE
        return Layout(offsets, pages, total)


class Guarded(Chunk):
    """Memory of a layout, with its guard pages."""

    __slots__ = ("layout",)

    def __init__(self, layout: Layout) -> None:
        self.layout = layout
        self.array = np.frombuffer(mmap.mmap(-1, layout.size), np.uint8)
        self.address = int(self.array.__array_interface__["data"][0])
        _protect(self.address, PAGE, _NOTHING)
        for first, length in layout.pages:
            self.array[first : first + length] = POISON
            _protect(self.address + first + length, PAGE, _NOTHING)

    def put(self, index: int, array: np.ndarray) -> None:
        """Copy the elements of an array to a piece."""
        first = self.layout.offsets[index]
        self.array[first : first + array.nbytes] = array.reshape(-1).view(np.uint8)

    def forbid_writing(self, indices: Iterable[int] | None = None) -> None:
        """Make some pieces, or all, read-only."""
        for i in range(len(self.layout.pages)) if indices is None else indices:
            first, length = self.layout.pages[i]
            if length:
                _protect(self.address + first, length, _READ)

    def is_poisoned_around(self, index: int, size: int) -> bool:
        """Return whether the rest of a piece's pages, beyond its `size` bytes, is unchanged."""
        (first, length), begin = self.layout.pages[index], self.layout.offsets[index]
        parts = self.array[first:begin], self.array[begin + size : first + length]
        return all(bool((part == POISON).all()) for part in parts)


def _protect(address: int, size: int, protection: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.mprotect(ctypes.c_void_p(address), ctypes.c_size_t(size), protection):
        code = ctypes.get_errno()
        raise OSError(code, f"A guard page cannot be set up: {os.strerror(code)}")


class GuardedExecutable(Executable):
    """Executable with guard pages around all of its memory. It owns its program, whose memory it plans again."""

    def __init__(self, compilation: Compilation, edge: Edge) -> None:
        self.edge = edge
        program = compilation.program
        lifetimes = Lifetimes()
        lifetimes.visit(program.steps)
        self._layout = _placement(list(lifetimes.ranges), edge)
        constants = _placement(program.constant_slots, edge)
        program.temporary_bytes, program.constant_bytes = self._layout.size, constants.size
        super().__init__(compilation)
        self._constants = Guarded(constants)
        for i, array in enumerate(program.constants):
            self._constants.put(i, array)
        self._constants.forbid_writing()
        self.frame.constants = self._constants.address

    def allocate(self, size: int, of: DeviceMemory) -> tuple[int, Chunk]:
        chunk = Guarded(Layout.of([size], self.edge))
        return chunk.address + chunk.layout.offsets[0], chunk

    def free_temporaries(self, of: DeviceMemory) -> Temporaries:
        return Temporaries(0, {})  # each run has fresh memory

    def take_temporaries(self, free: Temporaries) -> Chunk:
        return Guarded(self._layout)


def _placement(slots: Sequence[Slot], edge: Edge) -> Layout:
    """Assign offsets in a guarded block to slots; return the layout of the block."""
    layout = Layout.of([slot.size for slot in slots], edge)
    for slot, offset in zip(slots, layout.offsets, strict=True):
        slot.offset = offset
    return layout


def run(
    jaxpr: Jaxpr,
    arrays: Sequence[Any],
    edge: Edge = Edge.END,
    donated: Sequence[bool] = (),
    target: Target | None = None,
) -> list[Any]:
    """Run a program with guard pages around all of its memory; return the results as arrays in ordinary memory."""
    executable = GuardedExecutable(compile_program(jaxpr, donated, target or host(), get_compile_options()), edge)
    return call(executable, arrays, donated)


def call(executable: GuardedExecutable, arrays: Sequence[Any], donated: Sequence[bool] = ()) -> list[Any]:
    """Call an executable on guarded copies of arrays."""
    copies: list[Any] = []
    for i, (array, aval) in enumerate(zip(arrays, executable.in_types, strict=True)):
        if not isinstance(aval, TapeType):
            array = np.ascontiguousarray(array)
            memory = Guarded(Layout.of([array.nbytes], executable.edge))
            memory.put(0, array)
            if not (donated and donated[i]):
                memory.forbid_writing()
            array = memory.view(memory.address + memory.layout.offsets[0], array.shape, array.dtype)
        copies.append(array)
    results = executable(copies)
    return [
        r if isinstance(t, TapeType) else np.array(r._value).astype(dtypes.storage(t.dtype), copy=False)
        for r, t in zip(results, executable.out_types, strict=True)
    ]
