"""How long a kernel takes, roughly: enough to decide whether threads pay, never part of what it computes."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from weft.compiler.kernel import interleaved
from weft.compiler.kernel.ir import (
    Buffer,
    Compute,
    If,
    Index,
    Kernel,
    Kind,
    Load,
    Loop,
    Position,
    Statement,
    Store,
    TileMatmul,
    Value,
    Variable,
)
from weft.ir.primitive import lookup
from weft.ops.elementwise import Elementwise

# Nanoseconds for one vector: an operation of a few instructions, one that a machine starts two of in each cycle, a
# function by polynomials, an access to a cache.
SIMPLE, FUSED, FUNCTION, ACCESS = 0.3, 0.17, 6.0, 0.08
# What an element costs that is read or written apart from its neighbours.
APART = 0.4
# More for so many bytes that come from memory or go there, which they do once.
FROM_MEMORY, VECTOR_BYTES = 1.12, 64
# A product of two tiles by tile registers.
TILE = 30.0
# A turn of a loop.
TURN = 0.3
# Work that is worth waking another thread for, and what one piece of it should take.
WORTH, PIECE = 20_000.0, 6_000.0


def work(kernel: Kernel) -> float:
    """Estimated nanoseconds of one thread."""
    return _Count().kernel(kernel)


def grain_of(kernel: Kernel) -> int:
    """How many iterations of the loop over threads go together; 0 if threads do not pay. It depends on the kernel only,
    so that the pieces are the same whatever runs them."""
    loop = kernel.parallel
    if loop is None or loop.count < 2:
        return 0
    total = work(kernel)
    if total < WORTH:
        return 0
    pieces = max(2, min(loop.count, int(total / PIECE), 64))
    return -(-loop.count // pieces)


class _Count:
    """Walks a kernel. `bytes` is how much of each buffer is touched, as often as it is."""

    def __init__(self) -> None:
        self.bytes: dict[Buffer, float] = {}
        self.variable: Variable | None = None
        self.width = 1
        # What differs from lane to lane.
        self.varying: set[Value] = set()

    def kernel(self, kernel: Kernel) -> float:
        total = self.block(kernel.body, 1.0)
        for buffer, touched in self.bytes.items():
            total += FROM_MEMORY * min(touched, buffer.size * buffer.dtype.itemsize) / VECTOR_BYTES
        return total

    def block(self, body: Iterable[Statement], times: float) -> float:
        """The work of statements that run so many times."""
        total = 0.0
        for statement in body:
            match statement:
                case Loop():
                    total += self.loop(statement, times)
                case If():
                    total += self.block(statement.body, 0.5 * times)
                case Compute(result, op, operands):
                    if not self.varying.isdisjoint(operands):
                        self.varying.add(result)
                    total += times * self.vectors(result.dtype) * _operation(op)
                case Load(result, buffer, index):
                    if self.strides(index):
                        self.varying.add(result)
                    total += times * self.access(buffer, index, times)
                case Store(buffer, index):
                    total += times * self.access(buffer, index, times)
                case TileMatmul(rows=rows, columns=columns, steps=steps):
                    total += times * TILE * rows * columns * steps
                case Position(result, index):
                    if self.strides(index):
                        self.varying.add(result)
                    total += times * SIMPLE
                case _:
                    total += times * SIMPLE
        return total

    def loop(self, loop: Loop, times: float) -> float:
        turns = float(loop.count)
        before = self.variable, self.width
        if loop.kind is Kind.LANES:
            turns = -(-loop.count // loop.width)
            self.variable, self.width = loop.variable, loop.width
        elif loop.count == 1 and loop.limit is not None:
            turns = 0.5  # what is at an edge
        total = turns * times * TURN + self.block(loop.body, turns * times)
        self.variable, self.width = before
        return total

    def access(self, buffer: Buffer, index: Index, times: float) -> float:
        """One access, in lanes that are side by side, all at one place, interleaved, or apart."""
        size = buffer.dtype.itemsize
        apart = self.strides(index)
        if self.width == 1 or not apart:
            lanes, cost = 1, ACCESS
        elif len(apart) == 1 and self.variable is not None and abs(index.coefficient(self.variable)) == 1:
            lanes, cost = self.width, ACCESS * self.vectors(buffer.dtype)
        elif len(apart) == 1 and 1 < apart[0] <= interleaved.WIDEST_SPARSE:
            lanes, cost = self.width, (ACCESS + SIMPLE * (apart[0] - 1)) * self.vectors(buffer.dtype)
        else:
            lanes, cost = self.width, APART * self.width
        self.bytes[buffer] = self.bytes.get(buffer, 0.0) + times * lanes * size
        return cost

    def strides(self, index: Index) -> list[int]:
        """How far lanes are apart by each term that differs between them."""
        return [c for term, c in index.terms if term is self.variable or term in self.varying]

    def vectors(self, dtype: Any) -> float:
        """How many registers the lanes take."""
        return max(1.0, self.width * max(4, dtype.itemsize) / VECTOR_BYTES)


_costs: dict[str, float] = {"fma": FUSED}


def _operation(op: str) -> float:
    cost = _costs.get(op)
    if cost is None:
        try:
            card = lookup(op)
        except ValueError:
            card = None
        dear = isinstance(card, Elementwise) and card.ulp.get("", 0.0) > 0
        cost = _costs[op] = FUNCTION if dear else SIMPLE
    return cost
