"""Transformations that accumulate updates over steps: momentum, averages, and gradient accumulation."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

import weft
import weft.numpy as wnp
from weft import Array, lax
from weft.errors import ArgumentError
from weft.optim.base import (
    GradientTransformation,
    GradientTransformationExtraArgs,
    Params,
    Schedule,
    Updates,
    with_extra_args_support,
)
from weft.optim.numerics import safe_increment
from weft.optim.tree_mapping import map_trees
from weft.optim.tree_utils.arithmetic import cast_to_dtypes, tree_norm, tree_zeros_like
from weft.optim.tree_utils.moments import correction, like, moving_average


class TraceState(NamedTuple):
    """The decaying sum of updates.

    Args:
        trace: a tree like the parameters.

    >>> import weft.numpy as wnp
    >>> from weft import optim
    >>> optim.trace(0.9).init(wnp.ones(2))
    TraceState(trace=Array([0., 0.], dtype=float32))
    """

    trace: Params


class EmaState(NamedTuple):
    """Number of steps taken and the average."""

    count: Array  # type: ignore[assignment]
    ema: Params


class ApplyEvery(NamedTuple):
    """The step within a period, and the sum of updates since its start."""

    count: Array  # type: ignore[assignment]
    grad_acc: Updates


def _cast(leaf: Any, dtype: Any) -> Any:
    return leaf if dtype is None or leaf.dtype == dtype else leaf.astype(dtype)


def _sum_dtype(leaf: Any, dtype: Any) -> Any:
    """Return the dtype for sums of gradients of a leaf, with the given precision; complex for complex gradients."""
    if dtype is not None and wnp.issubdtype(leaf.dtype, wnp.complexfloating):
        return wnp.promote_types(dtype, wnp.complex64)
    return dtype


def trace(decay: float, nesterov: bool = False, accumulator_dtype: Any = None) -> GradientTransformation:
    """Accumulate momentum `t = g + decay * t`; with `nesterov` return `g + decay * t` of the new t.

    Args:
        decay: the factor of what was accumulated.
        nesterov: whether to look ahead by one step.
        accumulator_dtype: the dtype of the accumulator.

    Returns:
        A `GradientTransformation`.

    >>> import weft.numpy as wnp
    >>> from weft import optim
    >>> transform = optim.trace(0.9)
    >>> params = wnp.array([1.0, 2.0])
    >>> updates, state = transform.update(wnp.array([0.5, -1.0]), transform.init(params), params)
    >>> updates.round(3)
    Array([ 0.5, -1. ], dtype=float32)
    """

    def init(params: Params) -> TraceState:
        return TraceState(tree_zeros_like(params, accumulator_dtype))

    def update(updates: Updates, state: TraceState, params: Params | None = None) -> Any:
        def leaf(g: Any, t: Any) -> tuple[Any, ...]:
            t = g + decay * t
            return (g + decay * t if nesterov else t), _cast(t, accumulator_dtype)

        new, sums = map_trees("trace", leaf, results=2, updates=updates, trace=state.trace)
        return new, TraceState(sums)

    return GradientTransformation(init, update)


def ema(decay: float, debias: bool = True, accumulator_dtype: Any = None) -> GradientTransformation:
    """Average updates: `(1 - decay) * g + decay * m`, divided by `1 - decay**t` if `debias`.

    Args:
        decay: the factor of the average.
        debias: whether to correct for the first value, zero.
        accumulator_dtype: the dtype of the average.

    Returns:
        A `GradientTransformation`.

    >>> import weft.numpy as wnp
    >>> from weft import optim
    >>> transform = optim.ema(0.9)
    >>> params = wnp.array([1.0, 2.0])
    >>> updates, state = transform.update(wnp.array([0.5, -1.0]), transform.init(params), params)
    >>> updates.round(3)
    Array([ 0.5, -1. ], dtype=float32)
    """

    def init(params: Params) -> EmaState:
        return EmaState(wnp.zeros((), wnp.int32), tree_zeros_like(params, accumulator_dtype))

    def update(updates: Updates, state: EmaState, params: Params | None = None) -> Any:
        count = safe_increment(state.count)
        seen = correction(decay, count) if debias else None

        def leaf(g: Any, m: Any) -> tuple[Any, ...]:
            m = moving_average(g, m, decay)
            return (m if seen is None else m / like(seen, m)), _cast(m, accumulator_dtype)

        new, average = map_trees("ema", leaf, results=2, updates=updates, ema=state.ema)
        return new, EmaState(count, average)

    return GradientTransformation(init, update)


def apply_every(k: int = 1) -> GradientTransformation:
    """Return zero for k - 1 steps, then the sum of the last k updates."""

    def init(params: Params) -> ApplyEvery:
        return ApplyEvery(wnp.zeros((), wnp.int32), tree_zeros_like(params))

    def update(updates: Updates, state: ApplyEvery, params: Params | None = None) -> Any:
        step = state.count % k
        begun, emit = step != 0, step == k - 1

        def leaf(g: Any, total: Any) -> tuple[Any, ...]:
            total = wnp.where(begun, g + total, g)
            return wnp.where(emit, total, wnp.zeros_like(total)), total

        new, sums = map_trees("apply_every", leaf, results=2, updates=updates, grad_acc=state.grad_acc)
        return new, ApplyEvery((state.count + 1) % k, sums)

    return GradientTransformation(init, update)


class ShouldSkipUpdateFunction(Protocol):
    """`should_skip(updates, gradient_step, params) -> (skip, state to keep)`."""

    def __call__(self, updates: Updates, gradient_step: Array, params: Params | None) -> tuple[Array, Any]: ...


def skip_not_finite(updates: Updates, gradient_step: Array, params: Params | None) -> tuple[Array, Any]:
    """Skip updates with an infinite or NaN element."""
    counts = [wnp.sum(wnp.logical_not(wnp.isfinite(leaf))) for leaf in weft.tree.leaves(updates)]
    total = wnp.sum(wnp.array(counts))
    skip = total > 0
    return skip, {"should_skip": skip, "num_not_finite": total}


def skip_large_updates(
    updates: Updates, gradient_step: Array, params: Params | None, max_squared_norm: float
) -> tuple[Array, Any]:
    """Skip updates whose squared norm is NaN or not below the bound."""
    square = tree_norm(updates, squared=True)
    # In this form NaN, which is never below the bound, is skipped too.
    skip = wnp.logical_not(square < max_squared_norm)
    return skip, {"should_skip": skip, "norm_squared": square}


class MultiStepsState(NamedTuple):
    """The step within a round, the number of rounds, the optimizer's state, the accumulated gradients, and why one was
    skipped.
    """

    mini_step: Array
    gradient_step: Array
    inner_opt_state: Any
    acc_grads: Any
    skip_state: Any = ()


def never_skip(updates: Updates, gradient_step: Array, params: Params | None) -> tuple[Array, Any]:
    """Skip nothing."""
    return wnp.array(False), ()


class MultiSteps:
    """Gradient accumulation: the mean (or sum) of the gradients of k calls goes to an optimizer.

    Updates in between are zero.

    `every_k_schedule` is k, or a function from the number of rounds done to k. `should_skip_update_fn` may reject
    gradients, which are then ignored.
    """

    def __init__(
        self,
        opt: GradientTransformation,
        every_k_schedule: int | Schedule,
        use_grad_mean: bool = True,
        should_skip_update_fn: ShouldSkipUpdateFunction | None = None,
        accumulator_dtype: Any = wnp.float32,
    ) -> None:
        self._opt = with_extra_args_support(opt)
        if callable(every_k_schedule):
            self._every_k_schedule: Callable[[Any], Any] = every_k_schedule
        else:
            if every_k_schedule < 1:
                raise ArgumentError(f"MultiSteps needs every_k_schedule of at least 1, got {every_k_schedule}")
            self._every_k_schedule = lambda step: every_k_schedule
        self._use_grad_mean = use_grad_mean
        self._should_skip_update_fn = should_skip_update_fn or never_skip
        self._accumulator_dtype = accumulator_dtype

    @property
    def inner_opt(self) -> GradientTransformationExtraArgs:
        """The inner optimizer."""
        return self._opt

    def init(self, params: Params) -> MultiStepsState:
        """Return the state before the first step."""
        zeros = weft.tree.map(lambda p: wnp.zeros_like(p, dtype=_sum_dtype(p, self._accumulator_dtype)), params)
        step = wnp.zeros((), wnp.int32)
        _, skip_state = self._should_skip_update_fn(tree_zeros_like(params), step, params)
        return MultiStepsState(step, step, self._opt.init(params), zeros, skip_state)

    def update(
        self, updates: Updates, state: MultiStepsState, params: Params | None = None, **extra_args: Any
    ) -> tuple[Updates, MultiStepsState]:
        """Accumulate gradients; in the last step of a round, update by the optimizer."""
        k = self._every_k_schedule(state.gradient_step)
        skip, skip_state = self._should_skip_update_fn(updates, state.gradient_step, params)
        last = state.mini_step == k - 1

        def gather(g: Any, total: Any) -> tuple[Any]:
            new = total + (g - total) / (state.mini_step + 1).astype(total.dtype) if self._use_grad_mean else total + g
            return (wnp.where(skip, total, new.astype(total.dtype)),)

        (gathered,) = map_trees("MultiSteps", gather, updates=updates, acc_grads=state.acc_grads)

        def step(operand: Any) -> Any:
            total, inner = operand
            (mean_grads,) = map_trees("MultiSteps", lambda t, g: (t.astype(g.dtype),), acc_grads=total, updates=updates)
            new, new_inner = self._opt.update(mean_grads, inner, params=params, **extra_args)
            # Moments follow the gradients' dtype where it is wider than that of the parameters.
            return new, cast_to_dtypes(new_inner, inner)

        kinds = weft.eval_shape(step, (gathered, state.inner_opt_state))[0]

        def wait(operand: Any) -> Any:
            return weft.tree.map(lambda kind: wnp.zeros(kind.shape, kind.dtype), kinds), operand[1]

        emit = wnp.logical_and(last, wnp.logical_not(skip))
        new, inner = lax.cond(emit, step, wait, (gathered, state.inner_opt_state))
        one = wnp.logical_not(skip).astype(wnp.int32)
        return new, MultiStepsState(
            wnp.where(emit, 0, state.mini_step + one),
            wnp.where(emit, safe_increment(state.gradient_step), state.gradient_step),
            inner,
            weft.tree.map(lambda total: wnp.where(emit, wnp.zeros_like(total), total), gathered),
            skip_state,
        )

    def has_updated(self, state: MultiStepsState) -> Array:
        """Return whether the last call ended a round."""
        return wnp.logical_and(state.mini_step == 0, state.gradient_step > 0)

    def gradient_transformation(self) -> GradientTransformationExtraArgs:
        """Return the pair of functions, for use in a chain."""
        return GradientTransformationExtraArgs(self.init, self.update)
