"""Base classes of the primitives of this folder, which are defined by other operations, most of them in float64."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from weft import numpy as wnp
from weft.base import dtypes
from weft.base.settings import enable_x64
from weft.primitives.elementwise.convert import convert_element_type
from weft.primitives.elementwise.scalar import COMPUTED_IN
from weft.primitives.elementwise.special import SpecialFunction
from weft.trace.array import Array


class DefinedFunction(SpecialFunction):
    """Function of floats defined by `compute`, which is written with `weft.numpy`. It is computed in the dtype of its
    operands, short floats in float32.
    """

    weight = 60
    keeps_nan = ()
    partitions = True  # elementwise, whatever the definition does

    def compute(self, *args: Any, **params: Any) -> Any:
        """Compute the result from operands in the dtype of the computation."""
        raise NotImplementedError(self.name)

    def computing_dtype(self, dtype: Any) -> Any:
        """Return the dtype in which operands of a dtype are computed."""
        return COMPUTED_IN.get(dtype, dtype)

    def has_body(self, operations: frozenset[str]) -> bool:
        return True  # that of the definition, so that it is compiled outside of programs too

    def definition(self, *args: Any, **params: Any) -> Any:
        dtype = args[0].aval.dtype
        wide = self.computing_dtype(dtype)
        with enable_x64(True):  # numbers in `compute` are doubles where the operands are
            out = self.compute(*(convert_element_type(x, new_dtype=wide, weak_type=False) for x in args), **params)
            weak = all(x.aval.weak_type for x in args)
            return convert_element_type(out, new_dtype=dtype, weak_type=weak)


class DoubleFunction(DefinedFunction):
    """Computed in float64 and rounded once: short floats, float32 too, are right to their last digit."""

    weight = 200

    def computing_dtype(self, dtype: Any) -> Any:
        return dtypes.complex128 if dtypes.kind(dtype) == "c" else dtypes.float64


class Fit(NamedTuple):
    """Polynomial that approximates a function between `low` and `high`, in the position from -1 to 1."""

    low: float
    high: float
    coefficients: Sequence[float]

    def __call__(self, x: Array) -> Array:
        """Evaluate the polynomial; numbers out of bounds are clamped."""
        middle, half = (self.low + self.high) / 2, (self.high - self.low) / 2
        return polynomial((wnp.clip(x, self.low, self.high) - middle) / half, self.coefficients)


def polynomial(x: Array, coefficients: Sequence[float]) -> Array:
    """Evaluate the polynomial with these coefficients, lowest power first."""
    total = wnp.full_like(x, coefficients[-1])
    for coefficient in coefficients[-2::-1]:
        total = total * x + coefficient
    return total


def excess(u: Array, ratio: Array | None = None) -> Array:
    """Compute u - log(1 + u), which is small where u is. `ratio` is 1 + u, if it is known more accurately, for u near
    -1."""
    near = (u > -0.4) & (u < 0.5)
    safe = wnp.where(near, u, 0.0)
    r = safe / (2 + safe)
    square = r * r
    series = polynomial(square, [1 / (2 * n + 3) for n in range(14)])
    return wnp.where(near, safe * r - 2 * r * square * series, u - (wnp.log1p(u) if ratio is None else wnp.log(ratio)))


def two_product(x: Array, y: Array) -> tuple[Array, Array]:
    """Return the rounded product x*y and its rounding error. Operands are doubles or singles that may be multiplied by
    2**27 or 2**12 without overflow."""
    product = x * y
    (x_high, x_low), (y_high, y_low) = _halves(x), _halves(y)
    return product, ((x_high * y_high - product) + x_high * y_low + x_low * y_high) + x_low * y_low


def _halves(x: Array) -> tuple[Array, Array]:
    """Split a float into the sum of two numbers of half as many digits."""
    scaled = x * (134217729.0 if x.dtype == dtypes.float64 else 4097.0)
    high = scaled - (scaled - x)
    return high, x - high


def exp_of_square(x: Array, factor: float) -> Array:
    """Compute exp(factor*x*x) for a factor of plus or minus a power of 2. Rounding the square first would lose as many
    digits as the exponent has."""
    head = wnp.round(wnp.clip(x, -40, 40) * 16) / 16  # its square is exact
    rest = (x - head) * (x + head)
    return wnp.exp(factor * head * head) * wnp.exp(factor * rest)


def sine_of_pi_times(x: Array) -> Array:
    """Compute sin(pi*x) without a loss of digits for large x."""
    nearest = wnp.round(x)
    value = wnp.sin(np.pi * (x - nearest))
    return wnp.where(wnp.remainder(nearest, 2.0) == 1, -value, value)
