"""The LU factorisation with partial pivoting, and systems of equations solved with it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from weft.base.errors import ArgumentTypeError
from weft.base.lazy import lazy
from weft.indexing.dimension import minimum
from weft.ir.primitive import Axis, Sample, primitive
from weft.ir.types import ArrayType, array_type
from weft.ir.zeros import Zero, is_linear
from weft.primitives.elementwise.arithmetic import add, neg, sub
from weft.primitives.elementwise.convert import stop_gradient
from weft.primitives.families import fail
from weft.primitives.linalg.cholesky import general
from weft.primitives.linalg.matrix import (
    MANY,
    MatrixFunction,
    check_matrix,
    each,
    flip,
    identity_like,
    matmul,
    resize,
    take_rows,
    triangle,
)
from weft.primitives.linalg.triangular import (
    SMALL,
    as_further_columns,
    check_same_dtype,
    solve_triangles,
    triangular_solve,
)
from weft.primitives.movement.shape import ramp

lapack = lazy("scipy.linalg.lapack")

INT32 = np.dtype(np.int32)


@primitive
class lu(MatrixFunction):
    """L (below the diagonal, which is 1) and U in one matrix, the row exchanges, and the permutation they amount to.

    The rows of the operand in the order `permutation` are L U. A singular matrix has zeros on the diagonal of U.
    """

    multiple_results = True
    in_lanes = True

    def type(self, x: ArrayType) -> list[ArrayType]:
        check_matrix("lu", x)
        *lead, rows, columns = x.shape
        return [x.strong(), array_type((*lead, minimum(rows, columns)), INT32), array_type((*lead, rows), INT32)]

    def eval(self, x: Any) -> Any:
        *lead, rows, columns = x.shape
        factors, pivots = np.array(x, order="C"), np.zeros((*lead, min(rows, columns)), np.int32)
        count = math.prod(lead)
        if count >= MANY and max(rows, columns) <= SMALL:
            _eliminate(factors.reshape(count, rows, columns), pivots.reshape(count, pivots.shape[-1]))
        elif x.size:
            (getrf,) = lapack.get_lapack_funcs(("getrf",), (x,))
            each(lambda a: getrf(a)[:2], [x], (2,), [factors, pivots])
        return [factors, pivots, to_permutation(pivots, rows)]

    def jvp(self, tangents: Any, out: Any, x: Any) -> Any:
        factors, _, permutation = out
        *_, rows, columns = x.shape
        # Both factors are extended to squares by an identity, which does not change the product: L⁻¹ dx U⁻¹ is then the
        # sum of a strictly lower part, L⁻¹ dL, and an upper one, dU U⁻¹.
        lower = triangle(resize(factors, rows, rows), lower=True, offset=-1)
        lower = add(lower, identity_like(lower))
        upper = triangle(resize(factors, columns, columns), lower=False)
        if rows < columns:
            beyond = identity_like(upper)
            upper = add(upper, sub(beyond, resize(resize(beyond, rows, rows), columns, columns)))
        change = take_rows(tangents[0], permutation)
        change = triangular_solve(
            lower, change, left_side=True, lower=True, transpose_a=False, conjugate_a=False, unit_diagonal=True
        )
        change = triangular_solve(
            upper, change, left_side=False, lower=False, transpose_a=False, conjugate_a=False, unit_diagonal=False
        )
        below, above = triangle(change, lower=True, offset=-1), triangle(change, lower=False)
        tangent_out = add(matmul(lower, below), matmul(above, upper))
        return [tangent_out, Zero.of(out[1].aval), Zero.of(out[2].aval)]

    def samples(self) -> Any:
        yield Sample(general(3, 3))
        yield Sample(general(2, 4, 2))
        yield Sample(general(2, 4))
        yield Sample(general(9, 3, 3))
        yield Sample(general(3, 3, dtype=np.complex64))
        yield Sample(np.zeros((2, 2), np.float32), differentiable=False)
        yield Sample(np.zeros((0, 0), np.float32), differentiable=False)
        yield Sample(np.zeros((9, 3, 0), np.float32))


def _eliminate(a: np.ndarray, pivots: np.ndarray) -> None:
    """Eliminate in place over a whole batch at once, in LAPACK's order of operations."""
    everyone = np.arange(len(a))
    for j in range(pivots.shape[-1]):
        column = a[:, j:, j]
        # LAPACK compares complex numbers by |re| + |im|.
        size = np.abs(column.real) + np.abs(column.imag) if a.dtype.kind == "c" else np.abs(column)
        chosen = np.argmax(size, axis=1) + j
        pivots[:, j] = chosen
        row = a[everyone, chosen].copy()
        a[everyone, chosen] = a[:, j]
        a[:, j] = row
        pivot = a[:, j, j, None]
        np.divide(a[:, j + 1 :, j], pivot, out=a[:, j + 1 :, j], where=pivot != 0)
        a[:, j + 1 :, j + 1 :] -= a[:, j + 1 :, j, None] * a[:, j, None, j + 1 :]


def to_permutation(pivots: np.ndarray, size: int) -> np.ndarray:
    """Return the order of rows after exchanging row i with row pivots[..., i] for each i in turn. Negative pivots count
    from the end; an exchange with a row that does not exist does nothing."""
    flat = pivots.reshape(math.prod(pivots.shape[:-1]), pivots.shape[-1])
    order = np.tile(np.arange(size, dtype=np.int32), (len(flat), 1))
    everyone = np.arange(len(flat))
    for i in range(pivots.shape[-1]):
        other = np.where((-size <= flat[:, i]) & (flat[:, i] < size), flat[:, i], i)
        chosen = order[everyone, other].copy()
        order[everyone, other] = order[:, i]
        order[:, i] = chosen
    return order.reshape(*pivots.shape[:-1], size)


