"""A rough estimate of a kernel's time, to decide whether threads pay; it never changes results."""

from __future__ import annotations

import functools
import weakref
from collections.abc import Iterable
from typing import Any

from weft.compiler.kernel import interleaved
from weft.compiler.kernel.ir import (
    Accumulate,
    Buffer,
    Compute,
    GroupMatmul,
    If,
    Index,
    Kernel,
    Load,
    Loop,
    LoopKind,
    Position,
    Rank,
    Statement,
    Store,
    TileMatmul,
    Value,
    Variable,
)
from weft.compiler.target.costs import KernelCosts
from weft.indexing.expression import Expression
from weft.ir.primitive import lookup
from weft.primitives.elementwise.elementwise import Elementwise

# Strides of contiguous lanes, and a stride that stands for lanes far apart.
UNIT, FAR = (1, -1), 1 << 20
# Maximum number of tasks that a kernel is split into for threads.
MOST_TASKS = 64
# Multiplications in the product of two tiles of bfloat16.
TILE_MULTIPLICATIONS = 16 * 16 * 32
# Cached estimates, with the costs that they were made with: a kernel is launched often.
_work: weakref.WeakKeyDictionary[Kernel, tuple[KernelCosts, float]] = weakref.WeakKeyDictionary()


def work(kernel: Kernel, costs: KernelCosts) -> float:
    """Estimate the nanoseconds of a kernel on one thread."""
    known = _work.get(kernel)
    if known is None or known[0] is not costs:
        found = _Count(costs).kernel(kernel)
        assert not isinstance(found, Formula), f"{kernel.name} has symbolic sizes"
        known = _work[kernel] = (costs, found)
    return known[1]


def work_text(kernel: Kernel, costs: KernelCosts, prefix: str) -> tuple[list[str], str]:
    """Return `work` for a kernel with symbolic sizes: lines of Python to run first, and an expression over its symbols.

    The lines define names that begin with `prefix`.
    """
    count = _Count(costs, prefix)
    text = str(count.kernel(kernel))
    return [f"{name} = {own}" for own, name in count.names.items()], text


