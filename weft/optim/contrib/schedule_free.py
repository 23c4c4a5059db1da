"""Schedule-free methods: an average of the iterates in place of a decaying learning rate."""

from __future__ import annotations

from typing import Any, NamedTuple

import weft
import weft.numpy as wnp
from weft import Array
from weft.errors import ArgumentError
from weft.optim.base import (
    GradientTransformation,
    GradientTransformationExtraArgs,
    Params,
    ScalarOrSchedule,
    Updates,
    identity,
    with_extra_args_support,
)
from weft.optim.numerics import safe_increment
from weft.optim.optimizers.descent import sgd
from weft.optim.schedules.functions import warmup_constant_schedule
from weft.optim.transforms.adding import add_decayed_weights
from weft.optim.transforms.combining import chain
from weft.optim.transforms.scaling import scale_by_learning_rate
from weft.optim.transforms.squares import scale_by_rms
from weft.optim.tree_mapping import map_trees, need_params
from weft.optim.tree_utils.arithmetic import initial_copy, tree_cast


class ScheduleFreeState(NamedTuple):
    """The interpolation, the sum of weights, steps, the largest rate, the base optimizer's state, and its iterate."""

    b1: Array
    weight_sum: Array
    step_count: Array
    max_lr: Array
    base_optimizer_state: Any
    z: Params


def schedule_free_eval_params(state: Any, params: Params) -> Params:
    """Return the average `x = (y - (1 - b1) z) / b1` for evaluation; `params` are the trained y."""
    b1, z = getattr(state, "b1", None), getattr(state, "z", None)
    if b1 is None or z is None:
        raise ArgumentError(f"schedule_free_eval_params needs the state of schedule_free, got {type(state).__name__}")
    back = lambda y, z: ((y - (1.0 - b1) * z) / b1,)
    (average,) = map_trees("schedule_free_eval_params", back, params=params, z=z)
    return weft.tree.map(lambda x, y: x.astype(y.dtype), average, params)


def schedule_free(
    base_optimizer: GradientTransformation,
    learning_rate: ScalarOrSchedule,
    b1: float = 0.9,
    weight_lr_power: float = 2.0,
    state_dtype: Any = None,
) -> GradientTransformationExtraArgs:
    """Make an optimizer schedule-free (Defazio 2024).

    z follows the base optimizer, x averages z, and gradients are taken at `y = b1 x + (1 - b1) z`.
    """
    base = with_extra_args_support(base_optimizer)

    def init(params: Params) -> ScheduleFreeState:
        zero = wnp.zeros((), wnp.float32)
        z = initial_copy(params if state_dtype is None else tree_cast(params, state_dtype))
        return ScheduleFreeState(
            wnp.asarray(b1, wnp.float32), zero, wnp.ones((), wnp.int32), zero, base.init(params), z
        )

    def update(updates: Updates, state: ScheduleFreeState, params: Params | None = None, **extra_args: Any) -> Any:
        need_params("schedule_free", params)
        rate = learning_rate(state.step_count) if callable(learning_rate) else learning_rate
        largest = wnp.maximum(state.max_lr, rate)
        weight = largest**weight_lr_power
        total = state.weight_sum + weight
        share = wnp.where(total > 0, weight / wnp.where(total > 0, total, 1.0), 0.0)
        steps, base_state = base.update(updates, state.base_optimizer_state, params, **extra_args)

        def leaf(y: Any, step: Any, z: Any) -> tuple[Any, ...]:
            wide = z.astype(y.dtype)
            x = (y - (1.0 - b1) * wide) / b1
            new_z = wide + step
            new_x = (1.0 - share) * x + share * new_z
            new_y = b1 * new_x + (1.0 - b1) * new_z
            return (new_y - y).astype(y.dtype), new_z.astype(z.dtype)

        new, z = map_trees("schedule_free", leaf, results=2, params=params, updates=steps, z=state.z)
        count = safe_increment(state.step_count)
        return new, ScheduleFreeState(state.b1, total, count, largest, base_state, z)

    return GradientTransformationExtraArgs(init, update)


def _with_warmup(learning_rate: Any, warmup_steps: int | None) -> Any:
    return learning_rate if warmup_steps is None else warmup_constant_schedule(0.0, learning_rate, warmup_steps)


def schedule_free_sgd(
    learning_rate: float = 1.0,
    warmup_steps: int | None = None,
    b1: float = 0.9,
    weight_decay: float | None = None,
    weight_lr_power: float = 2.0,
    state_dtype: Any = None,
) -> GradientTransformationExtraArgs:
    """Create schedule-free gradient descent."""
    rate = _with_warmup(learning_rate, warmup_steps)
    base = chain(identity() if weight_decay is None else add_decayed_weights(weight_decay), sgd(rate))
    return schedule_free(base, rate, b1, weight_lr_power, state_dtype)


def schedule_free_adamw(
    learning_rate: float = 0.0025,
    warmup_steps: int | None = None,
    b1: float = 0.9,
    b2: float = 0.999,
    eps: float = 1e-8,
    weight_decay: float = 0.0,
    weight_lr_power: float = 2.0,
    state_dtype: Any = None,
) -> GradientTransformationExtraArgs:
    """Create schedule-free AdamW, in which the average replaces the first moment."""
    rate = _with_warmup(learning_rate, warmup_steps)
    base = chain(
        scale_by_rms(decay=b2, eps=eps, eps_in_sqrt=False, bias_correction=True),
        add_decayed_weights(weight_decay),
        scale_by_learning_rate(rate),
    )
    return schedule_free(base, rate, b1, weight_lr_power, state_dtype)
