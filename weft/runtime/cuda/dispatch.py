"""The part of a dispatcher that starts a program on a GPU.

It takes addresses from the arrays, memory for the results, and starts the graph that was recorded for these addresses.
The arguments have been checked before (`api/dispatch.py`).
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from weft.base.codegen import Source
from weft.base.errors import OutOfMemoryError
from weft.base.memo import Memo
from weft.base.settings import config
from weft.base.source import user_location
from weft.compiler.program.ir import byte_size
from weft.ir.types import ArrayType
from weft.runtime.array import ConcreteArray, PlacedArray, array_at, put
from weft.runtime.cuda.executable import CudaExecutable, operand
from weft.runtime.device import Placement


def eager_call(
    executable: CudaExecutable, types: Sequence[ArrayType], results: Sequence[ArrayType], placement: Placement
) -> Callable[[Sequence[Any]], list[Any]]:
    """Return a function of arrays that runs the executable of one operation; see `ExecutionBackend.eager_call`."""
    source = Source({"MISS": None})
    leaves = [f"a{n}" for n in range(len(types))]
    if leaves:
        source.line(f"{', '.join(leaves)}, = args")
    source.names["on_gpu"] = functools.partial(_on_gpu, placement)
    for name, aval in zip(leaves, types, strict=True):
        source.line(f"if type({name}) is not Placed: {name} = on_gpu({name}, {source.constant(aval)})")
    arrays = CallWriter(source, executable, placement, results).write((), leaves, [False] * len(leaves))
    source.line(f"return [{', '.join(arrays)}]")
    quick = source.function("operation", "args")

    def general(args: Sequence[Any]) -> list[Any]:
        found = executable(args, None, placement)
        return [array_at(placement, None, t, a._memory, a._pointer) for a, t in zip(found, results, strict=True)]

    return lambda args: quick(args) or general(args)


# Scalars on GPUs by placement, type and value: eager operations use the same few again.
_scalars: Memo[Any, ConcreteArray] = Memo(1024)


def _on_gpu(placement: Placement, value: Any, aval: ArrayType) -> ConcreteArray:
    """Copy an operand of the host or of another device to the GPU."""
    if type(value) is not np.ndarray or value.ndim:
        return operand(value, aval, placement)
    key = (placement, aval, value.tobytes())
    found = _scalars.get(key)
    return found if found is not None else _scalars.keep(key, operand(value, aval, placement))


class CallWriter:
    """Writes the call of one executable, whose results have a placement."""

    def __init__(
        self,
        source: Source,
        executable: CudaExecutable,
        placement: Placement,
        out_types: Sequence[ArrayType] | None = None,
    ) -> None:
        self.out_types = executable.out_types if out_types is None else out_types
        self.source, self.executable, self.placement = source, executable, placement
        self.line, self.constant = source.line, source.constant
        loaded = executable.load(placement.memory)
        source.names |= {
            "Placed": PlacedArray,
            "PLACEMENT": placement,
            "OutOfMemoryError": OutOfMemoryError,
            "operand": operand,
            "donated_memory": placement.memory_backend.donated_memory,
            "user_location": user_location,
            "graphs": loaded.graphs,
            # A dispatcher is for timed calls or for others: the setting is in its key.
            "start": loaded.run_timed if config.profiling else loaded.start,
            "start_graph": loaded.driver.start,
        }

    def write(self, constants: Sequence[ConcreteArray], leaves: Sequence[str], donated: Sequence[bool]) -> list[str]:
        """Write the call on constants and the arrays of these names; return expressions for the results."""
        arguments = self.executable.program.arguments
        types = self.executable.in_types[len(constants) :]
        there: list[Any] = [put(constant, self.placement) for constant in constants]
        for array in there:
            self.constant(array)  # which keeps its memory
        pointers = [str(array._pointer) for array in there]
        for i, (name, aval) in enumerate(zip(leaves, types, strict=True)):
            if not donated[i]:  # donated arrays are on the device already
                moved = f"operand({name}, {self.constant(aval)}, PLACEMENT)"
                self.line(f"if {name}._placement is not PLACEMENT: {name} = {moved}")
        if leaves:  # deleted arrays have no memory: the general way raises
            self.line(f"if not ({' and '.join(f'{name}._pointer' for name in leaves)}): return MISS")
        if any(donated):
            # A donated array must not be another argument too: the general way finds out.
            names = ", ".join(f"{name}._pointer" for name in leaves)
            self.line(f"if len({{{names}}}) != {len(leaves)}: return MISS")
        blocks: dict[int, str] = {}  # donated memory by argument
        for i, name in enumerate(leaves, len(constants)):
            if arguments[i].donated:
                blocks[i] = f"g{i}"
                self.line(f"g{i} = donated_memory({name})")
            pointers.append(f"{blocks[i]}.address" if i in blocks else f"{name}._pointer")
        results = self.results(blocks, pointers)
        deleted = [name for name, flag in zip(leaves, donated, strict=True) if flag]
        if deleted:
            self.line("where = user_location()")
        for name in deleted:
            # Operands stay until earlier work has ended: blocks are reused in the order of the stream.
            self.line(f"{name}._buffer = {name}._memory = None")
            self.line(f"{name}._pointer, {name}._donated_at = 0, where")
        self.line(f"addresses = ({', '.join(pointers)},)")
        if config.profiling:
            self.line("start(addresses)")
        else:
            self.line("graph = graphs.get(addresses)")
            self.line("if graph is None: start(addresses)")
            self.line("else: start_graph(graph)")
        return results

    def results(self, blocks: dict[int, str], pointers: list[str]) -> list[str]:
        """Write the allocation of results and temporaries, and add their addresses; return expressions for arrays."""
        executable, memory = self.executable, self.placement.memory
        arrays: list[str] = []
        allocations: list[str] = []
        for i, (aval, alias) in enumerate(zip(self.out_types, executable.program.aliases, strict=True)):
            if alias is None:
                block = f"b{i}"
                allocations.append(f"{block} = {self.constant(memory.taker(byte_size(aval)))}()")
                pointers.append(f"{block}.address")
            else:
                block = blocks[alias]
            arrays.append(f"Placed(None, {self.constant(aval)}, {block}, {block}.address, PLACEMENT)")
        allocations.append(f"scratch = {self.constant(memory.taker(executable.load(memory).temporary_bytes))}()")
        pointers.append("scratch.address")
        self.line("try:")
        for text in allocations:
            self.line(text, 2)
        self.line("except OutOfMemoryError: return MISS")  # the general way names the allocation
        return arrays
