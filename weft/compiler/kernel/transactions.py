"""Memory transactions of kernels on a grid of threads: their number of threads, and the part of each that they use.

A GPU moves memory in sectors. The addresses of 32 threads side by side are computed for one iteration of each loop, of
innermost loops for some, since a cache keeps sectors that the next iterations use; loops count as often as they run.
Kernels whose lanes are threads have the lanes side by side. Values that depend on memory are unknown, and so are
addresses that depend on those.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from weft.compiler.kernel.ir import (
    Buffer,
    Compute,
    Constant,
    If,
    Index,
    Kernel,
    Load,
    Loop,
    LoopKind,
    Position,
    Statement,
    Store,
    Term,
    Value,
)
from weft.compiler.kernel.operations import evaluate

WARP, SECTOR_BYTES = 32, 32
# Lanes from which threads share the lanes of a loop.
LEAST_LANES = 32
# Bytes a second of a large GPU's memory, and those that one thread can have on their way.
BANDWIDTH, OF_THREAD = 4e12, 1e8
# Seconds that a kernel may take whatever it does, and how many times the least time another may.
SHORT, MOST_TIMES = 20e-6, 3.0
# Consecutive iterations of an innermost loop, during which sectors stay in a cache.
REUSED_ITERATIONS = 8


class Transactions(NamedTuple):
    """Threads of a kernel, and bytes that they access: those used, and those of the sectors that are transferred."""

    threads: int
    used: float
    transferred: float

    @property
    def share(self) -> float:
        """Part of the transferred bytes that is used."""
        return self.used / self.transferred if self.transferred else 1.0

    @property
    def seconds(self) -> float:
        """Estimate of the time on a large GPU, by the bytes that are transferred and the threads that move them."""
        return self.transferred / min(BANDWIDTH, max(self.threads, 1) * OF_THREAD)

    @property
    def is_wasteful(self) -> bool:
        """Whether few threads, or small parts of sectors, make a kernel much slower than its memory."""
        return self.seconds > max(SHORT, MOST_TIMES * self.used / BANDWIDTH)

    def __str__(self) -> str:
        transferred = f"{self.transferred / 2**20:.1f} MB moved, {self.share:.0%} of it used"
        return f"{self.threads} threads, {transferred}, about {self.seconds * 1e6:.0f} us"


def count_transactions(kernel: Kernel) -> Transactions:
    """Count the transactions of a kernel, as it is mapped to a grid."""
    count = _Count(kernel)
    count.block(kernel.body, {}, 1.0)
    return Transactions(count.threads, count.used, count.transferred)


class _Count:
    def __init__(self, kernel: Kernel) -> None:
        self.local: set[Buffer] = set(kernel.local)
        self.used = self.transferred = 0.0
        self.has_groups = _widest_lanes(kernel.body) >= LEAST_LANES
        self.threads = int(kernel.count)
        if self.has_groups:
            self.threads *= _widest_lanes(kernel.body) * (_teams(kernel.body) if kernel.local else 1)
        self.values: dict[Value, Any] = {}

    def block(self, body: Sequence[Statement], variables: Mapping[Term, Any], times: float) -> None:
        for statement in body:
            match statement:
                case Constant(result, value):
                    self.values[result] = np.asarray(value)
                case Position(result, index):
                    self.values[result] = self.offset(index, variables)
                case Compute(result, op, operands, params):
                    self.values[result] = self.compute(result, op, operands, params)
                case Load(_, buffer, index, condition):
                    self.access(buffer, index, condition, variables, times)
                case Store(buffer, index, _, condition):
                    self.access(buffer, index, condition, variables, times)
                case Loop():
                    self.loop(statement, variables, times)
                case If(_, inside):
                    self.block(inside, variables, times)

    def compute(self, result: Value, op: str, operands: Sequence[Value], params: Mapping[str, Any]) -> Any:
        """Return the value of an operation on known integers and conditions, else None."""
        known = [v for operand in operands if (v := self.values.get(operand)) is not None]
        if len(known) < len(operands) or np.dtype(result.dtype).kind not in "iub":
            return None
        arrays = np.broadcast_arrays(*known)
        with np.errstate(all="ignore"):
            return evaluate(op, [a.astype(v.dtype) for a, v in zip(arrays, operands, strict=True)], params)

    def loop(self, loop: Loop, variables: Mapping[Term, Any], times: float) -> None:
        """Count one iteration in the middle of a loop."""
        count = int(loop.count)
        middle = int(loop.start) + count // 2 * loop.step
        if loop.kind is LoopKind.THREADS and not self.has_groups:
            warps = max(1.0, count / WARP)
            first = count // 2 // WARP * WARP
            side_by_side = np.arange(first, min(first + WARP, count)).reshape(-1, 1)
            self.block(loop.body, {**variables, loop.variable: side_by_side}, times * warps)
            return
        if loop.kind is LoopKind.LANES:
            if self.has_groups:
                lanes = np.arange(min(WARP, count)).reshape(-1, 1)
                self.block(loop.body, {**variables, loop.variable: lanes}, times * max(1.0, count / WARP))
            else:
                self.block(loop.body, {**variables, loop.variable: np.arange(min(loop.width, count))}, times)
            return
        window = np.asarray(middle)
        if not any(isinstance(s, Loop) for s in loop.body):
            window = np.arange(min(REUSED_ITERATIONS, count)).reshape(-1, 1, 1) * loop.step + int(loop.start)
        self.block(loop.body, {**variables, loop.variable: window}, times * count / window.size)

    def offset(self, index: Index, variables: Mapping[Term, Any]) -> Any:
        """Return the values of an index for the threads, or None if it depends on memory."""
        total: Any = np.asarray(int(index.constant))
        for term, coefficient in index.terms:
            value = self.values.get(term) if isinstance(term, Value) else variables.get(term)
            if value is None:
                return None
            total = total + np.asarray(value).astype(np.int64) * int(coefficient)
        return total

    def access(
        self, buffer: Buffer, index: Index, condition: Value | None, variables: Mapping[Term, Any], times: float
    ) -> None:
        """Add the transactions of a load or a store by all threads of a warp."""
        offsets = None if buffer in self.local else self.offset(index, variables)
        if offsets is None:
            return
        holds = None if condition is None else self.values.get(condition)
        if holds is not None:
            offsets, holds = np.broadcast_arrays(offsets, holds)
            offsets = offsets[holds.astype(bool)]
        size = buffer.dtype.itemsize
        first = np.unique(offsets) * size
        self.used += times * first.size * size
        self.transferred += times * np.unique(first // SECTOR_BYTES).size * SECTOR_BYTES


def _teams(body: Sequence[Statement]) -> int:
    """Return how many teams a group with local memory has: the iterations of the longest loop around lanes."""
    most = 1
    for statement in body:
        if isinstance(statement, Loop):
            around = statement.kind is LoopKind.SERIAL and any(
                isinstance(s, Loop) and s.kind is LoopKind.LANES for s in statement.body
            )
            most = max(most, int(statement.count) if around else 1, _teams(statement.body))
    return most


def _widest_lanes(body: Sequence[Statement]) -> int:
    """Return the width of the widest loop over lanes."""
    widest = 1
    for statement in body:
        if isinstance(statement, Loop):
            own = statement.width if statement.kind is LoopKind.LANES else 1
            widest = max(widest, own, _widest_lanes(statement.body))
        elif isinstance(statement, If):
            widest = max(widest, _widest_lanes(statement.body))
    return widest
