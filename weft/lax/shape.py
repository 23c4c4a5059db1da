"""Array creation and data movement: full, iota, reshape, broadcast, transpose, concatenate, pad and their kin."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from weft.api.shardings import as_sharding, check_sharding, constrain, split_like, split_result
from weft.base import conversion, dtypes
from weft.base.arguments import index, indices, parts, sequence
from weft.base.errors import (
    ArgumentError,
    ArgumentTypeError,
    AxisOutOfBoundsError,
    ShapeMismatchError,
    TracedShapeError,
)
from weft.base.source import user_line
from weft.indexing.dimension import as_dimension, index_or_size
from weft.indexing.expression import Expression
from weft.ir.context import with_aval
from weft.ir.types import ArrayType, Shape, array_type, get_aval
from weft.lax.argument_docs import document
from weft.primitives.elementwise.convert import convert_element_type as _convert_element_type
from weft.primitives.movement import (
    concatenate as _concatenate,
    iota as _iota,
    pad as _pad,
    shape as _shape,
    stack as _stack,
)
from weft.primitives.random.bits import KeyDtype, key_of_words
from weft.runtime.array import wrap
from weft.trace.annotations import ArrayLike, DTypeLike
from weft.trace.array import Array
from weft.trace.tracer import Tracer


def canonical_shape(shape: Any) -> Shape:
    """Convert a user's shape to a tuple of ints and symbolic sizes."""
    if isinstance(shape, (Expression, int)) or (hasattr(shape, "__index__") and not np.ndim(shape)):
        shape = (shape,)
    sizes = []
    for d in sequence(shape, "A shape", "an int or a tuple of ints"):
        if isinstance(d, Tracer) and d.known() is None:
            raise TracedShapeError(
                "A shape must be known when tracing, but one of its sizes is a traced value.",
                received=f"{d.aval.short()}, {d.origin()}",
                fix="make the size static with static_argnums or static_argnames, or compute it from x.shape",
                at=user_line(),
            )
        sizes.append(as_dimension(d))
    return tuple(sizes)


def canonical_axis(axis: Any, rank: int) -> int:
    """Normalize an axis counted from either end to range(rank)."""
    i = index(axis)
    if not -rank <= i < rank:
        raise AxisOutOfBoundsError(
            f"Axis {i} is out of bounds for an array of rank {rank}.",
            fix=f"use an axis in [{-rank}, {rank})" if rank else "an array without dimensions has no axes",
            at=user_line(),
        )
    return i + rank if i < 0 else i


def canonical_axes(axes: Any, rank: int) -> tuple[int, ...]:
    """Normalize distinct axes counted from either end to range(rank), in the order given."""
    single = hasattr(axes, "__index__") and not np.ndim(axes)
    out = tuple(canonical_axis(a, rank) for a in ((axes,) if single else sequence(axes, "Axes", "a tuple of ints")))
    if len(set(out)) != len(out):
        raise ArgumentError(f"Axes must be distinct, got {tuple(axes)} for an array of rank {rank}.")
    return out


def _type(x: Any) -> ArrayType:
    aval = get_aval(x)
    if not isinstance(aval, ArrayType):
        raise ArgumentTypeError(f"The operand must be an array, got {aval.short()}.")
    return aval


# ------------------------------------------------------------------------------------------------------ making arrays


def constant(value: Any, dtype: Any, weak_type: bool = False) -> Any:
    """Convert a number or a scalar array to a scalar of the given dtype."""
    if isinstance(value, Array):
        aval = value.aval
        if aval.dtype == dtype and aval.weak_type == weak_type:
            return value
        return _convert_element_type(value, new_dtype=dtype, weak_type=weak_type)
    if isinstance(dtype, KeyDtype):
        return key_of_words(value, dtype)
    if isinstance(value, float) and dtypes.kind(dtype) in "iu":  # as an array of it would be converted
        equation: Any = _convert_element_type
        out = equation.eval(np.asarray(value), new_dtype=dtype)
    else:
        out = conversion.coerce_value(value, dtype)
    return wrap(out, array_type(out.shape, dtype, True)) if weak_type else out


