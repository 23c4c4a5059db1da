"""Methods without a learning rate, based on the distance from the start: DoG, DoWG and coin betting."""

from __future__ import annotations

from typing import Any, NamedTuple

import weft
import weft.numpy as wnp
from weft import Array
from weft.errors import ArgumentError
from weft.optim.base import (
    GradientTransformation,
    GradientTransformationExtraArgs,
    MaskOrFn,
    Params,
    ScalarOrSchedule,
    Updates,
    identity,
)
from weft.optim.transforms.adding import add_decayed_weights
from weft.optim.transforms.combining import chain
from weft.optim.transforms.scaling import scale_by_learning_rate
from weft.optim.tree_mapping import map_trees, need_params
from weft.optim.tree_utils.arithmetic import (
    accumulator_dtype,
    cast_to_dtypes,
    initial_copy,
    tree_norm,
    tree_sub,
    tree_zeros_like,
)


class DoGState(NamedTuple):
    """A flag for the first step, the initial parameters, the largest distance from them, and sums of squared norms."""

    is_init_step: Array
    init_params: Params
    max_dist: Array
    sum_sq_norm_grads: Array


def _decay(weight_decay: Any, mask: Any) -> GradientTransformation:
    return identity() if weight_decay is None else add_decayed_weights(weight_decay, mask)


def _scale(updates: Updates, factor: Array) -> Updates:
    return weft.tree.map(lambda g: factor.astype(g.dtype) * g, updates)


def scale_by_dog(init_step: tuple[str, float] = ("heuristic", 1e-6), eps: float = 1e-8) -> GradientTransformation:
    """Rescale updates to `g * (largest distance from the start) / sqrt(sum of ||g||^2 + eps)`."""
    tag, value = init_step
    if tag not in ("distance", "learning_rate", "heuristic"):
        raise ArgumentError(f'init_step must be ("distance", "learning_rate" or "heuristic", value), got {init_step!r}')

    def init(params: Params) -> DoGState:
        dtype = accumulator_dtype(params)
        starts = {
            "distance": lambda: wnp.asarray(value, dtype),
            "learning_rate": lambda: wnp.zeros((), dtype),
            "heuristic": lambda: (value * (1.0 + tree_norm(params))).astype(dtype),
        }
        return DoGState(wnp.array(True), initial_copy(params), starts[tag](), wnp.zeros((), dtype))

    def update(updates: Updates, state: DoGState, params: Params | None = None) -> Any:
        need_params("dog", params)
        distance = tree_norm(tree_sub(params, state.init_params))
        farthest = wnp.maximum(state.max_dist, distance)
        squares = state.sum_sq_norm_grads + tree_norm(updates, squared=True)
        if tag == "learning_rate":
            # The distance for which the first step has the given size.
            farthest = wnp.where(state.is_init_step, value * wnp.sqrt(squares + eps), farthest)
        rate = farthest / wnp.sqrt(squares + eps)
        new = DoGState(wnp.array(False), state.init_params, farthest, squares)
        return _scale(updates, rate), cast_to_dtypes(new, state)

    return GradientTransformation(init, update)


def dog(
    learning_rate: ScalarOrSchedule = 1.0,
    init_step: tuple[str, float] = ("heuristic", 1e-6),
    eps: float = 1e-8,
    weight_decay: ScalarOrSchedule | None = None,
    mask: MaskOrFn | None = None,
) -> GradientTransformationExtraArgs:
    """Create DoG, whose step size is the distance so far over the root of summed squared gradients (Ivgi et al.
    2023).
    """
    return chain(_decay(weight_decay, mask), scale_by_dog(init_step, eps), scale_by_learning_rate(learning_rate))


class DoWGState(NamedTuple):
    """The initial parameters, the weighted sum of squared norms, and the largest squared distance."""

    init_params: Params
    weighted_sq_norm_grads: Array
    estim_sq_dist: Array


