"""Transformations that multiply updates: by a number, a schedule, or a function of updates and parameters."""

from __future__ import annotations

from typing import Any, NamedTuple

import weft
import weft.numpy as wnp
from weft import Array
from weft.errors import ArgumentError
from weft.optim.argument_docs import document
from weft.optim.base import (
    EmptyState,
    GradientTransformation,
    GradientTransformationExtraArgs,
    Params,
    ScalarOrSchedule,
    Schedule,
    Updates,
    identity,
    init_empty_state,
    stateless,
)
from weft.optim.numerics import safe_increment, safe_norm, safe_root_mean_squares
from weft.optim.tree_mapping import map_trees, need_extra, need_params
from weft.optim.tree_utils.arithmetic import global_norm, tree_zeros_like
from weft.typing import ArrayLike

ScaleState = EmptyState
ScaleByTrustRatioState = EmptyState


class ScaleByScheduleState(NamedTuple):
    """The number of steps taken.

    Args:
        count: the number of steps.

    >>> from weft import optim
    >>> optim.scale_by_schedule(optim.constant_schedule(1.0)).init(None).count
    Array(0, dtype=int32)
    """

    count: Array  # type: ignore[assignment]


@document("A `GradientTransformation`.", step_size="the factor.")
def scale(step_size: ArrayLike) -> GradientTransformation:
    """Multiply updates by `step_size`.

    >>> import weft.numpy as wnp
    >>> from weft import optim
    >>> transform = optim.scale(-0.1)
    >>> params = wnp.array([1.0, 2.0])
    >>> updates, state = transform.update(wnp.array([0.5, -1.0]), transform.init(params), params)
    >>> updates.round(3)
    Array([-0.05,  0.1 ], dtype=float32)
    """
    return stateless(lambda updates, params: weft.tree.map(lambda g: step_size * g, updates))


@document("A `GradientTransformation`.", step_size_fn="a function from the step count to the factor.")
def scale_by_schedule(step_size_fn: Schedule) -> GradientTransformation:
    """Multiply updates by `step_size_fn(t)`, where t counts from 0.

    >>> import weft.numpy as wnp
    >>> from weft import optim
    >>> transform = optim.scale_by_schedule(optim.linear_schedule(1.0, 0.0, 10))
    >>> params = wnp.array([1.0, 2.0])
    >>> updates, state = transform.update(wnp.array([0.5, -1.0]), transform.init(params), params)
    >>> updates.round(3)
    Array([ 0.5, -1. ], dtype=float32)
    """

    def init(params: Params) -> ScaleByScheduleState:
        return ScaleByScheduleState(wnp.zeros((), wnp.int32))

    def update(updates: Updates, state: ScaleByScheduleState, params: Params | None = None) -> Any:
        step_size = step_size_fn(state.count)
        factors: dict[Any, Any] = {}

        def leaf(g: Any) -> Any:
            # Convert once per dtype, not per leaf.
            if g.dtype not in factors:
                factors[g.dtype] = wnp.asarray(step_size, g.dtype)
            return factors[g.dtype] * g

        return weft.tree.map(leaf, updates), ScaleByScheduleState(safe_increment(state.count))

    return GradientTransformation(init, update)


def scale_by_learning_rate(
    learning_rate: ScalarOrSchedule | None = None, *, flip_sign: bool = True
) -> GradientTransformation:
    """Multiply updates by -learning_rate for descent, or by learning_rate without `flip_sign`. None does nothing.

    Args:
        learning_rate: a number, a schedule or None.
        flip_sign: whether to go downhill.

    Returns:
        A `GradientTransformation`.

    >>> import weft.numpy as wnp
    >>> from weft import optim
    >>> transform = optim.scale_by_learning_rate(0.1)
    >>> params = wnp.array([1.0, 2.0])
    >>> updates, state = transform.update(wnp.array([0.5, -1.0]), transform.init(params), params)
    >>> updates.round(3)
    Array([-0.05,  0.1 ], dtype=float32)
    """
    sign = -1 if flip_sign else 1
    if learning_rate is None:
        return identity()
    if callable(learning_rate):
        schedule = learning_rate
        return scale_by_schedule(lambda count: sign * schedule(count))
    return scale(sign * learning_rate)