def full(shape: Shape, fill_value: Any, dtype: DTypeLike | None = None, *, sharding: Any = None) -> Array:
    """Create an array of `shape` with `fill_value` everywhere."""
    sizes = canonical_shape(shape)
    aval = _type(fill_value)
    if aval.shape:
        raise ShapeMismatchError(
            f"full needs a scalar fill_value, got one of shape {aval.shape}.",
            fix="use weft.numpy.full or lax.broadcast_in_dim to repeat an array",
            at=user_line(),
        )
    weak_type = dtype is None and aval.weak_type
    if dtype is None:
        found = aval.dtype
    else:
        found = dtypes.canonicalize_dtype(dtype, allow_extended_dtype=True)
    out = _shape.broadcast_in_dim(constant(fill_value, found, weak_type), shape=sizes, broadcast_dimensions=())
    return out if sharding is None else constrain_sharding(out, sharding, "full")


def constrain_sharding(x: Array, sharding: Any, caller: str) -> Array:
    """Constrain a computed array to a sharding; `caller` names the function in error messages."""
    wanted = as_sharding(sharding, caller, "sharding")
    assert wanted is not None
    check_sharding(wanted, x.shape, f"{caller}: {x.aval.short()}")
    return constrain(x, wanted)


def full_like(
    x: ArrayLike, fill_value: Any, dtype: DTypeLike | None = None, shape: Shape | None = None, sharding: Any = None
) -> Array:
    """Create an array like `x` with `fill_value` everywhere."""
    aval = x if isinstance(x, ArrayType) else _type(x)
    weak_type = dtype is None and aval.weak_type
    found = aval.dtype if dtype is None else dtypes.canonicalize_dtype(dtype, allow_extended_dtype=True)
    sizes = aval.shape if shape is None else canonical_shape(shape)
    out = _shape.broadcast_in_dim(constant(fill_value, found, weak_type), shape=sizes, broadcast_dimensions=())
    if sharding is not None:
        return constrain_sharding(out, sharding, "full_like")
    return split_like(out, x) if shape is None and isinstance(x, Array) else out


def broadcast_like(arr: ArrayLike, like_arr: Any) -> Array:
    """Broadcast an array to the shape and sharding of another, aligned at the last dimensions as in NumPy.

    >>> import weft.lax as lax, weft.numpy as wnp
    >>> lax.broadcast_like(wnp.array([1, 2]), wnp.zeros((2, 2)))
    Array([[1, 2],
           [1, 2]], dtype=int32)
    """
    own: ArrayType = get_aval(arr)  # type: ignore[assignment]
    like: ArrayType = get_aval(like_arr)  # type: ignore[assignment]
    if broadcast_shapes(own.shape, like.shape) != like.shape:
        raise ShapeMismatchError(
            "lax.broadcast_like: each dimension must be 1 or equal the other's, aligned at the last.",
            received=f"{own.short()} for {like.short()}",
            at=user_line(),
        )
    return split_like(broadcast_in_dim(arr, like.shape, range(like.ndim - own.ndim, like.ndim)), like_arr)


def stack(operands: Sequence[Any], axis: int = 0) -> Array:
    """Stack arrays of one shape along a new axis.

    >>> import weft.lax as lax, weft.numpy as wnp
    >>> lax.stack([wnp.array([1, 2]), wnp.array([3, 4])], axis=1)
    Array([[1, 3],
           [2, 4]], dtype=int32)
    """
    arrays = sequence(operands, "The operands of lax.stack", "a sequence of arrays")
    if not arrays:
        raise ArgumentTypeError("lax.stack needs at least one operand.")
    rank = len(get_aval(arrays[0]).shape)  # type: ignore[attr-defined]
    return _stack.stack(*arrays, axis=canonical_axis(axis, rank + 1))


