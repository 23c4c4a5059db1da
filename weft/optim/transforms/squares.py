"""Transformations that divide by sums or averages of squares: RMSProp, Adagrad, Adadelta, SM3, Adafactor; and Rprop."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import weft
import weft.numpy as wnp
from weft import Array, lax
from weft.optim.base import GradientTransformation, Params, Updates
from weft.optim.numerics import abs_sq, safe_increment
from weft.optim.transforms.adaptive import Corrections, zero_count
from weft.optim.tree_mapping import map_trees, need_params
from weft.optim.tree_utils.arithmetic import tree_full_like, tree_zeros_like
from weft.optim.tree_utils.moments import moving_average


class ScaleByRmsState(NamedTuple):
    """The average of squares."""

    nu: Updates


class ScaleByRmsWithCountState(NamedTuple):
    """The average of squares and steps taken."""

    count: Array  # type: ignore[assignment]
    nu: Updates


class ScaleByRStdDevState(NamedTuple):
    """The averages of gradients and of squares."""

    mu: Updates
    nu: Updates


class ScaleByRStdDevWithCountState(NamedTuple):
    """The averages of gradients and of squares, and steps taken."""

    count: Array  # type: ignore[assignment]
    mu: Updates
    nu: Updates


class ScaleByRssState(NamedTuple):
    """The sum of squares.

    Args:
        sum_of_squares: a tree like the parameters.

    >>> import weft.numpy as wnp
    >>> from weft import optim
    >>> optim.scale_by_rss().init(wnp.ones(2)).sum_of_squares
    Array([0.1, 0.1], dtype=float32)
    """

    sum_of_squares: Updates


class ScaleByAdaDeltaState(NamedTuple):
    """The averages of squared gradients and of squared updates."""

    e_g: Updates
    e_x: Updates


class ScaleBySM3State(NamedTuple):
    """For each axis of a leaf the largest accumulated squares, and the average of scaled gradients."""

    mu: Any
    nu: Updates


class ScaleByRpropState(NamedTuple):
    """The step size of each element, and the step for its last gradient."""

    step_sizes: Updates
    prev_updates: Updates


class FactoredState(NamedTuple):
    """Number of steps taken; row and column averages of squares for factored leaves, full ones for others."""

    count: Array  # type: ignore[assignment]
    v_row: Updates
    v_col: Updates
    v: Updates


def _inverse_root(v: Any, eps: Any, eps_in_sqrt: bool) -> Any:
    return lax.rsqrt(v + eps) if eps_in_sqrt else 1 / (wnp.sqrt(v) + eps)


def scale_by_rms(
    decay: float = 0.9,
    eps: float = 1e-8,
    initial_scale: float = 0.0,
    eps_in_sqrt: bool = True,
    bias_correction: bool = False,
) -> GradientTransformation:
    """Rescale updates to `g / sqrt(v + eps)` or `g / (sqrt(v) + eps)`, with v the average of g^2."""

    def init(params: Params) -> Any:
        nu = tree_full_like(params, initial_scale)
        return ScaleByRmsWithCountState(zero_count(), nu) if bias_correction else ScaleByRmsState(nu)

    def update(updates: Updates, state: Any, params: Params | None = None) -> Any:
        count = safe_increment(state.count) if bias_correction else None
        corrected: Any = Corrections(decay, count) if bias_correction else lambda v: v

        def leaf(g: Any, v: Any) -> tuple[Any, ...]:
            v = moving_average(abs_sq(g), v, decay)
            return g * _inverse_root(corrected(v), eps, eps_in_sqrt), v

        new, nu = map_trees("scale_by_rms", leaf, results=2, updates=updates, nu=state.nu)
        return new, ScaleByRmsWithCountState(count, nu) if bias_correction else ScaleByRmsState(nu)  # type: ignore[arg-type]

    return GradientTransformation(init, update)


def scale_by_stddev(
    decay: float = 0.9,
    eps: float = 1e-8,
    initial_scale: float = 0.0,
    eps_in_sqrt: bool = True,
    bias_correction: bool = False,
) -> GradientTransformation:
    """Rescale updates as `scale_by_rms`, with the variance `v - m^2` in place of v."""

    def init(params: Params) -> Any:
        mu, nu = tree_zeros_like(params), tree_full_like(params, initial_scale)
        return ScaleByRStdDevWithCountState(zero_count(), mu, nu) if bias_correction else ScaleByRStdDevState(mu, nu)

    def update(updates: Updates, state: Any, params: Params | None = None) -> Any:
        count = safe_increment(state.count) if bias_correction else None
        corrected: Any = Corrections(decay, count) if bias_correction else lambda v: v

        def leaf(g: Any, m: Any, v: Any) -> tuple[Any, ...]:
            m = moving_average(g, m, decay)
            v = moving_average(abs_sq(g), v, decay)
            return g * _inverse_root(corrected(v) - abs_sq(corrected(m)), eps, eps_in_sqrt), m, v

        new, mu, nu = map_trees("scale_by_stddev", leaf, results=3, updates=updates, mu=state.mu, nu=state.nu)
        if count is None:
            return new, ScaleByRStdDevState(mu, nu)
        return new, ScaleByRStdDevWithCountState(count, mu, nu)

    return GradientTransformation(init, update)


def scale_by_rss(initial_accumulator_value: float = 0.1, eps: float = 1e-7) -> GradientTransformation:
    """Rescale updates to `g / sqrt(sum of g^2 + eps)`, and zero where that sum is zero."""

    def init(params: Params) -> ScaleByRssState:
        return ScaleByRssState(tree_full_like(params, initial_accumulator_value))

    def update(updates: Updates, state: ScaleByRssState, params: Params | None = None) -> Any:
        def leaf(g: Any, total: Any) -> tuple[Any, ...]:
            total = abs_sq(g) + total
            return wnp.where(total > 0, lax.rsqrt(total + eps), 0.0) * g, total

        new, total = map_trees("scale_by_rss", leaf, results=2, updates=updates, sum_of_squares=state.sum_of_squares)
        return new, ScaleByRssState(total)

    return GradientTransformation(init, update)


def scale_by_adadelta(rho: float = 0.9, eps: float = 1e-6) -> GradientTransformation:
    """Rescale updates to `g * sqrt(x + eps) / sqrt(v + eps)`, with averages v of g^2 and x of squared updates."""

    def init(params: Params) -> ScaleByAdaDeltaState:
        return ScaleByAdaDeltaState(tree_zeros_like(params), tree_zeros_like(params))

    def update(updates: Updates, state: ScaleByAdaDeltaState, params: Params | None = None) -> Any:
        def leaf(g: Any, v: Any, x: Any) -> tuple[Any, ...]:
            v = moving_average(abs_sq(g), v, rho)
            step = wnp.sqrt(x + eps) / wnp.sqrt(v + eps) * g
            return step, v, moving_average(abs_sq(step), x, rho)

        new, e_g, e_x = map_trees("scale_by_adadelta", leaf, results=3, updates=updates, e_g=state.e_g, e_x=state.e_x)
        return new, ScaleByAdaDeltaState(e_g, e_x)

    return GradientTransformation(init, update)


def scale_by_sm3(b1: float = 0.9, b2: float = 1.0, eps: float = 1e-8) -> GradientTransformation:
    """Average `g / sqrt(s + eps)`, where s is the minimum of one stored vector per axis."""

    def init(params: Params) -> ScaleBySM3State:
        mu = weft.tree.map(lambda p: [wnp.zeros(size, p.dtype) for size in p.shape], params)
        return ScaleBySM3State(mu, tree_zeros_like(params))

    def update(updates: Updates, state: ScaleBySM3State, params: Params | None = None) -> Any:
        fresh = 1.0 if isinstance(b2, int | float) and b2 == 1.0 else 1.0 - b2
        leaves, structure = weft.tree.flatten(updates)
        covers = structure.flatten_up_to(state.mu)
        new, new_covers, new_means = [], [], []
        for g, cover, mean in zip(leaves, covers, structure.flatten_up_to(state.nu), strict=True):
            reshaped = [v.reshape([-1 if axis == a else 1 for a in range(g.ndim)]) for axis, v in enumerate(cover)]
            least = functools.reduce(wnp.minimum, reshaped) if reshaped else 0.0
            total = fresh * abs_sq(g) + b2 * least
            scaled = g * wnp.where(total > 0, lax.rsqrt(total + eps), 0.0)
            mean = moving_average(scaled, mean, b1)
            new.append(mean)
            new_means.append(mean)
            others = [tuple(a for a in range(g.ndim) if a != axis) for axis in range(g.ndim)]
            new_covers.append([wnp.max(total, axis=axes) if axes else total for axes in others])
        result = ScaleBySM3State(structure.unflatten(new_covers), structure.unflatten(new_means))
        return structure.unflatten(new), result

    return GradientTransformation(init, update)


def scale_by_rprop(
    learning_rate: float,
    eta_minus: float = 0.5,
    eta_plus: float = 1.2,
    min_step_size: float = 1e-6,
    max_step_size: float = 50.0,
) -> GradientTransformation:
    """Rescale updates to `sign(g) * s`: s grows by eta_plus while the sign is constant, and shrinks by eta_minus when
    it changes.

    The update is the step for the previous gradient, unless the sign has changed since; the first step is zero.
    """

    def init(params: Params) -> ScaleByRpropState:
        return ScaleByRpropState(tree_full_like(params, learning_rate), tree_zeros_like(params))

    def update(updates: Updates, state: ScaleByRpropState, params: Params | None = None) -> Any:
        def leaf(g: Any, step: Any, before: Any) -> tuple[Any, ...]:
            same = wnp.sign(g) * wnp.sign(before)
            factor = wnp.where(same > 0, eta_plus, eta_minus).astype(step.dtype)
            step = wnp.where(same == 0, step, wnp.clip(step * factor, min_step_size, max_step_size))
            nothing = wnp.zeros_like(before)
            return (
                wnp.where(same < 0, nothing, before),
                step,
                wnp.where(same < 0, nothing, step * wnp.sign(g)),
            )

        trees = {"step_sizes": state.step_sizes, "prev_updates": state.prev_updates}
        new, steps, before = map_trees("scale_by_rprop", leaf, results=3, updates=updates, **trees)
        return new, ScaleByRpropState(steps, before)

    return GradientTransformation(init, update)


def _decay_rate_pow(step: Any, exponent: float = 0.8) -> Array:
    """Return `1 - (step + 1)^-exponent`, a decay that averages over all steps at first and over more steps later."""
    return 1.0 - (wnp.asarray(step, wnp.float32) + 1.0) ** (-exponent)


def _axes_to_factor(shape: tuple[int, ...], factored: bool, smallest: int) -> tuple[int, int] | None:
    """Return the second largest and the largest axis if both are large enough to factor, else None."""
    if not factored or len(shape) < 2:
        return None
    order = sorted(range(len(shape)), key=lambda axis: shape[axis])
    return (order[-2], order[-1]) if shape[order[-2]] >= smallest else None


def scale_by_factored_rms(
    factored: bool = True,
    decay_rate: float = 0.8,
    step_offset: int = 0,
    min_dim_size_to_factor: int = 128,
    epsilon: float = 1e-30,
    decay_rate_fn: Callable[[Any, float], Any] = _decay_rate_pow,
) -> GradientTransformation:
    """Rescale updates to `g / sqrt(v)`, with v the product of row and column means for leaves with two large axes.

    Args:
        factored: whether to factor second moments.
        decay_rate: how quickly the decay of averages goes to 1.
        step_offset: the step from which it counts.
        min_dim_size_to_factor: the least size of the two axes of a leaf that is factored.
        epsilon: a small number added to squares.
        decay_rate_fn: a function of step and rate that returns the decay.

    Returns:
        A `GradientTransformation`.

    >>> import weft.numpy as wnp
    >>> from weft import optim
    >>> transform = optim.scale_by_factored_rms()
    >>> params = wnp.array([1.0, 2.0])
    >>> updates, state = transform.update(wnp.array([0.5, -1.0]), transform.init(params), params)
    >>> updates.round(3)
    Array([ 1., -1.], dtype=float32)
    """
    axes_of = lambda shape: _axes_to_factor(shape, factored, min_dim_size_to_factor)
    unused = lambda dtype: wnp.zeros((1,), dtype)

    def init(params: Params) -> FactoredState:
        def leaf(p: Any) -> tuple[Any, ...]:
            p = p if isinstance(p, weft.ShapeDtypeStruct) else wnp.asarray(p)
            axes = axes_of(p.shape)
            if axes is None:
                return unused(p.dtype), unused(p.dtype), wnp.zeros(p.shape, p.dtype)
            second, largest = axes
            row = tuple(size for axis, size in enumerate(p.shape) if axis != largest)
            column = tuple(size for axis, size in enumerate(p.shape) if axis != second)
            return wnp.zeros(row, p.dtype), wnp.zeros(column, p.dtype), unused(p.dtype)

        return FactoredState(zero_count(), *map_trees("scale_by_factored_rms", leaf, results=3, params=params))

    def update(updates: Updates, state: FactoredState, params: Params | None = None) -> Any:
        need_params("scale_by_factored_rms", params)
        decay = decay_rate_fn(state.count - step_offset, decay_rate)

        def leaf(g: Any, row: Any, column: Any, v: Any, p: Any) -> tuple[Any, ...]:
            dtype = wnp.asarray(p).dtype
            square = abs_sq(g) + epsilon
            axes = axes_of(wnp.shape(p))
            if axes is None:
                v = (decay * v + (1.0 - decay) * square).astype(dtype)
                return g * v**-0.5, unused(dtype), unused(dtype), v
            second, largest = axes
            row = (decay * row + (1.0 - decay) * wnp.mean(square, axis=largest)).astype(dtype)
            column = (decay * column + (1.0 - decay) * wnp.mean(square, axis=second)).astype(dtype)
            mean = wnp.mean(row, axis=second - 1 if second > largest else second, keepdims=True)
            by_row = wnp.expand_dims((row / mean) ** -0.5, largest)
            by_column = wnp.expand_dims(column**-0.5, second)
            return g * by_row * by_column, row, column, unused(dtype)

        new, rows, columns, whole = map_trees(
            "scale_by_factored_rms",
            leaf,
            results=4,
            same_shapes=False,
            updates=updates,
            v_row=state.v_row,
            v_col=state.v_col,
            v=state.v,
            params=params,
        )
        return new, FactoredState(safe_increment(state.count), rows, columns, whole)

    return GradientTransformation(init, update)
