"""Elementwise exponentials, roots, circular and hyperbolic functions, and special functions."""

from __future__ import annotations

from typing import Any

from weft.lax.elementwise import match_operands, pair
from weft.primitives.elementwise import (
    exponential,
    special,
    special_gamma,
    trigonometric,
)

# ------------------------------------------------------------------------------------------- exponentials and roots


def pow(x: Any, y: Any) -> Any:
    """Raise x to the power y, which has the dtype of x or is an integer.

    Args:
        x: an array or a number.
        y: an array or a number of the same dtype and shape (a scalar broadcasts).

    Returns:
        An array of the dtype of `x`.

    >>> import weft.numpy as wnp
    >>> from weft import lax
    >>> lax.pow(wnp.array([2.0, 3.0]), 2.0)
    Array([4., 9.], dtype=float32)
    """
    return exponential.pow(*pair(x, y))


def exp(x: Any, *, accuracy: Any = None) -> Any:
    """Compute e to the power of x element-wise.

    Args:
        x: an array or a number.
        accuracy: accepted for compatibility.

    Returns:
        An array of the same floating or complex dtype.

    >>> import weft.numpy as wnp
    >>> from weft import lax
    >>> lax.exp(wnp.array([0.0, 1.0])).round(3)
    Array([1.   , 2.718], dtype=float32)
    """
    return exponential.exp(x)


def exp2(x: Any, *, accuracy: Any = None) -> Any:
    """Compute 2 to the power of x element-wise.

    Args:
        x: an array or a number.
        accuracy: accepted for compatibility.

    Returns:
        An array of the same floating or complex dtype.

    >>> import weft.numpy as wnp
    >>> from weft import lax
    >>> lax.exp2(wnp.array([0.0, 3.0])).round(3)
    Array([1., 8.], dtype=float32)
    """
    return exponential.exp2(x)


def expm1(x: Any, *, accuracy: Any = None) -> Any:
    """Compute exp(x) - 1 element-wise, accurate near 0.

    Args:
        x: an array or a number.
        accuracy: accepted for compatibility.

    Returns:
        An array of the same floating or complex dtype.

    >>> import weft.numpy as wnp
    >>> from weft import lax
    >>> lax.expm1(wnp.array([0.0, 1.0])).round(3)
    Array([0.   , 1.718], dtype=float32)
    """
    return exponential.expm1(x)


def log(x: Any, *, accuracy: Any = None) -> Any:
    """Compute the element-wise natural logarithm; -inf at 0, NaN below.

    Args:
        x: an array or a number.
        accuracy: accepted for compatibility.

    Returns:
        An array of the same floating or complex dtype.

    >>> import weft.numpy as wnp
    >>> from weft import lax
    >>> lax.log(wnp.array([1.0, 10.0])).round(3)
    Array([0.   , 2.303], dtype=float32)
    """
    return exponential.log(x)


def log1p(x: Any, *, accuracy: Any = None) -> Any:
    """Compute log(1 + x) element-wise, accurate near 0.

    Args:
        x: an array or a number.
        accuracy: accepted for compatibility.

    Returns:
        An array of the same floating or complex dtype.

    >>> import weft.numpy as wnp
    >>> from weft import lax
    >>> lax.log1p(wnp.array([0.0, 1.0])).round(3)
    Array([0.   , 0.693], dtype=float32)
    """
    return exponential.log1p(x)


def logistic(x: Any, *, accuracy: Any = None) -> Any:
    """Compute the logistic function 1 / (1 + exp(-x)) element-wise.

    Args:
        x: an array or a number.
        accuracy: accepted for compatibility.

    Returns:
        An array of the same floating or complex dtype.

    >>> import weft.numpy as wnp
    >>> from weft import lax
    >>> lax.logistic(wnp.array([0.0, 2.0])).round(3)
    Array([0.5  , 0.881], dtype=float32)
    """
    return exponential.logistic(x)


def sqrt(x: Any, *, accuracy: Any = None) -> Any:
    """Compute the element-wise square root; NaN below 0. The derivative at 0 is inf.

    Args:
        x: an array or a number.
        accuracy: accepted for compatibility.

    Returns:
        An array of the same floating or complex dtype.

    >>> import weft.numpy as wnp
    >>> from weft import lax
    >>> lax.sqrt(wnp.array([4.0, 9.0]))
    Array([2., 3.], dtype=float32)
    """
    return exponential.sqrt(x)


