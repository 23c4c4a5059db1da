"""Differences, integrals, interpolation, convolution, window functions and cross products."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from weft import lax
from weft.base import dtypes
from weft.base.arguments import index
from weft.base.errors import ArgumentError, ArgumentTypeError
from weft.indexing.dimension import index_or_size
from weft.numpy.complex_parts import conjugate
from weft.numpy.creation import convert_dtype
from weft.numpy.elementwise import multiply, remainder, subtract
from weft.numpy.extremes import clip
from weft.numpy.joining import concatenate
from weft.numpy.logic import not_equal
from weft.numpy.manipulation import broadcast_arrays, broadcast_to, moveaxis, ravel
from weft.numpy.reductions import sum as reduce_sum
from weft.numpy.selection import take_in_bounds, where
from weft.numpy.sorting import argsort, searchsorted
from weft.numpy.util import (
    canonicalize_axes,
    canonicalize_axis,
    cast,
    check_arraylike,
    check_arraylike_or_none,
    dtype_kind,
    ensure_array,
    promote_dtypes,
    promote_dtypes_inexact,
)
from weft.trace.annotations import ArrayLike, DTypeLike
from weft.trace.array import Array


def _part(a: Array, start: int, stop: int, axis: int) -> Array:
    return lax.slice_in_dim(a, start, stop, axis=axis)


def diff(a: ArrayLike, n: int = 1, axis: int = -1, prepend: Any = None, append: Any = None) -> Array:
    """Compute the differences of neighbouring elements along an axis, `n` times.

    Args:
        a: an array.
        n: the number of times to take differences.
        axis: the axis.
        prepend, append: values before and after, so that the result can be as long as `a`.

    Returns:
        An array, `n` shorter along the axis.

    >>> import weft.numpy as wnp
    >>> wnp.diff(wnp.array([1, 4, 9]))
    Array([3, 5], dtype=int32)
    """
    check_arraylike("diff", a)
    check_arraylike_or_none("diff", prepend, append)
    a = ensure_array(a)
    count = index(n)
    if count == 0:
        return a
    if count < 0:
        raise ArgumentError(f"order must be non-negative but got {count}.")
    if a.ndim == 0:
        raise ArgumentError("diff requires input that is at least one dimensional.")
    dim = canonicalize_axis(axis, a.ndim, "diff")
    parts = []
    for extra in (prepend, None, append):
        if extra is None:
            parts.append(a)
            continue
        extra = ensure_array(extra)
        if extra.ndim == 0:
            extra = broadcast_to(extra, tuple(1 if i == dim else s for i, s in enumerate(a.shape)))
        parts.append(extra)
    chosen = [p for p, extra in zip(parts, (prepend, True, append), strict=True) if extra is not None]
    if len(chosen) > 1:
        a = concatenate(chosen, dim)
    operation = not_equal if dtype_kind(a) == "b" else subtract
    for _ in range(count):
        length = a.shape[dim]
        if not length:
            break
        after, before = lax.slice_in_dim(a, 1, length, axis=dim), lax.slice_in_dim(a, 0, length - 1, axis=dim)
        a = operation(after, before)
    return a


def ediff1d(ary: ArrayLike, to_end: Any = None, to_begin: Any = None) -> Array:
    """Compute the differences of neighbouring elements of the flattened array, with values put before and after."""
    check_arraylike("ediff1d", ary)
    check_arraylike_or_none("ediff1d", to_end, to_begin)
    a = ravel(ary)
    out = a[1:] - a[:-1]
    parts = [
        ravel(convert_dtype(ensure_array(x), a.dtype)) if x is not out else out
        for x in (to_begin, out, to_end)
        if x is not None
    ]
    return concatenate(parts) if len(parts) > 1 else out


def gradient(f: ArrayLike, *varargs: ArrayLike, axis: Any = None, edge_order: int | None = None) -> Any:
    """Approximate the derivative along axes by central differences, one-sided at the ends.

    Returns an array for one axis, or a list with one for each of several axes.
    """
    check_arraylike("gradient", f, *varargs)
    if edge_order not in (None, 1):
        raise ArgumentError("gradient takes one-sided differences of first order at the ends only.")
    # Positions and steps of short integers would wrap around in differences, so all become floats first.
    a, *spacings = (ensure_array(x) for x in promote_dtypes_inexact(f, *varargs))
    axes = canonicalize_axes(axis, a.ndim, "gradient")
    if not axes:
        return []
    if any(a.shape[i] < 2 for i in axes):
        raise ArgumentError(f"Shape of array too small to calculate a numerical gradient: {a.shape}.")
    spacings = spacings or [ensure_array(1.0)]
    if len(spacings) == 1:
        spacings = spacings * len(axes)
    if len(spacings) != len(axes):
        raise ArgumentTypeError(f"gradient takes one spacing, or one for each of {len(axes)} axes, got {len(varargs)}.")
    parts = [_gradient_along(a, h, dim) for h, dim in zip(spacings, axes, strict=True)]
    return parts[0] if len(parts) == 1 else parts


def _gradient_along(a: Array, step: Array, axis: int) -> Array:
    length = a.shape[axis]
    first, second = _part(a, 0, 1, axis), _part(a, 1, 2, axis)
    before_last, last = _part(a, length - 2, length - 1, axis), _part(a, length - 1, length, axis)
    left, right, middle = _part(a, 0, length - 2, axis), _part(a, 2, length, axis), _part(a, 1, length - 1, axis)
    if step.ndim == 0:
        inner = (right - left) / (step * 2)
        return concatenate([(second - first) / step, inner, (last - before_last) / step], axis)
    if step.ndim != 1 or step.shape[0] != length:
        raise ArgumentError(f"gradient takes a number or {length} positions along axis {axis}, got {step.shape}.")
    gaps = step[1:] - step[:-1]
    shape = tuple(-1 if i == axis else 1 for i in range(a.ndim))
    gaps = lax.reshape(gaps, tuple(length - 1 if n == -1 else 1 for n in shape))
    low, high = _part(gaps, 0, length - 2, axis), _part(gaps, 1, length - 1, axis)
    inner = (
        left * (-high / (low * (low + high)))
        + middle * ((high - low) / (low * high))
        + right * (low / (high * (low + high)))
    )
    start = (second - first) / _part(gaps, 0, 1, axis)
    end = (last - before_last) / _part(gaps, length - 2, length - 1, axis)
    return concatenate([start, inner, end], axis)


def trapezoid(y: ArrayLike, x: ArrayLike | None = None, dx: Any = 1.0, axis: int = -1) -> Array:
    """Integrate along an axis by the trapezoidal rule, over positions `x` or with steps of `dx`."""
    check_arraylike("trapezoid", y)
    check_arraylike_or_none("trapezoid", x)
    if x is None:
        (y,) = promote_dtypes_inexact(y)
    values, other = (ensure_array(v) for v in promote_dtypes_inexact(y, dx if x is None else x))
    dim = canonicalize_axis(axis, values.ndim, "trapezoid")
    width = other  # steps broadcast as they are against the intervals
    if x is not None:
        if not other.ndim:
            raise ArgumentError(
                "trapezoid needs one x for each y.", received="a number", fix="dx=0.5   for equal steps"
            )
        # As in NumPy, the axis counts in x too: from the end where it is given so.
        along = canonicalize_axis(axis, other.ndim, "trapezoid") if other.ndim != 1 else 0
        width = lax.sub(_after(other, along), _before(other, along))
        if other.ndim == 1:
            width = lax.expand_dims(width, tuple(i for i in range(values.ndim) if i != dim))
    heights = lax.add(_after(values, dim), _before(values, dim))
    if 0 < width.ndim < heights.ndim:
        width = lax.expand_dims(width, tuple(range(heights.ndim - width.ndim)))
    areas = multiply(width, heights)
    return multiply(reduce_sum(areas, dim - values.ndim), cast(0.5, values.dtype))


def _before(a: Array, axis: int) -> Array:
    """Slice off the last element along an axis."""
    return lax.slice_in_dim(a, 0, max(a.shape[axis] - 1, 0), axis=axis)


def _after(a: Array, axis: int) -> Array:
    """Slice off the first element along an axis."""
    return lax.slice_in_dim(a, min(1, a.shape[axis]), None, axis=axis)


def interp(
    x: ArrayLike, xp: Any, fp: Any, left: ArrayLike | None = None, right: Any = None, period: Any = None
) -> Array:
    """Interpolate linearly between given points; outside of them return `left` and `right`, by default the end values.

    'extrapolate' for `left` or `right` extends the line through the last two points.

    Args:
        x: the positions to evaluate at.
        xp: increasing positions of the known values.
        fp: the known values.
        left, right: the values outside, or "extrapolate".
        period: the period of positions, if they repeat.

    Returns:
        An array of the shape of `x`, differentiable in `x`, `xp` and `fp`.

    >>> import weft.numpy as wnp
    >>> wnp.interp(0.5, wnp.array([0.0, 1.0]), wnp.array([10.0, 20.0]))
    Array(15., dtype=float32)
    """
    check_arraylike("interp", x, xp, fp)
    if np.shape(xp) != np.shape(fp) or np.ndim(xp) != 1:
        raise ArgumentError(
            f"xp and fp must be one-dimensional arrays of equal size, got {np.shape(xp)} and {np.shape(fp)}."
        )
    x, xp = (ensure_array(v) for v in promote_dtypes_inexact(x, xp))
    (fp,) = promote_dtypes_inexact(fp)
    fp = ensure_array(fp)
    if dtype_kind(x) == "c":
        raise ArgumentError("interp takes real positions, got complex ones.")
    if period is not None:
        length = abs(period)
        x, xp = remainder(x, length), remainder(xp, length)
        order = argsort(xp)
        xp, fp = xp[order], fp[order]
        xp = concatenate([xp[-1:] - length, xp, xp[:1] + length])
        fp = concatenate([fp[-1:], fp, fp[:1]])
    count = xp.shape[0]
    if count == 1:
        return broadcast_to(fp[0], x.shape)
    upper = clip(searchsorted(xp, x, side="right"), 1, count - 1)
    low_x, high_x = take_in_bounds(xp, upper - 1, 0), take_in_bounds(xp, upper, 0)
    low_f, high_f = take_in_bounds(fp, upper - 1, 0), take_in_bounds(fp, upper, 0)
    width = high_x - low_x
    flat = lax.lt(lax.abs(width), cast(np.spacing(dtypes.finfo(xp.dtype).eps), xp.dtype))
    ratio = (x - low_x) / where(flat, 1, width)
    out = where(flat, low_f, low_f + ratio * (high_f - low_f))
    if period is None:
        for value, outside, end in ((left, x < xp[0], fp[0]), (right, x > xp[-1], fp[-1])):
            if isinstance(value, str):
                if value != "extrapolate":
                    raise ArgumentError(
                        f"the only valid string value of `left` and `right` is 'extrapolate', got {value!r}"
                    )
            else:
                out = where(outside, end if value is None else value, out)
    return convert_dtype(out, out.dtype)


# ---------------------------------------------------------------------------------------------- products along an axis


def convolve(
    a: ArrayLike,
    v: ArrayLike,
    mode: str = "full",
    *,
    precision: Any = None,
    preferred_element_type: DTypeLike | None = None,
) -> Array:
    """Convolve two vectors; `mode` 'full', 'same' or 'valid' says how far they overlap.

    Args:
        a, v: vectors.
        mode: "full", "same" or "valid".
        precision: how exact products are where hardware has shorter formats, see `weft.lax.Precision`.
        preferred_element_type: the dtype to accumulate in and of the result; by default promoted from the operands,
            with sums of short floats in float32.

    Returns:
        A vector.

    >>> import weft.numpy as wnp
    >>> wnp.convolve(wnp.array([1.0, 2.0]), wnp.array([1.0, 1.0]))
    Array([1., 3., 2.], dtype=float32)
    """
    return _slide("convolve", a, v, mode, precision, preferred_element_type)


def correlate(
    a: ArrayLike,
    v: ArrayLike,
    mode: str = "valid",
    *,
    precision: Any = None,
    preferred_element_type: DTypeLike | None = None,
) -> Array:
    """Cross-correlate two vectors; `mode` 'valid', 'same' or 'full' says how far they overlap."""
    return _slide("correlate", a, v, mode, precision, preferred_element_type)


def _slide(name: str, a: Any, v: Any, mode: str, precision: Any, preferred: Any) -> Array:
    check_arraylike(name, a, v)
    # Integers are convolved in floating point, unless `preferred` requests integers.
    promoted = promote_dtypes_inexact if preferred is None else promote_dtypes
    x, kernel = (ensure_array(t) for t in promoted(a, v))
    if x.ndim != 1 or kernel.ndim != 1:
        raise ArgumentError(f"{name}() only support 1-dimensional inputs, got {x.shape} and {kernel.shape}.")
    if not x.size or not kernel.size:
        raise ArgumentError(f"{name}: inputs cannot be empty, got shapes {x.shape} and {kernel.shape}.")
    backward = False
    if name == "correlate":
        kernel = conjugate(kernel)
    if x.shape[0] < kernel.shape[0]:
        x, kernel = kernel, x
        backward = name == "correlate"  # the correlation of swapped operands is the reversed one
    if name == "convolve":
        kernel = lax.rev(kernel, (0,))
    size = kernel.shape[0]
    if mode == "valid":
        padding = [(0, 0)]
    elif mode == "same":
        padding = [(size // 2, size - size // 2 - 1)]
    elif mode == "full":
        padding = [(size - 1, size - 1)]
    else:
        raise ArgumentError(f"mode must be one of ['full', 'same', 'valid'], got {mode!r}.")
    out = lax.conv_general_dilated(
        x[None, None, :],
        kernel[None, None, :],
        (1,),
        padding,
        precision=precision,
        preferred_element_type=preferred,
    )[0, 0]
    return lax.rev(out, (0,)) if backward else out


def cross(
    a: ArrayLike, b: ArrayLike, axisa: int = -1, axisb: int = -1, axisc: int = -1, axis: int | None = None
) -> Array:
    """Compute the cross product of vectors of 2 or 3 elements; of two vectors of 2, only its third element.

    Args:
        a, b: arrays with 2 or 3 elements along an axis; other axes broadcast.
        axisa, axisb: the axis of vectors in `a` and `b`.
        axisc: the axis of vectors in the result.
        axis: one axis for all three.

    Returns:
        An array.

    >>> import weft.numpy as wnp
    >>> wnp.cross(wnp.array([1, 0, 0]), wnp.array([0, 1, 0]))
    Array([0, 0, 1], dtype=int32)
    """
    check_arraylike("cross", a, b)
    if axis is not None:
        axisa = axisb = axisc = axis
    a, b = (ensure_array(x) for x in promote_dtypes(a, b))
    a, b = moveaxis(a, axisa, -1), moveaxis(b, axisb, -1)
    if a.shape[-1] not in (2, 3) or b.shape[-1] not in (2, 3):
        raise ArgumentError(f"cross takes vectors of 2 or 3 elements, got {a.shape[-1]} and {b.shape[-1]}.")
    flat = a.shape[-1] == 2 and b.shape[-1] == 2

    def parts(x: Array) -> list[Array]:
        found = [x[..., i] for i in range(x.shape[-1])]
        return found if len(found) == 3 else [*found, lax.full_like(found[0], 0)]

    a1, a2, a3 = parts(a)
    b1, b2, b3 = parts(b)
    third = a1 * b2 - a2 * b1
    if flat:
        return third
    coordinates = broadcast_arrays(a2 * b3 - a3 * b2, a3 * b1 - a1 * b3, third)
    return moveaxis(
        lax.concatenate([lax.expand_dims(x, (x.ndim,)) for x in coordinates], coordinates[0].ndim), -1, axisc
    )


# ------------------------------------------------------------------------------------------------------------ windows


def _window(M: Any) -> tuple[int, Any]:
    """Return the number of points of a window and its dtype; a float is rounded towards 0, as in JAX."""
    is_float = isinstance(M, float) or dtypes.kind(getattr(M, "dtype", np.dtype(np.int32))) == "f"
    count = index_or_size(int(M) if is_float else M)
    if count < 0:
        raise ArgumentTypeError(
            "A window cannot have fewer than 0 points.", received=str(M), fix="pass the number of points, 0 or more"
        )
    return count, dtypes.canonicalize_dtype(np.float64)


def bartlett(M: int) -> Array:
    """Create a triangular window of `M` points."""
    count, dtype = _window(M)
    if count <= 1:
        return lax.full((count,), 1.0, dtype)
    n = lax.iota(dtype, count)
    return 1 - abs(2 * n + (1 - count)) / (count - 1)


def blackman(M: int) -> Array:
    """Create a window of `M` points from three cosine terms, which nearly vanishes at the ends."""
    count, dtype = _window(M)
    if count <= 1:
        return lax.full((count,), 1.0, dtype)
    n = lax.iota(dtype, count)
    return 0.42 - 0.5 * lax.cos(2 * math.pi * n / (count - 1)) + 0.08 * lax.cos(4 * math.pi * n / (count - 1))


def hamming(M: int) -> Array:
    """Create a raised cosine window of `M` points that does not vanish at the ends."""
    count, dtype = _window(M)
    if count <= 1:
        return lax.full((count,), 1.0, dtype)
    return 0.54 - 0.46 * lax.cos(2 * math.pi * lax.iota(dtype, count) / (count - 1))


def hanning(M: int) -> Array:
    """Create a raised cosine window of `M` points that vanishes at the ends."""
    count, dtype = _window(M)
    if count <= 1:
        return lax.full((count,), 1.0, dtype)
    return 0.5 - 0.5 * lax.cos(2 * math.pi * lax.iota(dtype, count) / (count - 1))


def kaiser(M: int, beta: ArrayLike) -> Array:
    """Create a window of `M` points from a Bessel function; larger `beta` makes it narrower."""
    count, dtype = _window(M)
    if count <= 1:
        return lax.full((count,), 1.0, dtype)
    half = 0.5 * (count - 1)
    shape = cast(ensure_array(beta), dtype)
    n = lax.iota(dtype, count)
    inside = shape * lax.sqrt(1 - lax.square((n - half) / half))
    return lax.exp(inside - abs(shape)) * lax.bessel_i0e(inside) / lax.bessel_i0e(shape)
