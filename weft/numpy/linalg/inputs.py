"""Argument conversion for `weft.numpy.linalg`: inexact matrices of one dtype and batch shape."""

from __future__ import annotations

from typing import Any

from weft.base.errors import ArgumentError
from weft.numpy.util import broadcast_shape, ensure_array, ensure_arrays, expand_to, promote_dtypes_inexact, strong
from weft.trace.array import Array


def inexact(name: str, *args: Any) -> list[Array]:
    """Convert the arguments to arrays of one floating-point or complex dtype."""
    arrays = promote_dtypes_inexact(*ensure_arrays(name, *args))
    return [strong(ensure_array(x)) for x in arrays]


def matrix(name: str, a: Any) -> Array:
    """Convert the argument to an inexact array of matrices; raise an error for rank 0 or 1."""
    (x,) = inexact(name, a)
    if x.ndim < 2:
        raise ArgumentError(
            f"{name} takes a matrix or a batch of matrices, got shape {x.shape}.",
            fix="x[:, None] or x[None, :]   as a matrix",
        )
    return x


def square_matrix(name: str, a: Any) -> Array:
    """Convert the argument to an inexact array of square matrices; raise an error for other shapes."""
    x = matrix(name, a)
    if x.shape[-1] != x.shape[-2]:
        raise ArgumentError(
            f"Argument to {name} must have shape [..., n, n], got {x.shape}.",
            fix=("x @ x.mT, which is square", "linalg.pinv or linalg.lstsq, which take any matrix"),
        )
    return x


def same_batch(name: str, *args: Array) -> list[Array]:
    """Broadcast the leading dimensions of arrays of matrices against each other."""
    lead = broadcast_shape(name, *(x.shape[:-2] for x in args))
    return [expand_to(x, (*lead, *x.shape[-2:])) for x in args]
