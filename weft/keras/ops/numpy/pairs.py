"""Operations on pairs of elements of two arrays, and products of arrays."""

from __future__ import annotations

from typing import Any

import weft.numpy as wnp
from weft.keras.ops.argument_docs import document
from weft.keras.ops.dispatch import binary, operand, operation, tensor

XY = ("x", "y")


def _strong(x: Any) -> Any:
    """Convert a Python float to float32, so that it does not take the dtype of the other operand."""
    return wnp.asarray(x, "float32") if isinstance(x, float) else x


add = binary("add", wnp.add, "The sum of two arrays.", "[1, 2], [3, 4] -> [4 6]")
arctan2 = binary(
    "arctan2",
    lambda x1, x2: wnp.arctan2(_strong(x1), _strong(x2)),
    "The angle of the points (x2, x1), in (-pi, pi].",
    "[1.0, 0.0], [0.0, -1.0] -> [1.5707964 3.1415927]",
)
bitwise_and = binary("bitwise_and", wnp.bitwise_and, "The bits that both have.", "[6, 5], [3, 3] -> [2 1]", XY)
bitwise_or = binary("bitwise_or", wnp.bitwise_or, "The bits that one of both has.", "[6, 5], [3, 3] -> [7 7]", XY)
bitwise_xor = binary("bitwise_xor", wnp.bitwise_xor, "The bits that differ.", "[6, 5], [3, 3] -> [5 6]", XY)
bitwise_left_shift = binary(
    "bitwise_left_shift", wnp.left_shift, "The bits of `x` shifted left by `y`.", "[1, 2], [3, 3] -> [ 8 16]", XY
)
left_shift = binary("left_shift", wnp.left_shift, "The bits of `x` shifted left by `y`.", "[1, 2], 3 -> [ 8 16]", XY)
bitwise_right_shift = binary(
    "bitwise_right_shift", wnp.right_shift, "The bits of `x` shifted right by `y`.", "[8, 16], [3, 3] -> [1 2]", XY
)
right_shift = binary("right_shift", wnp.right_shift, "The bits of `x` shifted right by `y`.", "[8, 16], 3 -> [1 2]", XY)
divide = binary("divide", wnp.divide, "The quotient of two arrays, as floats.", "[1, 3], 2 -> [0.5 1.5]")
true_divide = binary("true_divide", wnp.divide, "The quotient of two arrays, as floats.", "[1, 3], 2 -> [0.5 1.5]")
equal = binary("equal", wnp.equal, "Whether elements are equal.", "[1, 2], [1, 3] -> [ True False]")
floor_divide = binary(
    "floor_divide", wnp.floor_divide, "The largest integer not above the quotient.", "[7, -7], 2 -> [ 3 -4]"
)
fmax = binary("fmax", wnp.fmax, "The larger of two elements, or the one that is not NaN.", "[1, 5], [2, 2] -> [2 5]")
fmin = binary("fmin", wnp.fmin, "The smaller of two elements, or the one that is not NaN.", "[1, 5], [2, 2] -> [1 2]")
fmod = binary("fmod", wnp.fmod, "The remainder with the sign of the dividend.", "[7.0, -7.0], 3.0 -> [ 1. -1.]")
gcd = binary("gcd", wnp.gcd, "The greatest common divisor.", "[12, 18], [8, 27] -> [4 9]")
greater = binary("greater", wnp.greater, "Whether `x1 > x2`.", "[1, 3], 2 -> [False  True]")
greater_equal = binary("greater_equal", wnp.greater_equal, "Whether `x1 >= x2`.", "[1, 2], 2 -> [False  True]")
heaviside = binary(
    "heaviside", wnp.heaviside, "0 below 0, 1 above it, and `x2` at 0.", "[-1.0, 0.0, 1.0], 0.5 -> [0.  0.5 1. ]"
)
hypot = binary("hypot", wnp.hypot, "`sqrt(x1**2 + x2**2)` without overflow.", "[3.0], [4.0] -> [5.]")
lcm = binary("lcm", wnp.lcm, "The least common multiple.", "[4], [6] -> [12]")
ldexp = binary("ldexp", wnp.ldexp, "`x1 * 2**x2` for integers `x2`.", "[1.5], [2] -> [6.]")
less = binary("less", wnp.less, "Whether `x1 < x2`.", "[1, 3], 2 -> [ True False]")
less_equal = binary("less_equal", wnp.less_equal, "Whether `x1 <= x2`.", "[2, 3], 2 -> [ True False]")
logaddexp = binary(
    "logaddexp",
    lambda x1, x2: wnp.logaddexp(_strong(x1), _strong(x2)),
    "`log(exp(x1) + exp(x2))` without overflow.",
    "[0.0], [0.0] -> [0.6931472]",
)
logaddexp2 = binary(
    "logaddexp2",
    lambda x1, x2: wnp.logaddexp2(_strong(x1), _strong(x2)),
    "`log2(2**x1 + 2**x2)` without overflow.",
    "[1.0], [1.0] -> [2.]",
)
logical_and = binary("logical_and", wnp.logical_and, "Whether both are true.", "[True, False], True -> [ True False]")
logical_or = binary("logical_or", wnp.logical_or, "Whether one is.", "[True, False], False -> [ True False]")
logical_xor = binary("logical_xor", wnp.logical_xor, "Whether one is true.", "[True, False], True -> [False  True]")
maximum = binary("maximum", wnp.maximum, "The larger of two elements; NaN if one is.", "[1, 5], [2, 2] -> [2 5]")
minimum = binary("minimum", wnp.minimum, "The smaller of two elements; NaN if one is.", "[1, 5], [2, 2] -> [1 2]")
mod = binary("mod", wnp.mod, "The remainder with the sign of the divisor.", "[7, -7], 3 -> [1 2]")
multiply = binary("multiply", wnp.multiply, "The elementwise product of two arrays.", "[1, 2], [3, 4] -> [3 8]")
nextafter = binary("nextafter", wnp.nextafter, "The next float after `x1` towards `x2`.", "[1.0], [2.0] -> [1.0000001]")
not_equal = binary("not_equal", wnp.not_equal, "Whether elements differ.", "[1, 2], [1, 3] -> [False  True]")
power = binary("power", wnp.power, "`x1` to the power of `x2`.", "[2, 3], 2 -> [4 9]")
subtract = binary("subtract", wnp.subtract, "The difference of two arrays.", "[3, 4], [1, 5] -> [ 2 -1]")


