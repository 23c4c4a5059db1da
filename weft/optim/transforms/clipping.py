"""Transformations and functions that limit the size of updates."""

from __future__ import annotations

import math
from typing import Any

import weft
import weft.numpy as wnp
from weft import Array
from weft.errors import ArgumentError
from weft.optim.argument_docs import document
from weft.optim.base import EmptyState, GradientTransformation, Params, Updates, stateless
from weft.optim.numerics import abs_sq
from weft.optim.tree_mapping import map_trees, need_params
from weft.optim.tree_utils.arithmetic import global_norm
from weft.typing import ArrayLike

ClipState = EmptyState
ClipByGlobalNormState = EmptyState
AdaptiveGradClipState = EmptyState


@document("A `GradientTransformation`.", max_delta="the limit.")
def clip(max_delta: float | Array) -> GradientTransformation:
    """Clip each element to [-max_delta, max_delta].

    >>> import weft.numpy as wnp
    >>> from weft import optim
    >>> transform = optim.clip(0.75)
    >>> params = wnp.array([1.0, 2.0])
    >>> updates, state = transform.update(wnp.array([0.5, -1.0]), transform.init(params), params)
    >>> updates.round(3)
    Array([ 0.5 , -0.75], dtype=float32)
    """
    return stateless(lambda updates, params: weft.tree.map(lambda g: wnp.clip(g, -max_delta, max_delta), updates))


@document("A `GradientTransformation`.", threshold="the limit.")
def clip_by_block_rms(threshold: ArrayLike) -> GradientTransformation:
    """Rescale updates to `g / max(1, rms(g) / threshold)`, leaf by leaf.

    >>> import weft.numpy as wnp
    >>> from weft import optim
    >>> transform = optim.clip_by_block_rms(0.5)
    >>> params = wnp.array([1.0, 2.0])
    >>> updates, state = transform.update(wnp.array([0.5, -1.0]), transform.init(params), params)
    >>> updates.round(3)
    Array([ 0.316, -0.632], dtype=float32)
    """

    def leaf(g: Any) -> Any:
        return g / wnp.maximum(1.0, wnp.sqrt(wnp.mean(abs_sq(g))) / threshold).astype(g.dtype)

    return stateless(lambda updates, params: weft.tree.map(leaf, updates))


@document("A `GradientTransformation`.", max_norm="the limit.")
def clip_by_global_norm(max_norm: ArrayLike) -> GradientTransformation:
    """Rescale updates to `g * max_norm / ||g||` if the norm over all leaves is at least max_norm.

    >>> import weft.numpy as wnp
    >>> from weft import optim
    >>> transform = optim.clip_by_global_norm(1.0)
    >>> params = wnp.array([1.0, 2.0])
    >>> updates, state = transform.update(wnp.array([0.5, -1.0]), transform.init(params), params)
    >>> updates.round(3)
    Array([ 0.447, -0.894], dtype=float32)
    """

    def clip_updates(updates: Updates, params: Params | None) -> Updates:
        norm = global_norm(updates)
        small = norm < max_norm
        return weft.tree.map(lambda g: wnp.where(small, g, (g / norm.astype(g.dtype)) * max_norm), updates)

    return stateless(clip_updates)


def unitwise_norm(x: Array, axis: int | tuple[int, ...] | None = None) -> Array:
    """Return the norm of the inputs of each output unit, in the shape of x: columns of matrices, filters of
    convolutions.
    """
    if axis is None:
        if wnp.squeeze(x).ndim <= 1:
            axis = tuple(range(x.ndim))
        elif x.ndim in (2, 3):
            axis = 0
        elif x.ndim in (4, 5):
            axis = tuple(range(x.ndim - 1))
        else:
            raise ArgumentError(f"unitwise_norm needs at most 5 axes unless axis is given, got shape {x.shape}")
    return wnp.broadcast_to(wnp.sqrt(wnp.sum(abs_sq(x), axis=axis, keepdims=True)), x.shape)


def unitwise_clip(g_norm: Array, max_norm: Array, grad: Array, div_eps: float = 1e-6) -> Array:
    """Return grad where g_norm is below max_norm, else `grad * max_norm / max(g_norm, div_eps)`."""
    scaled = grad * (max_norm / wnp.maximum(g_norm, div_eps))
    return wnp.where(g_norm < max_norm, grad, scaled)


