"""Sparse arrays are the dense arrays they stand for, under every operation, layout and transformation."""

from __future__ import annotations

import doctest
import importlib
import itertools
from typing import Any

import numpy as np
import pytest

import weft
import weft.numpy as wnp
from weft import lax
from weft.experimental import sparse
from weft.experimental.sparse import linalg
from weft.test_util import check_grads

SHAPE = (2, 3, 4)
LAYOUTS = [(b, d) for b in range(4) for d in range(4) if b + d <= 3]
each_layout = pytest.mark.parametrize("layout", LAYOUTS, ids=lambda p: f"batch{p[0]}-dense{p[1]}")


def draw(shape: Any = SHAPE, seed: int = 0, dtype: Any = np.float32) -> np.ndarray:
    """Draw numbers, about half of them zeros."""
    rng = np.random.default_rng(seed)
    return (rng.integers(1, 9, shape) * (rng.random(shape) < 0.5)).astype(dtype)


def with_padding(x: np.ndarray, n_batch: int = 0, n_dense: int = 0) -> sparse.BCOO:
    """Return a BCOO of a dense array with a duplicate index, and with padding whose values do not count."""
    mat = sparse.BCOO.fromdense(x, n_batch=n_batch, n_dense=n_dense)
    if not mat.n_sparse or not mat.nse:
        return mat
    data, indices = mat.full
    cut = (slice(None),) * n_batch
    first, limits = data[(*cut, slice(0, 1))], wnp.array(mat.sparse_shape, indices.dtype)
    data = wnp.concatenate([data.at[(*cut, 0)].multiply(0.5), first * 0.5, first * 0 + 7], axis=n_batch)
    index = indices[(*cut, slice(0, 1))]
    return sparse.BCOO((data, wnp.concatenate([indices, index, index * 0 + limits], axis=n_batch)), shape=x.shape)


def same(found: Any, expected: Any) -> None:
    found = sparse.todense(found)
    assert found.shape == np.shape(expected)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)


# ------------------------------------------------------------------------------------------------------------- formats


@each_layout
def test_there_and_back(layout: Any) -> None:
    n_batch, n_dense = layout
    x = draw()
    for mat in (sparse.BCOO.fromdense(x, n_batch=n_batch, n_dense=n_dense), with_padding(x, *layout)):
        assert (mat.n_batch, mat.n_dense, mat.n_sparse) == (n_batch, n_dense, 3 - n_batch - n_dense)
        same(mat, x)
        same(weft.jit(lambda m: m.todense())(mat), x)
        same(mat.sort_indices(), x)
        same(weft.jit(lambda m: m.sum_duplicates(nse=m.nse))(mat), x)
    fixed = weft.jit(lambda x: sparse.bcoo_fromdense(x, nse=24, n_batch=n_batch, n_dense=n_dense))(x)
    same(fixed, x)
    summed = with_padding(x, *layout).sum_duplicates()
    assert summed.nse <= sparse.BCOO.fromdense(x, n_batch=n_batch, n_dense=n_dense).nse or not summed.n_sparse


@pytest.mark.parametrize("kind", [sparse.BCSR, sparse.COO, sparse.CSR, sparse.CSC])
def test_other_formats(kind: Any) -> None:
    x = draw((4, 5))
    mat = kind.fromdense(x)
    assert repr(mat) == f"{kind.__name__}(float32[4, 5], nse={(x != 0).sum()})"
    same(mat, x)
    same(mat.T, x.T)
    same(mat @ wnp.arange(5.0), x @ np.arange(5.0))
    same(wnp.arange(4.0) @ mat, np.arange(4.0) @ x)
    same(mat * 2 + mat, x * 3)
    same(mat.sum(0), x.sum(0))
    same(weft.jit(lambda m: m @ wnp.ones((5, 2)))(mat), x @ np.ones((5, 2)))
    same(kind._eye(3, 5, 1), np.eye(3, 5, 1))
    same(kind._empty((3, 5)), np.zeros((3, 5)))
    gradient = sparse.grad(lambda m: (m @ wnp.arange(5.0)).sum())(mat)
    assert type(gradient) is kind
    same(gradient, np.where(x != 0, np.arange(5.0), 0))
    data = mat.data
    check_grads(
        lambda d: weft.tree.unflatten(weft.tree.structure(mat), [d, *weft.tree.leaves(mat)[1:]]) @ x.T, [data], 1
    )


