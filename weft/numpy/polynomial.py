"""Polynomials as vectors of coefficients, the highest power first."""

from __future__ import annotations

from typing import Any

import numpy as np

from weft import lax
from weft.base import dtypes
from weft.base.arguments import index
from weft.base.errors import ArgumentError, ArgumentTypeError
from weft.numpy.argument_docs import document
from weft.numpy.calculus import convolve
from weft.numpy.contraction import dot
from weft.numpy.creation import convert_dtype, full_array
from weft.numpy.diagonals import eye, vander
from weft.numpy.joining import concatenate
from weft.numpy.linalg.decompositions import eigvals
from weft.numpy.linalg.solving import inv, lstsq
from weft.numpy.manipulation import atleast_1d, ravel
from weft.numpy.reductions import sum as reduce_sum
from weft.numpy.selection import where
from weft.numpy.transcendental import sqrt
from weft.numpy.util import (
    check_arraylike,
    concrete_or_error,
    dtype_kind,
    ensure_array,
    promote_dtypes,
    promote_dtypes_inexact,
)
from weft.trace.annotations import ArrayLike
from weft.trace.array import Array


def polyval(p: ArrayLike, x: ArrayLike, *, unroll: int = 16) -> Array:
    """Evaluate the polynomial with coefficients `p` at `x`.

    Args:
        p: coefficients along the first axis, the highest power first.
        x: the positions to evaluate at.
        unroll: the number of steps up to which the loop is unrolled, and the unrolling of a longer loop.

    Returns:
        An array of the shape of `x`, by Horner's scheme.

    >>> import weft.numpy as wnp
    >>> wnp.polyval(wnp.array([1, 0, 2]), 3)
    Array(11, dtype=int32)
    """
    check_arraylike("polyval", p, x)
    coefficients, at = (ensure_array(v) for v in promote_dtypes(p, x))
    if not coefficients.ndim:
        raise ArgumentError("polyval needs coefficients along an axis.", received="a number", fix="wnp.array([p])")
    shape = lax.broadcast_shapes(coefficients.shape[1:], at.shape)
    out = full_array(shape, 0, at.dtype)
    if coefficients.shape[0] <= unroll:
        for i in range(coefficients.shape[0]):
            out = out * at + coefficients[i]
        return out
    return lax.scan(lambda y, c: (y * at + c, None), out, coefficients, unroll=unroll)[0]


@document("Coefficients.", "wnp.polyadd(wnp.array([1, 0]), wnp.array([3])) -> Array([1, 3], dtype=int32)")
def polyadd(a1: Any, a2: Any) -> Array:
    """Add two polynomials."""
    first, second = _align("polyadd", a1, a2)
    return first + second


@document("Coefficients.", "wnp.polysub(wnp.array([1, 0]), wnp.array([3])) -> Array([ 1, -3], dtype=int32)")
def polysub(a1: Any, a2: Any) -> Array:
    """Subtract a polynomial from another."""
    first, second = _align("polysub", a1, a2)
    return first - second


def _align(name: str, *args: Any) -> list[Array]:
    """Pad coefficients of polynomials to the same powers; further axes are independent polynomials."""
    check_arraylike(name, *args)
    arrays = [atleast_1d(x) for x in promote_dtypes(*args)]
    length = max(x.shape[0] for x in arrays)
    rest = [[(0, 0, 0)] * (x.ndim - 1) for x in arrays]
    return [
        lax.pad(x, np.zeros((), x.dtype), [(length - x.shape[0], 0, 0), *others])
        for x, others in zip(arrays, rest, strict=True)
    ]


@document(
    "Coefficients.",
    "wnp.polymul(wnp.array([1, 1]), wnp.array([1, -1])) -> Array([ 1.,  0., -1.], dtype=float32)",
    trim_leading_zeros="whether zeros before the highest power are removed first.",
)
def polymul(a1: Any, a2: Any, *, trim_leading_zeros: bool = False) -> Array:
    """Multiply two polynomials."""
    check_arraylike("polymul", a1, a2)
    first, second = (atleast_1d(x) for x in promote_dtypes_inexact(a1, a2))
    if trim_leading_zeros:
        first, second = _trim(first), _trim(second)
    first = first if first.shape[0] else full_array((1,), 0, first.dtype)
    second = second if second.shape[0] else full_array((1,), 0, second.dtype)
    return convolve(first, second, mode="full")


def _trim(p: Array) -> Array:
    known = concrete_or_error(
        p, "Leading zeros can be removed only where the coefficients are known.", "trim_leading_zeros=False"
    )
    present = np.flatnonzero(known)
    return p[int(present[0]) :] if present.size else p[-1:]


