"""Calls of executables by the addresses of their arguments, for eager operations."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from weft.base import dtypes
from weft.base.settings import config
from weft.compiler.compilation import FLAT_MOST
from weft.compiler.program.ir import byte_size
from weft.compiler.target.cpu import bytecode, pool
from weft.ir.types import ArrayType
from weft.runtime.array import ConcreteArray, PlacedArray
from weft.runtime.cpu import memory, tiers
from weft.runtime.cpu.executable import CALLS_BEFORE_BETTER_CODE, WORTH_MORE, Executable
from weft.runtime.device import HOME, Placement

# An operation that takes less than `SHORT` nanoseconds gets better code after `CALLS_OF_SHORT` calls.
SHORT, CALLS_OF_SHORT = 1e-3 * WORTH_MORE, 16


class Launcher:
    """Caller of a program without tapes or donated arguments, by addresses; created for one state of the settings.

    Its results have the types `results`, which may have other shapes than the program's own, and a placement.
    """

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
        self._results = [(aval, memory.rounded_up(byte_size(aval))) for aval in results]
        program = executable.program
        self._frame = executable.frame
        self._parallel = program.uses_threads
        self._calls, self._timed = 0, config.profiling
        self._last = CALLS_BEFORE_BETTER_CODE if program.nanoseconds > SHORT else CALLS_OF_SHORT

    def __call__(self, *addresses: int) -> list[Any]:
        """Run on the memory at these addresses, one for each argument; return new arrays."""
        executable, frame = self._executable, self._frame
        self._calls += 1
        if self._calls == self._last and executable.can_improve:
            tiers.improve(executable)
        arrays: list[Any] = []
        outputs = []
        placement = self._placement
        for aval, size in self._results:
            if size <= memory.SMALL:
                address, chunk = self._cut(size)
            else:
                chunk = placement.memory.pool.take(size)
                address = chunk.address
            if placement is HOME:
                arrays.append(ConcreteArray(None, aval, chunk, address))
            else:
                arrays.append(PlacedArray(None, aval, chunk, address, placement))
            outputs.append(address)
        if self._parallel:
            pool.prepare()
        scratch = executable.take_temporaries(self._temporaries) if executable.program.temporary_bytes else None
        packed = frame.pack(*frame.entries(scratch.address if scratch else 0, addresses, outputs))
        try:
            if self._timed:
                status = executable.enter_timed(packed)
            else:
                status = _enter(executable.code_address, packed, frame.count, frame.registers)
        finally:
            if scratch is not None:
                self._temporaries.append(scratch)
        if status:
            executable.raise_(status)
        return arrays


_enter = bytecode.enter()
# All lengths, in memory: a program for any length reads its length from an address.
_counts = np.arange(FLAT_MOST, dtype=np.int64)


def address_of_count(length: int) -> int:
    """Return the address of a length in memory that lives as long as the process."""
    return int(_counts.__array_interface__["data"][0]) + length * _counts.itemsize


def eager_call(
    executable: Executable,
    types: Sequence[ArrayType],
    results: Sequence[ArrayType],
    placement: Placement,
    length: int | None = None,
) -> Callable[[Sequence[Any]], list[Any]]:
    """Return a function of arrays that runs the executable of one operation; see `ExecutionBackend.eager_call`."""
    launch = Launcher(executable, results, placement)
    first = [] if length is None else [address_of_count(length)]
    if first and len(types) == 1:
        (only,), (address,) = types, first

        def run_one(args: Sequence[Any]) -> list[Any]:
            (a,) = args
            if type(a) is not ConcreteArray:
                a = _adopt(a, only)
            return launch(address, a._pointer or a._address())

        return run_one

    def run(args: Sequence[Any]) -> list[Any]:
        arrays = [a if type(a) is ConcreteArray else _adopt(a, t) for a, t in zip(args, types, strict=True)]
        return launch(*first, *[a._pointer or a._address() for a in arrays])

    return run


def _adopt(value: Any, aval: ArrayType) -> ConcreteArray:
    """Wrap an operand in a temporary array. The memory of every CPU device can be read in place."""
    if isinstance(value, ConcreteArray):
        return value
    return ConcreteArray(np.asarray(value, dtypes.storage(aval.dtype)), aval)
