"""The singular value decomposition."""

from __future__ import annotations

from typing import Any

import numpy as np

from weft.base.errors import MissingRuleError
from weft.indexing.dimension import minimum
from weft.ir.primitive import Sample, primitive
from weft.ir.types import ArrayType, array_type
from weft.primitives.elementwise.arithmetic import add, mul, sub
from weft.primitives.elementwise.scalar import is_complex
from weft.primitives.families import fail
from weft.primitives.linalg.cholesky import general
from weft.primitives.linalg.matrix import (
    MatrixFunction,
    adjoint,
    as_columns,
    as_dtype,
    as_rows,
    check_matrix,
    diagonal,
    hermitian_part,
    inverse_gaps,
    matmul,
    only_diagonal,
    part,
    real_dtype,
    real_part,
    safe_reciprocal,
    scale,
    with_failures,
)
from weft.primitives.linalg.rotation import rotation

Subset = tuple[int, int] | None


@primitive
class svd(MatrixFunction):
    """Singular values from large to small and, if `compute_uv`, the U and Vᴴ with x = U diag(s) Vᴴ.

    `subset_by_index` keeps the values numbered from its first up to (not including) its second member.
    """

    multiple_results = True

    def type(
        self,
        x: ArrayType,
        *,
        full_matrices: bool,
        compute_uv: bool,
        subset_by_index: Subset = None,
        algorithm: Any = None,
    ) -> list[ArrayType]:
        check_matrix("svd", x)
        *lead, rows, columns = x.shape
        small = minimum(rows, columns)
        count = small
        if subset_by_index is not None:
            start, end = subset_by_index
            if not 0 <= start < end <= small:
                raise fail(f"svd got subset_by_index {subset_by_index} for {small} singular values.")
            if full_matrices and (start, end) != (0, small):
                raise fail("svd cannot give full matrices and a subset of values.", fix="use full_matrices=False")
            count = end - start
        values = array_type((*lead, count), real_dtype(x.dtype))
        if not compute_uv:
            return [values]
        left, right = (rows, columns) if full_matrices else (count, count)
        return [values, array_type((*lead, rows, left), x.dtype), array_type((*lead, right, columns), x.dtype)]

    def eval(
        self, x: Any, *, full_matrices: bool, compute_uv: bool, subset_by_index: Subset = None, algorithm: Any = None
    ) -> Any:
        types = self.type(
            array_type(x.shape, x.dtype),
            full_matrices=full_matrices,
            compute_uv=compute_uv,
            subset_by_index=subset_by_index,
        )
        start, end = subset_by_index or (0, min(x.shape[-2:]))
        whole = (start, end) == (0, min(x.shape[-2:]))

        def decompose(a: Any) -> Any:
            if not np.isfinite(a).all():  # LAPACK may not return for a matrix with an infinity
                raise np.linalg.LinAlgError
            if not compute_uv:
                return (np.linalg.svd(a, compute_uv=False)[..., start:end],)
            u, s, v = np.linalg.svd(a, full_matrices=full_matrices)
            return (s, u, v) if whole else (s[..., start:end], u[..., start:end], v[..., start:end, :])

        return with_failures(decompose, x, types)

    def jvp(
        self,
        tangents: Any,
        out: Any,
        x: Any,
        *,
        full_matrices: bool,
        compute_uv: bool,
        subset_by_index: Subset = None,
        algorithm: Any = None,
    ) -> Any:
        *_, rows, columns = x.shape
        small = min(rows, columns)
        if compute_uv and full_matrices and rows != columns:
            raise MissingRuleError(
                f"`svd` of a {rows}x{columns} matrix has no derivative with full_matrices=True: the last vectors are "
                "an arbitrary basis. Use full_matrices=False, or compute_uv=False for the values alone."
            )
        change, bounds = tangents[0], subset_by_index or (0, small)
        if not compute_uv or bounds != (0, small):  # the change of one vector needs all others
            out = svd(x, full_matrices=False, compute_uv=True, subset_by_index=None, algorithm=algorithm)
        s, u, v = out[0], out[1], adjoint(out[2])
        inner = matmul(matmul(adjoint(u), change), v)
        ds = diagonal(real_part(inner))
        if not compute_uv:
            return [part(ds, bounds, -1)]
        square = inner.shape
        # Vectors of both sides turn together by the Hermitian part, against each other by the rest.
        symmetric, skew = hermitian_part(inner), scale(sub(inner, adjoint(inner)), 0.5)
        sums = safe_reciprocal(add(as_rows(s, square), as_columns(s, square)))
        against = part(mul(sub(skew, only_diagonal(skew)), as_dtype(sums, x.dtype)), bounds, -1)
        if bounds == (0, small):
            together, ds = rotation(symmetric, ds, s)
        else:
            # Only the requested columns: others may have no derivative, and zero times infinity is not zero.
            weight = as_dtype(inverse_gaps(s, square), x.dtype)
            together = mul(part(weight, bounds, -1), part(symmetric, bounds, -1))
        rotation_u, rotation_v = add(together, against), sub(together, against)
        inverse = as_dtype(safe_reciprocal(part(s, bounds, -1)), x.dtype)
        if is_complex(x):  # the phase of each pair of vectors is free; U takes it
            phase = part(only_diagonal(skew), bounds, -1)
            rotation_u = add(rotation_u, mul(phase, as_rows(inverse, phase.shape)))
        du, dv = matmul(u, rotation_u), matmul(v, rotation_v)
        if rows > small:
            image = matmul(change, part(v, bounds, -1))
            outside = sub(image, matmul(u, matmul(adjoint(u), image)))
            du = add(du, mul(outside, as_rows(inverse, outside.shape)))
        if columns > small:
            image = matmul(adjoint(change), part(u, bounds, -1))
            outside = sub(image, matmul(v, matmul(adjoint(v), image)))
            dv = add(dv, mul(outside, as_rows(inverse, outside.shape)))
        return [part(ds, bounds, -1), du, adjoint(dv)]

    def samples(self) -> Any:
        vectors: dict[str, Any] = {
            "full_matrices": False,
            "compute_uv": True,
            "subset_by_index": None,
            "algorithm": None,
        }
        values: dict[str, Any] = {**vectors, "compute_uv": False}
        yield Sample(general(3, 3), **vectors)
        yield Sample(general(4, 2), **vectors)
        yield Sample(general(2, 2, 3), **vectors)
        yield Sample(general(3, 3), **{**vectors, "full_matrices": True})
        yield Sample(general(3, 2), differentiable=False, **{**vectors, "full_matrices": True})
        yield Sample(general(3, 2), **values)
        yield Sample(general(2, 3, dtype=np.complex64), **values)
        yield Sample(general(3, 3), **{**values, "subset_by_index": (0, 2)})
        yield Sample(general(3, 3), **{**vectors, "subset_by_index": (1, 3)})
        # LAPACK's choice of phases is not smooth, so finite differences of complex vectors do not apply.
        yield Sample(general(3, 2, dtype=np.complex64), differentiable=False, **vectors)
        yield Sample(np.zeros((0, 2), np.float32), differentiable=False, **vectors)
