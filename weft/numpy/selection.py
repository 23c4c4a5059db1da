"""Selection by condition or index, and of nonzero elements, with a bound on sizes that depend on values."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, overload

import numpy as np

from weft import lax
from weft.base import dtypes
from weft.base.arguments import index
from weft.base.errors import ArgumentError, ImmutableArrayError
from weft.base.source import user_line
from weft.indexing.expression import Expression
from weft.numpy.argument_docs import document
from weft.numpy.creation import convert_dtype, full_array
from weft.numpy.elementwise import remainder
from weft.numpy.extremes import clip
from weft.numpy.logic import as_booleans
from weft.numpy.util import (
    broadcast_all,
    broadcast_operands,
    broadcast_shape,
    canonicalize_axis,
    cast,
    check_arraylike,
    check_no_out,
    concrete_or_error,
    dtype_kind,
    ensure_array,
    expand_to,
    follow_device,
    is_concrete,
    promote_dtypes,
)
from weft.primitives.elementwise.select import select_n
from weft.trace.annotations import ArrayLike
from weft.trace.array import Array

# --------------------------------------------------------------------------------------------------------- by condition


@overload
def where(condition: ArrayLike, /, *, size: int | None = None, fill_value: Any = None) -> tuple[Array, ...]: ...


@overload
def where(
    condition: ArrayLike, x: ArrayLike, y: ArrayLike, /, *, size: int | None = None, fill_value: Any = None
) -> Array: ...


def where(
    condition: ArrayLike,
    x: ArrayLike | None = None,
    y: ArrayLike | None = None,
    /,
    *,
    size: int | None = None,
    fill_value: Any = None,
) -> Any:
    """Select `x` where the condition holds, else `y`; without them, return the indices where it holds, as `nonzero`.

    Args:
        condition: booleans, or numbers, which are true unless zero.
        x, y: arrays to choose from; all three broadcast.
        size: with the condition alone, the number of indices to return; needed under `jit`.
        fill_value: with the condition alone, the value of missing indices.

    Returns:
        An array in the promoted dtype; with the condition alone, a tuple of integer vectors. Derivatives flow to the
        branch that was chosen; one that is not finite in the other branch is harmless only if its argument is guarded
        as well.

    >>> import weft.numpy as wnp
    >>> wnp.where(wnp.array([True, False]), 1.0, 0.0)
    Array([1., 0.], dtype=float32, weak_type=True)
    """
    if x is None and y is None:
        check_arraylike("where", condition)
        return nonzero(condition, size=size, fill_value=fill_value)
    if x is None or y is None:
        raise ArgumentError("Either both or neither of the x and y arguments should be provided to where.")
    if size is not None or fill_value is not None:
        raise ArgumentError("where accepts size and fill_value only without x and y.")
    if not isinstance(condition, Array) or condition.dtype != np.bool_:
        (condition,) = as_booleans("where", condition)
    check_arraylike("where", condition, x, y)
    yes, no = promote_dtypes(x, y)
    condition, yes, no = broadcast_operands("where", [condition, yes, no])
    return select_n(condition, no, yes)


def select(condlist: Sequence[Any], choicelist: Sequence[Any], default: Any = 0) -> Array:
    """Select, element-wise, the choice of the first condition that holds, else the default.

    Args:
        condlist: arrays of booleans.
        choicelist: equally many arrays.
        default: the value where no condition holds.

    Returns:
        An array in the promoted dtype.

    >>> import weft.numpy as wnp
    >>> x = wnp.arange(4)
    >>> wnp.select([x < 1, x < 3], [x, 10 * x], default=-1)
    Array([ 0, 10, 20, -1], dtype=int32)
    """
    condlist, choicelist = list(condlist), list(choicelist)  # arrays of conditions and choices are sequences too
    if len(condlist) != len(choicelist):
        raise ArgumentError(f"select needs as many conditions as choices, got {len(condlist)} and {len(choicelist)}.")
    if not condlist:
        raise ArgumentError("select needs at least one condition.")
    check_arraylike("select", *condlist, *choicelist, default)
    *choices, out = promote_dtypes(*choicelist, default)
    for condition, choice in zip(reversed(condlist), reversed(choices), strict=True):
        out = where(condition, choice, out)
    return ensure_array(out)


def piecewise(x: ArrayLike, condlist: Any, funclist: Sequence[Any], *args: Any, **kw: Any) -> Array:
    """Apply, element-wise, the function (or number) whose condition holds; one more function is the default."""
    check_arraylike("piecewise", x)
    x = ensure_array(x)
    if isinstance(condlist, (Array, np.ndarray)) and np.ndim(condlist) == x.ndim:
        condlist = [condlist]
    elif not isinstance(condlist, (list, tuple, Array, np.ndarray)) or (
        isinstance(condlist, (list, tuple)) and condlist and np.ndim(condlist[0]) == 0 and x.ndim
    ):
        condlist = [np.asarray(condlist)]
    conditions, functions = list(condlist), list(funclist)
    if len(functions) == len(conditions):
        functions.append(0)
    elif len(functions) != len(conditions) + 1:
        raise ArgumentError(
            f"piecewise with {len(conditions)} conditions takes {len(conditions)} or {len(conditions) + 1} functions, "
            f"got {len(functions)}."
        )
    # As in NumPy, if several conditions hold, the last one counts.
    out = _piece(functions[-1], x, args, kw)
    for condition, function in zip(conditions, functions, strict=False):
        out = where(condition, _piece(function, x, args, kw), out)
    return out


def _piece(function: Any, x: Array, args: Any, kw: Any) -> Array:
    value = function(x, *args, **kw) if callable(function) else function
    return expand_to(convert_dtype(ensure_array(value), x.dtype), x.shape)


def choose(a: ArrayLike, choices: Any, out: Any = None, mode: str = "raise") -> Array:
    """Select, for each element of `a`, from the array with that index. `mode` is 'wrap', 'clip', or 'raise'."""
    check_no_out("choose", out)
    arrays = list(choices)
    check_arraylike("choose", a, *arrays)
    a = ensure_array(a)
    if dtype_kind(a) not in "biu":
        raise ArgumentError(f"choose needs integers to choose by, got {a.aval.short()}.")
    count = len(arrays)
    if mode == "raise":
        known = concrete_or_error(
            a, "choose needs known numbers to raise for those out of range.", "mode='wrap' or mode='clip'"
        )
        if ((known < 0) | (known >= count)).any():
            raise ArgumentError(f"choose got a number outside of the {count} choices.")
    elif mode == "wrap":
        a = remainder(a, count)
    elif mode == "clip":
        a = clip(a, 0, count - 1)
    else:
        raise ArgumentError(f"choose takes mode 'raise', 'wrap' or 'clip', got {mode!r}.")
    index, *cases = broadcast_all(
        "choose", convert_dtype(a, dtypes.int32), *(ensure_array(c) for c in promote_dtypes(*arrays))
    )
    return select_n(index, *cases) if count > 1 else cases[0]


# ------------------------------------------------------------------------------------------------- nonzero elements

_SIZE = "the size of its result depends on values that are traced"
_SIZE_FIX = "a bound on the size: {}(x, size=n), with fill_value for the rest; or call it outside of jit"


def needs_size(name: str) -> tuple[str, str]:
    """Return message and fix for a function called while tracing whose result has a size that depends on values."""
    return f"{name} cannot be traced without `size`: {_SIZE}.", _SIZE_FIX.format(name)


def known_size(size: Any, name: str, argument: str = "size") -> Any:
    """Convert a size argument to a Python integer, or a symbolic size."""
    if isinstance(size, Expression):
        return size
    value = concrete_or_error(
        size, f"The {argument} argument of {name} must be known when tracing.", f"static_argnames='{argument}'"
    )
    return index(value[()])


@document(
    "A tuple of integer vectors.",
    "wnp.nonzero(wnp.array([0, 3, 0, 4])) -> (Array([1, 3], dtype=int32),)",
    size="the number of indices to return; needed under `jit`.",
    fill_value="the value of missing indices: a number, or one for each axis.",
)
def nonzero(a: ArrayLike, *, size: int | None = None, fill_value: Any = None) -> tuple[Array, ...]:
    """Return the indices of nonzero elements, one array for each axis.

    Under `jit`, `size` is the number of indices to return: missing ones are filled with `fill_value` (0 if not given).
    """
    check_arraylike("nonzero", a)
    a = ensure_array(a)
    if a.ndim == 0:
        raise ArgumentError("Calling nonzero on 0d arrays is not allowed. Use atleast_1d(scalar).nonzero() instead.")
    if size is None:
        found = np.nonzero(concrete_or_error(a, *needs_size("nonzero")))
        return tuple(follow_device(ensure_array(x.astype(dtypes.default_int_dtype())), a) for x in found)
    size = known_size(size, "nonzero")
    flat = flat_positions(as_booleans("nonzero", lax.reshape(a, (a.size,)))[0], size)
    fills = _fills(fill_value, a.ndim)
    dtype = flat.dtype
    missing = lax.ge(flat, cast(a.size, dtype))
    indices, stride = [], a.size
    for axis, length in enumerate(a.shape):
        stride = stride // length if length else 0
        coordinate = lax.rem(lax.div(flat, cast(max(stride, 1), dtype)), cast(max(length, 1), dtype))
        indices.append(select_n(missing, coordinate, cast(ensure_array(fills[axis]), dtype)))
    return tuple(indices)


def _fills(fill_value: Any, rank: int) -> list[Any]:
    if isinstance(fill_value, (tuple, list)):
        if len(fill_value) != rank:
            raise ArgumentError(f"fill_value must have one entry for each of {rank} axes, got {fill_value}.")
        return list(fill_value)
    return [0 if fill_value is None else fill_value] * rank


def flat_positions(mask: Array, size: int) -> Array:
    """Return the first `size` indices where a mask of rank 1 holds, padded with the mask's length."""
    dtype = dtypes.default_int_dtype()
    count = mask.shape[0]
    if not count or not size:
        return full_array((size,), count, dtype)
    rank = lax.sub(lax.cumsum(lax.convert_element_type(mask, dtype), 0), cast(1, dtype))
    position = lax.iota(dtype, count)
    # Indices of false elements fall off the end, each at a separate position.
    target = select_n(mask, lax.add(position, cast(size, dtype)), rank)
    return full_array((size,), count, dtype).at[target].set(position, mode="drop", unique_indices=True)


