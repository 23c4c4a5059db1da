"""Writers of routines: loops over a batch of matrices around calls of BLAS and LAPACK.

A `RoutineFamily` is a routine for every dtype. It writes the computation of one matrix (or of a part of one) with a
`RoutineWriter`, which has the addresses. The parameters of a call are in this order: the number of matrices, of
tiles, of items in a tile, and of parts (items) of a matrix; for each operand and result the bytes between matrices,
for each scratch buffer the bytes between tiles; then the fields of the family.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from weft.base.dataclass import dataclass
from weft.compiler.target import llvm
from weft.compiler.target.cpu.library import guard, shared
from weft.compiler.target.llvm import (
    Function,
    Parameter,
    Type,
    Value,
    constant,
    double,
    float_,
    i8,
    i32,
    i64,
    ptr,
    void,
)
from weft.compiler.target.target import Target

HEAD = ("matrices", "tiles", "per_tile", "parts")
TILES = "_tiles"
# Functions that have other names for complex numbers.
COMPLEX_NAMES = {"orgqr": "ungqr", "syevd": "heevd", "sytrd": "hetrd"}
# The pool's function that shares the items of a loop among threads, or runs all of them in the calling one.
PARALLEL = "weft_parallel"
# Separates the name of a routine from that of one of its steps (`RoutineWriter.share`), which is a module of its own.
STEP = "."
# Fills a buffer with zeros; its parameters are the buffer's index in the table, and the bytes.
ZEROS = "weft_zeros"


@dataclass(frozen=True)
class ElementType:
    """Dtype of LAPACK: its letter, its LLVM float type, and the number of floats in an element."""

    letter: str
    dtype: np.dtype[Any]
    float: Type
    parts: int

    @property
    def bytes(self) -> int:
        """Bytes of an element."""
        return self.dtype.itemsize

    @property
    def real(self) -> ElementType:
        """Dtype of its parts."""
        return ELEMENT_TYPES["sd"[self.float is double]]

    @property
    def complex(self) -> ElementType:
        """Complex dtype of the same precision."""
        return ELEMENT_TYPES["cz"[self.float is double]]

    @property
    def is_complex(self) -> bool:
        """Whether it has two parts."""
        return self.parts == 2


ELEMENT_TYPES = {
    "s": ElementType("s", np.dtype(np.float32), float_, 1),
    "d": ElementType("d", np.dtype(np.float64), double, 1),
    "c": ElementType("c", np.dtype(np.complex64), float_, 2),
    "z": ElementType("z", np.dtype(np.complex128), double, 2),
}
LETTERS = {element.dtype: letter for letter, element in ELEMENT_TYPES.items()}


def symbol(library: str, name: str, letter: str) -> str:
    """Return the name under which our code calls a function of BLAS or LAPACK."""
    found = COMPLEX_NAMES.get(name, name) if letter in "cz" else name
    return f"weft_{library}_{letter}{found}"


class Fortran:
    """Writer of calls to functions that take pointers only, and of address arithmetic."""

    def __init__(self, function: Function, element: ElementType) -> None:
        self.f = function
        self.element = element

    def integer(self, value: int | Value) -> Value:
        """Return an integer as i64."""
        return constant(value, i64) if isinstance(value, int) else value

    def at(self, pointer: Value, index: Value | int, size: int | None = None) -> Value:
        """Return the address of an element, with `size` bytes per element instead of the dtype's."""
        step = self.f.mul(self.integer(index), constant(self.element.bytes if size is None else size, i64))
        return self.f.offset(pointer, i8, step)

    def by_reference(self, argument: str | int | Value) -> Value:
        """Return the pointer that Fortran takes for an argument: characters and 64-bit integers are stored in memory,
        the latter truncated to 32 bits."""
        if isinstance(argument, str):
            return self.f.module.table(f"character_{argument}", i8, [ord(argument)], align=1)
        value = self.integer(argument)
        if value.type is ptr:
            return value
        slot = self.f.alloca(i32, align=4)
        self.f.store(self.f.trunc(value, i32), slot, 4)
        return slot

    def character(self, code: Value) -> Value:
        """Return the address of a character that is computed at run time."""
        slot = self.f.alloca(i8, align=1)
        self.f.store(self.f.trunc(code, i8), slot, 1)
        return slot

    def scalar(self, name: str, value: float) -> Value:
        """Return the address of a constant of the dtype."""
        parts = [value, 0.0][: self.element.parts]
        return self.f.module.table(f"{name}_{self.element.letter}", self.element.float, parts, align=16)

    def blas(self, name: str, *arguments: str | int | Value) -> None:
        """Call a function of BLAS."""
        found = symbol("blas", name, self.element.letter)
        self.f.call(found, void, *map(self.by_reference, arguments))

    def lapack(self, name: str, *arguments: str | int | Value) -> Value:
        """Call a function of LAPACK and return whether it failed. Its last parameter, the status, is not among the
        arguments."""
        status = self.f.alloca(i32, align=4)
        self.f.store(constant(0, i32), status, 4)
        self.auxiliary(name, *arguments, status)
        return self.f.icmp("ne", self.f.load(i32, status, 4), constant(0, i32))

    def auxiliary(self, name: str, *arguments: str | int | Value) -> None:
        """Call a function of LAPACK that has no status."""
        found = symbol("lapack", name, self.element.letter)
        self.f.call(found, void, *map(self.by_reference, arguments))


