"""Properties of an equation for fusion: its role, the kind of kernel it leads, and its iteration space.

Pointwise equations, data movement and expansions are values at an index: an emitter computes them where their consumer
needs them. A hero owns the loops of its kernel. All other equations are unfused: they stay equations of the fused
jaxpr. The rule `fusion` of a primitive returns these properties.
"""

from __future__ import annotations

from typing import Any, Protocol

from weft.base.memo import Memo
from weft.indexing.guards import current

Space = tuple[Any, ...]

# Computed at an index of the result, from:
POINTWISE = "pointwise"  # the operands at the same index (or scalars)
EXPAND = "expand"  # a smaller operand (broadcast), or nothing (iota): free to recompute
MOVE = "move"  # one operand at another index
LOOKUP = "lookup"  # an operand at an index known only at run time (gather)
# Owns the loops of a kernel:
HERO = "hero"
# Not fused:
LIBRARY = "library"
CONTROL = "control"
CALLBACK = "callback"
BARRIER = "barrier"
COLLECTIVE = "collective"
UNFUSED_ROLES = frozenset({LIBRARY, CONTROL, CALLBACK, BARRIER, COLLECTIVE})

# Estimated size of a symbolic dimension.
SYMBOLIC_SIZE = 1024
NONE_MATERIALIZED: frozenset[int] = frozenset()
FIRST_MATERIALIZED = frozenset({0})


class Properties:
    """Role of an equation in fusion, and for heroes the kind of kernel and the reduced space.

    `materialized` are the operands that must be in memory (None: all of them). `full` and `reduced` are set for
    reductions: the iteration space without dimensions of size 1, and which of its dimensions are reduced. Data movement
    is `trivial` if only dimensions of size 1 change, an `alias` if no bytes change, `affine` if the index it reads at
    is affine in the index of the result. `repeats` is how often a contraction reads each element of its operands,
    `statements` an estimate of the code size of one element. A `piece` is a slice of its operand. `at_index` are the
    properties of a hero where others read it at an index, if they can.
    """

    __slots__ = (
        "affine",
        "alias",
        "at_index",
        "full",
        "kind",
        "materialized",
        "piece",
        "reduced",
        "repeats",
        "role",
        "statements",
        "trivial",
    )

    def __init__(
        self,
        role: str,
        kind: str = "loop",
        *,
        materialized: frozenset[int] | None = NONE_MATERIALIZED,
        full: Space | None = None,
        reduced: tuple[int, ...] | None = None,
        trivial: bool = False,
        alias: bool = False,
        affine: bool = True,
        repeats: tuple[int, ...] | None = None,
        statements: int = 1,
        piece: bool = False,
        at_index: Properties | None = None,
    ):
        self.role, self.kind, self.materialized = role, kind, materialized
        self.full, self.reduced = full, reduced
        self.trivial, self.alias, self.affine = trivial, alias, affine
        self.repeats, self.statements, self.piece = repeats, statements, piece
        self.at_index = at_index

    def __repr__(self) -> str:
        return f"Properties({self.role}, {self.kind})"


class Machine(Protocol):
    """Properties of the target that fusion rules read; the compiler's `Target` implements it."""

    @property
    def fusion(self) -> Any:
        """Limits of fusion sizes, and thresholds from which alternatives pay off."""
        ...

    @property
    def libraries(self) -> Any:
        """Operations that libraries implement."""
        ...

    @property
    def operations(self) -> frozenset[str]:
        """Elementwise operations that kernels implement by name."""
        ...


AT_SAME_INDEX = Properties(POINTWISE)
AT_AFFINE_INDEX = Properties(MOVE)
CUT_OUT = Properties(MOVE, piece=True)
AT_OTHER_INDEX = Properties(MOVE, affine=False)
PADDED = Properties(MOVE, affine=False, statements=6)  # conditions for each element
REPEATED = Properties(EXPAND)
EXPANDED_BY_ONES = Properties(EXPAND, trivial=True, alias=True)
MOVED_ONES = Properties(MOVE, trivial=True, alias=True)
REDUCED_ONES = Properties(MOVE, trivial=True)  # a reduction over dimensions of size 1
SPLIT_DIMENSIONS = Properties(MOVE, alias=True)
# The index vectors of a gather or a scatter, the only users, which read their components one by one.
INDEX_VECTOR = Properties(MOVE, affine=False)
LOOKED_UP = Properties(LOOKUP, "gather")
CONCATENATED = Properties(HERO, "concatenate", at_index=PADDED)
SAME_BYTES = Properties(HERO, "alias", materialized=None, alias=True)
UNFUSED, CONTROLS, CALLS_BACK = Properties(LIBRARY), Properties(CONTROL), Properties(CALLBACK)
FENCED, COMMUNICATES = Properties(BARRIER), Properties(COLLECTIVE)


def hero(kind: str, materialized: frozenset[int] | None = NONE_MATERIALIZED) -> Properties:
    """Return the properties of an equation that owns a kernel's loops and may have operands computed in it, except the
    `materialized` ones."""
    return Properties(HERO, kind, materialized=materialized)


def reduction(kind: str | None, shape: Any, axes: Any) -> Properties:
    """Return the properties of a reduction of `shape` over `axes`, of this kind or of the kind that the axes imply."""
    full, reduced = reduction_space(shape, axes)
    return Properties(HERO, kind or reduction_kind(len(full), reduced), full=full, reduced=reduced)


def element_count(shape: Any) -> int:
    """Return the number of elements of a shape, with an estimate for symbolic dimensions."""
    size = 1
    for d in shape:
        size *= d if type(d) is int else SYMBOLIC_SIZE
    return size


_measures: Memo[Any, tuple[Space, int]] = Memo(10_000)


def measure(shape: Any) -> tuple[Space, int]:
    """Return a shape without its dimensions of size 1, and its number of elements.

    Results are memoized, except while guards are recorded: then they may hold for some sizes only.
    """
    if current.answers is not None:
        return squeeze_shape(shape), element_count(shape)
    known = _measures.get(shape)
    return known if known is not None else _measures.keep(shape, (squeeze_shape(shape), element_count(shape)))


def squeeze_shape(shape: Any) -> Space:
    """Return a shape without its dimensions of size 1, as loops see it."""
    return tuple([d for d in shape if d != 1])


def reduction_space(shape: Any, axes: Any) -> tuple[Space, tuple[int, ...]]:
    """Return the iteration space of a reduction without dimensions of size 1, and which of its dimensions are
    reduced."""
    full: list[Any] = []
    reduced: list[int] = []
    for axis, d in enumerate(shape):
        if d == 1:
            continue
        if axis in axes:
            reduced.append(len(full))
        full.append(d)
    return tuple(full), tuple(reduced)


def reduction_kind(rank: int, reduced: tuple[int, ...]) -> str:
    """Return how a reduction reads memory: "all" dimensions are reduced, the trailing ones ("row"), or others
    ("column")."""
    if len(reduced) == rank:
        return "all"
    return "row" if reduced == tuple(range(rank - len(reduced), rank)) else "column"


def splits_only(before: Space, after: Space) -> bool:
    """Return whether each dimension of `before` is one of `after` or the product of adjacent ones; then its index is
    affine in theirs."""
    position = 0
    for size in before:
        product: Any = 1
        while product != size:
            if position == len(after):
                return False
            product = product * after[position]
            position += 1
            if type(product) is int and type(size) is int and (product > size or product == 0 != size):
                return False
    return position == len(after)
