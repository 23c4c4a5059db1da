"""Reductions over axes: sums, products, extrema, means, counts, argmax and argmin."""

from __future__ import annotations

import builtins
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from weft import lax
from weft.base import dtypes
from weft.base.errors import ArgumentError
from weft.base.settings import config, numpy_dtype_promotion
from weft.base.source import user_line
from weft.numpy.argument_docs import document
from weft.numpy.complex_parts import conjugate, real
from weft.numpy.creation import convert_dtype, full_array
from weft.numpy.elementwise import add, multiply, subtract, true_divide
from weft.numpy.extremes import maximum, minimum
from weft.numpy.logic import as_booleans, isnan, logical_and
from weft.numpy.selection import where as select_where
from weft.numpy.transcendental import sqrt
from weft.numpy.util import (
    broadcast_shape,
    canonical_dtype,
    canonicalize_axes,
    canonicalize_axis,
    cast,
    check_arraylike,
    check_no_out,
    choose,
    count_elements,
    dtype_kind,
    ensure_array,
    expand_to,
    scalar_like,
)
from weft.primitives.reduction.reduce_extrema import greatest, least
from weft.trace.annotations import ArrayLike, DTypeLike
from weft.trace.array import Array


def _strong(x: Array) -> Array:
    return convert_dtype(x, x.dtype)


def keep_axes(x: Array, axes: tuple[int, ...], keepdims: bool) -> Array:
    """Restore reduced axes with size 1 if `keepdims`."""
    return lax.expand_dims(x, tuple(sorted(axes))) if keepdims and axes else x


def _reduce(
    name: str,
    operation: Callable[[Any, tuple[int, ...]], Any],
    combine: Callable[[Any, Any], Any],
    a: Array,
    axis: Any,
    keepdims: bool,
    initial: Any,
    where: Any,
    neutral: Any,
) -> Array:
    """Reduce with a primitive; elements that `where` excludes become neutral, and `initial` is combined at the end."""
    axes = canonicalize_axes(axis, a.ndim, name)
    if where is not None:
        where = _mask(name, where)
        # The mask may be larger than the array: then the reduction counts repeated elements.
        shape = broadcast_shape(name, a.shape, where.shape)
        if len(shape) != a.ndim:
            axes = canonicalize_axes(axis, len(shape), name)
        a = expand_to(a, shape)
        a = choose(expand_to(where, shape), a, cast(neutral, a.dtype))
    out = operation(_strong(a), axes)
    if initial is not None:
        check_arraylike(name, initial)
        initial = ensure_array(initial)
        if initial.ndim:
            raise ArgumentError(
                f"{name} takes a scalar as initial, got {initial.aval.short()}.",
                fix=f"wnp.{combine.__name__}(initial, wnp.{name}(x, axis)) combines an array with the result",
            )
        out = combine(cast(initial, a.dtype), out)
    return keep_axes(out, axes, keepdims)


def _mask(name: str, where: Any) -> Array:
    """Convert a `where=` argument to an array of booleans."""
    check_arraylike(name, where)
    where = ensure_array(where)
    if where.dtype != np.bool_:
        raise ArgumentError(
            f"{name} needs booleans as where, got {where.aval.short()}.  Compare it, as in where=x != 0."
        )
    return where


def accumulation_integer(dtype: Any) -> Any:
    """Return the dtype in which integers and booleans are summed: at least the default width."""
    kind = dtypes.kind(dtype)
    if kind == "b":
        return dtypes.default_int_dtype()
    if kind in "iu":
        default = dtypes.default_int_dtype() if kind == "i" else dtypes.default_uint_dtype()
        return default if dtypes.iinfo(dtype).bits < dtypes.iinfo(default).bits else dtype
    return dtype


