"""Condensed forms of a matrix under a unitary change of basis: Schur, Hessenberg, tridiagonal."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from weft.base.lazy import lazy
from weft.ir.primitive import No, Sample, primitive
from weft.ir.types import ArrayType, array_type
from weft.primitives.families import fail
from weft.primitives.linalg.cholesky import general, positive_definite
from weft.primitives.linalg.matrix import MatrixFunction, check_matrix, each, empty_results, real_dtype

lapack = lazy("scipy.linalg.lapack")
linalg = lazy("scipy.linalg")


@primitive
class schur(MatrixFunction):
    """The (quasi-)triangular T of the Schur form x = Z T Zᴴ and, if `compute_schur_vectors`, Z.

    With `sort_eig_vals`, eigenvalues for which `select_callable` is true come first.
    """

    multiple_results = True
    jvp = No("the order in which LAPACK finds the eigenvalues is not a smooth function of the matrix")

    def type(
        self, x: ArrayType, *, compute_schur_vectors: bool, sort_eig_vals: bool = False, select_callable: Any = None
    ) -> list[ArrayType]:
        check_matrix("schur", x, square=True)
        return [x.strong()] * (1 + compute_schur_vectors)

    def eval(
        self, x: Any, *, compute_schur_vectors: bool, sort_eig_vals: bool = False, select_callable: Any = None
    ) -> Any:
        output = "complex" if x.dtype.kind == "c" else "real"
        outs = [np.empty(x.shape, x.dtype) for _ in range(1 + compute_schur_vectors)]

        def one(a: Any) -> Sequence[Any]:
            if not np.isfinite(a).all():
                raise np.linalg.LinAlgError
            sort = select_callable if sort_eig_vals else None
            found = linalg.schur(a, output=output, sort=sort)
            result: Sequence[Any] = found[: 1 + compute_schur_vectors]
            return result

        if x.size:
            each(one, [x], (2,), outs)
        return outs

    def samples(self) -> Any:
        yield Sample(general(3, 3), compute_schur_vectors=True, differentiable=False)
        yield Sample(general(2, 3, 3), compute_schur_vectors=False, differentiable=False)
        yield Sample(general(2, 2, dtype=np.complex64), compute_schur_vectors=True, differentiable=False)


@primitive
class hessenberg(MatrixFunction):
    """Hessenberg form, with the reflectors that lead to it below its first subdiagonal, and their factors."""

    multiple_results = True
    jvp = No("its reflectors are internal to the algorithm")

    def type(self, x: ArrayType) -> list[ArrayType]:
        check_matrix("hessenberg", x, square=True)
        _check_not_empty("hessenberg", x)
        return [x.strong(), array_type((*x.shape[:-2], x.shape[-1] - 1), x.dtype)]

    def eval(self, x: Any) -> Any:
        outs = empty_results(self.type(array_type(x.shape, x.dtype)))
        (gehrd,) = lapack.get_lapack_funcs(("gehrd",), (x,))
        each(lambda a: gehrd(a)[:2], [x], (2,), outs)
        return outs

    def samples(self) -> Any:
        yield Sample(general(3, 3), differentiable=False)
        yield Sample(general(2, 4, 4, dtype=np.complex64), differentiable=False)


@primitive
class tridiagonal(MatrixFunction):
    """Tridiagonal form of Hermitian matrices: reflectors and form in one, diagonal, off diagonal, factors."""

    multiple_results = True
    jvp = No("its reflectors are internal to the algorithm")

    def type(self, x: ArrayType, *, lower: bool) -> list[ArrayType]:
        check_matrix("tridiagonal", x, square=True)
        _check_not_empty("tridiagonal", x)
        (*lead, size), real = x.shape[:-1], real_dtype(x.dtype)
        short = (*lead, size - 1)
        return [x.strong(), array_type((*lead, size), real), array_type(short, real), array_type(short, x.dtype)]

    def eval(self, x: Any, *, lower: bool) -> Any:
        outs = empty_results(self.type(array_type(x.shape, x.dtype), lower=lower))
        (reduce,) = lapack.get_lapack_funcs(("hetrd" if x.dtype.kind == "c" else "sytrd",), (x,))
        each(lambda a: reduce(a, lower=lower)[:4], [x], (2,), outs)
        return outs

    def samples(self) -> Any:
        yield Sample(positive_definite(3), lower=True, differentiable=False)
        yield Sample(positive_definite(2, 3, dtype=np.complex64), lower=False, differentiable=False)


def _check_not_empty(name: str, x: ArrayType) -> None:
    if x.shape[-1] == 0:
        raise fail(f"{name} needs matrices with at least one row, got shape {x.shape}.")
