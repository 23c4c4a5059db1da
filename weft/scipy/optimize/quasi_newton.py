"""Quasi-Newton methods: BFGS, with the inverse Hessian as a matrix, and L-BFGS, with the last few steps."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from weft import lax
from weft.api.differentiate import value_and_grad
from weft.base import dtypes
from weft.numpy.linalg.norms import norm as norm_of
from weft.scipy.optimize.line_search import Sample, choose, line_search

# How a minimisation ended.
CONVERGED, MOST_ITERATIONS, MOST_EVALUATIONS, NARROWED, UNBRACKETED = 0, 1, 2, 3, 5


class State(NamedTuple):
    """State of an iteration: position and the method's model of the curvature."""

    x: Any
    value: Any
    gradient: Any
    previous_value: Any
    memory: Any
    iterations: Any
    evaluations: Any
    status: Any  # -1 while the iteration continues


class Method(NamedTuple):
    """Parts in which quasi-Newton methods differ: search direction and update of the memory."""

    direction: Callable[[Any, Any], Any]  # of memory and gradient
    remember: Callable[[Any, Any, Any], Any]  # of memory, step and change of the gradient: the new memory


def bfgs(
    fun: Callable[[Any], Any],
    x0: Any,
    maxiter: int | None = None,
    norm: Any = np.inf,
    gtol: float = 1e-5,
    line_search_maxiter: int = 10,
) -> State:
    """Minimise by BFGS; the memory of the result is the inverse of the Hessian."""
    identity = np.eye(x0.shape[0], dtype=x0.dtype)

    def remember(inverse: Any, step: Any, change: Any) -> Any:
        curvature = lax.dot(change, step)
        bends = curvature > 0
        rho = 1 / lax.select(bends, curvature, lax.full_like(curvature, 1))
        left = identity - rho * step[:, None] * change[None, :]
        updated = left @ inverse @ left.T + rho * step[:, None] * step[None, :]
        return choose(bends, updated, inverse)

    method = Method(lambda inverse, gradient: -(inverse @ gradient), remember)
    limit = 200 * x0.shape[0] if maxiter is None else maxiter
    return _minimize(fun, x0, method, lax.full_like(x0, 0)[:, None] + identity, limit, norm, gtol, line_search_maxiter)


class Pairs(NamedTuple):
    """Last steps and changes of the gradient, oldest first; unused rows are zero."""

    steps: Any
    changes: Any
    inverse_curvatures: Any
    scale: Any


def lbfgs(
    fun: Callable[[Any], Any],
    x0: Any,
    maxiter: int | None = None,
    norm: Any = np.inf,
    maxcor: int = 10,
    ftol: float = 2.220446049250313e-09,
    gtol: float = 1e-5,
    maxfun: int | None = None,
    maxgrad: int | None = None,
    maxls: int = 20,
) -> State:
    """Minimise by L-BFGS with the last `maxcor` steps."""

    def direction(pairs: Pairs, gradient: Any) -> Any:
        def newest_first(q: Any, pair: Any) -> Any:
            step, change, inverse = pair
            alpha = inverse * lax.dot(step, q)
            return q - alpha * change, alpha

        def oldest_first(r: Any, pair: Any) -> Any:
            step, change, inverse, alpha = pair
            return r + step * (alpha - inverse * lax.dot(change, r)), None

        rows = pairs.steps, pairs.changes, pairs.inverse_curvatures
        q, alphas = lax.scan(newest_first, gradient, rows, reverse=True)
        r, _ = lax.scan(oldest_first, pairs.scale * q, (*rows, alphas))
        return -r

    def remember(pairs: Pairs, step: Any, change: Any) -> Any:
        curvature = lax.dot(change, step)
        bends = curvature > 0
        safe = lax.select(bends, curvature, lax.full_like(curvature, 1))

        def append(rows: Any, row: Any) -> Any:
            return lax.concatenate([rows[1:], row[None]], 0)

        new = Pairs(
            append(pairs.steps, step),
            append(pairs.changes, change),
            append(pairs.inverse_curvatures, 1 / safe),
            safe / lax.max(lax.dot(change, change), np.asarray(dtypes.finfo(x0.dtype).tiny, x0.dtype)),
        )
        return choose(bends, new, pairs)

    rows = lax.full((maxcor, x0.shape[0]), 0, x0.dtype)
    memory = Pairs(rows, rows, lax.full((maxcor,), 0, x0.dtype), lax.full((), 1, x0.dtype))
    limits = [limit for limit in (maxfun, maxgrad) if limit is not None]
    return _minimize(
        fun,
        x0,
        Method(direction, remember),
        memory,
        200 * x0.shape[0] if maxiter is None else maxiter,
        norm,
        gtol,
        maxls,
        ftol,
        min(limits) if limits else None,
    )