def unstack(x: ArrayLike, axis: int = 0) -> tuple[Array, ...]:
    """Split an array into its slices along an axis, without that axis.

    >>> import weft.lax as lax, weft.numpy as wnp
    >>> lax.unstack(wnp.array([[1, 2], [3, 4]]), axis=1)
    (Array([1, 3], dtype=int32), Array([2, 4], dtype=int32))
    """
    rank = len(get_aval(x).shape)  # type: ignore[attr-defined]
    return tuple(_stack.unstack(x, axis=canonical_axis(axis, rank)))


def shape_as_value(shape: Shape) -> Array:
    """Return a shape as an int32 vector."""
    sizes = canonical_shape(shape)
    if any(isinstance(d, Expression) for d in sizes):
        raise TracedShapeError(
            "lax.shape_as_value needs known sizes.", received=str(sizes), fix="call it where sizes are numbers"
        )
    return with_aval(np.array(sizes, np.int32))


def zeros_like_array(x: ArrayLike) -> Array:
    """Create zeros like `x`."""
    return full_like(x, 0)


@document("An array of zeros.", "lax.empty((2,), wnp.float32) -> Array([0., 0.], dtype=float32)")
def empty(shape: Shape, dtype: DTypeLike, *, out_sharding: Any = None) -> Array:
    """Create an array of `shape` with unspecified elements; they are zeros."""
    if out_sharding is not None:
        return split_result(empty, out_sharding, shape, dtype)
    return full(shape, 0, dtype)


@document("A vector.", "lax.iota(wnp.int32, 3) -> Array([0, 1, 2], dtype=int32)", size="how many.")
def iota(dtype: DTypeLike, size: Any) -> Array:
    """Create the vector 0, 1, ..., size - 1."""
    return broadcasted_iota(dtype, (size,), 0)


@document("An array.", dimension="the axis to count along.")
def broadcasted_iota(dtype: DTypeLike, shape: Shape, dimension: int, *, out_sharding: Any = None) -> Array:
    """Create an array that counts 0, 1, 2, ... along `dimension`, the same along all others.

    >>> import weft.numpy as wnp
    >>> from weft import lax
    >>> lax.broadcasted_iota(wnp.int32, (2, 3), 1)
    Array([[0, 1, 2],
           [0, 1, 2]], dtype=int32)
    """
    if out_sharding is not None:
        return split_result(broadcasted_iota, out_sharding, dtype, shape, dimension)
    sizes = canonical_shape(shape)
    found = dtypes.canonicalize_dtype(dtype)
    return _iota.iota(dtype=found, shape=sizes, dimension=canonical_axis(dimension, len(sizes)))


# -------------------------------------------------------------------------------------------------------- broadcasting


@document(
    "A tuple of sizes; shapes that do not broadcast raise.",
    "lax.broadcast_shapes((2, 1), (3,)) -> (2, 3)",
    shapes="tuples of sizes.",
)
def broadcast_shapes(*shapes: Any) -> Shape:
    """Compute the shape that arrays of these shapes broadcast to: aligned at the right, sizes equal or 1."""
    if len(set(map(tuple, shapes))) == 1:
        return tuple(shapes[0])
    out: list[Any] = [1] * max((len(s) for s in shapes), default=0)
    for shape in shapes:
        for i, size in enumerate(reversed(shape), 1):
            if out[-i] == 1:
                out[-i] = size
            elif size != 1 and size != out[-i]:
                raise ShapeMismatchError(
                    f"Incompatible shapes for broadcasting: {', '.join(str(tuple(s)) for s in shapes)}.",
                    fix="line shapes up from the right: sizes must be equal, or one of them 1",
                    at=user_line(),
                )
    return tuple(out)


@document(
    "An array of shape `(*sizes, *operand.shape)`.",
    "lax.broadcast(wnp.arange(3), (2,)).shape -> (2, 3)",
    sizes="the sizes of the new dimensions.",
)
def broadcast(operand: ArrayLike, sizes: Sequence[int], *, out_sharding: Any = None) -> Array:
    """Repeat the operand along new leading dimensions of `sizes`."""
    if out_sharding is not None:
        return split_result(broadcast, out_sharding, operand, sizes)
    shape = _type(operand).shape
    new = canonical_shape(sizes)
    if not new and isinstance(operand, Array):
        return operand
    return _shape.broadcast_in_dim(
        operand, shape=(*new, *shape), broadcast_dimensions=tuple(range(len(new), len(new) + len(shape)))
    )


