"""Elements that stay in the registers of a thread from one loop over lanes to the next.

A thread of a group has the same elements in all loops over as many lanes. If these are few, their loops are unrolled,
and what one of them has loaded or stored the next ones need not load. A store that a later loop overwrites, and that is
loaded only in between, is none: so the exponentials of a softmax never leave the registers.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from weft.base.dataclass import dataclass
from weft.compiler.kernel.grid import accesses
from weft.compiler.kernel.ir import Buffer, If, Index, Kernel, Load, Loop, LoopKind, Statement, Store

# Elements of a thread up to which a loop is unrolled.
MOST_ELEMENTS = 32

Key = tuple[Any, ...]


def rounds_of(loop: Loop, lanes: int) -> int:
    """How many vectors each thread has, of so many lanes, in a loop over lanes that is unrolled; 0 if it is not."""
    if loop.kind is not LoopKind.LANES or loop.limit is not None or loop.count % loop.width:
        return 0
    rounds = int(loop.count) // loop.width
    return rounds if rounds * lanes <= MOST_ELEMENTS else 0


def element(loop: Loop, buffer: Buffer, index: Index) -> Key:
    """What is equal for accesses to the same elements by loops over the same lanes."""
    terms = frozenset(("lane" if term is loop.variable else term, factor) for term, factor in index.terms)
    return buffer, index.constant, terms, loop.start, loop.stop, loop.step


@dataclass(frozen=True)
class Forwarded:
    """Stores that need not be done, and loads that need no memory because of it. Local buffers that nothing else
    accesses need no memory at all."""

    stores: frozenset[Statement]
    loads: frozenset[Statement]
    local: frozenset[Buffer] = frozenset()


def forwarded(kernel: Kernel, lanes: int) -> Forwarded:
    """The stores that later loops overwrite, and those to local buffers that nothing loads but what has them in
    registers. Threads have vectors of so many lanes."""
    stores: set[Statement] = set()
    loads: set[Statement] = set()
    last: dict[Statement, list[Statement]] = {}
    for body in _bodies(kernel.body):
        steps = list(_steps(body, lanes))
        for n, (loop, statement) in enumerate(steps):
            if loop is not None and isinstance(statement, Store) and statement.condition is None:
                between = _until_overwritten(loop, statement, steps[n + 1 :])
                if between is not None and between.overwritten:
                    stores.add(statement)
                    loads.update(between.loads)
                elif between is not None:
                    last[statement] = between.loads
    local = set()
    for buffer in kernel.local:
        touching = {s for s, _ in accesses(kernel.body) if _buffer(s) is buffer}
        ends = {s: found for s, found in last.items() if _buffer(s) is buffer}
        served = {load for found in ends.values() for load in found}
        if touching <= stores | loads | served | ends.keys():
            local.add(buffer)
            stores |= ends.keys()
            loads |= served
    return Forwarded(frozenset(stores), frozenset(loads), frozenset(local))


def _bodies(body: Sequence[Statement]) -> Iterator[Sequence[Statement]]:
    """The statements that every thread of a group does, and those of loops and branches in them."""
    yield body
    for statement in body:
        if isinstance(statement, If) or (isinstance(statement, Loop) and statement.kind is not LoopKind.LANES):
            yield from _bodies(statement.body)


def _steps(body: Sequence[Statement], lanes: int) -> Iterator[tuple[Loop | None, Statement]]:
    """The statements of a body, of unrolled loops those in them, with the loop."""
    for statement in body:
        if isinstance(statement, Loop) and rounds_of(statement, lanes):
            yield from ((statement, inner) for inner in statement.body)
        else:
            yield None, statement


@dataclass(frozen=True)
class Loads:
    """The loads of what is stored, up to the end or to a store that overwrites it."""

    loads: list[Statement]
    overwritten: bool


def _until_overwritten(loop: Loop, store: Store, later: Sequence[tuple[Loop | None, Statement]]) -> Loads | None:
    """The loads of what is stored; None if it must be stored."""
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
            return Loads(loads, True) if where is not loop else None
        loads.append(statement)
    return Loads(loads, False)


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
