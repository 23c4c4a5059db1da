"""Linear algebra for optimizers: dominant eigenvalues, inverse roots, nonnegative least squares."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import weft.numpy as wnp
from weft import Array, lax, random
from weft.errors import ArgumentError, suggest as _suggest
from weft.optim.tree_utils.arithmetic import global_norm, tree_norm, tree_scale, tree_sub, tree_vdot
from weft.optim.tree_utils.randomness import tree_random_like
from weft.typing import ArrayLike

HIGHEST = lax.Precision.HIGHEST


def power_iteration(
    matrix: ArrayLike | Callable[[Any], Any],
    *,
    v0: Any = None,
    num_iters: int = 100,
    error_tolerance: float = 1e-6,
    precision: Any = HIGHEST,
    key: Any = None,
) -> tuple[Any, Any]:
    """Return the eigenvalue of largest magnitude and its unit eigenvector, by repeated multiplication.

    `matrix` may be a linear function of trees; then `v0` is an example of its argument. Iteration stops when ||A v - (v
    . A v) v|| is at most `error_tolerance`.
    """
    if callable(matrix):
        if v0 is None:
            raise ArgumentError("power_iteration of a function needs v0, an example of its argument")
        product = matrix
    else:
        array = wnp.asarray(matrix)
        if array.ndim != 2 or array.shape[0] != array.shape[1]:
            raise ArgumentError(f"power_iteration needs a square matrix, got shape {array.shape}")
        product = lambda v: wnp.matmul(array, v, precision=precision)
        if v0 is None:
            v0 = random.uniform(random.key(1729) if key is None else key, array.shape[-1:], array.dtype, -1.0, 1.0)
    if key is not None and callable(matrix):
        v0 = tree_random_like(key, v0)
    start = tree_scale(1.0 / tree_norm(v0), v0)

    def is_unsettled(carry: Any) -> Any:
        _, _, error, count = carry
        return (error > error_tolerance) & (count < num_iters)

    def step(carry: Any) -> Any:
        vector, _, _, count = carry
        image = product(vector)
        value = tree_vdot(vector, image)
        error = tree_norm(tree_sub(image, tree_scale(value, vector)))
        return tree_scale(1.0 / tree_norm(image), image), value, error, count + 1

    first = tree_vdot(start, product(start))
    vector, value, _, _ = lax.while_loop(
        is_unsettled, step, (start, wnp.zeros_like(first), wnp.full_like(first, wnp.inf), wnp.zeros((), wnp.int32))
    )
    return value, vector


def matrix_inverse_pth_root(
    matrix: ArrayLike,
    p: int,
    num_iters: int = 100,
    ridge_epsilon: float = 1e-6,
    error_tolerance: float = 1e-6,
    precision: Any = HIGHEST,
) -> tuple[Array, Array]:
    """Return `(A + ridge * I)^(-1/p)` of a positive definite matrix, and the residual of the iteration.

    A coupled Newton iteration (Guo and Higham 2006); the ridge is `ridge_epsilon` times the largest eigenvalue.
    """
    matrix = wnp.asarray(matrix)
    if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1]:
        raise ArgumentError(f"matrix_inverse_pth_root needs a square matrix, got shape {matrix.shape}")
    size = matrix.shape[0]
    unit = wnp.eye(size, dtype=matrix.dtype)
    largest, _ = power_iteration(matrix, num_iters=100, error_tolerance=1e-6, precision=precision)
    damped = matrix + ridge_epsilon * wnp.maximum(largest, 1e-16) * unit
    if size == 1:
        return damped ** (-1.0 / p), wnp.zeros((), matrix.dtype)
    multiply = lambda a, b: wnp.matmul(a, b, precision=precision)
    alpha = -1.0 / p
    z = (1 + p) / (2 * wnp.linalg.norm(damped))

    def power(a: Any) -> Any:
        result = a
        for _ in range(p - 1):
            result = multiply(result, a)
        return result

    def better(carry: Any) -> Any:
        count, _, _, _, error, going = carry
        return going & (error > error_tolerance) & (count < num_iters)

    def step(carry: Any) -> Any:
        count, product, root, _, error, _ = carry
        factor = (1 - alpha) * unit + alpha * product
        new_product = multiply(power(factor), product)
        new_root = multiply(root, factor)
        new_error = wnp.max(wnp.abs(new_product - unit))
        # Rounding errors end the convergence; stop then, before the iteration diverges.
        return count + 1, new_product, new_root, root, new_error, new_error < error * 1.2

    product = damped * z
    root = unit * z ** (1.0 / p)
    error = wnp.max(wnp.abs(product - unit))
    start = (wnp.zeros((), wnp.int32), product, root, root, error, wnp.array(True))
    _, product, root, before, error, converging = lax.while_loop(better, step, start)
    root = wnp.where(converging, root, before)
    return root.astype(matrix.dtype), wnp.max(wnp.abs(product - unit)).astype(matrix.dtype)


def nnls(A: ArrayLike, b: ArrayLike, iters: int, unroll: int = 1, L: ArrayLike | None = None) -> Array:
    """Return the x >= 0 that minimizes `||A x - b||`, by accelerated projected gradients with restarts.

    `L` is the largest eigenvalue of A^T A; by default it is computed.
    """
    A, b = wnp.asarray(A), wnp.asarray(b)
    if A.ndim != 2 or b.shape[:1] != A.shape[:1]:
        raise ArgumentError(f"nnls needs a matrix A and a vector b with as many rows, got {A.shape} and {b.shape}")
    gram = wnp.matmul(A.T, A, precision=HIGHEST)
    right = wnp.matmul(A.T, b, precision=HIGHEST)
    if L is None:
        # Both norms are upper bounds of the eigenvalue; the power iteration may return less.
        L = wnp.minimum(wnp.linalg.norm(gram), wnp.max(wnp.sum(wnp.abs(gram), axis=0), initial=0.0))
    L = wnp.where(wnp.asarray(L) == 0, 1.0, L)

    def step(carry: Any, _: Any) -> Any:
        x, y, t = carry
        new = wnp.maximum(y - (wnp.matmul(gram, y, precision=HIGHEST) - right) / L, 0)
        turned = wnp.sum((y - new) * (new - x)) > 0
        t = wnp.where(turned, 1.0, t)
        following = (1 + wnp.sqrt(1 + 4 * t * t)) / 2
        return (new, new + wnp.where(turned, 0.0, (t - 1) / following).astype(new.dtype) * (new - x), following), None

    start = wnp.zeros(right.shape, right.dtype)
    (x, _, _), _ = lax.scan(step, (start, start, wnp.ones((), right.dtype)), None, length=iters, unroll=unroll)
    return x


__all__ = ["global_norm", "matrix_inverse_pth_root", "nnls", "power_iteration"]

_suggest(__name__)
