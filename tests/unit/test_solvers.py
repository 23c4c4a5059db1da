"""`custom_linear_solve` and `custom_root`: any solver, with derivatives by implicit differentiation."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import weft
import weft.numpy as wnp
from weft import lax

A = np.array([[4.0, 1.0, 0.5], [0.5, 3.0, -1.0], [0.2, -0.3, 5.0]], np.float32)
B = np.array([1.0, -2.0, 0.5], np.float32)


def jacobi(matvec: Any, b: Any) -> Any:
    """Run Richardson iteration until it settles: a loop without derivative."""
    step = 0.2

    def unsettled(state: Any) -> Any:
        _, change, count = state
        return (change > 1e-7) & (count < 500)

    def improve(state: Any) -> Any:
        x, _, count = state
        new = x + step * (b - matvec(x))
        return new, wnp.max(wnp.abs(new - x)), count + 1

    return lax.while_loop(unsettled, improve, (wnp.zeros_like(b), wnp.float32(1.0), 0))[0]


def iterated(a: Any, b: Any) -> Any:
    return lax.custom_linear_solve(lambda x: a @ x, b, jacobi, jacobi)


def exact(a: Any, b: Any) -> Any:
    return wnp.linalg.solve(a, b)


def projected(solver: Any) -> Any:
    return lambda a, b: wnp.sum(solver(a, b) * wnp.array([1.0, 2.0, -1.0]))


TRANSFORMATIONS = {
    "value": lambda f: f,
    "grad": lambda f: weft.grad(projected(f), (0, 1)),
    "jit of grad": lambda f: weft.jit(weft.grad(projected(f), (0, 1))),
    "jvp": lambda f: lambda a, b: weft.jvp(f, (a, b), (a * 0.1, b))[1],
    "vmap over b": lambda f: lambda a, b: weft.vmap(f, (None, 0))(a, wnp.stack([b, 2 * b])),
    "vmap over a": lambda f: lambda a, b: weft.vmap(f, (0, None))(wnp.stack([a, 0.8 * a]), b),
    "vmap of grad": lambda f: (
        lambda a, b: weft.vmap(weft.grad(projected(f), (0, 1)))(wnp.stack([a, 0.8 * a]), wnp.stack([b, -b]))
    ),
    "second order": lambda f: lambda a, b: weft.grad(lambda v: wnp.sum(weft.grad(projected(f))(v, b) ** 2))(a),
}


@pytest.mark.parametrize("name", TRANSFORMATIONS)
def test_an_iterative_solver_has_the_derivatives_of_the_exact_one(name: str) -> None:
    transformation = TRANSFORMATIONS[name]
    got, want = transformation(iterated)(A, B), transformation(exact)(A, B)
    for g, w in zip(weft.tree.leaves(got), weft.tree.leaves(want), strict=True):
        np.testing.assert_allclose(g, w, rtol=2e-4, atol=2e-5)


def test_reverse_mode_needs_a_transposed_solver() -> None:
    forward_only = lambda b: wnp.sum(lax.custom_linear_solve(lambda x: A @ x, b, jacobi))
    weft.jvp(forward_only, (wnp.asarray(B),), (wnp.asarray(B),))
    with pytest.raises(ValueError, match="transpose_solve"):
        weft.grad(forward_only)(B)


def test_auxiliary_results_of_a_solver() -> None:
    def solve(matvec: Any, b: Any) -> Any:
        return jacobi(matvec, b), wnp.sum(b)

    def total(b: Any) -> Any:
        x, auxiliary = lax.custom_linear_solve(lambda x: A @ x, b, solve, solve, has_aux=True)
        return wnp.sum(x) + 0.0 * auxiliary

    want = weft.grad(lambda b: wnp.sum(exact(A, b)))(B)
    np.testing.assert_allclose(weft.grad(total)(B), want, rtol=1e-4)


def bisected(f: Any, guess: Any) -> Any:
    """Find a root between 0 and 10 by halving: without a derivative of its own."""

    def halve(_: Any, bounds: Any) -> Any:
        low, high = bounds
        middle = (low + high) / 2
        return wnp.where(f(middle) < 0, middle, low), wnp.where(f(middle) < 0, high, middle)

    return lax.fori_loop(0, 40, halve, (wnp.float32(0.0), wnp.float32(10.0)))[0] + 0 * guess


def cube_root(y: Any) -> Any:
    return lax.custom_root(lambda x: x**3 - y, wnp.float32(1.0), bisected, lambda g, t: t / g(wnp.float32(1.0)))


@pytest.mark.parametrize("y", [0.5, 8.0, 27.0])
def test_the_derivative_of_a_root(y: float) -> None:
    np.testing.assert_allclose(cube_root(y), y ** (1 / 3), rtol=1e-5)
    np.testing.assert_allclose(weft.grad(cube_root)(y), y ** (-2 / 3) / 3, rtol=1e-4)
    np.testing.assert_allclose(weft.jit(weft.grad(cube_root))(y), y ** (-2 / 3) / 3, rtol=1e-4)
    np.testing.assert_allclose(weft.grad(weft.grad(cube_root))(y), -2 * y ** (-5 / 3) / 9, rtol=1e-3)
    ys = wnp.array([y, 2 * y])
    np.testing.assert_allclose(weft.vmap(weft.grad(cube_root))(ys), ys ** (-2 / 3) / 3, rtol=1e-4)
