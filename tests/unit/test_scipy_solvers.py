"""Iterative solvers and minimisation: solutions, derivatives, transformations."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import pytest
import scipy.optimize

import weft
import weft.numpy as wnp
from weft.scipy.optimize import OptimizeResults, minimize
from weft.scipy.sparse.linalg import bicgstab, cg, gmres

RNG = np.random.default_rng(0)
SIZE = 12
SOLVERS: dict[str, Any] = {
    "cg": cg,
    "bicgstab": bicgstab,
    "gmres": gmres,
    "gmres incremental": functools.partial(gmres, solve_method="incremental"),
}


def system(name: str, dtype: Any) -> tuple[np.ndarray, np.ndarray]:
    """Return a matrix that suits the method, and a right side."""
    parts = [RNG.normal(size=(SIZE, SIZE)) / SIZE**0.5 for _ in range(2)]
    sides = [RNG.normal(size=SIZE) for _ in range(2)]
    a, b = parts[0] + 1j * parts[1], sides[0] + 1j * sides[1]
    if dtype == np.float32:
        a, b = a.real, b.real
    matrix = a @ a.conj().T + np.eye(SIZE) if name == "cg" else a / 2 + 1.5 * np.eye(SIZE)
    return matrix.astype(dtype), b.astype(dtype)


@pytest.mark.parametrize("dtype", [np.float32, np.complex64])
@pytest.mark.parametrize("name", SOLVERS)
def test_solutions(name: str, dtype: Any) -> None:
    solve = functools.partial(SOLVERS[name], tol=1e-6)
    a, b = system(name, dtype)
    want = np.linalg.solve(a, b)
    close = functools.partial(np.testing.assert_allclose, rtol=1e-4, atol=1e-4)
    close(solve(a, b)[0], want)
    close(weft.jit(lambda a, b: solve(lambda x: a @ x, b)[0])(a, b), want)
    close(solve(a, b, want + 1)[0], want)
    close(solve(a, b, M=np.diag(1 / np.diag(a)))[0], want)
    close(solve(a, b, M=lambda x: x / np.diag(a))[0], want)
    close(weft.vmap(lambda a, b: solve(a, b)[0])(np.stack([a, 2 * a]), np.stack([b, b])), np.stack([want, want / 2]))
    close(weft.vmap(lambda b: solve(a, b)[0])(np.stack([b, 0 * b])), np.stack([want, 0 * want]))
    assert SOLVERS[name](a, b, maxiter=0)[0].tolist() == [0] * SIZE
    assert np.linalg.norm(a @ SOLVERS[name](a, b, maxiter=1)[0] - b) < np.linalg.norm(b)


@pytest.mark.parametrize("dtype", [np.float32, np.complex64])
@pytest.mark.parametrize("name", SOLVERS)
def test_derivatives_are_those_of_the_exact_solution(name: str, dtype: Any) -> None:
    a, b = system(name, dtype)

    def iterated(a: Any, b: Any) -> Any:
        return SOLVERS[name](a, b, tol=1e-7, M=lambda x: x / wnp.diag(a))[0]

    def projected(solve: Any) -> Any:
        return lambda a, b: wnp.sum(wnp.abs(solve(a, b)) ** 2)

    gradients = [weft.grad(projected(f), (0, 1)) for f in (iterated, wnp.linalg.solve)]
    for got, want in zip(weft.jit(gradients[0])(a, b), gradients[1](a, b), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-3, atol=1e-3)
    tangents = [weft.jvp(f, (a, b), (a[::-1], b[::-1]))[1] for f in (iterated, wnp.linalg.solve)]
    np.testing.assert_allclose(*tangents, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("name", SOLVERS)
def test_trees_and_integers(name: str) -> None:
    b = {"a": wnp.ones(2), "b": [wnp.ones((2, 2))]}
    x, _ = SOLVERS[name](lambda x: {"a": 2 * x["a"], "b": [4 * x["b"][0]]}, b)
    np.testing.assert_allclose(x["a"], [0.5] * 2, rtol=1e-5)
    np.testing.assert_allclose(x["b"][0], [[0.25] * 2] * 2, rtol=1e-5)
    assert SOLVERS[name](2 * np.eye(2, dtype=int), np.array([2, 4]))[0].round(5).tolist() == [1.0, 2.0]


def test_a_preconditioner_with_a_loop_of_unknown_length() -> None:
    a, b = system("gmres", np.float32)

    def sweep(r: Any) -> Any:
        body = lambda state: (state[0] + r / np.diag(a) - (a @ state[0]) / np.diag(a), state[1] + 1)
        return weft.lax.while_loop(lambda state: state[1] < 3, body, (0 * r, 0))[0]

    loss = lambda b: wnp.sum(gmres(lambda x: a @ x, b, tol=1e-7, M=sweep)[0])
    np.testing.assert_allclose(weft.grad(loss)(b), np.linalg.solve(a.T, np.ones(SIZE)), rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda: cg(3, np.ones(2)), "a function or a matrix"),
        (lambda: cg(np.ones((2, 3)), np.ones(2)), "square matrix"),
        (lambda: cg(lambda x: (x, x), np.ones(2)), "structure of b"),
        (lambda: cg(lambda x: x[:1], np.ones(2)), "shapes of b"),
        (lambda: cg(np.eye(2), np.ones(2), np.ones(3)), "matching shapes"),
        (lambda: cg(np.eye(2), np.ones(2), (np.ones(2),)), "tree structure"),
        (lambda: gmres(np.eye(2), np.ones(2), solve_method="fast"), "invalid solve_method"),
    ],
)
def test_errors_of_solvers(call: Any, text: str) -> None:
    with pytest.raises((TypeError, ValueError), match=text):
        call()


LBFGS = "l-bfgs-experimental-do-not-rely-on-this"
METHODS = ["BFGS", LBFGS]


def rosenbrock(x: Any, a: Any = 1.0) -> Any:
    return wnp.sum(100 * (x[1:] - x[:-1] ** 2) ** 2 + (a - x[:-1]) ** 2)


def bowl(x: Any, center: Any) -> Any:
    return wnp.sum((x - center) ** 2 * wnp.arange(1, x.size + 1)) + wnp.sum(wnp.cosh(x * center))


START = np.array([-1.2, 1.0, 0.5], np.float32)


@pytest.mark.parametrize("method", METHODS)
def test_minima(method: str) -> None:
    found = minimize(rosenbrock, START, method=method)
    assert isinstance(found, OptimizeResults) and bool(found.success) and int(found.status) == 0
    np.testing.assert_allclose(found.x, np.ones(3), atol=1e-3)
    assert 0 < int(found.nit) <= int(found.nfev) < 200
    many = weft.jit(weft.vmap(lambda x, c: minimize(bowl, x, (c,), method=method).x))
    centers = np.array([0.5, 1.5], np.float32)
    for center, x in zip(centers, many(np.stack([START, -START]), centers), strict=True):
        exact = lambda v, c=center: np.sum((v - c) ** 2 * np.arange(1, 4)) + np.sum(np.cosh(v * c))
        want = scipy.optimize.minimize(exact, START.astype(np.float64)).x
        np.testing.assert_allclose(x, want, atol=2e-3)
    stopped = minimize(rosenbrock, START, method=method, options={"maxiter": 3})
    assert (int(stopped.nit), int(stopped.status), bool(stopped.success)) == (3, 1, False)
    rough = minimize(rosenbrock, START, method=method, tol=1.0)
    assert int(rough.nit) < int(found.nit)
    with weft.enable_x64(True):
        found = minimize(rosenbrock, START.astype(np.float64), method=method, tol=1e-12)
        np.testing.assert_allclose(found.x, np.ones(3), atol=1e-9)


def test_options_of_lbfgs() -> None:
    few = minimize(rosenbrock, START, method=LBFGS, options={"maxfun": 10, "maxcor": 3, "maxls": 5, "norm": 2})
    assert int(few.status) == 2 and int(few.nfev) < 16 and few.hess_inv is None
    assert minimize(rosenbrock, START, method="BFGS", options={"line_search_maxiter": 20}).hess_inv.shape == (3, 3)


@pytest.mark.parametrize("method", METHODS)
def test_derivatives_of_minima(method: str) -> None:
    def best(center: Any) -> Any:
        found = minimize(lambda x: bowl(x, center), START, method=method)
        return wnp.sum(found.x * np.array([1.0, -2.0, 0.5])), found.fun

    step = 1e-2
    differences = [(high - low) / (2 * step) for high, low in zip(best(2 + step), best(2 - step), strict=True)]
    np.testing.assert_allclose(weft.jacrev(best)(2.0), differences, rtol=2e-2)
    np.testing.assert_allclose(weft.jit(weft.jacfwd(best))(2.0), differences, rtol=2e-2)


@pytest.mark.parametrize("method", METHODS)
def test_minima_over_complex_vectors(method: str) -> None:
    fun = lambda z: wnp.sum(wnp.abs(z - (1 - 2j)) ** 2) + wnp.sum(wnp.abs(z) ** 4) * 0.1
    found = minimize(fun, np.ones(2, np.complex64), method=method)
    assert bool(found.success) and found.x.dtype == np.complex64
    np.testing.assert_allclose(weft.grad(fun)(found.x), np.zeros(2), atol=1e-2)
    np.testing.assert_allclose(found.jac, np.zeros(2), atol=1e-2)


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda: minimize(rosenbrock, START, 2.0, method="BFGS"), "must be a tuple"),
        (lambda: minimize(rosenbrock, START, method="CG"), "not recognized"),
        (lambda: minimize(rosenbrock, START, method="BFGS", options={"ftol": 1}), "no option 'ftol'"),
        (lambda: minimize(rosenbrock, np.ones((2, 2)), method="BFGS"), "must be a vector"),
        (lambda: minimize(rosenbrock, np.ones(2, int), method="BFGS"), "must be a vector"),
        (lambda: minimize(lambda x: x, START, method="BFGS"), "must return a real number"),
        (lambda: minimize(rosenbrock, [1.0], method="BFGS"), "requires ndarray"),
    ],
)
def test_errors_of_minimize(call: Any, text: str) -> None:
    with pytest.raises((TypeError, ValueError), match=text):
        call()
