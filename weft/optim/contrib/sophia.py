"""Sophia: steps divided by an estimate of the diagonal of the Hessian."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import weft
import weft.numpy as wnp
from weft import Array, lax, random
from weft.optim.base import (
    GradientTransformation,
    GradientTransformationExtraArgs,
    MaskOrFn,
    Params,
    ScalarOrSchedule,
    Updates,
    with_extra_args_support,
)
from weft.optim.numerics import safe_increment
from weft.optim.transforms.adaptive import Corrections, in_dtype, zero_count
from weft.optim.transforms.adding import add_decayed_weights
from weft.optim.transforms.combining import chain
from weft.optim.transforms.scaling import scale_by_learning_rate
from weft.optim.tree_mapping import map_trees, need_extra, need_params
from weft.optim.tree_utils.arithmetic import tree_mul, tree_zeros_like
from weft.optim.tree_utils.moments import moving_average
from weft.optim.tree_utils.randomness import tree_random_like


class HutchinsonState(NamedTuple):
    """The random key of the next direction."""

    key: Array


def hutchinson_estimator_diag_hessian(random_seed: Any = None) -> GradientTransformationExtraArgs:
    """Estimate the diagonal of the Hessian of `obj_fn(params)` by `u * (H u)` with random signs u."""

    def init(params: Params) -> HutchinsonState:
        key = random.key(0) if random_seed is None else random_seed
        return HutchinsonState(random.key(key) if isinstance(key, int) else key)

    def update(
        updates: Updates,
        state: HutchinsonState,
        params: Params | None = None,
        *,
        obj_fn: Callable[[Params], Any] | None = None,
        **extra_args: Any,
    ) -> Any:
        need_params("hutchinson_estimator_diag_hessian", params)
        need_extra("hutchinson_estimator_diag_hessian", obj_fn=obj_fn)
        assert obj_fn is not None
        next_key, sign_key = random.split(state.key)
        signs = tree_random_like(sign_key, params, random.rademacher)
        product = weft.jvp(weft.grad(obj_fn), (params,), (signs,))[1]
        return tree_mul(signs, product), HutchinsonState(next_key)

    return GradientTransformationExtraArgs(init, update)


class SophiaState(NamedTuple):
    """Number of steps taken, the averages of gradients and of Hessian diagonals, and the state of their estimator."""

    count: Array  # type: ignore[assignment]
    mu: Updates
    nu: Updates
    hessian_fn_state: Any


def scale_by_sophia(
    b1: float = 0.965,
    b2: float = 0.99,
    eps: float = 1e-8,
    gamma: float = 0.01,
    clip_threshold: float | None = 1.0,
    update_interval: int = 10,
    hessian_diagonal_fn: GradientTransformation | None = None,
    mu_dtype: Any = None,
    verbose: bool = False,
    print_win_rate_every_n_steps: int = 0,
) -> GradientTransformationExtraArgs:
    """Rescale updates to `clip(m / max(gamma * h, eps))`, with h of earlier steps, estimated every `update_interval`
    steps.
    """
    estimator = with_extra_args_support(hessian_diagonal_fn or hutchinson_estimator_diag_hessian())

    def init(params: Params) -> SophiaState:
        zeros = tree_zeros_like(params)
        return SophiaState(zero_count(), tree_zeros_like(params, mu_dtype), zeros, estimator.init(params))

    def update(updates: Updates, state: SophiaState, params: Params | None = None, **extra_args: Any) -> Any:
        count = safe_increment(state.count)
        first = Corrections(b1, count)

        def estimate(operand: Any) -> Any:
            nu, inner = operand
            diagonal, inner = estimator.update(updates, inner, params, **extra_args)
            return map_trees("sophia", lambda h, v: (moving_average(h, v, b2),), hessian=diagonal, nu=nu)[0], inner

        due = state.count % update_interval == 0
        nu, inner = lax.cond(due, estimate, lambda operand: operand, (state.nu, state.hessian_fn_state))

        def leaf(g: Any, m: Any, h: Any) -> tuple[Any, ...]:
            m = moving_average(g, m, b1)
            ratio = first(m) / wnp.maximum(gamma * h, eps)
            step = ratio if clip_threshold is None else wnp.clip(ratio, -clip_threshold, clip_threshold)
            inside = wnp.sum(wnp.abs(ratio) < (wnp.inf if clip_threshold is None else clip_threshold))
            return step, in_dtype(m, mu_dtype), inside

        new, mu, inside = map_trees("sophia", leaf, results=3, updates=updates, mu=state.mu, nu=state.nu)
        if verbose and print_win_rate_every_n_steps:
            total = sum(wnp.size(leaf) for leaf in weft.tree.leaves(updates))
            share = sum(weft.tree.leaves(inside)) / total
            show = lambda: weft.debug.print("sophia: {} of the elements are not clipped", share)
            lax.cond(count % print_win_rate_every_n_steps == 0, show, lambda: None)
        return new, SophiaState(count, mu, nu, inner)

    return GradientTransformationExtraArgs(init, update)


def sophia(
    learning_rate: ScalarOrSchedule,
    b1: float = 0.965,
    b2: float = 0.99,
    eps: float = 1e-8,
    weight_decay: ScalarOrSchedule = 1e-4,
    weight_decay_mask: MaskOrFn | None = None,
    gamma: float = 0.01,
    clip_threshold: float | None = 1.0,
    update_interval: int = 10,
    hessian_diagonal_fn: GradientTransformation | None = None,
    mu_dtype: Any = None,
    verbose: bool = False,
    print_win_rate_every_n_steps: int = 0,
) -> GradientTransformationExtraArgs:
    """Create Sophia: second-order steps with elementwise clipping (Liu et al. 2023); `update` needs
    `obj_fn(params)`.
    """
    return chain(
        scale_by_sophia(
            b1,
            b2,
            eps,
            gamma,
            clip_threshold,
            update_interval,
            hessian_diagonal_fn,
            mu_dtype,
            verbose,
            print_win_rate_every_n_steps,
        ),
        add_decayed_weights(weight_decay, weight_decay_mask),
        scale_by_learning_rate(learning_rate),
    )