def test_scipy_matrices_and_functions_of_matrices() -> None:
    from scipy.sparse import csr_matrix

    x = draw((4, 5))
    same(sparse.BCOO.from_scipy_sparse(csr_matrix(x)), x)
    same(sparse.BCSR.from_scipy_sparse(csr_matrix(x)), x)
    for kind in (sparse.BCOO, sparse.BCSR):
        with pytest.raises(ValueError, match=rf"(?s)neither batch nor dense.*fix +{kind.__name__}\.from_scipy_sparse"):
            kind.from_scipy_sparse(csr_matrix(x), n_batch=1)
        with pytest.raises(TypeError, match=rf"(?s)sparse matrix of SciPy.*fix +{kind.__name__}\.fromdense"):
            kind.from_scipy_sparse(x)
    coo, csr = sparse.coo_fromdense(x), sparse.csr_fromdense(x)
    for mat, vector, matrix, dense in (
        (coo, sparse.coo_matvec, sparse.coo_matmat, sparse.coo_todense),
        (csr, sparse.csr_matvec, sparse.csr_matmat, sparse.csr_todense),
    ):
        same(dense(mat), x)
        same(vector(mat, np.arange(5.0, dtype=np.float32)), x @ np.arange(5.0))
        same(vector(mat, np.arange(4.0, dtype=np.float32), transpose=True), x.T @ np.arange(4.0))
        same(matrix(mat, np.ones((5, 2), np.float32)), x @ np.ones((5, 2)))
        same(matrix(mat, np.ones((4, 2), np.float32), transpose=True), x.T @ np.ones((4, 2)))


@pytest.mark.parametrize("layout", [(0, 0), (1, 0), (0, 1), (1, 1)])
def test_compressed_rows_with_batches(layout: Any) -> None:
    n_batch, n_dense = layout
    x = draw((2, 3, 4, 5)[: 2 + n_batch + n_dense])
    mat = sparse.BCSR.fromdense(x, n_batch=n_batch, n_dense=n_dense)
    same(mat, x)
    same(sparse.bcsr_sum_duplicates(mat, nse=mat.nse), x)
    same(sparse.bcsr_concatenate([mat, mat], dimension=n_batch), np.concatenate([x, x], n_batch))
    numbers = (((n_batch + 1,), (0,)), ((), ()))
    other = np.arange(x.shape[n_batch + 1] * 2, dtype=np.float32).reshape(-1, 2)
    same(sparse.bcsr_dot_general(mat, other, dimension_numbers=numbers), lax.dot_general(x, other, numbers))
    data = sparse.bcsr_extract(mat.indices, mat.indptr, x)
    np.testing.assert_array_equal(data, mat.data)
    same(
        sparse.bcsr_broadcast_in_dim(mat, shape=(2, *x.shape), broadcast_dimensions=range(1, 1 + x.ndim)),
        np.stack([x, x]),
    )


# ------------------------------------------------------------------------------------------------------------ products


def all_numbers(lhs: int, rhs: int) -> Any:
    """Dimension numbers of operands of these ranks: up to two contracted dimensions and two batches, in some orders."""
    for contracted in range(3):
        for batch in range(min(lhs, rhs) - contracted + 1):
            if batch > 2:
                continue
            left = list(itertools.permutations(range(lhs), contracted + batch))
            right = list(itertools.permutations(range(rhs), contracted + batch))
            for i in range(0, len(left), 3):
                a, b = left[i], right[(7 * i) % len(right)]
                yield ((a[:contracted], b[:contracted]), (a[contracted:], b[contracted:]))


@each_layout
def test_dot_general_of_sparse_and_dense(layout: Any) -> None:
    x = draw((2, 2, 2))
    mat = with_padding(x, *layout)
    for numbers in all_numbers(3, 3):
        y = np.random.default_rng(1).standard_normal((2, 2, 2)).astype(np.float32)
        expected = lax.dot_general(x, y, numbers)
        same(sparse.bcoo_dot_general(mat, y, dimension_numbers=numbers), expected)
        (lc, rc), (lb, rb) = numbers
        swapped = ((rc, lc), (rb, lb))
        same(sparse.bcoo_dot_general(y, mat, dimension_numbers=swapped), lax.dot_general(y, x, swapped))


