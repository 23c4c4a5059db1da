"""Methods that estimate their learning rate: D-Adaptation, Prodigy, and MoMo, which uses the loss."""

from __future__ import annotations

from typing import Any, NamedTuple

import weft
import weft.numpy as wnp
from weft import Array
from weft.optim.base import (
    GradientTransformation,
    GradientTransformationExtraArgs,
    Params,
    ScalarOrSchedule,
    Updates,
    with_extra_args_support,
)
from weft.optim.numerics import abs_sq, safe_increment
from weft.optim.transforms.adaptive import Corrections, zero_count
from weft.optim.tree_mapping import map_trees, need_extra, need_params
from weft.optim.tree_utils.arithmetic import (
    accumulator_dtype,
    cast_to_dtypes,
    initial_copy,
    sum_of_squares,
    tree_norm,
    tree_sub,
    tree_sum,
    tree_vdot,
    tree_zeros_like,
)
from weft.optim.tree_utils.moments import correction, moving_average


class ProdigyState(NamedTuple):
    """Averages of Adam, the weighted sum of gradients, the start, the estimate, its numerator, and steps taken."""

    exp_avg: Updates
    exp_avg_sq: Updates
    grad_sum: Updates
    params0: Params
    estim_lr: Array
    numerator_weighted: Array
    count: Array  # type: ignore[assignment]


def _at(rate: ScalarOrSchedule, count: Array) -> Any:
    return rate(count) if callable(rate) else rate


def prodigy(
    learning_rate: ScalarOrSchedule = 1.0,
    betas: tuple[float, float] = (0.9, 0.999),
    beta3: float | None = None,
    eps: float = 1e-8,
    estim_lr0: float = 1e-6,
    estim_lr_coef: float = 1.0,
    weight_decay: float = 0.0,
    safeguard_warmup: bool = False,
) -> GradientTransformationExtraArgs:
    """Create AdamW with a learning rate estimated from the distance to the start (Mishchenko and Defazio 2023)."""
    b1, b2 = betas
    b3 = b2**0.5 if beta3 is None else beta3

    def init(params: Params) -> ProdigyState:
        zeros = tree_zeros_like(params)
        start, dtype = initial_copy(params), accumulator_dtype(params)
        return ProdigyState(
            zeros, zeros, zeros, start, wnp.asarray(estim_lr0, dtype), wnp.zeros((), dtype), zero_count()
        )

    def update(updates: Updates, state: ProdigyState, params: Params | None = None) -> Any:
        need_params("prodigy", params)
        count = safe_increment(state.count)
        d = state.estim_lr
        bias = wnp.sqrt(correction(b2, count)) / correction(b1, count)
        rate = d * _at(learning_rate, state.count) * bias
        weight = (d / estim_lr0) * (d if safeguard_warmup else rate)
        along = tree_vdot(updates, tree_sub(state.params0, params)).real
        numerator = b3 * state.numerator_weighted + (d / estim_lr0) * rate * along

        def gather(g: Any, m: Any, v: Any, s: Any) -> tuple[Any, ...]:
            dg = d.astype(g.dtype) * g
            return moving_average(dg, m, b1), moving_average(abs_sq(dg), v, b2), b3 * s + weight.astype(g.dtype) * g

        moments = {"exp_avg": state.exp_avg, "exp_avg_sq": state.exp_avg_sq, "grad_sum": state.grad_sum}
        m, v, s = map_trees("prodigy", gather, results=3, updates=updates, **moments)
        estimate = wnp.maximum(d, estim_lr_coef * numerator / tree_sum(weft.tree.map(wnp.abs, s)))

        def step(m: Any, v: Any, p: Any) -> tuple[Any]:
            scaled = m / (wnp.sqrt(v) + estimate.astype(m.dtype) * eps)
            return (-rate.astype(m.dtype) * (scaled + weight_decay * p),)

        (new,) = map_trees("prodigy", step, exp_avg=m, exp_avg_sq=v, params=params)
        return new, cast_to_dtypes(ProdigyState(m, v, s, state.params0, estimate, numerator, count), state)

    return with_extra_args_support(GradientTransformation(init, update))


