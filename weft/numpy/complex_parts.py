"""Conjugates, parts and angles of complex numbers."""

from __future__ import annotations

from weft import lax
from weft.numpy.argument_docs import document
from weft.numpy.creation import convert_dtype
from weft.numpy.transcendental import rad2deg
from weft.numpy.util import (
    check_arraylike,
    dtype_kind,
    ensure_array,
    promote_dtypes_inexact,
)
from weft.trace.annotations import ArrayLike
from weft.trace.array import Array


@document(
    "An array of the dtype of `x`.",
    "wnp.conjugate(wnp.array([1 + 2j, 3j])) -> Array([1.-2.j, 0.-3.j], dtype=complex64)",
)
def conjugate(x: ArrayLike, /) -> Array:
    """Compute the element-wise complex conjugate; real numbers are unchanged."""
    check_arraylike("conjugate", x)
    x = ensure_array(x)
    return lax.conj(x) if dtype_kind(x) == "c" else x


conj = conjugate


@document(
    "An array of the real dtype; `val` itself if it is real.",
    "wnp.real(wnp.array([1 + 2j, 3j])) -> Array([1., 0.], dtype=float32)",
    val="an array or a number.",
)
def real(val: ArrayLike, /) -> Array:
    """Return the real part of each element."""
    check_arraylike("real", val)
    x = ensure_array(val)
    return lax.real(x) if dtype_kind(x) == "c" else x


@document(
    "An array of the real dtype.",
    "wnp.imag(wnp.array([1 + 2j, 3j])) -> Array([2., 3.], dtype=float32)",
    val="an array or a number.",
)
def imag(val: ArrayLike, /) -> Array:
    """Return the imaginary part of each element; zeros for real numbers."""
    check_arraylike("imag", val)
    x = ensure_array(val)
    return lax.imag(x) if dtype_kind(x) == "c" else lax.full_like(x, 0)


@document(
    "Angles above -pi up to pi (or 180 degrees).",
    "wnp.angle(wnp.array([1j, -1.0]), deg=True).round(3) -> Array([ 90., 180.], dtype=float32)",
    z="an array or a number.",
    deg="whether the result is in degrees.",
)
def angle(z: ArrayLike, deg: bool = False) -> Array:
    """Compute the angle of each complex number, in radians or degrees."""
    check_arraylike("angle", z)
    (z,) = promote_dtypes_inexact(z)
    z = ensure_array(z)
    if dtype_kind(z) == "c":
        parts = lax.imag(z), lax.real(z)
    else:
        z = convert_dtype(z, z.dtype)
        parts = lax.full_like(z, 0), z
    out = lax.atan2(*parts)
    return rad2deg(out) if deg else out
