"""Elements that stay in the registers of a thread between loops over lanes.

A thread of a group has the same elements in all loops over as many lanes. Loops with few elements per thread are
unrolled, and later loops reuse what an earlier one loaded or stored. A store that a later loop overwrites, and that is
loaded only in between, is removed: so the exponentials of a softmax never leave the registers.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from weft.base.dataclass import dataclass
from weft.compiler.kernel.grid import accesses
from weft.compiler.kernel.ir import Buffer, If, Index, Kernel, Load, Loop, LoopKind, Statement, Store

# Elements per thread up to which a loop is unrolled.
MOST_ELEMENTS = 32

Key = tuple[Any, ...]


def count_rounds(loop: Loop, lanes: int) -> int:
    """Return the number of vectors of `lanes` lanes per thread in an unrolled loop over lanes; 0 if the loop is not
    unrolled."""
    if loop.kind is not LoopKind.LANES or loop.limit is not None or loop.count % loop.width:
        return 0
    rounds = int(loop.count) // loop.width
    return rounds if rounds * lanes <= MOST_ELEMENTS else 0


def element(loop: Loop, buffer: Buffer, index: Index) -> Key:
    """Return a key that is equal for accesses to the same elements by loops over the same lanes."""
    terms = frozenset(("lane" if term is loop.variable else term, factor) for term, factor in index.terms)
    return buffer, index.constant, terms, loop.start, loop.stop, loop.step


@dataclass(frozen=True)
class Forwarded:
    """Removable stores, loads that registers serve, and local buffers that need no memory at all."""

    stores: frozenset[Statement]
    loads: frozenset[Statement]
    local: frozenset[Buffer] = frozenset()


def find_forwarded(kernel: Kernel, lanes: int) -> Forwarded:
    """Find stores that later loops overwrite, and stores to local buffers whose loads are all served by registers,
    for threads with vectors of `lanes` lanes."""
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
    """Yield the statements that every thread of a group executes, and those of loops and branches in them."""
    yield body
    for statement in body:
        if isinstance(statement, If) or (isinstance(statement, Loop) and statement.kind is not LoopKind.LANES):
            yield from _bodies(statement.body)


def _steps(body: Sequence[Statement], lanes: int) -> Iterator[tuple[Loop | None, Statement]]:
    """Yield the statements of a body; those inside an unrolled loop with their loop."""
    for statement in body:
        if isinstance(statement, Loop) and count_rounds(statement, lanes):
            yield from ((statement, inner) for inner in statement.body)
        else:
            yield None, statement


@dataclass(frozen=True)
class Loads:
    """Loads of a stored value up to the end, or up to a store that overwrites it."""

    loads: list[Statement]
    overwritten: bool


def _until_overwritten(loop: Loop, store: Store, later: Sequence[tuple[Loop | None, Statement]]) -> Loads | None:
    """Return the loads of a stored value; None if the store must remain."""
    stored = element(loop, store.buffer, store.index)
    loads: list[Statement] = []
    for where, statement in later:
        if not any(_buffer(s) is store.buffer for s, _ in accesses((statement,))):
            if where is None and isinstance(statement, If | Loop):
                return None  # registers are invalidated there
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
    """Return the buffer of a memory access, or None."""
    return getattr(statement, "buffer", None)


class Registers:
    """Values that a thread holds in registers, by element and round."""

    def __init__(self) -> None:
        self._values: dict[Key, dict[int, Any]] = {}
        # Loop being unrolled, and the index of the thread's vector.
        self.loop: Loop | None = None
        self.round = 0

    def find(self, buffer: Buffer, index: Index) -> Any:
        """Return the lanes of an element if they are in registers."""
        if self.loop is None:
            return None
        return self._values.get(element(self.loop, buffer, index), {}).get(self.round)

    def put(self, buffer: Buffer, index: Index, value: Any) -> None:
        """Record the lanes of an element."""
        if self.loop is not None:
            self._values.setdefault(element(self.loop, buffer, index), {})[self.round] = value

    def forget(self, buffer: Buffer | None = None, but: Index | None = None) -> None:
        """Invalidate a buffer that was written, except one element (`but`); without a buffer, everything."""
        spared = None if but is None or self.loop is None or buffer is None else element(self.loop, buffer, but)
        if buffer is None:
            self._values.clear()
        for key in [key for key in self._values if key[0] is buffer and key != spared]:
            del self._values[key]