def flatnonzero(a: ArrayLike, *, size: int | None = None, fill_value: Any = None) -> Array:
    """Return the indices of nonzero elements in the flattened array."""
    check_arraylike("flatnonzero", a)
    a = ensure_array(a)
    return nonzero(lax.reshape(a, (a.size,)), size=size, fill_value=fill_value)[0]


def argwhere(a: ArrayLike, *, size: int | None = None, fill_value: Any = None) -> Array:
    """Return the indices of nonzero elements, one row for each.

    Args:
        a: an array.
        size: the number of rows to return; needed under `jit`.
        fill_value: the value of missing indices.

    Returns:
        An integer matrix with a column for each axis.

    >>> import weft.numpy as wnp
    >>> wnp.argwhere(wnp.array([[0, 3], [4, 0]]))
    Array([[0, 1],
           [1, 0]], dtype=int32)
    """
    check_arraylike("argwhere", a)
    a = ensure_array(a)
    if a.ndim == 0:
        found = nonzero(lax.reshape(a, (1,)), size=size, fill_value=fill_value)[0]
        return full_array((found.shape[0], 0), 0, found.dtype)
    columns = nonzero(a, size=size, fill_value=fill_value)
    return lax.concatenate([lax.expand_dims(c, (1,)) for c in columns], 1)