class DAdaptAdamWState(NamedTuple):
    """Averages of Adam, the weighted sum of gradients, the estimate, its numerator, and steps taken."""

    exp_avg: Updates
    exp_avg_sq: Updates
    grad_sum: Updates
    estim_lr: Array
    numerator_weighted: Array
    count: Array  # type: ignore[assignment]


def dadapt_adamw(
    learning_rate: ScalarOrSchedule = 1.0,
    betas: tuple[float, float] = (0.9, 0.999),
    eps: float = 1e-8,
    estim_lr0: float = 1e-6,
    weight_decay: float = 0.0,
) -> GradientTransformationExtraArgs:
    """Create AdamW with a learning rate estimated by D-Adaptation (Defazio and Mishchenko 2023)."""
    b1, b2 = betas
    root = b2**0.5

    def init(params: Params) -> DAdaptAdamWState:
        zeros, dtype = tree_zeros_like(params), accumulator_dtype(params)
        return DAdaptAdamWState(zeros, zeros, zeros, wnp.asarray(estim_lr0, dtype), wnp.zeros((), dtype), zero_count())

    def update(updates: Updates, state: DAdaptAdamWState, params: Params | None = None) -> Any:
        need_params("dadapt_adamw", params)
        count = safe_increment(state.count)
        bias = wnp.sqrt(correction(b2, count)) / correction(b1, count)
        rate = state.estim_lr * _at(learning_rate, state.count) * bias

        def gather(g: Any, m: Any, v: Any, s: Any) -> tuple[Any, ...]:
            small = rate.astype(g.dtype) * g
            product = wnp.sum((s.conj() * g).real / (wnp.sqrt(v).real + eps))
            return (
                moving_average(small, m, b1),
                moving_average(abs_sq(g), v, b2),
                moving_average(small, s, root),
                product,
            )

        moments = {"exp_avg": state.exp_avg, "exp_avg_sq": state.exp_avg_sq, "grad_sum": state.grad_sum}
        m, v, s, products = map_trees("dadapt_adamw", gather, results=4, updates=updates, **moments)
        numerator = root * state.numerator_weighted + (1.0 - root) * rate * tree_sum(products)
        total = tree_sum(weft.tree.map(wnp.abs, s))
        estimate = wnp.maximum(state.estim_lr, numerator / ((1.0 - root) * total))

        def step(m: Any, v: Any, p: Any) -> tuple[Any]:
            return (-(rate.astype(m.dtype) * weight_decay * p) - m / (wnp.sqrt(v) + eps),)

        (new,) = map_trees("dadapt_adamw", step, exp_avg=m, exp_avg_sq=v, params=params)
        return new, cast_to_dtypes(DAdaptAdamWState(m, v, s, estimate, numerator, count), state)

    return with_extra_args_support(GradientTransformation(init, update))


class MomoState(NamedTuple):
    """Averages of gradients, of losses and of gradient times parameters, the lower bound, and steps taken."""

    exp_avg: Updates
    barf: Array
    gamma: Array
    lb: Array
    count: Array  # type: ignore[assignment]


def momo(
    learning_rate: ScalarOrSchedule = 1.0,
    beta: float = 0.9,
    lower_bound: float = 0.0,
    weight_decay: float = 0.0,
    adapt_lower_bound: bool = False,
) -> GradientTransformationExtraArgs:
    """Create SGD with momentum whose step size a model of the loss limits (Schaipp et al. 2023); `update` needs
    `value`.
    """

    def init(params: Params) -> MomoState:
        zero = wnp.zeros((), accumulator_dtype(params))
        return MomoState(tree_zeros_like(params), zero, zero, wnp.asarray(lower_bound, zero.dtype), zero_count())

    def update(
        updates: Updates, state: MomoState, params: Params | None = None, *, value: Any = None, **extra_args: Any
    ) -> Any:
        need_params("momo", params)
        need_extra("momo", value=value)
        # Averages start with the first gradient, not with zero.
        decay = wnp.where(state.count > 0, beta, 0.0)
        average = weft.tree.map(lambda m, g: moving_average(g, m, decay.astype(g.dtype)), state.exp_avg, updates)
        barf = moving_average(value, state.barf, decay)
        gamma = moving_average(tree_vdot(updates, params).real, state.gamma, decay)
        rate = _at(learning_rate, state.count)
        shrink = 1 + rate * weight_decay
        square = tree_norm(average, squared=True)
        product = tree_vdot(average, params).real
        bound = state.lb
        if adapt_lower_bound:
            cap = shrink * (barf - gamma) + product
            lowered = wnp.maximum(cap / (2 * shrink), lower_bound)
            bound = wnp.where(cap < shrink * bound, lowered, bound)
        gap = wnp.maximum(shrink * (barf - gamma - bound) + product, 0.0)
        longest = wnp.where(square > 0, gap / wnp.where(square > 0, square, 1.0), 0.0)
        step = wnp.minimum(longest, rate)
        if adapt_lower_bound:
            new_bound = (barf + product - gamma) - 0.5 * step * square
            bound = wnp.maximum(new_bound, lower_bound)
        factor = 1.0 / shrink - 1.0
        new = weft.tree.map(lambda m, p: factor * p - step.astype(m.dtype) * m, average, params)
        return new, cast_to_dtypes(MomoState(average, barf, gamma, bound, safe_increment(state.count)), state)

    return GradientTransformationExtraArgs(init, update)