@pytest.mark.parametrize("n_batch", [0, 1])
def test_dot_general_of_two_sparse_arrays(n_batch: int) -> None:
    x, y = draw((2, 3, 4)), draw((2, 4, 5), 1)
    numbers = (((2,), (1,)), ((0,), (0,))) if n_batch else (((2,), (1,)), ((), ()))
    product = weft.jit(lambda a, b: sparse.bcoo_dot_general(a, b, dimension_numbers=numbers))
    found = product(with_padding(x, n_batch), with_padding(y, n_batch))
    assert isinstance(found, sparse.BCOO)
    same(found, lax.dot_general(x, y, numbers))
    a, b = draw((3, 4)), draw((4, 5), 1)
    same(with_padding(a) @ with_padding(b), a @ b)


def test_products_have_derivatives_of_the_pattern() -> None:
    x, y = draw((3, 4)), np.random.default_rng(0).standard_normal((4, 2)).astype(np.float32)
    mat = with_padding(x)

    def f(data: Any, y: Any) -> Any:
        return sparse.BCOO((data, mat.indices), shape=mat.shape) @ y

    check_grads(f, [mat.data, y], 2)
    check_grads(weft.jit(lambda d, y: f(d, y) @ f(d, y).T), [mat.data, y], 1)
    gradient = sparse.grad(lambda m, y: ((m @ y) ** 2).sum())(mat, y)
    assert isinstance(gradient, sparse.BCOO)
    np.testing.assert_array_equal(gradient.indices, mat.indices)
    value, (first, second) = sparse.value_and_grad(lambda m, y: ((m @ y) ** 2).sum(), argnums=(0, 1))(mat, y)
    dense_value, (dense_first, dense_second) = weft.value_and_grad(lambda m, y: ((m @ y) ** 2).sum(), (0, 1))(x, y)
    np.testing.assert_allclose(value, dense_value, rtol=1e-5)
    np.testing.assert_allclose(second, dense_second, rtol=1e-4)
    np.testing.assert_allclose(first.data, sparse.bcoo_extract(mat, dense_first, assume_unique=True).data, rtol=1e-4)
    for jacobian in (sparse.jacfwd, sparse.jacrev, sparse.jacobian):
        found = weft.jit(jacobian(lambda m: m @ y))(sparse.BCOO.fromdense(x, nse=12))
        expected = np.where(x != 0, weft.jacrev(lambda m: m @ y)(x), 0)
        assert found.n_batch == 2
        same(found, expected)


def test_sampled_products() -> None:
    a, b = (np.random.default_rng(i).standard_normal((3, 4)).astype(np.float32) for i in range(2))
    numbers = (((1,), (1,)), ((), ()))
    indices = np.array([[0, 0], [2, 1], [3, 3], [1, 2]])
    expected = np.append((a @ b.T)[[0, 2, 1], [0, 1, 2]], 0)[[0, 1, 3, 2]]
    found = sparse.bcoo_dot_general_sampled(a, b, indices, dimension_numbers=numbers)
    np.testing.assert_allclose(found, expected, rtol=1e-5)
    found = sparse.bcoo_dot_general_sampled(a, b, indices[:, :1], dimension_numbers=numbers)
    np.testing.assert_allclose(found[:2], (a @ b.T)[[0, 2]], rtol=1e-5)
    check_grads(lambda a, b: sparse.bcoo_dot_general_sampled(a, b, indices, dimension_numbers=numbers), [a, b], 1)


@each_layout
def test_products_by_elements(layout: Any) -> None:
    x, y = draw(), draw(seed=1)
    mat, other = with_padding(x, *layout), with_padding(y, *layout)
    same(sparse.bcoo_multiply_sparse(mat, other), x * y)
    for shape in (SHAPE, (1, 3, 4), (3, 1), (4,), ()):
        v = np.random.default_rng(2).standard_normal(shape).astype(np.float32)
        same(mat.like(sparse.bcoo_multiply_dense(mat, v)), x * v)
        same(mat * v, x * v)
    same(mat / (y + 1), x / (y + 1))
    extracted = sparse.bcoo_extract(mat, wnp.asarray(y))
    pattern = sparse.BCOO.fromdense(x, n_batch=layout[0], n_dense=layout[1])
    same(extracted, np.where(pattern.like(wnp.ones_like(pattern.data)).todense() != 0, y, 0))


# --------------------------------------------------------------------------------------------------- layouts and shapes