@document(
    "An array without the axes. Short floats are accumulated in float32; the order of additions "
    "depends neither on the number of threads nor on devices.",
    a="an array or a number. Lists raise: convert them with `asarray`.",
    promote_integers="whether short integers and booleans become the default integer type.",
)
def sum(
    a: ArrayLike,
    axis: int | Sequence[int] | None = None,
    dtype: DTypeLike | None = None,
    out: Any = None,
    keepdims: bool = False,
    initial: Any = None,
    where: ArrayLike | None = None,
    promote_integers: bool = True,
) -> Array:
    """Sum over axes. Short integers and booleans are summed in the default integer type.

    >>> import weft.numpy as wnp
    >>> x = wnp.array([[1, 2], [3, 4]])
    >>> wnp.sum(x)
    Array(10, dtype=int32)
    >>> wnp.sum(x, axis=0, where=wnp.array([[True, True], [False, True]]))
    Array([1, 6], dtype=int32)
    """
    a = _prepare("sum", a, dtype, out, promote_integers)
    operation = lax.reduce_sum if a.dtype != np.bool_ else lax.reduce_or
    return _reduce("sum", operation, add, a, axis, keepdims, initial, where, 0)


@document(
    "An array without the axes. Derivatives are right where factors are zero.",
    "wnp.prod(wnp.array([[1, 2], [3, 4]]), axis=1) -> Array([ 2, 12], dtype=int32)",
    a="an array or a number. Lists raise: convert them with `asarray`.",
    promote_integers="whether short integers and booleans become the default integer type.",
)
def prod(
    a: ArrayLike,
    axis: int | Sequence[int] | None = None,
    dtype: DTypeLike | None = None,
    out: Any = None,
    keepdims: bool = False,
    initial: Any = None,
    where: ArrayLike | None = None,
    promote_integers: bool = True,
) -> Array:
    """Multiply the elements over axes. Short integers and booleans are multiplied in the default integer type."""
    a = _prepare("prod", a, dtype, out, promote_integers)
    operation = lax.reduce_prod if a.dtype != np.bool_ else lax.reduce_and
    return _reduce("prod", operation, multiply, a, axis, keepdims, initial, where, 1)


def _prepare(name: str, a: Any, dtype: Any, out: Any, promote_integers: bool) -> Array:
    if not isinstance(a, Array):
        check_arraylike(name, a)
        a = ensure_array(a)
    check_no_out(name, out)
    if dtype is not None:
        return convert_dtype(a, canonical_dtype(dtype, name))
    if dtypes.kind(a.dtype) in ("biu" if promote_integers else "b"):
        return convert_dtype(a, accumulation_integer(a.dtype))
    return a


@document(
    "An array without the axes; NaN if there is one. Equal largest elements share the derivative. "
    "An empty axis without `initial` raises.",
    "wnp.max(wnp.array([[1, 2], [3, 4]]), axis=0) -> Array([3, 4], dtype=int32)",
    a="an array or a number. Lists raise: convert them with `asarray`.",
)
def max(
    a: ArrayLike,
    axis: int | Sequence[int] | None = None,
    out: Any = None,
    keepdims: bool = False,
    initial: Any = None,
    where: ArrayLike | None = None,
) -> Array:
    """Compute the maximum over axes."""
    return _extreme("max", lax.reduce_max, maximum, a, axis, out, keepdims, initial, where, least)


@document(
    "An array without the axes; NaN if there is one. Equal smallest elements share the "
    "derivative. An empty axis without `initial` raises.",
    "wnp.min(wnp.array([[1, 2], [3, 4]]), axis=0) -> Array([1, 2], dtype=int32)",
    a="an array or a number. Lists raise: convert them with `asarray`.",
)
def min(
    a: ArrayLike,
    axis: int | Sequence[int] | None = None,
    out: Any = None,
    keepdims: bool = False,
    initial: Any = None,
    where: ArrayLike | None = None,
) -> Array:
    """Compute the minimum over axes."""
    return _extreme("min", lax.reduce_min, minimum, a, axis, out, keepdims, initial, where, greatest)


amax = max


amin = min


