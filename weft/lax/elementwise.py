"""Elementwise operations with JAX's names and signatures.

Operands must have one dtype: nothing is promoted here. But a Python number takes the dtype of the array that it meets
if it is of that kind, and scalars and dimensions of size 1 are repeated. `accuracy`, where it can be given, is a hint
that changes nothing: every result is within the error that the primitive states.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from weft.base import dtypes, tree
from weft.base.arguments import index
from weft.base.errors import ArgumentError, ArgumentTypeError
from weft.ir.types import type_of
from weft.primitives.control.check import check_divisor
from weft.primitives.elementwise import (
    arithmetic,
    bitwise,
    compare,
    convert,
    exponential,
    rounding,
    special,
    special_gamma,
    trigonometric,
)
from weft.primitives.elementwise import complex as complex_ops
from weft.primitives.elementwise import select as selection
from weft.primitives.elementwise.rounding import RoundingMethod
from weft.primitives.families import fail
from weft.primitives.movement.shape import broadcast_in_dim
from weft.runtime.array import from_numpy

_PYTHON_SCALARS = (int, float, complex)
_KINDS_TAKEN = {int: "iu", float: "f", complex: "c"}


def _pair(x: Any, y: Any) -> tuple[Any, Any]:
    """Two operands as one operation takes them; quick in the common cases."""
    first, second = getattr(x, "aval", None), getattr(y, "aval", None)
    if first is not None and second is not None:
        if first.shape == second.shape or not first.shape or not second.shape:
            return x, y
    elif first is not None and type(y) in _PYTHON_SCALARS:
        return x, _as_scalar(y, first.dtype)
    elif second is not None and type(x) in _PYTHON_SCALARS:
        return _as_scalar(x, second.dtype), y
    return _adapted(x, y)


def _as_scalar(value: Any, dtype: Any) -> Any:
    """A Python number in `dtype` if that is of its kind, else as it is."""
    if dtypes.kind(dtype) not in _KINDS_TAKEN[type(value)] or _dtype(value) == dtype:
        return value
    return dtypes.coerce_value(value, dtype)


def _scalars_adapted(operands: tuple[Any, ...]) -> tuple[Any, ...]:
    """Python numbers in the dtype of the first array, if that is of their kind."""
    found = next((_dtype(a) for a in operands if type(a) not in _PYTHON_SCALARS), None)
    if found is None:
        return operands
    return tuple(_as_scalar(a, found) if type(a) in _PYTHON_SCALARS else a for a in operands)


def _dtype(x: Any) -> Any:
    return type_of(x).dtype  # type: ignore[attr-defined]


def _adapted(*operands: Any) -> Any:
    """Python numbers in the dtype of the arrays of their kind, and dimensions of size 1 repeated."""
    adapted = list(_scalars_adapted(operands))
    shapes = [np.shape(a) for a in adapted]
    full = [s for s in shapes if s]
    if all(s == full[0] for s in full) or any(len(s) != len(full[0]) for s in full):
        return tuple(adapted)  # the type rule raises for a mismatch of rank
    shape = tuple(next((d for d in sizes if d != 1), 1) for sizes in zip(*full, strict=True))
    for i, own in enumerate(shapes):
        if own and own != shape and all(d in (1, s) for d, s in zip(own, shape, strict=True)):
            axes = tuple(range(len(shape)))
            adapted[i] = broadcast_in_dim(adapted[i], shape=shape, broadcast_dimensions=axes)
    return tuple(adapted)


# ------------------------------------------------------------------------------------------------------- arithmetic


def add(x: Any, y: Any) -> Any:
    """x + y.

    Args:
        x: an array or a number.
        y: an array or a number of the same dtype and shape (a scalar broadcasts).

    Returns:
        An array of the same dtype. Unlike `weft.numpy.add` it promotes only Python numbers.

    >>> import weft.numpy as wnp
    >>> from weft import lax
    >>> lax.add(wnp.arange(3), 1)
    Array([1, 2, 3], dtype=int32)
    """
    return arithmetic.add(*_pair(x, y))


def sub(x: Any, y: Any) -> Any:
    """x - y."""
    return arithmetic.sub(*_pair(x, y))


def mul(x: Any, y: Any, *, out_dtype: Any = None) -> Any:
    """x * y; with `out_dtype` the operands are converted to it first, so that a product of narrow types is exact.

    Args:
        x: an array or a number.
        y: an array or a number of the same dtype and shape (a scalar broadcasts).
        out_dtype: the dtype of the result.

    Returns:
        An array of the same dtype.

    >>> import weft.numpy as wnp
    >>> from weft import lax
    >>> lax.mul(wnp.arange(3), 2)
    Array([0, 2, 4], dtype=int32)
    """
    if out_dtype is not None:
        x, y = (_as_factor(factor, out_dtype) for factor in (x, y))
    return arithmetic.mul(*_pair(x, y))


def _as_factor(x: Any, dtype: Any) -> Any:
    aval: Any = type_of(x)
    if dtypes.kind(aval.dtype) not in "iufc":
        raise ArgumentTypeError(f"mul does not accept dtype {dtypes.name(aval.dtype)}.")
    return convert.convert_element_type(x, new_dtype=dtypes.requested_dtype(dtype, "mul"), weak_type=aval.weak_type)


def div(x: Any, y: Any) -> Any:
    """x / y; of integers cut towards zero, and -1 where y is 0.

    Args:
        x: an array or a number.
        y: an array or a number of the same dtype and shape (a scalar broadcasts).

    Returns:
        An array of the same dtype.

    >>> import weft.numpy as wnp
    >>> from weft import lax
    >>> lax.div(wnp.array([7, -7]), 2)
    Array([ 3, -3], dtype=int32)
    """
    x, y = _pair(x, y)
    check_divisor(y)
    return arithmetic.div(x, y)


def rem(x: Any, y: Any) -> Any:
    """What remains of x divided by y cut towards zero; it has the sign of x, and is x where an integer y is 0.

    Args:
        x: an array or a number.
        y: an array or a number of the same dtype and shape (a scalar broadcasts).

    Returns:
        An array of the same dtype.

    >>> import weft.numpy as wnp
    >>> from weft import lax
    >>> lax.rem(wnp.array([7, -7]), 4)
    Array([ 3, -3], dtype=int32)
    """
    x, y = _pair(x, y)
    check_divisor(y)
    return arithmetic.rem(x, y)


def max(x: Any, y: Any) -> Any:
    """The greater of two elements; nan wins.

    Args:
        x: an array or a number.
        y: an array or a number of the same dtype and shape (a scalar broadcasts).

    Returns:
        An array of the same dtype. Where both are equal, each has half of the derivative.

    >>> import weft.numpy as wnp
    >>> from weft import lax
    >>> lax.max(wnp.array([1, 5]), 3)
    Array([3, 5], dtype=int32)
    """
    return arithmetic.max(*_pair(x, y))


def min(x: Any, y: Any) -> Any:
    """The lesser of two elements; nan wins.

    Args:
        x: an array or a number.
        y: an array or a number of the same dtype and shape (a scalar broadcasts).

    Returns:
        An array of the same dtype. Where both are equal, each has half of the derivative.

    >>> import weft.numpy as wnp
    >>> from weft import lax
    >>> lax.min(wnp.array([1, 5]), 3)
    Array([1, 3], dtype=int32)
    """
    return arithmetic.min(*_pair(x, y))


def neg(x: Any) -> Any:
    """-x."""
    return arithmetic.neg(x)


def abs(x: Any) -> Any:
    """Magnitude; real for complex x."""
    return arithmetic.abs(x)


def sign(x: Any) -> Any:
    """-1, 0 or 1; of a complex number x / |x|."""
    return arithmetic.sign(x)


def square(x: Any) -> Any:
    """x * x.

    Args:
        x: an array or a number.

    Returns:
        An array of the same dtype.

    >>> import weft.numpy as wnp
    >>> from weft import lax
    >>> lax.square(wnp.array([2, 3]))
    Array([4, 9], dtype=int32)
    """
    return arithmetic.square(x)


def integer_pow(x: Any, y: int) -> Any:
    """x to a static integer power."""
    return arithmetic.integer_pow(x, y=index(y))


def reciprocal(x: Any) -> Any:
    """1 / x."""
    return arithmetic.integer_pow(x, y=-1)


# ------------------------------------------------------------------------------------------- exponentials and roots


def pow(x: Any, y: Any) -> Any:
    """x to the power y, which has the dtype of x or is an integer."""
    return exponential.pow(*_pair(x, y))


def exp(x: Any, *, accuracy: Any = None) -> Any:
    """e to the power x."""
    return exponential.exp(x)


def exp2(x: Any, *, accuracy: Any = None) -> Any:
    """2 to the power x."""
    return exponential.exp2(x)


def expm1(x: Any, *, accuracy: Any = None) -> Any:
    """exp(x) - 1, accurate near 0."""
    return exponential.expm1(x)


def log(x: Any, *, accuracy: Any = None) -> Any:
    """Natural logarithm."""
    return exponential.log(x)


def log1p(x: Any, *, accuracy: Any = None) -> Any:
    """log(1 + x), accurate near 0."""
    return exponential.log1p(x)


def logistic(x: Any, *, accuracy: Any = None) -> Any:
    """1 / (1 + exp(-x))."""
    return exponential.logistic(x)


def sqrt(x: Any, *, accuracy: Any = None) -> Any:
    """Square root."""
    return exponential.sqrt(x)


def rsqrt(x: Any, *, accuracy: Any = None) -> Any:
    """1 / sqrt(x).

    Args:
        x: an array or a number.
        accuracy: accepted for compatibility.

    Returns:
        An array of the same floating dtype; inf at 0.

    >>> import weft.numpy as wnp
    >>> from weft import lax
    >>> lax.rsqrt(wnp.array([4.0, 0.25]))
    Array([0.5, 2. ], dtype=float32)
    """
    return exponential.rsqrt(x)


def cbrt(x: Any, *, accuracy: Any = None) -> Any:
    """Cube root."""
    return exponential.cbrt(x)


# -------------------------------------------------------------------------------- circular and hyperbolic functions


def sin(x: Any, *, accuracy: Any = None) -> Any:
    """Sine."""
    return trigonometric.sin(x)


def cos(x: Any, *, accuracy: Any = None) -> Any:
    """Cosine."""
    return trigonometric.cos(x)


def tan(x: Any, *, accuracy: Any = None) -> Any:
    """Tangent."""
    return trigonometric.tan(x)


def asin(x: Any) -> Any:
    """Inverse sine."""
    return trigonometric.asin(x)


def acos(x: Any) -> Any:
    """Inverse cosine."""
    return trigonometric.acos(x)


def atan(x: Any) -> Any:
    """Inverse tangent."""
    return trigonometric.atan(x)


def sinh(x: Any) -> Any:
    """Hyperbolic sine."""
    return trigonometric.sinh(x)


def cosh(x: Any) -> Any:
    """Hyperbolic cosine."""
    return trigonometric.cosh(x)


def tanh(x: Any, *, accuracy: Any = None) -> Any:
    """Hyperbolic tangent."""
    return trigonometric.tanh(x)


def asinh(x: Any) -> Any:
    """Inverse hyperbolic sine."""
    return trigonometric.asinh(x)


def acosh(x: Any) -> Any:
    """Inverse hyperbolic cosine."""
    return trigonometric.acosh(x)


def atanh(x: Any) -> Any:
    """Inverse hyperbolic tangent."""
    return trigonometric.atanh(x)


def atan2(x: Any, y: Any) -> Any:
    """The angle of the point that lies `y` to the right and `x` up."""
    return trigonometric.atan2(*_pair(x, y))


# ------------------------------------------------------------------------------------------------ special functions


def erf(x: Any) -> Any:
    """Error function."""
    return special.erf(x)


def erfc(x: Any) -> Any:
    """1 - erf(x), accurate where that is small."""
    return special.erfc(x)


def erf_inv(x: Any) -> Any:
    """Inverse of the error function."""
    return special.erf_inv(x)


def bessel_i0e(x: Any) -> Any:
    """Modified Bessel function of order 0, times exp(-|x|)."""
    return special.bessel_i0e(x)


def bessel_i1e(x: Any) -> Any:
    """Modified Bessel function of order 1, times exp(-|x|)."""
    return special.bessel_i1e(x)


def lgamma(x: Any) -> Any:
    """Logarithm of the magnitude of the gamma function."""
    return special_gamma.lgamma(x)


def digamma(x: Any) -> Any:
    """Derivative of lgamma."""
    return special_gamma.digamma(x)


def polygamma(m: Any, x: Any) -> Any:
    """The m-th derivative of digamma."""
    return special_gamma.polygamma(*_pair(m, x))


def zeta(x: Any, q: Any) -> Any:
    """Hurwitz zeta function."""
    return special_gamma.zeta(*_pair(x, q))


def igamma(a: Any, x: Any) -> Any:
    """Regularized lower incomplete gamma function."""
    return special_gamma.igamma(*_pair(a, x))


def igammac(a: Any, x: Any) -> Any:
    """Regularized upper incomplete gamma function."""
    return special_gamma.igammac(*_pair(a, x))


def igamma_grad_a(a: Any, x: Any) -> Any:
    """Derivative of igamma in its first argument."""
    return special_gamma.igamma_grad_a(*_pair(a, x))


def random_gamma_grad(a: Any, x: Any) -> Any:
    """Derivative in `a` of a gamma variable of shape `a` whose value is `x`."""
    return special_gamma.random_gamma_grad(*_pair(a, x))


def betainc(a: Any, b: Any, x: Any) -> Any:
    """Regularized incomplete beta function."""
    return special_gamma.regularized_incomplete_beta(*_adapted(a, b, x))


# ------------------------------------------------------------------------------------------------------- comparison


def eq(x: Any, y: Any) -> Any:
    """x == y.

    Args:
        x: an array or a number.
        y: an array or a number of the same dtype and shape (a scalar broadcasts).

    Returns:
        An array of booleans.

    >>> import weft.numpy as wnp
    >>> from weft import lax
    >>> lax.eq(wnp.array([1, 2]), 2)
    Array([False,  True], dtype=bool)
    """
    return compare.eq(*_pair(x, y))


def ne(x: Any, y: Any) -> Any:
    """x != y."""
    return compare.ne(*_pair(x, y))


def lt(x: Any, y: Any) -> Any:
    """x < y.

    Args:
        x: an array or a number.
        y: an array or a number of the same dtype and shape (a scalar broadcasts).

    Returns:
        An array of booleans.

    >>> import weft.numpy as wnp
    >>> from weft import lax
    >>> lax.lt(wnp.array([1, 2]), 2)
    Array([ True, False], dtype=bool)
    """
    return compare.lt(*_pair(x, y))


def le(x: Any, y: Any) -> Any:
    """x <= y."""
    return compare.le(*_pair(x, y))


def gt(x: Any, y: Any) -> Any:
    """x > y."""
    return compare.gt(*_pair(x, y))


def ge(x: Any, y: Any) -> Any:
    """x >= y."""
    return compare.ge(*_pair(x, y))


def is_finite(x: Any) -> Any:
    """Whether an element is neither infinite nor nan."""
    return compare.is_finite(x)


# ------------------------------------------------------------------------------------------------------------- bits


def bitwise_and(x: Any, y: Any) -> Any:
    """Bits set in both."""
    return bitwise.and_(*_pair(x, y))


def bitwise_or(x: Any, y: Any) -> Any:
    """Bits set in either."""
    return bitwise.or_(*_pair(x, y))


def bitwise_xor(x: Any, y: Any) -> Any:
    """Bits set in exactly one."""
    return bitwise.xor(*_pair(x, y))


def shift_left(x: Any, y: Any) -> Any:
    """Bits shifted left by y."""
    return bitwise.shift_left(*_pair(x, y))


def shift_right_logical(x: Any, y: Any) -> Any:
    """Bits shifted right by y, zeros shifted in."""
    return bitwise.shift_right_logical(*_pair(x, y))


def shift_right_arithmetic(x: Any, y: Any) -> Any:
    """Bits shifted right by y, copies of the sign shifted in."""
    return bitwise.shift_right_arithmetic(*_pair(x, y))


def bitwise_not(x: Any) -> Any:
    """Bits inverted."""
    return bitwise.not_(x)


def population_count(x: Any) -> Any:
    """How many bits are set."""
    return bitwise.population_count(x)


def clz(x: Any) -> Any:
    """The number of leading zeros."""
    return bitwise.clz(x)


def mulhi(x: Any, y: Any, /) -> Any:
    """The upper half of the product of two integers."""
    return bitwise.mulhi(*_pair(x, y))


# -------------------------------------------------------------------------------------------------- complex numbers


def real(x: Any) -> Any:
    """Real part of complex x."""
    return complex_ops.real(x)


def imag(x: Any) -> Any:
    """Imaginary part of complex x."""
    return complex_ops.imag(x)


def conj(x: Any) -> Any:
    """Complex conjugate; a real x becomes complex."""
    return complex_ops.conj(x, input_dtype=_dtype(x))


def complex(x: Any, y: Any) -> Any:
    """The complex number x + iy.

    Args:
        x: an array or a number.
        y: an array or a number of the same dtype and shape (a scalar broadcasts).

    Returns:
        An array of complex numbers.

    >>> import weft.numpy as wnp
    >>> from weft import lax
    >>> lax.complex(wnp.array([1.0]), wnp.array([2.0]))
    Array([1.+2.j], dtype=complex64)
    """
    return complex_ops.complex(*_pair(x, y))


# --------------------------------------------------------------------------------------------------------- rounding


def floor(x: Any) -> Any:
    """Greatest integer not above x."""
    return rounding.floor(x)


def ceil(x: Any) -> Any:
    """Least integer not below x."""
    return rounding.ceil(x)


def round(x: Any, rounding_method: RoundingMethod = RoundingMethod.AWAY_FROM_ZERO) -> Any:
    """Nearest integer; `rounding_method` decides for numbers halfway between two."""
    return rounding.round(x, rounding_method=RoundingMethod(rounding_method))


def nextafter(x1: Any, x2: Any) -> Any:
    """The float next to x1 in the direction of x2."""
    return rounding.nextafter(*_pair(x1, x2))


def reduce_precision(operand: Any, exponent_bits: int, mantissa_bits: int) -> Any:
    """Each element rounded to a float of fewer bits, in the same dtype."""
    bits = {"exponent_bits": index(exponent_bits), "mantissa_bits": index(mantissa_bits)}
    return rounding.reduce_precision(operand, **bits)


# ----------------------------------------------------------------------------------------------------------- choice


def select_n(which: Any, *cases: Any) -> Any:
    """The element of the case with index `which`; a boolean chooses between the first and the second case."""
    cases = _scalars_adapted(cases)
    shapes = [np.shape(case) for case in cases]
    if any(shape != shapes[0] for shape in shapes):
        raise fail(
            f"select_n got cases of shapes {', '.join(map(str, shapes))}.",
            fix="give all cases one shape; weft.numpy.where broadcasts",
        )
    if np.shape(which) and cases and np.shape(which) != shapes[0]:
        raise fail(
            f"select_n got `which` of shape {np.shape(which)} for cases of shape {shapes[0]}.",
            fix="`which` must be a scalar or have the shape of the cases",
        )
    return selection.select_n(which, *cases)


def select(pred: Any, on_true: Any, on_false: Any) -> Any:
    """`on_true` where `pred` is true, else `on_false`.

    Args:
        pred: booleans, of the shape of the others or a scalar.
        on_true, on_false: arrays of one shape and dtype.

    Returns:
        An array of that shape and dtype.

    >>> import weft.numpy as wnp
    >>> from weft import lax
    >>> lax.select(wnp.array([True, False]), wnp.array([1, 2]), wnp.array([10, 20]))
    Array([ 1, 20], dtype=int32)
    """
    return select_n(pred, on_false, on_true)


def clamp(min: Any, x: Any, max: Any) -> Any:
    """`x` brought within [min, max].

    Args:
        min, max: the limits, of the shape of `x` or scalars.
        x: an array or a number.

    Returns:
        An array of the dtype of `x`.

    >>> import weft.numpy as wnp
    >>> from weft import lax
    >>> lax.clamp(0, wnp.array([-5, 5, 50]), 10)
    Array([ 0,  5, 10], dtype=int32)
    """
    operands = _scalars_adapted((min, x, max))
    for bound, word in ((min, "min"), (max, "max")):
        if np.shape(bound) and np.shape(bound) != np.shape(x):
            raise fail(
                f"clamp got {word} of shape {np.shape(bound)} for an operand of shape {np.shape(x)}.",
                fix=f"{word} must be a scalar or have the operand's shape; weft.numpy.clip broadcasts",
            )
    return selection.clamp(*operands)


# ------------------------------------------------------------------------------------------------------- conversion


def convert_element_type(operand: Any, new_dtype: Any) -> Any:
    """The operand in another dtype: float to integer clamps to the limits, complex to real drops the imaginary part.

    Args:
        operand: an array or a number.
        new_dtype: the dtype.

    Returns:
        An array of that dtype.

    >>> import weft.numpy as wnp
    >>> from weft import lax
    >>> lax.convert_element_type(wnp.array([1.7, -1.7]), wnp.int32)
    Array([ 1, -1], dtype=int32)
    """
    if new_dtype is None:
        raise ArgumentError("convert_element_type needs a dtype, got None.")
    dtype = dtypes.requested_dtype(new_dtype, "lax.convert_element_type")
    aval = getattr(operand, "aval", None)
    if aval is not None:
        if aval.dtype == dtype and not aval.weak_type:
            return operand
        return convert.convert_element_type(operand, new_dtype=dtype, weak_type=False)
    value = np.asarray(operand)
    if isinstance(dtype, dtypes.ExtendedDtype) or value.dtype == object:
        value = dtypes.coerce_value(operand, dtype)
        return from_numpy(value)
    with np.errstate(all="ignore"):
        return from_numpy(convert.converted(value, dtype))


def bitcast_convert_type(operand: Any, new_dtype: Any) -> Any:
    """The operand's bits as another dtype. A narrower one adds a last dimension, a wider one takes the last away.

    Args:
        operand: an array.
        new_dtype: the dtype.

    Returns:
        An array of that dtype.

    >>> import weft.numpy as wnp
    >>> from weft import lax
    >>> lax.bitcast_convert_type(wnp.array([1.0]), wnp.uint32)
    Array([1065353216], dtype=uint32)
    """
    dtype = dtypes.requested_dtype(new_dtype, "lax.bitcast_convert_type")
    return convert.bitcast_convert_type(operand, new_dtype=dtype)


def dtype(x: Any) -> Any:
    """The dtype that an array of `x`, an array, a number or a type, has when traced."""
    return dtypes.dtype(x, canonicalize=True)


def stop_gradient(x: Any) -> Any:
    """A tree of the same values, constant for differentiation.

    Args:
        x: a tree of arrays.

    Returns:
        The same tree, whose derivative is zero.

    >>> import weft
    >>> from weft import lax
    >>> weft.grad(lambda x: x * lax.stop_gradient(x))(3.0)
    Array(3., dtype=float32, weak_type=True)
    """
    return tree.map(_constant_leaf, x)


def _constant_leaf(leaf: Any) -> Any:
    inexact = dtypes.kind(_dtype(leaf)) in "fc"
    return convert.stop_gradient(leaf) if inexact else leaf