def polydiv(u: Any, v: Any, *, trim_leading_zeros: bool = False) -> tuple[Array, Array]:
    """Divide one polynomial by another; return quotient and remainder."""
    check_arraylike("polydiv", u, v)
    rest, divisor = (atleast_1d(x) for x in promote_dtypes_inexact(u, v))
    steps, width = rest.shape[0] - divisor.shape[0] + 1, divisor.shape[0]
    terms = []
    for i in range(max(steps, 0)):
        term = rest[i] / divisor[0]
        terms.append(term)
        rest = rest.at[i : i + width].add(-term * divisor)
    quotient = concatenate([lax.reshape(t, (1,)) for t in terms]) if terms else full_array((1,), 0, rest.dtype)
    return quotient, _trim(rest) if trim_leading_zeros else rest


@document(
    "Coefficients.",
    "wnp.polyder(wnp.array([1, 0, 2])) -> Array([2., 0.], dtype=float32)",
    p="coefficients, the highest power first.",
    m="the order of the derivative.",
)
def polyder(p: ArrayLike, m: int = 1) -> Array:
    """Differentiate a polynomial `m` times."""
    check_arraylike("polyder", p)
    times = index(m)
    if times < 0:
        raise ArgumentError(f"Order of derivative must be positive, got {times}.")
    (p,) = promote_dtypes_inexact(p)
    p = ensure_array(p)
    _check_coefficients("polyder", p)
    if times == 0:
        return p
    length = max(p.shape[0] - times, 0)
    if not length:
        return full_array((0,), 0, p.dtype)
    powers = np.arange(p.shape[0] - 1, times - 1, -1)
    factors = np.prod([powers - i for i in range(times)], axis=0)
    return p[:-times] * ensure_array(factors.astype(p.dtype))


def _check_coefficients(name: str, p: Array) -> None:
    if p.ndim != 1:
        what = f"{name} takes coefficients of rank 1, got shape {p.shape}."
        raise ArgumentError(what, fix="wnp.atleast_1d(p)   for a constant" if not p.ndim else None)


def polyint(p: ArrayLike, m: int = 1, k: Any = None) -> Array:
    """Integrate a polynomial `m` times, with integration constants `k`."""
    times = index(m)
    constants = 0 if k is None else k
    check_arraylike("polyint", p, constants)
    p, constants = (ensure_array(x) for x in promote_dtypes_inexact(p, constants))
    if times < 0:
        raise ArgumentError(f"Order of integral must be positive, got {times}.")
    _check_coefficients("polyint", p)
    constants = ravel(constants)
    if constants.shape[0] == 1:
        constants = lax.broadcast_in_dim(constants, (times,), (0,))
    if constants.shape[0] != times:
        raise ArgumentError(f"k must be a scalar or a rank-1 array of length 1 or {times}, got {constants.shape}.")
    out = p
    for i in range(times):
        powers = np.arange(out.shape[0], 0, -1)
        out = concatenate([out / ensure_array(powers.astype(p.dtype)), constants[i : i + 1]])
    return out


def poly(seq_of_zeros: Any) -> Array:
    """Compute the polynomial with the given zeros, or the characteristic polynomial of a square matrix."""
    check_arraylike("poly", seq_of_zeros)
    (zeros,) = promote_dtypes_inexact(seq_of_zeros)
    zeros = atleast_1d(zeros)
    if zeros.ndim == 2 and zeros.shape[0] == zeros.shape[1] and zeros.shape[0]:
        zeros = eigvals(zeros)
    if zeros.ndim != 1:
        raise ArgumentError(f"input must be 1d or non-empty square 2d array, got shape {zeros.shape}.")
    if not zeros.size:
        return full_array((), 1, zeros.dtype)  # as in NumPy
    out = full_array((1,), 1, zeros.dtype)
    for i in range(zeros.shape[0]):
        # The padding is added after the multiplication: zero times an infinite number is NaN.
        shifted = lax.pad(out * zeros[i], np.zeros((), out.dtype), [(1, 0, 0)])
        out = lax.pad(out, np.zeros((), out.dtype), [(0, 1, 0)]) - shifted
    return out