class MomoAdamState(NamedTuple):
    """The fields of `MomoState`, and the average of squares."""

    exp_avg: Updates
    exp_avg_sq: Updates
    barf: Array
    gamma: Array
    lb: Array
    count: Array  # type: ignore[assignment]


def momo_adam(
    learning_rate: ScalarOrSchedule = 1e-2,
    b1: float = 0.9,
    b2: float = 0.999,
    eps: float = 1e-8,
    lower_bound: float = 0.0,
    weight_decay: float = 0.0,
    adapt_lower_bound: bool = False,
) -> GradientTransformationExtraArgs:
    """Create Adam whose step size a model of the loss limits (Schaipp et al. 2023); `update` needs `value`."""

    def init(params: Params) -> MomoAdamState:
        zeros, zero = tree_zeros_like(params), wnp.zeros((), accumulator_dtype(params))
        return MomoAdamState(zeros, zeros, zero, zero, wnp.asarray(lower_bound, zero.dtype), zero_count())

    def update(
        updates: Updates, state: MomoAdamState, params: Params | None = None, *, value: Any = None, **extra_args: Any
    ) -> Any:
        need_params("momo_adam", params)
        need_extra("momo_adam", value=value)
        count = safe_increment(state.count)
        barf = moving_average(value, state.barf, b1)
        gamma = moving_average(tree_vdot(updates, params).real, state.gamma, b1)
        second = Corrections(b2, count)
        seen = correction(b1, count)

        def gather(g: Any, m: Any, v: Any) -> tuple[Any, ...]:
            m, v = moving_average(g, m, b1), moving_average(abs_sq(g), v, b2)
            return m, v, eps + wnp.sqrt(second(v))

        moments = {"exp_avg": state.exp_avg, "exp_avg_sq": state.exp_avg_sq}
        m, v, scales = map_trees("momo_adam", gather, results=3, updates=updates, **moments)
        (squares,) = map_trees("momo_adam", lambda m, d: (sum_of_squares(m / wnp.sqrt(d)),), exp_avg=m, scale=scales)
        square, product = tree_sum(squares), tree_vdot(m, params).real
        rate = _at(learning_rate, state.count)
        shrink = 1 + rate * weight_decay
        bound = state.lb
        if adapt_lower_bound:
            cap = shrink * (barf - gamma) + product
            lowered = wnp.maximum(cap / (2 * shrink * seen), lower_bound)
            bound = wnp.where(cap < shrink * seen * bound, lowered, bound)
        gap = wnp.maximum(shrink * (barf - seen * bound - gamma) + product, 0.0)
        longest = wnp.where(square > 0, gap / wnp.where(square > 0, square, 1.0), 0.0)
        step = wnp.minimum(longest, rate / seen)
        if adapt_lower_bound:
            bound = wnp.maximum(((barf + product - gamma) - 0.5 * step * square) / seen, lower_bound)
        factor = 1.0 / shrink - 1.0

        def move(m: Any, d: Any, p: Any) -> tuple[Any]:
            return (factor * p - step.astype(m.dtype) * m / d,)

        (new,) = map_trees("momo_adam", move, exp_avg=m, scale=scales, params=params)
        return new, cast_to_dtypes(MomoAdamState(m, v, barf, gamma, bound, count), state)

    return GradientTransformationExtraArgs(init, update)
