"""Elementwise exponentials, roots, circular and hyperbolic functions, and special functions."""

from __future__ import annotations

from typing import Any

from weft.lax.argument_docs import document
from weft.lax.elementwise import match_operands, pair
from weft.primitives.elementwise import (
    exponential,
    special,
    special_gamma,
    trigonometric,
)
from weft.trace.annotations import ArrayLike
from weft.trace.array import Array

# ------------------------------------------------------------------------------------------- exponentials and roots


@document("An array of the dtype of `x`.", "lax.pow(wnp.array([2.0, 3.0]), 2.0) -> Array([4., 9.], dtype=float32)")
def pow(x: ArrayLike, y: ArrayLike) -> Array:
    """Raise x to the power y, which has the dtype of x or is an integer."""
    return exponential.pow(*pair(x, y))


@document(
    "An array of the same floating or complex dtype.",
    "lax.exp(wnp.array([0.0, 1.0])).round(3) -> Array([1.   , 2.718], dtype=float32)",
)
def exp(x: ArrayLike, *, accuracy: Any = None) -> Array:
    """Compute e to the power of x element-wise."""
    return exponential.exp(x)


@document(
    "An array of the same floating or complex dtype.",
    "lax.exp2(wnp.array([0.0, 3.0])).round(3) -> Array([1., 8.], dtype=float32)",
)
def exp2(x: ArrayLike, *, accuracy: Any = None) -> Array:
    """Compute 2 to the power of x element-wise."""
    return exponential.exp2(x)


@document(
    "An array of the same floating or complex dtype.",
    "lax.expm1(wnp.array([0.0, 1.0])).round(3) -> Array([0.   , 1.718], dtype=float32)",
)
def expm1(x: ArrayLike, *, accuracy: Any = None) -> Array:
    """Compute exp(x) - 1 element-wise, accurate near 0."""
    return exponential.expm1(x)


@document(
    "An array of the same floating or complex dtype.",
    "lax.log(wnp.array([1.0, 10.0])).round(3) -> Array([0.   , 2.303], dtype=float32)",
)
def log(x: ArrayLike, *, accuracy: Any = None) -> Array:
    """Compute the element-wise natural logarithm; -inf at 0, NaN below."""
    return exponential.log(x)


@document(
    "An array of the same floating or complex dtype.",
    "lax.log1p(wnp.array([0.0, 1.0])).round(3) -> Array([0.   , 0.693], dtype=float32)",
)
def log1p(x: ArrayLike, *, accuracy: Any = None) -> Array:
    """Compute log(1 + x) element-wise, accurate near 0."""
    return exponential.log1p(x)


@document(
    "An array of the same floating or complex dtype.",
    "lax.logistic(wnp.array([0.0, 2.0])).round(3) -> Array([0.5  , 0.881], dtype=float32)",
)
def logistic(x: ArrayLike, *, accuracy: Any = None) -> Array:
    """Compute the logistic function 1 / (1 + exp(-x)) element-wise."""
    return exponential.logistic(x)


@document(
    "An array of the same floating or complex dtype.",
    "lax.sqrt(wnp.array([4.0, 9.0])) -> Array([2., 3.], dtype=float32)",
)
def sqrt(x: ArrayLike, *, accuracy: Any = None) -> Array:
    """Compute the element-wise square root; NaN below 0. The derivative at 0 is inf."""
    return exponential.sqrt(x)


@document(
    "An array of the same floating dtype; inf at 0.",
    "lax.rsqrt(wnp.array([4.0, 0.25])) -> Array([0.5, 2. ], dtype=float32)",
)
def rsqrt(x: ArrayLike, *, accuracy: Any = None) -> Array:
    """Compute 1 / sqrt(x) element-wise."""
    return exponential.rsqrt(x)


@document(
    "An array of the same floating dtype.",
    "lax.cbrt(wnp.array([8.0, -27.0])).round(3) -> Array([ 2., -3.], dtype=float32)",
)
def cbrt(x: ArrayLike, *, accuracy: Any = None) -> Array:
    """Compute the element-wise cube root; that of a negative number is negative."""
    return exponential.cbrt(x)


