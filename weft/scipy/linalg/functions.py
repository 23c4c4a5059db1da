"""Functions of matrices: exponential, square root, any function on the spectrum; Schur and related forms."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from weft import lax
from weft.api.custom import custom_jvp
from weft.api.differentiate import jvp
from weft.base import dtypes
from weft.base.errors import ArgumentError
from weft.ir.nans import allow_nans
from weft.lax import linalg as lax_linalg
from weft.numpy.elementwise import absolute
from weft.numpy.linalg.inputs import inexact, matrix, same_batch, square_matrix
from weft.numpy.reductions import max as max_, sum as sum_
from weft.numpy.util import concrete_or_error, ensure_array
from weft.primitives.linalg.lu import solve
from weft.primitives.linalg.matrix import (
    adjoint,
    as_columns,
    as_dtype,
    as_rows,
    check_matrix,
    diagonal,
    flip,
    hermitian_part,
    identity_like,
    matmul,
    on_diagonal,
    part,
    real_dtype,
    real_part,
    resize,
    rows_and_columns,
    scalar,
    triangle,
)
from weft.trace.annotations import ArrayLike
from weft.trace.array import Array

# Padé approximants of the exponential: coefficients, and the largest 1-norm for which they are exact to rounding.
_PADE = {
    4: ((17297280.0, 8648640.0, 1995840.0, 277200.0, 25200.0, 1512.0, 56.0, 1.0), 3.925724783138660),
    8: (
        (
            64764752532480000.0,
            32382376266240000.0,
            7771770303897600.0,
            1187353796428800.0,
            129060195264000.0,
            10559470521600.0,
            670442572800.0,
            33522128640.0,
            1323241920.0,
            40840800.0,
            960960.0,
            16380.0,
            182.0,
            1.0,
        ),
        5.371920351148152,
    ),
}


def expm(A: ArrayLike, *, upper_triangular: bool = False, max_squarings: int = 16) -> Array:
    """Compute the matrix exponential, by a Padé approximant of the scaled matrix and repeated squaring.

    The result is NaN for a matrix whose norm needs more than `max_squarings` squarings.

    Args:
        A: square matrices of shape (..., n, n).
        upper_triangular: whether they are upper triangular.
        max_squarings: the most squarings.

    Returns:
        Matrices of the shape of `A`.

    >>> import weft.numpy as wnp
    >>> import weft.scipy.linalg as scipy_linalg
    >>> scipy_linalg.expm(wnp.array([[0.0, 1.0], [0.0, 0.0]])).round(3)
    Array([[1., 1.],
           [0., 1.]], dtype=float32)
    """
    x = square_matrix("expm", A)
    check_matrix("expm", x.aval)
    real = real_dtype(x.dtype)
    coefficients, limit = _PADE[real.itemsize]
    size = max_(sum_(absolute(x), axis=-2), axis=-1, initial=0)
    needed = lax.ceil(
        lax.div(lax.log(lax.max(lax.div(size, scalar(limit, size)), scalar(1, size))), scalar(math.log(2), size))
    )
    # The number of squarings is a step function of the matrix: it has no derivative, and needs none.
    squarings = lax.convert_element_type(lax.stop_gradient(needed), np.int32)
    squarings = lax.select_n(lax.is_finite(size), lax.full_like(squarings, max_squarings + 1), squarings)
    allowed = lax.min(squarings, np.asarray(max_squarings, np.int32))
    shrink = lax.exp2(lax.neg(lax.convert_element_type(allowed, real)))
    scaled = lax.mul(x, as_dtype(_broadcast_batch(shrink, x.shape), x.dtype))
    out = _approximant(scaled, coefficients, upper_triangular)

    def square(i: Any, r: Any) -> Any:
        more = _broadcast_batch(lax.gt(allowed, lax.convert_element_type(i, np.int32)), x.shape)
        return lax.select_n(more, r, matmul(r, r))

    rounds = max_(allowed, initial=0) if x.ndim > 2 else allowed
    out = lax.fori_loop(0, rounds, square, out)
    too_large = lax.gt(squarings, np.asarray(max_squarings, np.int32))
    return lax.select_n(_broadcast_batch(too_large, x.shape), out, lax.full_like(out, math.nan))


def _broadcast_batch(x: Any, shape: Any) -> Any:
    """Broadcast a number for each matrix of a batch over the elements of the matrix."""
    return lax.broadcast_in_dim(x, shape, tuple(range(len(shape) - 2)))


def _approximant(x: Any, coefficients: tuple[float, ...], upper_triangular: bool) -> Any:
    """Evaluate p(x) / p(−x), with the polynomial p split into even and odd powers."""
    one, squared = identity_like(x), matmul(x, x)
    powers = [one, squared]
    while 2 * len(powers) < len(coefficients):
        powers.append(matmul(powers[-1], squared))
    even: Any = None
    odd: Any = None
    for i, power in enumerate(powers):
        first, second = (lax.mul(power, scalar(coefficients[2 * i + k], x)) for k in (0, 1))
        even = first if even is None else lax.add(even, first)
        odd = second if odd is None else lax.add(odd, second)
    odd = matmul(x, odd)
    top, bottom = lax.add(even, odd), lax.sub(even, odd)
    if upper_triangular:
        return lax_linalg.triangular_solve(bottom, top, left_side=True)
    return solve(bottom, top)


def expm_frechet(A: ArrayLike, E: Any, *, method: str | None = None, compute_expm: bool = True) -> tuple[Array, Array]:
    """Compute the exponential of A and its derivative in the direction E; only the derivative if `compute_expm` is
    False.
    """
    a, e = inexact("expm_frechet", A, E)
    if a.shape != e.shape or a.ndim < 2 or a.shape[-1] != a.shape[-2]:
        raise ArgumentError(f"expm_frechet takes square matrices of one shape, got {a.shape} and {e.shape}.")
    value, derivative = jvp(expm, (a,), (e,))
    return (value, derivative) if compute_expm else derivative


def schur(a: ArrayLike, output: str = "real") -> tuple[Array, Array]:
    """Return T and Z with a = Z T Zᴴ, Z unitary, T upper triangular, up to 2x2 blocks of a real matrix with output
    "real"."""
    if output not in ("real", "complex"):
        raise ArgumentError(f"Expected 'output' to be either 'real' or 'complex', got {output!r}.")
    x = square_matrix("schur", a)
    if output == "complex":
        x = as_dtype(x, dtypes.to_complex_dtype(x.dtype))
    t, z = lax_linalg.schur(x)
    return t, z


def rsf2csf(T: Any, Z: Any, check_finite: bool = True) -> tuple[Array, Array]:
    """Convert a real Schur form with 2x2 blocks to the complex triangular one."""
    t, z = inexact("rsf2csf", T, Z)
    triangular, rotation = schur(t, output="complex")
    return triangular, matmul(as_dtype(z, rotation.dtype), rotation)


def _by_superdiagonals(t: Any, values: Any, element: Callable[[Any, Any], Any]) -> Any:
    """Compute a function of an upper triangular matrix, itself upper triangular, from its diagonal `values`, one
    superdiagonal at a time.

    `element(t, strict)` computes all elements from what is known above the diagonal so far.
    """
    rows, columns = rows_and_columns(t.shape)
    distance = lax.sub(columns, rows)

    def step(i: Any, strict: Any) -> Any:
        return lax.select_n(lax.eq(distance, lax.convert_element_type(i, np.int32)), strict, element(t, strict))

    strict = lax.fori_loop(1, max(t.shape[-1], 1), step, lax.full_like(t, 0))
    return lax.select_n(on_diagonal(t.shape), strict, as_columns(values, t.shape))


def sqrtm(A: ArrayLike, blocksize: int = 1) -> Array:
    """Compute the principal square root of a square matrix, complex, by its Schur form. It has derivatives wherever no
    eigenvalue is zero, repeated ones included.
    """
    if blocksize != 1:
        raise ArgumentError(f"sqrtm got blocksize={blocksize!r}; only 1 is used.")
    x = square_matrix("sqrtm", A)
    return _square_root(as_dtype(x, dtypes.to_complex_dtype(x.dtype)))


@custom_jvp
def _square_root(x: Any) -> Any:
    t, z = lax_linalg.schur(x)
    roots = lax.sqrt(diagonal(t))
    sums = lax.add(as_columns(roots, t.shape), as_rows(roots, t.shape))

    def element(t: Any, strict: Any) -> Any:
        rest = lax.sub(t, matmul(strict, strict))
        # Between two zero eigenvalues any element solves the equation if the remainder is zero: take the least, zero.
        free = lax.bitwise_and(lax.eq(sums, scalar(0, sums)), lax.eq(rest, scalar(0, rest)))
        return lax.div(rest, lax.select_n(free, sums, lax.full_like(sums, 1)))

    root = _by_superdiagonals(t, roots, element)
    return matmul(matmul(z, root), adjoint(z))


@_square_root.defjvp
def _square_root_jvp(primals: Any, tangents: Any) -> Any:
    """Differentiate by the equation s s = x: s ds + ds s = dx."""
    root = _square_root(*primals)
    return root, _sylvester(root, root, tangents[0])


def funm(A: ArrayLike, func: Callable[[Array], Array], disp: bool = True) -> Any:
    """Evaluate the function `func` of a matrix with distinct eigenvalues; with disp=False also estimate the error."""
    t, z = schur(A, output="complex")
    values = func(diagonal(t))
    eigenvalues = diagonal(t)
    gaps = lax.sub(as_rows(eigenvalues, t.shape), as_columns(eigenvalues, t.shape))
    steps = lax.sub(as_rows(values, t.shape), as_columns(values, t.shape))
    above = triangle(t, lower=False, offset=1)

    def element(t: Any, s: Any) -> Any:
        return lax.div(lax.add(lax.mul(t, steps), lax.sub(matmul(above, s), matmul(s, above))), gaps)

    with allow_nans():  # the diagonal has no gap; its elements are not used
        found = _by_superdiagonals(t, values, element)
    result = matmul(matmul(z, found), adjoint(z))
    if disp:
        return result
    smallest = lax.abs(_off_diagonal_minimum(gaps))
    eps = float(np.finfo(real_dtype(t.dtype)).eps)
    size = max_(sum_(absolute(above), axis=-2), axis=-1, initial=0)
    error = lax.min(scalar(1, size), lax.max(scalar(eps, size), lax.mul(lax.div(scalar(eps, size), smallest), size)))
    return result, error


def _off_diagonal_minimum(gaps: Any) -> Any:
    large = lax.select_n(on_diagonal(gaps.shape), lax.abs(gaps), lax.full_like(lax.abs(gaps), math.inf))
    return lax.neg(max_(lax.neg(large), axis=(-2, -1), initial=-math.inf))


def polar(
    a: ArrayLike,
    side: str = "right",
    *,
    method: str = "qdwh",
    eps: float | None = None,
    max_iterations: int | None = None,
) -> tuple[Array, Array]:
    """Return U with orthonormal columns (or rows) and positive semidefinite P: a = U P for side "right", a = P U for
    "left".

    Both come from the singular value decomposition, whatever `method`, `eps` and `max_iterations` say. They have
    derivatives wherever no singular value is zero, equal ones included.
    """
    if side not in ("right", "left"):
        raise ArgumentError(f"The argument `side` must be either 'right' or 'left', got {side!r}.")
    if method not in ("qdwh", "svd"):
        raise ArgumentError(f"Unknown polar decomposition method {method!r}; it is 'qdwh' or 'svd'.")
    x = matrix("polar", a)
    tall, right = x.shape[-2] >= x.shape[-1], side == "right"
    unitary, positive = _polar(x if tall else adjoint(x))
    if not tall:
        unitary = adjoint(unitary)
    if tall != right:  # the positive factor on the other side
        positive = hermitian_part(matmul(adjoint(unitary), x) if right else matmul(x, adjoint(unitary)))
    return unitary, positive


@custom_jvp
def _polar(x: Any) -> tuple[Any, Any]:
    """Return U and P with x = U P, for matrices with at least as many rows as columns."""
    u, s, v = lax_linalg.svd(x, full_matrices=False)
    basis = adjoint(v)
    return matmul(u, v), matmul(lax.mul(basis, as_rows(as_dtype(s, x.dtype), basis.shape)), v)


@_polar.defjvp
def _polar_jvp(primals: Any, tangents: Any) -> Any:
    """Differentiate by the equation x = U P: Uᴴ dU is skew, and P dP + dP P = d(xᴴ x). It also holds for equal singular
    values."""
    (x,), (dx,) = primals, tangents
    u, p = _polar(x)
    along = matmul(adjoint(u), dx)
    du = matmul(u, _lyapunov(p, lax.sub(along, adjoint(along))))
    if x.shape[-2] > x.shape[-1]:
        outside = lax.sub(dx, matmul(u, along))
        du = lax.add(du, adjoint(solve(p, adjoint(outside))))
    return (u, p), (du, hermitian_part(lax.add(matmul(adjoint(du), x), along)))


def _lyapunov(p: Any, c: Any) -> Any:
    """Solve p x + x p = c for Hermitian p. Differentiation uses the equation, not the iterations of the solver."""

    def by_eigenvalues(p: Any, _: Any, c: Any) -> Any:
        v, w = lax_linalg.eigh(p, symmetrize_input=False)
        inner = matmul(matmul(adjoint(v), c), v)
        sums = lax.add(as_columns(w, inner.shape), as_rows(w, inner.shape))
        return matmul(matmul(v, lax.div(inner, as_dtype(sums, inner.dtype))), adjoint(v))

    return _implicit(p, p, c, by_eigenvalues)


def _implicit(a: Any, b: Any, c: Any, solve: Callable[..., Any]) -> Any:
    """Solve a x + x b = c by `solve(a, b, c)`, with the derivatives of the equation."""
    flipped_a, flipped_b = flip(a), flip(b)
    return lax.custom_linear_solve(
        lambda x: lax.add(matmul(a, x), matmul(x, b)),
        c,
        lambda _, right: solve(a, b, right),
        lambda _, right: solve(flipped_a, flipped_b, right),
    )


def solve_sylvester(A: ArrayLike, B: ArrayLike, C: Any, *, method: str = "schur", tol: float = 1e-8) -> Array:
    """Solve A X + X B = C by the Schur forms of A and B. `method` and `tol` are accepted for compatibility."""
    if method not in ("schur", "eigen"):
        raise ArgumentError(f"Expected method to be 'schur' or 'eigen', got {method!r}.")
    a, b, c = inexact("solve_sylvester", A, B, C)
    if (
        min(x.ndim for x in (a, b, c)) < 2
        or a.shape[-1] != a.shape[-2]
        or b.shape[-1] != b.shape[-2]
        or c.shape[-2:] != (a.shape[-1], b.shape[-1])
    ):
        raise ArgumentError(f"solve_sylvester takes (m, m), (n, n) and (m, n), got {a.shape}, {b.shape}, {c.shape}.")
    a, b, c = same_batch("solve_sylvester", a, b, c)
    kind = dtypes.to_complex_dtype(c.dtype)
    x = _sylvester(*(as_dtype(m, kind) for m in (a, b, c)))
    return x if dtypes.kind(c.dtype) == "c" else real_part(x)


def _sylvester(a: Any, b: Any, c: Any) -> Any:
    """Solve a x + x b = c for complex matrices. Differentiation uses the equation, not the Schur forms."""
    return _implicit(a, b, c, _by_schur_forms)


def _by_schur_forms(a: Any, b: Any, c: Any) -> Any:
    (r, u), (s, v) = lax_linalg.schur(a), lax_linalg.schur(b)
    f = matmul(matmul(adjoint(u), c), v)
    one = identity_like(r)
    _, columns = rows_and_columns(s.shape[-2:])

    def step(i: Any, y: Any) -> Any:
        picked = lax.eq(part(columns, (0, 1), -2), lax.convert_element_type(i, np.int32))
        unit = lax.broadcast_in_dim(
            as_dtype(picked, s.dtype), (*s.shape[:-2], 1, s.shape[-1]), (s.ndim - 2, s.ndim - 1)
        )
        column = matmul(lax.sub(f, matmul(y, s)), lax.transpose(unit, (*range(s.ndim - 2), s.ndim - 1, s.ndim - 2)))
        shift = sum_(lax.mul(diagonal(s), lax.reshape(unit, (*s.shape[:-2], s.shape[-1]))), axis=-1)
        system = lax.add(r, lax.mul(one, _broadcast_batch(shift, r.shape)))
        return lax.add(y, matmul(lax_linalg.triangular_solve(system, column, left_side=True), unit))

    y = lax.fori_loop(0, s.shape[-1], step, lax.full_like(f, 0))
    return matmul(matmul(u, y), adjoint(v))


def hessenberg(a: ArrayLike, *, calc_q: bool = False, overwrite_a: bool = False, check_finite: bool = True) -> Any:
    """Return H, zero below its first subdiagonal, similar to a; with `calc_q` also the unitary Q with a = Q H Qᴴ."""
    x = square_matrix("hessenberg", a)
    size = x.shape[-1]
    if not size:
        return (x, x) if calc_q else x
    packed, taus = lax_linalg.hessenberg(x)
    h = triangle(packed, lower=False, offset=-1)
    if not calc_q:
        return h
    whole = identity_like(x)
    if size == 1:
        return h, whole
    inner = lax_linalg.householder_product(resize(part(packed, (1, size), -2), size - 1, size - 1), taus)
    q = lax.pad(inner, np.zeros((), x.dtype), [(0, 0, 0)] * (x.ndim - 2) + [(1, 0, 0), (1, 0, 0)])
    rows, _ = rows_and_columns(x.shape)
    return h, lax.select_n(lax.eq(rows, np.asarray(0, np.int32)), q, whole)


def eigh_tridiagonal(
    d: Any,
    e: Any,
    *,
    eigvals_only: bool = False,
    select: str = "a",
    select_range: tuple[float, float] | None = None,
    tol: float | None = None,
    key: Any = None,
) -> Any:
    """Return the eigenvalues (and vectors) of the Hermitian matrix with diagonal `d` and off-diagonal `e`.

    select: "a" for all, "i" for those numbered from select_range[0] to select_range[1] inclusive, "v" for those in the
    half-open interval (select_range[0], select_range[1]], which needs values known when tracing. `tol` and `key`
    belong to iterative methods and are not used.
    """
    d, e = inexact("eigh_tridiagonal", d, e)
    if d.ndim != 1 or e.shape != (d.shape[0] - 1,):
        raise ArgumentError(f"eigh_tridiagonal takes vectors of size n and n-1, got {d.shape} and {e.shape}.")
    if select not in ("a", "i", "v") or (select != "a" and select_range is None):
        raise ArgumentError(f"eigh_tridiagonal got select={select!r} with select_range={select_range!r}.")
    size = d.shape[0]
    middle = lax.mul(as_rows(d, (size, size)), identity_like(lax.full((size, size), 0, d.dtype)))
    below = lax.pad(e, np.zeros((), e.dtype), [(0, 1, 0)])
    beside = lax.mul(as_rows(below, (size, size)), _subdiagonal(size, e.dtype))
    v, w = lax_linalg.eigh(lax.add(lax.add(middle, beside), adjoint(beside)), symmetrize_input=False)
    if select == "i":
        assert select_range is not None
        bounds = (int(select_range[0]), int(select_range[1]) + 1)
        w, v = part(w, bounds, -1), part(v, bounds, -1)
    elif select == "v":
        assert select_range is not None
        values = concrete_or_error(
            w,
            "eigh_tridiagonal with select='v' returns as many values as lie in the interval.",
            "use select='i' or 'a'",
        )
        inside = np.flatnonzero((values > select_range[0]) & (values <= select_range[1]))
        bounds = (int(inside[0]), int(inside[-1]) + 1) if len(inside) else (0, 0)
        w, v = part(w, bounds, -1), part(v, bounds, -1)
    return w if eigvals_only else (w, v)


def _subdiagonal(size: int, dtype: Any) -> Any:
    """Return a matrix with ones on the first subdiagonal and zeros elsewhere."""
    return ensure_array(np.eye(size, k=-1, dtype=dtype))
