"""Systems of equations with triangular and with tridiagonal matrices."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from weft.base import dtypes
from weft.base.errors import ArgumentTypeError
from weft.base.lazy import lazy
from weft.ir.primitive import Axis, Sample, primitive
from weft.ir.types import ArrayType
from weft.ir.zeros import is_linear
from weft.primitives.elementwise.arithmetic import mul, neg
from weft.primitives.families import fail
from weft.primitives.linalg.matrix import (
    MANY,
    MatrixFunction,
    as_columns,
    check_matrix,
    conjugate,
    each,
    flip,
    matmul,
    triangle,
)
from weft.primitives.movement.pad import pad
from weft.primitives.movement.shape import move_axis, ramp, reshape

blas = lazy("scipy.linalg.blas")
lapack = lazy("scipy.linalg.lapack")

# Up to this size, and from `MANY` matrices on, substitution runs over the whole batch at once instead of calling BLAS.
SMALL = 32


def check_same_dtype(name: str, *types: ArrayType) -> None:
    if any(t.dtype != types[0].dtype for t in types):
        found = ", ".join(t.short() for t in types)
        raise ArgumentTypeError(f"{name} needs operands of one dtype, got {found}. Convert one with .astype.")


def solve_triangles(a: np.ndarray, b: np.ndarray, lower: bool, unit_diagonal: bool) -> np.ndarray:
    """Solve a x = b for batches of triangular matrices; infinity or NaN where the diagonal has a zero."""
    size, lead = a.shape[-1], a.shape[:-2]
    count = math.prod(lead)
    if not b.size:
        return b.copy()
    if count < MANY or size > SMALL:
        (trsm,) = blas.get_blas_funcs(("trsm",), (a, b))
        out = np.empty(b.shape, b.dtype)  # in rows, whatever order b has in memory: `each` fills it
        each(lambda a, b: (trsm(1.0, a, b, lower=lower, diag=unit_diagonal),), [a, b], (2, 2), [out])
        return out
    x = b.copy()
    for step in range(size):
        i = step if lower else size - 1 - step
        known = slice(0, i) if lower else slice(i + 1, size)
        if step:
            x[..., i, :] -= (a[..., i : i + 1, known] @ x[..., known, :])[..., 0, :]
        if not unit_diagonal:
            x[..., i, :] /= a[..., i, i, None]
    return x


def as_further_columns(b: Any, dim: Any) -> tuple[Any, Callable[[Any], tuple[Any, int]]]:
    """Merge a batch of right hand sides of one system into its columns; return them and the function that undoes this
    for the solution."""
    rank = len(b.shape)
    stacked = move_axis(b, dim, rank - 2)
    *lead, rows, size, columns = stacked.shape

    def restore(x: Any) -> tuple[Any, int]:
        return reshape(x, new_sizes=stacked.shape, dimensions=None), rank - 2

    return reshape(stacked, new_sizes=(*lead, rows, size * columns), dimensions=None), restore


@primitive
class triangular_solve(MatrixFunction):
    """The x with op(a) x = b, or x op(a) = b unless `left_side`; op transposes or conjugates. Reads one triangle."""

    core = (2, 2)
    linear = (1,)
    multilinear = True
    in_lanes = True

    def type(self, a: ArrayType, b: ArrayType, *, left_side: bool, **params: Any) -> ArrayType:
        check_matrix("triangular_solve", a, square=True)
        check_matrix("triangular_solve", b)
        check_same_dtype("triangular_solve", a, b)
        if a.shape[:-2] != b.shape[:-2] or a.shape[-1] != b.shape[-2 if left_side else -1]:
            side = "rows" if left_side else "columns"
            raise fail(
                f"triangular_solve got a of shape {a.shape} and b of shape {b.shape} with left_side={left_side}.",
                received=f"{a.short()} and {b.short()}",
                fix=f"leading dimensions must be equal, and b must have as many {side} as a",
            )
        return b.strong()

    def eval(
        self, a: Any, b: Any, *, left_side: bool, lower: bool, transpose_a: bool, conjugate_a: bool, unit_diagonal: bool
    ) -> Any:
        if conjugate_a:
            a = np.conj(a)
        if transpose_a == left_side:  # x op(a) = b is the transposed of op(a)ᵀ xᵀ = bᵀ
            a, lower = np.swapaxes(a, -1, -2), not lower
        if left_side:
            return solve_triangles(a, b, lower, unit_diagonal)
        return np.swapaxes(solve_triangles(a, np.swapaxes(b, -1, -2), lower, unit_diagonal), -1, -2)

    def partial(self, i: int, tangent: Any, out: Any, a: Any, b: Any, **params: Any) -> Any:
        if i == 1:
            return triangular_solve(a, tangent, **params)
        change = triangle(tangent, params["lower"], (-1 if params["lower"] else 1) if params["unit_diagonal"] else 0)
        if params["transpose_a"]:
            change = flip(change)
        if params["conjugate_a"]:
            change = conjugate(change)
        image = matmul(change, out) if params["left_side"] else matmul(out, change)
        return neg(triangular_solve(a, image, **params))

    def transpose(self, cotangent: Any, a: Any, b: Any, *, transpose_a: bool, **params: Any) -> Sequence[Any]:
        return [None, triangular_solve(a, cotangent, transpose_a=not transpose_a, **params)]

    def batch(self, axis: Axis, args: Sequence[Any], dims: Sequence[int | None], **params: Any) -> tuple[Any, int]:
        (a, b), (a_dim, b_dim) = args, dims
        if a_dim is not None:
            return super().batch(axis, args, dims, **params)
        if params["left_side"]:
            columns, restore = as_further_columns(b, b_dim)
            return restore(triangular_solve(a, columns, **params))
        # x op(a) = b: the members of the batch become further rows.
        dim = len(b.shape) - 3
        stacked = move_axis(b, b_dim, dim)  # type: ignore[arg-type]
        *lead, size, rows, columns = stacked.shape
        out = triangular_solve(a, reshape(stacked, new_sizes=(*lead, size * rows, columns), dimensions=None), **params)
        return reshape(out, new_sizes=stacked.shape, dimensions=None), dim

    def samples(self) -> Any:
        plain = {"transpose_a": False, "conjugate_a": False, "unit_diagonal": False}
        a, b = triangular(3), ramp(3, 2)
        yield Sample(a, b, left_side=True, lower=True, **plain)
        yield Sample(a, b.T.copy(), left_side=False, lower=False, **plain)
        yield Sample(a, b, left_side=True, lower=False, transpose_a=True, conjugate_a=False, unit_diagonal=True)
        yield Sample(
            a, b.T.copy(), left_side=False, lower=True, transpose_a=True, conjugate_a=False, unit_diagonal=False
        )
        many = np.stack([triangular(2) + i for i in np.linspace(0, 0.5, 9, dtype=np.float32)])
        yield Sample(many, ramp(9, 2, 1), left_side=True, lower=True, **plain)
        yield Sample(
            many, ramp(9, 2, 2), left_side=True, lower=False, transpose_a=False, conjugate_a=False, unit_diagonal=True
        )
        turned, right = triangular(2, dtype=np.complex64), ramp(2, 3, dtype=np.complex64) * (1 - 0.5j)
        for transposed in (False, True):
            for conjugated in (False, True):
                flags = {"transpose_a": transposed, "conjugate_a": conjugated, "unit_diagonal": False}
                yield Sample(turned, right.astype(np.complex64), left_side=True, lower=True, **flags)
        yield Sample(triangular(2), np.zeros((2, 0), np.float32), left_side=True, lower=True, **plain)
        yield Sample(many[:4].reshape(2, 2, 2, 2), ramp(2, 2, 2, 3), left_side=True, lower=True, **plain)


def triangular(size: int, dtype: Any = np.float32) -> np.ndarray:
    """Return a full matrix with two well conditioned triangles, for samples."""
    values: Any = np.cos(np.arange(1, size * size + 1)).reshape(size, size) / 2 + np.eye(size) * 2
    if np.dtype(dtype).kind == "c":
        values = values + 1j * np.sin(np.arange(size * size)).reshape(size, size) / 2
    result: np.ndarray = values.astype(dtype)
    return result


@primitive
class tridiagonal_solve(MatrixFunction):
    """The x with T x = b; T has `dl` below its diagonal `d` (dl[0] is not used) and `du` above (du[-1] is not used)."""

    core = (1, 1, 1, 2)
    linear = (3,)
    multilinear = True

    def type(self, dl: ArrayType, d: ArrayType, du: ArrayType, b: ArrayType) -> ArrayType:
        check_matrix("tridiagonal_solve", b)
        check_same_dtype("tridiagonal_solve", dl, d, du, b)
        if not dl.shape == d.shape == du.shape == b.shape[:-1]:
            raise fail(
                f"tridiagonal_solve got diagonals of shapes {dl.shape}, {d.shape}, {du.shape} and b of {b.shape}.",
                fix="the three diagonals have one shape (..., n), and b has shape (..., n, k)",
            )
        return b.strong()

    def eval(self, dl: Any, d: Any, du: Any, b: Any) -> Any:
        out = b.copy()
        if not b.size:
            return out
        (gtsv,) = lapack.get_lapack_funcs(("gtsv",), (d, b))

        def solve(dl: Any, d: Any, du: Any, b: Any) -> Any:
            if d.size == 1:
                return (b / d[0],)
            *_, x, info = gtsv(dl[1:], d, du[:-1], b)
            return (np.full_like(b, np.nan) if info else x,)

        each(solve, [dl, d, du, b], self.core, [out])
        return out

    def partial(self, i: int, tangent: Any, out: Any, dl: Any, d: Any, du: Any, b: Any) -> Any:
        if i == 3:
            return tridiagonal_solve(dl, d, du, tangent)
        rhs = mul(as_columns(tangent, out.shape), _shift(out, 1 - i, len(out.shape) - 2))
        return neg(tridiagonal_solve(dl, d, du, rhs))

    def transpose(self, cotangent: Any, dl: Any, d: Any, du: Any, b: Any) -> Sequence[Any]:
        assert is_linear(b)
        axis = len(d.shape) - 1
        # The element above the diagonal in row i is below it in column i + 1 of the transpose, and vice versa.
        return [None, None, None, tridiagonal_solve(_shift(du, 1, axis), d, _shift(dl, -1, axis), cotangent)]

    def samples(self) -> Any:
        dl, d, du = ramp(3) / 4, ramp(3) / 8 + np.float32(2), -ramp(3) / 3
        yield Sample(dl, d, du, ramp(3, 2))
        yield Sample(dl[:1], d[:1], du[:1], ramp(1, 2))
        stacked = [np.stack([v, v * np.float32(1.25)]) for v in (dl, d, du)]
        yield Sample(*stacked, ramp(2, 3, 1))
        turned = [(v * (1 + 0.25j)).astype(np.complex64) for v in (dl, d, du)]
        yield Sample(*turned, (ramp(3, 1) * 1j).astype(np.complex64))


def _shift(x: Any, by: int, axis: int) -> Any:
    """Shift elements by one index up or down an axis, with a zero at the end, which is not used."""
    if not by:
        return x
    low = [(0, 0, 0)] * len(x.shape)
    low[axis] = (by, -by, 0)
    return pad(x, np.zeros((), dtypes.storage(x.dtype)), padding_config=tuple(low))
