"""The Cholesky factorisation of positive definite matrices."""

from __future__ import annotations

from typing import Any

import numpy as np

from weft.ir.primitive import Sample, primitive
from weft.ir.types import ArrayType
from weft.primitives.elementwise.select import select_n
from weft.primitives.linalg.matrix import (
    MatrixFunction,
    check_matrix,
    hermitian_from,
    matmul,
    on_diagonal,
    scale,
    triangle,
    with_failures,
)
from weft.primitives.linalg.triangular import triangular_solve


@primitive
class cholesky(MatrixFunction):
    """The lower triangular L with L Lᴴ = x; reads the lower triangle of x. NaN where x is not positive definite."""

    in_lanes = True

    def type(self, x: ArrayType) -> ArrayType:
        check_matrix("cholesky", x, square=True)
        return x.strong()

    def eval(self, x: Any) -> Any:
        (factor,) = with_failures(lambda a: (np.linalg.cholesky(a),), x, [x])
        return np.tril(factor)

    def jvp(self, tangents: Any, out: Any, x: Any) -> Any:
        # dx = dL Lᴴ + L dLᴴ, so L⁻¹ dx L⁻ᴴ is a lower triangular matrix plus its adjoint.
        change = hermitian_from(tangents[0], lower=True)
        change = triangular_solve(
            out, change, left_side=False, lower=True, transpose_a=True, conjugate_a=True, unit_diagonal=False
        )
        change = triangular_solve(
            out, change, left_side=True, lower=True, transpose_a=False, conjugate_a=False, unit_diagonal=False
        )
        lower = triangle(change, lower=True)
        return triangle(matmul(out, select_n(on_diagonal(lower.shape), lower, scale(lower, 0.5))), lower=True)

    def samples(self) -> Any:
        yield Sample(positive_definite(3))
        yield Sample(positive_definite(2, 3))
        yield Sample(positive_definite(3, dtype=np.complex64))
        yield Sample(np.array([[4.0]], np.float32))
        yield Sample(np.zeros((0, 0), np.float32))
        yield Sample(-positive_definite(2), differentiable=False)


def positive_definite(*shape: int, dtype: Any = np.float32) -> np.ndarray:
    """Return well conditioned Hermitian matrices with distinct eigenvalues, for samples."""
    factor = np.tril(general(*shape, shape[-1], dtype=dtype), -1) / 2
    full = factor + np.eye(shape[-1]) * (1 + np.arange(shape[-1]) / 2)
    return (full @ np.conj(np.swapaxes(full, -1, -2))).astype(dtype)


def general(*shape: int, dtype: Any = np.float32) -> np.ndarray:
    """Return matrices without any structure, well conditioned, for samples."""
    generator = np.random.default_rng(7)
    values = generator.uniform(-1, 1, shape)
    if np.dtype(dtype).kind == "c":
        values = values + 1j * generator.uniform(-1, 1, shape)
    return values.astype(dtype)
