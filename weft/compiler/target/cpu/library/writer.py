"""How routines are written: loops over a batch of matrices around calls of BLAS and LAPACK.

A `Family` is a routine for every dtype. It writes what happens to one matrix (or to a part of one); what it is given is
laid out by `Writer`. The numbers of a call are in this order: how many matrices there are, how many tiles, how many
items a tile has, into how many parts (items) a matrix is split; for each operand, result and scratch buffer the bytes
from one matrix (of scratch, one tile) to the next; then the fields of the family.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from weft.compiler.target import llvm
from weft.compiler.target.cpu.library import guard, moves
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
    zero,
)
from weft.compiler.target.target import Target

HEAD = ("matrices", "tiles", "per_tile", "parts")
TILES = "_tiles"
# Functions that LAPACK calls otherwise for complex numbers.
COMPLEX_NAMES = {"orgqr": "ungqr", "syevd": "heevd", "sytrd": "hetrd"}


@dataclass(frozen=True)
class Number:
    """A dtype of LAPACK: its letter, the float in LLVM, and how many of these one number is."""

    letter: str
    dtype: np.dtype[Any]
    float: Type
    parts: int

    @property
    def bytes(self) -> int:
        """The size of a number."""
        return self.dtype.itemsize

    @property
    def real(self) -> Number:
        """The dtype of its parts."""
        return NUMBERS["sd"[self.float is double]]

    @property
    def complex(self) -> Number:
        """The complex dtype of its precision."""
        return NUMBERS["cz"[self.float is double]]

    @property
    def is_complex(self) -> bool:
        """Whether it has two parts."""
        return self.parts == 2


NUMBERS = {
    "s": Number("s", np.dtype(np.float32), float_, 1),
    "d": Number("d", np.dtype(np.float64), double, 1),
    "c": Number("c", np.dtype(np.complex64), float_, 2),
    "z": Number("z", np.dtype(np.complex128), double, 2),
}
LETTERS = {number.dtype: letter for letter, number in NUMBERS.items()}


def symbol(library: str, name: str, letter: str) -> str:
    """Under which name our code calls a function of BLAS or LAPACK."""
    found = COMPLEX_NAMES.get(name, name) if letter in "cz" else name
    return f"weft_{library}_{letter}{found}"


class Fortran:
    """Writes calls of functions that take pointers only, and arithmetic on addresses."""

    def __init__(self, function: Function, number: Number) -> None:
        self.f = function
        self.number = number

    def integer(self, value: int | Value) -> Value:
        """A number of 64 bits."""
        return constant(value, i64) if isinstance(value, int) else value

    def at(self, pointer: Value, index: Value | int, size: int | None = None) -> Value:
        """The address of an element, of `size` bytes instead of those of the dtype."""
        step = self.f.mul(self.integer(index), constant(self.number.bytes if size is None else size, i64))
        return self.f.offset(pointer, i8, step)

    def by_reference(self, argument: str | int | Value) -> Value:
        """What Fortran is given: characters and 64-bit integers by their addresses, the latter shortened."""
        if isinstance(argument, str):
            return self.f.module.table(f"character_{argument}", i8, [ord(argument)], align=1)
        value = self.integer(argument)
        if value.type is ptr:
            return value
        slot = self.f.alloca(i32, align=4)
        self.f.store(self.f.trunc(value, i32), slot, 4)
        return slot

    def character(self, code: Value) -> Value:
        """The address of a character that is known when the routine runs."""
        slot = self.f.alloca(i8, align=1)
        self.f.store(self.f.trunc(code, i8), slot, 1)
        return slot

    def scalar(self, name: str, value: float) -> Value:
        """The address of a constant of the dtype."""
        return self.f.module.table(name, self.number.float, [value, 0.0][: self.number.parts], align=16)

    def blas(self, name: str, *arguments: str | int | Value) -> None:
        """Call a function of BLAS."""
        found = symbol("blas", name, self.number.letter)
        self.f.call(found, void, *map(self.by_reference, arguments))

    def lapack(self, name: str, *arguments: str | int | Value) -> Value:
        """Call a function of LAPACK, whose last parameter (not among the arguments) is its status; is that not zero?"""
        status = self.f.alloca(i32, align=4)
        self.f.store(constant(0, i32), status, 4)
        found = symbol("lapack", name, self.number.letter)
        self.f.call(found, void, *map(self.by_reference, arguments), status)
        return self.f.icmp("ne", self.f.load(i32, status, 4), constant(0, i32))


class Writer(Fortran):
    """One routine: where its operands, results and scratch buffers are for the matrix at hand, and its numbers."""

    operands: list[Value]
    results: list[Value]
    part: Value

    def __init__(self, function: Function, number: Number, family: Family) -> None:
        super().__init__(function, number)
        self.family = family
        table, numbers, self.tile = function.arguments
        places = family.places
        self.bases = [function.load(ptr, function.offset(table, ptr, n), 8) for n in range(len(places))]
        names = (*HEAD, *(f"{place} stride" for place in places), *family.fields)
        self.numbers = {
            name: function.load(i64, function.offset(numbers, i64, n), 8, invariant=True)
            for n, name in enumerate(names)
        }
        count = family.operands + family.results
        self.scratch = {
            name: function.offset(base, i8, function.mul(self.tile, self.numbers[f"{name} stride"]))
            for name, base in zip(places[count:], self.bases[count:], strict=True)
        }

    def __getitem__(self, field: str) -> Value:
        return self.numbers[field]

    def write(self) -> None:
        """The loop over the items of the tile."""
        f, family = self.f, self.family
        items = f.mul(self["matrices"], self["parts"])
        first = f.mul(self.tile, self["per_tile"])
        with f.loop(first, f.smin(f.add(first, self["per_tile"]), items)) as item:
            matrix, self.part = f.udiv(item, self["parts"]), f.urem(item, self["parts"])
            count = family.operands + family.results
            places = [
                f.offset(base, i8, f.mul(matrix, self[f"{place} stride"]))
                for place, base in zip(family.places[:count], self.bases[:count], strict=True)
            ]
            self.operands, self.results = places[: family.operands], places[family.operands :]
            family.write(self)
        f.ret()

    # -- pieces of work --------------------------------------------------------------------------------------------

    def copy(self, target: Value, source: Value, count: Value | int, size: int | None = None) -> None:
        """Copy elements that lie side by side."""
        total = self.f.mul(self.integer(count), constant(self.number.bytes if size is None else size, i64))
        self.f.copy(target, source, total)

    def clear(self, target: Value, count: Value | int, size: int | None = None) -> None:
        """Zeros."""
        total = self.f.mul(self.integer(count), constant(self.number.bytes if size is None else size, i64))
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
        """target[c, r] = source[r, c]; strides are those of rows."""
        name = moves.transpose_name(self.number.bytes)
        self.f.call(name, void, target, target_stride, source, source_stride, rows, columns)

    def is_finite(self, numbers: Value, count: Value) -> Value:
        """Whether all are finite."""
        floats = self.f.mul(count, constant(self.number.parts, i64))
        found = self.f.call(moves.finite_name(self.number.float.bits), i64, numbers, floats)
        assert found is not None
        return self.f.icmp("ne", found, constant(0, i64))

    def fill_nan(self, target: Value, count: Value, number: Number | None = None) -> None:
        """What a factorisation that failed gives: nan, of complex numbers as the real part."""
        number = number or self.number
        with self.f.loop(constant(0, i64), count) as n:
            place = self.at(target, n, number.bytes)
            align = number.float.bits // 8
            self.f.store(constant(float("nan"), number.float), place, align)
            if number.is_complex:
                self.f.store(constant(0.0, number.float), self.f.offset(place, number.float, 1), align)

    def unless(self, condition: Value, then: Callable[[], None], otherwise: Callable[[], None]) -> None:
        """`otherwise` if the condition holds, else `then`, which is the usual case."""
        with self.f.when(condition, unlikely=True):
            otherwise()
        with self.f.when(self.f.not_(condition)):
            then()

    def count_from_zero(self, numbers: Value, count: Value) -> None:
        """Make 32-bit positions that LAPACK counts from 1 ones from 0."""
        with self.f.loop(constant(0, i64), count) as n:
            place = self.f.offset(numbers, i32, n)
            self.f.store(self.f.sub(self.f.load(i32, place, 4), constant(1, i32)), place, 4)


@dataclass(frozen=True)
class Family:
    """A routine for all dtypes of LAPACK. `write` writes what happens to one item."""

    name: str
    write: Callable[[Writer], None]
    operands: int
    results: int
    scratch: tuple[str, ...]
    fields: tuple[str, ...]

    @property
    def places(self) -> tuple[str, ...]:
        """Names of what its table points to."""
        first = [f"operand {n}" for n in range(self.operands)] + [f"result {n}" for n in range(self.results)]
        return (*first, *self.scratch)

    def routine(self, dtype: Any, tiles: bool) -> str:
        """The name of the routine for a dtype."""
        return f"weft_{self.name}_{LETTERS[np.dtype(dtype)]}{TILES if tiles else ''}"


FAMILIES: dict[str, Family] = {}


def family(
    name: str, *, operands: int, results: int, scratch: Sequence[str] = (), fields: Sequence[str] = ()
) -> Callable[[Callable[[Writer], None]], Family]:
    """Register what is written for one item as a family."""

    def made(write: Callable[[Writer], None]) -> Family:
        FAMILIES[name] = Family(name, write, operands, results, tuple(scratch), tuple(fields))
        return FAMILIES[name]

    return made


def write_family(found: Family, letter: str, target: Target) -> str:
    """The module of a routine: as one that is called, and as one that works on some of its tiles."""
    module = llvm.Module(triple=target.triple, vector_bits=target.vector_bits or 128)
    parameters = [Parameter("table", ptr), Parameter("numbers", ptr), Parameter("tile", i64)]
    body = module.function("tile", void, parameters, linkage="internal")
    Writer(body, NUMBERS[letter], found).write()
    name = f"weft_{found.name}_{letter}"

    f = module.function(name, i64, [Parameter("table", ptr), Parameter("numbers", ptr), Parameter("registers", ptr)])
    table, numbers, _ = f.arguments
    tiles = f.load(i64, f.offset(numbers, i64, HEAD.index("tiles")), 8)
    _guarded_loop(f, constant(0, i64), tiles, table, numbers)
    f.ret(zero(i64))

    f = module.function(name + TILES, void, [Parameter("table", ptr), Parameter("begin", i64), Parameter("end", i64)])
    table, begin, end = f.arguments
    numbers = f.load(ptr, f.offset(table, ptr, len(found.places)), 8)
    _guarded_loop(f, begin, end, table, numbers)
    f.ret()
    return module.text()


def _guarded_loop(f: Function, begin: Value, end: Value, table: Value, numbers: Value) -> None:
    f.call(guard.ENTER, void)
    with f.loop(begin, end) as tile:
        f.call("tile", void, table, numbers, tile)
    f.call(guard.LEAVE, void)
