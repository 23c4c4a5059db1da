"""Operations on each element of one array."""

from __future__ import annotations

from typing import Any

import weft.numpy as wnp
from weft.keras.core.config import floatx, standardize_dtype
from weft.keras.ops.argument_docs import document
from weft.keras.ops.dispatch import inexact, operand, operation, tensor, unary

abs = unary("abs", wnp.abs, "The absolute value of each element.", "[-1.0, 2.0] -> [1. 2.]")
absolute = unary("absolute", wnp.abs, "The absolute value of each element.", "[-1.0, 2.0] -> [1. 2.]")
arccos = unary("arccos", wnp.arccos, "The inverse cosine of each element.", "[1.0, 0.0] -> [0. 1.5707964]", True)
arccosh = unary("arccosh", wnp.arccosh, "The inverse hyperbolic cosine of each element.", "[1.0] -> [0.]", True)
arcsin = unary("arcsin", wnp.arcsin, "The inverse sine of each element.", "[0.0, 1.0] -> [0. 1.5707964]", True)
arcsinh = unary("arcsinh", wnp.arcsinh, "The inverse hyperbolic sine of each element.", "[0.0] -> [0.]", True)
arctan = unary("arctan", wnp.arctan, "The inverse tangent of each element.", "[0.0, 1.0] -> [0. 0.7853982]", True)
arctanh = unary("arctanh", wnp.arctanh, "The inverse hyperbolic tangent of each element.", "[0.0] -> [0.]", True)
angle = unary("angle", wnp.angle, "The angle of each complex element.", "[1.0j, -1.0] -> [1.5707964 3.1415927]", True)
bitwise_invert = unary("bitwise_invert", wnp.bitwise_not, "Each element with all bits inverted.", "[0, 5] -> [-1 -6]")
bitwise_not = unary("bitwise_not", wnp.bitwise_not, "Each element with all bits inverted.", "[0, 5] -> [-1 -6]")
cbrt = unary("cbrt", wnp.cbrt, "The cube root of each element.", "[8.0, 27.0] -> [2. 3.]", True)
ceil = unary("ceil", wnp.ceil, "The least integer not below each element.", "[0.2, -0.2] -> [ 1. -0.]", True)
conj = unary("conj", wnp.conj, "The complex conjugate of each element.", "[1.0 + 2.0j] -> [1.-2.j]")
conjugate = unary("conjugate", wnp.conj, "The complex conjugate of each element.", "[1.0 + 2.0j] -> [1.-2.j]")
copy = unary("copy", wnp.copy, "A copy of an array.", "[1, 2] -> [1 2]")
cos = unary("cos", wnp.cos, "The cosine of each element.", "[0.0] -> [1.]", True)
cosh = unary("cosh", wnp.cosh, "The hyperbolic cosine of each element.", "[0.0] -> [1.]", True)
deg2rad = unary("deg2rad", wnp.deg2rad, "Degrees as radians.", "[180.0] -> [3.1415927]", True)
exp = unary("exp", wnp.exp, "e to the power of each element.", "[0.0, 1.0] -> [1. 2.7182817]", True)
exp2 = unary("exp2", wnp.exp2, "2 to the power of each element.", "[0.0, 3.0] -> [1. 8.]", True)
expm1 = unary("expm1", wnp.expm1, "`exp(x) - 1`, exact for small elements.", "[0.0, 1e-10] -> [0.e+00 1.e-10]", True)
fabs = unary("fabs", wnp.fabs, "The absolute value of each element, as a float.", "[-1, 2] -> [1. 2.]", True)
floor = unary("floor", wnp.floor, "The largest integer not above each element.", "[1.7] -> [1.]", True)
i0 = unary("i0", wnp.i0, "The modified Bessel function of order 0.", "[0.0] -> [1.]", True)
imag = unary("imag", wnp.imag, "The imaginary part of each element.", "[1.0 + 2.0j] -> [2.]")
isfinite = unary("isfinite", wnp.isfinite, "Whether an element is neither infinite nor NaN.", "[1.0] -> [ True]")
isinf = unary("isinf", wnp.isinf, "Whether an element is an infinity.", "[1.0, float('inf')] -> [False  True]")
isnan = unary("isnan", wnp.isnan, "Whether an element is NaN.", "[1.0, float('nan')] -> [False  True]")
isneginf = unary("isneginf", wnp.isneginf, "Whether an element is negative infinity.", "[-1.0] -> [False]")
isposinf = unary("isposinf", wnp.isposinf, "Whether an element is positive infinity.", "[1.0] -> [False]")
isreal = unary("isreal", wnp.isreal, "Whether an element has no imaginary part.", "[1.0j, 1.0] -> [False  True]")
log = unary("log", wnp.log, "The natural logarithm of each element.", "[1.0, 2.0] -> [0. 0.6931472]", True)
log10 = unary("log10", wnp.log10, "The logarithm of each element to base 10.", "[1.0, 100.0] -> [0. 2.]", True)
log1p = unary("log1p", wnp.log1p, "`log(1 + x)`, exact for small elements.", "[0.0, 1e-10] -> [0.e+00 1.e-10]", True)
log2 = unary("log2", wnp.log2, "The logarithm of each element to base 2.", "[1.0, 8.0] -> [0. 3.]", True)
logical_not = unary("logical_not", wnp.logical_not, "Whether an element is false.", "[True, False] -> [False  True]")
negative = unary("negative", wnp.negative, "Each element with the other sign.", "[1, -2] -> [-1  2]")
rad2deg = unary("rad2deg", wnp.rad2deg, "Radians as degrees.", "[0.0, 1.5707964] -> [ 0. 90.]", True)
real = unary("real", wnp.real, "The real part of each element.", "[1.0 + 2.0j] -> [1.]")
reciprocal = unary("reciprocal", wnp.reciprocal, "1 divided by each element.", "[2.0, 4.0] -> [0.5  0.25]")
sign = unary("sign", wnp.sign, "-1, 0 or 1: the sign of each element.", "[-2.0, 0.0, 5.0] -> [-1.  0.  1.]")
signbit = unary("signbit", wnp.signbit, "Whether the sign bit of an element is set.", "[-0.0, 1.0] -> [ True False]")
sin = unary("sin", wnp.sin, "The sine of each element.", "[0.0] -> [0.]", True)
sinc = unary("sinc", wnp.sinc, "`sin(pi x) / (pi x)`, and 1 at 0.", "[0.0] -> [1.]", True)
sinh = unary("sinh", wnp.sinh, "The hyperbolic sine of each element.", "[0.0] -> [0.]", True)
sqrt = unary("sqrt", wnp.sqrt, "The square root of each element.", "[4.0, 9.0] -> [2. 3.]", True)
square = unary("square", wnp.square, "Each element multiplied by itself.", "[2, 3] -> [4 9]")
tan = unary("tan", wnp.tan, "The tangent of each element.", "[0.0] -> [0.]", True)
tanh = unary("tanh", wnp.tanh, "The hyperbolic tangent of each element.", "[0.0, 1.0] -> [0. 0.7615942]", True)
trunc = unary("trunc", wnp.trunc, "Each element without its fraction.", "[-1.7, 1.7] -> [-1.  1.]")


