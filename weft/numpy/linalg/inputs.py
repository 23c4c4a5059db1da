"""How the functions of `weft.numpy.linalg` take their arguments: as inexact matrices in one dtype and batch shape."""

from __future__ import annotations

from typing import Any

from weft.base.errors import ArgumentError
from weft.numpy.util import broadcast_shape, ensure_array, ensure_arrays, expand_to, promote_dtypes_inexact, strong
from weft.trace.array import Array


def inexact(name: str, *args: Any) -> list[Array]:
    """The arguments as arrays of one floating-point or complex dtype."""
    arrays = promote_dtypes_inexact(*ensure_arrays(name, *args))
    return [strong(ensure_array(x)) for x in arrays]


def matrix(name: str, a: Any) -> Array:
    """The argument as an inexact array of matrices."""
    (x,) = inexact(name, a)
    if x.ndim < 2:
        raise ArgumentError(
            f"{name} takes a matrix or a batch of matrices, got shape {x.shape}.",
            fix="x[:, None] or x[None, :]   as a matrix",
        )
    return x


def square_matrix(name: str, a: Any) -> Array:
    """The argument as an inexact array of square matrices."""
    x = matrix(name, a)
    if x.shape[-1] != x.shape[-2]:
        raise ArgumentError(
            f"Argument to {name} must have shape [..., n, n], got {x.shape}.",
            fix=("x @ x.mT, which is square", "linalg.pinv or linalg.lstsq, which take any matrix"),
        )
    return x


def same_batch(name: str, *args: Array) -> list[Array]:
    """Arrays of matrices with their leading dimensions broadcast against each other."""
    lead = broadcast_shape(name, *(x.shape[:-2] for x in args))
    return [expand_to(x, (*lead, *x.shape[-2:])) for x in args]