class RoutineOperations(Fortran):
    """Writer of the operations of routines between library calls."""

    def copy(self, target: Value, source: Value, count: Value | int, size: int | None = None) -> None:
        """Copy contiguous elements."""
        total = self.f.mul(self.integer(count), constant(self.element.bytes if size is None else size, i64))
        self.f.copy(target, source, total)

    def clear(self, target: Value, count: Value | int, size: int | None = None) -> None:
        """Fill elements with zeros."""
        total = self.f.mul(self.integer(count), constant(self.element.bytes if size is None else size, i64))
        self.f.fill(target, constant(0, i8), total)

    def transpose(
        self,
        target: Value,
        target_stride: Value,
        source: Value,
        source_stride: Value,
        rows: Value,
        columns: Value,
    ) -> None:
        """Write target[c, r] = source[r, c]; strides are those of rows."""
        name = shared.transpose_name(self.element.bytes)
        self.f.call(name, void, target, target_stride, source, source_stride, rows, columns)

    def is_finite(self, elements: Value, count: Value) -> Value:
        """Return whether all elements are finite."""
        return self.f.fcmp("olt", self.largest(elements, count), constant(float("inf"), self.element.float))

    def largest(self, elements: Value, count: Value) -> Value:
        """Return the largest magnitude; for complex numbers, that of a real or imaginary part. A nan exceeds all
        others."""
        floats = self.f.mul(count, constant(self.element.parts, i64))
        found = self.f.call(shared.largest_name(self.element.float.bits), self.element.float, elements, floats)
        assert found is not None
        return found

    def fill_nan(self, target: Value, count: Value, element: ElementType | None = None) -> None:
        """Fill the result of a failed factorisation with nan, for complex numbers in the real part."""
        element = element or self.element
        with self.f.loop(constant(0, i64), count) as n:
            address = self.at(target, n, element.bytes)
            align = element.float.bits // 8
            self.f.store(constant(float("nan"), element.float), address, align)
            if element.is_complex:
                self.f.store(constant(0.0, element.float), self.f.offset(address, element.float, 1), align)

    def unless(self, condition: Value, then: Callable[[], None], otherwise: Callable[[], None]) -> None:
        """Write `otherwise` for a true condition, else `then`, the usual case."""
        with self.f.when(condition, unlikely=True):
            otherwise()
        with self.f.when(self.f.not_(condition)):
            then()

    def count_from_zero(self, indices: Value, count: Value) -> None:
        """Convert 32-bit indices that LAPACK counts from 1 to indices from 0."""
        with self.f.loop(constant(0, i64), count) as n:
            address = self.f.offset(indices, i32, n)
            self.f.store(self.f.sub(self.f.load(i32, address, 4), constant(1, i32)), address, 4)


class RoutineWriter(RoutineOperations):
    """Writer of one routine: addresses of the current matrix's operands, results and scratch buffers, and its
    parameters."""

    operands: list[Value]
    results: list[Value]
    part: Value

    def __init__(self, function: Function, element: ElementType, family: RoutineFamily) -> None:
        super().__init__(function, element)
        self.family = family
        self.steps: dict[str, llvm.Module] = {}
        # Not 0 after an interrupt of a loop that threads share: then the rest of the routine is skipped.
        self.status = function.alloca(i64, align=8)
        function.store(constant(0, i64), self.status, 8)
        table, parameters, self.tile = function.arguments
        buffers = family.buffers
        self.bases = [function.load(ptr, function.offset(table, ptr, n), 8) for n in range(len(buffers))]
        names = (*HEAD, *(f"{name} stride" for name in buffers), *family.fields)
        self.parameters = {
            name: function.load(i64, function.offset(parameters, i64, n), 8, invariant=True)
            for n, name in enumerate(names)
        }
        count = family.operands + family.results
        self.scratch = {
            name: function.offset(base, i8, function.mul(self.tile, self.parameters[f"{name} stride"]))
            for name, base in zip(buffers[count:], self.bases[count:], strict=True)
        }

    def __getitem__(self, field: str) -> Value:
        return self.parameters[field]

    def write(self) -> None:
        """Write the loop over the items of the tile."""
        f, family = self.f, self.family
        items = f.mul(self["matrices"], self["parts"])
        first = f.mul(self.tile, self["per_tile"])
        with f.loop(first, f.smin(f.add(first, self["per_tile"]), items)) as item, f.when(self.goes_on()):
            matrix, self.part = f.udiv(item, self["parts"]), f.urem(item, self["parts"])
            count = family.operands + family.results
            addresses = [
                f.offset(base, i8, f.mul(matrix, self[f"{name} stride"]))
                for name, base in zip(family.buffers[:count], self.bases[:count], strict=True)
            ]
            self.operands, self.results = addresses[: family.operands], addresses[family.operands :]
            family.write(self)
        f.ret(f.load(i64, self.status, 8))

    def goes_on(self) -> Value:
        """Return whether no loop was interrupted."""
        return self.f.icmp("eq", self.f.load(i64, self.status, 8), constant(0, i64))

    def share(
        self,
        name: str,
        count: Value | int,
        captured: Mapping[str, Value],
        write: Callable[[RoutineOperations, Mapping[str, Value], Value], None],
    ) -> None:
        """Share items from 0 to `count` among threads, unless they share tiles already. `write` writes the body for one
        item as a function of its own, from its index and the `captured` values by name. The loop is skipped if an
        earlier one was interrupted.

        The function is a module of its own, so that several threads can compile a routine, and only the modules with
        loops over elements are optimised.
        """
        f = self.f
        context = f.alloca(i64, len(captured), 8)
        for n, value in enumerate(captured.values()):
            f.store(value, f.offset(context, i64, n), 8)
        symbol = f"weft_{self.family.name}_{self.element.letter}{STEP}{name}"
        module = self.steps[symbol] = llvm.Module(triple=f.module.triple, vector_bits=f.module.vector_bits)
        parameters = [Parameter("context", ptr), Parameter("begin", i64), Parameter("end", i64)]
        inner = module.function(symbol, void, parameters)
        slots, begin, end = inner.arguments
        inside = {
            key: inner.load(value.type, inner.offset(slots, i64, n), 8)
            for n, (key, value) in enumerate(captured.items())
        }
        with inner.loop(begin, end) as item:
            write(RoutineOperations(inner, self.element), inside, item)
        inner.ret()
        total, none = self.integer(count), constant(0, i64)
        several = f.icmp("sgt", self["tiles"], constant(1, i64))
        with f.when(self.goes_on()):
            with f.when(several):
                f.call(symbol, void, context, none, total)
            with f.when(f.not_(several)):
                status = f.call(PARALLEL, i64, f.module.address(symbol), context, total, constant(1, i64))
                assert status is not None
                f.store(status, self.status, 8)