def adaptive_grad_clip(
    clipping: float, eps: float = 1e-3, axis: int | tuple[int, ...] | None = None
) -> GradientTransformation:
    """Clip the gradient of each unit to the norm `clipping * max(norm of its parameters, eps)`.

    Args:
        clipping: the limit, relative to the norm of the parameters.
        eps: the least norm of the parameters.
        axis: the axes of a unit; by default all of a vector, the first of a matrix, all but the last of a kernel
            with two or three spatial axes.

    Returns:
        A `GradientTransformation`, whose `update` needs the parameters.

    >>> import weft.numpy as wnp
    >>> from weft import optim
    >>> transform = optim.adaptive_grad_clip(0.1)
    >>> params = wnp.array([1.0, 2.0])
    >>> updates, state = transform.update(wnp.array([0.5, -1.0]), transform.init(params), params)
    >>> updates.round(3)
    Array([ 0.1, -0.2], dtype=float32)
    """

    def leaf(g: Any, p: Any) -> tuple[Any]:
        largest = clipping * wnp.maximum(unitwise_norm(p, axis), eps)
        return (unitwise_clip(unitwise_norm(g, axis), largest, g),)

    def clip_updates(updates: Updates, params: Params | None) -> Updates:
        need_params("adaptive_grad_clip", params)
        return map_trees("adaptive_grad_clip", leaf, updates=updates, params=params)[0]

    return stateless(clip_updates)


def _examples(where: str, grads: Any) -> tuple[list[Any], Any]:
    """Return the leaves, which must have the same number of examples on their first axis."""
    leaves, structure = weft.tree.flatten(grads)
    sizes = {leaf.shape[0] if leaf.ndim else None for leaf in leaves}
    if len(sizes) != 1 or None in sizes:
        raise ArgumentError(
            f"{where} takes gradients with one leading axis for examples, the same in all leaves; "
            f"got leaves of shapes {[leaf.shape for leaf in leaves]}"
        )
    return leaves, structure


def per_example_global_norm_clip(grads: Any, l2_norm_clip: float) -> tuple[Any, Array]:
    """Clip the gradient of each example to a norm over all leaves, and sum; also return the number clipped.

    Args:
        grads: a list of arrays with a leading axis of examples.
        l2_norm_clip: the limit.

    Returns:
        A pair of the list of sums and the number of gradients that were clipped.

    >>> import weft.numpy as wnp
    >>> from weft import optim
    >>> sums, clipped = optim.per_example_global_norm_clip([wnp.array([[3.0], [0.5]])], 1.0)
    >>> sums, clipped
    ([Array([1.5], dtype=float32)], Array(1, dtype=int32))
    """
    leaves, structure = _examples("per_example_global_norm_clip", grads)
    norms = weft.vmap(global_norm)(leaves)
    clipped = [_clip_and_sum(leaf, norms, l2_norm_clip) for leaf in leaves]
    return structure.unflatten(clipped), wnp.sum(norms > l2_norm_clip)


def _clip_and_sum(leaf: Array, norms: Array, limit: Any) -> Array:
    """Return the sum over examples of a leaf, after scaling those beyond the limit down to it."""
    factors = wnp.where(norms > limit, limit / wnp.where(norms > limit, norms, 1.0), 1.0)
    if wnp.issubdtype(leaf.dtype, wnp.inexact):
        factors = factors.astype(leaf.dtype)
    return wnp.sum(leaf * factors.reshape((-1,) + (1,) * (leaf.ndim - 1)), axis=0)


def per_example_layer_norm_clip(grads: Any, global_l2_norm_clip: float, uniform: bool = True) -> tuple[Any, Any]:
    """Clip the gradient of each example leaf by leaf, and sum; also return the number clipped per leaf.

    The squares of the bounds of the leaves sum to the square of the bound for all: the bounds are equal, or with
    `uniform=False` proportional to the square roots of the sizes.
    """
    leaves, structure = _examples("per_example_layer_norm_clip", grads)
    sizes = [math.prod(leaf.shape[1:]) for leaf in leaves]
    if uniform:
        bounds = [global_l2_norm_clip * math.sqrt(1.0 / len(leaves))] * len(leaves)
    else:
        bounds = [global_l2_norm_clip * math.sqrt(size / sum(sizes)) for size in sizes]
    clipped, counts = [], []
    for leaf, bound in zip(leaves, bounds, strict=True):
        norms = wnp.sqrt(wnp.sum(abs_sq(leaf).reshape(leaf.shape[0], -1), axis=1))
        clipped.append(_clip_and_sum(leaf, norms, bound))
        counts.append(wnp.sum(norms > bound))
    return structure.unflatten(clipped), structure.unflatten(counts)
