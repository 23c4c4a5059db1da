"""Faddeeva function of complex numbers, with all derivatives."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from weft import lax, numpy as wnp
from weft.base.lazy import lazy
from weft.ir.primitive import Sample, primitive
from weft.primitives.elementwise.scalar import unit_ramp
from weft.scipy.special.primitives.defined import DoubleFunction
from weft.trace.array import Array

special = lazy("scipy.special")

# The trapezoidal and midpoint rules for w(z), with the residue of the pole near the path (Al Azah and Chandler-Wilde
# 2021): with this step and number of terms only rounding errors are left in the whole upper half plane.
TERMS = 11
STEP = math.sqrt(math.pi / (TERMS + 1))
FAR, FARTHER = 8.0, 40.0  # from here on derivatives are those of the asymptotic series, and the function itself
FAR_TERMS = 20


def _sum(z: Array, first: float, count: int) -> Array:
    """Compute 2*i*step*z/pi times the sum of exp(-t*t)/(z*z - t*t) over nodes t."""
    square = z * z
    total = wnp.zeros_like(z)
    for k in range(count):
        node = (first + k) * STEP
        total = total + math.exp(-node * node) / (square - node * node)
    return 2j * STEP / math.pi * z * total


def _quadrant(z: Array) -> Array:
    """Compute w(z) of numbers whose parts are nonnegative and not large."""
    x, y = lax.real(z), lax.imag(z)
    steps = x / STEP
    fraction = steps - wnp.floor(steps)
    trapezoidal = (y < x) & (fraction >= 0.25) & (fraction <= 0.75)
    # Each rule gets a number it can take where the other is used.
    safe = wnp.where(trapezoidal, 0.5 * STEP + 1j, z)
    midpoint = _sum(safe, 0.5, TERMS + 1)
    residue = 2 * _exp_of_negative_square(safe) / (1 + wnp.exp(-2j * math.pi / STEP * safe))
    above = y >= wnp.maximum(x, math.pi / STEP)
    by_midpoint = midpoint + wnp.where(above, 0.0, residue)
    other = wnp.where(trapezoidal, z, 0.5 * STEP + 0.1j)
    by_trapezoid = 1j * STEP / (math.pi * other) + _sum(other, 1.0, TERMS)
    by_trapezoid = by_trapezoid + 2 * _exp_of_negative_square(other) / (1 - wnp.exp(-2j * math.pi / STEP * other))
    return wnp.where(trapezoidal, by_trapezoid, by_midpoint)


def _exp_of_negative_square(z: Array) -> Array:
    """Compute exp(-z*z), with the exponent from the parts of z without cancellation."""
    x, y = lax.real(z), lax.imag(z)
    return wnp.exp(lax.complex((y - x) * (y + x), -2 * x * y))


def _far(z: Array, order: int) -> Array:
    """Evaluate the derivative of an order of i/(sqrt(pi)*z) * (1 + 1/(2*z*z) + 3/(4*z**4) + ...)."""
    inverse = 1 / z
    inverse_square = inverse * inverse
    total = wnp.zeros_like(z)
    coefficient = math.prod(range(1, 2 * FAR_TERMS, 2)) / 2**FAR_TERMS
    for m in range(FAR_TERMS, -1, -1):
        total = total * inverse_square + coefficient * math.prod(range(2 * m + 1, 2 * m + 1 + order))
        coefficient = coefficient * 2 / max(2 * m - 1, 1)
    return (-1) ** order * 1j / math.sqrt(math.pi) * total * inverse ** (order + 1)


@primitive
class faddeeva(DoubleFunction):
    """Derivative of an order of exp(-z*z) * erfc(-i*z)."""

    kinds = "c"
    ulp = {"": 16.0, "complex128": 64.0}
    one_kernel = False
    weight = 2000

    @staticmethod
    def eval(z: Any, *, order: int) -> Any:
        wide = z.astype(np.complex128)
        values = [special.wofz(wide)]
        values.append(-2 * wide * values[0] + 2j / np.sqrt(np.pi))
        for n in range(2, order + 1):
            values.append(-2 * wide * values[-1] - 2 * (n - 1) * values[-2])
        return values[order].astype(z.dtype)

    def compute(self, z: Array, *, order: int) -> Array:
        x, y = lax.real(z), lax.imag(z)
        upper = lax.complex(abs(x), abs(y))
        size = wnp.maximum(abs(x), abs(y))
        infinite = size == np.inf
        beyond = size > FARTHER
        value = wnp.where(
            beyond,
            _far(wnp.where(beyond & ~infinite, upper, 50 + 50j), 0),
            _quadrant(wnp.where(beyond, 1 + 1j, upper)),
        )
        value = wnp.where(infinite, 0j, value)
        # w(-conj(z)) = conj(w(z)), and w(-z) = 2*exp(-z*z) - w(z)
        value = lax.complex(lax.real(value), lax.imag(value) * wnp.where((x < 0) == (y < 0), 1.0, -1.0))
        exponential = 2 * _exp_of_negative_square(wnp.where((y < 0) & ~infinite, z, 0j))
        exponential = wnp.where(infinite & (abs(x) < np.inf), complex(np.inf, 0), exponential)
        values = [wnp.where(y < 0, exponential - value, value)]
        values[0] = wnp.where(wnp.isnan(x) | wnp.isnan(y), complex(np.nan, np.nan), values[0])
        if order == 0:
            return values[0]
        values.append(-2 * z * values[0] + 2j / math.sqrt(math.pi))
        for n in range(2, order + 1):
            values.append(-2 * z * values[-1] - 2 * (n - 1) * values[-2])
        outer = (size > FAR) & (y >= 0)
        return wnp.where(outer, _far(wnp.where(outer, z, 10 + 10j), order), values[order])

    def partial(self, i: int, tangent: Any, out: Any, z: Any, *, order: int) -> Any:
        return tangent * faddeeva(z, order=order + 1)

    def samples(self) -> Any:
        z = unit_ramp(3, 2) + np.complex64(0.3j) + np.complex64(1j) * unit_ramp(3, 2)[::-1]
        for order in (0, 1):
            yield Sample(z, order=order)
        yield Sample(np.array([3 + 4j, 0, -2 - 1j, 20 + 0.1j, -9 + 30j], np.complex64), differentiable=False, order=0)