def scale_by_sign() -> GradientTransformation:
    """Replace updates by their signs, element by element.

    Returns:
        A `GradientTransformation`.

    >>> import weft.numpy as wnp
    >>> from weft import optim
    >>> transform = optim.scale_by_sign()
    >>> params = wnp.array([1.0, 2.0])
    >>> updates, state = transform.update(wnp.array([0.5, -1.0]), transform.init(params), params)
    >>> updates.round(3)
    Array([ 1., -1.], dtype=float32)
    """
    return stateless(lambda updates, params: weft.tree.map(wnp.sign, updates))


def normalize_by_update_norm(scale_factor: float = 1.0, eps: float = 1e-6) -> GradientTransformation:
    """Rescale updates to `scale_factor * g / (||g|| + eps)`, with the norm over all leaves."""

    def scale_updates(updates: Updates, params: Params | None) -> Updates:
        factor = scale_factor / (global_norm(updates) + eps)
        return weft.tree.map(lambda g: g * factor.astype(g.dtype), updates)

    return stateless(scale_updates)


def centralize() -> GradientTransformation:
    """Subtract the mean over all axes except for the first, for leaves of two and more axes."""

    def leaf(g: Any) -> Any:
        return g - wnp.mean(g, axis=tuple(range(1, g.ndim)), keepdims=True) if g.ndim > 1 else g

    return stateless(lambda updates, params: weft.tree.map(leaf, updates))


def _by_params(where: str, factor: Any) -> GradientTransformation:
    """Create a transformation that multiplies each update by `factor(param)`."""

    def scale_updates(updates: Updates, params: Params | None) -> Updates:
        need_params(where, params)
        return map_trees(where, lambda u, p: (u * factor(p),), updates=updates, params=params)[0]

    return stateless(scale_updates)


@document("A `GradientTransformation`, whose `update` needs the parameters.", min_scale="the least factor.")
def scale_by_param_block_norm(min_scale: float = 1e-3) -> GradientTransformation:
    """Multiply updates by `max(||p||, min_scale)`, leaf by leaf.

    >>> import weft.numpy as wnp
    >>> from weft import optim
    >>> transform = optim.scale_by_param_block_norm()
    >>> params = wnp.array([1.0, 2.0])
    >>> updates, state = transform.update(wnp.array([0.5, -1.0]), transform.init(params), params)
    >>> updates.round(3)
    Array([ 1.118, -2.236], dtype=float32)
    """
    return _by_params("scale_by_param_block_norm", lambda p: safe_norm(p, min_scale))


@document("A `GradientTransformation`, whose `update` needs the parameters.", min_scale="the least factor.")
def scale_by_param_block_rms(min_scale: float = 1e-3) -> GradientTransformation:
    """Multiply updates by `max(rms(p), min_scale)`, leaf by leaf.

    >>> import weft.numpy as wnp
    >>> from weft import optim
    >>> transform = optim.scale_by_param_block_rms()
    >>> params = wnp.array([1.0, 2.0])
    >>> updates, state = transform.update(wnp.array([0.5, -1.0]), transform.init(params), params)
    >>> updates.round(3)
    Array([ 0.791, -1.581], dtype=float32)
    """
    return _by_params("scale_by_param_block_rms", lambda p: safe_root_mean_squares(p, min_scale))


def scale_by_trust_ratio(
    min_norm: float = 0.0, trust_coefficient: ArrayLike = 1.0, eps: float = 0.0
) -> GradientTransformation:
    """Multiply updates by `trust_coefficient * ||p|| / (||g|| + eps)`, leaf by leaf, unless a norm is zero."""

    def leaf(u: Any, p: Any) -> tuple[Any]:
        param_norm = safe_norm(p, min_norm)
        update_norm = safe_norm(u, min_norm)
        ratio = trust_coefficient * param_norm / (update_norm + eps)
        zero = wnp.logical_or(param_norm == 0.0, update_norm == 0.0)
        return (u * wnp.where(zero, wnp.array(1.0, dtype=p.dtype), ratio),)

    def scale_updates(updates: Updates, params: Params | None) -> Updates:
        need_params("scale_by_trust_ratio", params)
        return map_trees("scale_by_trust_ratio", leaf, updates=updates, params=params)[0]

    return stateless(scale_updates)


class ScaleByOptimisticGradientState(NamedTuple):
    """A flag for the first step, and the last gradient."""

    is_initial_step: Array
    previous_gradient: Updates


