"""Losses for classification."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from typing import Any

import weft.numpy as wnp
from weft import Array, lax, nn, vmap
from weft.errors import ArgumentError
from weft.optim.argument_docs import document
from weft.optim.losses.checks import floating, integers, same_shape
from weft.optim.projections import projection_simplex
from weft.typing import ArrayLike

Axis = int | tuple[int, ...] | None


@document("An array of the broadcast shape.", labels="probabilities, from 0 to 1.")
def sigmoid_binary_cross_entropy(logits: ArrayLike, labels: Any) -> Array:
    """Compute `-y log(p) - (1 - y) log(1 - p)` with p = sigmoid(logits), element by element.

    >>> import weft.numpy as wnp
    >>> from weft import optim
    >>> optim.sigmoid_binary_cross_entropy(wnp.array([0.0, 3.0]), wnp.array([1.0, 1.0])).round(3)
    Array([0.693, 0.049], dtype=float32)
    """
    (logits,) = floating("sigmoid_binary_cross_entropy", logits=logits)
    labels = wnp.asarray(labels).astype(logits.dtype)
    return -labels * nn.log_sigmoid(logits) - (1.0 - labels) * nn.log_sigmoid(-logits)


def sigmoid_focal_loss(logits: ArrayLike, labels: Any, *, alpha: float | None = None, gamma: float = 2.0) -> Array:
    """Compute binary cross entropy times `(1 - p)^gamma`, with p the probability of the true class (Lin et al.
    2017).
    """
    (logits,) = floating("sigmoid_focal_loss", logits=logits)
    labels = wnp.asarray(labels).astype(logits.dtype)
    entropy = sigmoid_binary_cross_entropy(logits, labels)
    # 1 - p of the true class as a sigmoid, which avoids cancellation where p is near one.
    missing = nn.sigmoid(-logits) * labels + nn.sigmoid(logits) * (1 - labels)
    loss = entropy * missing**gamma
    if alpha is None:
        return loss
    return (alpha * labels + (1 - alpha) * (1 - labels)) * loss


@document(
    "An array of the broadcast shape.",
    "optim.hinge_loss(wnp.array([0.5, 2.0]), wnp.array([1.0, 1.0])) -> Array([0.5, 0. ], dtype=float32)",
    predictor_outputs="real numbers.",
    targets="-1 or 1.",
)
def hinge_loss(predictor_outputs: ArrayLike, targets: ArrayLike) -> Array:
    """Compute `max(0, 1 - y * f)` for targets of -1 and 1."""
    return wnp.maximum(0, 1 - wnp.asarray(predictor_outputs) * targets)


@document(
    "An array of the broadcast shape.",
    "optim.perceptron_loss(wnp.array([0.5, -2.0]), wnp.array([1.0, 1.0])) -> Array([0., 2.], dtype=float32)",
    predictor_outputs="real numbers.",
    targets="-1 or 1.",
)
def perceptron_loss(predictor_outputs: ArrayLike, targets: ArrayLike) -> Array:
    """Compute `max(0, -y * f)` for targets of -1 and 1."""
    same_shape("perceptron_loss", predictor_outputs=predictor_outputs, targets=targets)
    return wnp.maximum(0, -wnp.asarray(predictor_outputs) * targets)


def sparsemax_loss(logits: ArrayLike, labels: ArrayLike) -> Array:
    """Compute the sparse counterpart of the logistic loss, for labels of 0 and 1 (Martins and Astudillo 2016)."""
    return nn.sparse_plus(wnp.where(labels, -wnp.asarray(logits), logits))


def _one_hot(where: str, scores: ArrayLike, labels: ArrayLike) -> tuple[Array, Array]:
    (scores,) = floating(where, scores=scores)
    labels = integers(where, "labels", labels)
    return scores, nn.one_hot(labels, scores.shape[-1], dtype=scores.dtype)


@document(
    "An array without the last axis.",
    "optim.losses.multiclass_hinge_loss(wnp.array([1.0, 3.0]), wnp.array(0)) -> Array(3., dtype=float32)",
    scores="a score for each class along the last axis.",
    labels="integers.",
)
def multiclass_hinge_loss(scores: ArrayLike, labels: ArrayLike) -> Array:
    """Compute `max_j (s_j + [j != y]) - s_y`."""
    scores, chosen = _one_hot("multiclass_hinge_loss", scores, labels)
    return wnp.max(scores + 1.0 - chosen, axis=-1) - wnp.sum(scores * chosen, axis=-1)


@document(
    "An array without the last axis.",
    "optim.losses.multiclass_perceptron_loss(wnp.array([1.0, 3.0]), wnp.array(0)) -> Array(2., dtype=float32)",
    scores="a score for each class along the last axis.",
    labels="integers.",
)
def multiclass_perceptron_loss(scores: ArrayLike, labels: ArrayLike) -> Array:
    """Compute `max_j s_j - s_y`."""
    scores, chosen = _one_hot("multiclass_perceptron_loss", scores, labels)
    return wnp.max(scores, axis=-1) - wnp.sum(scores * chosen, axis=-1)


def multiclass_sparsemax_loss(scores: ArrayLike, labels: ArrayLike) -> Array:
    """Compute `max_p (s . p - |p|^2 / 2) - s_y + 1/2` over the simplex (Martins and Astudillo 2016)."""
    scores, chosen = _one_hot("multiclass_sparsemax_loss", scores, labels)
    flat = scores.reshape(-1, scores.shape[-1])
    best = vmap(projection_simplex)(flat).reshape(scores.shape)
    # The derivative with respect to p vanishes at the maximum, so p is a constant.
    best = lax.stop_gradient(best)
    value = wnp.sum(best * scores, axis=-1) - 0.5 * wnp.sum(best**2, axis=-1)
    return value - wnp.sum(scores * chosen, axis=-1) + 0.5


def _for_classes(where: Any, logits: Array, axis: Axis) -> Any:
    """Return a mask with the axes of the logits; a mask of lower rank has an entry for each example."""
    if where is None or axis is None or wnp.ndim(where) == logits.ndim:
        return where
    return wnp.expand_dims(where, axis)


def softmax_cross_entropy(
    logits: ArrayLike, labels: ArrayLike, axis: Axis = -1, where: ArrayLike | None = None
) -> Array:
    """Compute `-sum y log softmax(logits)`.

    Args:
        logits: unnormalized logarithms of probabilities.
        labels: probabilities along the axis, such as `one_hot` returns.
        axis: the axis or axes of the classes.
        where: booleans, false for classes that do not count; without the axis of classes, false for whole examples.

    Returns:
        An array without the axis.

    >>> import weft.numpy as wnp
    >>> from weft import optim
    >>> optim.softmax_cross_entropy(wnp.array([0.0, 0.0]), wnp.array([1.0, 0.0])).round(3)
    Array(0.693, dtype=float32)
    """
    (logits,) = floating("softmax_cross_entropy", logits=logits)
    where = _for_classes(where, logits, axis)
    logs = nn.log_softmax(logits, axis=axis, where=where)
    return -wnp.sum(labels * logs, axis=axis, where=where)


def safe_softmax_cross_entropy(logits: ArrayLike, labels: ArrayLike) -> Array:
    """Compute `softmax_cross_entropy`, in which labels of zero contribute nothing even for logits of -inf."""
    (logits,) = floating("safe_softmax_cross_entropy", logits=logits)
    logs = nn.log_softmax(logits, axis=-1)
    labels = wnp.asarray(labels)
    # Replace 0 * -inf only: elsewhere the derivative with respect to a label of zero is the logarithm.
    nothing = (labels == 0) & wnp.isneginf(logs)
    return -wnp.sum(labels * wnp.where(nothing, 0.0, logs), axis=-1)


@document("An array of the shape of `labels`.", labels="integers, without the axis.")
def softmax_cross_entropy_with_integer_labels(
    logits: ArrayLike, labels: ArrayLike, axis: int | tuple[int, ...] = -1, where: ArrayLike | None = None
) -> Array:
    """Compute `-log softmax(logits)[label]`; with several axes, the softmax is over all of them.

    >>> import weft.numpy as wnp
    >>> from weft import optim
    >>> optim.softmax_cross_entropy_with_integer_labels(wnp.zeros((1, 2)), wnp.array([1])).round(3)
    Array([0.693], dtype=float32)
    """
    name = "softmax_cross_entropy_with_integer_labels"
    (logits,) = floating(name, logits=logits)
    labels = integers(name, "labels", labels, "softmax_cross_entropy(logits, labels) takes one-hot or soft labels")
    axes = tuple(operator.index(a) % logits.ndim for a in (axis if isinstance(axis, tuple) else (axis,)))
    if labels.ndim == logits.ndim and labels.shape[axes[0]] == 1 and len(axes) == 1:
        raise ArgumentError(
            f"{name} takes labels without the axis of classes; got logits of shape {logits.shape} and labels of shape "
            f"{labels.shape}: use labels.squeeze({axis})"
        )
    if where is not None and wnp.ndim(where) == labels.ndim and wnp.shape(where) == labels.shape:
        where = wnp.expand_dims(where, axes)
    last = tuple(range(logits.ndim - len(axes), logits.ndim))
    moving_average = _flatten_classes(logits, axes, last)
    keep = None if where is None else _flatten_classes(wnp.broadcast_to(where, logits.shape), axes, last)
    chosen = wnp.take_along_axis(moving_average, labels[..., None], axis=-1)[..., 0]
    total = nn.logsumexp(moving_average, axis=-1, where=keep)
    loss = total - chosen
    return loss if keep is None else wnp.where(wnp.any(keep, axis=-1), loss, 0.0)


def _flatten_classes(x: Array, axes: tuple[int, ...], last: tuple[int, ...]) -> Array:
    # Not -1: a batch may be empty.
    size = math.prod(x.shape[a] for a in axes)
    return wnp.moveaxis(x, axes, last).reshape(*(x.shape[a] for a in range(x.ndim) if a not in axes), size)


def poly_loss_cross_entropy(
    logits: ArrayLike, labels: ArrayLike, *, epsilon: float = 2.0, axis: Axis = -1, where: ArrayLike | None = None
) -> Array:
    """Compute cross entropy + `epsilon * sum y (1 - p)`, with p the probabilities of the classes (Leng et al. 2022)."""
    (logits,) = floating("poly_loss_cross_entropy", logits=logits)
    where = _for_classes(where, logits, axis)
    missing = wnp.sum(labels * (1 - nn.softmax(logits, axis=axis, where=where)), axis=axis, where=where)
    return softmax_cross_entropy(logits, labels, axis=axis, where=where) + epsilon * missing


@document(
    "An array of the shape of `labels`.",
    "optim.smooth_labels(wnp.array([1.0, 0.0]), 0.1) -> Array([0.95, 0.05], dtype=float32)",
    labels="probabilities along the axis.",
    alpha="how much of them goes to all classes alike.",
)
def smooth_labels(labels: ArrayLike, alpha: float, *, axis: Axis = -1, where: ArrayLike | None = None) -> Array:
    """Compute `(1 - alpha) * labels + alpha / number of classes`."""
    (labels,) = floating("smooth_labels", labels=labels)
    count: Any = wnp.sum(wnp.ones_like(labels), axis=axis, where=where, keepdims=True)
    return (1.0 - alpha) * labels + alpha / count


@document(
    "An array without the axis.",
    log_predictions="logarithms of the predicted probabilities.",
    targets="probabilities; where they are 0 the term is 0.",
)
def kl_divergence(
    log_predictions: ArrayLike, targets: ArrayLike, axis: Axis = -1, where: ArrayLike | None = None
) -> Array:
    """Compute `sum t * (log t - log p)`.

    >>> import weft.numpy as wnp
    >>> from weft import optim
    >>> optim.kl_divergence(wnp.log(wnp.array([0.5, 0.5])), wnp.array([1.0, 0.0])).round(3)
    Array(0.693, dtype=float32)
    """
    log_predictions, targets = floating("kl_divergence", log_predictions=log_predictions, targets=targets)
    logs = wnp.where(targets == 0, 0, wnp.log(wnp.where(targets == 0, 1, targets)))
    return wnp.sum(targets * (logs - log_predictions), axis=axis, where=where)


def kl_divergence_with_log_targets(
    log_predictions: ArrayLike, log_targets: ArrayLike, axis: Axis = -1, where: ArrayLike | None = None
) -> Array:
    """Compute `sum t * (log t - log p)` from log t."""
    name = "kl_divergence_with_log_targets"
    log_predictions, log_targets = floating(name, log_predictions=log_predictions, log_targets=log_targets)
    return wnp.sum(wnp.exp(log_targets) * (log_targets - log_predictions), axis=axis, where=where)


def generalized_kl_divergence(
    log_predictions: ArrayLike, targets: ArrayLike, axis: Axis = -1, where: ArrayLike | None = None
) -> Array:
    """Compute `sum t * (log t - log p) - t + p`, also for arguments that do not sum to one."""
    excess = wnp.sum(wnp.exp(log_predictions) - wnp.asarray(targets), axis=axis, where=where)
    return kl_divergence(log_predictions, targets, axis=axis, where=where) + excess


convex_kl_divergence = generalized_kl_divergence


def ranking_softmax_loss(
    logits: ArrayLike,
    labels: ArrayLike,
    *,
    where: ArrayLike | None = None,
    weights: ArrayLike | None = None,
    reduce_fn: Callable[..., Array] | None = wnp.mean,
) -> Array:
    """Compute `-sum y log softmax(scores)` over the items of each list, and reduce it over lists."""
    (logits,) = floating("ranking_softmax_loss", logits=logits)
    labels = wnp.asarray(labels).astype(logits.dtype)
    if weights is not None:
        labels = labels * weights
    if where is not None:
        labels = wnp.where(where, labels, 0.0)
        logits = wnp.where(where, logits, wnp.array(wnp.finfo(logits.dtype).min, logits.dtype))
    loss = -wnp.sum(labels * nn.log_softmax(logits, axis=-1), axis=-1)
    if reduce_fn is None:
        return loss
    if where is None:
        return reduce_fn(loss) if loss.size else wnp.zeros((), loss.dtype)
    # Lists without valid items have no loss and no weight in a mean; a mean of no lists is 0, not NaN.
    valid = wnp.any(where, axis=-1)
    return wnp.where(wnp.any(valid), reduce_fn(loss, where=valid), 0.0)