def choose_grain(kernel: Kernel, costs: KernelCosts) -> int:
    """Return the number of iterations of the loop over threads in one task, or 0 if threads do not pay.

    It depends only on the kernel, not on the number of threads.
    """
    loop = kernel.parallel
    count = 0 if loop is None else loop.count
    assert isinstance(count, int), f"{kernel.name} has symbolic sizes"
    if count < 2:
        return 0
    grain = grain_for(count, work(kernel, costs), costs)
    # Tile matmuls are split for as many threads as possible.
    return -(-count // MOST_TASKS) if grain and kernel.multiplies_tiles else grain


def grain_for(count: int, total: float, costs: KernelCosts) -> int:
    """Return the grain for a kernel with `count` iterations and `total` nanoseconds of work."""
    if count < 2 or total < costs.parallel_threshold:
        return 0
    tasks = max(2, min(count, int(total / costs.least_task), MOST_TASKS))
    return -(-count // tasks)


class Formula:
    """An amount that depends on symbolic sizes, as the text of a sum or product."""

    def __init__(self, text: str) -> None:
        self.text = text

    def __str__(self) -> str:
        return self.text

    def __add__(self, other: Amount) -> Formula:
        return self if other == 0 else Formula(f"({self.text} + {other})")

    __radd__ = __add__

    def __mul__(self, other: Amount) -> Amount:
        return other if other == 0 else self if other == 1 else Formula(f"{self.text}*{other}")

    __rmul__ = __mul__


Amount = float | Formula


def _amount(count: Any) -> Amount:
    return Formula(f"({count})") if isinstance(count, Expression) else float(count)


class _Count:
    """Sums up the work of a kernel. `bytes` has the bytes accessed in each buffer, repeated accesses included."""

    def __init__(self, costs: KernelCosts, prefix: str = "") -> None:
        self.costs = costs
        self.prefix = prefix
        # Names of amounts, by their texts: the trip count of a loop is used for every statement in it.
        self.names: dict[str, str] = {}
        self.bytes: dict[Buffer, Amount] = {}
        self.variable: Variable | None = None
        self.width = 1
        # Values that differ between lanes.
        self.varying: set[Value] = set()

    def kernel(self, kernel: Kernel) -> Amount:
        total = self.block(kernel.body, 1.0)
        for buffer, touched in self.bytes.items():
            size = _amount(buffer.size) * buffer.dtype.itemsize
            symbolic = isinstance(touched, Formula) or isinstance(size, Formula)
            lines = Formula(f"min({touched}, {size})") if symbolic else min(touched, size)
            total = total + lines * (self.costs.line / self.costs.line_bytes)
        return total

    def block(self, body: Iterable[Statement], times: Amount) -> Amount:
        """Return the work of statements that run `times` times."""
        own = 0.0
        inner: Amount = 0.0
        for statement in body:
            match statement:
                case Loop():
                    inner = inner + self.loop(statement, times)
                case If():
                    inner = inner + self.block(statement.body, times * 0.5)
                case Compute(result, op, operands):
                    if not self.varying.isdisjoint(operands):
                        self.varying.add(result)
                    own += self.vectors(result.dtype) * self.operation(op)
                case Load(result, buffer, index):
                    if self.strides(index):
                        self.varying.add(result)
                    own += self.access(buffer, index, times)
                case Store(buffer, index) | Accumulate(buffer, index):
                    own += self.access(buffer, index, times)
                case Rank(result, buffer, index):
                    self.varying.add(result)
                    own += 2 * self.access(buffer, index, times)
                case TileMatmul(rows=rows, columns=columns, steps=steps):
                    own += self.costs.tile * rows * columns * steps
                case GroupMatmul(rows=rows, columns=columns, k_size=k_size):
                    own += self.costs.tile * -(-rows * columns * k_size // TILE_MULTIPLICATIONS)
                case Position(result, index):
                    if self.strides(index):
                        self.varying.add(result)
                    own += self.costs.simple
                case _:
                    own += self.costs.simple
        return inner + times * own

    def loop(self, loop: Loop, times: Amount) -> Amount:
        iterations = _amount(loop.count)
        before = self.variable, self.width
        if loop.kind is LoopKind.LANES:
            iterations = _amount(-(-loop.count // loop.width))
            self.variable, self.width = loop.variable, loop.width
        elif iterations == 1 and loop.limit is not None:
            iterations = 0.5  # remainder loops at an edge, which are often empty
        runs = self.named(iterations * times)
        total = runs * self.costs.iteration + self.block(loop.body, runs)
        self.variable, self.width = before
        return total

    def named(self, amount: Amount) -> Amount:
        """Give an amount a name, so that its expression is evaluated once."""
        if not isinstance(amount, Formula):
            return amount
        return Formula(self.names.setdefault(amount.text, f"{self.prefix}{len(self.names)}_"))

    def access(self, buffer: Buffer, index: Index, times: Amount) -> float:
        """Return the cost of one access, whose lanes are contiguous, at one address, interleaved, or scattered."""
        size = buffer.dtype.itemsize
        apart = self.strides(index)
        if self.width == 1 or not apart:
            lanes, cost = 1, self.costs.access
        elif len(apart) == 1 and self.variable is not None and index.coefficient(self.variable) in UNIT:
            lanes, cost = self.width, self.costs.access * self.vectors(buffer.dtype)
        elif len(apart) == 1 and 1 < apart[0] <= interleaved.WIDEST_SPARSE:
            lanes, cost = (
                self.width,
                (self.costs.access + self.costs.simple * (apart[0] - 1)) * self.vectors(buffer.dtype),
            )
        else:
            lanes, cost = self.width, self.costs.scattered * self.width
        self.bytes[buffer] = self.bytes.get(buffer, 0.0) + times * (lanes * size)
        return cost

    def strides(self, index: Index) -> list[int]:
        """Return the distances between lanes, one for each term that differs between them. Symbolic sizes count as
        far.
        """
        found = [c for term, c in index.terms if term is self.variable or term in self.varying]
        return [FAR if isinstance(c, Expression) else c for c in found]

    def vectors(self, dtype: Any) -> float:
        """Return the number of registers that the lanes take."""
        result: float = max(1.0, self.width * max(4, dtype.itemsize) / self.costs.line_bytes)
        return result

    def operation(self, op: str) -> float:
        """Return the cost of an operation on one vector."""
        if op == "fma":
            return self.costs.fused
        return self.costs.function if _is_function(op) else self.costs.simple


@functools.cache
def _is_function(op: str) -> bool:
    """Return whether an operation is computed by polynomials."""
    try:
        primitive = lookup(op)
    except ValueError:
        return False
    return isinstance(primitive, Elementwise) and primitive.ulp.get("", 0.0) > 0
