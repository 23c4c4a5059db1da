"""Ordinary differential equations: `odeint`, with steps of the method of Dormand and Prince that adapt to errors.

Derivatives are again solutions of differential equations: of the linearised one in forward mode, of the adjoint one,
backward in time, in reverse mode.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from weft import lax
from weft.api.custom import custom_jvp
from weft.api.differentiate import jvp
from weft.api.linear_call import linear_call
from weft.api.vjp import vjp
from weft.base import dtypes, tree
from weft.base.errors import ArgumentError, ArgumentTypeError, ShapeMismatchError, TreeMismatchError
from weft.base.publish import publish as _publish
from weft.base.sequences import safe_map, safe_zip
from weft.extend.linear_util import transformation2
from weft.flatten_util import ravel_pytree
from weft.ir.interpreter import replay
from weft.ir.types import get_aval
from weft.lax.bodies import trace_body
from weft.numpy.elementwise import absolute
from weft.numpy.indexing import concrete
from weft.numpy.joining import stack
from weft.numpy.polynomial import polyval
from weft.numpy.reductions import mean, sum as sum_
from weft.numpy.selection import where
from weft.numpy.ufuncs import maximum, minimum
from weft.numpy.util import ensure_array, ensure_arrays, promote_dtypes_inexact
from weft.tree_util import tree_leaves, tree_map

__all__ = [
    "abs2",
    "fit_4th_order_polynomial",
    "initial_step_size",
    "interp_fit_dopri",
    "mean_error_ratio",
    "odeint",
    "optimal_step_size",
    "promote_dtypes_inexact",
    "ravel_first_arg",
    "ravel_first_arg_",
    "ravel_pytree",
    "runge_kutta_step",
    "safe_map",
    "safe_zip",
    "tree_leaves",
    "tree_map",
]

map = safe_map
zip = safe_zip

# The coefficients of Dormand and Prince: times of the stages, what each is computed from, the step, and its error.
_TIMES = np.array([1 / 5, 3 / 10, 4 / 5, 8 / 9, 1.0, 1.0])
_STAGES = (
    (1 / 5,),
    (3 / 40, 9 / 40),
    (44 / 45, -56 / 15, 32 / 9),
    (19372 / 6561, -25360 / 2187, 64448 / 6561, -212 / 729),
    (9017 / 3168, -355 / 33, 46732 / 5247, 49 / 176, -5103 / 18656),
    (35 / 384, 0, 500 / 1113, 125 / 192, -2187 / 6784, 11 / 84),
)
_SOLUTION = np.array([35 / 384, 0, 500 / 1113, 125 / 192, -2187 / 6784, 11 / 84, 0])
_ERROR = _SOLUTION - np.array([5179 / 57600, 0, 7571 / 16695, 393 / 640, -92097 / 339200, 187 / 2100, 1 / 40])
# Those of the solution in the middle of a step (Shampine).
_MIDDLE = np.array(
    [
        6025192743 / 30085553152 / 2,
        0,
        51252292925 / 65400821598 / 2,
        -2691868925 / 45128329728 / 2,
        187940372067 / 1594534317056 / 2,
        -1776094331 / 19743644256 / 2,
        11237099 / 235043384 / 2,
    ]
)

Dynamics = Callable[[Any, Any, Any], Any]  # of state, time and a list of parameters, without a closure


def odeint(
    func: Callable[..., Any],
    y0: Any,
    t: Any,
    *args: Any,
    rtol: float = 1.4e-8,
    atol: float = 1.4e-8,
    mxstep: float = math.inf,
    hmax: float = math.inf,
) -> Any:
    """Integrate `dy/dt = func(y, t, *args)` and return the solution at the given times.

    It has derivatives with respect to y0, t, args and all that `func` closes over, in forward and in reverse mode and
    of any order.

    Args:
        func: the derivative of y at a time, in the structure of y; or in another one with as many elements, as a list
            of numbers for a vector.
        y0: the state at the first time, a tree of arrays.
        t: a vector of floating-point times that increase.
        args: more arguments of `func`, trees of arrays.
        rtol: the error that a step may have relative to the state.
        atol: the error that a step may have beyond that.
        mxstep: at most this many steps are made between two times.
        hmax: the largest step.

    Returns:
        The states at the times, in the structure of y0 with a new first axis; NaN from where on no steps were left, or
        none was small enough.

    >>> import weft.numpy as np
    >>> from weft.experimental.ode import odeint
    >>> odeint(lambda y, t: -y, np.array(1.0), np.array([0.0, 1.0])).round(4)
    Array([1.    , 0.3679], dtype=float32)
    """
    for leaf in tree.leaves(args):
        if not _is_array(leaf):
            raise ArgumentTypeError(
                "odeint: The contents of args must be arrays or scalars.",
                received=f"{leaf!r} of type {type(leaf).__name__}",
                fix="close over other things: lambda y, t: func(y, t, other)",
            )
    (times,) = ensure_arrays("odeint", t)
    if dtypes.kind(times.dtype) != "f" or times.ndim != 1 or not times.shape[0]:
        raise ArgumentTypeError(
            "odeint: t must be a vector of floating-point times.",
            received=times.aval.short(),
            fix="t.astype(float), or weft.numpy.linspace(start, stop, count)",
        )
    known = concrete(times)
    if known is not None and not (np.diff(known) > 0).all():
        raise ArgumentError(
            "odeint: times must increase.", received=str(t), fix="func(y, -s) * -1 at times s = -t, to go back in time"
        )
    y0 = tree.map(_inexact, y0)
    flat, unravel = ravel_pytree(y0)
    args = tree.map(ensure_array, args)
    leaves, args_tree = tree.flatten(args)

    def flat_func(y: Any, time: Any, *flat_args: Any) -> Any:
        found = func(unravel(y), time, *tree.unflatten(args_tree, flat_args))
        found_tree, y_tree = tree.structure(found), tree.structure(y0)
        if found_tree != y_tree:
            # A list of numbers may stand for a vector: only the order of the elements counts.
            parts = [ensure_array(out) for out in tree.leaves(found)]
            if sum(part.size for part in parts) != flat.size:
                raise TreeMismatchError(
                    "odeint: func must return a value in the structure of y0, or as many elements.",
                    received=f"{found_tree} for {y_tree}",
                )
            return ravel_pytree([lax.convert_element_type(part, flat.dtype) for part in parts])[0]
        for out, state in safe_zip(tree.leaves(found), tree.leaves(y0)):
            if get_aval(out).shape != state.shape:  # type: ignore[attr-defined]
                raise ShapeMismatchError(
                    "odeint: func must return arrays of the shapes of y0.",
                    received=f"{get_aval(out).short()} for {state.aval.short()}",
                )
        found = [lax.convert_element_type(out, flat.dtype) for out in tree.leaves(found)]
        return ravel_pytree(found)[0]

    operands = flat, times[0], *leaves
    in_tree = tree.structure(operands)
    types = [get_aval(x) for x in operands]
    jaxpr, constants, _, _ = trace_body(flat_func, in_tree, types, "the function of odeint,")
    count = len(constants)

    def dynamics(y: Any, time: Any, parameters: Any) -> Any:
        return replay(jaxpr, *parameters[:count], y, time, *parameters[count:])[0]

    states = _integrate(dynamics, (rtol, atol, mxstep, hmax), flat, times, [*constants, *leaves])
    return _unravel_states(states, unravel, y0)


def _is_array(x: Any) -> bool:
    return hasattr(x, "dtype") or isinstance(x, (bool, int, float, complex))


def _inexact(x: Any) -> Any:
    x = ensure_array(x)
    return lax.convert_element_type(x, dtypes.to_inexact_dtype(x.dtype))


def _unravel_states(states: Any, unravel: Callable[[Any], Any], y0: Any) -> Any:
    """Rebuild a tree of states from a matrix with one state in a row."""
    parts, start = [], 0
    for leaf in tree.leaves(y0):
        part = lax.reshape(states[:, start : start + leaf.size], (states.shape[0], *leaf.shape))
        complex_to_real = dtypes.kind(part.dtype) == "c" and dtypes.kind(leaf.dtype) != "c"
        parts.append(lax.convert_element_type(lax.real(part) if complex_to_real else part, leaf.dtype))
        start += leaf.size
    return tree.unflatten(tree.structure(y0), parts)


# -------------------------------------------------------------------------------------------------------- derivatives


def _integrate(dynamics: Dynamics, options: Any, y0: Any, times: Any, parameters: Sequence[Any]) -> Any:
    """Return the states at times, one in a row, with derivatives with respect to all of y0, times and parameters."""
    inexact = [dtypes.kind(get_aval(p).dtype) in "fc" for p in parameters]  # type: ignore[attr-defined]

    def split(parameters: Sequence[Any]) -> list[Any]:
        return [p for p, moves in safe_zip(parameters, inexact) if moves]

    def merge(parameters: Sequence[Any], changing: Sequence[Any]) -> list[Any]:
        those = iter(changing)
        return [next(those) if moves else p for p, moves in safe_zip(parameters, inexact)]

    def along(y: Any, time: Any, parameters: Any, changing: Any, directions: Any) -> tuple[Any, Any]:
        """Evaluate the dynamics and their derivative along changes of the state and of parameters."""
        return jvp(lambda y, c: dynamics(y, time, merge(parameters, c)), (y, changing), directions)

    @custom_jvp
    def solve(y0: Any, times: Any, parameters: Any) -> Any:
        return _solve(dynamics, options, y0, times, parameters)

    def tangent(residuals: Any, linear: Any) -> Any:
        y0, times, parameters, states = residuals
        y0_dot, times_dot, changes = linear
        size = y0.shape[0]

        def both(state: Any, time: Any, values: Any) -> Any:
            parameters, changes = values[: len(inexact)], values[len(inexact) :]
            y, delta = state[:size], state[size:]
            return lax.concatenate(along(y, time, parameters, split(parameters), (delta, changes)), 0)

        rates = _rates(dynamics, states, times, parameters)
        # A later initial time shortens the interval, a later final time extends it.
        start = y0_dot - rates[0] * times_dot[0].astype(y0.dtype)
        found = _integrate(both, options, lax.concatenate([y0, start], 0), times, [*parameters, *changes])
        return found[:, size:] + rates * times_dot[:, None].astype(y0.dtype)

    def adjoint(residuals: Any, cotangents: Any) -> Any:
        y0, times, parameters, states = residuals
        zeros = [lax.zeros_like_array(c) for c in split(parameters)]
        _, unravel = ravel_pytree([y0, y0, zeros])

        def backward(state: Any, time: Any, values: Any) -> Any:
            y, y_bar, _ = unravel(state)
            rate, pull = vjp(lambda y, c: dynamics(y, -time, merge(values, c)), y, split(values))
            y_rate, changes = pull(y_bar)
            return ravel_pytree([-rate, y_rate, changes])[0]

        def interval(carry: Any, x: Any) -> Any:
            y_bar, gathered = carry
            y, late, early, cotangent = x
            state, _ = ravel_pytree([y, y_bar + cotangent, gathered])
            found = _integrate(backward, options, state, stack([-late, -early]), parameters)[1]
            _, y_bar, gathered = unravel(found)
            return (y_bar, gathered), None

        carry = lax.full_like(y0, 0), zeros
        rows = states[1:], times[1:], times[:-1], cotangents[1:]
        (y_bar, gathered), _ = lax.scan(interval, carry, rows, reverse=True)
        rates = _rates(dynamics, states, times, parameters)
        weights = lax.concatenate([-y_bar[None], cotangents[1:]], 0)
        times_bar = sum_(rates * weights, axis=1)
        if dtypes.kind(times_bar.dtype) == "c":
            times_bar = lax.real(times_bar)
        return y_bar + cotangents[0], times_bar.astype(times.dtype), gathered

    def rule(primals: Any, tangents: Any) -> Any:
        y0, times, parameters = primals
        y0_dot, times_dot, parameters_dot = tangents
        states = solve(y0, times, parameters)
        residuals = y0, times, parameters, states
        return states, linear_call(tangent, adjoint, residuals, (y0_dot, times_dot, split(parameters_dot)))

    solve.defjvp(rule)
    return solve(y0, times, list(parameters))


def _rates(dynamics: Dynamics, states: Any, times: Any, parameters: Any) -> Any:
    """Evaluate the derivative of the state at each of the times."""
    return lax.map(lambda row: dynamics(row[0], row[1], parameters), (states, times))


# ---------------------------------------------------------------------------------------------------------- the method


def _solve(dynamics: Dynamics, options: Any, y0: Any, times: Any, parameters: Any) -> Any:
    rtol, atol, mxstep, hmax = options

    def func(y: Any, time: Any) -> Any:
        return dynamics(y, time.astype(times.dtype), parameters)

    def advance(state: Any) -> Any:
        k, y, rate, time, dt, before, coefficients = state
        new_y, new_rate, error, stages = runge_kutta_step(func, y, rate, time, dt)
        ratio = mean_error_ratio(error, rtol, atol, y, new_y)
        accepted = ratio <= 1.0
        fitted = interp_fit_dopri(y, new_y, stages, dt)
        next_dt = minimum(optimal_step_size(dt, ratio), hmax).astype(dt.dtype)
        choose = lambda new, old: tree.map(lambda a, b: where(accepted, a, b), new, old)
        y, rate, time, before, coefficients = choose(
            (new_y, new_rate, time + dt, time, fitted), (y, rate, time, before, coefficients)
        )
        return k + 1, y, rate, time, next_dt, before, coefficients

    def until(carry: Any, target: Any) -> Any:
        def goes_on(state: Any) -> Any:
            k, _, _, time, dt, *_ = state
            # Stop at a step that is lost in rounding or is NaN.
            more = (time < target) & (time + dt > time)
            return more if mxstep == math.inf else more & (k < mxstep)

        _, *carry = lax.while_loop(goes_on, advance, (np.zeros((), np.int32), *carry))
        _, _, time, _, before, coefficients = carry
        share = (target - before) / where(time > before, time - before, 1)
        y = polyval(coefficients, share.astype(y0.dtype))
        return carry, where(time >= target, y, np.asarray(math.nan, y.dtype))

    start = times[0]
    rate = func(y0, start)
    dt = minimum(initial_step_size(func, start, y0, 4, rtol, atol, rate), hmax).astype(times.dtype)
    coefficients = lax.concatenate([lax.full((4, *y0.shape), 0, y0.dtype), y0[None]], 0)
    _, states = lax.scan(until, [y0, rate, start, dt, start, coefficients], times[1:])
    return lax.concatenate([y0[None], states], 0)


def runge_kutta_step(func: Callable[[Any, Any], Any], y0: Any, f0: Any, t0: Any, dt: Any) -> Any:
    """Take one Dormand-Prince step from (t0, y0), where the derivative is f0. Return the new state, the derivative
    there, an estimate of the error, and the derivatives of all stages."""
    y0, f0, t0, dt = (ensure_array(x) for x in (y0, f0, t0, dt))
    width = dt.astype(y0.dtype)
    stages = [f0]
    for time, weights in safe_zip(_TIMES.tolist(), _STAGES):
        terms = [w * k for w, k in safe_zip(weights, stages) if w]
        y = y0 + width * sum(terms[1:], terms[0])
        stages.append(func(y, t0 + dt * time))
    # The last stage is at the end of the step.
    k = stack(stages)
    error = width * lax.dot_general(_ERROR.astype(k.dtype), k, (((0,), (0,)), ((), ())), precision="highest")
    return y, stages[-1], error, k


def interp_fit_dopri(y0: Any, y1: Any, k: Any, dt: Any) -> Any:
    """Fit the polynomial of degree 4 through a step from y0 to y1 with the stages k. Return its coefficients, highest
    first."""
    y0, y1, k, dt = (ensure_array(x) for x in (y0, y1, k, dt))
    width = dt.astype(y0.dtype)
    middle = lax.dot_general(_MIDDLE.astype(k.dtype), k, (((0,), (0,)), ((), ())), precision="highest")
    return stack(fit_4th_order_polynomial(y0, y1, y0 + width * middle, k[0], k[-1], dt))


def fit_4th_order_polynomial(y0: Any, y1: Any, y_mid: Any, dy0: Any, dy1: Any, dt: Any) -> tuple[Any, ...]:
    """Return the coefficients, highest first, of the polynomial of degree 4 on [0, 1] with the values y0, y_mid and y1
    and, times dt, the derivatives dy0 and dy1 at the ends."""
    y0, y1, y_mid, dy0, dy1 = (ensure_array(x) for x in promote_dtypes_inexact(y0, y1, y_mid, dy0, dy1))
    left, right = (ensure_array(dt).astype(y0.dtype) * d for d in (dy0, dy1))
    a = -2 * left + 2 * right - 8 * y0 - 8 * y1 + 16 * y_mid
    b = 5 * left - 3 * right + 18 * y0 + 14 * y1 - 32 * y_mid
    c = -4 * left + right - 11 * y0 - 5 * y1 + 16 * y_mid
    return a, b, c, left, y0


def initial_step_size(
    fun: Callable[[Any, Any], Any], t0: Any, y0: Any, order: int, rtol: Any, atol: Any, f0: Any
) -> Any:
    """Choose the first step (Hairer, Norsett and Wanner, Solving Ordinary Differential Equations I, section II.4)."""
    y0, f0 = (ensure_array(x) for x in promote_dtypes_inexact(y0, f0))
    t0 = ensure_array(t0)
    scale = atol + absolute(y0) * rtol
    size, rate = _length(y0 / scale), _length(f0 / scale)
    first = where((size < 1e-5) | (rate < 1e-5), 1e-6, 0.01 * size / where(rate > 0, rate, 1))
    ahead = fun(y0 + first.astype(y0.dtype) * f0, t0 + first.astype(t0.dtype))
    curvature = _length((ahead - f0) / scale) / first
    steep = maximum(rate, curvature)
    exponent = 1.0 / (order + 1.0)
    second = where(steep <= 1e-15, maximum(1e-6, first * 1e-3), (0.01 / where(steep > 0, steep, 1)) ** exponent)
    return minimum(100.0 * first, second)


def _length(x: Any) -> Any:
    return lax.sqrt(sum_(abs2(x)))


def mean_error_ratio(error_estimate: Any, rtol: Any, atol: Any, y0: Any, y1: Any) -> Any:
    """Return the root mean square over elements of the error relative to the tolerance; up to 1 it is acceptable."""
    allowed = atol + rtol * maximum(absolute(y0), absolute(y1))
    return lax.sqrt(mean(abs2(error_estimate / allowed)))


def optimal_step_size(
    last_step: Any,
    mean_error_ratio: Any,
    safety: float = 0.9,
    ifactor: float = 10.0,
    dfactor: float = 0.2,
    order: float = 5.0,
) -> Any:
    """Choose the next step after one with this error: as large as the error permits, but within fixed factors of the
    last."""
    ratio = ensure_array(mean_error_ratio)
    least = where(ratio < 1, 1.0, dfactor)
    factor = minimum(ifactor, maximum(where(ratio == 0, 1, ratio) ** (-1.0 / order) * safety, least))
    return where(ratio == 0, last_step * ifactor, last_step * factor)


def abs2(x: Any) -> Any:
    """Return the square of the magnitude."""
    x = ensure_array(x)
    return lax.square(lax.real(x)) + lax.square(lax.imag(x)) if dtypes.kind(x.dtype) == "c" else x * x


def ravel_first_arg(f: Callable[..., Any], unravel: Callable[[Any], Any], debug_info: Any = None) -> Callable[..., Any]:
    """Convert `f` to a function of a vector, from which `unravel` makes its first argument, with a vector as result."""

    def on_vector(y_flat: Any, *args: Any) -> Any:
        return ravel_pytree(f(unravel(y_flat), *args))[0]

    return on_vector


@transformation2
def ravel_first_arg_(f: Callable[..., Any], unravel: Callable[[Any], Any], y_flat: Any, *args: Any) -> Any:
    """Apply `ravel_first_arg` to a function wrapped by `weft.extend.linear_util`."""
    return ravel_first_arg(f, unravel)(y_flat, *args)


_publish(__name__)
