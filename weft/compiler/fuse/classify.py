"""What fusion needs to know of one equation: its role, the kind of kernel it would lead, and the space it works in.

Pointwise equations, moves and expansions are "the value at an index": an emitter evaluates them wherever it needs
them. A hero owns the loops of its kernel. Everything else is bare: it stays an equation of the fused program.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from weft.base import dtypes
from weft.base.memo import Memo
from weft.compiler.target.target import ANY, Target
from weft.ir.jaxpr import Equation, Jaxpr
from weft.ir.primitive import Primitive
from weft.ir.types import ArrayType
from weft.ops.callback import Callback
from weft.ops.collectives import Collective
from weft.ops.concatenate import concatenate, split
from weft.ops.contract import dot_general
from weft.ops.convert import bitcast_convert_type
from weft.ops.convolution import conv_general_dilated
from weft.ops.cumulative import Cumulative
from weft.ops.elementwise import Elementwise
from weft.ops.families import Reduction
from weft.ops.gather import gather
from weft.ops.iota import iota
from weft.ops.linalg_cholesky import cholesky
from weft.ops.linalg_lu import linear_solve, lu
from weft.ops.linalg_triangular import MANY, triangular_solve
from weft.ops.pad import pad
from weft.ops.random import random_unwrap, random_wrap, threefry2x32
from weft.ops.reduce_extrema import Where
from weft.ops.reduce_other import reduce
from weft.ops.remat import optimization_barrier
from weft.ops.scatter import Scatter
from weft.ops.scatter_flagged import scatter_flagged
from weft.ops.shape import broadcast_in_dim, reshape, rev, squeeze, tile, transpose
from weft.ops.slicing import dynamic_slice, dynamic_update_slice
from weft.ops.slicing import slice as slice_
from weft.ops.sort import sort, top_k
from weft.ops.window import (
    WindowFold,
    reduce_window,
    select_and_gather_add,
    select_and_scatter,
    select_and_scatter_add,
)

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
# Components of an index that a lookup takes apart.
LONGEST_INDEX = 8
CLOSED_NONE: frozenset[int] = frozenset()
CLOSED_FIRST = frozenset({0})


class Facts:
    """The role of an equation; for heroes, the kind of kernel and the spaces it folds; what may go before it.

    `closed` are the operands that must be in memory (None: all of them). `full` and `folded` are set for reductions:
    the space that is folded, without dimensions of size 1, and which of its dimensions go. `trivial` moves change no
    more than dimensions of size 1; `alias`es change no bytes; `affine` ones read at an index that is affine in the
    result's. `repeats` is how often a contraction reads each element of its operands.
    """

    __slots__ = ("affine", "alias", "closed", "folded", "full", "kind", "repeats", "role", "trivial")

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
    ):
        self.role, self.kind, self.closed = role, kind, closed
        self.full, self.folded = full, folded
        self.trivial, self.alias, self.affine = trivial, alias, affine
        self.repeats = repeats

    def __repr__(self) -> str:
        return f"Facts({self.role}, {self.kind})"


_POINTWISE = Facts(POINTWISE)
_MOVE = Facts(MOVE)
_GUARDED_MOVE = Facts(MOVE, affine=False)
_EXPAND = Facts(EXPAND)
_TRIVIAL_EXPAND = Facts(EXPAND, trivial=True, alias=True)
_TRIVIAL_MOVE = Facts(MOVE, trivial=True, alias=True)
_FOLD_OF_ONE = Facts(MOVE, trivial=True)  # a reduction over dimensions of size 1
_ALIASING_MOVE = Facts(MOVE, alias=True)
_LOOKUP = Facts(LOOKUP, "gather")
_ALIAS = Facts(HERO, "alias", closed=None, alias=True)
_CLOSED_LOOP = Facts(HERO, "loop", closed=None)
_LIBRARY, _CONTROL, _CALLBACK = Facts(LIBRARY), Facts(CONTROL), Facts(CALLBACK)
_BARRIER, _COLLECTIVE = Facts(BARRIER), Facts(COLLECTIVE)
_TRANSPOSE = Facts(HERO, "transpose")
_CONCATENATE = Facts(HERO, "concatenate")
# Whole numbers side by side: the index of a gather or a scatter, which takes them one by one. Nothing else does.
INDEX_VECTOR = Facts(MOVE, affine=False)
_SLICES = Facts(HERO, "slices")
_UPDATE = Facts(HERO, "dynamic_update_slice", closed=CLOSED_FIRST)
_SCATTER = Facts(HERO, "scatter", closed=CLOSED_FIRST)
_CUMULATIVE = Facts(HERO, "cumulative")
_SORT = Facts(HERO, "sort", closed=None)
_CONVOLUTION = Facts(HERO, "convolution", closed=None)
_WINDOW = Facts(HERO, "window", closed=None)
_MATRICES = Facts(HERO, "matrices", closed=None)


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


def _reduction(equation: Equation, target: Target) -> Facts:
    axes = equation.params["dimensions" if equation.primitive is reduce else "axes"]
    full, folded = folded_space(equation.invars[0].aval.shape, axes)  # type: ignore[attr-defined]
    if not folded and equation.primitive is not reduce:
        return _FOLD_OF_ONE
    return Facts(HERO, reduction_kind(len(full), folded), full=full, folded=folded)


def _argmax(equation: Equation, target: Target) -> Facts:
    full, folded = folded_space(equation.invars[0].aval.shape, equation.params["axes"])  # type: ignore[attr-defined]
    return Facts(HERO, "argmax", full=full, folded=folded)


def _broadcast(equation: Equation, target: Target) -> Facts:
    before, after = equation.invars[0].aval.shape, equation.outvars[0].aval.shape  # type: ignore[attr-defined]
    return _TRIVIAL_EXPAND if squeezed(before) == squeezed(after) else _EXPAND


def _reshape(equation: Equation, target: Target) -> Facts:
    before, after = equation.invars[0].aval.shape, equation.outvars[0].aval.shape  # type: ignore[attr-defined]
    if squeezed(before) == squeezed(after):
        return _TRIVIAL_MOVE
    return _ALIASING_MOVE if splits_only(squeezed(before), squeezed(after)) else _ALIAS


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


def _transpose(equation: Equation, target: Target) -> Facts:
    x: Any = equation.invars[0].aval
    order = [p for p in equation.params["permutation"] if x.shape[p] != 1]
    if order == sorted(order):
        return _TRIVIAL_MOVE
    if (
        order[-1] == max(order)
        or size_of(x.shape) * dtypes.storage(x.dtype).itemsize < target.fusion.tiled_transpose_bytes
    ):
        return _MOVE
    return _TRANSPOSE


def _concatenate(equation: Equation, target: Target) -> Facts:
    parts: list[Any] = [a.aval for a in equation.invars]
    last = equation.params["dimension"] == len(parts[0].shape) - 1
    vector = last and len(parts) <= LONGEST_INDEX and all(x.shape[-1] == 1 for x in parts)
    return INDEX_VECTOR if vector and dtypes.kind(parts[0].dtype) in "iu" else _CONCATENATE


def _bitcast(equation: Equation, target: Target) -> Facts:
    same = equation.invars[0].aval.shape == equation.outvars[0].aval.shape  # type: ignore[attr-defined]
    return _POINTWISE if same else _GUARDED_MOVE


def _contraction(equation: Equation, target: Target) -> Facts:
    made = equation.outvars[0].aval.dtype  # type: ignore[attr-defined]
    if made not in target.libraries.own_dtypes and suits_library(equation, target):
        return _LIBRARY
    m, n, _ = _sizes(equation)
    return Facts(HERO, "contraction", repeats=(n, m))


def suits_library(equation: Equation, target: Target) -> bool:
    """Whether a contraction is large enough for a library of the machine, and of numbers that it knows."""
    known = target.libraries
    lhs, rhs, made = (a.aval.dtype for a in (*equation.invars, *equation.outvars))  # type: ignore[attr-defined]
    m, n, k = _sizes(equation)
    return m * n * k >= known.contraction_size and made in known.contraction_dtypes and lhs == rhs == made


def has_either(program: Jaxpr, target: Target) -> bool:
    """Whether a program is one product, which our kernels and a library can compute."""
    (first, *others) = program.eqns
    return first.primitive is dot_general and not others and suits_library(first, target)


def _sizes(equation: Equation) -> tuple[int, int, int]:
    """Rows, columns and terms of one product of matrices."""
    lhs, rhs = (a.aval for a in equation.invars)
    (contracted, _), (batched, _) = equation.params["dimension_numbers"]
    shape: Any = lhs.shape  # type: ignore[attr-defined]
    batch, k = size_of([shape[i] for i in batched]), size_of([shape[i] for i in contracted])
    shared = max(batch * k, 1)
    return size_of(shape) // shared, size_of(rhs.shape) // shared, k  # type: ignore[attr-defined]


def _matrices(equation: Equation, target: Target) -> Facts:
    x: Any = equation.invars[0].aval
    known = all(type(d) is int for a in equation.invars for d in a.aval.shape)  # type: ignore[attr-defined]
    results: list[Any] = [v.aval for v in equation.outvars]
    if not known or x.dtype not in target.libraries.lane_matrix_dtypes or not all(size_of(r.shape) for r in results):
        return _LIBRARY
    *lead, rows, columns = x.shape
    return _MATRICES if size_of(lead) >= MANY and 0 < max(rows, columns) <= target.fusion.lane_matrix else _LIBRARY


def _higher_order(equation: Equation, target: Target) -> Facts:
    return _CONTROL


def constant(facts: Facts) -> Callable[[Equation, Target], Facts]:
    return lambda equation, target: facts


# What an equation is on a machine.
Rule = Callable[[Equation, Target], Facts]

_BY_PRIMITIVE: dict[Any, Rule] = {
    broadcast_in_dim: _broadcast,
    iota: constant(_EXPAND),
    reshape: _reshape,
    squeeze: constant(_TRIVIAL_MOVE),
    rev: constant(_MOVE),
    slice_: constant(_MOVE),
    pad: constant(_GUARDED_MOVE),
    dynamic_slice: constant(_MOVE),
    tile: constant(_CLOSED_LOOP),
    transpose: _transpose,
    concatenate: _concatenate,
    split: constant(_SLICES),
    gather: constant(_LOOKUP),
    bitcast_convert_type: _bitcast,
    threefry2x32: constant(_POINTWISE),
    random_wrap: constant(_GUARDED_MOVE),
    random_unwrap: constant(_GUARDED_MOVE),
    dynamic_update_slice: constant(_UPDATE),
    scatter_flagged: constant(_SCATTER),
    dot_general: _contraction,
    conv_general_dilated: constant(_CONVOLUTION),
    reduce: _reduction,
    **dict.fromkeys((cholesky, linear_solve, lu, triangular_solve), _matrices),
    sort: constant(_SORT),
    top_k: constant(_SORT),
    optimization_barrier: constant(_BARRIER),
    **dict.fromkeys(
        (reduce_window, select_and_gather_add, select_and_scatter, select_and_scatter_add), constant(_WINDOW)
    ),
}

_BY_FAMILY: tuple[tuple[type, Rule], ...] = (
    (Elementwise, constant(_POINTWISE)),
    (Reduction, _reduction),
    (Where, _argmax),
    (Scatter, constant(_SCATTER)),
    (Cumulative, constant(_CUMULATIVE)),
    (WindowFold, constant(_WINDOW)),
    (Callback, constant(_CALLBACK)),
    (Collective, constant(_COLLECTIVE)),
)


def classify(equation: Equation, target: Target) -> Facts:
    """The role of an equation on a machine."""
    if equation.effects:
        return _CALLBACK if not equation.primitive.higher_order else _CONTROL
    rule = _BY_PRIMITIVE.get(equation.primitive)
    if rule is None:
        rule = _BY_PRIMITIVE[equation.primitive] = _rule_of(equation.primitive)
    return rule(equation, target)


def structure(equation: Equation) -> Facts:
    """As `classify`, whatever the machine: for what is counted of an equation, and not chosen."""
    return classify(equation, ANY)


def _rule_of(card: Primitive) -> Rule:
    for family, rule in _BY_FAMILY:
        if isinstance(card, family):
            return rule
    # Matrix factorisations, transforms, tapes, keys and whatever users add without a family.
    return _higher_order if card.higher_order else constant(_LIBRARY)


def leading(operand: ArrayType, result: ArrayType, dimensions: tuple[int, ...], kept: Space) -> bool:
    """Whether a broadcast puts the operand's dimensions, those of size 1 aside, on the leading ones of the result."""
    placed = [dimensions[i] for i, d in enumerate(operand.shape) if d != 1]
    wide = [i for i, d in enumerate(result.shape) if d != 1]
    return placed == wide[: len(placed)] and squeezed(operand.shape) == kept
