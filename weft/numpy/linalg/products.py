"""Products and other functions of the array API standard's linear algebra, on matrices in the last two axes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from weft import lax
from weft.base.arguments import index
from weft.base.errors import ArgumentError
from weft.numpy import contraction
from weft.numpy.reductions import sum as sum_
from weft.numpy.util import broadcast_shape, canonicalize_axis, ensure_arrays, expand_to, promote_dtypes_numeric
from weft.primitives.contraction.precision import PrecisionLike
from weft.primitives.linalg.matrix import diagonal as diagonal_of, flip, part
from weft.primitives.movement.shape import move_axis
from weft.trace.annotations import ArrayLike, DTypeLike
from weft.trace.array import Array


def matmul(
    x1: ArrayLike, x2: ArrayLike, /, *, precision: PrecisionLike = None, preferred_element_type: DTypeLike | None = None
) -> Array:
    """Multiply matrices over the last two axes."""
    return contraction.matmul(x1, x2, precision=precision, preferred_element_type=preferred_element_type)


def vecdot(
    x1: Any,
    x2: Any,
    /,
    *,
    axis: int = -1,
    precision: PrecisionLike = None,
    preferred_element_type: DTypeLike | None = None,
) -> Array:
    """Compute the dot products of conjugated vectors with vectors along an axis."""
    return contraction.vecdot(x1, x2, axis=axis, precision=precision, preferred_element_type=preferred_element_type)


def tensordot(
    x1: Any,
    x2: Any,
    /,
    *,
    axes: int | tuple[Sequence[int], Sequence[int]] = 2,
    precision: PrecisionLike = None,
    preferred_element_type: DTypeLike | None = None,
    out_sharding: Any = None,
) -> Array:
    """Sum products over pairs of axes."""
    return contraction.tensordot(
        x1, x2, axes=axes, precision=precision, preferred_element_type=preferred_element_type, out_sharding=out_sharding
    )


def outer(x1: Any, x2: Any, /) -> Array:
    """Multiply each element of one vector by each element of another."""
    x1, x2 = ensure_arrays("outer", x1, x2)
    if x1.ndim != 1 or x2.ndim != 1:
        raise ArgumentError(f"Input arrays must be one-dimensional, but they are {x1.ndim=} {x2.ndim=}.")
    return contraction.outer(x1, x2)


def matrix_transpose(x: Any, /) -> Array:
    """Swap the rows and columns of matrices."""
    (x,) = ensure_arrays("matrix_transpose", x)
    if x.ndim < 2:
        raise ArgumentError(f"matrix_transpose takes an array of rank 2 or more, got shape {x.shape}.")
    return flip(x)


def cross(x1: Any, x2: ArrayLike, /, *, axis: int = -1) -> Array:
    """Compute the cross product of vectors in three dimensions along an axis."""
    x1, x2 = ensure_arrays("cross", x1, x2)
    first, second = canonicalize_axis(axis, x1.ndim, "cross"), canonicalize_axis(axis, x2.ndim, "cross")
    if x1.shape[first] != 3 or x2.shape[second] != 3:
        raise ArgumentError(
            "Both input arrays must be (arrays of) 3-dimensional vectors, but they have "
            f"x1.shape[axis]={x1.shape[first]} and x2.shape[axis]={x2.shape[second]}"
        )
    x1, x2 = promote_dtypes_numeric(move_axis(x1, first, x1.ndim - 1), move_axis(x2, second, x2.ndim - 1))
    shape = broadcast_shape("cross", x1.shape, x2.shape)
    x1, x2 = expand_to(x1, shape), expand_to(x2, shape)
    left, right = ([part(x, (i, i + 1), -1) for i in range(3)] for x in (x1, x2))
    parts = [lax.sub(lax.mul(left[i], right[j]), lax.mul(left[j], right[i])) for i, j in ((1, 2), (2, 0), (0, 1))]
    stacked = lax.concatenate(parts, x1.ndim - 1)
    return move_axis(stacked, x1.ndim - 1, canonicalize_axis(axis, x1.ndim, "cross"))


def diagonal(x: ArrayLike, /, *, offset: int = 0) -> Array:
    """Return the `offset`-th diagonals of the matrices in the last two axes."""
    (x,) = ensure_arrays("diagonal", x)
    if x.ndim < 2:
        raise ArgumentError(f"diagonal takes an array of rank 2 or more, got shape {x.shape}.")
    return diagonal_of(x, index(offset))


def trace(x: ArrayLike, /, *, offset: int = 0, dtype: DTypeLike | None = None) -> Array:
    """Sum the `offset`-th diagonals of the matrices in the last two axes."""
    return sum_(diagonal(x, offset=offset), axis=-1, dtype=dtype)


def multi_dot(arrays: Sequence[Any], *, precision: PrecisionLike = None) -> Array:
    """Multiply several matrices in the order that needs the fewest operations.

    The first and the last may be vectors.
    """
    factors = ensure_arrays("multi_dot", *arrays)
    if not factors:
        raise ArgumentError("multi_dot needs at least one array.")
    if len(factors) <= 2:
        return factors[0] if len(factors) == 1 else contraction.matmul(*factors, precision=precision)
    for i, x in enumerate(factors):
        inside = 0 < i < len(factors) - 1
        if x.ndim != 2 and (inside or x.ndim != 1):
            raise ArgumentError(
                f"multi_dot takes matrices (the first and last may be vectors), got shape {x.shape} at {i}."
            )
    shapes = [x.shape for x in factors]
    sizes = [1 if len(shapes[0]) == 1 else shapes[0][0], *(s[0] for s in shapes[1:])]
    sizes.append(shapes[-1][1] if len(shapes[-1]) == 2 else 1)
    splits = _cheapest(sizes)

    def product(start: int, end: int) -> Any:
        if start == end:
            return factors[start]
        middle = splits[start][end]
        return contraction.matmul(product(start, middle), product(middle + 1, end), precision=precision)

    return product(0, len(factors) - 1)


def _cheapest(sizes: Sequence[Any]) -> list[list[int]]:
    """Return where to split the product of matrices start..end, for every start and end, by dynamic programming."""
    count = len(sizes) - 1
    cost = np.zeros((count, count))
    splits = [[0] * count for _ in range(count)]
    for length in range(1, count):
        for start in range(count - length):
            end = start + length
            found = [
                (cost[start, m] + cost[m + 1, end] + sizes[start] * sizes[m + 1] * sizes[end + 1], m)
                for m in range(start, end)
            ]
            cost[start, end], splits[start][end] = min(found)
    return splits
