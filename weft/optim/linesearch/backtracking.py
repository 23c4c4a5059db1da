"""Backtracking: shortening the step until the objective decreases enough."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import weft
import weft.numpy as wnp
from weft import Array, lax
from weft.optim.base import GradientTransformationExtraArgs, Params, Updates
from weft.optim.linesearch.common import (
    arguments_for,
    cast_like,
    check_scalar,
    in_dtype,
    scalar_dtype,
    scale_updates,
)
from weft.optim.tree_utils.arithmetic import accumulator_dtype, tree_add_scale, tree_vdot, tree_zeros_like


class BacktrackingLinesearchInfo(NamedTuple):
    """The number of steps tried, and the missing decrease of the last one."""

    num_linesearch_steps: Array
    decrease_error: Array


class ScaleByBacktrackingLinesearchState(NamedTuple):
    """The last step size, and the objective (and its gradient, if stored) there."""

    learning_rate: Array
    value: Array
    grad: Updates | None
    info: BacktrackingLinesearchInfo


def scale_by_backtracking_linesearch(
    max_backtracking_steps: int,
    slope_rtol: float = 1e-4,
    decrease_factor: float = 0.8,
    increase_factor: float = 1.5,
    max_learning_rate: float | None = 1.0,
    atol: float = 0.0,
    rtol: float = 0.0,
    store_grad: bool = False,
    verbose: bool = False,
) -> GradientTransformationExtraArgs:
    """Rescale updates to `lr * u`, with lr the first of r, r * decrease_factor, ... that decreases the objective
    enough.

    The condition is `f(p + lr u) <= (1 + rtol) f(p) + c lr u.g + atol`.

    c is `slope_rtol`, r is `increase_factor` times the last step size, at most `max_learning_rate`. update needs
    `value`, `grad` and `value_fn`, and passes the extra arguments that `value_fn` takes.
    """
    where = "scale_by_backtracking_linesearch"

    def init(params: Params) -> ScaleByBacktrackingLinesearchState:
        grad = tree_zeros_like(params) if store_grad else None
        one = wnp.ones((), scalar_dtype(params))
        info = BacktrackingLinesearchInfo(wnp.zeros((), wnp.int32), one * wnp.inf)
        return ScaleByBacktrackingLinesearchState(one, one * wnp.inf, grad, info)

    def update(
        updates: Updates,
        state: ScaleByBacktrackingLinesearchState,
        params: Params | None = None,
        *,
        value: Any = None,
        grad: Any = None,
        value_fn: Callable[..., Any] | None = None,
        **extra_args: Any,
    ) -> Any:
        check_scalar(where, value_fn, value, grad, params)
        assert value_fn is not None
        fn_args = arguments_for(where, value_fn, extra_args)
        objective = lambda point: value_fn(point, **fn_args)
        dtype = accumulator_dtype(params)
        derivative = in_dtype(tree_vdot(updates, grad), dtype)
        first_value = in_dtype(value, dtype)

        def attempt(rate: Any) -> Any:
            new_value = in_dtype(objective(tree_add_scale(params, rate, updates)), dtype)
            error = new_value - (1.0 + rtol) * first_value - slope_rtol * rate * derivative - atol
            return new_value, in_dtype(wnp.where(wnp.isnan(error), wnp.inf, wnp.maximum(error, 0.0)), dtype)

        first = increase_factor * in_dtype(state.learning_rate, dtype)
        if max_learning_rate is not None:
            first = wnp.minimum(first, max_learning_rate)
        first = in_dtype(first, dtype)

        def is_undecided(search: Any) -> Any:
            count, _, _, error = search
            return (error > 0.0) & (count < max_backtracking_steps)

        def shorten(search: Any) -> Any:
            count, rate, _, _ = search
            rate = in_dtype(decrease_factor * rate, dtype)
            return (count + 1, rate, *attempt(rate))

        start = (wnp.zeros((), wnp.int32), first, *attempt(first))
        count, rate, new_value, error = lax.while_loop(is_undecided, shorten, start)
        new = scale_updates(rate, updates)
        new_grad = None
        if store_grad:
            new_grad = weft.grad(objective)(weft.tree.map(lambda p, u: p + u, params, new))
        if verbose:
            weft.debug.print("backtracking: {} steps, step size {}, value {}", count, rate, new_value)
        info = BacktrackingLinesearchInfo(count, error)
        return new, cast_like(ScaleByBacktrackingLinesearchState(rate, new_value, new_grad, info), state)

    return GradientTransformationExtraArgs(init, update)