def scale_by_optimistic_gradient(alpha: float = 1.0, beta: float = 1.0) -> GradientTransformation:
    """Return `(alpha + beta) * g - beta * (previous g)`; in the first step the previous gradient is g."""

    def init(params: Params) -> ScaleByOptimisticGradientState:
        return ScaleByOptimisticGradientState(wnp.array(True), tree_zeros_like(params))

    def update(updates: Updates, state: ScaleByOptimisticGradientState, params: Params | None = None) -> Any:
        def leaf(g: Any, before: Any) -> tuple[Any]:
            before = wnp.where(state.is_initial_step, g, before)
            return ((alpha + beta) * g - beta * before,)

        where = "scale_by_optimistic_gradient"
        (new,) = map_trees(where, leaf, updates=updates, previous_gradient=state.previous_gradient)
        return new, ScaleByOptimisticGradientState(wnp.array(False), updates)

    return GradientTransformation(init, update)


class ScaleByDistanceOverGradientsState(NamedTuple):
    """The largest distance of each leaf, sums of squared gradient norms, and the initial parameters."""

    max_dist: Any
    grad_sum_of_squares: Any
    init_params: Params


def scale_by_distance_over_gradients(
    reps_rel: float = 1e-6, eps: float = 1e-8, param_dtype: Any = wnp.float32, global_scale: float = 1.0
) -> GradientTransformation:
    """Rescale updates to `g * (largest distance) / sqrt(sum of ||g||^2)`, leaf by leaf (layer-wise DoG)."""

    def init(params: Params) -> ScaleByDistanceOverGradientsState:
        # The first step is small relative to the parameters.
        little = lambda p: reps_rel * (1 + wnp.sqrt(wnp.sum(wnp.asarray(p, wnp.float32) ** 2)))
        return ScaleByDistanceOverGradientsState(
            weft.tree.map(little, params),
            weft.tree.map(lambda _: wnp.zeros((1,), wnp.float32), params),
            weft.tree.map(lambda p: wnp.asarray(p, param_dtype), params),
        )

    def update(updates: Updates, state: ScaleByDistanceOverGradientsState, params: Params | None = None) -> Any:
        need_params("scale_by_distance_over_gradients", params)

        def leaf(g: Any, p: Any, start: Any, farthest: Any, squares: Any) -> tuple[Any, ...]:
            wide = g.astype(wnp.float32)
            squares = squares + wnp.sum(wide * wide)
            distance = wnp.sqrt(wnp.sum((p - start).astype(wnp.float32) ** 2))
            farthest = wnp.maximum(farthest, distance)
            rate = global_scale * farthest / wnp.sqrt(squares[0] + eps)
            return rate.astype(g.dtype) * g, farthest, squares

        new, farthest, squares = map_trees(
            "scale_by_distance_over_gradients",
            leaf,
            results=3,
            same_shapes=False,
            updates=updates,
            params=params,
            init_params=state.init_params,
            max_dist=state.max_dist,
            grad_sum_of_squares=state.grad_sum_of_squares,
        )
        return new, ScaleByDistanceOverGradientsState(farthest, squares, state.init_params)

    return GradientTransformation(init, update)


def scale_by_polyak(
    f_min: float = 0.0, max_learning_rate: float = 1.0, eps: float = 0.0, variant: str = "sps"
) -> GradientTransformationExtraArgs:
    """Rescale updates to `g * min((value - f_min) / (||g||^2 + eps), max_learning_rate)`; "sps+" clips the gap at 0."""
    if variant not in ("sps", "sps+"):
        raise ArgumentError(f'variant is "sps" or "sps+", got {variant!r}')

    def update(
        updates: Updates, state: EmptyState, params: Params | None = None, *, value: Any = None, **extra_args: Any
    ) -> Any:
        need_extra("scale_by_polyak", value=value)
        square = global_norm(updates) ** 2
        gap = value - f_min
        if variant == "sps+":
            gap = wnp.maximum(gap, 0.0)
        positive = square + eps > 0
        step = wnp.where(positive, wnp.minimum(gap / wnp.where(positive, square + eps, 1.0), max_learning_rate), 0.0)
        return weft.tree.map(lambda g: step.astype(g.dtype) * g, updates), state

    return GradientTransformationExtraArgs(init_empty_state, update)
