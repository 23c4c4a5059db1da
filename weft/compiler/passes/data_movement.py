"""Rules about data movement, part of canonicalize and simplify: remove operations that do nothing, and merge pairs.

The normal form: no squeeze; a broadcast that only inserts dimensions of size 1, and a transpose of such dimensions
only, is a reshape; the operand of a broadcast has no dimensions of size 1; slices have strides only if they skip
elements.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from weft.compiler.patterns import operands, operation
from weft.compiler.rewrite import Match, Rules, rule
from weft.ir.jaxpr import Atom, Equation, Literal
from weft.primitives.families import Indexing, inverse_permutation

x, y, s = operands("x y s")
broadcast, reshape, transpose = operation("broadcast_in_dim"), operation("reshape"), operation("transpose")
slice_, pad, rev, concatenate = operation("slice"), operation("pad"), operation("rev"), operation("concatenate")


def get_shape(atom: Atom) -> Any:
    """Return the shape of an operand."""
    return atom.aval.shape  # type: ignore[attr-defined]


def is_static(shape: Sequence[Any]) -> bool:
    """Return whether all dimensions are known integers."""
    return all(type(d) is int for d in shape)


def without_ones(shape: Sequence[Any]) -> tuple[Any, ...]:
    """Drop dimensions of size 1."""
    return tuple(d for d in shape if d != 1)


# ----------------------------------------------------------------------------------------------------------- reshaping


@rule(operation("squeeze")(x))
def squeeze_is_reshape(m: Match, x: Atom) -> Any:
    return m.reshape(x, m.shape)


@rule(reshape(x))
def reshape_to_same(m: Match, x: Atom) -> Any:
    return x if get_shape(x) == m.shape else None


@rule(reshape(reshape(x)))
def merge_reshapes(m: Match, x: Atom) -> Any:
    return m.reshape(x, m.shape)


# --------------------------------------------------------------------------------------------------------- transposing


@rule(transpose(x))
def transpose_of_nothing(m: Match, x: Atom) -> Any:
    """Only if the axes of more than one element keep their order, so that the memory stays as it is."""
    shape = get_shape(x)
    larger = [p for p in m.params["permutation"] if shape[p] != 1]
    return m.reshape(x, m.shape) if larger == sorted(larger) else None


@rule(transpose(transpose(x).named("inner")))
def merge_transposes(m: Match, x: Atom, inner: Equation) -> Any:
    order = tuple(inner.params["permutation"][p] for p in m.params["permutation"])
    return m.make("transpose", x, permutation=order)


@rule(transpose(broadcast(x).named("inner")))
def transpose_before_broadcast(m: Match, x: Atom, inner: Equation) -> Any:
    back = inverse_permutation(m.params["permutation"])
    positions = [back[d] for d in inner.params["broadcast_dimensions"]]
    order = tuple(sorted(range(len(positions)), key=positions.__getitem__))
    transposed = x if order == tuple(range(len(order))) else m.make("transpose", x, permutation=order)
    return m.make("broadcast_in_dim", transposed, shape=m.shape, broadcast_dimensions=tuple(sorted(positions)))


# -------------------------------------------------------------------------------------------------------- broadcasting


@rule(broadcast(x))
def broadcast_of_nothing(m: Match, x: Atom) -> Any:
    """Only if all new dimensions have size 1, so that nothing is repeated. A broadcast literal stays one."""
    if without_ones(get_shape(x)) != without_ones(m.shape) or (type(x) is Literal and m.shape):
        return None
    return m.reshape(x, m.shape)


@rule(broadcast(x))
def broadcast_without_ones(m: Match, x: Atom) -> Any:
    shape = get_shape(x)
    if 1 not in shape:
        return None
    dimensions = tuple(d for n, d in zip(shape, m.params["broadcast_dimensions"], strict=True) if n != 1)
    return m.make("broadcast_in_dim", m.reshape(x, without_ones(shape)), shape=m.shape, broadcast_dimensions=dimensions)


@rule(broadcast(broadcast(x).named("inner")))
def merge_broadcasts(m: Match, x: Atom, inner: Equation) -> Any:
    outer = m.params["broadcast_dimensions"]
    placed = tuple(outer[d] for d in inner.params["broadcast_dimensions"])
    return m.make("broadcast_in_dim", x, shape=m.shape, broadcast_dimensions=placed)


@rule(operation(Indexing)(broadcast(s)))
def index_repeated_scalar(m: Match, s: Atom) -> Any:
    """Indexing copies of a scalar gives copies of it."""
    return None if get_shape(s) or not m.shape else m.broadcast(s, m.shape)


@rule(reshape(broadcast(s)))
def reshape_repeated_scalar(m: Match, s: Atom) -> Any:
    """Only if the result is a scalar: one copy of a scalar is the scalar."""
    return None if get_shape(s) or m.shape else s


# ------------------------------------------------------------------------------------------------------------- slicing


@rule(slice_(x))
def slice_of_everything(m: Match, x: Atom) -> Any:
    return x if get_shape(x) == m.shape else None


@rule(slice_(x))
def slice_without_strides(m: Match, x: Atom) -> Any:
    """Leave out strides of 1, and those over at most one element."""
    strides = m.params["strides"]
    if strides is None or not is_static(m.shape):
        return None
    if any(step != 1 and size > 1 for step, size in zip(strides, m.shape, strict=True)):
        return None
    starts = m.params["start_indices"]
    limits = tuple(start + size for start, size in zip(starts, m.shape, strict=True))
    return m.make("slice", x, start_indices=starts, limit_indices=limits, strides=None)


@rule(slice_(slice_(x).named("inner")))
def merge_slices(m: Match, x: Atom, inner: Equation) -> Any:
    if not is_static(get_shape(x)):
        return None
    ones = (1,) * len(m.shape)
    starts, limits, strides = [], [], []
    for size, first, step, second, inner_step in zip(
        m.shape,
        m.params["start_indices"],
        m.params["strides"] or ones,
        inner.params["start_indices"],
        inner.params["strides"] or ones,
        strict=True,
    ):
        start, stride = (second + first * inner_step, step * inner_step) if size else (0, 1)
        starts.append(start)
        limits.append(start + (size - 1) * stride + 1 if size else start)
        strides.append(stride)
    steps = tuple(strides) if any(n != 1 for n in strides) else None
    return m.make("slice", x, start_indices=tuple(starts), limit_indices=tuple(limits), strides=steps)


@rule(slice_(broadcast(x).named("inner")))
def slice_before_broadcast(m: Match, x: Atom, inner: Equation) -> Any:
    """Repeat less in the dimensions that the broadcast repeats, and slice its operand in the others."""
    placed = inner.params["broadcast_dimensions"]
    if not placed or 1 in get_shape(x):
        return None
    params = {k: v if v is None else tuple(v[d] for d in placed) for k, v in m.params.items()}
    return m.make("broadcast_in_dim", m.make("slice", x, **params), shape=m.shape, broadcast_dimensions=placed)


@rule(operation("dynamic_slice")())
def dynamic_slice_at_known_start(m: Match) -> Any:
    """Only if the start is a literal, or the slice fills the dimension and has only one possible start."""
    x, *starts = m.equation.invars
    whole, sizes = get_shape(x), m.params["slice_sizes"]
    if not is_static(whole):
        return None
    known_starts = []
    for start, n, size in zip(starts, whole, sizes, strict=True):
        if type(start) is Literal:
            known_starts.append(min(max(int(start.val), 0), n - size))
        elif n == size:
            known_starts.append(0)
        else:
            return None
    limits = tuple(start_index + size for start_index, size in zip(known_starts, sizes, strict=True))
    return m.make("slice", x, start_indices=tuple(known_starts), limit_indices=limits, strides=None)


@rule(operation("dynamic_update_slice")())
def update_of_everything(m: Match) -> Any:
    update = m.equation.invars[1]
    return update if get_shape(update) == m.shape else None


# ---------------------------------------------------------------------------------------- padding, reversing, joining


@rule(pad(x, y))
def pad_by_nothing(m: Match, x: Atom) -> Any:
    sizes = zip(m.params["padding_config"], get_shape(x), strict=True)
    nothing = all(low == high == 0 and (not inside or n in (0, 1)) for (low, high, inside), n in sizes)
    return x if nothing else None


@rule(pad(x, y))
def cropping_is_slice(m: Match, x: Atom) -> Any:
    """Padding by negative amounts only is a slice."""
    shape, config = get_shape(x), m.params["padding_config"]
    if not is_static(shape) or any(low > 0 or high > 0 or inside for low, high, inside in config):
        return None
    if any(-low > n for (low, _, _), n in zip(config, shape, strict=True)):
        return None
    starts = tuple(-low for low, _, _ in config)
    limits = tuple(start + size for start, size in zip(starts, m.shape, strict=True))
    return m.make("slice", x, start_indices=starts, limit_indices=limits, strides=None)


@rule(rev(x))
def reverse_of_nothing(m: Match, x: Atom) -> Any:
    shape, dimensions = get_shape(x), m.params["dimensions"]
    larger = tuple(d for d in dimensions if shape[d] not in (0, 1))
    if len(larger) == len(dimensions) and larger:
        return None
    return m.make("rev", x, dimensions=larger) if larger else x


@rule(rev(rev(x).named("inner")))
def merge_reverses(m: Match, x: Atom, inner: Equation) -> Any:
    once = tuple(sorted(set(m.params["dimensions"]) ^ set(inner.params["dimensions"])))
    return m.make("rev", x, dimensions=once) if once else x


@rule(operation("tile")(x))
def tile_once(m: Match, x: Atom) -> Any:
    return x if all(count == 1 for count in m.params["reps"]) else None


@rule(concatenate())
def concatenate_nonempty(m: Match) -> Any:
    """Drop operands without elements; a single operand is the result."""
    parts, dimension = m.equation.invars, m.params["dimension"]
    filled = [a for a in parts if get_shape(a)[dimension] != 0] or [parts[0]]
    if len(filled) == 1:
        return filled[0] if get_shape(filled[0]) == m.shape else None
    return m.make("concatenate", *filled, dimension=dimension) if len(filled) < len(parts) else None


DATA_MOVEMENT = Rules(
    squeeze_is_reshape,
    reshape_to_same,
    merge_reshapes,
    reshape_repeated_scalar,
    transpose_of_nothing,
    merge_transposes,
    transpose_before_broadcast,
    broadcast_of_nothing,
    broadcast_without_ones,
    merge_broadcasts,
    index_repeated_scalar,
    slice_of_everything,
    slice_without_strides,
    merge_slices,
    slice_before_broadcast,
    dynamic_slice_at_known_start,
    update_of_everything,
    pad_by_nothing,
    cropping_is_slice,
    reverse_of_nothing,
    merge_reverses,
    tile_once,
    concatenate_nonempty,
)