def extract(condition: ArrayLike, arr: ArrayLike, *, size: int | None = None, fill_value: Any = 0) -> Array:
    """Select the elements of the flattened array where the condition holds."""
    return compress(_flat(ensure_array(condition)), arr, size=size, fill_value=fill_value)


def _flat(x: Array) -> Array:
    return lax.reshape(x, (x.size,))


def compress(
    condition: ArrayLike,
    a: ArrayLike,
    axis: int | None = None,
    *,
    size: int | None = None,
    fill_value: Any = 0,
    out: Any = None,
) -> Array:
    """Select the slices of `a` along an axis, or its elements, where the condition of rank 1 holds."""
    check_arraylike("compress", condition, a)
    check_no_out("compress", out)
    (mask,) = as_booleans("compress", condition)
    a = ensure_array(a)
    if mask.ndim != 1:
        raise ArgumentError(f"compress takes a condition of rank 1, got shape {mask.shape}.")
    if axis is None:
        a, dim = lax.reshape(a, (a.size,)), 0
    else:
        dim = canonicalize_axis(axis, a.ndim, "compress")
    length = a.shape[dim]
    if mask.shape[0] > length:
        beyond = lax.slice_in_dim(mask, length, mask.shape[0])
        if is_concrete(beyond) and np.asarray(beyond).any():
            raise ArgumentError(f"compress got a condition that holds beyond the {length} elements.")
    mask = lax.slice_in_dim(mask, 0, min(length, mask.shape[0]))
    if size is None:
        found = np.nonzero(concrete_or_error(mask, *needs_size("compress")))[0].astype(dtypes.default_int_dtype())
        return take_in_bounds(a, ensure_array(found), dim)
    positions = flat_positions(mask, known_size(size, "compress"))
    result = take_in_bounds(a, clip(positions, 0, max(length - 1, 0)), dim)
    present = lax.lt(positions, cast(mask.shape[0], positions.dtype))
    shape = tuple(n if i == dim else 1 for i, n in enumerate(result.shape))
    return where(lax.reshape(present, shape), result, cast(ensure_array(fill_value), result.dtype))


def take_in_bounds(a: Array, positions: Array, axis: int) -> Array:
    """Take slices of `a` along an axis at indices that are known to be in bounds."""
    index: tuple[Any, ...] = (slice(None),) * axis + (positions,)
    return a.at[index].get(mode="promise_in_bounds")


# ------------------------------------------------------------------------------------------- replacing in a new array


