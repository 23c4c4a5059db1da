"""Mechanic: a wrapper that learns the scale of another optimizer's steps."""

from __future__ import annotations

from typing import Any, NamedTuple

import weft.numpy as wnp
from weft import Array
from weft.errors import ArgumentError
from weft.optim.base import (
    GradientTransformation,
    GradientTransformationExtraArgs,
    Params,
    Updates,
    with_extra_args_support,
)
from weft.optim.numerics import safe_increment
from weft.optim.transforms.adaptive import zero_count
from weft.optim.tree_mapping import map_trees, need_params
from weft.optim.tree_utils.arithmetic import initial_copy, tree_norm, tree_vdot, tree_where


class MechanicState(NamedTuple):
    """The state of the inner optimizer, steps taken, and the initial parameters; for each decay the reward so far,
    the largest and the summed squared bet, and the scale."""

    base_optimizer_state: Any
    count: Array  # type: ignore[assignment]
    r: Array
    m: Array
    v: Array
    s: Array
    x0: Params


def mechanize(
    base_optimizer: GradientTransformation,
    weight_decay: float = 1e-2,
    eps: float = 1e-8,
    s_init: float = 1e-6,
    num_betas: int = 6,
) -> GradientTransformationExtraArgs:
    """Learn the scale of an optimizer: `x = x0 - s d`, with d the sum of its steps and s learned (Cutkosky et al.
    2023).

    The scale is the sum of `num_betas` coin bettors with decays 0.9, 0.99, ...: each bets on h = <g, d>, the decrease
    of the loss for a larger scale, with the wealth from its bets so far. `base_optimizer` should have a learning rate
    of 1.
    """
    if num_betas < 1:
        raise ArgumentError(f"mechanize needs one decay or more, got num_betas={num_betas}")
    inner = with_extra_args_support(base_optimizer)

    def init(params: Params) -> MechanicState:
        zeros = wnp.zeros(num_betas, wnp.float32)
        scale = wnp.full(num_betas, s_init, wnp.float32)
        start = initial_copy(params)
        return MechanicState(inner.init(params), zero_count(), zeros, zeros, zeros, scale, start)

    def update(updates: Updates, state: MechanicState, params: Params | None = None, **extra_args: Any) -> Any:
        need_params("mechanize", params)
        steps, inner_state = inner.update(updates, state.base_optimizer_state, params, **extra_args)
        # The caller may replace parameters between init and the first step.
        start = tree_where(state.count == 0, params, state.x0)
        scale = wnp.sum(state.s)
        decay = weight_decay * scale * tree_norm(updates) / (tree_norm(params) + eps)

        def so_far(p: Any, x: Any, g: Any) -> tuple[Any, ...]:
            return (x - p) / (scale + eps), g + decay * p

        sums, derivatives = map_trees("mechanize", so_far, results=2, params=params, x0=start, updates=updates)
        betas = 1.0 - 0.1 ** wnp.arange(1.0, num_betas + 1)
        h = tree_vdot(derivatives, sums).real.astype(wnp.float32)
        m = wnp.maximum(betas * state.m, wnp.abs(h) + eps)
        v = betas**2 * state.v + h**2
        # Limit a bet by the largest one before, so that wealth stays nonnegative.
        r = betas * state.r + wnp.clip(h, -state.m, state.m) * state.s
        wealth = s_init / num_betas * m + wnp.maximum(r, 0.0)
        s = wealth / (wnp.sqrt(v) + eps)
        total = wnp.sum(s)

        def leaf(p: Any, x: Any, d: Any, u: Any) -> tuple[Any, ...]:
            return ((x - total * (d - u) - p).astype(p.dtype),)

        (new,) = map_trees("mechanize", leaf, params=params, x0=start, sums=sums, steps=steps)
        return new, MechanicState(inner_state, safe_increment(state.count), r, m, v, s, start)

    return GradientTransformationExtraArgs(init, update)
