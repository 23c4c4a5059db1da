"""Matrices built from a vector or a number: Toeplitz and its relatives, block diagonals, named matrices."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from weft import lax
from weft.base import dtypes
from weft.base.arguments import index
from weft.base.errors import ArgumentError
from weft.numpy.complex_parts import conjugate
from weft.numpy.elementwise import absolute, negative, subtract, true_divide
from weft.numpy.joining import concatenate
from weft.numpy.manipulation import expand_dims, flip
from weft.numpy.util import broadcast_shape, canonical_dtype, ensure_array, ensure_arrays, expand_to, promote_dtypes
from weft.primitives.linalg.matrix import as_columns, on_diagonal, part
from weft.scipy.argument_docs import document
from weft.trace.annotations import ArrayLike, DTypeLike
from weft.trace.array import Array


def _as_vectors(x: Array) -> Array:
    return x if x.ndim else lax.reshape(x, (1,))


def _take(x: Array, indices: np.ndarray) -> Array:
    """Gather elements of the last axis at static indices of any shape."""
    if not indices.size:
        return lax.full((*x.shape[:-1], *indices.shape), 0, x.dtype)
    flat = lax.gather(
        x,
        indices.reshape(-1, 1).astype(np.int32),
        lax.GatherDimensionNumbers(tuple(range(x.ndim - 1)), (x.ndim - 1,), (x.ndim - 1,)),
        (*x.shape[:-1], 1),
        mode="promise_in_bounds",
    )
    return lax.reshape(flat, (*x.shape[:-1], *indices.shape))


def toeplitz(c: ArrayLike, r: ArrayLike | None = None) -> Array:
    """Build the Toeplitz matrix with first column c and first row r (by default the conjugate of c)."""
    if r is None:
        (c,) = ensure_arrays("toeplitz", c)
        r = conjugate(c)
    c, r = _vector_pair("toeplitz", c, r)
    rows, columns = c.shape[-1], r.shape[-1]
    values = concatenate([flip(c, -1), _after_first(r)], axis=-1)
    return _take(values, np.arange(rows)[::-1, None] + np.arange(columns))


def hankel(c: ArrayLike, r: ArrayLike | None = None) -> Array:
    """Build the Hankel matrix whose first column is c and whose last row is r (by default zeros)."""
    if r is None:
        (c,) = ensure_arrays("hankel", c)
        r = lax.full_like(c, 0)
    c, r = _vector_pair("hankel", c, r)
    values = concatenate([c, _after_first(r)], axis=-1)
    return _take(values, np.arange(c.shape[-1])[:, None] + np.arange(r.shape[-1]))


def _vector_pair(name: str, *args: Any) -> tuple[Array, Array]:
    """Convert two arguments to vectors of one dtype, with broadcast leading dimensions."""
    first, second = (_as_vectors(ensure_array(x)) for x in promote_dtypes(*ensure_arrays(name, *args)))
    lead = broadcast_shape(name, first.shape[:-1], second.shape[:-1])
    return expand_to(first, (*lead, first.shape[-1])), expand_to(second, (*lead, second.shape[-1]))


def _after_first(x: Array) -> Array:
    return part(x, (min(1, x.shape[-1]), x.shape[-1]), -1)


def circulant(c: ArrayLike) -> Array:
    """Build the circulant matrix with first column c: each further column is rotated by one more position."""
    (c,) = (_as_vectors(x) for x in ensure_arrays("circulant", c))
    size = c.shape[-1]
    return _take(c, (np.arange(size)[:, None] - np.arange(size)) % max(size, 1))


@document("A matrix.", arrs="matrices, vectors and numbers.")
def block_diag(*arrs: ArrayLike) -> Array:
    """Build a block diagonal matrix from the given ones; numbers and vectors count as single rows.

    >>> import weft.numpy as wnp
    >>> import weft.scipy.linalg as scipy_linalg
    >>> scipy_linalg.block_diag(wnp.ones((1, 2)), 3.0)
    Array([[1., 1., 0.],
           [0., 0., 3.]], dtype=float32)
    """
    arrays = [
        ensure_array(x)
        for x in promote_dtypes(*ensure_arrays("block_diag", *(arrs or (np.zeros((1, 0), np.float32),))))
    ]
    for i, x in enumerate(arrays):
        if x.ndim > 2:
            raise ArgumentError(f"block_diag takes arrays of rank 2 or less, got shape {x.shape} at {i}.")
    matrices = [lax.reshape(x, (1,) * (2 - x.ndim) + x.shape) for x in arrays]
    width, left, rows = sum(x.shape[1] for x in matrices), 0, []
    for x in matrices:
        right = width - left - x.shape[1]
        rows.append(lax.pad(x, np.zeros((), x.dtype), [(0, 0, 0), (left, right, 0)]))
        left += x.shape[1]
    return lax.concatenate(rows, 0)


def companion(a: ArrayLike) -> Array:
    """Build the companion matrix, whose eigenvalues are the roots of the polynomial with coefficients a, highest power
    first.
    """
    (a,) = ensure_arrays("companion", a)
    if a.ndim < 1 or a.shape[-1] < 2:
        raise ArgumentError(f"companion takes a vector of two or more coefficients, got shape {a.shape}.")
    size, lead = a.shape[-1] - 1, a.shape[:-1]
    row = true_divide(negative(part(a, (1, size + 1), -1)), part(a, (0, 1), -1))
    below = lax.broadcast(ensure_array(np.eye(size - 1, size, dtype=row.dtype)), lead)
    return concatenate([expand_dims(row, -2), below], axis=-2)


def convolution_matrix(a: ArrayLike, n: int, mode: str = "full") -> Array:
    """Build the matrix whose product with a vector of size n is its convolution with a."""
    (a,) = ensure_arrays("convolution_matrix", a)
    if a.ndim < 1 or not a.shape[-1]:
        raise ArgumentError(f"convolution_matrix takes a vector that is not empty, got shape {a.shape}.")
    n, size = index(n), a.shape[-1]
    if n <= 0:
        raise ArgumentError(f"n must be a positive integer, got {n}.")
    if mode not in ("full", "valid", "same"):
        raise ArgumentError(f"mode must be 'full', 'valid' or 'same', got {mode!r}.")
    padded = lax.pad(a, np.zeros((), a.dtype), [(0, 0, 0)] * (a.ndim - 1) + [(n - 1, n - 1, 0)])
    rows = np.arange(size + n - 1)[:, None] - np.arange(n) + n - 1
    if mode == "same":
        start = (min(size, n) - 1) // 2
        rows = rows[start : start + max(size, n)]
    elif mode == "valid":
        start = min(size, n) - 1
        rows = rows[start : start + max(size, n) - min(size, n) + 1]
    return _take(padded, rows)


def leslie(f: ArrayLike, s: ArrayLike) -> Array:
    """Build a Leslie matrix of a population by age: birth rates f in the first row, survival rates s below the
    diagonal.
    """
    f, s = _vector_pair("leslie", f, s)
    size = f.shape[-1]
    if s.shape[-1] != size - 1:
        raise ArgumentError(f"leslie takes vectors of size n and n-1, got shapes {f.shape} and {s.shape}.")
    below = (*f.shape[:-1], size - 1, size)
    survival = lax.select_n(on_diagonal(below), lax.full(below, 0, s.dtype), as_columns(s, below))
    return concatenate([expand_dims(f, -2), survival], axis=-2)


def _check_vector(name: str, a: Array) -> None:
    if not a.ndim:
        raise ArgumentError(f"{name} takes a vector or a batch of vectors, got shape ().", fix="wnp.atleast_1d(a)")


def fiedler(a: Any) -> Array:
    """Build the Fiedler matrix of distances |a[i] - a[j]|."""
    (a,) = ensure_arrays("fiedler", a)
    _check_vector("fiedler", a)
    return absolute(subtract(expand_dims(a, -1), expand_dims(a, -2)))


def fiedler_companion(a: ArrayLike) -> Array:
    """Build the pentadiagonal Fiedler companion matrix, whose eigenvalues are the roots of the polynomial with
    coefficients a.
    """
    (a,) = ensure_arrays("fiedler_companion", a)
    _check_vector("fiedler_companion", a)
    size, lead = a.shape[-1] - 1, a.shape[:-1]
    scaled = true_divide(a, part(a, (0, 1), -1))
    if size < 1:
        return lax.full((*lead, 0, 0), 0, scaled.dtype)
    if size == 1:
        return expand_dims(negative(part(scaled, (1, 2), -1)), -1)
    # Where each coefficient and each one is: static positions, values from the coefficients.
    coefficient, ones = np.zeros((size, size), np.int32), np.zeros((size, size), bool)
    coefficient[0, 0] = 1
    for i in range(0, size - 1, 2):
        coefficient[i, i + 1] = i + 2
    for i in range(2, size, 2):
        coefficient[i, i - 1] = i + 1
    ones[1, 0] = True
    for i in range(0, size - 2, 2):
        ones[i, i + 2] = True
    for i in range(3, size, 2):
        ones[i, i - 2] = True
    values = negative(_take(scaled, coefficient))
    chosen = lax.broadcast(ensure_array(coefficient > 0), lead)
    fixed = lax.broadcast(ensure_array(ones.astype(scaled.dtype)), lead)
    return lax.select_n(chosen, fixed, values)


def hilbert(n: int) -> Array:
    """Build the Hilbert matrix 1 / (i + j + 1), notorious for its condition."""
    i = np.arange(index(n))
    return ensure_array((1.0 / (i[:, None] + i + 1.0)).astype(dtypes.default_float_dtype()))


def invhilbert(n: int) -> Array:
    """Build the inverse of `hilbert`, exact as long as its integers are."""
    n = index(n)
    out = np.zeros((n, n))
    for i in range(n):
        for j in range(n):
            ways = math.comb(n + i, n - j - 1) * math.comb(n + j, n - i - 1) * math.comb(i + j, i) ** 2
            out[i, j] = (-1) ** (i + j) * (i + j + 1) * ways
    return ensure_array(out.astype(dtypes.default_float_dtype()))


def _pascal(n: int, kind: str | None, sign: int) -> Array:
    n, kind = index(n), kind or "symmetric"
    if kind not in ("symmetric", "lower", "upper"):
        raise ArgumentError(f"kind must be 'symmetric', 'lower' or 'upper', got {kind!r}.")
    lower = np.array([[math.comb(i, j) * sign ** (i + j) for j in range(n)] for i in range(n)], np.float64).reshape(
        n, n
    )
    if kind == "symmetric":
        lower = lower @ lower.T if sign > 0 else lower.T @ lower
    elif kind == "upper":
        lower = lower.T
    return ensure_array(lower.astype(dtypes.default_float_dtype()))


def pascal(n: int, kind: str | None = None) -> Array:
    """Build the matrix of binomial coefficients: symmetric, or its "lower" or "upper" factor."""
    return _pascal(n, kind, 1)


def invpascal(n: int, kind: str | None = None) -> Array:
    """Build the inverse of `pascal`."""
    return _pascal(n, kind, -1)


def hadamard(n: int, dtype: DTypeLike = int) -> Array:
    """Build a Hadamard matrix: 1 and -1 with orthogonal rows; n is a power of two."""
    n = index(n)
    if n < 1 or n & (n - 1):
        raise ArgumentError(f"n must be a positive integer and a power of 2, got {n}.")
    out = np.ones((1, 1), np.int64)
    while len(out) < n:
        out = np.block([[out, out], [out, -out]])
    return ensure_array(out.astype(canonical_dtype(dtype, "hadamard")))


def helmert(n: int, full: bool = False) -> Array:
    """Build the orthogonal Helmert matrix of contrasts between each element and those before; with `full` also the
    mean.
    """
    n = index(n)
    if n < 1:
        raise ArgumentError(f"n must be a positive integer, got {n}.")
    out = np.tril(np.ones((n, n)), -1) - np.diag(np.arange(n))
    out[0] = 1
    out /= np.sqrt((out**2).sum(axis=1, keepdims=True))
    return ensure_array((out if full else out[1:]).astype(dtypes.default_float_dtype()))


def dft(n: int, scale: str | None = None, *, dtype: DTypeLike | None = None) -> Array:
    """Build the matrix of the discrete Fourier transform; `scale` may be "sqrtn" or "n"."""
    n = index(n)
    if scale not in (None, "sqrtn", "n"):
        raise ArgumentError(f"scale must be None, 'sqrtn' or 'n', got {scale!r}.")
    out_dtype = dtypes.default_complex_dtype() if dtype is None else canonical_dtype(dtype, "dft")
    k = np.arange(n)
    out = np.exp(-2j * np.pi * (np.outer(k, k) % max(n, 1)) / max(n, 1))
    out /= {None: 1.0, "sqrtn": math.sqrt(max(n, 1)), "n": max(n, 1)}[scale]
    return ensure_array(out.astype(out_dtype))
