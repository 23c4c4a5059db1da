"""Result of an emitter (`Emission`) and the writer of its kernels (`KernelWriter`).

An `Emission` is one fusion as launches of kernels. Its operands are numbered: the fusion's arguments, its results, its
scratch buffers, then one buffer of literals per dtype. Float literals are in such a buffer and not in the code, so that
a jaxpr with another learning rate has the same kernels.

A `KernelWriter` is a kernel under construction: the builder, and the values of the fusion at an index.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from weft.base import dtypes
from weft.base.dataclass import dataclass
from weft.compiler.emit.copied_dtypes import find_copied_dtypes, get_bits
from weft.compiler.emit.values import MultiIndex, Values, expand, row_major
from weft.compiler.kernel.builder import KernelBuilder
from weft.compiler.kernel.grid import map_to_grid
from weft.compiler.kernel.ir import Buffer, Kernel, Value
from weft.compiler.kernel.merge import merge_loops
from weft.compiler.kernel.sizes import with_sizes
from weft.compiler.kernel.threads import split_for_threads
from weft.compiler.target.target import Target
from weft.indexing.expression import Integer
from weft.ir.jaxpr import Jaxpr, Literal

_KEY_STORAGE = {8: dtypes.uint64, 16: dtypes.complex128}


def storage(atom: Any) -> np.dtype[Any]:
    """Return the dtype of a value's elements in memory. Random keys are plain numbers of their size."""
    dtype = dtypes.storage(atom.aval.dtype)
    return _KEY_STORAGE[dtype.itemsize] if dtype.names is not None else dtype


def kernel_dtype(atom: Any, copied: Mapping[Any, Any]) -> np.dtype[Any]:
    """Return the dtype of a value's elements in kernels: elements that are only copied are integers of equal bits."""
    dtype = storage(atom)
    return copied.get(dtype) or dtype


def get_size(atom: Any) -> Integer:
    """Return the number of elements of a value."""
    result: Integer = math.prod(atom.aval.shape)
    return result


def list_literals(jaxpr: Jaxpr) -> list[tuple[Literal, np.dtype[Any]]]:
    """List the literals of a fusion that are operands of its kernels: floats, in the order of their first use."""
    found: dict[int, tuple[Literal, np.dtype[Any]]] = {}
    for atom in (a for e in jaxpr.eqns for a in e.invars if type(a) is Literal):
        dtype = storage(atom)
        if dtypes.kind(dtype) in "fc":
            found.setdefault(id(atom), (atom, dtype))
    return list(found.values())


def literal_arrays(jaxpr: Jaxpr) -> list[np.ndarray]:
    """Return the values of a fusion's literals, one array for each dtype: the last operands of its emission."""
    by_dtype: dict[np.dtype[Any], list[Any]] = {}
    for atom, dtype in list_literals(jaxpr):
        by_dtype.setdefault(dtype, []).append(atom.val)
    return [np.array(values, dtype) for dtype, values in by_dtype.items()]


@dataclass(frozen=True)
class KernelLaunch:
    """Kernel with the operand of the emission for each of its buffers (except sizes). At given sizes it has their
    values, the iterations of its loop over threads, the iterations per task, and its work."""

    kernel: Kernel
    operands: tuple[int, ...]
    sizes: tuple[int, ...] = ()
    count: int | None = None
    grain: int | None = None
    nanoseconds: float | None = None


@dataclass(frozen=True)
class Scratch:
    """Memory that only the kernels of one emission use."""

    dtype: np.dtype[Any]
    size: Integer


@dataclass(frozen=True)
class Emission:
    """Fusion as launches, in order. `in_place` has pairs (argument, result) that may share one buffer; pairs in
    `updated` must share it: the result is the argument's buffer, updated."""

    launches: tuple[KernelLaunch, ...]
    scratch: tuple[Scratch, ...] = ()
    in_place: frozenset[tuple[int, int]] = frozenset()
    updated: frozenset[tuple[int, int]] = frozenset()
    # Number of candidate schedules, all with the same bits.
    schedules: int = 1