def _extreme(
    name: str,
    operation: Callable[..., Any],
    combine: Callable[[Any, Any], Any],
    a: Any,
    axis: Any,
    out: Any,
    keepdims: bool,
    initial: Any,
    where: Any,
    neutral: Callable[[Any], Any],
) -> Array:
    check_arraylike(name, a)
    check_no_out(name, out)
    a = ensure_array(a)
    if initial is None:
        if where is not None:
            raise ArgumentError(
                f"reduction operation {name} does not have an identity, so to use a where mask one has to specify "
                f"'initial'."
            )
        axes = canonicalize_axes(axis, a.ndim, name)
        if builtins.any(a.shape[i] == 0 for i in axes):
            raise ArgumentError(f"zero-size array to reduction operation {name} which has no identity.")
    return _reduce(name, operation, combine, a, axis, keepdims, initial, where, neutral(a.dtype))


@document(
    "An array of booleans without the axes; true for empty axes.",
    "wnp.all(wnp.array([[True, False], [True, True]]), axis=1) -> Array([False,  True], dtype=bool)",
    a="an array or a number. Lists raise: convert them with `asarray`.",
)
def all(
    a: ArrayLike,
    axis: int | Sequence[int] | None = None,
    out: Any = None,
    keepdims: bool = False,
    *,
    where: ArrayLike | None = None,
) -> Array:
    """Test whether all elements over axes are true."""
    check_no_out("all", out)
    return _reduce(
        "all",
        lax.reduce_and,
        lax.bitwise_and,
        ensure_array(as_booleans("all", a)[0]),
        axis,
        keepdims,
        None,
        where,
        True,
    )


@document(
    "An array of booleans without the axes; false for empty axes.",
    "wnp.any(wnp.array([[True, False], [False, False]]), axis=1) -> Array([ True, False], dtype=bool)",
    a="an array or a number. Lists raise: convert them with `asarray`.",
)
def any(
    a: ArrayLike,
    axis: int | Sequence[int] | None = None,
    out: Any = None,
    keepdims: bool = False,
    *,
    where: ArrayLike | None = None,
) -> Array:
    """Test whether any element over axes is true."""
    check_no_out("any", out)
    return _reduce(
        "any", lax.reduce_or, lax.bitwise_or, ensure_array(as_booleans("any", a)[0]), axis, keepdims, None, where, False
    )


@document(
    "An array of integers without the axes.",
    "wnp.count_nonzero(wnp.array([0, 3, 0, 4])) -> Array(2, dtype=int32)",
    a="an array or a number. Lists raise: convert them with `asarray`.",
)
def count_nonzero(a: ArrayLike, axis: Any = None, keepdims: bool = False) -> Array:
    """Count the nonzero elements over axes."""
    check_arraylike("count_nonzero", a)
    return sum(as_booleans("count_nonzero", a)[0], axis=axis, dtype=dtypes.default_int_dtype(), keepdims=keepdims)


def ptp(a: ArrayLike, axis: Any = None, out: Any = None, keepdims: bool = False) -> Array:
    """Compute the difference of the largest and the smallest element over axes."""
    check_no_out("ptp", out)
    return subtract(max(a, axis, keepdims=keepdims), min(a, axis, keepdims=keepdims))


# ------------------------------------------------------------------------------------------------------ means


@document(
    "An array of floats without the axes; NaN for empty axes.",
    "wnp.mean(wnp.array([[1, 2], [3, 4]]), axis=0) -> Array([2., 3.], dtype=float32)",
    a="an array or a number. Lists raise: convert them with `asarray`.",
)
def mean(
    a: ArrayLike,
    axis: int | Sequence[int] | None = None,
    dtype: DTypeLike | None = None,
    out: Any = None,
    keepdims: bool = False,
    *,
    where: ArrayLike | None = None,
) -> Array:
    """Compute the mean over axes, in floating point; of short floats, in float32."""
    check_arraylike("mean", a)
    check_no_out("mean", out)
    a = ensure_array(a)
    out_dtype = _inexact(a) if dtype is None else canonical_dtype(dtype, "mean")
    compute_dtype = _compute_dtype(out_dtype, a)
    total = sum(a, axis, dtype=compute_dtype, keepdims=keepdims, where=where)
    return cast(_strong(true_divide(total, _count(a, axis, keepdims, where, compute_dtype))), out_dtype)


