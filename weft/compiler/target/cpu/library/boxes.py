"""Routines for collectives: boxes of memory that are copied or added according to a table.

The table is the first buffer: the number of boxes, and then for each of them the bytes of a row, the number of rows
along each of two dimensions, and for each buffer that it reads, and then each that it writes, the index of the buffer,
an offset and two strides in bytes (`target/cpu/groups.py`). A plain routine executes all boxes, a tiled one those of a
range.
"""

from __future__ import annotations

import re

from weft.compiler.target import llvm
from weft.compiler.target.cpu.library.writer import TILES
from weft.compiler.target.llvm import (
    Function,
    Parameter,
    Type,
    Value,
    constant,
    double,
    float_,
    i8,
    i64,
    integer,
    ptr,
    vector,
    void,
    zero,
)
from weft.compiler.target.target import Target
from weft.primitives.collectives import combine_tree

COPY = "weft_copy_boxes"
_SUM = re.compile(r"weft_sum_([fi])(\d+)_(\d+)_(\d+)$")
# Integers of a box before its buffers, and integers of a buffer.
HEAD, END = 3, 4


def sum_name(element: str, terms: int, targets: int) -> str:
    """Return the name of the routine that adds `terms` arrays of elements such as f32, as a balanced tree, and stores
    the sum in `targets` buffers."""
    return f"weft_sum_{element}_{terms}_{targets}"


def is_boxes(routine: str) -> bool:
    """Return whether a routine executes a table of boxes."""
    name = routine.removesuffix(TILES)
    return name == COPY or _SUM.match(name) is not None


def write(routine: str, target: Target) -> str:
    """Return the LLVM module of a routine, in its plain and its tiled form."""
    name = routine.removesuffix(TILES)
    module = llvm.Module(triple=target.triple, vector_bits=target.vector_bits or 128)
    parsed = _SUM.match(name)
    if parsed is None:
        _Box(module, 2).write_copy()
    else:
        kind, bits, terms, targets = parsed[1], *map(int, parsed.groups()[1:])
        element = {32: float_, 64: double}[bits] if kind == "f" else integer(bits)
        _Box(module, terms + targets).write_sum(element, terms, target.vector_bits or 128)
    f = module.function(name, i64, [Parameter("table", ptr), Parameter("parameters", ptr), Parameter("registers", ptr)])
    boxes = f.load(ptr, f.arguments[0], 8)
    with f.loop(constant(0, i64), f.load(i64, boxes, 8)) as index:
        f.call("box", void, f.arguments[0], boxes, index)
    f.ret(zero(i64))
    f = module.function(name + TILES, void, [Parameter("table", ptr), Parameter("begin", i64), Parameter("end", i64)])
    table, begin, end = f.arguments
    boxes = f.load(ptr, table, 8)
    with f.loop(begin, end) as index:
        f.call("box", void, table, boxes, index)
    f.ret()
    return module.text()


class _Box:
    """Writer of `box(table, boxes, index)`, for boxes with this many buffers."""

    def __init__(self, module: llvm.Module, buffers: int) -> None:
        parameters = [Parameter("table", ptr), Parameter("boxes", ptr), Parameter("index", i64)]
        f = self.f = module.function("box", void, parameters, linkage="internal")
        table, boxes, index = f.arguments
        length = HEAD + END * buffers
        first = f.offset(f.offset(boxes, i64, 1), i64, f.mul(index, constant(length, i64)))
        entry = lambda n: f.load(i64, f.offset(first, i64, n), 8)
        self.row, *self.counts = (entry(n) for n in range(HEAD))
        self.bases, self.strides = [], []
        for n in range(HEAD, length, END):
            base = f.load(ptr, f.offset(table, ptr, entry(n)), 8)
            self.bases.append(f.offset(base, i8, entry(n + 1)))
            self.strides.append([entry(n + 2), entry(n + 3)])

    def write_copy(self) -> None:
        """Write a copy of each row."""
        f = self.f
        with f.loop(constant(0, i64), self.counts[0]) as i, f.loop(constant(0, i64), self.counts[1]) as k:
            source, target = self.rows(i, k)
            f.copy(target, source, self.row)
        f.ret()

    def write_sum(self, element: Type, terms: int, vector_bits: int) -> None:
        """Write the sum of each row's elements, in vectors as far as possible."""
        f, size = self.f, element.bits // 8
        lanes = max(1, vector_bits // element.bits)
        count = f.udiv(self.row, constant(size, i64))
        vectors = f.sub(count, f.urem(count, constant(lanes, i64)))
        with f.loop(constant(0, i64), self.counts[0]) as i, f.loop(constant(0, i64), self.counts[1]) as k:
            rows = self.rows(i, k)
            with f.loop(constant(0, i64), vectors, lanes) as n:
                _add(f, element, vector(element, lanes), rows, terms, n)
            with f.loop(vectors, count) as n:
                _add(f, element, element, rows, terms, n)
        f.ret()

    def rows(self, i: Value, k: Value) -> list[Value]:
        """Return the address in each buffer of the row at two indices."""
        f = self.f
        return [
            f.offset(base, i8, f.add(f.mul(i, outer), f.mul(k, inner)))
            for base, (outer, inner) in zip(self.bases, self.strides, strict=True)
        ]


def _add(f: Function, element: Type, type: Type, rows: list[Value], terms: int, n: Value) -> None:
    """Load elements of all terms at an index, and store their sum to the other rows."""
    size = element.bits // 8
    addresses = [f.offset(row, element, n) for row in rows]
    loaded = [f.load(type, a, size) for a in addresses[:terms]]
    total = combine_tree(f.fadd if element.kind == "float" else f.add, loaded)
    for a in addresses[terms:]:
        f.store(total, a, size)