@operation
@document(
    "An array of floats.",
    "print(keras.ops.divide_no_nan([1.0, 2.0], [0.0, 4.0])) -> [0.  0.5]",
    x1="the dividend.",
    x2="the divisor; the shapes broadcast.",
)
def divide_no_nan(x1: Any, x2: Any) -> Any:
    """Divide two arrays; the quotient is 0 where the divisor is 0."""
    dividend, divisor = operand(x1), operand(x2)
    safe = wnp.where(wnp.equal(divisor, 0), 1, divisor)
    return wnp.where(wnp.equal(divisor, 0), 0, wnp.divide(dividend, safe))


@operation
def isclose(x1: Any, x2: Any, rtol: float = 1e-5, atol: float = 1e-8, equal_nan: bool = False) -> Any:
    """Return whether elements differ by at most `atol + rtol * abs(x2)`.

    Args:
        x1: an array.
        x2: another; the shapes broadcast.
        rtol: the part of the tolerance that is relative to `x2`.
        atol: the absolute part.
        equal_nan: whether NaN equals NaN.

    Returns:
        An array of booleans.
    """
    return wnp.isclose(operand(x1), operand(x2), rtol, atol, equal_nan)


@operation
def allclose(x1: Any, x2: Any, rtol: float = 1e-5, atol: float = 1e-8, equal_nan: bool = False) -> Any:
    """Return whether all elements are close, in the sense of `isclose`.

    Args:
        x1: an array.
        x2: another; the shapes broadcast.
        rtol: the part of the tolerance that is relative to `x2`.
        atol: the absolute part.
        equal_nan: whether NaN equals NaN.

    Returns:
        A boolean scalar.
    """
    return wnp.allclose(operand(x1), operand(x2), rtol, atol, equal_nan)


@operation
def isin(x1: Any, x2: Any, assume_unique: bool = False, invert: bool = False) -> Any:
    """Return whether each element of `x1` is one of the elements of `x2`.

    Args:
        x1: an array.
        x2: the elements to look for.
        assume_unique: a promise that no element occurs twice in either.
        invert: whether to answer the opposite.

    Returns:
        An array of booleans of the shape of `x1`.
    """
    return wnp.isin(tensor(x1), tensor(x2), assume_unique=assume_unique, invert=invert)


