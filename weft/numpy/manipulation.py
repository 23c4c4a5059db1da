"""Data movement: reshaping, permuting axes, broadcasting, repeating, reversing and rolling."""

from __future__ import annotations

import builtins
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from weft import lax
from weft.api.shardings import split_result
from weft.base import dtypes
from weft.base.arguments import index
from weft.base.errors import ArgumentError, ArgumentTypeError
from weft.indexing.dimension import Dimension, index_or_size, shape_symbols
from weft.indexing.expression import Expression
from weft.indexing.inconclusive import inconclusive
from weft.numpy.argument_docs import document
from weft.numpy.creation import asarray, convert_dtype, full_array
from weft.numpy.elementwise import remainder, subtract
from weft.numpy.selection import take_in_bounds
from weft.numpy.util import (
    as_shape,
    broadcast_shape,
    canonicalize_axes,
    canonicalize_axis,
    cast,
    check_arraylike,
    concrete_or_error,
    ensure_array,
    expand_to,
    is_concrete,
)
from weft.trace.annotations import ArrayLike, Shape
from weft.trace.array import Array

# --------------------------------------------------------------------------------------------------------------- shapes


@document(
    "A tuple of integers, known when tracing.",
    "wnp.shape(wnp.ones((2, 3))) -> (2, 3)",
    a="an array, anything with a shape, or nested lists.",
)
def shape(a: ArrayLike) -> tuple[Any, ...]:
    """Return the shape of an array, of an object with a `shape`, or of nested lists; () for other objects."""
    if hasattr(a, "shape"):
        return tuple(a.shape)
    if isinstance(a, (list, tuple)) or hasattr(type(a), "__jax_array__"):
        return asarray(a).shape
    return np.shape(a)


@document(
    "A Python integer, known when tracing.",
    "wnp.ndim(wnp.ones((2, 3))) -> 2",
    a="an array, anything with a shape, or nested lists.",
)
def ndim(a: ArrayLike) -> int:
    """Return the number of axes of an array, see `shape`; 0 for a number."""
    return len(shape(a))


@document("A Python integer, known when tracing.", "wnp.size(wnp.ones((2, 3))) -> 6")
def size(a: ArrayLike, axis: Any = None) -> int:
    """Count the elements of an array, or along some of its axes."""
    sizes = shape(a)
    return math.prod(sizes[i] for i in canonicalize_axes(axis, len(sizes), "size"))


@document(
    "A tuple of sizes; shapes that do not broadcast raise `ShapeMismatchError`.",
    "wnp.broadcast_shapes((2, 1), (3,)) -> (2, 3)",
    shapes="tuples of sizes, or integers for one axis.",
)
def broadcast_shapes(*shapes: Any) -> tuple[Any, ...]:
    """Compute the shape that several shapes broadcast to."""
    return broadcast_shape("broadcast_shapes", *(as_shape(s) for s in shapes)) if shapes else ()


# ---------------------------------------------------------------------------------------------------------- reshaping


@document(
    "An array of the new shape.", shape="the new sizes, with the same number of elements; an integer for one axis."
)
def reshape(a: ArrayLike, shape: Any, order: str = "C", *, copy: bool | None = None, out_sharding: Any = None) -> Array:
    """Give the elements another shape; one size may be -1, and then follows from the others.

    >>> import weft.numpy as wnp
    >>> wnp.reshape(wnp.arange(6), (2, -1))
    Array([[0, 1, 2],
           [3, 4, 5]], dtype=int32)
    """
    if out_sharding is not None:
        return split_result(reshape, out_sharding, a, shape, order, copy=copy)
    check_arraylike("reshape", a)
    if copy is False:
        raise ArgumentError("reshape with copy=False is not supported: results are new arrays.")
    a = ensure_array(a)
    sizes = resolve_shape(a, shape)
    if order == "C":
        return lax.reshape(a, sizes)
    if order == "F":
        backward = lax.reshape(lax.transpose(a, tuple(range(a.ndim))[::-1]), sizes[::-1])
        return lax.transpose(backward, tuple(range(len(sizes)))[::-1])
    raise ArgumentError(f"reshape takes order 'C' or 'F', got {order!r}.")