def _inexact(a: Array) -> Any:
    return dtypes.canonicalize_dtype(dtypes.to_inexact_dtype(a.dtype))


def _compute_dtype(out_dtype: Any, a: Array) -> Any:
    """Return the dtype in which a mean is computed."""
    if dtypes.kind(out_dtype) in "fc":
        return dtypes.accumulation_dtype(out_dtype)
    return dtypes.accumulation_dtype(_inexact(a))


def _count(a: Array, axis: Any, keepdims: bool, where: Any, dtype: Any) -> Any:
    """Count the elements that a mean is over."""
    if where is None:
        return cast(count_elements(a.shape, canonicalize_axes(axis, a.ndim, "mean")), dtype)
    mask = _mask("mean", where)
    mask = expand_to(mask, broadcast_shape("mean", a.shape, mask.shape))
    return sum(mask, axis, dtype=dtype, keepdims=keepdims)


def var(
    a: ArrayLike,
    axis: int | Sequence[int] | None = None,
    dtype: DTypeLike | None = None,
    out: Any = None,
    ddof: Any = 0,
    keepdims: bool = False,
    *,
    where: ArrayLike | None = None,
    mean: Any = None,
    correction: Any = None,
) -> Array:
    """Compute the mean squared distance from the mean over axes; `ddof` (or `correction`) is subtracted from the count.

    Args:
        a: an array or a number. Lists raise: convert them with `asarray`.
        axis: an axis or several; None for all.
        dtype: the dtype to compute in and of the result.
        out: must be None: arrays do not change, so nothing can be written into one.
        ddof, correction: the number to subtract from the count; two names for one thing.
        keepdims: whether to keep the reduced axes, with size 1.
        where: booleans that broadcast with the array; elements where they are false are ignored.
        mean: the mean with the axes at size 1, if it is known.

    Returns:
        An array of real floats without the axes. Computed as the mean of squared distances in two passes, so it does
        not cancel.

    >>> import weft.numpy as wnp
    >>> wnp.var(wnp.array([1.0, 2.0, 3.0, 4.0]))
    Array(1.25, dtype=float32)
    """
    check_arraylike("var", a)
    check_no_out("var", out)
    return _variance(ensure_array(a), axis, dtype, _correction("var", ddof, correction), keepdims, where, mean)


def std(
    a: ArrayLike,
    axis: int | Sequence[int] | None = None,
    dtype: DTypeLike | None = None,
    out: Any = None,
    ddof: Any = 0,
    keepdims: bool = False,
    *,
    where: ArrayLike | None = None,
    mean: Any = None,
    correction: Any = None,
) -> Array:
    """Compute the standard deviation over axes, the square root of the variance.

    Args:
        a: an array or a number. Lists raise: convert them with `asarray`.
        axis: an axis or several; None for all.
        dtype: the dtype to compute in and of the result.
        out: must be None: arrays do not change, so nothing can be written into one.
        ddof, correction: the number to subtract from the count; two names for one thing.
        keepdims: whether to keep the reduced axes, with size 1.
        where: booleans that broadcast with the array; elements where they are false are ignored.
        mean: the mean with the axes at size 1, if it is known.

    Returns:
        An array of real floats without the axes. Where all elements are equal the derivative is NaN: it is that of a
        square root at 0.

    >>> import weft.numpy as wnp
    >>> wnp.std(wnp.array([1.0, 3.0]))
    Array(1., dtype=float32)
    """
    check_arraylike("std", a)
    check_no_out("std", out)
    if dtype is not None and dtypes.kind(canonical_dtype(dtype, "std")) not in "fc":
        raise ArgumentError(f"dtype argument to weft.numpy.std must be inexact, got {dtype}.")
    return sqrt(_variance(ensure_array(a), axis, dtype, _correction("std", ddof, correction), keepdims, where, mean))


def _correction(name: str, ddof: Any, correction: Any) -> Any:
    if correction is None:
        return ddof
    if not isinstance(ddof, Array) and ddof != 0:
        raise ArgumentError(f"{name} takes ddof or correction, which mean the same, not both.")
    return correction