# -------------------------------------------------------------------------------- circular and hyperbolic functions


@document(
    "An array of the same floating or complex dtype.",
    "lax.sin(wnp.array([0.0, 1.0])).round(3) -> Array([0.   , 0.841], dtype=float32)",
)
def sin(x: ArrayLike, *, accuracy: Any = None) -> Array:
    """Compute the element-wise sine of angles in radians."""
    return trigonometric.sin(x)


@document(
    "An array of the same floating or complex dtype.",
    "lax.cos(wnp.array([0.0, 1.0])).round(3) -> Array([1.  , 0.54], dtype=float32)",
)
def cos(x: ArrayLike, *, accuracy: Any = None) -> Array:
    """Compute the element-wise cosine of angles in radians."""
    return trigonometric.cos(x)


@document(
    "An array of the same floating or complex dtype.",
    "lax.tan(wnp.array([0.0, 1.0])).round(3) -> Array([0.   , 1.557], dtype=float32)",
)
def tan(x: ArrayLike, *, accuracy: Any = None) -> Array:
    """Compute the element-wise tangent of angles in radians."""
    return trigonometric.tan(x)


@document(
    "An array of the same floating or complex dtype.",
    "lax.asin(wnp.array([0.0, 1.0])).round(3) -> Array([0.   , 1.571], dtype=float32)",
)
def asin(x: ArrayLike) -> Array:
    """Compute the element-wise inverse sine in radians; NaN outside of [-1, 1]."""
    return trigonometric.asin(x)


@document(
    "An array of the same floating or complex dtype.",
    "lax.acos(wnp.array([0.0, 1.0])).round(3) -> Array([1.571, 0.   ], dtype=float32)",
)
def acos(x: ArrayLike) -> Array:
    """Compute the element-wise inverse cosine in radians; NaN outside of [-1, 1]."""
    return trigonometric.acos(x)


@document(
    "An array of the same floating or complex dtype.",
    "lax.atan(wnp.array([0.0, 1.0])).round(3) -> Array([0.   , 0.785], dtype=float32)",
)
def atan(x: ArrayLike) -> Array:
    """Compute the element-wise inverse tangent in radians."""
    return trigonometric.atan(x)


@document(
    "An array of the same floating or complex dtype.",
    "lax.sinh(wnp.array([0.0, 1.0])).round(3) -> Array([0.   , 1.175], dtype=float32)",
)
def sinh(x: ArrayLike) -> Array:
    """Compute the element-wise hyperbolic sine."""
    return trigonometric.sinh(x)


@document(
    "An array of the same floating or complex dtype.",
    "lax.cosh(wnp.array([0.0, 1.0])).round(3) -> Array([1.   , 1.543], dtype=float32)",
)
def cosh(x: ArrayLike) -> Array:
    """Compute the element-wise hyperbolic cosine."""
    return trigonometric.cosh(x)


@document(
    "An array of the same floating or complex dtype.",
    "lax.tanh(wnp.array([0.0, 1.0])).round(3) -> Array([0.   , 0.762], dtype=float32)",
)
def tanh(x: ArrayLike, *, accuracy: Any = None) -> Array:
    """Compute the element-wise hyperbolic tangent."""
    return trigonometric.tanh(x)


@document(
    "An array of the same floating or complex dtype.",
    "lax.asinh(wnp.array([0.0, 1.0])).round(3) -> Array([0.   , 0.881], dtype=float32)",
)
def asinh(x: ArrayLike) -> Array:
    """Compute the element-wise inverse hyperbolic sine."""
    return trigonometric.asinh(x)


@document(
    "An array of the same floating or complex dtype.",
    "lax.acosh(wnp.array([1.0, 2.0])).round(3) -> Array([0.   , 1.317], dtype=float32)",
)
def acosh(x: ArrayLike) -> Array:
    """Compute the element-wise inverse hyperbolic cosine; NaN below 1."""
    return trigonometric.acosh(x)


@document(
    "An array of the same floating or complex dtype.",
    "lax.atanh(wnp.array([0.0, 0.5])).round(3) -> Array([0.   , 0.549], dtype=float32)",
)
def atanh(x: ArrayLike) -> Array:
    """Compute the element-wise inverse hyperbolic tangent; infinite at 1 and -1, NaN beyond."""
    return trigonometric.atanh(x)