@each_layout
def test_layouts(layout: Any) -> None:
    x = draw()
    mat = with_padding(x, *layout)
    for n_batch, n_dense in LAYOUTS:
        found = sparse.bcoo_update_layout(mat, n_batch=n_batch, n_dense=n_dense, on_inefficient=None)
        assert (found.n_batch, found.n_dense) == (n_batch, n_dense)
        same(found, x)
    if layout == (0, 0):
        with pytest.raises(sparse.SparseEfficiencyError, match="times as many"):
            mat.update_layout(n_dense=1)
        with pytest.warns(sparse.SparseEfficiencyWarning):
            mat.update_layout(n_dense=1, on_inefficient="warn")


@each_layout
def test_shapes(layout: Any) -> None:
    x = draw()
    mat = with_padding(x, *layout)
    n, last = layout[0], 3 - layout[1]
    for axes in ((0,), (1,), (2,), (0, 2), (0, 1, 2)):
        same(sparse.bcoo_reduce_sum(mat, axes=axes), x.sum(axes))
    for permutation in itertools.permutations(range(3)):
        if sorted(permutation[:n]) == list(range(n)) and sorted(permutation[last:]) == list(range(last, 3)):
            same(sparse.bcoo_transpose(mat, permutation=permutation), x.transpose(permutation))
    for shape, dims in (
        ((2, 2, 3, 4), (1, 2, 3)),
        ((2, 3, 1, 4), (0, 1, 3)),
        ((2, 3, 5, 4), (0, 1, 3)),
        ((2, 3, 4, 5), (0, 1, 2)),
    ):
        found = sparse.bcoo_broadcast_in_dim(mat, shape=shape, broadcast_dimensions=dims)
        same(found, lax.broadcast_in_dim(x, shape, dims))
    one = with_padding(x[:, :1], *layout)
    same(
        sparse.bcoo_broadcast_in_dim(one, shape=(2, 3, 4), broadcast_dimensions=(0, 1, 2)),
        np.broadcast_to(x[:, :1], (2, 3, 4)),
    )
    same(sparse.bcoo_squeeze(one, dimensions=(1,)), x[:, 0])
    same(sparse.bcoo_reshape(mat, new_sizes=(2, 1, 3, 4)), x.reshape(2, 1, 3, 4))
    if layout in ((0, 0), (1, 0)):
        same(sparse.bcoo_reshape(mat, new_sizes=(2, 6, 2)), x.reshape(2, 6, 2))
    for dims in ((0,), (1,), (0, 2)):
        same(sparse.bcoo_rev(mat, dims), np.flip(x, dims))
    for cut in (np.s_[:, 1:, 1:3], np.s_[1:, ::2, ::3], np.s_[:1, :1, :1]):
        spans = [s.indices(k) for s, k in zip(cut, SHAPE, strict=True)]
        starts, limits, strides = zip(*spans, strict=True)
        same(sparse.bcoo_slice(mat, start_indices=starts, limit_indices=limits, strides=strides), x[cut])
    same(weft.jit(lambda m, i: sparse.bcoo_dynamic_slice(m, (0, i, i), (2, 2, 2)))(mat, 1), x[:, 1:3, 1:3])
    for dimension in range(3):
        same(sparse.bcoo_concatenate([mat, mat], dimension=dimension), np.concatenate([x, x], dimension))


def test_convolution() -> None:
    x, w = draw((1, 1, 9)), draw((1, 1, 4), 3)
    lhs, rhs = (sparse.BCOO.fromdense(v, n_batch=2) for v in (x, w))
    for options in (
        {"window_strides": (1,), "padding": "SAME"},
        {"window_strides": (2,), "padding": [(3, 1)], "lhs_dilation": (2,), "rhs_dilation": (3,)},
    ):
        found = sparse.bcoo_conv_general_dilated(lhs, rhs, **options)
        same(found, lax.conv_general_dilated(x, w, **options))


@pytest.mark.parametrize("dtype", ["complex64", "bfloat16", "float16", "int32", "uint8", "bool"])
def test_dtypes(dtype: str) -> None:
    x, v = wnp.asarray(draw((3, 4))).astype(dtype), wnp.arange(4).astype(dtype)
    mat = sparse.BCOO.fromdense(x)
    for found, expected in (
        (mat @ v, x @ v),
        (mat.todense(), x),
        ((mat * mat).todense(), x * x),
        (mat.T.todense(), x.T),
    ):
        assert found.dtype == expected.dtype
        np.testing.assert_array_equal(np.asarray(found, np.complex64), np.asarray(expected, np.complex64))
    empty = sparse.BCOO.fromdense(wnp.zeros((3, 4), dtype))
    assert empty.nse == 0 and (empty @ v).dtype == (x @ v).dtype
    if dtype == "complex64":
        turned = mat.data * (1 + 2j)
        check_grads(lambda d: sparse.BCOO((d, mat.indices), shape=mat.shape) @ (v + 1j), [turned], 1)