def _variance(a: Array, axis: Any, dtype: Any, ddof: Any, keepdims: bool, where: Any, center: Any) -> Array:
    out_dtype = dtypes.to_real_dtype(_inexact(a)) if dtype is None else canonical_dtype(dtype, "var")
    if dtypes.kind(out_dtype) not in "fc":
        raise ArgumentError(f"dtype argument to weft.numpy.var must be inexact, got {out_dtype}.")
    with numpy_dtype_promotion("standard"):  # both are the caller's choice
        compute_dtype = _compute_dtype(
            _inexact(a) if dtype is None else dtypes.promote_types(out_dtype, _inexact(a)), a
        )
    a = convert_dtype(a, compute_dtype)
    if center is None:
        center = mean(a, axis, keepdims=True, where=where)
    centered = subtract(a, center)
    squares = real(multiply(centered, conjugate(centered))) if dtype_kind(centered) == "c" else lax.square(centered)
    count = _count(a, axis, keepdims, where, dtypes.to_real_dtype(compute_dtype))
    count = subtract(count, cast(ensure_array(ddof), count.dtype))
    # Too few elements have no variance: neither infinity nor the negative number that a division would return.
    count = choose(lax.gt(count, cast(0, count.dtype)), count, cast(math.nan, count.dtype))
    out = true_divide(sum(squares, axis, keepdims=keepdims, where=where), count)
    return cast(_strong(out), dtypes.to_real_dtype(out_dtype) if dtype is None else out_dtype)


def average(
    a: ArrayLike,
    axis: int | Sequence[int] | None = None,
    weights: ArrayLike | None = None,
    returned: bool = False,
    keepdims: bool = False,
) -> Any:
    """Compute the weighted mean over axes; with `returned`, also return the sum of the weights.

    Args:
        a: an array or a number. Lists raise: convert them with `asarray`.
        axis: an axis or several; None for all.
        weights: an array of the shape of `a`, or a vector along the one axis.
        returned: whether to return the sum of the weights too.
        keepdims: whether to keep the reduced axes, with size 1.

    Returns:
        An array of floats without the axes; with `returned`, a pair of it and the sum of weights.

    >>> import weft.numpy as wnp
    >>> wnp.average(wnp.array([1.0, 2.0]), weights=wnp.array([3.0, 1.0]))
    Array(1.25, dtype=float32)
    """
    check_arraylike("average", a)
    a = ensure_array(a)
    if weights is None:
        out = mean(a, axis, keepdims=keepdims)
        if not returned:
            return out
        return out, full_array(
            out.shape, count_elements(a.shape, canonicalize_axes(axis, a.ndim, "average")), out.dtype
        )
    check_arraylike("average", weights)
    weights = ensure_array(weights)
    compute_dtype = dtypes.canonicalize_dtype(dtypes.to_inexact_dtype(dtypes.result_type(a, weights)))
    a, weights = convert_dtype(a, compute_dtype), convert_dtype(weights, compute_dtype)
    if a.shape != weights.shape:
        axes = _weight_axes(a, axis, weights)
        if weights.ndim > 1:  # weights come in the order in which the axes were named
            weights = lax.transpose(weights, tuple(np.argsort(axes).tolist()))
        shape = tuple(a.shape[i] if i in axes else 1 for i in range(a.ndim))
        weights = expand_to(lax.reshape(weights, shape), a.shape)
    scale = sum(weights, axis, keepdims=keepdims)
    out = true_divide(sum(multiply(a, weights), axis, keepdims=keepdims), scale)
    return (out, scale) if returned else out


def _weight_axes(a: Array, axis: Any, weights: Array) -> tuple[int, ...]:
    if axis is None:
        raise ArgumentError(f"average needs an axis when shapes differ: weights {weights.shape}, a {a.shape}.")
    axes = canonicalize_axes(axis, a.ndim, "average")
    if weights.shape != tuple(a.shape[i] for i in axes):
        raise ArgumentError(
            f"average got weights of shape {weights.shape}, which is not that of a along axis {axis}: "
            f"{tuple(a.shape[i] for i in axes)}."
        )
    return axes


