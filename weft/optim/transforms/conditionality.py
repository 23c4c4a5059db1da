"""Transformations that are applied in some steps only."""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

import weft
import weft.numpy as wnp
from weft import Array, lax
from weft.optim.base import (
    GradientTransformation,
    GradientTransformationExtraArgs,
    Params,
    Updates,
    with_extra_args_support,
)
from weft.optim.numerics import safe_increment


class ConditionFn(Protocol):
    """`should_transform(step, **extra_args) -> bool`."""

    def __call__(self, step: Array, **extra_args: Any) -> Array: ...


class ConditionallyTransformState(NamedTuple):
    """The inner state and the number of calls."""

    inner_state: Any
    step: Array


class ConditionallyMaskState(NamedTuple):
    """The number of calls and the inner state."""

    step: Array
    inner_state: Any


class ApplyIfFiniteState(NamedTuple):
    """The number of errors in a row, whether the last updates were finite, the number of all errors, and the inner
    state.
    """

    notfinite_count: Array
    last_finite: Array
    total_notfinite: Array
    inner_state: Any


def _apply_if(condition: Any, inner: Any, updates: Updates, state: Any, params: Any, zero: bool, **extra: Any) -> Any:
    """Run inner.update if the condition holds; else return the updates (or zeros) and the old state."""

    def apply(_: Any) -> Any:
        return inner.update(updates, state, params, **extra)

    kinds = weft.eval_shape(apply, None)[0]

    def leave(_: Any) -> Any:
        if zero:
            return weft.tree.map(lambda kind: wnp.zeros(kind.shape, kind.dtype), kinds), state
        return weft.tree.map(lambda kind, leaf: wnp.asarray(leaf).astype(kind.dtype), kinds, updates), state

    return lax.cond(condition, apply, leave, None)


def conditionally_transform(
    inner: GradientTransformation, should_transform_fn: ConditionFn, forward_extra_args: bool = False
) -> GradientTransformationExtraArgs:
    """Apply `inner` in steps for which `should_transform_fn(step)` is true; else return updates unchanged."""
    inner = with_extra_args_support(inner)

    def init(params: Params) -> ConditionallyTransformState:
        return ConditionallyTransformState(inner.init(params), wnp.zeros((), wnp.int32))

    def update(updates: Updates, state: Any, params: Params | None = None, **extra_args: Any) -> Any:
        condition = should_transform_fn(state.step, **(extra_args if forward_extra_args else {}))
        new, inner_state = _apply_if(condition, inner, updates, state.inner_state, params, False, **extra_args)
        return new, ConditionallyTransformState(inner_state, safe_increment(state.step))

    return GradientTransformationExtraArgs(init, update)


def conditionally_mask(
    inner: GradientTransformation, should_transform_fn: ConditionFn, forward_extra_args: bool = False
) -> GradientTransformationExtraArgs:
    """Apply `inner` in steps for which `should_transform_fn(step)` is true; else return zero."""
    inner = with_extra_args_support(inner)

    def init(params: Params) -> ConditionallyMaskState:
        return ConditionallyMaskState(wnp.zeros((), wnp.int32), inner.init(params))

    def update(updates: Updates, state: Any, params: Params | None = None, **extra_args: Any) -> Any:
        condition = should_transform_fn(state.step, **(extra_args if forward_extra_args else {}))
        new, inner_state = _apply_if(condition, inner, updates, state.inner_state, params, True, **extra_args)
        return new, ConditionallyMaskState(safe_increment(state.step), inner_state)

    return GradientTransformationExtraArgs(init, update)


def apply_if_finite(inner: GradientTransformation, max_consecutive_errors: int) -> GradientTransformationExtraArgs:
    """Apply `inner` to finite updates and skip others, up to a maximal number of errors in a row.

    Args:
        inner: a transformation.
        max_consecutive_errors: the largest number of updates to skip in a row.

    Returns:
        A `GradientTransformationExtraArgs`.

    >>> import weft.numpy as wnp
    >>> from weft import optim
    >>> optimizer = optim.apply_if_finite(optim.sgd(0.1), 3)
    >>> optimizer.update(wnp.array([wnp.nan]), optimizer.init(wnp.ones(1)))[0]
    Array([0.], dtype=float32)
    """
    inner = with_extra_args_support(inner)

    def init(params: Params) -> ApplyIfFiniteState:
        zero = wnp.zeros((), wnp.int32)
        return ApplyIfFiniteState(zero, wnp.array(True), zero, inner.init(params))

    def update(updates: Updates, state: ApplyIfFiniteState, params: Params | None = None, **extra_args: Any) -> Any:
        finite = wnp.array(True)
        for leaf in weft.tree.leaves(updates):
            finite = wnp.logical_and(finite, wnp.all(wnp.isfinite(leaf)))
        errors = wnp.where(finite, 0, safe_increment(state.notfinite_count))
        use = wnp.logical_or(finite, errors > max_consecutive_errors)
        new, inner_state = _apply_if(use, inner, updates, state.inner_state, params, True, **extra_args)
        total = wnp.where(finite, state.total_notfinite, safe_increment(state.total_notfinite))
        return new, ApplyIfFiniteState(errors, finite, total, inner_state)

    return GradientTransformationExtraArgs(init, update)