# ------------------------------------------------------------------------------------------------------ transformations


def test_vmap_goes_over_batches() -> None:
    x, y = draw((2, 3, 4)), np.arange(8.0, dtype=np.float32).reshape(2, 4)
    mat = with_padding(x, 1)
    same(weft.vmap(lambda m, v: m @ v)(mat, y), np.einsum("bij,bj->bi", x, y))
    found = weft.jit(weft.vmap(lambda m: m.T * 2))(mat)
    assert found.shape == (2, 4, 3) and found.n_batch == 1
    same(found, x.transpose(0, 2, 1) * 2)
    mapped = weft.vmap(lambda v: sparse.BCOO.fromdense(v, nse=12))(wnp.asarray(x))
    assert mapped.shape == (2, 3, 4)
    same(mapped, x)
    _, rows = lax.scan(lambda c, m: (c, m @ wnp.ones(4)), 0.0, mat)
    same(rows, x.sum(-1))


SPARSIFIED = {
    "polynomial": lambda x, y: x * 3 - x / 2 + x**2,
    "functions": lambda x, y: wnp.sin(x) + wnp.tanh(x) * wnp.abs(x) - wnp.sqrt(x),
    "product": lambda x, y: x @ y,
    "jit": lambda x, y: weft.jit(lambda x: wnp.expm1(x * 0.1))(x),
    "sign": lambda x, y: wnp.sign(x),
    "sum": lambda x, y: x.sum(0) + x[1],
    "mean": lambda x, y: x.mean(),
    "indexing": lambda x, y: x[1:, 2] * 2,
    "concatenate": lambda x, y: wnp.concatenate([x, x[::-1]], axis=1),
    "reshape": lambda x, y: x.reshape(2, 6).T,
    "einsum": lambda x, y: wnp.einsum("ij,jk->ki", x, y),
    "todense": lambda x, y: wnp.cos(sparse.todense(x)) + 1,
    "cond": lambda x, y: lax.cond(y[0, 0] > 0, lambda x: x * 2, lambda x: x / 2, x),
    "scan": lambda x, y: lax.scan(lambda c, v: (c * v, c.sum()), x, wnp.arange(1.0, 4.0)),
    "while": lambda x, y: lax.while_loop(lambda c: c[0] < 3, lambda c: (c[0] + 1, c[1] * 2), (0, x))[1],
    "astype": lambda x, y: (-x).astype("int32"),
    "stack": lambda x, y: wnp.stack([x, x * 2]),
    "sum with dense": lambda x, y: x + y.T,
}  # fmt: skip


@pytest.mark.parametrize("name", SPARSIFIED)
def test_sparsify(name: str) -> None:
    f = SPARSIFIED[name]
    x, y = draw((3, 4)), np.random.default_rng(1).standard_normal((4, 3)).astype(np.float32)
    expected = weft.tree.leaves(f(wnp.asarray(x), wnp.asarray(y)))
    for run in (sparse.sparsify(f), weft.jit(sparse.sparsify(f))):
        for mat in (sparse.BCOO.fromdense(x), with_padding(x)):
            found = weft.tree.leaves(run(mat, wnp.asarray(y)), is_leaf=lambda v: isinstance(v, sparse.BCOO))
            for a, b in zip(found, expected, strict=True):
                same(a, b)


