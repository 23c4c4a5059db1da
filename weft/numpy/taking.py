"""Reading by index: `take` and `take_along_axis`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from weft import lax
from weft.base.errors import ArgumentError, ArgumentTypeError, OutOfBoundsIndexError
from weft.base.settings import config
from weft.base.source import user_line
from weft.indexing.expression import Expression
from weft.lax.slicing import GatherScatterMode
from weft.numpy.elementwise import remainder
from weft.numpy.extremes import clip
from weft.numpy.indexing import getitem, indexable, read_array
from weft.numpy.manipulation import ravel
from weft.numpy.util import (
    broadcast_shape,
    canonicalize_axis,
    check_arraylike,
    check_no_out,
    dtype_kind,
    ensure_array,
    expand_to,
)
from weft.primitives.control.check import check_index
from weft.trace.annotations import ArrayLike
from weft.trace.array import Array


def _check_indices(indices: Any, axis: int, shape: Sequence[Any], wrap: bool) -> None:
    """Check indices in programs if `checks` is "all".

    Filling in for indices out of bounds is the documented behavior of these functions, so checks must be requested.
    """
    if config.checks == "all" and not isinstance(shape[axis], Expression):
        check_index(indices, axis, shape, -shape[axis] if wrap else 0, shape[axis] - 1)


def take(
    a: ArrayLike,
    indices: ArrayLike,
    axis: int | None = None,
    out: Any = None,
    mode: str | None = None,
    unique_indices: bool = False,
    indices_are_sorted: bool = False,
    fill_value: Any = None,
) -> Array:
    """Take the elements at indices along an axis, or in the flattened array.

    Indices out of bounds read `fill_value` (NaN by default); with `mode` 'clip' or 'wrap' they are brought in bounds.
    Under the setting `checks` they are an error, unless a mode or a value is given.

    Args:
        a: an array.
        indices: integers.
        axis: an axis; None for the flattened array.
        out: must be None: arrays do not change, so nothing can be written into one.
        mode: "fill", "clip" or "wrap".
        unique_indices: a promise that no index occurs twice.
        indices_are_sorted: a promise that the indices ascend.
        fill_value: the value read by indices out of bounds.

    Returns:
        An array, with the shape of `indices` in the place of the axis.

    >>> import weft.numpy as wnp
    >>> wnp.take(wnp.array([10, 20, 30]), wnp.array([2, 0]))
    Array([30, 10], dtype=int32)
    """
    check_arraylike("take", a, indices)
    check_no_out("take", out)
    a, positions = ensure_array(a), ensure_array(indices)
    if dtype_kind(positions) not in "iu":
        raise ArgumentTypeError(
            "take needs integer positions.",
            received=f"{indices!r}, {positions.aval.short()}" if not positions.ndim else positions.aval.short(),
            fix="indices.astype(int) of an array, int(i)",
        )
    if positions.dtype.itemsize < 4:  # the length may not fit
        positions = lax.convert_element_type(positions, "int32")
    if axis is None:
        a, dim = ravel(a), 0
    else:
        dim = canonicalize_axis(axis, a.ndim, "take")
    length = a.shape[dim]
    if length == 0 and positions.size:
        what = f"take cannot read from the empty axis {dim} of {a.aval.short()}."
        raise OutOfBoundsIndexError(what, fix="an axis of size 0 has no elements", at=user_line())
    if mode is None and fill_value is None:
        _check_indices(positions, dim, a.shape, True)
    if mode == "raise":
        raise ArgumentError("take cannot raise for positions outside: use mode 'fill', 'clip' or 'wrap'.")
    if mode == "wrap":
        positions, mode = remainder(positions, length), "promise_in_bounds"
    elif mode == "clip":  # as in NumPy, negative indices become 0
        positions, mode = clip(positions, 0, length - 1), "promise_in_bounds"
    index = (slice(None),) * dim + (positions,)
    return getitem(a, index, mode or "fill", fill_value, indices_are_sorted, unique_indices)


def take_along_axis(
    arr: ArrayLike,
    indices: ArrayLike,
    axis: int | None = -1,
    mode: Any = None,
    fill_value: Any = None,
    *,
    wrap_negative_indices: bool = True,
) -> Array:
    """Take the elements at `indices` along an axis, line by line, for example with the result of `argsort`.

    Args:
        arr: an array.
        indices: integers, with as many axes as `arr`; other axes broadcast.
        axis: the axis; None for the flattened array.
        mode: the treatment of indices out of bounds: "fill", "clip" or "promise_in_bounds".
        fill_value: the value read by indices out of bounds in mode "fill".
        wrap_negative_indices: whether negative indices count from the end.

    Returns:
        An array of the shape of `indices`, broadcast.

    >>> import weft.numpy as wnp
    >>> x = wnp.array([[3, 1, 2]])
    >>> wnp.take_along_axis(x, wnp.argsort(x, axis=1), axis=1)
    Array([[1, 2, 3]], dtype=int32)
    """
    check_arraylike("take_along_axis", arr, indices)
    a, positions = ensure_array(arr), ensure_array(indices)
    if dtype_kind(positions) not in "iu":
        raise ArgumentTypeError(f"take_along_axis indices must be of integer type, got {positions.aval.short()}.")
    if axis is None:
        if positions.ndim != 1:
            raise ArgumentError(f"take_along_axis indices must be 1D if axis=None, got shape {positions.shape}.")
        a, axis = ravel(a), 0
    if a.ndim != positions.ndim:
        raise ArgumentError(f"indices and arr must have the same number of dimensions: {positions.ndim} and {a.ndim}.")
    dim = canonicalize_axis(axis, a.ndim, "take_along_axis")
    if mode is None and fill_value is None:
        _check_indices(positions, dim, a.shape, wrap_negative_indices)
    around = tuple(1 if i == dim else n for i, n in enumerate(a.shape))
    sizes = broadcast_shape("take_along_axis", around, positions.shape)
    parsed = GatherScatterMode.from_any(mode or "fill")
    if 0 in a.shape:  # there is nothing to read, and no slice of size 1
        nothing = lax.reshape(a, (0,))
        return getitem(nothing, (expand_to(positions, sizes),), parsed, fill_value)
    a = indexable(a, (positions,))
    index = read_array(positions, dim, a.aval, parsed, wrap_negative_indices).value
    # Lines of the array and the indices correspond, except along axes where the array has a single line.
    lines = tuple(d for d, n in enumerate(a.shape) if d != dim and n == sizes[d])
    dimension_numbers = lax.GatherDimensionNumbers(
        offset_dims=(),
        collapsed_slice_dims=tuple(d for d in range(a.ndim) if d not in lines),
        start_index_map=(dim,),
        operand_batching_dims=lines,
        start_indices_batching_dims=lines,
    )
    starts = lax.expand_dims(expand_to(index, sizes), (a.ndim,))
    return lax.gather(a, starts, dimension_numbers, (1,) * a.ndim, mode=parsed, fill_value=fill_value)
