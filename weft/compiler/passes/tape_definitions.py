"""Operations on whole tapes as loops over their entries: native code knows only how to make, measure, read and write
one.

Entries may be tapes themselves; then the loop has the same operation in its body, which is defined in turn.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from weft.ir.primitive import lookup
from weft.ir.types import TapeType, type_of
from weft.ops.reduce import reduce_sum
from weft.ops.repeat import COUNT, repeat
from weft.ops.select import select_n
from weft.ops.shape import broadcast_in_dim
from weft.ops.tape import (
    add_tangents,
    tape_broadcast,
    tape_length,
    tape_new,
    tape_read,
    tape_select,
    tape_sum,
    tape_write,
)
from weft.trace.closed import stage_closed


def entrywise(result: TapeType, tapes: Any, others: Any, function: Callable[..., Any]) -> Any:
    """A tape with `function(entries of the tapes, others)` at each position that one of them has."""
    count = tape_length(tapes[0])
    for tape in tapes[1:]:
        count = lookup("max")(count, tape_length(tape))
    held = [*tapes, *others]
    number = len(tapes)

    def turn(step: Any, *values: Any) -> list[Any]:
        *given, made = values
        entries = [tape_read(t, step) for t in given[:number]]
        return [tape_write(made, step, function(*entries, *given[number:]))]

    body = stage_closed(turn, [COUNT, *map(type_of, held), result], name="tape")
    (made,) = repeat(count, *held, tape_new(element=result.element), jaxpr=body, nconsts=len(held), reverse=False)
    return made


def tape_add(x: Any, y: Any) -> Any:
    """The sum of two tapes."""
    return entrywise(type_of(x), [x, y], [], add_tangents)  # type: ignore[arg-type]


def select(which: Any, *cases: Any) -> Any:
    """For each element of a batch its tape out of several."""

    def choose(*values: Any) -> Any:
        *entries, index = values
        aval: Any = type_of(entries[0])
        if isinstance(aval, TapeType):
            return tape_select(index, *entries)
        rank = len(index.shape)
        if len(aval.shape) > rank:
            index = broadcast_in_dim(index, shape=aval.shape, broadcast_dimensions=tuple(range(rank)))
        return select_n(index, *entries)

    return entrywise(type_of(cases[0]), cases, [which], choose)  # type: ignore[arg-type]


def broadcast(tape: Any, *, size: Any, dim: int) -> Any:
    """Every entry repeated along a new dimension."""

    def repeated(entry: Any) -> Any:
        aval: Any = type_of(entry)
        if isinstance(aval, TapeType):
            return tape_broadcast(entry, size=size, dim=dim)
        shape = (*aval.shape[:dim], size, *aval.shape[dim:])
        kept = tuple(i for i in range(len(shape)) if i != dim)
        return broadcast_in_dim(entry, shape=shape, broadcast_dimensions=kept)

    aval: Any = type_of(tape)
    return entrywise(lookup("tape_broadcast").type(aval, size=size, dim=dim), [tape], [], repeated)


def summed(tape: Any, *, dim: int) -> Any:
    """Every entry summed over a dimension."""

    def total(entry: Any) -> Any:
        return tape_sum(entry, dim=dim) if isinstance(type_of(entry), TapeType) else reduce_sum(entry, axes=(dim,))

    aval: Any = type_of(tape)
    return entrywise(lookup("tape_sum").type(aval, dim=dim), [tape], [], total)


TAPE_DEFINITIONS: dict[str, Callable[..., Any]] = {
    "tape_add": tape_add,
    "tape_select": select,
    "tape_broadcast": broadcast,
    "tape_sum": summed,
}
