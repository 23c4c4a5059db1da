"""Library calls match `eval`: every dtype, batches, empty arrays and failures."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
import threading
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

import weft
import weft.numpy as wnp
from tests.compiler.library_calls import computed, equation_of, execute, expected, guarded
from weft.base.errors import CustomRuleError, InternalError
from weft.compiler.target.cpu import link
from weft.compiler.target.cpu.library import (
    batches,
    capsules,
    guard,
    hermitian,
    host as host_calls,
    matmuls,
    routines,
    shared,
    singular,
)
from weft.compiler.target.cpu.library.blas import MATMULS
from weft.compiler.target.cpu.library.host import PublicTransforms, transforms
from weft.compiler.target.cpu.library.planning import PLANS, plan
from weft.compiler.target.cpu.library.texts import text
from weft.compiler.target.cpu.library.writer import ELEMENT_TYPES, FAMILIES
from weft.compiler.target.cpu.targets import aarch64, host
from weft.ir.jaxpr import Equation
from weft.ir.primitive import Primitive
from weft.ir.types import ArrayType
from weft.primitives.contraction.contract import dot_general
from weft.primitives.control.tape import tape_new
from weft.primitives.linalg.cholesky import cholesky
from weft.primitives.linalg.condensed import hessenberg, schur, tridiagonal
from weft.primitives.linalg.eigen import eig, eigh
from weft.primitives.linalg.fft import FftType, fft
from weft.primitives.linalg.lu import linear_solve, lu, lu_pivots_to_permutation
from weft.primitives.linalg.qr import geqrf, qr
from weft.primitives.linalg.svd import svd
from weft.primitives.linalg.triangular import triangular_solve, tridiagonal_solve

DTYPES = [np.dtype(d) for d in (np.float32, np.float64, np.complex64, np.complex128)]
EIGH: dict[str, Any] = {"lower": True, "sort_eigenvalues": True, "subset_by_index": None, "algorithm": None}
SVD: dict[str, Any] = {"full_matrices": False, "compute_uv": True, "subset_by_index": None, "algorithm": None}
VALUES, RIGHT, LEFT, BOTH = (
    {"compute_left_eigenvectors": left, "compute_right_eigenvectors": right}
    for left, right in ((False, False), (False, True), (True, False), (True, True))
)
REDUCED, FULL = {"pivoting": False, "full_matrices": False}, {"pivoting": False, "full_matrices": True}
PIVOTED, PIVOTED_FULL = {"pivoting": True, "full_matrices": False}, {"pivoting": True, "full_matrices": True}

# Operations on one matrix, with the parameters that are tried.
SQUARE: list[tuple[Any, dict[str, Any]]] = [
    (cholesky, {}),
    (eigh, EIGH),
    (eigh, {**EIGH, "lower": False}),
    (eig, VALUES),
    (eig, RIGHT),
    (eig, LEFT),
    (eig, BOTH),
    (schur, {"compute_schur_vectors": True}),
    (schur, {"compute_schur_vectors": False}),
    (hessenberg, {}),
    (tridiagonal, {"lower": True}),
    (tridiagonal, {"lower": False}),
]
ANY: list[tuple[Any, dict[str, Any]]] = [
    (lu, {}),
    (geqrf, {}),
    (qr, REDUCED),
    (qr, FULL),
    (qr, PIVOTED),
    (qr, PIVOTED_FULL),
    (svd, SVD),
    (svd, {**SVD, "full_matrices": True}),
    (svd, {**SVD, "compute_uv": False}),
]
HERMITIAN = (cholesky, eigh, tridiagonal)
# Vectors of these are determined but for a factor of magnitude 1, which depends on the precision of the computation.
# For each result: the axis along which vectors lie, or None for what is determined.
PHASES: dict[Any, tuple[int | None, ...]] = {eigh: (-2, None), eig: (None, -2, -2), svd: (None, -2, -1)}


def case_name(case: tuple[Any, dict[str, Any]]) -> str:
    return "-".join([case[0].name, *(f"{k}={v}" for k, v in case[1].items() if v not in (None, False))])


def numbers(rng: np.random.Generator, shape: Sequence[int], dtype: Any) -> np.ndarray:
    result = rng.normal(size=tuple(shape))
    if np.dtype(dtype).kind == "c":
        result = result + 1j * rng.normal(size=tuple(shape))
    return result.astype(dtype)


def matrices(rng: np.random.Generator, primitive: Any, shape: Sequence[int], dtype: Any) -> np.ndarray:
    """Matrices with eigenvalues and singular values that are far from each other, so that vectors are determined."""
    x = numbers(rng, shape, dtype)
    rows, columns = shape[-2:]
    if rows == columns:
        x = x / (2 * max(rows, 1)) + np.diag(np.arange(1, rows + 1))
    if primitive in HERMITIAN:
        x = (x + np.conj(np.swapaxes(x, -1, -2))) / 2
    return x.astype(dtype)


def turned(actual: np.ndarray, wanted: np.ndarray, axis: int | None) -> np.ndarray:
    """Vectors along an axis, each times the factor of magnitude 1 that brings it closest to the one wanted."""
    if axis is None or not actual.size:
        return actual
    along = (np.conj(actual) * wanted).sum(axis=axis, keepdims=True)
    size = np.abs(along)
    return actual * np.where(size > 0, along / np.where(size > 0, size, 1), 1).astype(actual.dtype)


def in_order_of(actual: Sequence[np.ndarray], wanted: Sequence[np.ndarray]) -> list[np.ndarray]:
    """Eigenvalues and their vectors in the order of those wanted, which also depends on the precision."""
    values, *vectors = actual
    order = np.argmin(np.abs(np.nan_to_num(values[..., None, :] - wanted[0][..., None])), axis=-1)
    if np.isfinite(values).all():
        np.testing.assert_array_equal(np.sort(order, axis=-1), np.broadcast_to(np.arange(order.shape[-1]), order.shape))
    return [np.take_along_axis(values, order, -1), *(np.take_along_axis(v, order[..., None, :], -1) for v in vectors)]


def assert_close(
    equation: Equation,
    operands: Sequence[np.ndarray],
    actual: Sequence[np.ndarray],
    wanted: Sequence[np.ndarray],
    phases: bool = True,
) -> None:
    """Equal up to rounding, and nan where wanted; vectors up to what does not determine them, if there are `phases`."""
    # Eigenvectors move by the rounding errors of the matrix over the distance of eigenvalues, which is about 1 here.
    norm = max((float(np.abs(x[np.isfinite(x)]).max(initial=0)) for x in operands), default=0.0)
    axes = PHASES.get(equation.primitive, ()) if phases else ()
    if equation.primitive is eig and phases and actual[0].size:
        actual = in_order_of(actual, wanted)
    for i, (a, b) in enumerate(zip(actual, wanted, strict=True)):
        assert (a.shape, a.dtype) == (b.shape, b.dtype)
        if b.dtype.kind in "iu":
            np.testing.assert_array_equal(a, b)
            continue
        np.testing.assert_array_equal(np.isnan(a), np.isnan(b))
        a, b = (np.where(np.isnan(b), 0, x) for x in (a, b))
        # The last elements of these forms are sensitive to how all others were rounded.
        precision = np.finfo(b.dtype).eps * (50 if equation.primitive in (hessenberg, tridiagonal) else 1)
        of_vectors = i < len(axes) and axes[i] is not None
        scale = max(1.0, float(np.abs(b[np.isfinite(b)]).max(initial=0)), norm if of_vectors else 0.0)
        a = turned(a, b, axes[i] if i < len(axes) else None)
        np.testing.assert_allclose(a, b, rtol=2000 * precision, atol=500 * precision * scale)


def check(primitive: Any, operands: Sequence[np.ndarray], params: dict[str, Any], **options: Any) -> list[np.ndarray]:
    equation = equation_of(primitive, operands, params)
    actual = computed(equation, operands, **options)
    assert_close(equation, operands, actual, expected(equation, operands))
    return actual


# ------------------------------------------------------------------------------------------------------------- samples


@pytest.mark.parametrize("primitive", PLANS, ids=lambda primitive: primitive.name)
def test_samples(primitive: Any) -> None:
    count = 0
    for sample in primitive.samples():
        operands = [np.asarray(a) for a in sample.args]
        if primitive is dot_general and not all(x.dtype == operands[0].dtype and x.dtype in DTYPES for x in operands):
            continue
        check(primitive, operands, sample.params)
        count += 1
    assert count


# ------------------------------------------------------------------------------------------------ factors and spectra


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("case", SQUARE, ids=case_name)
def test_square_matrices(case: tuple[Any, dict[str, Any]], dtype: Any, rng: np.random.Generator) -> None:
    primitive, params = case
    for shape in ((1, 1), (2, 2), (5, 5), (3, 4, 4), (2, 3, 7, 7), (40, 40)):
        check(primitive, [matrices(rng, primitive, shape, dtype)], params)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("case", ANY, ids=case_name)
def test_other_matrices(case: tuple[Any, dict[str, Any]], dtype: Any, rng: np.random.Generator) -> None:
    primitive, params = case
    for shape in ((1, 1), (4, 4), (1, 5), (5, 1), (3, 7), (7, 3), (2, 5, 3), (2, 2, 3, 6), (37, 20), (20, 37)):
        check(primitive, [matrices(rng, primitive, shape, dtype)], params)


@pytest.mark.parametrize("case", [*SQUARE, *ANY], ids=case_name)
def test_signs_are_those_of_eval_in_double_precision(
    case: tuple[Any, dict[str, Any]], rng: np.random.Generator
) -> None:
    primitive, params = case
    for dtype in (np.float64, np.complex128):
        x = matrices(rng, primitive, (3, 6, 6), dtype)
        equation = equation_of(primitive, [x], params)
        assert_close(equation, [x], computed(equation, [x]), expected(equation, [x]), phases=False)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_vectors_belong_together(dtype: Any, rng: np.random.Generator) -> None:
    x = numbers(rng, (3, 6, 4), dtype)
    s, u, v = check(svd, [x], SVD)
    square = numbers(rng, (3, 5, 5), dtype)
    form, basis = check(schur, [square], {"compute_schur_vectors": True})
    w, left, right = check(eig, [square], BOTH)
    tolerance = 200 * float(np.finfo(dtype).eps)
    adjoint = np.conj(np.swapaxes(basis, -1, -2))
    np.testing.assert_allclose((u * s[:, None]) @ v, x, atol=tolerance)
    np.testing.assert_allclose(basis @ form @ adjoint, square, atol=tolerance)
    np.testing.assert_allclose(square @ right, right * w[:, None], atol=tolerance)
    rows = np.conj(np.swapaxes(left, -1, -2))
    np.testing.assert_allclose(rows @ square, w[..., None] * rows, atol=tolerance)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_subsets(dtype: Any, rng: np.random.Generator) -> None:
    for bounds in ((0, 2), (1, 4), (4, 5), (0, 5)):
        check(eigh, [matrices(rng, eigh, (2, 5, 5), dtype)], {**EIGH, "subset_by_index": bounds})
        for shape in ((2, 5, 6), (7, 5)):
            for vectors in (True, False):
                x = matrices(rng, svd, shape, dtype)
                check(svd, [x], {**SVD, "compute_uv": vectors, "subset_by_index": bounds})


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_eigenvectors_in_steps(dtype: Any, rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch) -> None:
    """Parts of one row, sizes that are no multiples of anything, and subsets; the same for any number of threads, and
    for one matrix as for several."""
    monkeypatch.setattr(hermitian, "LEAST_STEPS", hermitian.PARTS)
    for size in (8, 9, 13, 15, 31, 33, 34, 97, 150):
        x = matrices(rng, eigh, (2, size, size), dtype)
        assert "steps" in plan(equation_of(eigh, [x], EIGH)).routine
        both = check(eigh, [x], EIGH)
        for threads in (1, 2):
            one = check(eigh, [x[1]], EIGH, threads=threads)
            for a, b in zip(both, one, strict=True):
                np.testing.assert_array_equal(a[1], b)
        check(eigh, [x], {**EIGH, "subset_by_index": (1, size - 1)})


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_singular_vectors_in_steps(dtype: Any, rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same for any number of threads, and for one matrix as for several; subsets."""
    monkeypatch.setattr(singular, "LEAST_STEPS", 2)
    for size in (2, 3, 5, 31, 33, 34, 97):
        x = rng.standard_normal((2, size, size)).astype(dtype)
        assert "steps" in plan(equation_of(svd, [x], SVD)).routine
        both = check(svd, [x], SVD)
        for threads in (1, 2):
            one = check(svd, [x[1]], SVD, threads=threads)
            for a, b in zip(both, one, strict=True):
                np.testing.assert_array_equal(a[1], b)
        check(svd, [x], {**SVD, "subset_by_index": (1, size)})


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_singular_vectors_of_special_matrices_in_steps(dtype: Any, rng: np.random.Generator) -> None:
    size, limits = 150, np.finfo(dtype)
    random, unit = rng.standard_normal((size, size)).astype(dtype), np.eye(size, dtype=dtype)
    tiny, large = random * limits.tiny, random * (limits.max / 1e4)
    for x in (0 * unit, unit, np.ones((size, size), dtype), np.triu(random), random, unit * limits.tiny, tiny, large):
        assert "steps" in plan(equation_of(svd, [x], SVD)).routine
        values, left, right = (np.asarray(a, np.float64) for a in computed(equation_of(svd, [x], SVD), [x]))
        inverse = 1 / (float(np.abs(x).max()) or 1.0)
        tolerance = 30 * size * float(limits.eps)
        exact = x.astype(np.float64) * inverse
        np.testing.assert_allclose(left * (values * inverse) @ right, exact, atol=tolerance)
        for vectors in (left.T, right):
            np.testing.assert_allclose(vectors @ vectors.T, np.eye(size), atol=tolerance)
        np.testing.assert_allclose(values * inverse, np.linalg.svd(exact, compute_uv=False), atol=tolerance)
    random[3, 4] = np.inf
    assert all(np.isnan(a).all() for a in computed(equation_of(svd, [random], SVD), [random]))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_eigenvectors_of_special_matrices_in_steps(dtype: Any, rng: np.random.Generator) -> None:
    size, limits = 150, np.finfo(dtype)
    random = matrices(rng, eigh, (size, size), dtype)
    unit = np.eye(size, dtype=dtype)
    blocks = np.kron(np.eye(size // 2), [[2, 1], [1, 2]]).astype(dtype)
    ones = np.ones((size, size), dtype)
    tiny, large = random * limits.tiny, random * (limits.max / 1e4)
    for x in (0 * unit, unit, blocks, ones, random, unit * limits.tiny, tiny, large):
        assert "steps" in (call := plan(equation_of(eigh, [x], EIGH))).routine and not call.tiles
        vectors, values = computed(equation_of(eigh, [x], EIGH), [x])
        inverse = 1 / (float(np.abs(x).max()) or 1.0)
        exact, unscaled = x.astype(np.complex128) * inverse, values.astype(np.float64) * inverse
        tolerance = 30 * size * float(limits.eps)
        np.testing.assert_allclose(exact @ vectors, vectors * unscaled, atol=tolerance)
        np.testing.assert_allclose(np.conj(vectors.T) @ vectors, np.eye(size), atol=tolerance)
        assert (np.diff(values) >= 0).all()
        np.testing.assert_allclose(unscaled, np.linalg.eigvalsh(exact), atol=tolerance)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_only_one_triangle_is_read(dtype: Any, rng: np.random.Generator) -> None:
    x = matrices(rng, cholesky, (4, 4), dtype)
    other = numbers(rng, (4, 4), dtype)
    for primitive, params, keep in (
        (cholesky, {}, np.tril),
        (eigh, EIGH, np.tril),
        (eigh, {**EIGH, "lower": False}, np.triu),
        (triangular_solve, triangular_params("lower"), np.tril),
    ):
        more = [numbers(rng, (4, 2), dtype)] if primitive is triangular_solve else []
        inside = keep(np.ones((4, 4), bool))
        both = [check(primitive, [np.where(inside, x, off), *more], params) for off in (np.zeros_like(x), other)]
        for a, b in zip(*both, strict=True):
            np.testing.assert_array_equal(a, b)


# ------------------------------------------------------------------------------------------------------------- failure


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("case", [*SQUARE, *ANY], ids=case_name)
def test_nan_stays_in_its_matrix(case: tuple[Any, dict[str, Any]], dtype: Any, rng: np.random.Generator) -> None:
    primitive, params = case
    for index in ((1, 0, 0), (1, 2, 1)):
        x = matrices(rng, primitive, (3, 4, 4), dtype)
        clean = check(primitive, [x], params)
        x[index] = np.nan
        hurt = check(primitive, [x], params)
        for a, b in zip(clean, hurt, strict=True):
            np.testing.assert_array_equal(a[[0, 2]], b[[0, 2]])
            assert primitive in (lu, qr, geqrf, hessenberg, tridiagonal, cholesky) or np.isnan(b[1]).all()


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_infinity_comes_back(dtype: Any, rng: np.random.Generator) -> None:
    for primitive, params in ((svd, SVD), (eigh, EIGH), (eig, BOTH), (schur, {"compute_schur_vectors": True})):
        x = matrices(rng, primitive, (2, 4, 4), dtype)
        x[1, 1, 1] = np.inf
        for result in check(primitive, [x], params):
            assert np.isnan(result[1]).all() and np.isfinite(result[0]).all()


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_failures(dtype: Any, rng: np.random.Generator) -> None:
    good = matrices(rng, cholesky, (4, 4), dtype)
    (factor,) = check(cholesky, [np.stack([good, -good, good])], {})
    assert np.isnan(factor[1]).any() and np.isfinite(factor[[0, 2]]).all()
    assert (factor[1][np.triu_indices(4, 1)] == 0).all()
    check(lu, [np.zeros((2, 3, 3), dtype)], {})  # singular, which is no failure
    singular = [np.zeros((2, 3), dtype), np.array([[1, 1, 0], [1, 1, 1]], dtype), np.zeros((2, 3), dtype)]
    (x,) = check(tridiagonal_solve, [*singular, numbers(rng, (2, 3, 2), dtype)], {})
    assert np.isnan(x[0]).all() and np.isfinite(x[1]).all()
    (x,) = check(triangular_solve, [np.zeros((2, 2), dtype), np.ones((2, 1), dtype)], triangular_params("lower"))
    assert not np.isfinite(x).any()


# ------------------------------------------------------------------------------------------------------------- systems


def triangular_params(*flags: str) -> dict[str, Any]:
    """Parameters of triangular_solve; those not named are false, but it is the left side."""
    names = ("lower", "transpose_a", "conjugate_a", "unit_diagonal")
    return {"left_side": "right" not in flags, **{name: name in flags for name in names}}


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("side", ["left", "right"])
def test_triangular(side: str, dtype: Any, rng: np.random.Generator) -> None:
    for i in range(16):
        names = ("lower", "transpose_a", "conjugate_a", "unit_diagonal")
        flags = [name for bit, name in enumerate(names) if i >> bit & 1]
        for lead, size, others in (((), 3, 2), ((2,), 5, 1), ((9,), 4, 6)):
            a = matrices(rng, triangular_solve, (*lead, size, size), dtype)
            b = numbers(rng, (*lead, *((size, others) if side == "left" else (others, size))), dtype)
            check(triangular_solve, [a, b], triangular_params(side, *flags))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("transposed", [False, True])
def test_factored(transposed: bool, dtype: Any, rng: np.random.Generator) -> None:
    for lead, size, others in (((), 1, 1), ((), 6, 3), ((2, 3), 4, 1), ((9,), 3, 5)):
        a, b = numbers(rng, (*lead, size, size), dtype), numbers(rng, (*lead, size, others), dtype)
        factors, _, permutation = lu.eval(a)
        (x,) = check(linear_solve, [a, factors, permutation, b], {"transposed": transposed})
        matrix = np.swapaxes(a, -1, -2) if transposed else a
        np.testing.assert_allclose(matrix @ x, b, atol=5000 * float(np.finfo(dtype).eps))


def test_invalid_permutations_stay_in_bounds(rng: np.random.Generator) -> None:
    a, b = matrices(rng, lu, (3, 3), np.float64), numbers(rng, (3, 2), np.float64)
    factors, _, _ = lu.eval(a)
    for transposed in (False, True):
        operands = [a, factors, np.array([1 << 30, -(1 << 30), 0], np.int32), b]
        computed(equation_of(linear_solve, operands, {"transposed": transposed}), operands)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_tridiagonal(dtype: Any, rng: np.random.Generator) -> None:
    for lead, size, columns in (((), 1, 3), ((2,), 1, 1), ((), 2, 1), ((), 7, 3), ((2, 3), 5, 2)):
        diagonals = [numbers(rng, (*lead, size), dtype) for _ in range(3)]
        diagonals[1] += 4
        check(tridiagonal_solve, [*diagonals, numbers(rng, (*lead, size, columns), dtype)], {})
    zero = [np.zeros((2, 1), dtype) for _ in range(3)]
    check(tridiagonal_solve, [*zero, np.array([[[1.0]], [[0.0]]], dtype)], {})


def test_pivots() -> None:
    for pivots, size in (([2, 1, 2], 4), ([], 3), ([[3, 3], [0, 1]], 4), ([-1, -2], 3)):
        check(lu_pivots_to_permutation, [np.array(pivots, np.int32)], {"permutation_size": size})
    # Exchanges with rows that do not exist do nothing; eval has no meaning for them.
    operands = [np.array([5, 2, -9], np.int32)]
    (order,) = computed(equation_of(lu_pivots_to_permutation, operands, {"permutation_size": 3}), operands)
    np.testing.assert_array_equal(order, [0, 2, 1])


# ----------------------------------------------------------------------------------------------------- empty, in place


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_empty(dtype: Any) -> None:
    for primitive, params in (*SQUARE, *ANY):
        sizes = [(0, 3, 3)] if primitive in (hessenberg, tridiagonal) else [(0, 0), (0, 3, 3), (2, 0, 0)]
        if (primitive, params) in ANY:
            sizes += [(0, 3), (3, 0), (2, 0, 3), (2, 3, 0)]
        for shape in sizes:
            check(primitive, [np.zeros(shape, dtype)], params)
    for a, b in (((0, 0), (0, 2)), ((2, 2), (2, 0)), ((0, 2, 2), (0, 2, 1))):
        check(triangular_solve, [np.ones(a, dtype), np.ones(b, dtype)], triangular_params("lower"))
    for shape in ((0, 2), (3, 0), (0, 3, 2)):
        diagonals = [np.ones(shape[:-1], dtype)] * 3
        check(tridiagonal_solve, [*diagonals, np.ones(shape, dtype)], {})


def written_over(equation: Equation, operands: Sequence[np.ndarray], pair: tuple[int, int]) -> list[np.ndarray]:
    """Results where one has the memory of an operand."""
    operand, result = pair
    args = [x.copy() for x in operands]
    results: list[Any] = [guarded(v.aval.shape, v.aval.dtype) for v in equation.outvars]  # type: ignore[attr-defined]
    results[result] = args[operand].view(results[result].dtype).reshape(results[result].shape)
    execute(plan(equation), args, results)
    return results


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_in_place(dtype: Any, rng: np.random.Generator) -> None:
    count = 0
    cases = [(primitive, params, [matrices(rng, primitive, (3, 5, 5), dtype)]) for primitive, params in (*SQUARE, *ANY)]
    for side in ("left", "right"):
        params = triangular_params(side, "lower", "conjugate_a")
        operands = [matrices(rng, lu, (2, 4, 4), dtype), numbers(rng, (2, 4, 4), dtype)]
        cases.append((triangular_solve, params, operands))
    diagonals = [numbers(rng, (2, 4), dtype) for _ in range(3)]
    cases.append((tridiagonal_solve, {}, [*diagonals, numbers(rng, (2, 4, 3), dtype)]))
    solved = matrices(rng, lu, (2, 5, 5), dtype)[:, ::-1].copy()  # rows change places
    factors, _, permutation = lu.eval(solved)
    for transposed in (False, True):
        operands = [solved, factors, permutation, numbers(rng, (2, 5, 5), dtype)]
        cases.append((linear_solve, {"transposed": transposed}, operands))
    for primitive, params, operands in cases:
        equation = equation_of(primitive, operands, params)
        apart = computed(equation, operands)
        for pair in plan(equation).in_place:
            for a, b in zip(written_over(equation, operands, pair), apart, strict=True):
                np.testing.assert_array_equal(a, b)
            count += 1
    assert count >= len(cases)


# --------------------------------------------------------------------------------------------------------------- tiles


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("case", [*SQUARE, *ANY], ids=case_name)
def test_tiles_of_a_batch(
    case: tuple[Any, dict[str, Any]], dtype: Any, rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    primitive, params = case
    x = matrices(rng, primitive, (5, 6, 6), dtype)
    equation = equation_of(primitive, [x], params)
    assert not plan(equation).tiles
    whole = computed(equation, [x])
    monkeypatch.setattr(batches, "LEAST_WORK", 1)
    monkeypatch.setattr(batches, "MOST_TILES", 3)
    assert plan(equation).tiles == 3
    for options in ({}, {"order": [1, 0, 2]}, {"threads": 2}):
        for a, b in zip(computed(equation, [x], **options), whole, strict=True):
            np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_right_hand_sides_in_parts(dtype: Any, rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("weft.compiler.target.cpu.library.solves.WIDTH", 3)
    monkeypatch.setattr(batches, "LEAST_WORK", 1)
    for side, shape in (("left", (2, 4, 8)), ("right", (2, 8, 4))):
        for conjugated in ([], ["conjugate_a"]):
            a, b = matrices(rng, lu, (2, 4, 4), dtype), numbers(rng, shape, dtype)
            params = triangular_params(side, "lower", *conjugated)
            assert plan(equation_of(triangular_solve, [a, b], params)).tiles == 6
            check(triangular_solve, [a, b], params, threads=2)
    a, b = numbers(rng, (2, 4, 4), dtype), numbers(rng, (2, 4, 8), dtype)
    factors, _, permutation = lu.eval(a)
    for transposed in (False, True):
        check(linear_solve, [a, factors, permutation, b], {"transposed": transposed}, threads=2)


def test_tiles_and_scratch_are_bounded() -> None:
    x = np.broadcast_to(np.eye(64, dtype=np.float32), (1000, 64, 64))
    call = plan(equation_of(svd, [x], SVD))
    assert 1 < call.tiles <= batches.MOST_TILES
    assert sum(call.scratch) <= batches.MOST_SCRATCH
    large = np.broadcast_to(np.eye(3000, dtype=np.float64), (4, 3000, 3000))
    assert plan(equation_of(eigh, [large], EIGH)).tiles == 0  # each tile would need too much memory


# ------------------------------------------------------------------------------------------------------------ products

# Shapes, what is summed over, and what is a batch. The last column: which operands have to be transposed first.
LAYOUTS: dict[str, tuple[tuple[int, ...], tuple[int, ...], Any, tuple[bool, bool]]] = {
    "plain": ((6, 5), (5, 7), (((1,), (0,)), ((), ())), (False, False)),
    "left turned": ((5, 6), (5, 7), (((0,), (0,)), ((), ())), (False, False)),
    "right turned": ((6, 5), (7, 5), (((1,), (1,)), ((), ())), (False, False)),
    "both turned": ((5, 6), (7, 5), (((0,), (1,)), ((), ())), (False, False)),
    "batch": ((3, 6, 5), (3, 5, 7), (((2,), (1,)), ((0,), (0,))), (False, False)),
    "batch in the middle": ((6, 3, 5), (5, 3, 7), (((2,), (0,)), ((1,), (1,))), (False, False)),
    "attention": ((2, 6, 3, 5), (2, 7, 3, 5), (((3,), (3,)), ((0, 2), (0, 2))), (False, False)),
    "attention values": ((2, 3, 6, 7), (2, 7, 3, 5), (((3,), (1,)), ((0, 1), (0, 2))), (False, False)),
    "batch swapped": ((2, 3, 6, 5), (3, 2, 5, 7), (((3,), (2,)), ((0, 1), (1, 0))), (False, False)),
    "batch last": ((6, 5, 3), (5, 7, 3), (((1,), (0,)), ((2,), (2,))), (True, True)),
    "two sums": ((6, 2, 5), (2, 5, 7), (((1, 2), (0, 1)), ((), ())), (False, False)),
    "two sums, out of order": ((6, 2, 5), (2, 5, 7), (((2, 1), (1, 0)), ((), ())), (False, False)),
    "two sums, crossed": ((6, 2, 5), (5, 2, 7), (((1, 2), (1, 0)), ((), ())), (True, False)),
    "two rows": ((2, 3, 5), (5, 7), (((2,), (0,)), ((), ())), (False, False)),
    "rows around the sum": ((2, 5, 3), (5, 7), (((1,), (0,)), ((), ())), (True, False)),
    "columns around the sum": ((6, 5), (2, 5, 3), (((1,), (1,)), ((), ())), (False, True)),
    "sizes of one": ((1, 6, 1, 5), (5, 1, 7), (((3,), (0,)), ((), ())), (False, False)),
    "matrix, vector": ((6, 5), (5,), (((1,), (0,)), ((), ())), (False, False)),
    "turned matrix, vector": ((5, 6), (5,), (((0,), (0,)), ((), ())), (False, False)),
    "vector, matrix": ((5,), (5, 7), (((0,), (0,)), ((), ())), (False, False)),
    "vector, turned matrix": ((5,), (7, 5), (((0,), (1,)), ((), ())), (False, False)),
    "vectors": ((5,), (5,), (((0,), (0,)), ((), ())), (False, False)),
    "batch of vectors": ((3, 6, 5), (3, 5), (((2,), (1,)), ((0,), (0,))), (False, False)),
    "outer": ((6,), (7,), (((), ()), ((), ())), (False, False)),
    "elementwise": ((3, 4), (3, 4), (((), ()), ((0, 1), (0, 1))), (False, False)),
    "scalars": ((), (), (((), ()), ((), ())), (False, False)),
}


def small_integers(rng: np.random.Generator, shape: Sequence[int], dtype: Any) -> np.ndarray:
    """Values whose sums of products are exact, so that every order of summation returns the same bits."""
    result = rng.integers(-4, 5, tuple(shape)).astype(np.float64)
    if np.dtype(dtype).kind == "c":
        result = result + 1j * rng.integers(-4, 5, tuple(shape))
    return result.astype(dtype)


def product_params(dimension_numbers: Any) -> dict[str, Any]:
    return {"dimension_numbers": dimension_numbers, "precision": None, "preferred_element_type": None}


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_layouts(layout: str, dtype: Any, rng: np.random.Generator) -> None:
    left, right, dimension_numbers, permuted = LAYOUTS[layout]
    operands = [small_integers(rng, shape, dtype) for shape in (left, right)]
    equation = equation_of(dot_general, operands, product_params(dimension_numbers))
    np.testing.assert_array_equal(computed(equation, operands)[0], expected(equation, operands)[0])
    permutations = plan(equation).permutations or (None, None)
    assert tuple(p is not None for p in permutations) == permuted


@pytest.mark.parametrize("layout", LAYOUTS)
def test_tiles_of_matmuls(layout: str, rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch) -> None:
    left, right, dimension_numbers, _ = LAYOUTS[layout]
    operands = [small_integers(rng, [12 * s if s > 3 else s for s in shape], np.float32) for shape in (left, right)]
    equation = equation_of(dot_general, operands, product_params(dimension_numbers))
    monkeypatch.setattr(matmuls, "TILE_SIDE", 32)
    monkeypatch.setattr(matmuls, "TILE_ELEMENTS", 1000)
    monkeypatch.setattr(matmuls, "TILE_OUTPUTS", 16)
    wanted = expected(equation, operands)[0]
    for options in ({}, {"threads": 2}):
        np.testing.assert_array_equal(computed(equation, operands, **options)[0], wanted)
    many = [d for d in (*left, *right) if d > 3]
    assert plan(equation).tiles > 1 or len(many) < 3


def test_loops_around_large_matmuls_need_no_transpose(rng: np.random.Generator) -> None:
    operands = [small_integers(rng, shape, np.float32) for shape in ((2, 130, 140), (130, 150))]
    equation = equation_of(dot_general, operands, product_params((((1,), (0,)), ((), ()))))
    assert plan(equation).permutations == ()
    np.testing.assert_array_equal(computed(equation, operands)[0], expected(equation, operands)[0])


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_matmuls_are_accurate(dtype: Any, rng: np.random.Generator) -> None:
    operands = [numbers(rng, (300, 200), dtype), numbers(rng, (200, 520), dtype)]
    check(dot_general, operands, product_params((((1,), (0,)), ((), ()))), threads=2)


def test_nan_and_infinity_in_matmuls(rng: np.random.Generator) -> None:
    for shapes in (((4, 3), (3, 5)), ((4, 3), (3,)), ((3,), (3, 5))):
        left, right = (small_integers(rng, shape, np.float32) for shape in shapes)
        right[0] = 0
        left[..., 0].flat[:2] = [np.nan, np.inf][: left[..., 0].size]
        numbers_of = (((left.ndim - 1,), (0,)), ((), ()))
        equation = equation_of(dot_general, [left, right], product_params(numbers_of))
        np.testing.assert_array_equal(computed(equation, [left, right])[0], expected(equation, [left, right])[0])


def test_a_sum_of_nothing_is_zero() -> None:
    for left, right in (((3, 0), (0, 4)), ((0, 2), (2, 4)), ((0,), (0,))):
        numbers_of = (((len(left) - 1,), (0,)), ((), ()))
        check(dot_general, [np.ones(left, np.float32), np.ones(right, np.float32)], product_params(numbers_of))


def test_sizes_of_tiles() -> None:
    shapes = ((1, 1, 1), (384, 384, 384), (1000, 1000, 1000), (300, 260, 1 << 20), (1024, 4096, 64), (5, 100_000, 8))
    counts = []
    for rows, columns, summed in shapes:
        down, across = matmuls.choose_tile(rows, columns, summed)
        counts.append(-(-rows // down) * -(-columns // across))
        for size, tile in ((rows, down), (columns, across)):
            assert 0 < tile <= min(size, matmuls.TILE_SIDE)
            assert tile == size or tile >= matmuls.LEAST_SIDE
            # The last one is not much smaller than the others.
            assert tile * (-(-size // tile)) - size < 32 * (-(-size // tile))
    assert counts == [1, 2, 4, 4, 16, 196]


# ---------------------------------------------------------------------------------------------------------------- host


def test_transforms(rng: np.random.Generator) -> None:
    for dtype in (np.complex64, np.complex128):
        real = np.float32 if dtype == np.complex64 else np.float64
        for kind in FftType:
            signal = real if kind is FftType.RFFT else dtype
            for shape, lengths in (((2, 3, 8), (8,)), ((3, 8), (3, 8)), ((0, 4), (4,))):
                size = (lengths[-1] - 1) * 2 if kind is FftType.IRFFT else lengths[-1]
                params = {"fft_type": kind, "fft_lengths": (*lengths[:-1], size)}
                check(fft, [numbers(rng, shape, signal)], params)


class ContiguousFirst(PublicTransforms):
    """As SciPy from 1.18 on: into another array the contiguous axis is the first, in place the order is as asked."""

    def c2c(self, x: Any, axes: Any, forward: bool, scale: int, out: np.ndarray, threads: int) -> None:
        if not np.shares_memory(x, out):
            found = [i for i, axis in enumerate(axes) if i and x.strides[axis] == x.itemsize]
            if found:
                axes = list(axes)
                axes[0], axes[found[0]] = axes[found[0]], axes[0]
        super().c2c(x, axes, forward, scale, out, threads)


@pytest.mark.parametrize("module", [transforms(), ContiguousFirst()], ids=["scipy", "contiguous first"])
def test_transforms_in_place_have_the_same_bits(
    module: Any, monkeypatch: pytest.MonkeyPatch, rng: np.random.Generator
) -> None:
    monkeypatch.setattr(host_calls, "transforms", lambda: module)
    for kind in (FftType.FFT, FftType.IFFT):
        for shape in ((7, 9, 5), (7, 9, 1), (7, 1, 9), (1, 1, 1)):
            x = numbers(rng, shape, np.complex64)
            found = plan(equation_of(fft, [x], {"fft_type": kind, "fft_lengths": shape[1:]}))
            apart, inside = np.empty_like(x), x.copy()
            assert found.host is not None and found.in_place
            found.host(x, out=[apart])
            found.host(inside, out=[inside])
            assert apart.tobytes() == inside.tobytes(), (kind, shape)


def test_eigenvalues_chosen_by_a_function(rng: np.random.Generator) -> None:
    params = {"compute_schur_vectors": True, "sort_eig_vals": True, "select_callable": lambda re, im: re < 0}
    x = [numbers(rng, (2, 4, 4), np.float64)]
    assert plan(equation_of(schur, x, params)).routine == "host"
    check(schur, x, params)


def test_operations_without_a_routine() -> None:
    class halved(Primitive):
        name = "halved"

        def type(self, x: ArrayType) -> ArrayType:
            return x

        def eval(self, x: Any) -> Any:
            return x / 2

    check(halved(), [np.arange(6.0, dtype=np.float32).reshape(2, 3)], {})


def test_sizes_that_lapack_cannot_count(monkeypatch: pytest.MonkeyPatch, rng: np.random.Generator) -> None:
    monkeypatch.setattr(batches, "MOST", 3)
    monkeypatch.setattr(matmuls, "MOST", 3)
    x = numbers(rng, (4, 4), np.float32)
    for primitive, params, operands in (
        (svd, SVD, [x]),
        (dot_general, product_params((((1,), (0,)), ((), ()))), [x, x]),
    ):
        assert plan(equation_of(primitive, operands, params)).routine == "host"
        check(primitive, operands, params)


def test_forward_mode_of_a_custom_vjp_is_the_users_error() -> None:
    @weft.custom_vjp
    def function(x: Any) -> Any:
        return wnp.sin(x)

    function.defvjp(lambda x: (function(x), x), lambda x, ct: (ct * x,))
    jaxpr = weft.make_jaxpr(lambda x: weft.jvp(function, (x,), (x,)))(np.float32(1))
    (equation,) = (e for e in jaxpr.eqns if e.primitive.name == "custom_lin")
    with pytest.raises(CustomRuleError, match=r"test_library\.py"):
        plan(equation)


def test_unsupported_operations() -> None:
    jaxpr = weft.make_jaxpr(lambda x: weft.lax.cond(x > 0, lambda: x, lambda: -x))(np.float32(1))
    (branch,) = (e for e in jaxpr.eqns if e.primitive.higher_order)
    with pytest.raises(InternalError, match="cannot call the sub-jaxprs"):
        plan(branch)
    tape = Equation([], [weft.ir.jaxpr.Var(tape_new.type(element=jaxpr.invars[0].aval))], tape_new, {})
    with pytest.raises(InternalError, match="arrays of numbers"):
        plan(tape)
    small = np.ones((2, 2), np.int32)
    with pytest.raises(InternalError, match="BLAS has no matmul"):
        plan(equation_of(dot_general, [small, small], product_params((((1,), (0,)), ((), ())))))


# -------------------------------------------------------------------------------------------------- guard and capsules


def threads_of_the_library() -> Any:
    control = capsules.thread_control()
    assert control is not None, "SciPy's library has no number of threads that could be set"
    import ctypes

    return ctypes.CFUNCTYPE(ctypes.c_int)(control[0]), ctypes.CFUNCTYPE(None, ctypes.c_int)(control[1])


def test_the_library_has_one_thread_while_we_are_in_it() -> None:
    get, set = threads_of_the_library()
    enter, leave = (guard.guard().function(name) for name in (guard.ENTER, guard.LEAVE))
    before = get()
    try:
        for num_threads in (3, 1):
            set(num_threads)
            enter()
            enter()
            assert get() == 1
            leave()
            assert get() == 1
            leave()
            assert get() == num_threads
    finally:
        set(before)


def test_threads_come_and_go() -> None:
    get, set = threads_of_the_library()
    enter, leave = (guard.guard().function(name) for name in (guard.ENTER, guard.LEAVE))
    before = get()
    seen: list[int] = []

    def visit() -> None:
        for _ in range(2000):
            enter()
            seen.append(get())
            leave()

    try:
        set(3)
        visitors = [threading.Thread(target=visit) for _ in range(3)]
        for visitor in visitors:
            visitor.start()
        for visitor in visitors:
            visitor.join()
        assert get() == 3
    finally:
        set(before)
    assert seen == [1] * 6000


def test_results_do_not_depend_on_the_threads_of_the_library(rng: np.random.Generator) -> None:
    get, set = threads_of_the_library()
    before = get()
    cases: list[tuple[Any, dict[str, Any], list[np.ndarray]]] = [
        (dot_general, product_params((((1,), (0,)), ((), ()))), [numbers(rng, (400, 400), np.float32)] * 2),
        (lu, {}, [numbers(rng, (300, 300), np.float64)]),
    ]
    try:
        for primitive, params, operands in cases:
            equation = equation_of(primitive, operands, params)
            result = []
            for num_threads in (1, 4):
                set(num_threads)
                result.append(computed(equation, operands, threads=2))
                assert get() == num_threads
            for a, b in zip(*result, strict=True):
                np.testing.assert_array_equal(a, b)
    finally:
        set(before)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork on this system")
def test_a_child_of_a_process_inside_is_outside() -> None:
    get, set = threads_of_the_library()
    enter, leave = (guard.guard().function(name) for name in (guard.ENTER, guard.LEAVE))
    before = get()
    set(3)
    enter()
    child = os.fork()
    if not child:
        os._exit(0 if get() == 3 else 1)
    leave()
    set(before)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_importing_loads_nothing_and_capsules_load_little() -> None:
    code = """
import sys
import weft.compiler.target.cpu.library
assert not {"scipy", "scipy.linalg", "llvmlite"} & set(sys.modules)
from weft.compiler.target.cpu.library import capsules
assert capsules.address("weft_blas_sgemm") and capsules.address("weft_lapack_zgetrf")
assert "scipy.linalg" not in sys.modules and "scipy.linalg.cython_blas" not in sys.modules
ours = capsules._module("cython_blas")
import scipy.linalg.cython_blas
assert scipy.linalg.cython_blas.__pyx_capi__ is ours.__pyx_capi__
import numpy
assert numpy.allclose(scipy.linalg.expm(numpy.zeros((2, 2))), numpy.eye(2))
"""
    subprocess.run([sys.executable, "-c", code], check=True)


def test_capsules_that_do_not_exist() -> None:
    with pytest.raises(InternalError):
        capsules.address("sgemm")
    with pytest.raises(InternalError, match="no routine"):
        text("weft_nothing_s")
    with pytest.raises(InternalError, match="Unknown library routine"):
        text("weft_eigh_steps_s.nothing")


def test_work_space_is_not_rounded_down() -> None:
    exact = (1 << 25) + 1  # not a float32
    assert capsules.best_work(np.array([exact], np.float32)) >= exact
    assert capsules.best_work(np.array([exact], np.float64)) >= exact
    assert capsules.best_work(np.array([0], np.int32)) == 1


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_the_largest_magnitude(dtype: Any, rng: np.random.Generator) -> None:
    bits = np.dtype(dtype).itemsize * 8
    result = ctypes.c_float if bits == 32 else ctypes.c_double
    largest = ctypes.CFUNCTYPE(result, ctypes.c_void_p, ctypes.c_int64)(routines.address(shared.largest_name(bits)))
    assert largest(None, 0) == 0
    for count in (1, 2, 31, 32, 33, 64, 95):
        x = rng.standard_normal(count).astype(dtype)
        assert largest(x.ctypes.data, count) == np.abs(x).max()
        for special in (-np.inf, np.nan):
            for position in {0, count // 2, count - 1}:
                y = x.copy()
                y[position] = special
                np.testing.assert_equal(largest(y.ctypes.data, count), abs(special))


STEPS = {
    "eigh_steps": ("begin", "prepare", "roots", "weights", "merged", "transform"),
    "svd_steps": ("solve", "transform"),
}


@pytest.mark.parametrize("machine", [host, aarch64], ids=["host", "aarch64"])
def test_the_code_of_all_routines_is_accepted(machine: Any) -> None:
    names = [f"weft_{name}_{letter}" for name in FAMILIES for letter in ELEMENT_TYPES]
    names += [f"weft_{name}_{letter}.{s}" for name, steps in STEPS.items() for letter in ELEMENT_TYPES for s in steps]
    names += [f"weft_{name}_{letter}_tiles" for name in MATMULS for letter in ELEMENT_TYPES]
    names += [shared.transpose_name(size) for size in shared.ELEMENTS]
    names += [shared.largest_name(bits) for bits in (32, 64)]
    for name in names:
        link.check(text(name, machine()), machine())
    link.check(guard.guard_text(True))
    link.check(guard.guard_text(False))


# ----------------------------------------------------------------------------------------------------------- transforms


def test_transforms_are_loaded_without_the_package_around_them() -> None:
    code = (
        "import sys, numpy as np, weft, weft.numpy as wnp; x = np.ones((4, 6), np.float32);"
        "y = weft.jit(lambda x: wnp.fft.irfft2(wnp.fft.rfft2(x)))(x); assert 'scipy.fft' not in sys.modules;"
        "import scipy.fft; assert np.allclose(y, scipy.fft.irfft2(scipy.fft.rfft2(x)));"
        "assert np.allclose(weft.jit(wnp.fft.fft2)(x), scipy.fft.fft2(x))"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_the_public_transforms_are_the_same(rng: np.random.Generator) -> None:
    for dtype in (np.float32, np.float64):
        x = rng.normal(size=(3, 4, 6)).astype(dtype)
        waves = (x + 1j * x[::-1]).astype(np.complex64 if dtype == np.float32 else np.complex128)
        results = []
        for found in (transforms(), PublicTransforms()):
            result = [np.empty_like(waves), np.empty_like(waves), np.empty((3, 4, 4), waves.dtype), np.empty_like(x)]
            found.c2c(waves, (-2, -1), True, 0, result[0], 1)
            found.c2c(waves, (-1,), False, 2, result[1], 1)
            found.r2c(x, (-2, -1), True, 0, result[2], 2)
            found.c2r(result[2], (-2, -1), 6, False, 2, result[3], 2)
            results.append(result)
        for one, other in zip(*results, strict=True):
            np.testing.assert_array_equal(one, other)
