"""Eigenvalues and eigenvectors, of Hermitian and of general matrices."""

from __future__ import annotations

from typing import Any

import numpy as np

from weft.base import dtypes
from weft.base.lazy import lazy
from weft.ir.primitive import Sample, primitive
from weft.ir.types import ArrayType, array_type
from weft.primitives.elementwise.arithmetic import mul, sub
from weft.primitives.elementwise.compare import eq
from weft.primitives.elementwise.complex import complex as complex_, imag
from weft.primitives.elementwise.select import select_n
from weft.primitives.families import fail
from weft.primitives.linalg.cholesky import general, positive_definite
from weft.primitives.linalg.lu import INT32, solve
from weft.primitives.linalg.matrix import (
    MatrixFunction,
    adjoint,
    as_dtype,
    as_rows,
    check_matrix,
    conjugate,
    diagonal,
    each,
    empty_results,
    hermitian_from,
    inverse_gaps,
    matmul,
    part,
    real_dtype,
    real_part,
    rows_and_columns,
    safe_reciprocal,
    with_failures,
    zeros_like,
)
from weft.primitives.linalg.rotation import rotation
from weft.primitives.reduction.reduce import reduce_sum
from weft.primitives.reduction.reduce_extrema import argmax

linalg = lazy("scipy.linalg")

Subset = tuple[int, int] | None


@primitive
class eigh(MatrixFunction):
    """Eigenvectors (columns) and eigenvalues, from small to large, of Hermitian matrices; reads one triangle.

    `subset_by_index` keeps the pairs numbered from its first up to (not including) its second member.
    """

    multiple_results = True

    def type(
        self,
        x: ArrayType,
        *,
        lower: bool,
        sort_eigenvalues: bool,
        subset_by_index: Subset = None,
        algorithm: Any = None,
    ) -> list[ArrayType]:
        check_matrix("eigh", x, square=True)
        count = x.shape[-1]
        if subset_by_index is not None:
            start, end = subset_by_index
            if not 0 <= start < end <= count:
                raise fail(f"eigh got subset_by_index {subset_by_index} for {count} eigenvalues.")
            count = end - start
        return [
            x.strong().plain_of_shape((*x.shape[:-1], count)),
            array_type((*x.shape[:-2], count), real_dtype(x.dtype)),
        ]

    def eval(
        self, x: Any, *, lower: bool, sort_eigenvalues: bool, subset_by_index: Subset = None, algorithm: Any = None
    ) -> Any:
        types = self.type(
            array_type(x.shape, x.dtype),
            lower=lower,
            sort_eigenvalues=sort_eigenvalues,
            subset_by_index=subset_by_index,
        )
        start, end = subset_by_index or (0, x.shape[-1])

        def decompose(a: Any) -> Any:
            w, v = np.linalg.eigh(a, UPLO="L" if lower else "U")
            return v[..., start:end], w[..., start:end]

        vectors, values = with_failures(decompose, x, types)
        if not np.isfinite(x).all():  # LAPACK does not always notice
            bad = ~np.isfinite(x).all(axis=(-1, -2))
            vectors, values = np.array(vectors), np.array(values)
            vectors[bad], values[bad] = np.nan, np.nan
        return [vectors, values]

    def jvp(
        self,
        tangents: Any,
        out: Any,
        x: Any,
        *,
        lower: bool,
        sort_eigenvalues: bool,
        subset_by_index: Subset = None,
        algorithm: Any = None,
    ) -> Any:
        bounds = subset_by_index or (0, x.shape[-1])
        if bounds != (0, x.shape[-1]):  # the change of one vector needs all others
            out = eigh(x, lower=lower, sort_eigenvalues=sort_eigenvalues, subset_by_index=None, algorithm=algorithm)
        v, w = out
        inner = matmul(matmul(adjoint(v), hermitian_from(tangents[0], lower)), v)
        change = diagonal(real_part(inner))
        if bounds == (0, x.shape[-1]):
            turned, change = rotation(inner, change, w)
            return [matmul(v, turned), change]
        # Only the requested columns: others may have no derivative, and zero times infinity is not zero.
        weight = as_dtype(inverse_gaps(w, inner.shape), inner.dtype)
        turned = mul(part(weight, bounds, -1), part(inner, bounds, -1))
        return [matmul(v, turned), part(change, bounds, -1)]

    def samples(self) -> Any:
        params: dict[str, Any] = {"lower": True, "sort_eigenvalues": True, "subset_by_index": None, "algorithm": None}
        yield Sample(positive_definite(3), **params)
        yield Sample(positive_definite(2, 2), **{**params, "lower": False})
        yield Sample(np.array([[2.0]], np.float32), **params)
        # LAPACK's choice of phases is not smooth, so finite differences of complex vectors do not apply.
        yield Sample(positive_definite(3, dtype=np.complex64), differentiable=False, **params)
        yield Sample(positive_definite(3), **{**params, "subset_by_index": (0, 2)})