def scale_by_dowg(init_estim_sq_dist: float | None = None, eps: float = 1e-4) -> GradientTransformation:
    """Rescale updates to `g * d / (sqrt(sum of d ||g||^2) + eps)`, with d the largest squared distance from the
    start.
    """

    def init(params: Params) -> DoWGState:
        start = eps if init_estim_sq_dist is None else init_estim_sq_dist
        zero = wnp.zeros((), accumulator_dtype(params))
        return DoWGState(initial_copy(params), zero, wnp.asarray(start, zero.dtype))

    def update(updates: Updates, state: DoWGState, params: Params | None = None) -> Any:
        need_params("dowg", params)
        distance = tree_norm(tree_sub(params, state.init_params), squared=True)
        farthest = wnp.maximum(state.estim_sq_dist, distance)
        squares = state.weighted_sq_norm_grads + farthest * tree_norm(updates, squared=True)
        rate = farthest / (wnp.sqrt(squares) + eps)
        return _scale(updates, rate), cast_to_dtypes(DoWGState(state.init_params, squares, farthest), state)

    return GradientTransformation(init, update)


def dowg(
    learning_rate: ScalarOrSchedule = 1.0,
    init_estim_sq_dist: float | None = None,
    eps: float = 1e-4,
    weight_decay: ScalarOrSchedule | None = None,
    mask: MaskOrFn | None = None,
) -> GradientTransformationExtraArgs:
    """Create DoWG: DoG with gradients weighted by their distance from the start (Khaled et al. 2023)."""
    return chain(
        _decay(weight_decay, mask), scale_by_dowg(init_estim_sq_dist, eps), scale_by_learning_rate(learning_rate)
    )


class COCOBState(NamedTuple):
    """The initial parameters, sums of gradients and of their sizes, the largest size, and the reward."""

    init_particles: Updates
    cumulative_gradients: Updates
    scale: Updates
    subgradients: Updates
    reward: Updates


def scale_by_cocob(alpha: float = 100.0, eps: float = 1e-8) -> GradientTransformation:
    """Return updates toward `p0 + s / (L max(G + L, alpha L)) (L + reward)`, bets on the sign of the next gradient."""

    def init(params: Params) -> COCOBState:
        zeros = tree_zeros_like(params)
        small = weft.tree.map(lambda p: wnp.full_like(p, eps), params)
        return COCOBState(initial_copy(params), zeros, small, zeros, zeros)

    def update(updates: Updates, state: COCOBState, params: Params | None = None) -> Any:
        need_params("scale_by_cocob", params)

        def leaf(g: Any, p: Any, start: Any, total: Any, largest: Any, sizes: Any, reward: Any) -> tuple[Any, ...]:
            largest = wnp.maximum(largest, wnp.abs(g))
            total = total - g
            sizes = sizes + wnp.abs(g)
            reward = wnp.maximum(reward - (p - start) * g, 0)
            bet = total / (largest * wnp.maximum(sizes + largest, alpha * largest)) * (largest + reward)
            return start + bet - p, total, largest, sizes, reward

        trees = {
            "params": params,
            "init_particles": state.init_particles,
            "cumulative_gradients": state.cumulative_gradients,
            "scale": state.scale,
            "subgradients": state.subgradients,
            "reward": state.reward,
        }
        new, *rest = map_trees("scale_by_cocob", leaf, results=5, updates=updates, **trees)
        return new, COCOBState(state.init_particles, *rest)

    return GradientTransformation(init, update)


def cocob(
    learning_rate: ScalarOrSchedule = 1.0,
    alpha: float = 100.0,
    eps: float = 1e-8,
    weight_decay: ScalarOrSchedule = 0.0,
    mask: MaskOrFn | None = None,
) -> GradientTransformationExtraArgs:
    """Create coin betting, which needs no learning rate (Orabona and Tommasi 2017)."""
    return chain(
        add_decayed_weights(weight_decay, mask),
        scale_by_cocob(alpha, eps),
        scale_by_learning_rate(learning_rate, flip_sign=False),
    )
