"""The QR factorisation."""

from __future__ import annotations

from typing import Any

import numpy as np

from weft.base.errors import MissingRuleError
from weft.base.lazy import lazy
from weft.indexing.dimension import minimum
from weft.ir.primitive import No, Sample, primitive
from weft.ir.types import ArrayType, array_type
from weft.ir.zeros import Zero
from weft.primitives.elementwise.arithmetic import add, sub
from weft.primitives.elementwise.scalar import is_complex
from weft.primitives.linalg.cholesky import general
from weft.primitives.linalg.lu import INT32
from weft.primitives.linalg.matrix import (
    MatrixFunction,
    adjoint,
    as_dtype,
    check_matrix,
    each,
    empty_results,
    flip,
    matmul,
    only_diagonal,
    real_part,
    resize,
    take_rows,
    triangle,
    with_failures,
)
from weft.primitives.linalg.triangular import triangular_solve

linalg = lazy("scipy.linalg")


@primitive
class qr(MatrixFunction):
    """Q with orthonormal columns and upper triangular R, x = Q R; with `pivoting`, x[:, p] = Q R and p is the third."""

    multiple_results = True

    def type(self, x: ArrayType, *, pivoting: bool, full_matrices: bool) -> list[ArrayType]:
        check_matrix("qr", x)
        *lead, rows, columns = x.shape
        inner = rows if full_matrices else minimum(rows, columns)
        types = [array_type((*lead, rows, inner), x.dtype), array_type((*lead, inner, columns), x.dtype)]
        return [*types, array_type((*lead, columns), INT32)] if pivoting else types

    def eval(self, x: Any, *, pivoting: bool, full_matrices: bool) -> Any:
        types: Any = self.type(array_type(x.shape, x.dtype), pivoting=pivoting, full_matrices=full_matrices)
        if not x.size:
            inner = types[0].shape[-1]
            eye = np.broadcast_to(np.eye(x.shape[-2], inner), (*x.shape[:-1], inner))
            results = [eye, np.zeros((*x.shape[:-2], inner, x.shape[-1]))]
            if pivoting:
                results.append(np.broadcast_to(np.arange(x.shape[-1]), (*x.shape[:-2], x.shape[-1])))
            return [v.astype(t.dtype) for v, t in zip(results, types, strict=True)]
        if not pivoting:
            return with_failures(lambda a: np.linalg.qr(a, mode="complete" if full_matrices else "reduced"), x, types)
        outs = empty_results(types)
        mode = "full" if full_matrices else "economic"
        each(lambda a: linalg.qr(a, mode=mode, pivoting=True, check_finite=False), [x], (2,), outs)
        return outs

    def jvp(self, tangents: Any, out: Any, x: Any, *, pivoting: bool, full_matrices: bool) -> Any:
        q, r = out[0], out[1]
        *_, rows, columns = x.shape
        if full_matrices and rows > columns:
            raise MissingRuleError(
                f"`qr` of a {rows}x{columns} matrix has no derivative with full_matrices=True: the last "
                f"{rows - columns} columns of Q are an arbitrary basis. Use full_matrices=False (mode='reduced')."
            )
        change = tangents[0]
        if pivoting:
            change = flip(take_rows(flip(change), out[2]))
        small = min(rows, columns)
        # The first columns determine Q; what Q does to the others follows.
        first = triangular_solve(
            resize(r, small, small),
            resize(change, rows, small),
            left_side=False,
            lower=False,
            transpose_a=False,
            conjugate_a=False,
            unit_diagonal=False,
        )
        inner = matmul(adjoint(q), first)
        below = triangle(inner, lower=True, offset=-1)
        rotation = sub(below, adjoint(below))
        if is_complex(rotation):  # R keeps a real diagonal, so Q takes the phase
            middle = only_diagonal(inner)
            rotation = add(rotation, sub(middle, as_dtype(real_part(middle), middle.dtype)))
        dq = add(matmul(q, sub(rotation, inner)), first)
        dr = triangle(sub(matmul(adjoint(q), change), matmul(rotation, r)), lower=False)
        return [dq, dr, Zero.of(out[2].aval)] if pivoting else [dq, dr]

    def samples(self) -> Any:
        plain = {"pivoting": False, "full_matrices": False}
        yield Sample(general(3, 3), **plain)
        yield Sample(general(2, 4, 2), **plain)
        yield Sample(general(2, 3), **plain)
        yield Sample(general(3, 3), pivoting=False, full_matrices=True)
        yield Sample(general(4, 2), pivoting=False, full_matrices=True, differentiable=False)
        yield Sample(general(4, 3, dtype=np.complex64), **plain)
        yield Sample(general(4, 3), pivoting=True, full_matrices=False)
        yield Sample(general(2, 3), pivoting=True, full_matrices=True)
        yield Sample(np.zeros((2, 0), np.float32), differentiable=False, **plain)


@primitive
class geqrf(MatrixFunction):
    """R, with the elementary reflectors whose product is Q below its diagonal, and the reflectors' factors."""

    multiple_results = True
    jvp = No("its reflectors are internal to the algorithm; use qr, or householder_product for Q")

    def type(self, x: ArrayType) -> list[ArrayType]:
        check_matrix("geqrf", x)
        *lead, rows, columns = x.shape
        return [x.strong(), array_type((*lead, minimum(rows, columns)), x.dtype)]

    def eval(self, x: Any) -> Any:
        types = self.type(array_type(x.shape, x.dtype))
        if not x.size:
            return empty_results(types)
        return with_failures(lambda a: _row_major(*np.linalg.qr(a, mode="raw")), x, types)

    def samples(self) -> Any:
        yield Sample(general(3, 2), differentiable=False)
        yield Sample(general(2, 2, 3, dtype=np.complex64), differentiable=False)


def _row_major(reflectors: np.ndarray, factors: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    return np.swapaxes(reflectors, -1, -2), factors  # NumPy returns them in Fortran order