@document("An array.", broadcast_dimensions="the axis of the result for each axis of the operand.")
def broadcast_in_dim(
    operand: ArrayLike, shape: Shape, broadcast_dimensions: Sequence[int], *, out_sharding: Any = None
) -> Array:
    """Broadcast to `shape`, with operand axis i as axis `broadcast_dimensions[i]` of the result.

    >>> import weft.numpy as wnp
    >>> from weft import lax
    >>> lax.broadcast_in_dim(wnp.arange(2), (2, 3), (0,))
    Array([[0, 0, 0],
           [1, 1, 1]], dtype=int32)
    """
    if out_sharding is not None:
        return split_result(broadcast_in_dim, out_sharding, operand, shape, broadcast_dimensions)
    sizes, dims = canonical_shape(shape), indices(broadcast_dimensions, "broadcast_dimensions")
    if isinstance(operand, Array) and operand.shape == sizes and dims == tuple(range(len(sizes))):
        return operand
    order = tuple(sorted(range(len(dims)), key=dims.__getitem__))
    if (
        order != tuple(range(len(dims)))
        and len(dims) == _type(operand).ndim
        and 0 <= min(dims) < max(dims) < len(sizes)
    ):
        operand, dims = transpose(operand, order), tuple(sorted(dims))
    return _shape.broadcast_in_dim(operand, shape=sizes, broadcast_dimensions=dims)


def broadcast_to_rank(x: Any, rank: int) -> Array:
    """Add leading dimensions of size 1 until `x` has `rank` dimensions."""
    return expand_dims(x, tuple(range(rank - _type(x).ndim)))


@document(
    "An array.",
    "lax.expand_dims(wnp.arange(3), (0,)).shape -> (1, 3)",
    array="an array.",
    dimensions="axes of the result.",
)
def expand_dims(array: Any, dimensions: Sequence[int]) -> Array:
    """Insert new dimensions of size 1 at `dimensions` of the result."""
    shape = _type(array).shape
    rank = len(shape) + len(sequence(dimensions, "The dimensions of expand_dims", "a tuple of ints, such as (0,)"))
    new = set(canonical_axes(dimensions, rank))
    if not new and isinstance(array, Array):
        return array
    old = iter(shape)
    new_shape = tuple(1 if i in new else next(old) for i in range(rank))
    old_dims = tuple(i for i in range(rank) if i not in new)
    return _shape.broadcast_in_dim(array, shape=new_shape, broadcast_dimensions=old_dims)


def tile(operand: ArrayLike, reps: Sequence[int]) -> Array:
    """Repeat the operand `reps[i]` times along axis i."""
    return _shape.tile(operand, reps=canonical_shape(reps))


# ----------------------------------------------------------------------------------------------------- changing shapes


@document(
    "An array.",
    new_sizes="the new sizes, with as many elements.",
    dimensions="the order in which the axes are read; as they are by default.",
)
def reshape(
    operand: Any, new_sizes: Any, dimensions: Sequence[int] | None = None, *, out_sharding: Any = None
) -> Array:
    """Change the shape, with the elements in row-major order (after a transpose by `dimensions`, if given).

    >>> import weft.numpy as wnp
    >>> from weft import lax
    >>> lax.reshape(wnp.arange(4), (2, 2))
    Array([[0, 1],
           [2, 3]], dtype=int32)
    """
    if out_sharding is not None:
        return split_result(reshape, out_sharding, operand, new_sizes, dimensions)
    sizes = canonical_shape(new_sizes)
    aval = _type(operand)
    if dimensions is not None:
        order = canonical_axes(dimensions, aval.ndim)
        if order != tuple(range(aval.ndim)):
            operand = transpose(operand, order)
    if aval.shape == sizes and isinstance(operand, Array):
        return operand
    return _shape.reshape(operand, new_sizes=sizes, dimensions=None)


