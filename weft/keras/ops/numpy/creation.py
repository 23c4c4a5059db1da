"""New arrays."""

from __future__ import annotations

from typing import Any

import weft.numpy as wnp
from weft.keras.core.config import floatx, standardize_dtype
from weft.keras.ops.argument_docs import document
from weft.keras.ops.dispatch import operand, operation, tensor

Shape = Any  # a tuple or list of sizes, or one size


@operation
def arange(start: Any, stop: Any = None, step: Any = None, dtype: Any = None) -> Any:
    """Return evenly spaced values, the end excluded.

    Args:
        start: the first value; the end, if `stop` is None.
        stop: the end, which is not among the values.
        step: their distance, 1 by default.
        dtype: of the result; by default int32 for integers and `floatx()` for floats.

    Returns:
        A vector.

    Example:
        >>> from weft import keras
        >>> print(keras.ops.arange(1, 7, 2))
        [1 3 5]
    """
    if dtype is None:
        kinds = [value for value in (start, stop, step) if value is not None]
        common = wnp.result_type(*(operand(value) for value in kinds))
        dtype = floatx() if all(type(v) in (int, float) for v in kinds) and common.kind == "f" else common
    return wnp.arange(start, stop, 1 if step is None else step, dtype=standardize_dtype(dtype))


@operation
@document(
    "An array.",
    "print(keras.ops.array([[1, 2], [3, 4]]).shape) -> (2, 2)",
    x="what to convert.",
    dtype="of the result; by default that of `x`.",
)
def array(x: Any, dtype: Any = None) -> Any:
    """Create an array from lists, scalars, NumPy arrays or variables."""
    return wnp.array(tensor(x), dtype=None if dtype is None else standardize_dtype(dtype))


@operation
@document("An array.")
def empty(shape: Shape, dtype: Any = None) -> Any:
    """Create an array with unspecified elements (they are zeros)."""
    return wnp.zeros(shape, standardize_dtype(dtype))


@operation
@document("An array.", dtype="another dtype.")
def empty_like(x: Any, dtype: Any = None) -> Any:
    """Create an array with the shape and dtype of another and unspecified elements (they are zeros)."""
    return zeros_like(x, dtype)


@operation
def eye(N: int, M: int | None = None, k: int = 0, dtype: Any = None) -> Any:
    """Create a matrix with ones on a diagonal.

    Args:
        N: how many rows.
        M: how many columns, as many as rows by default.
        k: which diagonal: 0 is the main one, positive ones are above it.
        dtype: its dtype, `floatx()` by default.

    Returns:
        A matrix.

    Example:
        >>> from weft import keras
        >>> print(keras.ops.eye(2))
        [[1. 0.]
         [0. 1.]]
    """
    return wnp.eye(N, M, k, dtype=standardize_dtype(dtype))


@operation
@document(
    "An array.",
    "print(keras.ops.full((2,), 3)) -> [3. 3.]",
    fill_value="the value, or an array that broadcasts to `shape`.",
)
def full(shape: Shape, fill_value: Any, dtype: Any = None) -> Any:
    """Create an array filled with one value."""
    return wnp.full(shape, operand(fill_value), dtype=standardize_dtype(dtype))


@operation
@document(
    "An array.",
    "print(keras.ops.full_like([1, 2], 7)) -> [7 7]",
    fill_value="the value, or an array that broadcasts.",
    dtype="another dtype.",
)
def full_like(x: Any, fill_value: Any, dtype: Any = None) -> Any:
    """Create an array with the shape and dtype of another, filled with one value."""
    return wnp.full_like(tensor(x), operand(fill_value), dtype=dtype)


@operation
@document("A matrix.", n="how many rows and columns.")
def identity(n: int, dtype: Any = None) -> Any:
    """Create the identity matrix."""
    return wnp.eye(n, dtype=standardize_dtype(dtype))