@primitive
class lu_pivots_to_permutation(MatrixFunction):
    """Permutation that a sequence of row exchanges produces."""

    core = (1,)

    def type(self, pivots: ArrayType, *, permutation_size: int) -> ArrayType:
        if pivots.dtype != INT32:
            raise ArgumentTypeError(f"lu_pivots_to_permutation needs int32 pivots, got {pivots.short()}.")
        if pivots.ndim < 1 or permutation_size < pivots.shape[-1]:
            raise fail(
                f"lu_pivots_to_permutation got pivots of shape {pivots.shape} for a permutation of {permutation_size}.",
                fix="there are at most as many pivots as rows",
            )
        return array_type((*pivots.shape[:-1], permutation_size), INT32)

    def eval(self, pivots: Any, *, permutation_size: int) -> Any:
        return to_permutation(pivots, permutation_size)

    def samples(self) -> Any:
        yield Sample(np.array([2, 1, 2], np.int32), permutation_size=4)
        yield Sample(np.array([[1, 1], [0, 1]], np.int32), permutation_size=2)
        yield Sample(np.array([[-1, 7, 2], [-9, 3, 0]], np.int32), permutation_size=4)  # rows that do not exist


@primitive
class linear_solve(MatrixFunction):
    """The x with a x = b (or aᵀ x = b if `transposed`), from a and its factors as `lu` returns them.

    The derivative is that of the solution itself and reuses the factors: dx = a⁻¹ (db − da x). So the factors are to be
    computed from a value that carries no derivative, and only they are read to compute x.
    """

    core = (2, 2, 1, 2)
    in_lanes = True

    def type(
        self, a: ArrayType, factors: ArrayType, permutation: ArrayType, b: ArrayType, *, transposed: bool
    ) -> ArrayType:
        check_matrix("linear_solve", a, square=True)
        check_matrix("linear_solve", b)
        check_same_dtype("linear_solve", a, factors, b)
        if (
            a.shape[:-2] != b.shape[:-2]
            or a.shape[-1] != b.shape[-2]
            or a.shape != factors.shape
            or permutation.shape != a.shape[:-1]
        ):
            raise fail(
                f"linear_solve got a of shape {a.shape} and b of shape {b.shape}.",
                received=f"{a.short()} and {b.short()}",
                fix="leading dimensions must be equal, and b must have as many rows as a",
            )
        return b.strong()

    def eval(self, a: Any, factors: Any, permutation: Any, b: Any, *, transposed: bool) -> Any:
        if transposed:
            turned = np.swapaxes(factors, -1, -2)
            x = solve_triangles(turned, b, lower=True, unit_diagonal=False)
            x = solve_triangles(turned, x, lower=False, unit_diagonal=True)
            return np.take_along_axis(x, np.argsort(permutation, axis=-1)[..., None], axis=-2)
        rows = np.where(permutation < 0, permutation + a.shape[-1], permutation)
        rows = rows.clip(0, max(a.shape[-1] - 1, 0))  # any value must select a row of the matrix
        b = np.take_along_axis(b, rows[..., None], axis=-2)
        return solve_triangles(factors, solve_triangles(factors, b, True, True), False, False)

    def jvp(
        self, tangents: Sequence[Any], out: Any, a: Any, factors: Any, permutation: Any, b: Any, *, transposed: bool
    ) -> Any:
        da, _, _, db = tangents
        if type(da) is Zero and type(db) is Zero:
            return Zero.of(out.aval)
        change = db
        if type(da) is not Zero:
            image = matmul(flip(da) if transposed else da, out)
            change = neg(image) if type(db) is Zero else sub(db, image)
        return linear_solve(a, factors, permutation, change, transposed=transposed)

    def transpose(
        self, cotangent: Any, a: Any, factors: Any, permutation: Any, b: Any, *, transposed: bool
    ) -> Sequence[Any]:
        assert is_linear(b) and not is_linear(a)
        return [None, None, None, linear_solve(a, factors, permutation, cotangent, transposed=not transposed)]

    def batch(self, axis: Axis, args: Sequence[Any], dims: Sequence[int | None], **params: Any) -> tuple[Any, int]:
        if any(d is not None for d in dims[:3]):
            return super().batch(axis, args, dims, **params)
        columns, restore = as_further_columns(args[3], dims[3])
        return restore(linear_solve(*args[:3], columns, **params))

    def samples(self) -> Any:
        for a, b in (
            (general(3, 3), ramp(3, 2)),
            (general(9, 2, 2), ramp(9, 2, 1)),
            (general(2, 2, dtype=np.complex64), ramp(2, 1, dtype=np.complex64) * (1 + 1j)),
        ):
            factors, _, permutation = lu.eval(a)  # type: ignore[call-arg, arg-type]
            for transposed in (False, True):
                # The factors are a function of a, so the operands cannot be varied one by one.
                yield Sample(a, factors, permutation, b.astype(a.dtype), differentiable=False, transposed=transposed)


def solve(a: Any, b: Any) -> Any:
    """Return the x with a x = b for shapes (..., n, n) and (..., n, k); a is factored once for value and
    derivatives."""
    factors, _, permutation = lu(stop_gradient(a))
    return linear_solve(a, factors, permutation, b, transposed=False)