def _not_in_place(name: str, inplace: bool) -> None:
    if inplace:
        raise ImmutableArrayError(
            f"Arrays are immutable, so {name} cannot change one in place.",
            fix=f"{name}(..., inplace=False), which returns a new array",
            at=user_line(),
        )


def place(arr: Any, mask: Any, vals: Any, *, inplace: bool = True) -> Array:
    """Replace the elements of `arr` where the mask holds by `vals`, in order, repeated as needed."""
    check_arraylike("place", arr, mask, vals)
    _not_in_place("place", inplace)
    a, values = ensure_array(arr), ensure_array(vals)
    (mask,) = as_booleans("place", mask)
    if a.size != mask.size:
        raise ArgumentError(f"place needs a mask of as many elements as arr, got {mask.shape} and {a.shape}.")
    if not values.size:
        if not a.size:
            return a
        raise ArgumentError("place needs values to insert, got an array of size 0.")
    flat = lax.reshape(mask, (mask.size,))
    dtype = dtypes.default_int_dtype()
    order = lax.sub(lax.cumsum(lax.convert_element_type(flat, dtype), 0), cast(1, dtype))
    chosen = lax.reshape(values, (values.size,))[remainder(order, values.size)]
    out = select_n(flat, lax.reshape(a, (a.size,)), convert_dtype(chosen, a.dtype))
    return lax.reshape(out, a.shape)


def put(a: Any, ind: Any, v: Any, mode: str | None = None, *, inplace: bool = True) -> Array:
    """Replace the elements of `a` at indices into the flattened array by `v`, repeated as needed."""
    check_arraylike("put", a, ind, v)
    _not_in_place("put", inplace)
    a, index, values = ensure_array(a), ensure_array(ind), ensure_array(v)
    index, values = lax.reshape(index, (index.size,)), lax.reshape(values, (values.size,))
    if not a.size or not index.size or not values.size:
        return a
    if values.size < index.size:
        values = lax.tile(values, (-(-index.size // values.size),))
    values = lax.slice_in_dim(values, 0, index.size)
    if index.dtype.itemsize < 4:  # the size may not fit
        index = convert_dtype(index, dtypes.int32)
    if mode == "clip":
        index = clip(index, 0, a.size - 1)
    elif mode == "wrap":
        index = remainder(index, a.size)
    elif mode is not None:
        raise ArgumentError(f"put takes mode None, 'clip' or 'wrap', got {mode!r}.")
    return lax.reshape(lax.reshape(a, (a.size,)).at[index].set(convert_dtype(values, a.dtype)), a.shape)


def put_along_axis(
    arr: Any, indices: Any, values: Any, axis: int | None, inplace: bool = True, *, mode: Any = None
) -> Array:
    """Replace the elements of `arr` that `take_along_axis` would read by `values`."""
    check_arraylike("put_along_axis", arr, indices, values)
    _not_in_place("put_along_axis", inplace)
    a, index = ensure_array(arr), ensure_array(indices)
    shape = a.shape
    if axis is None:
        a, index, axis = lax.reshape(a, (a.size,)), lax.reshape(index, (index.size,)), 0
    dim = canonicalize_axis(axis, a.ndim, "put_along_axis")
    sizes = broadcast_shape(
        "put_along_axis",
        tuple(1 if i == dim else n for i, n in enumerate(a.shape)),
        index.shape,
    )
    where_to = [
        expand_to(index, sizes) if i == dim else lax.broadcasted_iota(index.dtype, sizes, i) for i in range(a.ndim)
    ]
    out = a.at[tuple(where_to)].set(expand_to(convert_dtype(ensure_array(values), a.dtype), sizes), mode=mode)
    return lax.reshape(out, shape)


def fill_diagonal(a: Any, val: Any, wrap: bool = False, *, inplace: bool = True) -> Array:
    """Replace the main diagonal of `a` by `val`."""
    check_arraylike("fill_diagonal", a, val)
    _not_in_place("fill_diagonal", inplace)
    if wrap:
        raise ArgumentError("fill_diagonal with wrap=True is not supported.")
    a, values = ensure_array(a), ensure_array(val)
    if a.ndim < 2:
        raise ArgumentError(f"fill_diagonal takes arrays of rank 2 or more, got shape {a.shape}.")
    if a.ndim > 2 and len(set(a.shape)) > 1:
        raise ArgumentError(f"fill_diagonal needs equal sizes beyond rank 2, got {a.shape}.")
    count = min(a.shape)
    line = lax.iota(dtypes.default_int_dtype(), count)
    if values.ndim:
        values = lax.reshape(values, (values.size,))
        if values.size < count:
            values = lax.tile(values, (-(-count // values.size),))
        values = lax.slice_in_dim(values, 0, count)
    return a.at[(line,) * a.ndim].set(convert_dtype(values, a.dtype))
