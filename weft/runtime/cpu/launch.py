"""Calls of executables by the addresses of their arguments: what operations outside of programs run through."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from weft.base.settings import config
from weft.compiler.compilation import FLAT_LENGTH, FLAT_MOST
from weft.compiler.program.ir import bytes_of
from weft.compiler.target.cpu import machine, pool
from weft.ir.types import ArrayType
from weft.runtime import memory
from weft.runtime.array import ConcreteArray, PlacedArray
from weft.runtime.cpu import tiers
from weft.runtime.cpu.executable import CALLS_BEFORE_BETTER_CODE, WORTH_MORE, Executable
from weft.runtime.device import HOME, Placement

__all__ = ["FLAT_LENGTH", "Launcher", "address_of_count"]

# An operation that takes less than this many nanoseconds has better code made when it was called that often.
SHORT, CALLS_OF_SHORT = 1e-3 * WORTH_MORE, 16


class Launcher:
    """A program with neither tapes nor donated arguments, to be called with addresses; its results have the types
    `results`, which may be of other shapes than the program's own, and are put at a place. One is made for a state of
    the settings."""

    __slots__ = (
        "_calls",
        "_cut",
        "_executable",
        "_frame",
        "_last",
        "_parallel",
        "_placement",
        "_results",
        "_temporaries",
        "_timed",
    )

    def __init__(self, executable: Executable, results: Sequence[ArrayType], placement: Placement) -> None:
        self._executable = executable
        self._placement, self._cut = placement, placement.memory.cut
        self._temporaries = executable.free_temporaries(placement.memory)
        self._results = [(aval, -(-bytes_of(aval) // memory.ALIGNMENT) * memory.ALIGNMENT) for aval in results]
        program = executable.program
        self._frame = executable.frame
        self._parallel = program.uses_threads
        self._calls, self._timed = 0, config.profiling
        self._last = CALLS_BEFORE_BETTER_CODE if program.nanoseconds > SHORT else CALLS_OF_SHORT

    def __call__(self, *addresses: int) -> list[Any]:
        """Run on the memory at these addresses, one an argument; gives new arrays."""
        executable, frame = self._executable, self._frame
        self._calls += 1
        if self._calls == self._last and executable.can_improve:
            tiers.improve(executable)
        made: list[Any] = []
        outputs = []
        placement = self._placement
        for aval, size in self._results:
            if size <= memory.SMALL:
                address, chunk = self._cut(size)
            else:
                chunk = placement.memory.pool.take(size)
                address = chunk.address
            if placement is HOME:
                made.append(ConcreteArray(None, aval, chunk, address))
            else:
                made.append(PlacedArray(None, aval, chunk, address, placement))
            outputs.append(address)
        if self._parallel:
            pool.prepare()
        scratch = executable.take_temporaries(self._temporaries) if executable.program.temporary_bytes else None
        words = frame.pack(*frame.entries(scratch.address if scratch else 0, addresses, outputs))
        try:
            if self._timed:
                status = executable.enter_timed(words)
            else:
                status = _enter(executable.code_address, words, frame.count, frame.registers)
        finally:
            if scratch is not None:
                self._temporaries.append(scratch)
        if status:
            executable.raise_(status)
        return made


_enter = machine.enter()
# Lengths in memory, where programs of any length read them.
_counts = np.arange(FLAT_MOST, dtype=np.int64)


def address_of_count(length: int) -> int:
    """Where a length is in memory, for as long as the process runs."""
    return int(_counts.__array_interface__["data"][0]) + length * _counts.itemsize
