"""What fusion needs to know of one equation: its role, the kind of kernel it would lead, and the space it works in.

Pointwise equations, data movement and expansions are "the value at an index": an emitter evaluates them wherever it
needs them. A hero owns the loops of its kernel. Everything else is unfused: it stays an equation of the fused jaxpr. A
card says which of these it is (`fusion`), and what it costs.
"""

from __future__ import annotations

from typing import Any, Protocol

from weft.base.memo import Memo
from weft.indexing.guards import current

Space = tuple[Any, ...]

# The value at an index:
POINTWISE = "pointwise"  # the operands at the same index (or scalars)
EXPAND = "expand"  # a smaller operand repeated, or a count: costs nothing to compute again
MOVE = "move"  # one operand at another index
LOOKUP = "lookup"  # a gather: an index that is only known at run time
# The owner of a kernel's loops:
HERO = "hero"
# Equations that stay as they are:
LIBRARY = "library"
CONTROL = "control"
CALLBACK = "callback"
BARRIER = "barrier"
COLLECTIVE = "collective"
UNFUSED_ROLES = frozenset({LIBRARY, CONTROL, CALLBACK, BARRIER, COLLECTIVE})

# A dimension whose size only the running program knows counts as this many elements.
SYMBOLIC_SIZE = 1024
NONE_MATERIALIZED: frozenset[int] = frozenset()
FIRST_MATERIALIZED = frozenset({0})


class Properties:
    """The role of an equation; for heroes, the kind of kernel and the space that is reduced; what may be fused into it.

    `materialized` are the operands that must be in memory (None: all of them). `full` and `reduced` are set for
    reductions: the space that is reduced, without dimensions of size 1, and which of its dimensions are. Data movement
    is `trivial` if only dimensions of size 1 change, an `alias` if no bytes change, `affine` if the index it reads at
    is affine in that of the result. `repeats` is how often a contraction reads each element of its operands,
    `statements` about how much code computes one element. A `piece` is cut out of its operand.
    """

    __slots__ = (
        "affine",
        "alias",
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
    ):
        self.role, self.kind, self.materialized = role, kind, materialized
        self.full, self.reduced = full, reduced
        self.trivial, self.alias, self.affine = trivial, alias, affine
        self.repeats, self.statements, self.piece = repeats, statements, piece

    def __repr__(self) -> str:
        return f"Properties({self.role}, {self.kind})"


class Machine(Protocol):
    """What cards ask about the machine that is compiled for; the compiler's `Target` is one."""

    @property
    def fusion(self) -> Any:
        """How large fusions may become, and from which sizes on something pays."""
        ...

    @property
    def libraries(self) -> Any:
        """Which operations libraries serve."""
        ...

    @property
    def operations(self) -> frozenset[str]:
        """The elementwise operations that kernels know by name."""
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
# Integers side by side: the index of a gather or a scatter, which takes them one by one. Nothing else does.
INDEX_VECTOR = Properties(MOVE, affine=False)
LOOKED_UP = Properties(LOOKUP, "gather")
SAME_BYTES = Properties(HERO, "alias", materialized=None, alias=True)
UNFUSED, CONTROLS, CALLS_BACK = Properties(LIBRARY), Properties(CONTROL), Properties(CALLBACK)
FENCED, COMMUNICATES = Properties(BARRIER), Properties(COLLECTIVE)


def hero(kind: str, materialized: frozenset[int] | None = NONE_MATERIALIZED) -> Properties:
    """The owner of a kernel's loops. Operands that are not `materialized` may be computed in it."""
    return Properties(HERO, kind, materialized=materialized)


def reduction(kind: str | None, shape: Any, axes: Any) -> Properties:
    """The owner of loops over a shape that reduces axes of it; of a kind, or of the one that the axes say."""
    full, reduced = reduced_space(shape, axes)
    return Properties(HERO, kind or reduction_kind(len(full), reduced), full=full, reduced=reduced)


def size_of(shape: Any) -> int:
    """The number of elements, with an estimate for symbolic dimensions."""
    size = 1
    for d in shape:
        size *= d if type(d) is int else SYMBOLIC_SIZE
    return size


_measures: Memo[Any, tuple[Space, int]] = Memo(10_000)


def measure(shape: Any) -> tuple[Space, int]:
    """A shape without its dimensions of size 1, and its number of elements; remembered, but for answers that hold for
    some sizes only."""
    if current.answers is not None:
        return squeezed(shape), size_of(shape)
    known = _measures.get(shape)
    return known if known is not None else _measures.keep(shape, (squeezed(shape), size_of(shape)))


def squeezed(shape: Any) -> Space:
    """A shape without its dimensions of size 1: what loops see of it."""
    return tuple([d for d in shape if d != 1])


def reduced_space(shape: Any, axes: Any) -> tuple[Space, tuple[int, ...]]:
    """The space that is reduced, without dimensions of size 1, and which of its dimensions are."""
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
    """How a reduction reads memory: it reduces all dimensions, the trailing ones, or others."""
    if len(reduced) == rank:
        return "all"
    return "row" if reduced == tuple(range(rank - len(reduced), rank)) else "column"


def splits_only(before: Space, after: Space) -> bool:
    """Whether each dimension before is one after or a run of them: then its index is affine in the new ones."""
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