@operation
def linspace(
    start: Any,
    stop: Any,
    num: int = 50,
    endpoint: bool = True,
    retstep: bool = False,
    dtype: Any = None,
    axis: int = 0,
) -> Any:
    """Return `num` evenly spaced values.

    Args:
        start: the first value.
        stop: the last value, or the end if `endpoint` is False.
        num: how many values.
        endpoint: whether `stop` is one of them.
        retstep: whether to return their distance too.
        dtype: of the result; floats by default.
        axis: where the new axis is, if `start` and `stop` are arrays.

    Returns:
        An array, or a pair of it and the distance.

    Example:
        >>> from weft import keras
        >>> print(keras.ops.linspace(0.0, 1.0, 5))
        [0.   0.25 0.5  0.75 1.  ]
    """
    space: Any = wnp.linspace
    return space(operand(start), operand(stop), num, endpoint, retstep, dtype, axis)


@operation
def logspace(
    start: Any, stop: Any, num: int = 50, endpoint: bool = True, base: Any = 10, dtype: Any = None, axis: int = 0
) -> Any:
    """Return `num` values from `base**start` to `base**stop`, at equal ratios.

    Args:
        start: the exponent of the first value.
        stop: the exponent of the last value.
        num: how many values.
        endpoint: whether the last one is included.
        base: the base of the powers.
        dtype: of the result; floats by default.
        axis: where the new axis is, if `start` and `stop` are arrays.

    Returns:
        An array.
    """
    return wnp.logspace(operand(start), operand(stop), num, endpoint, base, dtype, axis)


@operation
def geomspace(start: Any, stop: Any, num: int = 50, endpoint: bool = True, dtype: Any = None, axis: int = 0) -> Any:
    """Return `num` values from `start` to `stop` at equal ratios.

    Args:
        start: the first value.
        stop: the last value.
        num: how many values.
        endpoint: whether the last one is included.
        dtype: of the result; floats by default.
        axis: where the new axis is, if `start` and `stop` are arrays.

    Returns:
        An array.
    """
    return wnp.geomspace(operand(start), operand(stop), num, endpoint, dtype, axis)


@operation
def meshgrid(*x: Any, indexing: str = "xy") -> Any:
    """Return the coordinates of all points of a grid, from those along each axis.

    Args:
        *x: vectors of coordinates.
        indexing: "xy", where the first vector runs along columns, or "ij", where it runs along rows.

    Returns:
        A list of arrays, one a vector.

    Example:
        >>> from weft import keras
        >>> columns, rows = keras.ops.meshgrid([1, 2], [5, 6])
        >>> print(columns)
        [[1 2]
         [1 2]]
    """
    return wnp.meshgrid(*(tensor(vector) for vector in x), indexing=indexing)


@operation
@document("An array.", "print(keras.ops.ones((2,))) -> [1. 1.]")
def ones(shape: Shape, dtype: Any = None) -> Any:
    """Create an array of ones."""
    return wnp.ones(shape, standardize_dtype(dtype))


@operation
@document("An array.", "print(keras.ops.ones_like([5, 6])) -> [1 1]", dtype="another dtype.")
def ones_like(x: Any, dtype: Any = None) -> Any:
    """Create an array of ones with the shape and dtype of another."""
    return wnp.ones_like(tensor(x), dtype=dtype)


@operation
@document("A matrix.", N="how many rows.", M="how many columns, as many as rows by default.")
def tri(N: int, M: int | None = None, k: int = 0, dtype: Any = None) -> Any:
    """Create a matrix with ones on and below a diagonal."""
    return wnp.tri(N, M, k, dtype=standardize_dtype(dtype))


@operation
def vander(x: Any, N: int | None = None, increasing: bool = False) -> Any:
    """Create the Vandermonde matrix: powers of the elements of a vector.

    Args:
        x: a vector.
        N: how many powers, as many as elements by default.
        increasing: whether the power 0 comes first.

    Returns:
        A matrix, one row an element.
    """
    return wnp.vander(tensor(x), N, increasing)


@operation
@document("An array.", 'print(keras.ops.zeros((2,), "int32")) -> [0 0]')
def zeros(shape: Shape, dtype: Any = None) -> Any:
    """Create an array of zeros."""
    return wnp.zeros(shape, standardize_dtype(dtype))


@operation
@document("An array.", "print(keras.ops.zeros_like([5, 6])) -> [0 0]", dtype="another dtype.")
def zeros_like(x: Any, dtype: Any = None) -> Any:
    """Create an array of zeros with the shape and dtype of another."""
    return wnp.zeros_like(tensor(x), dtype=dtype)