@dataclass(frozen=True)
class RoutineFamily:
    """Routine for all dtypes of LAPACK. `write` writes the computation of one item."""

    name: str
    write: Callable[[RoutineWriter], None]
    operands: int
    results: int
    scratch: tuple[str, ...]
    fields: tuple[str, ...]

    @property
    def buffers(self) -> tuple[str, ...]:
        """Names of the buffers in its table."""
        first = [f"operand {n}" for n in range(self.operands)] + [f"result {n}" for n in range(self.results)]
        return (*first, *self.scratch)

    def routine(self, dtype: Any, tiles: bool) -> str:
        """Return the name of the routine for a dtype."""
        return f"weft_{self.name}_{LETTERS[np.dtype(dtype)]}{TILES if tiles else ''}"


FAMILIES: dict[str, RoutineFamily] = {}


def family(
    name: str, *, operands: int, results: int, scratch: Sequence[str] = (), fields: Sequence[str] = ()
) -> Callable[[Callable[[RoutineWriter], None]], RoutineFamily]:
    """Register a function that writes one item as a family."""

    def register(write: Callable[[RoutineWriter], None]) -> RoutineFamily:
        FAMILIES[name] = RoutineFamily(name, write, operands, results, tuple(scratch), tuple(fields))
        return FAMILIES[name]

    return register


def write_family(found: RoutineFamily, letter: str, target: Target) -> dict[str, str]:
    """Return the modules of a routine by name: its plain and tiled forms in one module, and its steps."""
    module = llvm.Module(triple=target.triple, vector_bits=target.vector_bits or 128)
    parameters = [Parameter("table", ptr), Parameter("parameters", ptr), Parameter("tile", i64)]
    body = module.function("tile", i64, parameters, linkage="internal")
    writer = RoutineWriter(body, ELEMENT_TYPES[letter], found)
    writer.write()
    name = f"weft_{found.name}_{letter}"

    f = module.function(name, i64, [Parameter("table", ptr), Parameter("parameters", ptr), Parameter("registers", ptr)])
    table, passed, _ = f.arguments
    tiles = f.load(i64, f.offset(passed, i64, HEAD.index("tiles")), 8)
    f.ret(_guard_loop(f, constant(0, i64), tiles, table, passed))

    f = module.function(name + TILES, void, [Parameter("table", ptr), Parameter("begin", i64), Parameter("end", i64)])
    table, begin, end = f.arguments
    passed = f.load(ptr, f.offset(table, ptr, len(found.buffers)), 8)
    _guard_loop(f, begin, end, table, passed)
    f.ret()
    return {name: module.text(), **{step: inner.text() for step, inner in writer.steps.items()}}


def _guard_loop(f: Function, begin: Value, end: Value, table: Value, passed: Value) -> Value:
    """Run tiles with the library limited to one thread; return the bitwise or of their statuses."""
    f.call(guard.ENTER, void)
    with f.loop(begin, end, carried=[constant(0, i64)]) as tile:
        status = f.call("tile", i64, table, passed, tile)
        assert status is not None
        tile.give(f.or_(tile.values[0], status))
    f.call(guard.LEAVE, void)
    return tile.results[0]