# --------------------------------------------------------------------------------------- positions of extrema


@document(
    "An array of int32 positions. NaN counts as the largest.",
    "wnp.argmax(wnp.array([[1, 5, 5], [7, 0, 2]]), axis=1) -> Array([1, 0], dtype=int32)",
    a="an array or a number. Lists raise: convert them with `asarray`.",
    axis="an axis; None for the flattened array.",
)
def argmax(a: ArrayLike, axis: int | None = None, out: Any = None, keepdims: bool | None = None) -> Array:
    """Return the index of the first largest element along an axis, or in the flattened array."""
    return _position("argmax", lax.argmax, a, axis, out, keepdims)


@document(
    "An array of int32 positions. NaN counts as the smallest.",
    "wnp.argmin(wnp.array([[1, 5, 1], [7, 0, 2]]), axis=1) -> Array([0, 1], dtype=int32)",
    a="an array or a number. Lists raise: convert them with `asarray`.",
    axis="an axis; None for the flattened array.",
)
def argmin(a: ArrayLike, axis: int | None = None, out: Any = None, keepdims: bool | None = None) -> Array:
    """Return the index of the first smallest element along an axis, or in the flattened array."""
    return _position("argmin", lax.argmin, a, axis, out, keepdims)


def _position(name: str, operation: Callable[..., Any], a: Any, axis: Any, out: Any, keepdims: bool | None) -> Array:
    check_arraylike(name, a)
    check_no_out(name, out)
    a = ensure_array(a)
    rank = a.ndim
    if axis is None:
        a, dim = lax.reshape(a, (a.size,)), 0
    else:
        dim = canonicalize_axis(axis, rank, name)
    if a.shape[dim] == 0:
        raise ArgumentError(f"attempt to get {name} of an empty sequence.")
    if type(a.shape[dim]) is int and a.shape[dim] > 2**31 and not config.enable_x64:
        raise ArgumentError(
            f"{name} needs positions of 64 bits for an axis of {a.shape[dim]} elements.",
            received=f"{a.aval.short()}, and enable_x64 is off",
            fix="with weft.enable_x64(True):",
            at=user_line(),
        )
    result = operation(a, dim, dtypes.default_int_dtype())
    if not keepdims:
        return result
    return lax.expand_dims(result, tuple(range(rank)) if axis is None else (dim,))


# ------------------------------------------------------------------------------------------ ignoring NaN


def _without_nan(name: str, a: Any, value: Any) -> tuple[Array, Array | None]:
    """Replace NaN by `value`, a number or a function of the dtype.

    Returns the array and the mask of replaced elements, which is None for integers.
    """
    check_arraylike(name, a)
    a = ensure_array(a)
    if dtype_kind(a) in "biu":
        return a, None
    missing = isnan(a)
    return choose(missing, cast(value(a.dtype) if callable(value) else value, a.dtype), a), missing


@document(
    "An array without the axes; 0 where all are NaN.",
    "wnp.nansum(wnp.array([1.0, wnp.nan])) -> Array(1., dtype=float32)",
    a="an array or a number. Lists raise: convert them with `asarray`.",
)
def nansum(
    a: ArrayLike,
    axis: Any = None,
    dtype: DTypeLike | None = None,
    out: Any = None,
    keepdims: bool = False,
    initial: Any = None,
    where: ArrayLike | None = None,
) -> Array:
    """Sum over axes, ignoring NaN."""
    return sum(_without_nan("nansum", a, 0)[0], axis, dtype, out, keepdims, initial, where)


def nanprod(
    a: Any,
    axis: Any = None,
    dtype: DTypeLike | None = None,
    out: Any = None,
    keepdims: bool = False,
    initial: Any = None,
    where: ArrayLike | None = None,
) -> Array:
    """Multiply the elements over axes, ignoring NaN."""
    return prod(_without_nan("nanprod", a, 1)[0], axis, dtype, out, keepdims, initial, where)