class Fusion:
    """Fusion under emission: the jaxpr and the state that its kernels share. The hero is equation `hero` (None: no
    hero). `schedule` selects one of several schedules of the emitter (0 is its default)."""

    def __init__(self, jaxpr: Jaxpr, hero: int | None, target: Target, schedule: int = 0) -> None:
        self.jaxpr = jaxpr
        self.target = target
        self.hero = None if hero is None else jaxpr.eqns[hero]
        self.schedule = schedule
        self.schedules = 1
        self.arguments = {v: n for n, v in enumerate(jaxpr.invars)}
        self.results = {v: n + len(jaxpr.invars) for n, v in enumerate(jaxpr.outvars)}
        self.copied = find_copied_dtypes(jaxpr)
        self.scratch: list[Scratch] = []
        self._launches: list[KernelWriter] = []
        # The offset of each literal, by its occurrence and not by its value: with another value the kernel is the same.
        self.literals: dict[np.dtype[Any], int] = {}
        self.literal_offsets: dict[int, int] = {}
        for atom, dtype in list_literals(jaxpr):
            self.literal_offsets[id(atom)] = self.literals.get(dtype, 0)
            self.literals[dtype] = self.literals.get(dtype, 0) + 1

    def kernel_dtype(self, atom: Any) -> np.dtype[Any]:
        """Return the dtype of a value's elements in the kernels."""
        return kernel_dtype(atom, self.copied)

    def new_scratch(self, dtype: Any, size: Integer) -> int:
        """Allocate memory between kernels; return its index for `Writer.scratch`."""
        self.scratch.append(Scratch(np.dtype(dtype), size))
        return len(self.scratch) - 1

    def writer(self, name: str, final: bool = False, copied: Mapping[Any, Any] | None = None) -> KernelWriter:
        """Start the next kernel; kernels are launched in this order. The loops of a `final` kernel are neither merged
        nor split. `copied` are dtypes that this kernel only copies, beyond those of the whole fusion.
        """
        writer = KernelWriter(self, name, final, copied)
        self._launches.append(writer)
        return writer

    def finish(self, in_place: Sequence[tuple[int, int]] = (), updated: Sequence[tuple[int, int]] = ()) -> Emission:
        """Finish all kernels. Pairs are positions among the arguments and among the results."""
        dtypes_of_literals = list(self.literals)
        first = len(self.jaxpr.invars) + len(self.jaxpr.outvars) + len(self.scratch)
        launches = []
        grid = self.target.grid_bytes
        for writer in self._launches:
            kernel = writer.kernel()
            operands = [o if isinstance(o, int) else first + dtypes_of_literals.index(o) for o in writer.operands]
            of_buffers = dict(zip(kernel.buffers, operands, strict=False))  # all but that of sizes
            # Several kernels would read arguments that the first of them has overwritten.
            with_grid = grid and not kernel.sizes
            parts = map_to_grid(kernel, grid, distribute=not in_place and not updated) if with_grid else [kernel]
            launches += [
                KernelLaunch(part, tuple(of_buffers[b] for b in part.buffers if b in of_buffers)) for part in parts
            ]
        return Emission(tuple(launches), tuple(self.scratch), frozenset(in_place), frozenset(updated), self.schedules)