@document(
    "An array.",
    "lax.transpose(wnp.ones((2, 3)), (1, 0)).shape -> (3, 2)",
    permutation="the axis of the operand for each axis of the result.",
)
def transpose(operand: ArrayLike, permutation: Any) -> Array:
    """Permute the axes: axis i of the result is axis `permutation[i]` of the operand."""
    order = indices(permutation, "The permutation of lax.transpose")
    if order == tuple(range(_type(operand).ndim)) and isinstance(operand, Array):
        return operand
    return _shape.transpose(operand, permutation=order)


def squeeze(array: Any, dimensions: Sequence[int]) -> Array:
    """Remove the given dimensions, which must have size 1."""
    dims = tuple(sorted(canonical_axes(dimensions, _type(array).ndim)))
    return array if not dims and isinstance(array, Array) else _shape.squeeze(array, dimensions=dims)


def collapse(operand: ArrayLike, start_dimension: int, stop_dimension: int | None = None) -> Array:
    """Merge the dimensions from start (included) to stop (excluded) into one.

    Args:
        operand: an array.
        start_dimension, stop_dimension: the range of axes; to the last one by default.

    Returns:
        An array with fewer axes.

    >>> import weft.numpy as wnp
    >>> from weft import lax
    >>> lax.collapse(wnp.ones((2, 3, 4)), 0, 2).shape
    (6, 4)
    """
    shape = _type(operand).shape
    if not shape and not start_dimension and not stop_dimension:
        return reshape(operand, (1,))
    first, last, _ = _python_slice(start_dimension, stop_dimension).indices(len(shape))
    if last < first:
        raise ArgumentError(
            f"collapse needs start_dimension <= stop_dimension, got {start_dimension} and {stop_dimension}."
        )
    merged: Any = 1
    for size in shape[first:last]:
        merged = merged * size
    return reshape(operand, (*shape[:first], merged, *shape[last:]))


def _python_slice(start: int | None, stop: int | None) -> slice:
    return slice(start, stop)


def rev(operand: ArrayLike, dimensions: Sequence[int]) -> Array:
    """Reverse the elements along `dimensions`."""
    dims = tuple(sorted(canonical_axes(dimensions, _type(operand).ndim)))
    return operand if not dims and isinstance(operand, Array) else _shape.rev(operand, dimensions=dims)


# -------------------------------------------------------------------------------------------------- joining and cutting


def concatenate(operands: Any, dimension: int) -> Array:
    """Concatenate operands of one dtype along `dimension`."""
    pieces = list(operands)
    if not pieces:
        raise ArgumentError("concatenate needs at least one array.")
    if len(pieces) == 1 and isinstance(pieces[0], Array):
        canonical_axis(dimension, pieces[0].ndim)
        return pieces[0]
    return _concatenate.concatenate(*pieces, dimension=canonical_axis(dimension, _type(pieces[0]).ndim))


def split(operand: ArrayLike, sizes: Sequence[Any], axis: int = 0) -> Sequence[Array]:
    """Split into pieces of the given sizes along `axis`."""
    return _concatenate.split(operand, sizes=canonical_shape(sizes), axis=canonical_axis(axis, _type(operand).ndim))


@document(
    "An array.",
    "lax.pad(wnp.array([1, 2]), 0, [(1, 0, 1)]) -> Array([0, 1, 0, 2], dtype=int32)",
    padding_value="a scalar of the dtype of the operand.",
    padding_config="for each axis (low, high, interior).",
)
def pad(operand: ArrayLike, padding_value: Any, padding_config: Sequence[tuple[int, int, int]]) -> Array:
    """Pad each dimension by (low, high, interior) elements; negative low or high crops."""
    if not isinstance(padding_value, Array):
        padding_value = constant(padding_value, _type(operand).dtype, _type(operand).weak_type)
    what, fix = "The padding_config of lax.pad", "a tuple (low, high, interior) for each dimension"
    entries = [parts(entry, 3, what, fix) for entry in sequence(padding_config, what, fix)]
    config = tuple(tuple(map(index_or_size, entry)) for entry in entries)
    return _pad.pad(operand, padding_value, padding_config=config)