def nanmax(
    a: ArrayLike,
    axis: Any = None,
    out: Any = None,
    keepdims: bool = False,
    initial: Any = None,
    where: ArrayLike | None = None,
) -> Array:
    """Compute the maximum over axes, ignoring NaN; NaN where all are NaN."""
    plain, missing = _without_nan("nanmax", a, least)
    return _unless_missing(max(plain, axis, out, keepdims, initial, where), missing, axis, keepdims, initial, where)


def nanmin(
    a: ArrayLike,
    axis: Any = None,
    out: Any = None,
    keepdims: bool = False,
    initial: Any = None,
    where: ArrayLike | None = None,
) -> Array:
    """Compute the minimum over axes, ignoring NaN; NaN where all are NaN."""
    plain, missing = _without_nan("nanmin", a, greatest)
    return _unless_missing(min(plain, axis, out, keepdims, initial, where), missing, axis, keepdims, initial, where)


def _unless_missing(out: Array, missing: Any, axis: Any, keepdims: bool, initial: Any, where: Any) -> Array:
    if missing is None or initial is not None:
        return out
    return select_where(all(missing, axis, keepdims=keepdims, where=where), scalar_like(out, math.nan), out)


@document(
    "An array of floats without the axes; NaN where all are NaN.",
    "wnp.nanmean(wnp.array([1.0, wnp.nan, 3.0])) -> Array(2., dtype=float32)",
    a="an array or a number. Lists raise: convert them with `asarray`.",
)
def nanmean(
    a: ArrayLike,
    axis: Any = None,
    dtype: DTypeLike | None = None,
    out: Any = None,
    keepdims: bool = False,
    where: ArrayLike | None = None,
) -> Array:
    """Compute the mean over axes, ignoring NaN."""
    plain, missing = _without_nan("nanmean", a, 0)
    if missing is None:
        return mean(plain, axis, dtype, out, keepdims, where=where)
    return mean(plain, axis, dtype, out, keepdims, where=_present(missing, where))


def _present(missing: Array, where: Any) -> Any:
    present = lax.bitwise_not(missing)
    return present if where is None else logical_and(present, _mask("nanmean", where))


def nanvar(
    a: ArrayLike,
    axis: Any = None,
    dtype: DTypeLike | None = None,
    out: Any = None,
    ddof: Any = 0,
    keepdims: bool = False,
    where: ArrayLike | None = None,
    mean: Any = None,
) -> Array:
    """Compute the variance over axes, ignoring NaN; NaN where too few elements are left."""
    plain, missing = _without_nan("nanvar", a, 0)
    present = where if missing is None else _present(missing, where)
    return var(plain, axis, dtype, out, ddof, keepdims, where=present, mean=mean)


def nanstd(
    a: ArrayLike,
    axis: int | Sequence[int] | None = None,
    dtype: DTypeLike | None = None,
    out: Any = None,
    ddof: Any = 0,
    keepdims: bool = False,
    where: ArrayLike | None = None,
    mean: Any = None,
) -> Array:
    """Compute the standard deviation over axes, ignoring NaN."""
    return sqrt(nanvar(a, axis, dtype, out, ddof, keepdims, where, mean))


def nanargmax(a: Any, axis: int | None = None, out: Any = None, keepdims: bool | None = None) -> Array:
    """Return the index of the first largest number along an axis; -1 where all are NaN."""
    return _nan_position("nanargmax", argmax, a, least, axis, out, keepdims)


def nanargmin(a: Any, axis: int | None = None, out: Any = None, keepdims: bool | None = None) -> Array:
    """Return the index of the first smallest number along an axis; -1 where all are NaN."""
    return _nan_position("nanargmin", argmin, a, greatest, axis, out, keepdims)


def _nan_position(
    name: str, operation: Any, a: Any, value: Callable[[Any], Any], axis: Any, out: Any, keepdims: bool | None
) -> Array:
    plain, missing = _without_nan(name, a, value)
    result = operation(plain, axis, out, keepdims)
    if missing is None:
        return result
    return select_where(all(missing, axis, keepdims=bool(keepdims)), scalar_like(result, -1), result)