@operation
def cross(x1: Any, x2: Any, axisa: int = -1, axisb: int = -1, axisc: int = -1, axis: int | None = None) -> Any:
    """Compute the cross product of vectors of 2 or 3 components.

    Args:
        x1: vectors.
        x2: vectors.
        axisa: the axis of components of `x1`.
        axisb: the axis of components of `x2`.
        axisc: the axis of components of the result.
        axis: one axis for all three.

    Returns:
        An array of vectors, or of scalars where both have 2 components.
    """
    return wnp.cross(tensor(x1), tensor(x2), axisa, axisb, axisc, axis)


@operation
def dot(x1: Any, x2: Any) -> Any:
    """Contract the last axis of `x1` with the second to last axis of `x2`.

    Args:
        x1: an array or a scalar.
        x2: an array or a scalar.

    Returns:
        A scalar for two vectors, the matrix product for two matrices, the elementwise product if one is a scalar.
    """
    return wnp.dot(operand(x1), operand(x2))


@operation
def einsum(subscripts: str, *operands: Any, **kwargs: Any) -> Any:
    """Compute a sum of products over the axes that a formula in Einstein's notation names.

    Args:
        subscripts: the formula, such as `"bij,bjk->bik"`.
        *operands: its arrays.
        **kwargs: options of `weft.numpy.einsum`, such as `precision`.

    Returns:
        An array of the common dtype.

    Example:
        >>> from weft import keras
        >>> print(keras.ops.einsum("i,i->", [1.0, 2.0], [3.0, 4.0]))
        11.0
    """
    return wnp.einsum(subscripts, *(tensor(x) for x in operands), **kwargs)


@operation
@document("An array with the other axes of both.", x2="an array whose last axis has the same size.")
def inner(x1: Any, x2: Any) -> Any:
    """Contract the last axes of two arrays."""
    return wnp.inner(tensor(x1), tensor(x2))


@operation
@document("An array whose axes have the products of their sizes.")
def kron(x1: Any, x2: Any) -> Any:
    """Compute the Kronecker product: blocks of `x2` multiplied by the elements of `x1`."""
    return wnp.kron(tensor(x1), tensor(x2))


@operation
@document(
    "An array of the common dtype; products of int8 accumulate in int32.",
    "print(keras.ops.matmul([[1.0, 2.0]], [[3.0], [4.0]])) -> [[11.]]",
    x1="an array of rank 1 or more.",
    x2="an array of rank 1 or more.",
)
def matmul(x1: Any, x2: Any) -> Any:
    """Compute the matrix product; axes before the last two are a batch and broadcast."""
    x1, x2 = tensor(x1), tensor(x2)
    if str(x1.dtype) == "int8" and str(x2.dtype) == "int8":
        return wnp.matmul(x1, x2, preferred_element_type="int32")
    return wnp.matmul(x1, x2)


@operation
@document("A matrix.", x1="an array, read as a vector.", x2="an array, read as a vector.")
def outer(x1: Any, x2: Any) -> Any:
    """Multiply every element of one array with every element of another."""
    return wnp.outer(tensor(x1), tensor(x2))


@operation
@document(
    "An array with the remaining axes of `x1`, then those of `x2`.",
    "print(keras.ops.tensordot([[1.0, 2.0]], [3.0, 4.0], axes=1)) -> [11.]",
    axes="how many of the last axes of `x1` and the first of `x2`, or a pair of lists of axes.",
)
def tensordot(x1: Any, x2: Any, axes: Any = 2) -> Any:
    """Contract two arrays over some of their axes."""
    return wnp.tensordot(tensor(x1), tensor(x2), axes=axes)


@operation
@document("A scalar.", x2="an array of as many elements.")
def vdot(x1: Any, x2: Any) -> Any:
    """Compute the dot product of two flattened arrays, the first conjugated."""
    return wnp.vdot(tensor(x1), tensor(x2))


@operation
def correlate(x1: Any, x2: Any, mode: str = "valid") -> Any:
    """Compute the cross-correlation of two vectors.

    Args:
        x1: a vector.
        x2: a vector.
        mode: "valid" (where both overlap fully), "same" (as long as the longer) or "full" (every overlap).

    Returns:
        A vector of floats.
    """
    dtype = wnp.result_type(tensor(x1), tensor(x2), 1.0)
    return wnp.correlate(tensor(x1).astype(dtype), tensor(x2).astype(dtype), mode)
