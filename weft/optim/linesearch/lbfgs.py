"""L-BFGS: the inverse Hessian from the last changes of parameters and gradients."""

from __future__ import annotations

from typing import Any, NamedTuple

import weft
import weft.numpy as wnp
from weft import Array, lax
from weft.errors import ArgumentError
from weft.optim.base import (
    GradientTransformation,
    GradientTransformationExtraArgs,
    Params,
    ScalarOrSchedule,
    Updates,
    identity,
)
from weft.optim.linesearch.zoom import scale_by_zoom_linesearch
from weft.optim.numerics import safe_increment
from weft.optim.transforms.combining import chain
from weft.optim.transforms.scaling import scale, scale_by_learning_rate
from weft.optim.tree_mapping import need_params
from weft.optim.tree_utils.arithmetic import tree_norm, tree_sub, tree_vdot, tree_zeros_like


class ScaleByLBFGSState(NamedTuple):
    """Number of steps taken, the last parameters and gradients, and ring buffers of their changes with weights."""

    count: Array  # type: ignore[assignment]
    params: Params
    updates: Params
    diff_params_memory: Any
    diff_updates_memory: Any
    weights_memory: Array


def _at(memory: Any, index: Any) -> Any:
    return weft.tree.map(lambda rows: rows[index], memory)


def _store(memory: Any, index: Any, value: Any) -> Any:
    return weft.tree.map(lambda rows, row: rows.at[index].set(row), memory, value)


def two_loops(updates: Any, steps: Any, changes: Any, weights: Array, scale: Any, newest: Any) -> Any:
    """Return the product of the inverse Hessian and the gradient, by the two-loop recursion."""
    size = weights.shape[0]
    oldest_first = (newest + 1 + wnp.arange(size)) % size

    def down(vector: Any, index: Any) -> Any:
        step, change, weight = _at(steps, index), _at(changes, index), weights[index]
        alpha = weight * tree_vdot(step, vector).real
        return weft.tree.map(lambda v, c: v - alpha.astype(v.dtype) * c, vector, change), alpha

    def up(vector: Any, item: Any) -> Any:
        index, alpha = item
        step, change, weight = _at(steps, index), _at(changes, index), weights[index]
        factor = alpha - weight * tree_vdot(change, vector).real
        return weft.tree.map(lambda v, s: v + factor.astype(v.dtype) * s, vector, step), None

    vector, alphas = lax.scan(down, updates, oldest_first, reverse=True)
    vector = weft.tree.map(lambda v: scale.astype(v.dtype) * v, vector)
    return lax.scan(up, vector, (oldest_first, alphas))[0]


def scale_by_lbfgs(memory_size: int = 10, scale_init_precond: bool = True) -> GradientTransformation:
    """Multiply the gradient by the inverse Hessian of L-BFGS over the last `memory_size` steps.

    The recursion starts from the identity, scaled by (s . y) / (y . y) of the newest change, and in the first step by
    min(1, 1 / ||g||), unless `scale_init_precond` is false (Nocedal and Wright, algorithm 7.4).
    """
    if memory_size < 1:
        raise ArgumentError(f"scale_by_lbfgs needs a memory_size of at least 1, got {memory_size}")

    def init(params: Params) -> ScaleByLBFGSState:
        rows = lambda p: wnp.zeros((memory_size, *p.shape), p.dtype)
        memory = weft.tree.map(rows, params)
        zeros = tree_zeros_like(params)
        return ScaleByLBFGSState(wnp.zeros((), wnp.int32), zeros, zeros, memory, memory, wnp.zeros(memory_size))

    def update(updates: Updates, state: ScaleByLBFGSState, params: Params | None = None) -> Any:
        need_params("scale_by_lbfgs", params)
        started = state.count > 0
        newest = (state.count - 1) % memory_size
        masked = lambda leaf: wnp.where(started, leaf, wnp.zeros_like(leaf))
        step = weft.tree.map(masked, tree_sub(params, state.params))
        change = weft.tree.map(masked, tree_sub(updates, state.updates))
        product = tree_vdot(change, step).real
        weight = wnp.where(product == 0.0, 0.0, 1.0 / wnp.where(product == 0.0, 1.0, product))
        steps = _store(state.diff_params_memory, newest, step)
        changes = _store(state.diff_updates_memory, newest, change)
        weights = state.weights_memory.at[newest].set(weight.astype(state.weights_memory.dtype))
        if scale_init_precond:
            square = tree_norm(change, squared=True)
            known = wnp.where(square > 0.0, product / wnp.where(square > 0.0, square, 1.0), 1.0)
            first = wnp.minimum(1.0, 1.0 / tree_norm(updates))
            start = wnp.where(started, known, first)
        else:
            start = wnp.array(1.0)
        new = two_loops(updates, steps, changes, weights, start, newest)
        return new, ScaleByLBFGSState(safe_increment(state.count), params, updates, steps, changes, weights)

    return GradientTransformation(init, update)


def lbfgs(
    learning_rate: ScalarOrSchedule | None = None,
    memory_size: int = 10,
    scale_init_precond: bool = True,
    linesearch: GradientTransformation | None = scale_by_zoom_linesearch(  # noqa: B008
        max_linesearch_steps=20, initial_guess_strategy="one"
    ),
) -> GradientTransformationExtraArgs:
    """Create L-BFGS with a line search; `update` needs `value`, `grad` and `value_fn`, as the search does.

    Args:
        learning_rate: a factor of the steps; None where the line search decides.
        memory_size: the number of past steps in the inverse Hessian.
        scale_init_precond: whether its first guess is scaled by the last step.
        linesearch: a line search, or None.

    Returns:
        A `GradientTransformationExtraArgs`.

    >>> import weft
    >>> import weft.numpy as wnp
    >>> from weft import optim
    >>> f = lambda x: ((x - 2.0) ** 2).sum()
    >>> solver = optim.lbfgs()
    >>> params = wnp.array([0.0])
    >>> value, gradient = weft.value_and_grad(f)(params)
    >>> state = solver.init(params)
    >>> updates, state = solver.update(gradient, state, params, value=value, grad=gradient, value_fn=f)
    >>> bool(f(optim.apply_updates(params, updates)) < value)
    True
    """
    direction = scale(-1.0) if learning_rate is None else scale_by_learning_rate(learning_rate)
    last = identity() if linesearch is None else linesearch
    return chain(scale_by_lbfgs(memory_size, scale_init_precond), direction, last)
