"""Linear algebra: factorizations multiply back, values match NumPy and SciPy, derivatives, failures are NaN."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import scipy.linalg

import weft
import weft.numpy as wnp
import weft.scipy.linalg as wsl
from weft.base.errors import MissingRuleError
from weft.base.settings import enable_x64
from weft.ir.context import EVALUATION
from weft.lax import linalg as ll
from weft.numpy import linalg as wl
from weft.primitives.linalg import lu as linalg_lu
from weft.test_util import check_grads

GENERATOR = np.random.default_rng(11)


def random(*shape: int, dtype: Any = np.float64) -> np.ndarray:
    values = GENERATOR.standard_normal(shape)
    if np.dtype(dtype).kind == "c":
        values = values + 1j * GENERATOR.standard_normal(shape)
    return values.astype(dtype)


def positive(size: int, dtype: Any = np.float64) -> np.ndarray:
    a = random(size, size, dtype=dtype)
    return (a @ a.conj().T + size * np.eye(size)).astype(dtype)


def adjoint(a: Any) -> np.ndarray:
    return np.conj(np.swapaxes(np.asarray(a), -1, -2))


def close(actual: Any, expected: Any, tolerance: float = 1e-10) -> None:
    np.testing.assert_allclose(np.asarray(actual), np.asarray(expected), tolerance, tolerance)


@pytest.fixture(autouse=True)
def wide() -> Any:
    with enable_x64(True):
        yield


DTYPES = [np.float64, np.complex128]


# ------------------------------------------------------------------------------------------------------- factorisations


@pytest.mark.parametrize("dtype", DTYPES)
def test_factorizations_multiply_back(dtype: Any) -> None:
    a, tall = random(2, 4, 4, dtype=dtype), random(2, 5, 3, dtype=dtype)
    p = positive(4, dtype)
    lower = wl.cholesky(p)
    close(np.asarray(lower) @ adjoint(lower), p)
    upper = wl.cholesky(p, upper=True)
    close(adjoint(upper) @ np.asarray(upper), p)
    for x in (a, tall, np.swapaxes(tall, -1, -2)):
        q, r = (np.asarray(v) for v in wl.qr(x))
        close(q @ r, x)
        close(np.tril(r, -1), np.zeros_like(r))
        u, s, v = (np.asarray(v) for v in wl.svd(x, full_matrices=False))
        close((u * s[..., None, :]) @ v, x)
        close(np.linalg.svd(x, compute_uv=False), wl.svdvals(x))
        permutation, low, up = (np.asarray(v) for v in wsl.lu(x))
        close(permutation @ low @ up, x)
        order = np.asarray(ll.lu(x)[2])
        close(np.take_along_axis(x, order[..., None], -2), low @ up)
    w, v = (np.asarray(v) for v in wl.eigh(p))
    close(p @ v, v * w)
    assert (np.diff(w) > 0).all()
    w, left, right = (np.asarray(v) for v in ll.eig(a))
    close(a @ right, right * w[..., None, :])
    close(adjoint(left) @ a, w[..., :, None] * adjoint(left))
    t, z = (np.asarray(v) for v in wsl.schur(a[0], output="complex"))
    close(z @ t @ adjoint(z), a[0])
    h, q = (np.asarray(v) for v in wsl.hessenberg(a[0], calc_q=True))
    close(q @ h @ adjoint(q), a[0])
    close(np.tril(h, -2), np.zeros_like(h))


@pytest.mark.parametrize("dtype", DTYPES)
def test_reflectors_are_those_of_qr(dtype: Any) -> None:
    x = random(5, 3, dtype=dtype)
    packed, factors = (np.asarray(v) for v in wl.qr(x, mode="raw"))
    q = np.asarray(ll.householder_product(adjoint(packed).conj(), factors))
    close(q, wl.qr(x).Q)
    full = np.asarray(wl.qr(x, mode="complete").Q)
    c = random(5, 2, dtype=dtype)
    close(ll.ormqr(adjoint(packed).conj(), factors, c), full @ c)
    close(ll.ormqr(adjoint(packed).conj(), factors, c, transpose=True), adjoint(full) @ c)
    close(ll.ormqr(adjoint(packed).conj(), factors, c.T, left=False), c.T @ full)


def test_pivots_name_a_permutation() -> None:
    x = random(3, 6, 4)
    _, pivots, permutation = ll.lu(x)
    np.testing.assert_array_equal(ll.lu_pivots_to_permutation(pivots, 6), permutation)
    assert not np.array_equal(permutation, np.broadcast_to(np.arange(6), (3, 6)))


def test_a_large_batch_of_small_matrices_is_vectorized() -> None:
    a, b = random(20, 3, 3), random(20, 3, 2)
    a[3] = 0  # singular: no NaN in the factors, as LAPACK
    factors, pivots, _ = (np.asarray(v) for v in ll.lu(a))
    for i in range(20):
        found, exchanges = scipy.linalg.lapack.dgetrf(a[i])[:2]
        close(factors[i], found)
        np.testing.assert_array_equal(pivots[i], exchanges)
    keep = np.arange(20) != 3
    close(np.asarray(wl.solve(a, b))[keep], np.linalg.solve(a[keep], b[keep]), 1e-8)


def test_failures_are_nan_and_only_where_they_happen() -> None:
    good, bad = positive(3), -positive(3)
    factor = np.asarray(wl.cholesky(np.stack([good, bad])))
    close(factor[0], np.linalg.cholesky(good))
    assert np.isnan(factor[1][np.tril_indices(3)]).all()
    holes = np.stack([random(3, 3), np.full((3, 3), np.nan)])
    for values in (wl.svdvals(holes), wl.eigvals(holes), wl.eigvalsh(holes), ll.eig(holes)[1]):
        assert np.isfinite(np.asarray(values)[0]).all() and np.isnan(np.asarray(values)[1]).all()
    singular = np.asarray(wl.inv(np.zeros((2, 2))))
    assert not np.isfinite(singular).any()


SHORT_REFUSED: list[Any] = [ll.cholesky, ll.lu, ll.qr, ll.svd, ll.eigh, ll.eig]
SHORT_REFUSED += [wl.pinv, lambda x: wl.lstsq(x, x), wl.matrix_rank, wsl.expm]


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16])
@pytest.mark.parametrize("function", SHORT_REFUSED)
def test_short_floats_are_refused_by_name(function: Callable[..., Any], dtype: Any) -> None:
    with pytest.raises(TypeError, match=np.dtype(dtype).name):
        function(np.eye(2, dtype=dtype))


@pytest.mark.parametrize(
    "call",
    [
        lambda: ll.cholesky(np.ones((2, 3))),
        lambda: wl.inv(np.ones((2, 3))),
        lambda: wl.solve(np.eye(2), np.ones(3)),
        lambda: wl.solve(np.ones((3, 2, 2)), np.ones((3, 2))),
        lambda: wl.norm(np.ones((2, 2, 2)), ord=2),
        lambda: wl.norm(np.ones(2), ord="fro"),
        lambda: wl.qr(np.eye(2), mode="none"),
        lambda: wl.cross(np.ones(2), np.ones(2)),
        lambda: ll.triangular_solve(np.eye(3), np.ones((2, 2)), left_side=True),
    ],
)
def test_wrong_arguments_raise(call: Callable[[], Any]) -> None:
    with pytest.raises(ValueError):
        call()


# ---------------------------------------------------------------------------------------------------------- derivatives


FUNCTIONS: dict[str, tuple[Callable[..., Any], Callable[[Any], tuple[Any, ...]]]] = {
    "cholesky": (wl.cholesky, lambda t: (positive(3, t),)),
    "cholesky of one triangle": (lambda a: wl.cholesky(a, symmetrize_input=False), lambda t: (positive(3, t),)),
    "inv": (wl.inv, lambda t: (random(2, 3, 3, dtype=t),)),
    "solve": (wl.solve, lambda t: (random(3, 3, dtype=t), random(3, 2, dtype=t))),
    "solve one matrix": (wl.solve, lambda t: (random(3, 3, dtype=t), random(2, 3, 2, dtype=t))),
    "solve one vector": (wl.solve, lambda t: (random(2, 3, 3, dtype=t), random(3, dtype=t))),
    "det 3": (wl.det, lambda t: (random(2, 3, 3, dtype=t),)),
    "det 4": (wl.det, lambda t: (random(2, 4, 4, dtype=t),)),
    "slogdet": (lambda a: tuple(wl.slogdet(a)), lambda t: (random(2, 4, 4, dtype=t),)),
    "qr": (lambda a: tuple(wl.qr(a)), lambda t: (random(4, 3, dtype=t),)),
    "qr wide": (lambda a: tuple(wl.qr(a)), lambda t: (random(2, 3, dtype=t),)),
    "lu": (lambda a: ll.lu(a)[0], lambda t: (random(3, 4, dtype=t),)),
    "svd": (wl.svdvals, lambda t: (random(4, 3, dtype=t),)),
    "eigh": (wl.eigvalsh, lambda t: (positive(3, t),)),
    "eig": (lambda a: tuple(wl.eig(a)), lambda t: (random(3, 3, dtype=t),)),
    "pinv": (wl.pinv, lambda t: (random(4, 2, dtype=t),)),
    "pinv wide": (wl.pinv, lambda t: (random(2, 4, dtype=t),)),
    "lstsq": (lambda a, b: wl.lstsq(a, b)[0], lambda t: (random(4, 2, dtype=t), random(4, dtype=t))),
    "matrix_power": (lambda a: wl.matrix_power(a, -3), lambda t: (random(3, 3, dtype=t) + 2 * np.eye(3, dtype=t),)),
    "expm": (wsl.expm, lambda t: (4 * random(3, 3, dtype=t),)),
    "cho_solve": (lambda a, b: wsl.cho_solve(wsl.cho_factor(a), b), lambda t: (positive(3, t), random(3, dtype=t))),
    "solve_sylvester": (
        wsl.solve_sylvester,
        lambda t: (positive(3, t), positive(2, t), random(3, 2, dtype=t)),
    ),
    "lu_solve": (
        lambda a, b: wsl.lu_solve(wsl.lu_factor(a), b, 2),
        lambda t: (random(3, 3, dtype=t), random(3, dtype=t)),
    ),
    "householder": (ll.householder_product, lambda t: (random(4, 2, dtype=t), random(2, dtype=t))),
    "generalised": (lambda a, b: wsl.eigh(a, b, eigvals_only=True), lambda t: (positive(3, t), positive(3, t))),
    "multi_dot": (
        lambda *a: wl.multi_dot(a),
        lambda t: (random(3, dtype=t), random(3, 2, dtype=t), random(2, 4, dtype=t)),
    ),
    "cond": (wl.cond, lambda t: (random(3, 3, dtype=t),)),
}


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_derivatives_to_second_order(name: str, dtype: Any) -> None:
    function, arguments = FUNCTIONS[name]
    check_grads(function, arguments(dtype), 2, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("dtype", DTYPES)
def test_derivatives_of_vectors_up_to_phase(dtype: Any) -> None:
    def subspace(vectors: Any) -> Any:
        first = weft.lax.slice_in_dim(vectors, 0, 2, axis=1)
        return wl.matmul(first, weft.lax.transpose(weft.lax.conj(first) if dtype is np.complex128 else first, (1, 0)))

    check_grads(lambda a: subspace(wl.eigh(a).eigenvectors), (positive(3, dtype),), 2, atol=1e-4, rtol=1e-4)
    check_grads(
        lambda a: subspace(wl.svd(a, full_matrices=False).U), (random(4, 3, dtype=dtype),), 2, atol=1e-4, rtol=1e-4
    )

    def product(a: Any) -> Any:
        u, s, v = wl.svd(a, full_matrices=False)
        scaled = weft.lax.mul(u, weft.lax.broadcast_in_dim(weft.lax.convert_element_type(s, u.dtype), u.shape, (1,)))
        return wl.matmul(scaled, v)

    a, da = random(4, 3, dtype=dtype), random(4, 3, dtype=dtype)
    value, change = weft.jvp(product, (a,), (da,))
    close(value, a)
    close(change, da, 1e-8)


@pytest.mark.parametrize("order", [None, 1, 2, 3, np.inf])
def test_norms_have_finite_derivatives_at_zero(order: Any) -> None:
    gradient = np.asarray(weft.grad(lambda x: wl.norm(x, ord=order))(np.zeros(3)))
    assert np.isfinite(gradient).all()
    if order in (None, 2, 3):
        close(gradient, np.zeros(3))
    close(weft.grad(lambda x: wl.norm(x))(np.array([3.0, 4.0])), [0.6, 0.8])


def test_determinant_has_its_derivative_where_it_is_zero() -> None:
    a = random(4, 4)
    a[3] = a[0] - 2 * a[1]
    cofactors = np.empty((4, 4))
    for i in range(4):
        for j in range(4):
            rest = np.delete(np.delete(a, i, 0), j, 1)
            cofactors[i, j] = (-1) ** (i + j) * np.linalg.det(rest)
    close(weft.grad(wl.det)(a), cofactors)


def test_least_squares_has_its_derivative_where_singular_values_are_equal() -> None:
    gradient = weft.grad(lambda a: weft.lax.reduce_sum(wl.lstsq(a, np.arange(3.0))[0], (0,)))(np.eye(3))
    close(gradient, -np.outer(np.ones(3), np.arange(3.0)))


def repeated(dtype: Any) -> np.ndarray:
    """Return a Hermitian matrix with the eigenvalues 1, 1 and 5."""
    q = np.linalg.qr(random(3, 3, dtype=dtype))[0]
    return (q * [1.0, 1.0, 5.0]) @ q.conj().T


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", ["sqrtm", "right", "left"])
def test_functions_of_matrices_have_derivatives_where_values_are_equal(name: str, dtype: Any) -> None:
    function = wsl.sqrtm if name == "sqrtm" else lambda a: wsl.polar(a, name)
    check_grads(function, (np.eye(3, dtype=dtype),), 1, atol=1e-4, rtol=1e-4)
    check_grads(function, (repeated(dtype),), 2, atol=1e-4, rtol=1e-4)
    if name != "sqrtm":
        columns = np.linalg.qr(random(4, 2, dtype=dtype))[0]
        check_grads(function, (columns,), 1, atol=1e-4, rtol=1e-4)
        check_grads(function, (columns.T,), 1, atol=1e-4, rtol=1e-4)


def test_derivatives_of_values_and_of_chosen_vectors_where_other_values_are_equal() -> None:
    tied = np.diag([1.0, 1.0, 5.0])
    close(weft.grad(lambda a: wnp.exp(wl.eigh(a).eigenvalues).sum())(tied), np.diag(np.exp([1.0, 1.0, 5.0])))

    def last(a: Any) -> Any:
        vectors, _ = ll.eigh(a, symmetrize_input=False, subset_by_index=(2, 3))
        return vectors[0, 0] * vectors[2, 0]

    close(weft.grad(last)(tied), [[0, 0, 0], [0, 0, 0], [0.25, 0, 0]])

    def first(a: Any) -> Any:
        u, s, v = ll.svd(a, full_matrices=False, subset_by_index=(0, 1))
        return (u[1, 0] * s[0] * v[0, 0]).real

    close(weft.grad(first)(np.diag([5.0, 1.0, 1.0])), np.array([[0, 5, 0], [25, 0, 0], [0, 0, 0]]) / 24)


@pytest.mark.parametrize("dtype", DTYPES)
def test_gradients_of_spaces_of_vectors_where_values_are_equal(dtype: Any) -> None:
    """A function of the vectors alone has its gradient where values are equal, exactly or up to rounding."""

    def project(vectors: Any, first: int, last: int) -> Any:
        chosen = vectors[:, first:last]
        return chosen @ chosen.T.conj()

    def by_rows(a: Any) -> Any:
        return project(wl.svd(a, full_matrices=False)[0], 0, 2)

    direction, weights = random(3, 3, dtype=dtype), random(3, 3, dtype=dtype)
    direction = direction + direction.conj().T
    step = 1e-6 * direction
    for a in (np.diag([1.0, 1.0, 5.0]).astype(dtype), repeated(dtype)):
        functions: list[Any] = [lambda a: project(wl.eigh(a).eigenvectors, 0, 2)]
        functions += [lambda a: project(wl.eigh(a).eigenvectors, 2, 3), lambda a: by_rows(wl.inv(a))]
        for f in functions:
            gradient = weft.vjp(f, a)[1](weights)[0]
            expected = (np.asarray(f(a + step)) - np.asarray(f(a - step))) / 2e-6
            close((gradient * direction).sum().real, (weights * expected).sum().real, 1e-5)


@pytest.mark.parametrize("dtype", DTYPES)
def test_gradients_of_spaces_of_vectors_do_not_depend_on_rounding(dtype: Any) -> None:
    """However far rounding sets equal values apart: the projection on their space has the derivative
    (Q D R + R D Q)/(1 - 5), where R is that on the other vector."""

    def projection(vectors: Any) -> Any:
        return vectors @ vectors.T.conj()

    functions = (
        lambda a: projection(wl.eigh(a).eigenvectors[:, :2]),
        lambda a: projection(wl.svd(a, full_matrices=False)[0][:, 1:]),
        lambda a: projection(wl.svd(wl.inv(a), full_matrices=False)[0][:, :2]),
    )
    pullback = weft.jit(lambda a, weights: [weft.vjp(f, a)[1](weights)[0] for f in functions])
    for units in [0, 1, 4, 16, 64] * 8:
        q = np.linalg.qr(random(3, 3, dtype=dtype))[0]
        noise, direction, weights = (random(3, 3, dtype=dtype) for _ in range(3))
        direction = direction + adjoint(direction)
        a = (q * [1.0, 1.0, 5.0]) @ adjoint(q) + units * np.finfo(float).eps * (noise + adjoint(noise))
        equal, other = (part @ adjoint(part) for part in (q[:, :2], q[:, 2:]))
        expected = (equal @ direction @ other + other @ direction @ equal) / (1 - 5)
        for gradient in pullback(a, weights):
            close((gradient * direction).sum().real, (weights * expected).sum().real, 1e-9)


def test_vectors_without_a_derivative_say_so() -> None:
    with pytest.raises(MissingRuleError, match="full_matrices=False"):
        weft.jvp(lambda a: wl.svd(a)[0], (random(4, 2),), (random(4, 2),))
    with pytest.raises(MissingRuleError, match="reduced"):
        weft.jvp(lambda a: wl.qr(a, mode="complete")[0], (random(4, 2),), (random(4, 2),))
    tied = weft.grad(lambda a: wl.eigh(a).eigenvectors[0, 1])(np.eye(3))
    assert np.isnan(np.asarray(tied)).any()


# ------------------------------------------------------------------------------------------ vectorisation and staging


def test_one_matrix_is_factored_once_under_vmap_and_in_its_gradient() -> None:
    a, b = random(4, 4), random(6, 4)
    close(weft.vmap(wl.solve, in_axes=(None, 0))(a, b), np.linalg.solve(a, b.T).T)
    count = []
    original = EVALUATION.evaluate

    def counted(primitive: Any, args: Any, params: Any) -> Any:
        if primitive is linalg_lu.lu:
            count.append(args[0].shape)
        return original(primitive, args, params)

    EVALUATION.evaluate = counted
    try:
        weft.vmap(wl.solve, in_axes=(None, 0))(a, b)
        assert count == [(4, 4)]
        count.clear()
        weft.grad(lambda a: weft.lax.reduce_sum(wl.solve(a, b[0]), (0,)))(a)
        assert count == [(4, 4)]
    finally:
        EVALUATION.evaluate = original


def test_staged_and_mapped_functions_agree() -> None:
    a = np.stack([positive(3) for _ in range(4)])

    def loss(x: Any) -> Any:
        logarithm = wl.slogdet(x).logabsdet
        lower = wl.cholesky(x)
        return weft.lax.add(logarithm, weft.lax.reduce_sum(wl.solve(x, lower), (0, 1)))

    together = weft.jit(weft.vmap(weft.grad(loss)))(a)
    close(together, np.stack([np.asarray(weft.grad(loss)(x)) for x in a]), 1e-9)


# ------------------------------------------------------------------------------------------------- values against NumPy


@pytest.mark.parametrize("order", [None, "fro", "nuc", 1, -1, 2, -2, np.inf, -np.inf])
def test_matrix_norms(order: Any) -> None:
    x = random(3, 4, 5)
    for axes in ((0, 1), (2, 0), (-1, -2)):
        close(wl.norm(x, order, axes, keepdims=True), np.linalg.norm(x, order, axes, keepdims=True))
    close(wl.matrix_norm(x, ord=order or "fro"), np.linalg.matrix_norm(x, ord=order or "fro"))
    if order not in ("fro", "nuc"):
        close(wl.cond(x[:, :, :4], order), np.linalg.cond(x[:, :, :4], order), 1e-8)


@pytest.mark.parametrize("order", [0, 0.5, 1, 2, 3, -1, np.inf, -np.inf])
def test_vector_norms(order: Any) -> None:
    x = random(3, 4, dtype=np.complex128)
    close(wl.norm(x, order, 1), np.linalg.norm(x, order, 1))
    close(wl.vector_norm(x, ord=order, keepdims=True), np.linalg.vector_norm(x, ord=order, keepdims=True))


def test_values_are_those_of_numpy() -> None:
    a, b = random(4, 6), random(4)
    deficient = random(5, 2) @ random(2, 5)
    assert int(wl.matrix_rank(deficient)) == 2
    scales = np.array([1, 1e-3, 1e-6, 1e-9])
    graded = np.linalg.qr(random(4, 4))[0] * scales @ np.linalg.qr(random(4, 4))[0]
    for rtol, rank in ((1e-2, 1), (1e-4, 2), (1e-7, 3), (1e-11, 4)):
        assert int(wl.matrix_rank(graded, rtol=rtol)) == np.linalg.matrix_rank(graded, rtol=rtol) == rank
    close(wl.pinv(deficient), np.linalg.pinv(deficient), 1e-8)
    x, _, rank, s = wl.lstsq(a, b)
    expected = np.linalg.lstsq(a, b)
    close(x, expected[0])
    assert int(rank) == expected[2]
    close(s, expected[3])
    tensor = random(4, 6, 8, 3)
    close(wl.tensorinv(tensor), np.linalg.tensorinv(tensor), 1e-8)
    t, y = random(2, 3, 6), random(2, 3)
    close(wl.tensorsolve(t, y), np.linalg.tensorsolve(t, y))
    close(wl.cross(t[..., :3], t[..., 3:]), np.linalg.cross(t[..., :3], t[..., 3:]))
    for offset in (-3, -1, 0, 2, 5, 7):
        close(wl.diagonal(t, offset=offset), np.linalg.diagonal(t, offset=offset))
        close(wl.trace(t, offset=offset), np.linalg.trace(t, offset=offset))


def test_values_are_those_of_scipy() -> None:
    a, c, r = random(4, 4), random(4), random(3)
    for actual, expected in (
        (wsl.expm(a * 9), scipy.linalg.expm(a * 9)),
        (wsl.expm(np.zeros((2, 2))), np.eye(2)),
        (wsl.toeplitz(c, r), scipy.linalg.toeplitz(c, r)),
        (wsl.hankel(c, r), scipy.linalg.hankel(c, r)),
        (wsl.circulant(c), scipy.linalg.circulant(c)),
        (wsl.companion(c), scipy.linalg.companion(c)),
        (wsl.leslie(c, r), scipy.linalg.leslie(c, r)),
        (wsl.block_diag(a, c, 2.0), scipy.linalg.block_diag(a, c, 2.0)),
        (wsl.fiedler_companion(np.arange(1.0, 7)), scipy.linalg.fiedler_companion(np.arange(1.0, 7))),
        (wsl.invhilbert(4), scipy.linalg.invhilbert(4)),
        (wsl.invpascal(4), scipy.linalg.invpascal(4)),
        (wsl.hadamard(8), scipy.linalg.hadamard(8)),
        (wsl.helmert(5), scipy.linalg.helmert(5)),
        (wsl.dft(5, "sqrtn"), scipy.linalg.dft(5, "sqrtn")),
        (wsl.convolution_matrix(c, 3, "same"), scipy.linalg.convolution_matrix(c, 3, "same")),
        (wsl.solve_sylvester(a, a[:3, :3], a[:, :3]), scipy.linalg.solve_sylvester(a, a[:3, :3], a[:, :3])),
        (wsl.funm(a, weft.lax.exp), scipy.linalg.expm(a)),
    ):
        close(actual, expected, 1e-8)
    p = positive(4)
    root = np.asarray(wsl.sqrtm(p))
    close(root @ root, p)
    u, h = (np.asarray(v) for v in wsl.polar(a))
    close(u @ h, a)
    close(u @ u.T, np.eye(4))
    t, z = wsl.schur(a)
    triangular, unitary = (np.asarray(v) for v in wsl.rsf2csf(t, z))
    close(unitary @ triangular @ adjoint(unitary), a)
    close(wsl.expm_frechet(a, p), scipy.linalg.expm_frechet(a, p), 1e-7)
    assert np.isnan(np.asarray(wsl.expm(a * 1e9))).all()


def test_updated_factorizations_and_tridiagonal_systems() -> None:
    p, w = positive(4), random(4)
    upper = np.linalg.cholesky(p).T
    updated = np.asarray(ll.cholesky_update(upper, w))
    close(updated.T @ updated, p + np.outer(w, w))
    assert (np.diag(updated) > 0).all()
    dl, d, du, b = random(4), random(4) + 4, random(4), random(4, 2)
    matrix = np.diag(d) + np.diag(dl[1:], -1) + np.diag(du[:-1], 1)
    close(ll.tridiagonal_solve(dl, d, du, b), np.linalg.solve(matrix, b))
    values = wsl.eigh_tridiagonal(d, du[:-1], eigvals_only=True, select="i", select_range=(1, 2))
    close(values, scipy.linalg.eigh_tridiagonal(d, du[:-1], eigvals_only=True)[1:3])


def test_derivatives_of_empty_batches() -> None:
    x = np.ones((2, 0, 3, 3), np.float32)
    gradient = weft.grad(lambda v: sum(r.sum() for r in weft.lax.linalg.lu(v)[:1]))(x)
    assert gradient.shape == x.shape


def test_the_permutation_of_complex_factors_is_real() -> None:
    permutation, lower, upper = wsl.lu(np.array([[1j, 2], [3, 4]]))
    assert permutation.dtype.kind == "f"
    close(permutation @ lower @ upper, np.array([[1j, 2], [3, 4]]))