def resolve_shape(a: Array, shape: Any) -> tuple[Any, ...]:
    """Resolve a shape argument of `reshape`, replacing its -1."""
    if isinstance(shape, (int, np.integer, Expression)) or (isinstance(shape, (Array, np.ndarray)) and shape.ndim == 0):
        shape = (shape,)
    new_shape = tuple(index(d) if isinstance(d, (Array, np.ndarray)) else d for d in shape)
    unknown = [i for i, d in enumerate(new_shape) if isinstance(d, (int, np.integer)) and d == -1]
    rest = as_shape(tuple(d for i, d in enumerate(new_shape) if i not in unknown), "reshape")
    if not unknown:
        if isinstance(a.size, int) and all(isinstance(d, int) for d in rest) and math.prod(rest) != a.size:
            raise ArgumentTypeError(
                f"cannot reshape array of shape {a.shape} (size {a.size}) into shape {rest} (size {math.prod(rest)}).",
                fix="a shape with as many elements; one size may be -1, which is inferred",
            )
        return rest
    if len(unknown) > 1:
        raise ArgumentError(
            "Only one size of a reshape may be -1.", received=str(new_shape), fix="-1 for one size only"
        )
    known = math.prod(rest)
    if known == 0 or a.size % known != 0:
        raise ArgumentTypeError(
            f"cannot reshape array of shape {a.shape} (size {a.size}) into shape {new_shape}.",
            fix=f"sizes whose product divides {a.size}, for -1 to be the rest",
        )
    return (*rest[: unknown[0]], a.size // known, *rest[unknown[0] :])


@document("A vector.", "wnp.ravel(wnp.array([[1, 2], [3, 4]])) -> Array([1, 2, 3, 4], dtype=int32)")
def ravel(a: ArrayLike, order: str = "C", *, out_sharding: Any = None) -> Array:
    """Flatten an array to a vector."""
    check_arraylike("ravel", a)
    a = ensure_array(a)
    if order == "K":
        raise ArgumentError("ravel takes order 'C' or 'F', got 'K'.")
    return reshape(a, (a.size,), "C" if order == "A" else order, out_sharding=out_sharding)


@document(
    "An array of the permuted shape.",
    "wnp.transpose(wnp.ones((2, 3, 4)), (2, 0, 1)).shape -> (4, 2, 3)",
    axes="the axis of `a` for each axis of the result.",
)
def transpose(a: ArrayLike, axes: Any = None) -> Array:
    """Permute the axes; the default reverses them."""
    check_arraylike("transpose", a)
    a = ensure_array(a)
    order = (
        tuple(range(a.ndim))[::-1] if axes is None else tuple(canonicalize_axis(x, a.ndim, "transpose") for x in axes)
    )
    if sorted(order) != list(range(a.ndim)):
        raise ArgumentError(
            f"transpose needs each of {a.ndim} axes.", received=str(tuple(axes)), fix=f"each of 0 to {a.ndim - 1} once"
        )
    return lax.transpose(a, order)


@document(
    "An array of the permuted shape.",
    "wnp.permute_dims(wnp.ones((2, 3)), (1, 0)).shape -> (3, 2)",
    axes="the axis of `a` for each axis of the result.",
)
def permute_dims(a: ArrayLike, /, axes: Sequence[int]) -> Array:
    """Permute the axes."""
    return transpose(a, axes)


@document(
    "An array.", "wnp.matrix_transpose(wnp.ones((4, 2, 3))).shape -> (4, 3, 2)", x="an array with at least two axes."
)
def matrix_transpose(x: ArrayLike, /) -> Array:
    """Swap the last two axes."""
    check_arraylike("matrix_transpose", x)
    x = ensure_array(x)
    if x.ndim < 2:
        raise ArgumentError(f"matrix_transpose takes arrays of rank 2 or more, got shape {x.shape}.")
    return lax.transpose(x, (*range(x.ndim - 2), x.ndim - 1, x.ndim - 2))


def swapaxes(a: ArrayLike, axis1: int, axis2: int) -> Array:
    """Swap two axes.

    Args:
        a: an array.
        axis1, axis2: the two axes.

    Returns:
        An array of the swapped shape.

    >>> import weft.numpy as wnp
    >>> wnp.swapaxes(wnp.ones((2, 3, 4)), 0, 2).shape
    (4, 3, 2)
    """
    check_arraylike("swapaxes", a)
    a = ensure_array(a)
    first, second = (canonicalize_axis(x, a.ndim, "swapaxes") for x in (axis1, axis2))
    order = list(range(a.ndim))
    order[first], order[second] = second, first
    return lax.transpose(a, tuple(order))


@document(
    "An array of the permuted shape.",
    "wnp.moveaxis(wnp.ones((2, 3, 4)), 0, -1).shape -> (3, 4, 2)",
    source="an axis or several.",
    destination="their positions in the result.",
)
def moveaxis(a: ArrayLike, source: Any, destination: Any) -> Array:
    """Move axes to other positions; the others keep their order."""
    check_arraylike("moveaxis", a)
    a = ensure_array(a)
    old = canonicalize_axes(source, a.ndim, "moveaxis")
    new = canonicalize_axes(destination, a.ndim, "moveaxis")
    if len(old) != len(new):
        raise ArgumentError(f"moveaxis needs as many sources as destinations, got {source} and {destination}.")
    order = [i for i in range(a.ndim) if i not in old]
    for position, axis in sorted(zip(new, old, strict=True)):
        order.insert(position, axis)
    return lax.transpose(a, tuple(order))


def rollaxis(a: ArrayLike, axis: int, start: int = 0) -> Array:
    """Move an axis until it is before position `start`."""
    check_arraylike("rollaxis", a)
    a = ensure_array(a)
    axis = canonicalize_axis(axis, a.ndim, "rollaxis")
    start = index(start)
    if not -a.ndim <= start <= a.ndim:
        raise ArgumentError(f"rollaxis takes a start from {-a.ndim} to {a.ndim}, got {start}.")
    start += a.ndim if start < 0 else 0
    return moveaxis(a, axis, start - (start > axis))


@document(
    "An array with the new axes.",
    "wnp.expand_dims(wnp.arange(3), 0).shape -> (1, 3)",
    axis="an axis of the result or several.",
)
def expand_dims(a: ArrayLike, axis: int | Sequence[int]) -> Array:
    """Insert new axes of size 1, at positions counted in the result."""
    check_arraylike("expand_dims", a)
    a = ensure_array(a)
    axes = axis if isinstance(axis, (tuple, list, range)) else (axis,)
    return lax.expand_dims(a, canonicalize_axes(tuple(axes), a.ndim + len(axes), "expand_dims"))


@document(
    "An array without the axes.",
    "wnp.squeeze(wnp.ones((1, 3, 1)), axis=0).shape -> (3, 1)",
    axis="an axis or several, of size 1 (others raise); None for all of size 1.",
)
def squeeze(a: ArrayLike, axis: int | Sequence[int] | None = None) -> Array:
    """Remove axes of size 1: the named ones, or all."""
    check_arraylike("squeeze", a)
    a = ensure_array(a)
    unknown = [n for n in a.shape if axis is None and isinstance(n, Expression) and n != 1 and 1 in n.range]
    if unknown:
        what, fix = f"whether {unknown[0]} is 1", "squeeze(x, axis=...), which says which axes have size 1"
        raise inconclusive(what, shape_symbols(unknown), fix)
    axes = (
        tuple(i for i, n in enumerate(a.shape) if n == 1)
        if axis is None
        else canonicalize_axes(axis, a.ndim, "squeeze")
    )
    for i in axes:
        if a.shape[i] != 1:
            raise ArgumentError(
                f"cannot squeeze out an axis of size not equal to one: axis {i} has size {a.shape[i]}.",
                received=a.aval.short(),
                fix="an axis of size 1, or no axis for all of size 1; x[0] selects the first of several",
            )
    return lax.squeeze(a, axes)


@document(
    "An array, or a list of them for several arguments.",
    "wnp.atleast_1d(5) -> Array([5], dtype=int32, weak_type=True)",
    arys="arrays or numbers.",
)
def atleast_1d(*arys: ArrayLike) -> Array:
    """Add leading axes, so that arrays have at least one axis."""
    return _at_least("atleast_1d", arys, lambda x: lax.reshape(x, (1,)) if x.ndim == 0 else x)


@document(
    "An array, or a list of them for several arguments.",
    "wnp.atleast_2d(wnp.arange(3)).shape -> (1, 3)",
    arys="arrays or numbers; a vector becomes a row.",
)
def atleast_2d(*arys: ArrayLike) -> Array:
    """Add leading axes, so that arrays have at least two axes."""
    return _at_least("atleast_2d", arys, lambda x: x if x.ndim > 1 else lax.reshape(x, (1, x.size)))


@document(
    "An array, or a list of them for several arguments.",
    "wnp.atleast_3d(wnp.arange(3)).shape -> (1, 3, 1)",
    arys="arrays or numbers.",
)
def atleast_3d(*arys: ArrayLike) -> Array:
    """Add axes, so that arrays have at least three axes."""

    def expand(x: Array) -> Array:
        if x.ndim == 2:
            return lax.expand_dims(x, (2,))
        return x if x.ndim > 2 else lax.reshape(x, (1, x.size, 1))

    return _at_least("atleast_3d", arys, expand)


def _at_least(name: str, arrays: Sequence[Any], function: Any) -> Any:
    if len(arrays) == 1:
        check_arraylike(name, *arrays)
        return function(ensure_array(arrays[0]))
    return [_at_least(name, (x,), function) for x in arrays]


# -------------------------------------------------------------------------------------------------------- broadcasting


def broadcast_to(array: Any, shape: Shape, *, out_sharding: Any = None) -> Array:
    """Broadcast an array to a shape.

    Args:
        array: an array or a number.
        shape: the sizes of the result.
        out_sharding: the sharding of the result; by default it follows from the operands.

    Returns:
        An array of that shape. Its derivative sums over the repeated axes.

    >>> import weft.numpy as wnp
    >>> wnp.broadcast_to(wnp.arange(2), (3, 2))
    Array([[0, 1],
           [0, 1],
           [0, 1]], dtype=int32)
    """
    if out_sharding is not None:
        return split_result(broadcast_to, out_sharding, array, shape)
    check_arraylike("broadcast_to", array)
    x, sizes = ensure_array(array), as_shape(shape, "broadcast_to")
    if broadcast_shape("broadcast_to", x.shape, sizes) != sizes:
        raise ArgumentError(f"Incompatible shapes for broadcasting: {x.shape} and requested shape {sizes}.")
    return expand_to(x, sizes)


@document(
    "A list of arrays of one shape.",
    "[x.shape for x in wnp.broadcast_arrays(wnp.ones((2, 1)), wnp.ones(3))] -> [(2, 3), (2, 3)]",
    args="arrays or numbers.",
)
def broadcast_arrays(*args: ArrayLike) -> list[Array]:
    """Broadcast arrays to their common shape."""
    check_arraylike("broadcast_arrays", *args)
    arrays = [ensure_array(x) for x in args]
    if not arrays:
        return []
    sizes = broadcast_shape("broadcast_arrays", *(x.shape for x in arrays))
    return [expand_to(x, sizes) for x in arrays]


# -------------------------------------------------------------------------------------------------- repeating, moving


def tile(A: ArrayLike, reps: Any) -> Array:
    """Repeat an array as a whole, `reps` times along each axis.

    Args:
        A: an array or a number.
        reps: the number of repetitions along each axis; an integer for the last one.

    Returns:
        An array.

    >>> import weft.numpy as wnp
    >>> wnp.tile(wnp.array([1, 2]), (2, 2))
    Array([[1, 2, 1, 2],
           [1, 2, 1, 2]], dtype=int32)
    """
    check_arraylike("tile", A)
    a = ensure_array(A)
    counts = as_shape(reps, "tile")
    rank = builtins.max(a.ndim, len(counts))
    counts = (1,) * (rank - len(counts)) + counts
    sizes = (1,) * (rank - a.ndim) + a.shape
    if not rank:
        return a
    full_shape = tuple(part for pair in zip(counts, sizes, strict=True) for part in pair)
    out = lax.broadcast_in_dim(lax.reshape(a, sizes), full_shape, tuple(range(1, 2 * rank, 2)))
    return lax.reshape(out, tuple(c * n for c, n in zip(counts, sizes, strict=True)))


def repeat(
    a: ArrayLike,
    repeats: Any,
    axis: int | None = None,
    *,
    total_repeat_length: int | None = None,
    out_sharding: Any = None,
) -> Array:
    """Repeat each element, or slice along an axis; traced counts need `total_repeat_length`.

    Args:
        a: an array.
        repeats: the number of repetitions, for all or for each element along the axis.
        axis: an axis; None flattens the array.
        total_repeat_length: the size of the result along the axis, needed when `repeats` is traced; the rest is filled
            with the last element.
        out_sharding: the sharding of the result; by default it follows from the operands.

    Returns:
        An array.

    >>> import weft.numpy as wnp
    >>> wnp.repeat(wnp.array([1, 2]), wnp.array([1, 3]))
    Array([1, 2, 2, 2], dtype=int32)
    """
    if out_sharding is not None:
        return split_result(repeat, out_sharding, a, repeats, axis, total_repeat_length=total_repeat_length)
    check_arraylike("repeat", a)
    a = ensure_array(a)
    if axis is None:
        a, dim = ravel(a), 0
    else:
        dim = canonicalize_axis(axis, a.ndim, "repeat")
    length = a.shape[dim] if a.ndim else 1
    if isinstance(repeats, Expression) and total_repeat_length is None:
        return _repeat_all(a, repeats, dim)
    counts = repeats if isinstance(repeats, (int, np.integer, Array)) else np.asarray(repeats)
    if total_repeat_length is None and np.size(counts) == 1 and is_concrete(counts):
        return _repeat_all(a, index(counts if isinstance(counts, int) else np.asarray(counts).reshape(())[()]), dim)
    counts = ensure_array(counts)
    if counts.size == 1 and length != 1:
        counts = expand_to(lax.reshape(counts, (1,)), (length,))
    if counts.shape != (length,):
        counts = lax.reshape(counts, (counts.size,))
        if counts.shape != (length,):
            raise ArgumentError(
                "repeat needs one number, or one for each element.",
                received=f"{counts.size} numbers for {length} elements",
                fix=f"one number, or an array of {length}",
            )
    if total_repeat_length is None:
        known = concrete_or_error(
            counts,
            "repeat needs known counts when tracing, since the size of the result follows from them.",
            "total_repeat_length=n, a static bound on the size of the result",
        )
        positions = ensure_array(np.repeat(np.arange(length), known).astype(dtypes.default_int_dtype()))
        return take_in_bounds(a, positions, dim)
    total = index_or_size(total_repeat_length)
    if not length or not total:
        return full_array((*a.shape[:dim], total, *a.shape[dim + 1 :]), 0, a.dtype)
    # A 1 marks where each element begins; the cumulative sum of marks is the element's index.
    starts = subtract(lax.cumsum(counts, 0), counts)
    marks = full_array((total,), 0, dtypes.default_int_dtype()).at[starts].add(1, mode="drop")
    positions = subtract(lax.cumsum(marks, 0), 1)
    return take_in_bounds(a, positions, dim)


def _repeat_all(a: Array, count: Dimension, axis: int) -> Array:
    if a.ndim == 0:
        a = lax.reshape(a, (1,))
    shape = a.shape
    full_shape = (*shape[: axis + 1], count, *shape[axis + 1 :])
    old_dims = tuple(i for i in range(len(full_shape)) if i != axis + 1)
    return lax.reshape(
        lax.broadcast_in_dim(a, full_shape, old_dims), (*shape[:axis], shape[axis] * count, *shape[axis + 1 :])
    )


@document("An array of the same shape.", "wnp.flip(wnp.arange(3)) -> Array([2, 1, 0], dtype=int32)", m="an array.")
def flip(m: ArrayLike, axis: int | Sequence[int] | None = None) -> Array:
    """Reverse the elements along axes; along all of them by default."""
    check_arraylike("flip", m)
    m = ensure_array(m)
    return lax.rev(m, canonicalize_axes(axis, m.ndim, "flip"))


def fliplr(m: ArrayLike) -> Array:
    """Reverse the elements along the second axis."""
    check_arraylike("fliplr", m)
    return flip(m, 1)


def flipud(m: ArrayLike) -> Array:
    """Reverse the elements along the first axis."""
    check_arraylike("flipud", m)
    return flip(m, 0)


def rot90(m: ArrayLike, k: int = 1, axes: tuple[int, int] = (0, 1)) -> Array:
    """Rotate a plane by `k` times 90 degrees, from its first axis towards its second.

    Args:
        m: an array of at least two axes.
        k: the number of quarter turns; negative ones go the other way.
        axes: the two axes of the plane.

    Returns:
        An array.

    >>> import weft.numpy as wnp
    >>> wnp.rot90(wnp.array([[1, 2], [3, 4]]))
    Array([[2, 4],
           [1, 3]], dtype=int32)
    """
    check_arraylike("rot90", m)
    m = ensure_array(m)
    first, second = (canonicalize_axis(x, m.ndim, "rot90") for x in axes)
    if first == second:
        raise ArgumentError(f"rot90 needs two different axes, got {axes}.")
    quarters = index(k) % 4
    if quarters == 0:
        return m
    if quarters == 2:
        return flip(m, (first, second))
    return swapaxes(flip(m, second), first, second) if quarters == 1 else flip(swapaxes(m, first, second), second)


@document(
    "An array of the same shape.",
    "wnp.roll(wnp.arange(5), 2) -> Array([3, 4, 0, 1, 2], dtype=int32)",
    shift="the distance, for all axes or for each; it may be traced.",
    axis="an axis or several; None rolls the flattened array.",
)
def roll(a: ArrayLike, shift: Any, axis: int | Sequence[int] | None = None) -> Array:
    """Shift the elements cyclically along axes."""
    check_arraylike("roll", a)
    a = ensure_array(a)
    if axis is None:
        return lax.reshape(roll(ravel(a), shift, 0), a.shape)
    axes = [canonicalize_axis(x, a.ndim, "roll") for x in (axis if isinstance(axis, (tuple, list, range)) else (axis,))]
    shifts = list(shift) if isinstance(shift, (tuple, list, range)) or np.ndim(shift) else [shift]
    if len(shifts) != len(axes):
        if 1 not in (len(shifts), len(axes)):
            raise ArgumentError(f"roll got {len(shifts)} shifts for {len(axes)} axes.")
        count = builtins.max(len(shifts), len(axes))
        shifts = shifts * count if len(shifts) == 1 else shifts
        axes = axes * count if len(axes) == 1 else axes
    for amount, dim in zip(shifts, axes, strict=True):
        a = _roll_axis(a, amount, dim)
    return a


def _roll_axis(a: Array, amount: Any, axis: int) -> Array:
    length = a.shape[axis]
    if isinstance(length, int) and length == 0:
        return a
    if is_concrete(amount) and isinstance(length, int):
        cut = (length - index(amount if isinstance(amount, int) else np.asarray(amount)[()])) % length
        if cut == 0:
            return a
        parts = [lax.slice_in_dim(a, cut, length, axis=axis), lax.slice_in_dim(a, 0, cut, axis=axis)]
        return lax.concatenate(parts, axis)
    amount = convert_dtype(ensure_array(amount), dtypes.default_int_dtype())
    start = remainder(subtract(cast(length, amount.dtype), amount), cast(length, amount.dtype))
    return lax.dynamic_slice_in_dim(lax.concatenate([a, a], axis), start, length, axis)


def resize(a: ArrayLike, new_shape: Any) -> Array:
    """Repeat or cut off the flattened elements to fill another shape."""
    check_arraylike("resize", a)
    flat, sizes = ravel(a), as_shape(new_shape, "resize")
    total = math.prod(sizes)
    if not flat.size:
        return full_array(sizes, 0, flat.dtype)
    if flat.size < total:
        flat = tile(flat, -(-total // flat.size))
    return lax.reshape(lax.slice_in_dim(flat, 0, total), sizes)


def trim_zeros(filt: Any, trim: str = "fb", axis: Any = None) -> Array:
    """Remove the zeros at the front ('f') and back ('b') of an array."""
    check_arraylike("trim_zeros", filt)
    a = ensure_array(filt)
    known = concrete_or_error(
        a, "trim_zeros cannot be traced: the size of its result depends on values.", "call it outside of jit"
    )
    letters = trim.lower() if isinstance(trim, str) else ""
    if letters not in ("f", "b", "fb", "bf"):
        raise ArgumentError(f"trim_zeros takes trim 'f', 'b' or 'fb', got {trim!r}.")
    for dim in canonicalize_axes(axis, a.ndim, "trim_zeros"):
        others = tuple(i for i in range(a.ndim) if i != dim)
        present = np.flatnonzero((known != 0).any(axis=others) if others else known != 0)
        low = int(present[0]) if present.size and "f" in letters else (0 if present.size else a.shape[dim])
        high = int(present[-1]) + 1 if present.size and "b" in letters else a.shape[dim]
        a = lax.slice_in_dim(a, low, builtins.max(low, high), axis=dim)
    return a
