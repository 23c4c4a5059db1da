"""Wrappers: sharpness-aware minimization, complex numbers as pairs, normalized gradients, and plateaus."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import weft
import weft.numpy as wnp
from weft import Array, lax
from weft.errors import ArgumentError
from weft.optim.base import (
    EmptyState,
    GradientTransformation,
    GradientTransformationExtraArgs,
    Params,
    Updates,
    stateless,
    with_extra_args_support,
)
from weft.optim.numerics import safe_increment
from weft.optim.tree_mapping import need_extra, need_params
from weft.optim.tree_utils.arithmetic import initial_copy, tree_add, tree_norm, tree_sub, tree_where
from weft.optim.update import apply_updates

NormalizeState = EmptyState


def normalize() -> GradientTransformation:
    """Normalize updates to `g / ||g||`, with the norm over all leaves."""

    def normalize_updates(updates: Updates, params: Params | None) -> Updates:
        norm = tree_norm(updates)
        return weft.tree.map(lambda g: g / norm.astype(g.dtype), updates)

    return stateless(normalize_updates)


class SAMState(NamedTuple):
    """Number of steps since parameters were restored, the states of both optimizers, and the restored parameters."""

    steps_since_sync: Array
    opt_state: Any
    adv_state: Any
    cache: Params | None


def sam(
    optimizer: GradientTransformation,
    adv_optimizer: GradientTransformation,
    sync_period: int = 2,
    reset_state: bool = True,
    opaque_mode: bool = False,
    batch_axis_name: str | None = None,
) -> GradientTransformationExtraArgs:
    """Step uphill with `adv_optimizer`, then from the original parameters downhill with the gradient found there.

    Without `opaque_mode` the last of `sync_period` calls is a real step, and the others move the parameters uphill.
    With `opaque_mode` each call is a real step, and `update` needs `grad_fn(params, step)` for gradients uphill (Foret
    et al. 2021).
    """
    if sync_period < 2:
        raise ArgumentError(f"sam needs a sync_period of at least 2, uphill and down, got {sync_period}")
    outer, uphill = with_extra_args_support(optimizer), with_extra_args_support(adv_optimizer)
    reduced = (lambda g: g) if batch_axis_name is None else (lambda g: lax.pmean(g, batch_axis_name))

    def init(params: Params) -> SAMState:
        cache = None if opaque_mode else initial_copy(params)
        return SAMState(wnp.zeros((), wnp.int32), outer.init(params), uphill.init(params), cache)

    def climb(updates: Updates, state: Any, params: Params) -> Any:
        steps, state = uphill.update(updates, state, params)
        return weft.tree.map(lambda u: -u, steps), state

    def plain(updates: Updates, state: SAMState, params: Params | None = None, **extra_args: Any) -> Any:
        need_params("sam", params)
        first = state.steps_since_sync == 0
        last = state.steps_since_sync == sync_period - 1
        cache = tree_where(first, params, state.cache)
        up, up_state = climb(updates, state.adv_state, params)
        down, down_state = outer.update(updates, state.opt_state, cache, **extra_args)
        down = tree_sub(tree_add(cache, down), params)
        choose = lambda a, b: weft.tree.map(lambda x, y: wnp.where(last, x, y), a, b)
        if reset_state:
            up_state = choose(uphill.init(params), up_state)
        else:
            up_state = choose(state.adv_state, up_state)
        steps = (state.steps_since_sync + 1) % sync_period
        return choose(down, up), SAMState(steps, choose(down_state, state.opt_state), up_state, cache)

    def opaque(
        updates: Updates,
        state: SAMState,
        params: Params | None = None,
        *,
        grad_fn: Callable[[Params, int], Updates] | None = None,
        **extra_args: Any,
    ) -> Any:
        need_params("sam", params)
        need_extra("sam with opaque_mode", grad_fn=grad_fn)
        assert grad_fn is not None
        high, up_state, gradient = params, state.adv_state, updates
        for step in range(sync_period - 1):
            up, up_state = climb(gradient, up_state, high)
            high = apply_updates(high, up)
            gradient = weft.tree.map(reduced, grad_fn(high, step))
        new, down_state = outer.update(gradient, state.opt_state, params, **extra_args)
        if reset_state:
            up_state = uphill.init(params)
        return new, SAMState(state.steps_since_sync, down_state, up_state, None)

    return GradientTransformationExtraArgs(init, opaque if opaque_mode else plain)


class SplitRealAndImaginaryArrays(NamedTuple):
    """A complex array as two real arrays."""

    real: Array
    imaginary: Array


class SplitRealAndImaginaryState(NamedTuple):
    """The state of the inner transformation."""

    inner_state: Any


def split_real_and_imaginary(inner: GradientTransformation) -> GradientTransformationExtraArgs:
    """Apply `inner` to each complex leaf as a pair of real leaves."""
    inner = with_extra_args_support(inner)

    def split(leaf: Any) -> Any:
        return SplitRealAndImaginaryArrays(leaf.real, leaf.imag) if wnp.iscomplexobj(leaf) else leaf

    def merge(leaf: Any) -> Any:
        return leaf.real + leaf.imaginary * 1j if isinstance(leaf, SplitRealAndImaginaryArrays) else leaf

    is_pair = lambda node: isinstance(node, SplitRealAndImaginaryArrays)

    def init(params: Params) -> SplitRealAndImaginaryState:
        return SplitRealAndImaginaryState(inner.init(weft.tree.map(split, params)))

    def update(updates: Updates, state: SplitRealAndImaginaryState, params: Params | None = None, **extra: Any) -> Any:
        pairs = None if params is None else weft.tree.map(split, params)
        new, inner_state = inner.update(weft.tree.map(split, updates), state.inner_state, pairs, **extra)
        return weft.tree.map(merge, new, is_leaf=is_pair), SplitRealAndImaginaryState(inner_state)

    return GradientTransformationExtraArgs(init, update)


class ReduceLROnPlateauState(NamedTuple):
    """The scale, the best value, the number of values since, the remaining cooldown, and the running average."""

    scale: Array
    best_value: Array
    plateau_count: Array
    cooldown_count: Array
    count: Array  # type: ignore[assignment]
    avg_value: Array


def reduce_on_plateau(
    factor: float = 0.1,
    patience: int = 10,
    rtol: float = 1e-4,
    atol: float = 0.0,
    cooldown: int = 0,
    accumulation_size: int = 1,
    min_scale: float = 0.0,
) -> GradientTransformationExtraArgs:
    """Multiply updates by a scale that shrinks by `factor` when `value` does not improve `patience` times in a row.

    Values are averaged over `accumulation_size` steps. A value is an improvement if it is below (1 - rtol) * best -
    atol.
    """
    if not 0.0 < factor < 1.0:
        raise ArgumentError(f"reduce_on_plateau needs a factor between 0 and 1, got {factor}")
    if rtol < 0.0 or atol < 0.0 or (rtol == 0.0 and atol == 0.0) or rtol > 1.0:
        raise ArgumentError(
            f"reduce_on_plateau needs rtol in [0, 1] and atol, one above 0; got rtol={rtol}, atol={atol}"
        )

    def init(params: Params) -> ReduceLROnPlateauState:
        zero = wnp.zeros((), wnp.int32)
        one, infinite = wnp.ones((), wnp.float32), wnp.asarray(wnp.inf, wnp.float32)
        return ReduceLROnPlateauState(one, infinite, zero, zero, zero, wnp.zeros((), wnp.float32))

    def judge(state: ReduceLROnPlateauState) -> ReduceLROnPlateauState:
        better = state.avg_value < (1 - rtol) * state.best_value - atol
        best = wnp.where(better, state.avg_value, state.best_value)
        waited = wnp.where(better, 0, safe_increment(state.plateau_count))
        cooling = state.cooldown_count > 0
        reduce = wnp.logical_and(~cooling, waited == patience)
        waited = wnp.where(cooling | reduce, 0, waited)
        left = wnp.where(cooling, state.cooldown_count - 1, wnp.where(reduce, cooldown, 0))
        scale = wnp.where(reduce, wnp.maximum(state.scale * factor, min_scale), state.scale)
        return ReduceLROnPlateauState(
            scale, best, waited, left.astype(wnp.int32), wnp.zeros((), wnp.int32), wnp.zeros((), wnp.float32)
        )

    def update(
        updates: Updates,
        state: ReduceLROnPlateauState,
        params: Params | None = None,
        *,
        value: Any = None,
        **extra_args: Any,
    ) -> Any:
        need_extra("reduce_on_plateau", value=value)
        count = state.count + 1
        value = wnp.asarray(value, wnp.float32)
        gathered = state._replace(count=count, avg_value=state.avg_value + (value - state.avg_value) / count)
        judged = judge(gathered)
        new = weft.tree.map(lambda a, b: wnp.where(count == accumulation_size, a, b), judged, gathered)
        return weft.tree.map(lambda g: new.scale.astype(g.dtype) * g, updates), new

    return GradientTransformationExtraArgs(init, update)
