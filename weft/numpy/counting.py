"""Ranges of numbers, and grids of coordinates."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, Literal, overload

import numpy as np

from weft import lax
from weft.base import conversion, dtypes
from weft.base.errors import ArgumentError, ArgumentTypeError
from weft.indexing.dimension import index_or_size
from weft.indexing.expression import Expression
from weft.indexing.guards import has_known_sign
from weft.ir.types import array_type
from weft.numpy.creation import convert_dtype, full_array, put_array
from weft.numpy.util import (
    as_shape,
    broadcast_all,
    canonical_dtype,
    canonicalize_axis,
    cast,
    check_arraylike,
    concrete_or_error,
    convert_value,
    ensure_array,
    expand_to,
    is_eager,
    promote_dtypes,
    promote_dtypes_inexact,
)
from weft.primitives.movement.iota import iota
from weft.primitives.movement.shape import broadcast_in_dim
from weft.runtime.array import wrap
from weft.trace.annotations import ArrayLike, DTypeLike
from weft.trace.array import Array

_KNOWN = "arange needs start, stop and step to be known when tracing, since they decide the size of the result."
_KNOWN_FIX = "static_argnums or static_argnames for that argument, or wnp.arange(n) + start with a known size n"


def arange(
    start: Any,
    stop: Any = None,
    step: Any = None,
    dtype: DTypeLike | None = None,
    *,
    device: Any = None,
    out_sharding: Any = None,
) -> Array:
    """Create the numbers from `start` up to but without `stop`, `step` apart; with one argument, from 0 up to it.

    Args:
        start: the first number; with one argument, the end, and numbers begin at 0.
        stop: the end, which is not included.
        step: the distance between numbers, which may be negative; 1 by default.
        dtype: the dtype; by default that of the arguments, so integers yield int32.
        device: a device or sharding to put the result on; by default where its operands are.
        out_sharding: the sharding of the result; by default it follows from the operands.

    Returns:
        A vector. The arguments must be known when tracing, since they decide the size.

    >>> import weft.numpy as wnp
    >>> wnp.arange(4)
    Array([0, 1, 2, 3], dtype=int32)
    >>> wnp.arange(1, 2, 0.25)
    Array([1.  , 1.25, 1.5 , 1.75], dtype=float32)
    """
    return put_array(_range(start, stop, step, dtype), device, out_sharding)


def _range(start: Any, stop: Any, step: Any, dtype: Any) -> Array:
    if any(isinstance(x, Expression) for x in (start, stop, step)):
        return _symbolic_range(start, stop, step, dtype)
    present = [x for x in (start, stop, step) if x is not None]
    check_arraylike("arange", *present)
    out_dtype = dtypes.result_type(*present) if dtype is None else canonical_dtype(dtype, "arange")
    bounds = [None if x is None else concrete_or_error(x, _KNOWN, _KNOWN_FIX) for x in (start, stop, step)]
    if any(x is not None and x.ndim for x in bounds):
        raise ArgumentTypeError(f"arange takes scalars, got shapes {[np.shape(x) for x in present]}.")
    low, high, by = (None if x is None else x.item() for x in bounds)
    if high is None:
        low, high = 0, low
    if low is None or high is None:
        raise ArgumentTypeError("arange needs a start; use arange(0, stop, step) for a range from zero.")
    by = 1 if by is None else by
    if by == 0:
        raise ArgumentError("arange got step=0; it must not be zero.")
    if not is_eager() and dtypes.kind(out_dtype) in "iuf" and all(isinstance(x, int) for x in (low, high, by)):
        size = max(0, -((low - high) // by))
        count = iota(dtype=out_dtype, shape=(size,), dimension=0)
        scaled = count if by == 1 else lax.mul(count, cast(by, out_dtype))
        return scaled if low == 0 else lax.add(scaled, cast(low, out_dtype))
    if dtypes.kind(out_dtype) in "iu" and all(isinstance(x, int) for x in (low, high, by)):
        values = conversion.convert(np.arange(low, high, by), out_dtype)
    else:
        values = convert_value(np.arange(low, high, by), out_dtype)
    return wrap(values, array_type(values.shape, out_dtype))  # not a value of the user's that is transferred


def _symbolic_range(start: Any, stop: Any, step: Any, dtype: Any) -> Array:
    out_dtype = dtypes.default_int_dtype() if dtype is None else canonical_dtype(dtype, "arange")
    low, high, by = (index_or_size(x) for x in ((0, start, 1) if stop is None else (start, stop, step or 1)))
    if isinstance(by, Expression):
        raise ArgumentError(f"arange over symbolic sizes needs a known step, got {by}.")
    size = -((low - high) // by)
    if isinstance(size, Expression) and has_known_sign(size) and not size >= 0:
        size = 0
    count = iota(dtype=out_dtype, shape=(size,), dimension=0)
    scaled = count if by == 1 else lax.mul(count, cast(by, out_dtype))
    return scaled if isinstance(low, int) and low == 0 else lax.add(scaled, cast(low, out_dtype))


@overload
def linspace(
    start: Any,
    stop: Any,
    num: int = 50,
    endpoint: bool = True,
    retstep: Literal[False] = False,
    dtype: DTypeLike | None = None,
    axis: int = 0,
    *,
    device: Any = None,
) -> Array: ...


@overload
def linspace(
    start: Any,
    stop: Any,
    num: int = 50,
    endpoint: bool = True,
    *,
    retstep: Literal[True],
    dtype: DTypeLike | None = None,
    axis: int = 0,
    device: Any = None,
) -> tuple[Array, Array]: ...


def linspace(
    start: Any,
    stop: Any,
    num: int = 50,
    endpoint: bool = True,
    retstep: bool = False,
    dtype: DTypeLike | None = None,
    axis: int = 0,
    *,
    device: Any = None,
) -> Any:
    """Create `num` evenly spaced numbers from `start` to `stop`, which is the last one unless `endpoint` is False.

    Args:
        start: the first number, or an array of them.
        stop: the last number, or an array of them.
        num: the number of samples.
        endpoint: whether `stop` is the last number; otherwise it would be the next one.
        retstep: whether to return the distance between numbers too.
        dtype: the dtype of the result; by default the default float, float32 unless `enable_x64` is on.
        axis: the index of the new axis in the result, when `start` or `stop` is an array.
        device: a device or sharding to put the result on; by default where its operands are.

    Returns:
        An array with `num` numbers along the new axis; with `retstep`, a pair of it and the distance. Derivatives pass
        to `start` and `stop`.

    >>> import weft.numpy as wnp
    >>> wnp.linspace(0, 1, 5)
    Array([0.  , 0.25, 0.5 , 0.75, 1.  ], dtype=float32)
    """
    if not isinstance(num, Expression):
        num = int(
            concrete_or_error(num, "linspace needs a known `num`, the size of the result.", "static_argnames='num'")
        )
    if num < 0:
        raise ArgumentError(f"linspace takes a number of samples of at least 0, got {num}.")
    check_arraylike("linspace", start, stop)
    out_dtype = None if dtype is None else canonical_dtype(dtype, "linspace")
    first, last = promote_dtypes_inexact(start, stop)
    compute_dtype = first.dtype
    first, last = broadcast_all("linspace", ensure_array(first), ensure_array(last))
    steps = num - 1 if endpoint else num
    if num > 1:
        delta = lax.div(lax.sub(last, first), cast(steps, compute_dtype))
        ratio = lax.div(iota(dtype=compute_dtype, shape=(steps,), dimension=0), cast(steps, compute_dtype))
        ratio = lax.reshape(ratio, (steps,) + (1,) * first.ndim) if first.ndim else ratio
        out = lax.expand_dims(first, (0,)) * (1 - ratio) + lax.expand_dims(last, (0,)) * ratio
        if endpoint:
            out = lax.concatenate([out, lax.broadcast(_strong(last), (1,))], 0)
    elif num == 1:
        delta = full_array((), math.nan, compute_dtype) if endpoint else lax.sub(last, first)
        out = lax.broadcast(first, (1,))
    else:
        delta = full_array((), math.nan, compute_dtype)
        out = full_array((0, *first.shape), 0, compute_dtype)
    out = _strong(out)
    if out_dtype is not None:
        if dtypes.kind(out_dtype) in "iu":
            out = lax.floor(out)
        out = convert_dtype(out, out_dtype)
    axis = canonicalize_axis(axis, out.ndim, "linspace")
    if axis:
        out = lax.transpose(out, (*range(1, axis + 1), 0, *range(axis + 1, out.ndim)))
    out = put_array(out, device)
    return (out, delta) if retstep else out


def _strong(x: Array) -> Array:
    return convert_dtype(x, x.dtype)


def logspace(
    start: Any,
    stop: Any,
    num: int = 50,
    endpoint: bool = True,
    base: Any = 10.0,
    dtype: DTypeLike | None = None,
    axis: int = 0,
) -> Array:
    """Create `num` numbers evenly spaced on a logarithmic scale, from `base ** start` to `base ** stop`.

    Args:
        start, stop: exponents of the first and the last number.
        num: how many numbers.
        endpoint: whether `base ** stop` is the last number.
        base: the base of the powers.
        dtype: the dtype of the result; by default the default float, float32 unless `enable_x64` is on.
        axis: where the new axis is in the result, when `start` or `stop` is an array.

    Returns:
        An array with `num` numbers along the new axis.

    >>> import weft.numpy as wnp
    >>> wnp.logspace(0, 2, 3)
    Array([  1.,  10., 100.], dtype=float32)
    """
    exponents = linspace(start, stop, num, endpoint, axis=axis)
    b, exponents = promote_dtypes(ensure_array(base), exponents)
    out = lax.pow(expand_to(b, exponents.shape), exponents)
    return _strong(out) if dtype is None else convert_dtype(out, canonical_dtype(dtype, "logspace"))


def geomspace(
    start: Any, stop: Any, num: int = 50, endpoint: bool = True, dtype: DTypeLike | None = None, axis: int = 0
) -> Array:
    """Create `num` numbers in geometric progression from `start` to `stop`.

    Args:
        start, stop: the first and the last number; not zero.
        num: how many numbers.
        endpoint: whether `stop` is the last number.
        dtype: the dtype of the result; by default the default float, float32 unless `enable_x64` is on.
        axis: where the new axis is in the result, when `start` or `stop` is an array.

    Returns:
        An array with `num` numbers along the new axis, each a constant multiple of the one before it.

    >>> import weft.numpy as wnp
    >>> wnp.geomspace(1, 8, 4).round(3)
    Array([1., 2., 4., 8.], dtype=float32)
    """
    check_arraylike("geomspace", start, stop)
    first, last = (ensure_array(x) for x in promote_dtypes_inexact(start, stop))
    first, last = broadcast_all("geomspace", first, last)
    sign = lax.sign(first)
    low, high = lax.div(first, sign), lax.div(last, sign)
    exponents = linspace(lax.log(low), lax.log(high), num, endpoint, axis=axis)
    axis = canonicalize_axis(axis, exponents.ndim, "geomspace")
    signs, ends = lax.expand_dims(sign, (axis,)), [lax.expand_dims(x, (axis,)) for x in (first, last)]
    out = lax.exp(exponents) * signs
    if num > 1:  # the ends are known exactly
        position = lax.broadcasted_iota(np.dtype(np.int32), out.shape, axis)
        out = lax.select(position == 0, expand_to(ends[0], out.shape), out)
        if endpoint:
            out = lax.select(position == num - 1, expand_to(ends[1], out.shape), out)
    out = _strong(out)
    return out if dtype is None else convert_dtype(out, canonical_dtype(dtype, "geomspace"))


def indices(dimensions: Sequence[Any], dtype: DTypeLike | None = None, sparse: bool = False) -> Any:
    """Create the coordinate along each axis of a grid: one array, or a tuple of broadcastable ones if `sparse`.

    Args:
        dimensions: the sizes of the grid.
        dtype: the dtype of the positions; int32 by default.
        sparse: whether to return one array for each axis, with size 1 along the others.

    Returns:
        An array of shape `(len(dimensions), *dimensions)`, or a tuple of arrays if `sparse`.

    >>> import weft.numpy as wnp
    >>> wnp.indices((2, 3))[1]
    Array([[0, 1, 2],
           [0, 1, 2]], dtype=int32)
    """
    out_dtype = canonical_dtype(int if dtype is None else dtype, "indices")
    sizes = as_shape(tuple(dimensions), "indices")
    if sparse:
        return tuple(
            lax.reshape(arange(n, dtype=out_dtype), tuple(n if i == axis else 1 for i in range(len(sizes))))
            for axis, n in enumerate(sizes)
        )
    grids = [lax.broadcast(lax.broadcasted_iota(out_dtype, sizes, axis), (1,)) for axis in range(len(sizes))]
    return lax.concatenate(grids, 0) if grids else full_array((0,), 0, out_dtype)


def fromfunction(function: Callable[..., Any], shape: Any, *, dtype: DTypeLike = float, **kwargs: Any) -> Any:
    """Call `function` with the coordinates of a grid of `shape`, one array for each axis."""
    grid = [lax.convert_element_type(x, canonical_dtype(dtype, "fromfunction")) for x in indices(as_shape(shape))]
    return function(*grid, **kwargs)


def meshgrid(*xi: ArrayLike, copy: bool = True, sparse: bool = False, indexing: str = "xy") -> list[Array]:
    """Create grids from the coordinates along each axis; with `indexing='xy'` the first two axes are swapped.

    Args:
        *xi: vectors of coordinates, one for each axis.
        copy: accepted for compatibility; arrays do not change, so it makes no difference.
        sparse: whether the results keep size 1 along the axes of the other coordinates.
        indexing: "xy" for a first axis that runs along the second vector, as plots have it, or "ij" for axes in the
            order of the arguments.

    Returns:
        A list with one array for each vector.

    >>> import weft.numpy as wnp
    >>> columns, rows = wnp.meshgrid(wnp.arange(3), wnp.arange(2))
    >>> columns
    Array([[0, 1, 2],
           [0, 1, 2]], dtype=int32)
    """
    check_arraylike("meshgrid", *xi)
    if not copy:
        raise ArgumentError("meshgrid makes new arrays; copy=False is not supported.")
    if indexing not in ("xy", "ij"):
        raise ArgumentError(f"meshgrid takes indexing='xy' or 'ij', got {indexing!r}.")
    axes = [ensure_array(x) for x in xi]
    for x in axes:
        if x.ndim > 1:
            raise ArgumentError(f"meshgrid takes arrays of rank 1, got one of shape {x.shape}.")
    rank = len(axes)
    flat = [x if x.ndim else lax.broadcast(x, (1,)) for x in axes]
    axis_of = list(range(rank))
    if indexing == "xy" and rank > 1:
        axis_of[0], axis_of[1] = 1, 0
    sizes = [1] * rank
    for axis, x in zip(axis_of, flat, strict=True):
        sizes[axis] = x.shape[0]
    grids = []
    for axis, x in zip(axis_of, flat, strict=True):
        shape = tuple(x.shape[0] if i == axis else 1 for i in range(rank)) if sparse else tuple(sizes)
        grids.append(broadcast_in_dim(x, shape=shape, broadcast_dimensions=(axis,)))
    return grids