def rsqrt(x: Any, *, accuracy: Any = None) -> Any:
    """Compute 1 / sqrt(x) element-wise.

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
    """Compute the element-wise cube root; that of a negative number is negative.

    Args:
        x: an array or a number.
        accuracy: accepted for compatibility.

    Returns:
        An array of the same floating dtype.

    >>> import weft.numpy as wnp
    >>> from weft import lax
    >>> lax.cbrt(wnp.array([8.0, -27.0])).round(3)
    Array([ 2., -3.], dtype=float32)
    """
    return exponential.cbrt(x)


# -------------------------------------------------------------------------------- circular and hyperbolic functions


def sin(x: Any, *, accuracy: Any = None) -> Any:
    """Compute the element-wise sine of angles in radians.

    Args:
        x: an array or a number.
        accuracy: accepted for compatibility.

    Returns:
        An array of the same floating or complex dtype.

    >>> import weft.numpy as wnp
    >>> from weft import lax
    >>> lax.sin(wnp.array([0.0, 1.0])).round(3)
    Array([0.   , 0.841], dtype=float32)
    """
    return trigonometric.sin(x)


def cos(x: Any, *, accuracy: Any = None) -> Any:
    """Compute the element-wise cosine of angles in radians.

    Args:
        x: an array or a number.
        accuracy: accepted for compatibility.

    Returns:
        An array of the same floating or complex dtype.

    >>> import weft.numpy as wnp
    >>> from weft import lax
    >>> lax.cos(wnp.array([0.0, 1.0])).round(3)
    Array([1.  , 0.54], dtype=float32)
    """
    return trigonometric.cos(x)


def tan(x: Any, *, accuracy: Any = None) -> Any:
    """Compute the element-wise tangent of angles in radians.

    Args:
        x: an array or a number.
        accuracy: accepted for compatibility.

    Returns:
        An array of the same floating or complex dtype.

    >>> import weft.numpy as wnp
    >>> from weft import lax
    >>> lax.tan(wnp.array([0.0, 1.0])).round(3)
    Array([0.   , 1.557], dtype=float32)
    """
    return trigonometric.tan(x)


def asin(x: Any) -> Any:
    """Compute the element-wise inverse sine in radians; NaN outside of [-1, 1].

    Args:
        x: an array or a number.

    Returns:
        An array of the same floating or complex dtype.

    >>> import weft.numpy as wnp
    >>> from weft import lax
    >>> lax.asin(wnp.array([0.0, 1.0])).round(3)
    Array([0.   , 1.571], dtype=float32)
    """
    return trigonometric.asin(x)


def acos(x: Any) -> Any:
    """Compute the element-wise inverse cosine in radians; NaN outside of [-1, 1].

    Args:
        x: an array or a number.

    Returns:
        An array of the same floating or complex dtype.

    >>> import weft.numpy as wnp
    >>> from weft import lax
    >>> lax.acos(wnp.array([0.0, 1.0])).round(3)
    Array([1.571, 0.   ], dtype=float32)
    """
    return trigonometric.acos(x)


def atan(x: Any) -> Any:
    """Compute the element-wise inverse tangent in radians.

    Args:
        x: an array or a number.

    Returns:
        An array of the same floating or complex dtype.

    >>> import weft.numpy as wnp
    >>> from weft import lax
    >>> lax.atan(wnp.array([0.0, 1.0])).round(3)
    Array([0.   , 0.785], dtype=float32)
    """
    return trigonometric.atan(x)


def sinh(x: Any) -> Any:
    """Compute the element-wise hyperbolic sine.

    Args:
        x: an array or a number.

    Returns:
        An array of the same floating or complex dtype.

    >>> import weft.numpy as wnp
    >>> from weft import lax
    >>> lax.sinh(wnp.array([0.0, 1.0])).round(3)
    Array([0.   , 1.175], dtype=float32)
    """
    return trigonometric.sinh(x)


def cosh(x: Any) -> Any:
    """Compute the element-wise hyperbolic cosine.

    Args:
        x: an array or a number.

    Returns:
        An array of the same floating or complex dtype.

    >>> import weft.numpy as wnp
    >>> from weft import lax
    >>> lax.cosh(wnp.array([0.0, 1.0])).round(3)
    Array([1.   , 1.543], dtype=float32)
    """
    return trigonometric.cosh(x)


def tanh(x: Any, *, accuracy: Any = None) -> Any:
    """Compute the element-wise hyperbolic tangent.

    Args:
        x: an array or a number.
        accuracy: accepted for compatibility.

    Returns:
        An array of the same floating or complex dtype.

    >>> import weft.numpy as wnp
    >>> from weft import lax
    >>> lax.tanh(wnp.array([0.0, 1.0])).round(3)
    Array([0.   , 0.762], dtype=float32)
    """
    return trigonometric.tanh(x)


def asinh(x: Any) -> Any:
    """Compute the element-wise inverse hyperbolic sine.

    Args:
        x: an array or a number.

    Returns:
        An array of the same floating or complex dtype.

    >>> import weft.numpy as wnp
    >>> from weft import lax
    >>> lax.asinh(wnp.array([0.0, 1.0])).round(3)
    Array([0.   , 0.881], dtype=float32)
    """
    return trigonometric.asinh(x)


def acosh(x: Any) -> Any:
    """Compute the element-wise inverse hyperbolic cosine; NaN below 1.

    Args:
        x: an array or a number.

    Returns:
        An array of the same floating or complex dtype.

    >>> import weft.numpy as wnp
    >>> from weft import lax
    >>> lax.acosh(wnp.array([1.0, 2.0])).round(3)
    Array([0.   , 1.317], dtype=float32)
    """
    return trigonometric.acosh(x)


def atanh(x: Any) -> Any:
    """Compute the element-wise inverse hyperbolic tangent; infinite at 1 and -1, NaN beyond.

    Args:
        x: an array or a number.

    Returns:
        An array of the same floating or complex dtype.

    >>> import weft.numpy as wnp
    >>> from weft import lax
    >>> lax.atanh(wnp.array([0.0, 0.5])).round(3)
    Array([0.   , 0.549], dtype=float32)
    """
    return trigonometric.atanh(x)


def atan2(x: Any, y: Any) -> Any:
    """Compute the angle of the point with abscissa `y` and ordinate `x`, from -pi to pi.

    Args:
        x: an array or a number.
        y: an array or a number of the same dtype and shape (a scalar broadcasts).

    Returns:
        An array of the same floating dtype: angles from -pi to pi.

    >>> import weft.numpy as wnp
    >>> from weft import lax
    >>> lax.atan2(wnp.array([1.0]), wnp.array([-1.0])).round(3)
    Array([2.356], dtype=float32)
    """
    return trigonometric.atan2(*pair(x, y))


# ------------------------------------------------------------------------------------------------ special functions


def erf(x: Any) -> Any:
    """Compute the element-wise error function: 2/sqrt(pi) times the integral of exp(-t*t) from 0 to x.

    Args:
        x: an array or a number.

    Returns:
        An array of the same floating dtype.

    >>> import weft.numpy as wnp
    >>> from weft import lax
    >>> lax.erf(wnp.array([0.0, 1.0])).round(3)
    Array([0.   , 0.843], dtype=float32)
    """
    return special.erf(x)


def erfc(x: Any) -> Any:
    """Compute 1 - erf(x) element-wise, accurate where that is small.

    Args:
        x: an array or a number.

    Returns:
        An array of the same floating dtype.

    >>> import weft.numpy as wnp
    >>> from weft import lax
    >>> lax.erfc(wnp.array([0.0, 1.0])).round(3)
    Array([1.   , 0.157], dtype=float32)
    """
    return special.erfc(x)


def erf_inv(x: Any) -> Any:
    """Compute the element-wise inverse of the error function.

    Args:
        x: an array or a number.

    Returns:
        An array of the same floating dtype.

    >>> import weft.numpy as wnp
    >>> from weft import lax
    >>> lax.erf_inv(wnp.array([0.0, 0.5])).round(3)
    Array([0.   , 0.477], dtype=float32)
    """
    return special.erf_inv(x)


def bessel_i0e(x: Any) -> Any:
    """Compute the modified Bessel function of order 0, times exp(-|x|)."""
    return special.bessel_i0e(x)


def bessel_i1e(x: Any) -> Any:
    """Compute the modified Bessel function of order 1, times exp(-|x|)."""
    return special.bessel_i1e(x)


def lgamma(x: Any) -> Any:
    """Compute the logarithm of the magnitude of the gamma function element-wise.

    Args:
        x: an array or a number.

    Returns:
        An array of the same floating dtype.

    >>> import weft.numpy as wnp
    >>> from weft import lax
    >>> lax.lgamma(wnp.array([1.0, 5.0])).round(3)
    Array([0.   , 3.178], dtype=float32)
    """
    return special_gamma.lgamma(x)


def digamma(x: Any) -> Any:
    """Compute the derivative of `lgamma` element-wise.

    Args:
        x: an array or a number.

    Returns:
        An array of the same floating dtype.

    >>> import weft.numpy as wnp
    >>> from weft import lax
    >>> lax.digamma(wnp.array([1.0, 5.0])).round(3)
    Array([-0.577,  1.506], dtype=float32)
    """
    return special_gamma.digamma(x)


def polygamma(m: Any, x: Any) -> Any:
    """Compute the m-th derivative of digamma."""
    return special_gamma.polygamma(*pair(m, x))


def zeta(x: Any, q: Any) -> Any:
    """Compute the Hurwitz zeta function."""
    return special_gamma.zeta(*pair(x, q))


def igamma(a: Any, x: Any) -> Any:
    """Compute the regularized lower incomplete gamma function."""
    return special_gamma.igamma(*pair(a, x))


def igammac(a: Any, x: Any) -> Any:
    """Compute the regularized upper incomplete gamma function."""
    return special_gamma.igammac(*pair(a, x))


def igamma_grad_a(a: Any, x: Any) -> Any:
    """Compute the derivative of `igamma` with respect to its first argument."""
    return special_gamma.igamma_grad_a(*pair(a, x))


def random_gamma_grad(a: Any, x: Any) -> Any:
    """Compute the derivative with respect to `a` of a gamma variable of shape parameter `a` whose value is `x`."""
    return special_gamma.random_gamma_grad(*pair(a, x))


def betainc(a: Any, b: Any, x: Any) -> Any:
    """Compute the regularized incomplete beta function."""
    return special_gamma.regularized_incomplete_beta(*match_operands(a, b, x))
