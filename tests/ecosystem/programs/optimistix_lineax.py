"""Optimistix and Lineax: roots, fixed points, least squares, minima and linear solves, with implicit derivatives."""

import jax
import jax.numpy as jnp
import lineax as lx
import numpy as np
import optimistix as optx

rng = np.random.default_rng(14)
matrix = jnp.asarray(rng.normal(size=(6, 6)) + 6 * np.eye(6), jnp.float32)
vector = jnp.asarray(rng.normal(size=6), jnp.float32)


@jax.jit
def solve(matrix, vector):
    return lx.linear_solve(lx.MatrixLinearOperator(matrix), vector).value


@jax.jit
def root(a):
    def residual(y, args):
        return jnp.stack([y[0] ** 2 + y[1] - args, y[0] - y[1] ** 3])

    return optx.root_find(residual, optx.Newton(rtol=1e-6, atol=1e-6), jnp.array([1.0, 1.0]), args=a).value


def fit(rate):
    x = jnp.linspace(0.0, 2.0, 20)
    y = 2.0 * jnp.exp(-rate * x)

    def residual(params, args):
        return params[0] * jnp.exp(-params[1] * x) - y

    solver = optx.LevenbergMarquardt(rtol=1e-6, atol=1e-6)
    return optx.least_squares(residual, solver, jnp.array([1.0, 1.0])).value


def make():
    return lambda: root(2.0)


def numbers():
    positive = lx.MatrixLinearOperator(matrix @ matrix.T, lx.positive_semidefinite_tag)
    by_cg = lx.linear_solve(positive, vector, lx.CG(rtol=1e-6, atol=1e-6)).value
    by_qr = lx.linear_solve(lx.MatrixLinearOperator(matrix[:, :4]), vector, lx.QR()).value
    fixed = optx.fixed_point(lambda y, args: jnp.cos(y), optx.FixedPointIteration(rtol=1e-6, atol=1e-6), 0.5).value
    lowest = optx.minimise(
        lambda y, args: jnp.sum((y - 1.0) ** 2 * jnp.array([1.0, 10.0])), optx.BFGS(rtol=1e-6, atol=1e-6), jnp.zeros(2)
    ).value
    return {
        "solve": np.asarray(solve(matrix, vector)).tolist(),
        "gradient": np.asarray(jax.grad(lambda m: solve(m, vector).sum())(matrix)).ravel().tolist(),
        "cg": np.asarray(by_cg).tolist(),
        "qr": np.asarray(by_qr).tolist(),
        "root": np.asarray(root(2.0)).tolist(),
        "root_derivative": np.asarray(jax.jacobian(root)(2.0)).tolist(),
        "fit": np.asarray(fit(1.5)).tolist(),
        "fixed": [float(fixed)],
        "lowest": np.asarray(lowest).tolist(),
    }


TOLERANCE = {"rtol": 2e-4, "atol": 2e-5}