@operation
@document(
    "An array of the same shape.",
    "print(keras.ops.clip([-3.0, 0.5, 4.0], -1.0, 1.0)) -> [-1.   0.5  1. ]",
    x_min="the least value, a scalar or an array that broadcasts.",
    x_max="the largest value, likewise.",
)
def clip(x: Any, x_min: Any, x_max: Any) -> Any:
    """Clip elements to a range."""
    x = tensor(x)
    clipped = wnp.clip(x, operand(x_min), operand(x_max))
    return clipped.astype("int32") if x.dtype == bool else clipped


@operation
def nan_to_num(x: Any, nan: Any = 0.0, posinf: Any = None, neginf: Any = None) -> Any:
    """Replace NaN and infinities with finite values.

    Args:
        x: an array.
        nan: what NaN becomes.
        posinf: what positive infinity becomes; the largest finite value by default.
        neginf: what negative infinity becomes; the least finite value by default.

    Returns:
        An array of the same shape and dtype.
    """
    return wnp.nan_to_num(tensor(x), nan=nan, posinf=posinf, neginf=neginf)


@operation
@document(
    "An array of the same shape and dtype.",
    "print(keras.ops.round([0.5, 1.5, 1.26])) -> [0. 2. 1.]",
    decimals="how many decimals stay; a negative count rounds to tens, hundreds and so on.",
)
def round(x: Any, decimals: int = 0) -> Any:
    """Round elements to a number of decimals; halves go to the even neighbour."""
    return wnp.round(tensor(x), decimals)


@operation
@document(
    "An array whose last axis is shorter or longer where the sizes of the dtypes differ.",
    dtype="the dtype to read as; None leaves the array as it is.",
)
def view(x: Any, dtype: Any = None) -> Any:
    """Reinterpret the bytes of an array as another dtype."""
    x = tensor(x)
    return x if dtype is None else x.view(standardize_dtype(dtype))


@operation
@document("A vector of `floatx()`.", x="how many points.")
def bartlett(x: int) -> Any:
    """Return the triangular window of Bartlett with `x` points."""
    return wnp.bartlett(int(x)).astype(floatx())


@operation
@document("A vector of `floatx()`.", x="how many points.")
def blackman(x: int) -> Any:
    """Return the window of Blackman with `x` points, a sum of three cosines."""
    return wnp.blackman(int(x)).astype(floatx())


@operation
@document("A vector of `floatx()`.", x="how many points.")
def hamming(x: int) -> Any:
    """Return the window of Hamming with `x` points, a raised cosine that does not reach 0."""
    return wnp.hamming(int(x)).astype(floatx())


@operation
@document("A vector of `floatx()`.", x="how many points.")
def hanning(x: int) -> Any:
    """Return the window of Hann with `x` points, a raised cosine."""
    return wnp.hanning(int(x)).astype(floatx())


@operation
def kaiser(x: int, beta: Any) -> Any:
    """Return the window of Kaiser with `x` points.

    Args:
        x: how many points.
        beta: its shape; 0 is a rectangle, larger values are narrower.

    Returns:
        A vector of `floatx()`.
    """
    return wnp.kaiser(int(x), inexact(beta)).astype(floatx())
