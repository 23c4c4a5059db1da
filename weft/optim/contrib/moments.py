"""Relatives of Adam: ADOPT, AdEMAMix and its simplified form, ACProp, MADGRAD."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import weft.numpy as wnp
from weft import Array
from weft.optim.base import (
    GradientTransformation,
    GradientTransformationExtraArgs,
    MaskOrFn,
    Params,
    ScalarOrSchedule,
    Updates,
)
from weft.optim.numerics import abs_sq, safe_increment
from weft.optim.transforms.adaptive import (
    Corrections,
    ScaleByAdamState,
    ScaleByBeliefState,
    in_dtype,
    plus,
    zero_count,
)
from weft.optim.transforms.adding import add_decayed_weights
from weft.optim.transforms.combining import chain
from weft.optim.transforms.scaling import scale_by_learning_rate
from weft.optim.tree_mapping import map_trees, need_params
from weft.optim.tree_utils.arithmetic import initial_copy, tree_zeros_like
from weft.optim.tree_utils.moments import moving_average


def _fourth_root(step: Any) -> Any:
    return step**0.25


def scale_by_adopt(
    b1: float = 0.9,
    b2: float = 0.9999,
    eps: float = 1e-6,
    mu_dtype: Any = None,
    *,
    nesterov: bool = False,
    use_clipping: bool = True,
    clip_value_fn: Callable[[Any], Any] = _fourth_root,
) -> GradientTransformation:
    """Average `clip(g / max(sqrt(v), eps))`, where v excludes this gradient. The first step only initializes v."""

    def init(params: Params) -> ScaleByAdamState:
        return ScaleByAdamState(zero_count(), tree_zeros_like(params, mu_dtype), tree_zeros_like(params))

    def update(updates: Updates, state: ScaleByAdamState, params: Params | None = None) -> Any:
        started = state.count > 0
        bound = clip_value_fn(state.count)

        def leaf(g: Any, m: Any, v: Any) -> tuple[Any, ...]:
            scaled = g / wnp.maximum(wnp.sqrt(v), eps)
            if use_clipping:
                limit = wnp.asarray(bound, scaled.dtype)
                scaled = wnp.clip(scaled, -limit, limit)
            new_v = wnp.where(started, moving_average(abs_sq(g), v, b2), abs_sq(g))
            new_m = wnp.where(started, moving_average(scaled, m, b1), m)
            step = wnp.where(started, moving_average(scaled, new_m, b1), new_m) if nesterov else new_m
            return step, in_dtype(new_m, mu_dtype), new_v

        new, mu, nu = map_trees("scale_by_adopt", leaf, results=3, updates=updates, mu=state.mu, nu=state.nu)
        return new, ScaleByAdamState(safe_increment(state.count), mu, nu)

    return GradientTransformation(init, update)


def adopt(
    learning_rate: ScalarOrSchedule,
    b1: float = 0.9,
    b2: float = 0.9999,
    eps: float = 1e-6,
    mu_dtype: Any = None,
    *,
    nesterov: bool = False,
    use_clipping: bool = True,
    clip_value_fn: Callable[[Any], Any] = _fourth_root,
) -> GradientTransformationExtraArgs:
    """Create ADOPT: Adam that converges for any b2, since v excludes the gradient it divides (Taniguchi et al.
    2024).
    """
    options: dict[str, Any] = {"nesterov": nesterov, "use_clipping": use_clipping, "clip_value_fn": clip_value_fn}
    return chain(scale_by_adopt(b1, b2, eps, mu_dtype, **options), scale_by_learning_rate(learning_rate))


class ScaleByAdemamixState(NamedTuple):
    """Number of steps taken (twice), the fast and the slow average of gradients, and that of squares."""

    count: Array  # type: ignore[assignment]
    count_m2: Array
    m1: Updates
    m2: Updates
    nu: Updates


def scale_by_ademamix(
    b1: float = 0.9,
    b2: float = 0.999,
    b3: ScalarOrSchedule = 0.9999,
    alpha: ScalarOrSchedule = 6.0,
    eps: float = 1e-8,
    eps_root: float = 0.0,
    mu_dtype: Any = None,
) -> GradientTransformation:
    """Rescale updates to `(m1 + alpha * m2) / (sqrt(v + eps_root) + eps)`, with a fast and a slow average of
    gradients.
    """

    def init(params: Params) -> ScaleByAdemamixState:
        zeros = tree_zeros_like(params, mu_dtype)
        return ScaleByAdemamixState(zero_count(), zero_count(), zeros, zeros, tree_zeros_like(params))

    def update(updates: Updates, state: ScaleByAdemamixState, params: Params | None = None) -> Any:
        count = safe_increment(state.count)
        slow: Any = b3(state.count_m2) if callable(b3) else b3
        share: Any = alpha(state.count_m2) if callable(alpha) else alpha
        first, second = Corrections(b1, count), Corrections(b2, count)

        def leaf(g: Any, m1: Any, m2: Any, v: Any) -> tuple[Any, ...]:
            m1, m2, v = moving_average(g, m1, b1), moving_average(g, m2, slow), moving_average(abs_sq(g), v, b2)
            step = (first(m1) + share * m2) / plus(wnp.sqrt(plus(second(v), eps_root)), eps)
            return step, in_dtype(m1, mu_dtype), in_dtype(m2, mu_dtype), v

        moments = {"m1": state.m1, "m2": state.m2, "nu": state.nu}
        new, m1, m2, nu = map_trees("scale_by_ademamix", leaf, results=4, updates=updates, **moments)
        return new, ScaleByAdemamixState(count, safe_increment(state.count_m2), m1, m2, nu)

    return GradientTransformation(init, update)


def ademamix(
    learning_rate: ScalarOrSchedule,
    b1: float = 0.9,
    b2: float = 0.999,
    b3: ScalarOrSchedule = 0.9999,
    alpha: ScalarOrSchedule = 5.0,
    eps: float = 1e-8,
    eps_root: float = 0.0,
    mu_dtype: Any = None,
    weight_decay: ScalarOrSchedule = 0.0,
    mask: MaskOrFn | None = None,
) -> GradientTransformationExtraArgs:
    """Create AdEMAMix: AdamW with a second, much slower average of gradients (Pagliardini et al. 2024)."""
    return chain(
        scale_by_ademamix(b1, b2, b3, alpha, eps, eps_root, mu_dtype),
        add_decayed_weights(weight_decay, mask),
        scale_by_learning_rate(learning_rate),
    )


class ScaleBySimplifiedAdEMAMixState(NamedTuple):
    """Number of steps taken, the decaying sum of gradients and the average of squares."""

    t: Array
    m: Updates
    n: Updates


def scale_by_simplified_ademamix(
    b1: float = 0.99, b2: float = 0.95, alpha: float = 0.0, eps: float = 1e-8, eps_root: float = 0.0
) -> GradientTransformation:
    """Rescale updates to `(m + alpha * g) / (sqrt(v + eps_root) + eps)`, with `m = b1 * m + g`."""

    def init(params: Params) -> ScaleBySimplifiedAdEMAMixState:
        return ScaleBySimplifiedAdEMAMixState(zero_count(), tree_zeros_like(params), tree_zeros_like(params))

    def update(updates: Updates, state: ScaleBySimplifiedAdEMAMixState, params: Params | None = None) -> Any:
        count = safe_increment(state.t)
        second = Corrections(b2, count)

        def leaf(g: Any, m: Any, v: Any) -> tuple[Any, ...]:
            m, v = b1 * m + g, moving_average(abs_sq(g), v, b2)
            return (m + alpha * g) / plus(wnp.sqrt(plus(second(v), eps_root)), eps), m, v

        new, m, n = map_trees("scale_by_simplified_ademamix", leaf, results=3, updates=updates, m=state.m, n=state.n)
        return new, ScaleBySimplifiedAdEMAMixState(count, m, n)

    return GradientTransformation(init, update)


def simplified_ademamix(
    learning_rate: ScalarOrSchedule,
    b1: float = 0.99,
    b2: float = 0.95,
    alpha: float = 0.0,
    eps: float = 1e-8,
    eps_root: float = 0.0,
    weight_decay: ScalarOrSchedule = 0.0,
    mask: MaskOrFn | None = None,
) -> GradientTransformationExtraArgs:
    """Create AdEMAMix with one sum of gradients and the gradient itself (Morwani et al. 2025)."""
    return chain(
        scale_by_simplified_ademamix(b1, b2, alpha, eps, eps_root),
        add_decayed_weights(weight_decay, mask),
        scale_by_learning_rate(learning_rate),
    )


def scale_by_acprop(
    b1: float = 0.9, b2: float = 0.999, eps: float = 1e-16, eps_root: float = 1e-16
) -> GradientTransformation:
    """Rescale updates to `g / (sqrt(s) + eps)`.

    s is the average of (g - m)^2 up to the step before, with m the mean without that g.
    """

    def init(params: Params) -> ScaleByBeliefState:
        return ScaleByBeliefState(zero_count(), tree_zeros_like(params), tree_zeros_like(params))

    def update(updates: Updates, state: ScaleByBeliefState, params: Params | None = None) -> Any:
        count = safe_increment(state.count)
        before = Corrections(b2, wnp.maximum(state.count, 1))
        started = state.count > 0

        def leaf(g: Any, m: Any, s: Any) -> tuple[Any, ...]:
            # Before the first gradient the variance is unknown and taken as one.
            step = g / plus(wnp.where(started, wnp.sqrt(before(s)), wnp.ones_like(s)), eps)
            return step, moving_average(g, m, b1), plus(moving_average(abs_sq(g - m), s, b2), eps_root)

        new, mu, nu = map_trees("scale_by_acprop", leaf, results=3, updates=updates, mu=state.mu, nu=state.nu)
        return new, ScaleByBeliefState(count, mu, nu)

    return GradientTransformation(init, update)


def acprop(
    learning_rate: ScalarOrSchedule,
    b1: float = 0.9,
    b2: float = 0.999,
    eps: float = 1e-16,
    eps_root: float = 1e-16,
    weight_decay: ScalarOrSchedule = 0.0,
    mask: MaskOrFn | None = None,
) -> GradientTransformationExtraArgs:
    """Create ACProp: AdaBelief whose denominator excludes the gradient it divides (Zhuang et al. 2021)."""
    return chain(
        scale_by_acprop(b1, b2, eps, eps_root),
        add_decayed_weights(weight_decay, mask),
        scale_by_learning_rate(learning_rate),
    )


class MadgradState(NamedTuple):
    """Number of steps taken, weighted sums of squares and of gradients, and the initial parameters."""

    count: Array  # type: ignore[assignment]
    grad_sum_sq: Updates
    s: Updates
    x0: Params


def scale_by_madgrad(
    learning_rate: ScalarOrSchedule, momentum: float = 0.9, eps: float = 1e-6
) -> GradientTransformation:
    """Return updates toward `x0 - s / (cbrt(v) + eps)`.

    s and v are the sums of (lr + eps) sqrt(t) g and of (lr + eps) sqrt(t) g^2.
    """

    def init(params: Params) -> MadgradState:
        copy = initial_copy(params)
        return MadgradState(zero_count(), tree_zeros_like(params), tree_zeros_like(params), copy)

    def update(updates: Updates, state: MadgradState, params: Params | None = None) -> Any:
        need_params("scale_by_madgrad", params)
        rate: Any = learning_rate(state.count) if callable(learning_rate) else learning_rate
        # The official implementation adds eps to the rate, so that it may be zero.
        weight = (rate + eps) * wnp.sqrt((state.count + 1).astype(wnp.float32))

        def leaf(g: Any, v: Any, s: Any, start: Any, p: Any) -> tuple[Any, ...]:
            factor = weight.astype(g.dtype)
            v, s = v + factor * abs_sq(g), s + factor * g
            target = start - s / (wnp.cbrt(v) + eps)
            return (1.0 - momentum) * (target - p), v, s

        trees = {"grad_sum_sq": state.grad_sum_sq, "s": state.s, "x0": state.x0, "params": params}
        new, v, s = map_trees("scale_by_madgrad", leaf, results=3, updates=updates, **trees)
        return new, MadgradState(safe_increment(state.count), v, s, state.x0)

    return GradientTransformation(init, update)


def madgrad(
    learning_rate: ScalarOrSchedule, momentum: float = 0.9, weight_decay: float = 0.0, eps: float = 1e-6
) -> GradientTransformationExtraArgs:
    """Create MADGRAD: dual averaging with momentum and cube roots of squares (Defazio and Jelassi 2021)."""
    return chain(add_decayed_weights(weight_decay), scale_by_madgrad(learning_rate, momentum, eps))