def roots(p: ArrayLike, *, strip_zeros: bool = True) -> Array:
    """Compute the zeros of a polynomial.

    With `strip_zeros=False` it can be traced: the number of results is one less than that of coefficients, and leading
    zero coefficients yield NaN at the end.
    """
    check_arraylike("roots", p)
    (p,) = promote_dtypes_inexact(p)
    p = atleast_1d(p)
    _check_coefficients("roots", p)
    compute_dtype = dtypes.canonicalize_dtype(dtypes.to_complex_dtype(p.dtype))
    if p.shape[0] < 2:
        return full_array((0,), 0, compute_dtype)
    if not strip_zeros:
        return _pad_roots(p, compute_dtype)
    known = concrete_or_error(
        p, "roots removes leading zeros, and so needs known coefficients.", "roots(p, strip_zeros=False)"
    )
    present = np.flatnonzero(known)
    if not present.size:
        return full_array((0,), 0, compute_dtype)
    last = int(present[-1])
    out = _companion_roots(p[int(present[0]) : last + 1], compute_dtype)
    # Zeros at the end of the coefficients are zeros of the polynomial at 0.
    return concatenate([out, full_array((p.shape[0] - 1 - last,), 0, compute_dtype)])


def _pad_roots(p: Array, compute_dtype: Any) -> Array:
    """Compute the zeros of a polynomial whose first coefficients may be 0.

    Zeros at 0 come after the others, followed by NaN for each missing one.
    """
    size, present = p.shape[0], p != 0
    some = lax.reduce_or(present, (0,))
    leading = where(some, lax.argmax(present, 0, dtypes.int32), size)
    # Leading zeros moved to the end add zeros at 0. If all are zero, any polynomial serves.
    rotated = p[(lax.iota(dtypes.int32, size) + leading) % size]
    out = _companion_roots(where(some, rotated, 1), compute_dtype)
    _, out = lax.sort_key_val(out == 0, out)
    return where(lax.iota(dtypes.int32, size - 1) < size - 1 - leading, out, complex(np.nan, np.nan))


def _companion_roots(p: Array, compute_dtype: Any) -> Array:
    size = p.shape[0] - 1
    if size < 1:
        return full_array((0,), 0, compute_dtype)
    matrix = eye(size, k=-1, dtype=p.dtype).at[0, :].set(-p[1:] / p[0])
    return convert_dtype(eigvals(matrix), compute_dtype)


def polyfit(
    x: Any, y: Any, deg: int, rcond: float | None = None, full: bool = False, w: Any = None, cov: bool | str = False
) -> Any:
    """Fit a polynomial of degree `deg` to points in the least-squares sense."""
    check_arraylike("polyfit", x, y, *(() if w is None else (w,)))
    degree = index(deg)
    x, y = (ensure_array(v) for v in promote_dtypes_inexact(x, y))
    if degree < 0:
        raise ArgumentError(f"expected deg >= 0, got {degree}.")
    if x.ndim != 1 or not x.shape[0]:
        raise ArgumentTypeError(f"expected 1D non-empty vector for x, got shape {x.shape}.")
    if y.ndim not in (1, 2) or y.shape[0] != x.shape[0]:
        raise ArgumentTypeError(f"expected y of rank 1 or 2 and as long as x, got {y.shape} and {x.shape}.")
    matrix, target = vander(x, degree + 1), y
    if w is not None:
        (weights,) = promote_dtypes_inexact(w)
        weights = ensure_array(weights)
        if weights.shape != (x.shape[0],):
            raise ArgumentTypeError(f"expected one weight for each point, got shape {weights.shape}.")
        matrix = matrix * weights[:, None]
        target = target * (weights[:, None] if target.ndim == 2 else weights)
    limit = x.shape[0] * float(dtypes.finfo(x.dtype).eps) if rcond is None else rcond
    scale = sqrt(reduce_sum(lax.square(matrix) if dtype_kind(matrix) != "c" else abs(matrix) ** 2, 0))
    scale = where(scale == 0, 1, scale)
    found, residuals, rank, singular = lstsq(matrix / scale[None, :], target, rcond=limit)
    coefficients = found / (scale if found.ndim == 1 else scale[:, None])
    if full:
        return coefficients, residuals, rank, singular, ensure_array(np.float32(limit))
    if not cov:
        return coefficients
    base = inv(dot(matrix.T, matrix) / (scale[:, None] * scale[None, :])) / (scale[:, None] * scale[None, :])
    if cov == "unscaled":
        factor: Any = 1
    else:
        if x.shape[0] <= degree + 1:
            raise ArgumentError("the number of data points must exceed order to scale the covariance matrix")
        difference = target - dot(matrix, coefficients)
        factor = reduce_sum(lax.square(difference), 0) / (x.shape[0] - degree - 1)
    return coefficients, base * factor if y.ndim == 1 else base[:, :, None] * factor
