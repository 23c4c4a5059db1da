"""Loop collapsing: two perfectly nested loops become one if every access advances uniformly through both.

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
from weft.compiler.kernel.substitute import substitute
from weft.indexing.expression import Integer


def merge_loops(kernel: Kernel) -> Kernel:
    """Collapse all pairs of nested loops of a kernel that can be."""
    return replace(kernel, body=tuple(_merge(s) for s in kernel.body))


def _merge(statement: Statement) -> Statement:
    if isinstance(statement, If):
        return If(statement.condition, tuple(_merge(s) for s in statement.body))
    if not isinstance(statement, Loop):
        return statement
    loop = replace(statement, body=tuple(_merge(s) for s in statement.body))
    while (pair := _pair(loop)) is not None:
        loop = pair
    return loop


def _pair(outer: Loop) -> Loop | None:
    """Return outer and inner loop as one, or None if they cannot be merged."""
    if len(outer.body) != 1 or not isinstance(outer.body[0], Loop):
        return None
    inner = outer.body[0]
    plain = all(_is(x.start, 0) and x.step == 1 and not x.carries and x.limit is None for x in (outer, inner))
    if not plain or outer.kind is LoopKind.LANES:
        return None
    if _is(inner.stop, 1) and inner.kind is not LoopKind.LANES:
        return replace(outer, body=substitute(inner.body, inner.variable, Index()))
    if not advance_together(collect_indices(inner.body), outer.variable, inner.variable, inner.stop):
        return None
    # The inner variable now runs over both loops, so the outer one is removed from every index.
    kind = LoopKind.LANES if inner.kind is LoopKind.LANES else outer.kind
    return replace(inner, stop=outer.stop * inner.stop, kind=kind, body=substitute(inner.body, outer.variable, Index()))


def _is(size: Integer, value: int) -> bool:
    """Return whether a size has a value for all symbols. Loops that could be merged for some sizes only stay as they
    are.
    """
    return isinstance(size, int) and size == value


def advance_together(indices: Iterable[Index], outer: Variable, inner: Variable, size: Integer) -> bool:
    """Return whether one step of the outer loop equals `size` steps of the inner one in every index."""
    return all(i.coefficient(outer) == i.coefficient(inner) * size for i in indices)


def collect_indices(body: Sequence[Statement]) -> Iterator[Index]:
    """Iterate over every index in statements. Nothing else depends on loop variables, since conditions are computed
    from positions and loads.
    """
    for statement in body:
        match statement:
            case Load() | Store() | Prefetch() | Position():
                yield statement.index
            case Matmul():
                yield from statement.indices()
            case Loop():
                if statement.limit is not None:
                    yield statement.limit
                yield from collect_indices(statement.body)
            case If():
                yield from collect_indices(statement.body)