@document(
    "An array of the same floating dtype: angles from -pi to pi.",
    "lax.atan2(wnp.array([1.0]), wnp.array([-1.0])).round(3) -> Array([2.356], dtype=float32)",
)
def atan2(x: ArrayLike, y: ArrayLike) -> Array:
    """Compute the angle of the point with abscissa `y` and ordinate `x`, from -pi to pi."""
    return trigonometric.atan2(*pair(x, y))


# ------------------------------------------------------------------------------------------------ special functions


@document(
    "An array of the same floating dtype.",
    "lax.erf(wnp.array([0.0, 1.0])).round(3) -> Array([0.   , 0.843], dtype=float32)",
)
def erf(x: ArrayLike) -> Array:
    """Compute the element-wise error function: 2/sqrt(pi) times the integral of exp(-t*t) from 0 to x."""
    return special.erf(x)


@document(
    "An array of the same floating dtype.",
    "lax.erfc(wnp.array([0.0, 1.0])).round(3) -> Array([1.   , 0.157], dtype=float32)",
)
def erfc(x: ArrayLike) -> Array:
    """Compute 1 - erf(x) element-wise, accurate where that is small."""
    return special.erfc(x)


@document(
    "An array of the same floating dtype.",
    "lax.erf_inv(wnp.array([0.0, 0.5])).round(3) -> Array([0.   , 0.477], dtype=float32)",
)
def erf_inv(x: ArrayLike) -> Any:
    """Compute the element-wise inverse of the error function."""
    return special.erf_inv(x)


def bessel_i0e(x: ArrayLike) -> Array:
    """Compute the modified Bessel function of order 0, times exp(-|x|)."""
    return special.bessel_i0e(x)


def bessel_i1e(x: ArrayLike) -> Array:
    """Compute the modified Bessel function of order 1, times exp(-|x|)."""
    return special.bessel_i1e(x)


@document(
    "An array of the same floating dtype.",
    "lax.lgamma(wnp.array([1.0, 5.0])).round(3) -> Array([0.   , 3.178], dtype=float32)",
)
def lgamma(x: ArrayLike) -> Array:
    """Compute the logarithm of the magnitude of the gamma function element-wise."""
    return special_gamma.lgamma(x)


@document(
    "An array of the same floating dtype.",
    "lax.digamma(wnp.array([1.0, 5.0])).round(3) -> Array([-0.577,  1.506], dtype=float32)",
)
def digamma(x: ArrayLike) -> Array:
    """Compute the derivative of `lgamma` element-wise."""
    return special_gamma.digamma(x)


def polygamma(m: ArrayLike, x: ArrayLike) -> Array:
    """Compute the m-th derivative of digamma."""
    return special_gamma.polygamma(*pair(m, x))


def zeta(x: ArrayLike, q: ArrayLike) -> Array:
    """Compute the Hurwitz zeta function."""
    return special_gamma.zeta(*pair(x, q))


def igamma(a: ArrayLike, x: ArrayLike) -> Array:
    """Compute the regularized lower incomplete gamma function."""
    return special_gamma.igamma(*pair(a, x))


def igammac(a: ArrayLike, x: ArrayLike) -> Array:
    """Compute the regularized upper incomplete gamma function."""
    return special_gamma.igammac(*pair(a, x))


def igamma_grad_a(a: Any, x: Any) -> Any:
    """Compute the derivative of `igamma` with respect to its first argument."""
    return special_gamma.igamma_grad_a(*pair(a, x))


def random_gamma_grad(a: ArrayLike, x: ArrayLike) -> Array:
    """Compute the derivative with respect to `a` of a gamma variable of shape parameter `a` whose value is `x`."""
    return special_gamma.random_gamma_grad(*pair(a, x))


def betainc(a: ArrayLike, b: ArrayLike, x: ArrayLike) -> Array:
    """Compute the regularized incomplete beta function."""
    return special_gamma.regularized_incomplete_beta(*match_operands(a, b, x))
