"""Independent parts of a loop, such as the rows of a batch.

Everything that such a loop writes is divided into equal slices, one per part, and so are the iterations of all its
kernels: a part touches no written slice but its own. So threads of different parts never synchronise, however many
iterations the loop has. This is proved by interval arithmetic on the indices of loads and stores.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

from weft.base import dtypes
from weft.compiler.kernel.grid import accesses
from weft.compiler.kernel.ir import (
    Compute,
    Constant,
    If,
    Index,
    Kernel,
    Load,
    Loop,
    LoopKind,
    Matmul,
    Position,
    Prefetch,
    Statement,
    Store,
    Value,
)
from weft.compiler.program.ir import Program
from weft.compiler.program.outline import Operand, Outline, Row
from weft.indexing.expression import Expression

# Inclusive bounds of an integer.
Range = tuple[int, int]


def count_parts(outline: Outline, program: Program, most: int) -> int:
    """Return the largest number of independent parts of a loop, at most `most`; 1 if it has none."""
    rows = list(_inner(outline.rows))
    work = [_work(row) for row in rows if row[0] != "set_address"]
    if None in work or any(alias is not None for alias in program.aliases):
        return 1
    memory = _memory(outline, rows)
    if memory is None:
        return 1
    common = math.gcd(*(count for count in work if count is not None))
    for parts in sorted((n for n in range(2, most + 1) if common % n == 0), reverse=True):
        if all(_is_inside(row, outline, memory, part, parts) for row in rows for part in range(parts)):
            return parts
    return 1


def _inner(rows: Sequence[Row]) -> Iterator[Row]:
    """Yield the rows of a loop and of the loops inside it."""
    for row in rows:
        if row[0] == "loop":
            yield from _inner(row[4])
        else:
            yield row


def _work(row: Row) -> int | None:
    """Return the divisible work of a row, kernel iterations or words; None if it cannot be divided."""
    match row:
        case "launch", _, count, _:
            iterations: int = count
            return iterations
        case "copy" | "fill", *_, size:
            return size // 4 if size % 4 == 0 else None
    return None


# -- memory ------------------------------------------------------------------------------------------------------------


class _Memory:
    """Memory accessed by a loop: the base operand of each operand, and the written bases. Slices addressed by loop
    counters belong to one base, in which slices of equal size follow each other."""

    def __init__(self, roots: dict[Operand, Operand], written: set[Operand]) -> None:
        self.roots, self.written = roots, written

    def is_written(self, operand: Operand) -> bool:
        return self.roots.get(operand, operand) in self.written


def _memory(outline: Outline, rows: Sequence[Row]) -> _Memory | None:
    """Collect the memory of rows; return None if written memory may overlap."""
    roots: dict[Operand, Operand] = {}
    strides: dict[Operand, set[int]] = {}
    sizes: dict[Operand, set[int]] = {}
    written: set[Operand] = set()

    def touch(operand: Operand, size: int, writes: bool) -> None:
        where = roots.get(operand, operand)
        sizes.setdefault(where, set()).add(size)
        if writes:
            written.add(where)

    for row in rows:
        match row:
            case "set_address", target, base, _, stride:
                root: Operand = roots.get(base) or base
                roots[target] = root
                strides.setdefault(root, set()).add(stride)
            case "launch", symbol, _, operands:
                kernel = outline.kernels[symbol]
                if not isinstance(kernel, Kernel) or kernel.sizes:
                    return None
                stores = {s.buffer for s, _ in accesses(kernel.body) if isinstance(s, Store)}
                for buffer, operand in zip(kernel.buffers, operands, strict=True):
                    touch(operand, int(buffer.size) * buffer.dtype.itemsize, buffer in stores)
            case "copy", target, source, size:
                touch(target, size, True)
                touch(source, size, False)
            case "fill", target, size:
                touch(target, size, True)
            case _:
                return None
    for each in written:
        # Operands with one base must have equal slices, and no other operand may overlap.
        if len(sizes[each]) != 1 or any(stride % next(iter(sizes[each])) for stride in strides.get(each, ())):
            return None
        if any(_overlap(outline, each, other) for other in {*sizes, *roots.values()} if other != each):
            return None
    return _Memory(roots, written)


def _overlap(outline: Outline, first: Operand, second: Operand) -> bool:
    """Return whether two operands from outside the loop overlap."""
    (one, start), (other, begin) = (outline.addresses[operand[1]] for operand in (first, second))
    ends = [
        address.offset + outline.sizes[address]
        for address in (outline.addresses[first[1]], outline.addresses[second[1]])
    ]
    return one == other and start < ends[1] and begin < ends[0]


# -- ranges ------------------------------------------------------------------------------------------------------------


def _is_inside(row: Row, outline: Outline, memory: _Memory, part: int, parts: int) -> bool:
    """Return whether a part of a row accesses only its own slices of written memory."""
    if row[0] != "launch":
        return True  # a copy divides both sides alike
    _, symbol, count, operands = row
    kernel = outline.kernels[symbol]
    assert isinstance(kernel, Kernel)
    each = count // parts
    ranges = _Ranges((part * each, (part + 1) * each - 1))
    written = {b for b, o in zip(kernel.buffers, operands, strict=True) if memory.is_written(o)}
    for statement, found in ranges.block(kernel.body):
        if isinstance(statement, Matmul | Prefetch):
            return False
        if statement.buffer in written:
            size = int(statement.buffer.size)
            if found is None or size % parts or not part * size <= found[0] * parts:
                return False
            if found[1] * parts >= (part + 1) * size:
                return False
    return True


class _Ranges:
    """Value ranges of index terms in a kernel, for a range of its loop over threads."""

    def __init__(self, threads: Range) -> None:
        self.threads = threads
        self.known: dict[Any, Range] = {}

    def block(self, body: Sequence[Statement]) -> Iterator[tuple[Any, Range | None]]:
        """Yield each memory access with the range of its index, or None if that is unknown."""
        for statement in body:
            match statement:
                case Load() | Store():
                    yield statement, self.index(statement.index)
                case Prefetch() | Matmul():
                    yield statement, None
                case Loop():
                    self.known[statement.variable] = self.loop(statement)
                    yield from self.block(statement.body)
                case If():
                    yield from self.block(statement.body)
                case Constant(result, value) if dtypes.kind(result.dtype) in "iu":
                    self.known[result] = int(value), int(value)
                case Position(result, index):
                    self.define(result, self.index(index))
                case Compute(result, op, operands) if op in ("rem", "div"):
                    self.define(result, self.divide(op, *operands))

    def loop(self, loop: Loop) -> Range:
        if loop.kind is LoopKind.THREADS:
            first, last = self.threads
            return int(loop.start) + first * loop.step, int(loop.start) + last * loop.step
        last = int(loop.start) + (int(loop.count) - 1) * loop.step
        limit = None if loop.limit is None else self.index(loop.limit)
        return int(loop.start), last if limit is None else max(int(loop.start), min(last, limit[1] - 1))

    def define(self, result: Value, found: Range | None) -> None:
        if found is not None:
            self.known[result] = found

    def index(self, index: Index) -> Range | None:
        if isinstance(index.constant, Expression):
            return None
        low = high = int(index.constant)
        for term, factor in index.terms:
            if term not in self.known or isinstance(factor, Expression):
                return None
            ends = sorted(factor * end for end in self.known[term])
            low, high = low + ends[0], high + ends[1]
        return low, high

    def divide(self, op: str, value: Value, divisor: Value) -> Range | None:
        """Return the range of a quotient or remainder by a positive constant."""
        found, by = self.known.get(value), self.known.get(divisor)
        if found is None or by is None or by[0] != by[1] or by[0] <= 0 or found[0] < 0:
            return None
        quotients = found[0] // by[0], found[1] // by[0]
        if op == "div":
            return quotients
        if quotients[0] == quotients[1]:
            return found[0] % by[0], found[1] % by[0]
        return 0, by[0] - 1
