"""Merging of loops: two perfectly nested loops become one if every access advances together.

for i in 4: for j in 8: y[8 i + j] = x[8 i + j]     ->     for k in 32: y[k] = x[k]
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from weft.compiler.kernel.ir import (
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
    Variable,
)
from weft.compiler.kernel.substitute import substituted
from weft.indexing.expression import Integer


def merge_loops(kernel: Kernel) -> Kernel:
    """The kernel with every pair of loops merged that can be."""
    return replace(kernel, body=tuple(_merged(s) for s in kernel.body))


def _merged(statement: Statement) -> Statement:
    if isinstance(statement, If):
        return If(statement.condition, tuple(_merged(s) for s in statement.body))
    if not isinstance(statement, Loop):
        return statement
    loop = replace(statement, body=tuple(_merged(s) for s in statement.body))
    while (pair := _pair(loop)) is not None:
        loop = pair
    return loop


def _pair(outer: Loop) -> Loop | None:
    """Outer and inner loop as one, or None."""
    if len(outer.body) != 1 or not isinstance(outer.body[0], Loop):
        return None
    inner = outer.body[0]
    plain = all(_is(x.start, 0) and x.step == 1 and not x.carries and x.limit is None for x in (outer, inner))
    if not plain or outer.kind is LoopKind.LANES:
        return None
    if _is(inner.stop, 1) and inner.kind is not LoopKind.LANES:
        return replace(outer, body=substituted(inner.body, inner.variable, Index()))
    if not advance_together(indices_of(inner.body), outer.variable, inner.variable, inner.stop):
        return None
    # What was outside of the inner loop is gone from every index: the inner variable now runs over both.
    kind = LoopKind.LANES if inner.kind is LoopKind.LANES else outer.kind
    return replace(
        inner, stop=outer.stop * inner.stop, kind=kind, body=substituted(inner.body, outer.variable, Index())
    )


def _is(size: Integer, value: int) -> bool:
    """Whether a size has a value for all symbols: a loop that could be merged for one size only is left as it is."""
    return isinstance(size, int) and size == value


def advance_together(indices: Iterable[Index], outer: Variable, inner: Variable, size: Integer) -> bool:
    """Whether two loops are one: a step of the outer one is `size` steps of the inner one in every index."""
    return all(i.coefficient(outer) == i.coefficient(inner) * size for i in indices)


def indices_of(body: Sequence[Statement]) -> Iterator[Index]:
    """Every index of some statements: all that depends on loop variables in them, since conditions are computed from
    positions and loads."""
    for statement in body:
        match statement:
            case Load() | Store() | Prefetch() | Position():
                yield statement.index
            case Matmul():
                yield from statement.indices()
            case Loop():
                if statement.limit is not None:
                    yield statement.limit
                yield from indices_of(statement.body)
            case If():
                yield from indices_of(statement.body)