class KernelWriter:
    """One kernel of a fusion. Buffers enter its signature at their first use."""

    def __init__(self, fusion: Fusion, name: str, final: bool = False, copied: Mapping[Any, Any] | None = None) -> None:
        self.fusion = fusion
        self.copied = fusion.copied if copied is None else copied
        self.k = KernelBuilder(name)
        self.final = final
        self.operands: list[Any] = []  # an index of the emission's operands, or the dtype of a buffer of literals
        self._buffers: dict[Any, Buffer] = {}
        self._finished: Kernel | None = None
        self.values = Values(self.k, fusion.jaxpr, self.argument, self.literal)

    def kernel_dtype(self, atom: Any) -> np.dtype[Any]:
        """Return the dtype of a value's elements in this kernel."""
        return kernel_dtype(atom, self.copied)

    def argument(self, v: Any) -> Buffer:
        """Return the buffer of an argument of the fusion."""
        i = self.fusion.arguments[v]
        return self._buffer(i, f"in{i}", self.kernel_dtype(v), get_size(v), False)

    def result(self, v: Any) -> Buffer:
        """Return the buffer of a result of the fusion, which can also be read."""
        i = self.fusion.results[v]
        return self._buffer(i, f"out{i - len(self.fusion.arguments)}", self.kernel_dtype(v), get_size(v), True)

    def scratch(self, i: int) -> Buffer:
        """Return a scratch buffer that this kernel writes and may read."""
        scratch = self.fusion.scratch[i]
        operand = len(self.fusion.arguments) + len(self.fusion.jaxpr.outvars) + i
        return self._buffer(operand, f"scratch{i}", scratch.dtype, scratch.size, True)

    def scratch_input(self, i: int, padded: bool = False) -> Buffer:
        """Return a scratch buffer that an earlier kernel wrote and this one only reads."""
        scratch = self.fusion.scratch[i]
        operand = len(self.fusion.arguments) + len(self.fusion.jaxpr.outvars) + i
        return self._buffer(operand, f"scratch{i}", scratch.dtype, scratch.size, False, padded)

    def literal(self, literal: Literal) -> Value:
        """Return the value of a literal: floats are loaded from memory, others are constants in the code."""
        dtype = storage(literal)
        value = self._literal(literal, dtype)
        return get_bits(self.k, value) if self.kernel_dtype(literal) != dtype else value

    def _literal(self, literal: Literal, dtype: np.dtype[Any]) -> Value:
        if dtypes.kind(dtype) not in "fc":
            return self.k.constant(literal.val, dtype)
        size = self.fusion.literals[dtype]
        buffer = self._buffer(dtype, f"literals_{dtype.name}", dtype, size, False)
        return self.k.load(buffer, self.fusion.literal_offsets[id(literal)])

    def store_results(self, index: MultiIndex) -> None:
        """Write every result at an index of the space that all of them have. All are computed before the first is
        stored, because a result may have the memory of an argument."""
        results = self.fusion.jaxpr.outvars
        for v, value in [(v, self.values.at(v, expand(v, index))) for v in results]:
            self.store(v, index, value)

    def store(self, v: Any, index: MultiIndex, value: Value, condition: Value | None = None) -> None:
        """Write an element of a result; the index leaves out dimensions of size 1."""
        self.k.store(self.result(v), row_major(v.aval.shape, expand(v, index)), value, condition)

    @property
    def lanes(self) -> int:
        """The width of vectors: as many elements as fit a register in the widest type that is computed with (at least
        four bytes, at most eight)."""
        jaxpr = self.fusion.jaxpr
        widest = max((storage(v).itemsize for e in jaxpr.eqns for v in e.outvars), default=4)
        return max(1, self.fusion.target.vector_bytes // max(4, min(widest, 8)))

    def kernel(self) -> Kernel:
        """Return the finished kernel, with loops merged where possible and split for threads."""
        if self._finished is None:
            kernel = self.k.finish()
            merged = kernel if self.final else merge_loops(kernel)
            # Grids have threads for single elements.
            whole = self.final or self.fusion.target.grid_bytes
            self._finished = with_sizes(merged if whole else split_for_threads(merged))
        return self._finished

    def _buffer(
        self, operand: Any, name: str, dtype: Any, size: Integer, written: bool, padded: bool = False
    ) -> Buffer:
        found = self._buffers.get(operand)
        if found is None:
            found = self._buffers[operand] = self.k.buffer(name, dtype, size, written, padded)
            self.operands.append(operand)
        return found