def test_operations_that_would_be_dense_say_so() -> None:
    mat = sparse.BCOO.fromdense(draw((3, 4)))
    for f in (lambda m: m + 1, lambda m: 1 / m, lambda m: m > 0, lambda m: m**0, sparse.sparsify(wnp.cos)):
        with pytest.raises(NotImplementedError, match="dense"):
            f(mat)
    with pytest.raises(ValueError, match="nse"):
        weft.jit(sparse.bcoo_fromdense)(draw((3, 4)))
    with pytest.raises(ValueError, match="nse"):
        weft.jit(sparse.bcoo_sum_duplicates)(mat)
    with pytest.raises(ValueError, match="nse"):
        sparse.bcoo_sum_duplicates(mat, nse=1)
    with pytest.raises(ValueError, match="do not fit"):
        sparse.bcoo_dot_general(mat, wnp.ones(3), dimension_numbers=(((1,), (0,)), ((), ())))
    with pytest.raises(ValueError, match="matmul"):
        mat @ wnp.ones(3)
    with pytest.raises(ValueError, match="do not fit together"):
        sparse.BCOO((wnp.ones(3), wnp.ones((2, 2), int)), shape=(3, 3))
    with pytest.raises(TypeError, match="BCOO"):
        sparse.bcoo_todense(wnp.ones(3))
    with pytest.raises(ValueError, match="update_layout"):
        sparse.bcoo_transpose(sparse.BCOO.fromdense(draw(), n_batch=1), permutation=(1, 0, 2))


# ----------------------------------------------------------------------------------------------- creation and solving


def test_creation() -> None:
    for k, (n, m) in itertools.product((-1, 0, 2), ((3, 3), (3, 5), (4, 2))):
        for kind in ("bcoo", "bcsr", "coo", "csr", "csc"):
            same(sparse.eye(n, m, k, sparse_format=kind), np.eye(n, m, k))
        for n_batch, n_dense in ((1, 0), (0, 1), (2, 0), (1, 1)):
            same(sparse.eye(n, m, k, n_batch=n_batch, n_dense=n_dense), np.eye(n, m, k))
    assert repr(sparse.empty((2, 3), n_batch=1, nse=2)) == "BCOO(float32[2, 3], nse=2, n_batch=1)"
    for layout in LAYOUTS:
        mat = sparse.random_bcoo(
            weft.random.key(0), SHAPE, nse=0.5, n_batch=layout[0], n_dense=layout[1], sorted_indices=True
        )
        assert mat.shape == SHAPE and (mat.n_batch, mat.n_dense) == layout
        if mat.n_sparse:
            assert mat.sum_duplicates().nse == mat.nse
    with pytest.raises(ValueError, match="sparse format"):
        sparse.eye(3, sparse_format="none")


def test_linear_systems() -> None:
    rng = np.random.default_rng(0)
    x = (draw((6, 6)) + 20 * np.eye(6)).astype(np.float32)
    b = rng.standard_normal(6).astype(np.float32)
    mat = sparse.CSR.fromdense(x)

    def solve(data: Any, b: Any) -> Any:
        return linalg.spsolve(data, mat.indices, mat.indptr, b)

    np.testing.assert_allclose(weft.jit(solve)(mat.data, b), np.linalg.solve(x, b), rtol=1e-4)
    check_grads(solve, [mat.data, b], 1)
    batch = rng.standard_normal((3, 6)).astype(np.float32)
    np.testing.assert_allclose(weft.vmap(lambda b: solve(mat.data, b))(batch), np.linalg.solve(x, batch.T).T, rtol=1e-3)


def test_extreme_eigenvalues() -> None:
    rng = np.random.default_rng(0)
    x = rng.standard_normal((40, 40)).astype(np.float32)
    x = x @ x.T / 40
    values, vectors, iterations = weft.jit(linalg.lobpcg_standard)(x, rng.standard_normal((40, 3)).astype(np.float32))
    expected = np.linalg.eigvalsh(x)[::-1][:3]
    np.testing.assert_allclose(values, expected, rtol=1e-3)
    np.testing.assert_allclose(x @ vectors, vectors * values, atol=2e-2)
    assert 0 < iterations <= 100


def test_examples_in_docstrings() -> None:
    for name in ("bcoo", "bcsr", "creation", "differentiate", "linalg", "products", "sparsify"):
        assert doctest.testmod(importlib.import_module(f"weft.experimental.sparse.{name}")).failed == 0


@pytest.mark.parametrize("parts", [{}, {"n_batch": 1}, {"n_dense": 1}])
def test_sums_of_short_integers_do_not_wrap_around(parts: dict[str, int]) -> None:
    x = np.array([[100, 100, 0], [0, 0, 3]], np.int8)
    mat = sparse.BCOO.fromdense(x, **parts)
    found = sparse.bcoo_reduce_sum(mat, axes=(1,))
    assert found.dtype == np.int32 and found.todense().tolist() == [200, 3]
    assert mat.sum(1).todense().tolist() == [200, 3]