@primitive
class eig(MatrixFunction):
    """Eigenvalues of general matrices and, if asked for, left and right eigenvectors, always as complex numbers.

    A vector has length 1 and its largest element is real, as LAPACK has it; derivatives respect that.
    """

    multiple_results = True

    def type(
        self,
        x: ArrayType,
        *,
        compute_left_eigenvectors: bool,
        compute_right_eigenvectors: bool,
        enable_eigvec_derivs: bool = False,
        implementation: Any = None,
    ) -> list[ArrayType]:
        check_matrix("eig", x, square=True)
        dtype = dtypes.to_complex_dtype(x.dtype)
        vectors = array_type(x.shape, dtype)
        return [array_type(x.shape[:-1], dtype), *[vectors] * (compute_left_eigenvectors + compute_right_eigenvectors)]

    def eval(self, x: Any, *, compute_left_eigenvectors: bool, compute_right_eigenvectors: bool, **params: Any) -> Any:
        types = self.type(
            array_type(x.shape, x.dtype),
            compute_left_eigenvectors=compute_left_eigenvectors,
            compute_right_eigenvectors=compute_right_eigenvectors,
        )
        if not compute_left_eigenvectors:
            decompose: Any = np.linalg.eig if compute_right_eigenvectors else lambda a: (np.linalg.eigvals(a),)
            return with_failures(decompose, x, types)
        outs = empty_results(types)

        def one(a: Any) -> Any:
            if not np.isfinite(a).all():
                raise np.linalg.LinAlgError
            w, left, right = linalg.eig(a, left=True, right=True)
            return (w, left, right) if compute_right_eigenvectors else (w, left)

        if x.size:
            each(one, [x], (2,), outs)
        return outs

    def jvp(
        self,
        tangents: Any,
        out: Any,
        x: Any,
        *,
        compute_left_eigenvectors: bool,
        compute_right_eigenvectors: bool,
        **params: Any,
    ) -> Any:
        w, *vectors = out
        if compute_right_eigenvectors:
            right = vectors[-1]
        else:
            _, right = eig(x, compute_left_eigenvectors=False, compute_right_eigenvectors=True, **params)
        change = as_dtype(tangents[0], w.dtype)
        inner = solve(right, matmul(change, right))
        results = [diagonal(inner)]
        weight = inverse_gaps(w, inner.shape)
        if compute_left_eigenvectors:  # the right eigenvectors of xᴴ, whose eigenvalues are the conjugates
            left = vectors[0]
            left_inner = solve(left, matmul(adjoint(change), left))
            results.append(_normalise(left, matmul(left, mul(conjugate(weight), left_inner))))
        if compute_right_eigenvectors:
            results.append(_normalise(right, matmul(right, mul(weight, inner))))
        return results

    def samples(self) -> Any:
        values = {"compute_left_eigenvectors": False, "compute_right_eigenvectors": False}
        right = {**values, "compute_right_eigenvectors": True}
        both = {**right, "compute_left_eigenvectors": True}
        distinct = general(3, 3) / 2 + np.diag([1, 2, 4]).astype(np.float32)
        rotated = np.array([[1, -2, 0.5], [1.5, 0.5, 0.25], [0.5, 0.25, 3]], np.float32)
        for params in (values, right, both):
            yield Sample(distinct, **params)
            yield Sample(rotated, **params)
        yield Sample(np.stack([distinct, rotated]), **both)
        tilted = (general(2, 2, dtype=np.complex64) + np.diag([1, 3j])).astype(np.complex64)
        yield Sample(tilted, **both)
        yield Sample(np.full((2, 2), np.nan, np.float32), differentiable=False, **both)
        yield Sample(np.zeros((0, 0), np.float32), **both)


def _normalise(vectors: Any, change: Any) -> Any:
    """Project a change of eigenvectors so that it alters neither their length nor the phase of their largest
    element."""
    shape = vectors.shape
    rows = len(shape) - 2
    if shape[rows] == 0:
        return change  # no element is the largest
    along = reduce_sum(mul(conjugate(vectors), change), axes=(rows,))
    size = real_part(mul(conjugate(vectors), vectors))
    largest = _largest(size, rows)
    pivot = reduce_sum(select_n(largest, zeros_like(vectors), vectors), axes=(rows,))
    pivot_change = reduce_sum(select_n(largest, zeros_like(change), change), axes=(rows,))
    phase = imag(mul(pivot_change, safe_reciprocal(pivot)))
    return sub(change, mul(vectors, as_rows(complex_(real_part(along), phase), shape)))


def _largest(size: Any, axis: int) -> Any:
    """Return a mask of the first of the largest elements along an axis."""
    where = argmax(size, axes=(axis,), index_dtype=INT32)
    return eq(rows_and_columns(size.shape)[0], as_rows(where, size.shape))
