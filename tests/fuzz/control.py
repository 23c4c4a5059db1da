"""Loops, branches and calls in random programs, nested."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

import weft
from tests.fuzz.generator import SMALL, Draw, Skip, Value
from weft import lax


def carried(draw: Draw) -> list[Value]:
    """What a loop starts with: one to three values of limited size."""
    found = [draw.within(draw.pick("fiub"), SMALL) for _ in range(draw.between(1, 3))]
    if sum(v.size for v in found) > draw.most:
        raise Skip
    return found


def next_carry(inner: Draw, start: Sequence[Value]) -> tuple[Any, ...]:
    """New values for a carry: made of what the body has, or the old ones in another order."""
    made = [inner.like(v.shape, v.dtype, SMALL).array for v in start]
    return tuple(made)


def scan(draw: Draw) -> None:
    start = carried(draw)
    length = draw.one_of((0, 1, 2, 3, 3, 5, 8))
    rows = [draw.like((length, *draw.shape(draw.below(3))), draw.dtype(), SMALL) for _ in range(draw.below(3))]
    rows = [r for r in rows if r.size <= draw.most]
    steps, results, closed, seed = draw.between(1, 5), draw.below(3), draw.flag(), draw.seed()
    reverse, unroll = draw.flag(0.3), draw.one_of((1, 1, 1, 2))

    def body(carry: Any, row: Any) -> Any:
        given = [Value(a, SMALL) for a in (*carry, *row)]
        inner = draw.inside(given, closed, seed)
        inner.steps(steps)
        made = next_carry(inner, start)
        out = [inner.pick("fiub") for _ in range(results)]
        bounds[:] = [v.bound for v in out]
        return made, tuple(v.array for v in out)

    bounds: list[float] = []
    ends, stacked = lax.scan(
        body, tuple(v.array for v in start), tuple(r.array for r in rows), length, reverse=reverse, unroll=unroll
    )
    for array in ends:
        draw.keep(array, SMALL)
    for array, bound in zip(stacked, bounds, strict=True):
        draw.keep(array, bound)


def repeated(draw: Draw) -> None:
    start = carried(draw)
    fixed = draw.flag()
    count: Any = draw.below(5)
    if not fixed:
        number = draw.like((), np.int32, 4)
        count = number.array
    steps, closed, seed = draw.between(1, 4), draw.flag(), draw.seed()

    def body(turn: Any, carry: Any) -> Any:
        inner = draw.inside([Value(turn, 8.0), *(Value(a, SMALL) for a in carry)], closed, seed)
        inner.steps(steps)
        return next_carry(inner, start)

    for array in lax.fori_loop(0, count, body, tuple(v.array for v in start)):
        draw.keep(array, SMALL)


def while_loop(draw: Draw) -> None:
    start = carried(draw)
    limit = draw.like((), np.int32, 6)
    steps, closed, seed = draw.between(1, 4), draw.flag(), draw.seed()
    watched = [n for n, v in enumerate(start) if not v.shape and v.kind in "fi"]

    def goes_on(state: Any) -> Any:
        turn, carry = state
        on = turn < limit.array
        if watched:
            on = lax.bitwise_and(on, lax.convert_element_type(carry[watched[0]], np.int32) < 4)
        return on

    def body(state: Any) -> Any:
        turn, carry = state
        inner = draw.inside([Value(turn, 8.0), *(Value(a, SMALL) for a in carry)], closed, seed)
        inner.steps(steps)
        return turn + 1, next_carry(inner, start)

    turn, ends = lax.while_loop(goes_on, body, (np.int32(0), tuple(v.array for v in start)))
    draw.keep(turn, 8.0)
    for array in ends:
        draw.keep(array, SMALL)


def branch(draw: Draw) -> None:
    given = carried(draw)
    results = [(v.shape, v.dtype) for v in (*given[:1], *(draw.pick("fiub") for _ in range(draw.below(2))))]
    steps, closed = draw.between(1, 4), draw.flag()

    def one(seed: int) -> Callable[..., Any]:
        def function(*arrays: Any) -> Any:
            inner = draw.inside([Value(a, SMALL) for a in arrays], closed, seed)
            inner.steps(inner.below(steps + 1))
            return tuple(inner.like(shape, dtype, SMALL).array for shape, dtype in results)

        return function

    operands = [v.array for v in given]
    if draw.flag():
        made = lax.cond(draw.like((), np.bool_).array, one(draw.seed()), one(draw.seed()), *operands)
    else:
        made = lax.switch(draw.index().array, [one(draw.seed()) for _ in range(draw.between(1, 4))], *operands)
    for array in made:
        draw.keep(array, SMALL)


def call(draw: Draw) -> None:
    """A call of a function that is jitted, computed again for its derivative, or mapped over the first axis."""
    given = carried(draw)
    steps, count, seed = draw.between(1, 4), draw.between(1, 2), draw.seed()
    name = draw.one_of(("jit", "checkpoint", "vmap", "barrier"))
    if name == "barrier":
        for array, value in zip(lax.optimization_barrier(tuple(v.array for v in given)), given, strict=True):
            draw.keep(array, value.bound)
        return
    bounds: list[float] = []

    def body(*arrays: Any) -> Any:
        inner = draw.inside([Value(a, SMALL) for a in arrays], False, seed)
        inner.steps(steps)
        out = [inner.pick("fiub") for _ in range(count)]
        bounds[:] = [v.bound for v in out]
        return tuple(v.array for v in out)

    if name == "vmap":
        mapped = [v for v in given if v.shape and v.shape[0]]
        if not mapped:
            raise Skip
        size = mapped[0].shape[0]
        axes = tuple(0 if v.shape and v.shape[0] == size else None for v in given)
        made = weft.vmap(body, axes)(*(v.array for v in given))
    else:
        made = (weft.jit if name == "jit" else weft.checkpoint)(body)(*(v.array for v in given))
    for array, bound in zip(made, bounds, strict=True):
        draw.keep(array, bound)


TABLE: tuple[tuple[float, Callable[[Draw], None]], ...] = (
    (3, scan), (2, repeated), (2, while_loop), (3, branch), (3, call),
)  # fmt: skip
