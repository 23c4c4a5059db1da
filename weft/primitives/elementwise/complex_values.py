"""Functions of complex numbers as `eval` computes them: NumPy's, where exact, with one result for every edge case.

NumPy computes products with or without fused additions, as the machine has them, and complex64 in float32, where
magnitudes overflow and angles lose their digits. Next to infinities and nan C leaves some signs open; here a sign that
only a nan could tell is plus.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from weft.primitives.elementwise.scalar import round_result


def of_complex(function: Callable[..., Any], complex_function: Callable[..., Any] | None = None) -> Any:
    """Create an `eval` rule as `round_result` does, with another function for complex numbers if one is given. Complex
    numbers are computed in complex128."""
    plain = round_result(function).__func__
    wide_function = complex_function or function

    @functools.wraps(function)
    def evaluate(*arrays: Any, **params: Any) -> Any:
        dtype = arrays[0].dtype
        if dtype.kind != "c":
            return plain(*arrays, **params)
        found = np.asarray(wide_function(*[np.asarray(a).astype(np.complex128) for a in arrays], **params))
        return found.astype(dtype if found.dtype.kind == "c" else np.empty(0, dtype).real.dtype)

    return staticmethod(evaluate)


def of_parts(re: Any, im: Any, dtype: Any = np.complex128) -> Any:
    """Combine two real arrays to a complex one."""
    re, im = np.broadcast_arrays(re, im)
    result = np.empty(re.shape, dtype)
    result.real, result.imag = re, im
    return result


def product(x: Any, y: Any) -> Any:
    """Return x * y, with every product of parts of complex numbers rounded."""
    if x.dtype.kind != "c":
        return np.multiply(x, y)
    return of_parts(x.real * y.real - x.imag * y.imag, x.real * y.imag + x.imag * y.real, x.dtype)


def _scale(*arrays: Any) -> Any:
    """Return a power of two by which squares of these numbers, not all of them 0, neither overflow nor vanish."""
    most = functools.reduce(np.fmax, [np.abs(part) for x in arrays for part in (x.real, x.imag)])
    return np.where(most > 2.0**500, 2.0**-600, np.where(most < 2.0**-500, 2.0**600, 1.0))


def sign(x: Any) -> Any:
    """Scale to magnitude 1; 0 stays. Scaling by a power of two comes first, so that the magnitude is not infinite or
    denormal."""
    scale = _scale(x)
    re, im = x.real * scale, x.imag * scale
    size = np.hypot(re, im)
    divisor = np.where(size == 0, 1.0, size)
    # A quotient of complex numbers, so an infinite part makes both nan.
    return np.where(size == 0, 0.0, of_parts(re, im) / divisor)


def exp(x: Any) -> Any:
    found = np.exp(x)
    return np.where((x.real == -np.inf) & ~np.isfinite(x.imag), 0.0, found)


def exp2(x: Any) -> Any:
    return exp(of_parts(x.real * math.log(2), x.imag * math.log(2)))


def expm1(x: Any) -> Any:
    # NumPy multiplies infinity with the sine of zero, which its power does not.
    less, power = np.expm1(x), exp(x)
    near = np.isfinite(x.real) & (x.real < 40)
    return of_parts(np.where(near, less.real, power.real - 1), power.imag)


def log1p(x: Any) -> Any:
    found = np.log(of_parts(1 + x.real, x.imag))
    small = (np.abs(x.real) < 0.5) & (np.abs(x.imag) < 0.5)
    # NumPy takes the logarithm of the magnitude of 1 + x, which has lost the digits of x.
    near = 0.5 * np.log1p(np.where(small, x.real * (2 + x.real) + x.imag * x.imag, 0.0))
    return of_parts(np.where(small, near, found.real), found.imag)


def sinh(x: Any) -> Any:
    found, unknown = np.sinh(x), ~np.isfinite(x.imag)
    edge = unknown & (np.isinf(x.real) | (x.real == 0))
    return of_parts(np.where(edge, x.real, found.real), np.where(edge, np.nan, found.imag))


def cosh(x: Any) -> Any:
    found = np.cosh(x)
    unsigned = (np.isnan(x.real) & (x.imag == 0)) | ((x.real == 0) & ~np.isfinite(x.imag))
    return of_parts(found.real, np.where(unsigned, 0.0, found.imag))


def tanh(x: Any) -> Any:
    found = np.tanh(x)
    end = np.isinf(x.real) & ~np.isfinite(x.imag)
    return of_parts(np.where(end, np.copysign(1.0, x.real), found.real), np.where(end, 0.0, found.imag))


def asin(x: Any) -> Any:
    found = np.arcsin(x)
    return of_parts(found.real, np.where(np.isinf(x.real) & np.isnan(x.imag), np.inf, found.imag))


def acos(x: Any) -> Any:
    found = np.arccos(x)
    return of_parts(found.real, np.where(np.isinf(x.real) & np.isnan(x.imag), -np.inf, found.imag))


def acosh(x: Any) -> Any:
    found = np.arccosh(x)
    return of_parts(found.real, np.where((x.real == 0) & np.isnan(x.imag), 0.5 * math.pi, found.imag))


def atanh(x: Any) -> Any:
    found = np.arctanh(x)
    return of_parts(np.where(np.isnan(x.real) & np.isinf(x.imag), 0.0, found.real), found.imag)


def _times_i(x: Any) -> Any:
    """Return i*x."""
    return of_parts(-x.imag, x.real)


def _times_minus_i(x: Any) -> Any:
    """Return -i*x."""
    return of_parts(x.imag, -x.real)


def sin(x: Any) -> Any:
    return _times_minus_i(sinh(_times_i(x)))


def cos(x: Any) -> Any:
    return cosh(_times_i(x))


def tan(x: Any) -> Any:
    return _times_minus_i(tanh(_times_i(x)))


def asinh(x: Any) -> Any:
    return _times_i(asin(_times_minus_i(x)))


def atan(x: Any) -> Any:
    return _times_minus_i(atanh(_times_i(x)))


def pow(x: Any, y: Any) -> Any:
    """Return e**(y*log(x)); anything to the power 0 is 1, and 0 to a power with positive real part is 0."""
    found = exp(product(y, np.log(x)))
    nothing = np.where(y.real > 0, 0.0, np.nan)
    found = np.where(x == 0, of_parts(nothing, nothing), found)
    return np.where(y == 0, 1.0, found)


def atan2(y: Any, x: Any) -> Any:
    """Return -i*log((x + i*y)/sqrt(x*x + y*y))."""
    scale = _scale(y, x)
    y, x = (of_parts(a.real * scale, a.imag * scale) for a in (y, x))
    return _times_minus_i(np.log((x + _times_i(y)) / np.sqrt(product(x, x) + product(y, y))))
