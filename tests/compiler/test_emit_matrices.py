"""Batches of small matrices, factored and solved in lanes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import weft
import weft.numpy as wnp
from tests.compiler.emitting import check, close, fused_program
from weft import lax
from weft.primitives.linalg.cholesky import cholesky
from weft.primitives.linalg.lu import linear_solve, lu
from weft.primitives.linalg.triangular import triangular_solve


def normal(*shape: int, dtype: Any = np.float32) -> np.ndarray:
    return np.random.default_rng(0).normal(size=shape).astype(dtype)


def dominant(*shape: int, dtype: Any = np.float32) -> np.ndarray:
    """Matrices whose systems lose few digits."""
    return (normal(*shape, dtype=dtype) + 4 * np.eye(shape[-1], dtype=dtype)).astype(dtype)


@pytest.mark.parametrize(
    "shape", [(8, 1, 1), (37, 3, 3), (5, 7, 4, 4), (16, 2, 5), (9, 5, 2), (9, 16, 16), (1100, 2, 2)]
)
def test_lu_matches_eval_bit_for_bit(shape: tuple[int, ...]) -> None:
    assert check(lambda x: lu(x), normal(*shape)) == ["matrices"]


def test_lu_in_double() -> None:
    with weft.enable_x64(True):
        assert check(lambda x: lu(x), normal(19, 6, 6, dtype=np.float64)) == ["matrices"]


def test_lu_of_equal_singular_and_infinite_elements() -> None:
    x = np.random.default_rng(0).integers(-1, 2, (200, 4, 4)).astype(np.float32)
    x[3], x[4, 1, 0], x[5, 2, 2], x[6, 0, 0] = 0, np.nan, np.nan, np.inf
    check(lambda x: lu(x), x)


def test_lu_only_some_results() -> None:
    for i in range(3):
        assert check(lambda x, n=i: lu(x)[n], normal(20, 3, 3)) == ["matrices"]


@pytest.mark.parametrize("left", [True, False])
@pytest.mark.parametrize("lower", [True, False])
@pytest.mark.parametrize("transposed", [True, False])
@pytest.mark.parametrize("unit, others", [(True, 1), (False, 1), (False, 5)])
def test_triangular(left: bool, lower: bool, transposed: bool, unit: bool, others: int) -> None:
    a, b = dominant(21, 3, 3), normal(21, 3, others) if left else normal(21, others, 3)

    def solved(a: Any, b: Any) -> Any:
        return triangular_solve(
            a, b, left_side=left, lower=lower, transpose_a=transposed, conjugate_a=False, unit_diagonal=unit
        )

    assert check(solved, a, b, compare=close(1e-5)) == ["matrices"]


@pytest.mark.parametrize("transposed", [True, False])
@pytest.mark.parametrize("size, others", [(1, 1), (3, 1), (4, 3), (11, 2)])
def test_factored(transposed: bool, size: int, others: int) -> None:
    a, b = dominant(18, size, size), normal(18, size, others)
    factors, _, permutation = lu.eval(a)  # type: ignore[call-arg, arg-type]

    def solved(*operands: Any) -> Any:
        return linear_solve(*operands, transposed=transposed)

    assert check(solved, a, factors, permutation, b, compare=close(1e-5)) == ["matrices"]


def test_no_permutation_reads_beyond_the_matrix() -> None:
    a, b = dominant(8, 2, 2), normal(8, 2, 1)
    factors, _, order = lu.eval(a)  # type: ignore[call-arg, arg-type]
    for wrong in (order + 1000, order - 1000):
        for transposed in (True, False):
            got = weft.jit(lambda *x, t=transposed: linear_solve(*x, transposed=t))(a, factors, wrong, b)
            assert got.shape == b.shape


@pytest.mark.parametrize("shape", [(8, 1, 1), (33, 3, 3), (4, 5, 6, 6), (9, 16, 16)])
def test_cholesky(shape: tuple[int, ...]) -> None:
    x = dominant(*shape)
    x = x @ np.swapaxes(x, -1, -2)
    assert check(lambda x: cholesky(x), x, compare=close(1e-5)) == ["matrices"]


def test_cholesky_fails_lane_by_lane() -> None:
    x = np.tile(np.array([[2, 1], [1, 2]], np.float32), (20, 1, 1))
    x[3, 0, 0], x[5, 1, 1], x[7] = -1, 0.25, np.nan
    x[:, 0, 1] = 77  # is not read
    check(lambda x: cholesky(x), x, compare=close(1e-6))


def test_few_large_and_complex_matrices_use_lapack() -> None:
    for x in (normal(7, 3, 3), normal(9, 17, 17), normal(9, 3, 3).astype(np.complex64)):
        assert [e.primitive.name for e in fused_program(lambda x: lu(x), x).eqns] == ["lu"]


def test_operands_that_are_one_array_are_not_overwritten() -> None:
    def twice(a: Any) -> Any:
        a = a + 1
        return triangular_solve(
            a, a, left_side=True, lower=True, transpose_a=False, conjugate_a=False, unit_diagonal=False
        )

    a = dominant(24, 3, 3)
    lower = np.tril(a + 1).astype(np.float64)
    np.testing.assert_allclose(weft.jit(twice)(a), np.linalg.solve(lower, a + 1.0), rtol=1e-4, atol=1e-5)


def test_gradients_go_through_lanes() -> None:
    a, b = dominant(40, 3, 3), normal(40, 3, 1)

    def loss(a: Any, b: Any) -> Any:
        return (wnp.linalg.solve(a, b) ** 2).sum()

    def determinant(a: Any) -> Any:
        return wnp.linalg.slogdet(a)[1].sum()

    for function, args in ((loss, (a, b)), (determinant, (a,))):
        gradient = weft.grad(function, argnums=tuple(range(len(args))))
        jaxpr = str(weft.make_jaxpr(gradient)(*args))
        assert "lu" in jaxpr
        with weft.disable_jit():
            wanted = gradient(*args)
        for got, want in zip(weft.jit(gradient)(*args), wanted, strict=True):
            close(1e-4)(np.asarray(got), np.asarray(want))


def test_a_mapped_solve_is_a_batch() -> None:
    a, b = dominant(30, 3, 3), normal(30, 3)
    kinds = check(weft.vmap(wnp.linalg.solve), a, b, compare=close(1e-5))
    assert kinds.count("matrices") == 2
    whole = lax.linalg.lu(a)[0]
    np.testing.assert_array_equal(weft.jit(weft.vmap(lambda x: lax.linalg.lu(x)[0]))(a), whole)
