"""Factorizations by cuSOLVER: matrix functions are defined by its routines and by operations that become kernels.

The library stores matrices by columns, so a routine gets the transposed matrix; it reports failures in integers, for
which results are NaN, as on CPUs.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from weft.base.lazy import lazy
from weft.compiler.target.cuda.library.calls import SOLVER_ROUTINE, SOLVERS, SolverCall, dtype_index
from weft.compiler.target.library_call import LibraryCall, get_arrays
from weft.compiler.target.target import Target
from weft.ir.fusing import UNFUSED, Machine, Properties
from weft.ir.jaxpr import Equation
from weft.ir.primitive import No, Primitive, primitive
from weft.ir.types import ArrayType, array_type
from weft.primitives.elementwise.arithmetic import add, sub
from weft.primitives.elementwise.compare import eq, lt
from weft.primitives.elementwise.select import clamp, where
from weft.primitives.linalg.cholesky import cholesky
from weft.primitives.linalg.eigen import eigh
from weft.primitives.linalg.lu import linear_solve, lu, lu_pivots_to_permutation
from weft.primitives.linalg.matrix import conjugate, each, flip, part, real_dtype, resize, take_rows, triangle
from weft.primitives.linalg.qr import geqrf, qr
from weft.primitives.linalg.svd import svd
from weft.primitives.linalg.triangular import triangular_solve
from weft.primitives.movement.shape import broadcast_in_dim

lapack = lazy("scipy.linalg.lapack")

INT32 = np.dtype(np.int32)
_REASON = "it is what matrix functions are compiled to; transform those"
NOTHING, REDUCED, FULL = 0, 1, 2


@primitive
class solver(Primitive):
    """A routine of cuSOLVER on the last two dimensions; the last result is an integer that is 0 if all went well.

    potrf: the Cholesky factor in the lower triangle. getrf: the transposed factors of a transposed matrix, and the rows
    that are exchanged, from 1 on. geqrf: the transposed R and reflectors of a transposed matrix, and their factors;
    orgqr: the transposed Q of those. syevd: eigenvectors as rows, of the transposed matrix, and eigenvalues. gesvd: U,
    singular values and Vᴴ of a matrix with at least as many columns as rows.
    """

    multiple_results = True
    jvp = No(_REASON)
    transpose = No(_REASON)
    batch = No(_REASON)

    def type(self, x: ArrayType, *others: ArrayType, routine: str, option: int = 0) -> list[ArrayType]:
        *lead, rows, columns = x.shape
        smaller = min(rows, columns)
        info, real = array_type(tuple(lead), INT32), real_dtype(x.dtype)
        vectors = [
            array_type((*lead, rows, rows), x.dtype),
            array_type((*lead, columns if option == FULL else rows, columns), x.dtype),
        ]
        values = array_type((*lead, rows), real)
        results: dict[str, list[ArrayType]] = {
            "potrf": [x.strong()],
            "getrf": [x.strong(), array_type((*lead, smaller), INT32)],
            "geqrf": [x.strong(), array_type((*lead, smaller), x.dtype)],
            "orgqr": [x.strong()],
            "syevd": [x.strong(), values],
            "gesvd": [vectors[0], values, vectors[1]] if option else [values],
        }
        return [*results[routine], info]

    def eval(self, x: Any, *others: Any, routine: str, option: int = 0) -> Any:
        types = self.type(array_type(x.shape, x.dtype), routine=routine, option=option)
        results = [np.zeros(t.shape, t.dtype) for t in types]
        counts = (2, *(1 for _ in others))
        each(lambda *a: _EVALUATIONS[routine](*a, option), [x, *others], counts, results)
        return results

    def fusion(self, equation: Any, target: Machine) -> Properties:
        return UNFUSED

    def samples(self) -> Any:
        return iter(())  # internal to this target; tests/cuda runs it


def _potrf(x: np.ndarray, option: int) -> Any:
    try:
        return np.linalg.cholesky(x), np.int32(0)
    except np.linalg.LinAlgError:
        return np.full_like(x, np.nan), np.int32(1)


def _getrf(x: np.ndarray, option: int) -> Any:
    (function,) = lapack.get_lapack_funcs(("getrf",), (x,))
    factors, pivots, _ = function(x.T)
    return factors.T, pivots.astype(np.int32) + 1, np.int32(0)


def _geqrf(x: np.ndarray, option: int) -> Any:
    packed, factors = np.linalg.qr(x.T, mode="raw")
    return packed, factors, np.int32(0)


def _orgqr(x: np.ndarray, factors: np.ndarray, option: int) -> Any:
    q = np.eye(x.shape[1], dtype=x.dtype)
    for i in reversed(range(len(factors))):
        v = np.concatenate([np.zeros(i), [1], x[i, i + 1 :]]).astype(x.dtype)
        q = q - factors[i] * np.outer(v, np.conj(v) @ q)
    return q[:, : x.shape[0]].T, np.int32(0)


def _syevd(x: np.ndarray, option: int) -> Any:
    values, vectors = np.linalg.eigh(x.T, UPLO="U" if option else "L")
    return vectors.T, values, np.int32(0)


def _gesvd(x: np.ndarray, option: int) -> Any:
    left, values, right = np.linalg.svd(x, full_matrices=option == FULL)
    return (left, values, right, np.int32(0)) if option else (values, np.int32(0))


_EVALUATIONS: dict[str, Callable[..., Any]] = {
    "potrf": _potrf,
    "getrf": _getrf,
    "geqrf": _geqrf,
    "orgqr": _orgqr,
    "syevd": _syevd,
    "gesvd": _gesvd,
}


def plan_solver(equation: Equation) -> LibraryCall:
    """Return the call of a routine. It overwrites its first result, or a copy of the matrix if no result has its
    shape."""
    x = get_arrays(equation.invars)[0]
    routine, option = equation.params["routine"], equation.params.get("option", 0)
    *lead, rows, columns = x.shape
    if routine == "orgqr":  # the number of reflectors
        option = equation.invars[1].aval.shape[-1]  # type: ignore[attr-defined]
    call = SolverCall(
        routine=SOLVERS.index(routine),
        dtype=dtype_index(x.dtype),
        batch=math.prod(lead),
        rows=columns,
        columns=rows,
        option=option,
    )
    if routine == "gesvd":
        return LibraryCall(routine=SOLVER_ROUTINE, parameters=call.integers, scratch=(x.bytes,))
    return LibraryCall(routine=SOLVER_ROUTINE, parameters=call.integers, in_place=((0, 0),))


# --------------------------------------------------------------------------------------------------------- definitions


def _nan_where_failed(info: Any, *values: Any) -> list[Any]:
    """Replace values by NaN where a routine failed."""
    found = []
    for value in values:
        shape = value.shape
        lead = tuple(range(len(info.shape)))
        right = broadcast_in_dim(eq(info, np.int32(0)), shape=shape, broadcast_dimensions=lead)
        nothing = broadcast_in_dim(np.asarray(np.nan, value.dtype), shape=shape, broadcast_dimensions=())
        found.append(where(right, value, nothing))
    return found


def define_cholesky(x: Any) -> Any:
    factor, info = solver(x, routine="potrf")
    return triangle(_nan_where_failed(info, factor)[0], lower=True)


def define_lu(x: Any) -> Any:
    factors, rows, _ = solver(flip(x), routine="getrf")
    pivots = sub(rows, broadcast_in_dim(np.int32(1), shape=rows.shape, broadcast_dimensions=()))
    order = lu_pivots_to_permutation(pivots, permutation_size=x.shape[-2])
    return [flip(factors), pivots, order]


def define_linear_solve(a: Any, factors: Any, permutation: Any, b: Any, *, transposed: bool) -> Any:
    def solve(b: Any, lower: bool, unit: bool) -> Any:
        return triangular_solve(
            factors,
            b,
            left_side=True,
            lower=lower,
            transpose_a=False,
            conjugate_a=False,
            unit_diagonal=unit,
        )

    # Clamp invalid indices, so that every row exists.
    count = broadcast_in_dim(np.int32(b.shape[-2]), shape=permutation.shape, broadcast_dimensions=())
    order = where(lt(permutation, np.int32(0)), add(permutation, count), permutation)
    order = clamp(np.int32(0), order, np.int32(b.shape[-2] - 1))
    return solve(solve(take_rows(b, order), True, True), False, False)


def define_qr(x: Any, *, pivoting: bool, full_matrices: bool) -> Any:
    *_, rows, columns = x.shape
    inner = rows if full_matrices else min(rows, columns)
    packed, factors, info = solver(flip(x), routine="geqrf")
    upper = resize(triangle(flip(packed), lower=False), inner, columns)
    q, other = solver(resize(packed, inner, rows), factors, routine="orgqr")
    return [_nan_where_failed(other, flip(q))[0], _nan_where_failed(info, upper)[0]]


def define_geqrf(x: Any) -> Any:
    packed, factors, info = solver(flip(x), routine="geqrf")
    return _nan_where_failed(info, flip(packed), factors)


def define_eigh(x: Any, *, lower: bool, subset_by_index: Any = None, **params: Any) -> Any:
    rows, values, info = solver(x, routine="syevd", option=int(lower))
    vectors = flip(rows)
    if np.dtype(x.dtype).kind == "c":
        vectors = conjugate(vectors)
    if subset_by_index is not None:
        vectors, values = part(vectors, subset_by_index, -1), part(values, subset_by_index, -1)
    return _nan_where_failed(info, vectors, values)


def define_svd(x: Any, *, full_matrices: bool, compute_uv: bool, subset_by_index: Any = None, **params: Any) -> Any:
    *_, rows, columns = x.shape
    tall = rows > columns
    option = NOTHING if not compute_uv else FULL if full_matrices else REDUCED
    *found, info = solver(flip(x) if tall else x, routine="gesvd", option=option)
    if not compute_uv:
        values = found[0] if subset_by_index is None else part(found[0], subset_by_index, -1)
        return _nan_where_failed(info, values)
    left, values, right = found
    if tall:
        left, right = flip(right), flip(left)
    if subset_by_index is not None and not full_matrices:
        left, values = part(left, subset_by_index, -1), part(values, subset_by_index, -1)
        right = part(right, subset_by_index, -2)
    return _nan_where_failed(info, values, left, right)


# Definition of each matrix function, with the library that it needs.
DEFINITIONS: dict[Any, tuple[str, Callable[..., Any]]] = {
    cholesky: ("cusolver", define_cholesky),
    eigh: ("cusolver", define_eigh),
    geqrf: ("cusolver", define_geqrf),
    linear_solve: ("cublas", define_linear_solve),
    lu: ("cusolver", define_lu),
    qr: ("cusolver", define_qr),
    svd: ("cusolver", define_svd),
}


def definition_for(equation: Equation, target: Target) -> Callable[..., Any] | None:
    """Return the definition of an equation by routines, or None if it must be evaluated otherwise or a matrix is
    empty."""
    library, definition = DEFINITIONS.get(equation.primitive, ("", None))
    if definition is None:
        return None
    shapes: Sequence[Any] = [a.aval.shape for a in equation.invars]  # type: ignore[attr-defined]
    if any(0 in shape or not all(type(n) is int for n in shape) for shape in shapes):
        return None
    if library not in target.libraries.present or equation.params.get("pivoting") or equation.params.get("transposed"):
        return None
    return definition
