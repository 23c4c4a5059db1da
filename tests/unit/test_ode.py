"""Solutions of differential equations and their derivatives, against those known in closed form."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.integrate

import weft
import weft.numpy as wnp
from weft.experimental import ode
from weft.experimental.ode import odeint

TIMES = np.array([0.0, 0.5, 2.0], np.float32)
STATE = np.array([1.0, 2.0], np.float32)
WEIGHTS = np.array([[0.3, -1.0], [1.2, 0.5], [-0.7, 0.4]], np.float32)


def solved(y0: Any, times: Any, rate: Any) -> Any:
    return odeint(lambda y, t, c: -c * y * wnp.cos(t), y0, times, rate)


def exact(y0: Any, times: Any, rate: Any) -> Any:
    return y0 * wnp.exp(-rate * (wnp.sin(times) - wnp.sin(times[0])))[:, None]


TRANSFORMATIONS: dict[str, Any] = {
    "value": lambda f: f,
    "reverse": lambda f: weft.grad(lambda *args: wnp.sum(f(*args) * WEIGHTS), (0, 1, 2)),
    "forward": lambda f: lambda *args: weft.jvp(f, args, (STATE, TIMES + 0.3, 0.7))[1],
    "forward over reverse": lambda f: weft.jit(weft.hessian(lambda *args: wnp.sum(f(*args) * WEIGHTS), 2)),
    "vmap": lambda f: lambda y, t, c: weft.vmap(lambda c: f(y, t, c))(np.array([0.5, c], np.float32)),
}


@pytest.mark.parametrize("name", TRANSFORMATIONS)
def test_solutions(name: str) -> None:
    got, want = (TRANSFORMATIONS[name](f)(STATE, TIMES, 2.0) for f in (solved, exact))
    for a, b in zip(weft.tree.leaves(got), weft.tree.leaves(want), strict=True):
        np.testing.assert_allclose(a, b, rtol=2e-4, atol=2e-5)


def test_closures_trees_and_complex_numbers() -> None:
    def total(c: Any) -> Any:
        start = {"a": wnp.ones(2), "b": wnp.array(0)}
        return odeint(lambda y, t: {"a": -c * y["a"], "b": wnp.sum(y["a"])}, start, TIMES)["b"][-1]

    want = lambda c: 2 * (1 - wnp.exp(-2 * c)) / c
    np.testing.assert_allclose(total(1.5), want(1.5), rtol=1e-4)
    np.testing.assert_allclose(weft.grad(total)(1.5), weft.grad(want)(1.5), rtol=1e-3)
    phase = lambda c: odeint(lambda y, t: 1j * c * y, np.complex64(1), np.array([0, 1], np.float32))[1]
    np.testing.assert_allclose(phase(1.0), np.exp(1j), rtol=1e-4)
    np.testing.assert_allclose(weft.grad(lambda c: phase(c).real)(1.0), -np.sin(1), rtol=1e-3)


def test_a_nonlinear_equation_against_scipy() -> None:
    rhs = lambda y, t: wnp.stack([y[1], 3.0 * (1 - y[0] ** 2) * y[1] - y[0]])
    times = np.linspace(0, 5, 7)
    want = scipy.integrate.solve_ivp(
        lambda t, y: [y[1], 3.0 * (1 - y[0] ** 2) * y[1] - y[0]],
        (0, 5),
        [2.0, 0.0],
        t_eval=times,
        rtol=1e-10,
        atol=1e-10,
    ).y.T
    with weft.enable_x64(True):
        got = weft.jit(lambda: odeint(rhs, np.array([2.0, 0.0]), times))()
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)


def test_what_is_not_reached_is_nan() -> None:
    decay = lambda y, t: -y
    few = odeint(decay, np.float32(1), TIMES, mxstep=2)
    assert np.isnan(few).tolist() == [False, True, True]
    blown_up = odeint(lambda y, t: y * y, np.float32(1), TIMES)
    assert np.isnan(blown_up).tolist() == [False, False, True]
    np.testing.assert_allclose(odeint(decay, 1, TIMES, hmax=0.1), np.exp(-TIMES), rtol=1e-4)
    assert odeint(decay, np.float32(1), TIMES[:1]).tolist() == [1.0]


def test_helpers() -> None:
    coefficients = np.array([1.0, -2.0, 0.5, 3.0, 0.7])
    value, derivative = np.poly1d(coefficients), np.poly1d(coefficients).deriv()
    found = ode.fit_4th_order_polynomial(value(0), value(1), value(0.5), derivative(0) / 0.1, derivative(1) / 0.1, 0.1)
    np.testing.assert_allclose(found, coefficients, rtol=1e-4, atol=1e-5)
    steps = [float(ode.optimal_step_size(0.1, r)) for r in (0.0, 0.5, 1.0, 1.5, 100.0)]
    np.testing.assert_allclose(steps, [1.0, 0.1034, 0.09, 0.08299, 0.0358], rtol=1e-3)
    assert ode.abs2(3 + 4j) == 25
    flat, unravel = ode.ravel_pytree((STATE, 1.0))
    assert ode.ravel_first_arg(lambda y, c: (y[0] * c, y[1]), unravel)(flat, 2.0).tolist() == [2.0, 4.0, 1.0]


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda: odeint(lambda y, t: -y, STATE, np.array([0, 1])), "floating-point times"),
        (lambda: odeint(lambda y, t: -y, STATE, np.array([1.0, 0.0])), "must increase"),
        (lambda: odeint(lambda y, t: (y, y), STATE, TIMES), "structure of y0"),
        (lambda: odeint(lambda y, t: y[:1], STATE, TIMES), "shapes of y0"),
        (lambda: odeint(lambda y, t, c: -y, STATE, TIMES, "fast"), "close over other things"),
    ],
)
def test_errors(call: Any, text: str) -> None:
    with pytest.raises((TypeError, ValueError), match=text):
        call()
