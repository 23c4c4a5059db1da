"""What fusion needs to know of one equation: its role, the kind of kernel it would lead, and the space it works in.

Pointwise equations, moves and expansions are "the value at an index": an emitter evaluates them wherever it needs
them. A hero owns the loops of its kernel. Everything else is unfused: it stays an equation of the fused program. A card
says which of these it is (`fusion`), and what it costs.
"""

from __future__ import annotations

from typing import Any, Protocol

from weft.base.memo import Memo

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
BARE = frozenset({LIBRARY, CONTROL, CALLBACK, BARRIER, COLLECTIVE})

# A dimension whose size only the running program knows counts as this many elements.
SYMBOLIC_SIZE = 1024
CLOSED_NONE: frozenset[int] = frozenset()
CLOSED_FIRST = frozenset({0})


class Properties:
    """The role of an equation; for heroes, the kind of kernel and the spaces it folds; what may go before it.

    `closed` are the operands that must be in memory (None: all of them). `full` and `folded` are set for reductions:
    the space that is folded, without dimensions of size 1, and which of its dimensions go. `trivial` moves change no
    more than dimensions of size 1; `alias`es change no bytes; `affine` ones read at an index that is affine in the
    result's. `repeats` is how often a contraction reads each element of its operands, `statements`
    about how much code computes one element. A `piece` is cut out of its operand.
    """

    __slots__ = (
        "affine",
        "alias",
        "closed",
        "folded",
        "full",
        "kind",
        "piece",
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
        closed: frozenset[int] | None = CLOSED_NONE,
        full: Space | None = None,
        folded: tuple[int, ...] | None = None,
        trivial: bool = False,
        alias: bool = False,
        affine: bool = True,
        repeats: tuple[int, ...] | None = None,
        statements: int = 1,
        piece: bool = False,
    ):
        self.role, self.kind, self.closed = role, kind, closed
        self.full, self.folded = full, folded
        self.trivial, self.alias, self.affine = trivial, alias, affine
        self.repeats, self.statements, self.piece = repeats, statements, piece

    def __repr__(self) -> str:
        return f"Properties({self.role}, {self.kind})"


class Machine(Protocol):
    """What cards ask about the machine that code is made for; the compiler's `Target` is one."""

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
SAME_BYTES = Properties(HERO, "alias", closed=None, alias=True)
UNFUSED, CONTROLS, CALLS_BACK = Properties(LIBRARY), Properties(CONTROL), Properties(CALLBACK)
FENCED, COMMUNICATES = Properties(BARRIER), Properties(COLLECTIVE)


def hero(kind: str, closed: frozenset[int] | None = CLOSED_NONE) -> Properties:
    """The owner of a kernel's loops, all of whose operands that are not `closed` may be computed in it."""
    return Properties(HERO, kind, closed=closed)


def reduction(kind: str | None, shape: Any, axes: Any) -> Properties:
    """The owner of loops over a shape that reduces axes of it; of a kind, or of the one that the axes say."""
    full, folded = folded_space(shape, axes)
    return Properties(HERO, kind or reduction_kind(len(full), folded), full=full, folded=folded)


def size_of(shape: Any) -> int:
    """The number of elements, with an estimate for symbolic dimensions."""
    size = 1
    for d in shape:
        size *= d if type(d) is int else SYMBOLIC_SIZE
    return size


_measures: Memo[Any, tuple[Space, int]] = Memo(10_000)


def measure(shape: Any) -> tuple[Space, int]:
    """A shape without its dimensions of size 1, and its number of elements; remembered."""
    known = _measures.get(shape)
    return known if known is not None else _measures.keep(shape, (squeezed(shape), size_of(shape)))


def squeezed(shape: Any) -> Space:
    """A shape without its dimensions of size 1: what loops see of it."""
    return tuple([d for d in shape if d != 1])


def folded_space(shape: Any, axes: Any) -> tuple[Space, tuple[int, ...]]:
    """The space a reduction folds, without dimensions of size 1, and which dimensions of that go."""
    full: list[Any] = []
    folded: list[int] = []
    for axis, d in enumerate(shape):
        if d == 1:
            continue
        if axis in axes:
            folded.append(len(full))
        full.append(d)
    return tuple(full), tuple(folded)


def reduction_kind(rank: int, folded: tuple[int, ...]) -> str:
    """How a reduction meets memory: it folds all, the trailing dimensions, or others."""
    if len(folded) == rank:
        return "all"
    return "row" if folded == tuple(range(rank - len(folded), rank)) else "column"


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
