"""Group strided loads or stores that together cover contiguous memory.

Columns of a matrix with three of them are read as `x[3*i]`, `x[3*i + 1]`, `x[3*i + 2]`. Each alone would be a gather,
with one memory access per lane. Together they are three contiguous vectors whose lanes are permuted in registers. A
group of loads is read at the first load, and a group of stores is written at the last store.

Buffers that share memory (a result that overwrites an operand) need no special care: a kernel reads the old values of
an operand, so reading earlier and writing later changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from weft.base import dtypes
from weft.base.dataclass import dataclass
from weft.compiler.kernel.ir import (
    Buffer,
    Compute,
    Constant,
    Index,
    Last,
    Load,
    Position,
    Shift,
    Statement,
    Store,
    Variable,
)
from weft.indexing.expression import Expression

# Maximum stride of lanes, in real elements (a complex one is two): each vector costs a permutation for every other one
# of its group. The second holds if less than half of the elements are used, because most of the work is then wasted.
WIDEST, WIDEST_SPARSE = 8, 4


@dataclass(frozen=True)
class InterleavedGroup:
    """Accesses to one buffer whose lanes are `stride` elements apart.

    `members` are in the order of the block, each `offsets` elements after the first element of the group, which is at
    `index`.
    """

    buffer: Buffer
    index: Index
    stride: int
    members: tuple[Any, ...]
    offsets: tuple[int, ...]


def groups(
    body: Iterable[Statement], lanes: Variable, step: int, uniform: Callable[[Any], bool]
) -> dict[Any, InterleavedGroup]:
    """Return the groups of a block, by each load and store in one. `uniform` tells whether a term is the same in all
    lanes and known before the block.
    """
    found: dict[Any, InterleavedGroup] = {}
    for run in _runs(body):
        if not any(1 < _stride(access, lanes) * step <= WIDEST for access in run):
            continue
        pending: dict[Any, list[Any]] = {}
        for access in run:
            buffer, stores, terms = access.buffer, isinstance(access, Store), access.index.terms
            stride = _stride(access, lanes) * step
            regular = access.condition is None and all(term is lanes or uniform(term) for term, _ in terms)
            mine = (stores, buffer, stride, frozenset(terms)) if regular and 1 < stride <= WIDEST else None
            # Stores are not reordered with other accesses to the same buffer.
            ended = [key for key in pending if key[1] is buffer and key != mine and (stores or key[0])]
            for key in ended:
                found.update(_split_groups(pending.pop(key), key[2]))
            if mine is not None:
                pending.setdefault(mine, []).append(access)
        for key, accesses in pending.items():
            found.update(_split_groups(accesses, key[2]))
    return found


def _stride(access: Load | Store, lanes: Variable) -> int:
    """Return the distance between lanes, or 0 if that, or the first element, is known only at run time."""
    stride, first = access.index.coefficient(lanes), access.index.constant
    return 0 if isinstance(stride, Expression) or isinstance(first, Expression) else stride


def _runs(body: Iterable[Statement]) -> Iterable[list[Any]]:
    """Iterate over maximal runs of loads and stores with only computations between them."""
    run: list[Any] = []
    for statement in body:
        if isinstance(statement, Load | Store):
            run.append(statement)
        elif not isinstance(statement, Compute | Constant | Position | Shift | Last):
            yield run
            run = []
    yield run


def _split_groups(accesses: Sequence[Any], stride: int) -> Iterable[tuple[Any, InterleavedGroup]]:
    """Split accesses that differ by constants into groups that span at most the stride of lanes."""
    left = sorted(accesses, key=lambda a: a.index.constant)
    while left:
        first = left[0].index
        near = [a for a in left if a.index.constant - first.constant < stride]
        left = left[len(near) :]
        offsets = {a: a.index.constant - first.constant for a in near}
        distinct = len(set(offsets.values()))
        stores = isinstance(near[0], Store)
        if stores and (distinct < stride or len(near) > distinct):
            continue
        width = 2 * stride if dtypes.kind(near[0].buffer.dtype) == "c" else stride
        if width > (WIDEST if 2 * distinct >= stride else WIDEST_SPARSE):
            continue
        members = tuple(a for a in accesses if a in offsets)
        group = InterleavedGroup(near[0].buffer, first, stride, members, tuple(offsets[a] for a in members))
        yield from ((a, group) for a in members)
