"""Width of each value: 1, or the lanes of the loop that defines it or carried it out."""

from __future__ import annotations

from collections.abc import Iterable

from weft.compiler.kernel.ir import (
    Compute,
    Constant,
    If,
    Kernel,
    Last,
    Load,
    Loop,
    LoopKind,
    Position,
    Rank,
    ReduceLanes,
    Shift,
    Shuffle,
    Statement,
    Value,
)


def widths(kernel: Kernel) -> dict[Value, int]:
    """Return the width of every value. Constants have width 1 everywhere; a vector leaves a loop over lanes only by a
    carry.
    """
    found: dict[Value, int] = {}
    _measure(kernel.body, 1, found)
    return found


def _measure(body: Iterable[Statement], lanes: int, found: dict[Value, int]) -> None:
    for statement in body:
        match statement:
            case Constant(result) | ReduceLanes(result):
                found[result] = 1
            case Shuffle(result, _, chosen):
                found[result] = len(chosen)
            case Position(result) | Load(result) | Shift(result) | Last(result) | Rank(result):
                found[result] = lanes
            case Compute(result, _, operands):
                found[result] = max(lanes, *(found.get(v, 1) for v in operands))
            case If(_, inner):
                _measure(inner, lanes, found)
            case Loop():
                _measure_loop(statement, lanes, found)


def _measure_loop(loop: Loop, lanes: int, found: dict[Value, int]) -> None:
    """Find the widths in a loop. A carry is as wide as its next value, which may depend on the carry's width: iterate
    to a fixed point.
    """
    inner = loop.width if loop.kind is LoopKind.LANES else lanes
    for carry in loop.carries:
        found[carry.inside] = max(inner, found.get(carry.initial, 1))
    while True:
        _measure(loop.body, inner, found)
        grown = [c for c in loop.carries if found.get(c.final, 1) > found[c.inside]]
        if not grown:
            break
        for carry in grown:
            found[carry.inside] = found[carry.final]
    for carry in loop.carries:
        found[carry.result] = found[carry.inside]