def _minimize(
    fun: Callable[[Any], Any],
    x0: Any,
    method: Method,
    memory: Any,
    maxiter: Any,
    norm: Any,
    gtol: Any,
    search_maxiter: Any,
    ftol: Any = None,
    maxfun: Any = None,
) -> State:
    both = value_and_grad(fun)

    def improve(state: State) -> State:
        direction = method.direction(state.memory, state.gradient)
        derivative = lax.dot(state.gradient, direction)
        # Rounding can leave a direction along which the function does not decrease; then it is the gradient's.
        downhill = derivative < 0
        direction = choose(downhill, direction, -state.gradient)
        derivative = lax.select(downhill, derivative, -lax.dot(state.gradient, state.gradient))

        def evaluate(step: Any) -> Sample:
            value, gradient = both(state.x + step * direction)
            return Sample(step, value, lax.dot(gradient, direction), gradient)

        start = Sample(lax.full_like(state.value, 0), state.value, derivative, state.gradient)
        guess = 2.02 * (state.value - state.previous_value) / derivative
        guess = lax.select((guess > 0) & (guess < 1), guess, lax.full_like(guess, 1))
        sample, count, closed = line_search(evaluate, start, guess, search_maxiter)
        step = sample.step * direction
        size, previous_size = norm_of(sample.gradient, norm), norm_of(state.gradient, norm)
        # Where values differ by rounding only, the gradient says whether a step led anywhere.
        moved = (sample.step > 0) & ((sample.value < state.value) | (size < 0.5 * previous_size))
        converged = size < gtol
        if ftol is not None:
            scale = lax.max(lax.max(lax.abs(state.value), lax.abs(sample.value)), lax.full_like(sample.value, 1))
            converged |= moved & ((state.value - sample.value) <= ftol * scale) & (sample.value <= state.value)
        iterations, evaluations = state.iterations + 1, state.evaluations + count
        status = lax.select(iterations >= maxiter, np.int32(MOST_ITERATIONS), np.int32(-1))
        if maxfun is not None:
            status = lax.select(evaluations >= maxfun, np.int32(MOST_EVALUATIONS), status)
        stuck = lax.select(closed | (sample.step > 0), np.int32(NARROWED), np.int32(UNBRACKETED))
        status = lax.select(converged, np.int32(CONVERGED), lax.select(moved, status, stuck))
        return State(
            state.x + step,
            sample.value,
            sample.gradient,
            state.value,
            choose(moved, method.remember(state.memory, step, sample.gradient - state.gradient), state.memory),
            iterations,
            evaluations,
            status,
        )

    value, gradient = both(x0)
    size = norm_of(gradient, norm)
    status = lax.select(size < gtol, np.int32(CONVERGED), np.int32(-1))
    if isinstance(maxiter, (int, np.integer)) and maxiter <= 0:
        status = lax.select(status == CONVERGED, status, np.int32(MOST_ITERATIONS))
    first = State(
        x0,
        value,
        gradient,
        value + norm_of(gradient) / 2,
        memory,
        np.zeros((), np.int32),
        np.ones((), np.int32),
        status,
    )
    return lax.while_loop(lambda state: state.status == -1, improve, first)
