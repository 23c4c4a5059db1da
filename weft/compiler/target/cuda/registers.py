"""Elements that stay in the registers of a thread from one loop over lanes to the next.

A thread of a group has the same elements in all loops over as many lanes. If these are few, their loops are unrolled,
and what one of them has loaded or stored the next ones need not load. A store that a later loop overwrites, and that is
loaded only in between, is none: so the exponentials of a softmax never leave the registers.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from weft.compiler.kernel.grid import accesses
from weft.compiler.kernel.ir import Buffer, If, Index, Kernel, Load, Loop, LoopKind, Statement, Store

# Vectors of a thread up to which a loop is unrolled.
MOST_ROUNDS = 8

Key = tuple[Any, ...]


def rounds_of(loop: Loop) -> int:
    """How many vectors each thread has in a loop over lanes that is unrolled; 0 if it is not."""
    if loop.kind is not LoopKind.LANES or loop.limit is not None or loop.count % loop.width:
        return 0
    rounds = int(loop.count) // loop.width
    return rounds if rounds <= MOST_ROUNDS else 0


def element(loop: Loop, buffer: Buffer, index: Index) -> Key:
    """What is equal for accesses to the same elements by loops over the same lanes."""
    terms = frozenset(("lane" if term is loop.variable else term, factor) for term, factor in index.terms)
    return buffer, index.constant, terms, loop.start, loop.stop, loop.step


@dataclass(frozen=True)
class Forwarded:
    """Stores that need not be done, and loads that need no memory because of it."""

    stores: frozenset[Statement]
    loads: frozenset[Statement]


def forwarded(kernel: Kernel) -> Forwarded:
    """The stores that later loops overwrite."""
    stores: set[Statement] = set()
    loads: set[Statement] = set()
    for body in _bodies(kernel.body):
        steps = list(_steps(body))
        for n, (loop, statement) in enumerate(steps):
            if loop is not None and isinstance(statement, Store) and statement.condition is None:
                between = _until_overwritten(loop, statement, steps[n + 1 :])
                if between is not None:
                    stores.add(statement)
                    loads.update(between)
    return Forwarded(frozenset(stores), frozenset(loads))


def _bodies(body: Sequence[Statement]) -> Iterator[Sequence[Statement]]:
    """The statements that every thread of a group does, and those of loops and branches in them."""
    yield body
    for statement in body:
        if isinstance(statement, If) or (isinstance(statement, Loop) and statement.kind is not LoopKind.LANES):
            yield from _bodies(statement.body)


def _steps(body: Sequence[Statement]) -> Iterator[tuple[Loop | None, Statement]]:
    """The statements of a body, of unrolled loops those in them, with the loop."""
    for statement in body:
        if isinstance(statement, Loop) and rounds_of(statement):
            yield from ((statement, inner) for inner in statement.body)
        else:
            yield None, statement


def _until_overwritten(
    loop: Loop, store: Store, later: Sequence[tuple[Loop | None, Statement]]
) -> list[Statement] | None:
    """The loads of what is stored, up to the store that overwrites it; None if it must be stored."""
    stored = element(loop, store.buffer, store.index)
    loads: list[Statement] = []
    for where, statement in later:
        if not any(_buffer(s) is store.buffer for s, _ in accesses((statement,))):
            if where is None and isinstance(statement, If | Loop):
                return None  # what registers hold is forgotten there
            continue
        if where is None or not isinstance(statement, Load | Store) or statement.condition is not None:
            return None
        if element(where, statement.buffer, statement.index) != stored:
            return None
        if isinstance(statement, Store):
            return loads if where is not loop else None
        loads.append(statement)
    return None


def _buffer(statement: Any) -> Buffer | None:
    """The buffer of a statement that touches one."""
    return getattr(statement, "buffer", None)


class Registers:
    """What a thread has in registers, by element and round."""

    def __init__(self) -> None:
        self._values: dict[Key, dict[int, Any]] = {}
        # The loop that is being unrolled, and the vector of the thread.
        self.loop: Loop | None = None
        self.round = 0

    def find(self, buffer: Buffer, index: Index) -> Any:
        """The lanes of an element, if they are in registers."""
        if self.loop is None:
            return None
        return self._values.get(element(self.loop, buffer, index), {}).get(self.round)

    def put(self, buffer: Buffer, index: Index, value: Any) -> None:
        """Remember the lanes of an element."""
        if self.loop is not None:
            self._values.setdefault(element(self.loop, buffer, index), {})[self.round] = value

    def forget(self, buffer: Buffer | None = None, but: Index | None = None) -> None:
        """Memory of a buffer was written, perhaps all but one element's; or of all."""
        spared = None if but is None or self.loop is None or buffer is None else element(self.loop, buffer, but)
        if buffer is None:
            self._values.clear()
        for key in [key for key in self._values if key[0] is buffer and key != spared]:
            del self._values[key]
