"""A rough estimate of how long a kernel takes, to decide whether threads pay; it never changes what is computed."""

from __future__ import annotations

import functools
from collections.abc import Iterable
from typing import Any

from weft.compiler.kernel import interleaved
from weft.compiler.kernel.ir import (
    Buffer,
    Compute,
    If,
    Index,
    Kernel,
    Load,
    Loop,
    LoopKind,
    Position,
    Statement,
    Store,
    TileMatmul,
    Value,
    Variable,
)
from weft.compiler.target.target import KernelCosts
from weft.ir.primitive import lookup
from weft.primitives.elementwise.elementwise import Elementwise


def work(kernel: Kernel, costs: KernelCosts) -> float:
    """Estimated nanoseconds of one thread."""
    return _Count(costs).kernel(kernel)


def grain_of(kernel: Kernel, costs: KernelCosts) -> int:
    """How many iterations of the loop over threads are one task; 0 if threads do not pay. It depends on the kernel
    only, not on the number of threads."""
    loop = kernel.parallel
    if loop is None or loop.count < 2:
        return 0
    total = work(kernel, costs)
    if total < costs.worth_threads:
        return 0
    pieces = max(2, min(loop.count, int(total / costs.piece), 64))
    return -(-loop.count // pieces)


class _Count:
    """Visits a kernel. `bytes` counts the bytes of each buffer that are accessed, repeated accesses too."""

    def __init__(self, costs: KernelCosts) -> None:
        self.costs = costs
        self.bytes: dict[Buffer, float] = {}
        self.variable: Variable | None = None
        self.width = 1
        # What differs from lane to lane.
        self.varying: set[Value] = set()

    def kernel(self, kernel: Kernel) -> float:
        total = self.block(kernel.body, 1.0)
        for buffer, touched in self.bytes.items():
            total += self.costs.line * min(touched, buffer.size * buffer.dtype.itemsize) / self.costs.line_bytes
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
                    total += times * self.vectors(result.dtype) * self.operation(op)
                case Load(result, buffer, index):
                    if self.strides(index):
                        self.varying.add(result)
                    total += times * self.access(buffer, index, times)
                case Store(buffer, index):
                    total += times * self.access(buffer, index, times)
                case TileMatmul(rows=rows, columns=columns, steps=steps):
                    total += times * self.costs.tile * rows * columns * steps
                case Position(result, index):
                    if self.strides(index):
                        self.varying.add(result)
                    total += times * self.costs.simple
                case _:
                    total += times * self.costs.simple
        return total

    def loop(self, loop: Loop, times: float) -> float:
        iterations = float(loop.count)
        before = self.variable, self.width
        if loop.kind is LoopKind.LANES:
            iterations = -(-loop.count // loop.width)
            self.variable, self.width = loop.variable, loop.width
        elif loop.count == 1 and loop.limit is not None:
            iterations = 0.5  # what is at an edge
        total = iterations * times * self.costs.iteration + self.block(loop.body, iterations * times)
        self.variable, self.width = before
        return total

    def access(self, buffer: Buffer, index: Index, times: float) -> float:
        """One access, in lanes that are side by side, all at one address, interleaved, or apart."""
        size = buffer.dtype.itemsize
        apart = self.strides(index)
        if self.width == 1 or not apart:
            lanes, cost = 1, self.costs.access
        elif len(apart) == 1 and self.variable is not None and abs(index.coefficient(self.variable)) == 1:
            lanes, cost = self.width, self.costs.access * self.vectors(buffer.dtype)
        elif len(apart) == 1 and 1 < apart[0] <= interleaved.WIDEST_SPARSE:
            lanes, cost = (
                self.width,
                (self.costs.access + self.costs.simple * (apart[0] - 1)) * self.vectors(buffer.dtype),
            )
        else:
            lanes, cost = self.width, self.costs.scattered * self.width
        self.bytes[buffer] = self.bytes.get(buffer, 0.0) + times * lanes * size
        return cost

    def strides(self, index: Index) -> list[int]:
        """How far lanes are apart by each term that differs between them."""
        return [c for term, c in index.terms if term is self.variable or term in self.varying]

    def vectors(self, dtype: Any) -> float:
        """How many registers the lanes take."""
        return max(1.0, self.width * max(4, dtype.itemsize) / self.costs.line_bytes)

    def operation(self, op: str) -> float:
        """The cost of an operation on one vector."""
        if op == "fma":
            return self.costs.fused
        return self.costs.function if _is_function(op) else self.costs.simple


@functools.cache
def _is_function(op: str) -> bool:
    """Whether an operation is computed by polynomials."""
    try:
        card = lookup(op)
    except ValueError:
        return False
    return isinstance(card, Elementwise) and card.ulp.get("", 0.0) > 0
