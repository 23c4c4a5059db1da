"""Losses for regression."""

from __future__ import annotations

from typing import Any

import weft.numpy as wnp
from weft import Array
from weft.optim.argument_docs import document
from weft.optim.losses.checks import floating, same_shape
from weft.optim.numerics import safe_norm
from weft.typing import ArrayLike


def _errors(where: str, predictions: ArrayLike, targets: ArrayLike | None) -> Array:
    """Return predictions - targets, or the predictions if targets are None."""
    (predictions,) = floating(where, predictions=predictions)
    if targets is None:
        return predictions
    same_shape(where, predictions=predictions, targets=targets)
    return predictions - wnp.asarray(targets)


@document("An array of the same shape.", "optim.squared_error(wnp.array([1.0, 3.0])) -> Array([1., 9.], dtype=float32)")
def squared_error(predictions: ArrayLike, targets: ArrayLike | None = None) -> Array:
    """Compute `(predictions - targets)^2`."""
    return _errors("squared_error", predictions, targets) ** 2


@document("An array of the same shape.", "optim.l2_loss(wnp.array([1.0, 3.0])) -> Array([0.5, 4.5], dtype=float32)")
def l2_loss(predictions: ArrayLike, targets: ArrayLike | None = None) -> Array:
    """Compute `(predictions - targets)^2 / 2`."""
    return 0.5 * _errors("l2_loss", predictions, targets) ** 2


@document(
    "An array of the same shape.",
    "optim.huber_loss(wnp.array([0.5, 3.0])) -> Array([0.125, 2.5  ], dtype=float32)",
    delta="where the square ends.",
)
def huber_loss(predictions: ArrayLike, targets: ArrayLike | None = None, *, delta: float = 1.0) -> Array:
    """Compute `e^2 / 2` for errors up to delta, and `delta * (|e| - delta / 2)` beyond."""
    size = wnp.abs(_errors("huber_loss", predictions, targets))
    quadratic = wnp.minimum(size, delta)
    return 0.5 * quadratic**2 + delta * (size - quadratic)


def log_cosh(predictions: ArrayLike, targets: ArrayLike | None = None) -> Array:
    """Compute `log(cosh(predictions - targets))` without overflow."""
    error = _errors("log_cosh", predictions, targets)
    return wnp.logaddexp(error, -error) - wnp.log(2.0).astype(error.dtype)


def cosine_similarity(
    predictions: ArrayLike,
    targets: ArrayLike,
    *,
    epsilon: float = 0.0,
    axis: int | tuple[int, ...] | None = -1,
    where: ArrayLike | None = None,
) -> Array:
    """Compute the cosine of the angle between vectors, with norms of at least epsilon."""
    predictions, targets = floating("cosine_similarity", predictions=predictions, targets=targets)
    a = predictions if where is None else wnp.where(where, predictions, 0)
    b = targets if where is None else wnp.where(where, targets, 0)
    # A fully masked vector has no direction and contributes 0.
    some = True if where is None else wnp.any(wnp.broadcast_to(where, a.shape), axis=axis, keepdims=True)
    unit = lambda x: x / wnp.where(some, safe_norm(x, epsilon, axis=axis, keepdims=True), 1)
    return wnp.sum(unit(a) * unit(b), axis=axis)


def cosine_distance(
    predictions: ArrayLike,
    targets: ArrayLike,
    *,
    epsilon: float = 0.0,
    axis: int | tuple[int, ...] | None = -1,
    where: ArrayLike | None = None,
) -> Array:
    """Compute `1 - cosine_similarity`.

    Args:
        predictions: an array.
        targets: an array of the same shape.
        epsilon: the least length that vectors are divided by.
        axis: the axis of the vectors.
        where: booleans, false for elements that do not count.

    Returns:
        An array without the axis.

    >>> import weft.numpy as wnp
    >>> from weft import optim
    >>> optim.cosine_distance(wnp.array([1.0, 0.0]), wnp.array([0.0, 1.0]))
    Array(1., dtype=float32)
    """
    return 1.0 - cosine_similarity(predictions, targets, epsilon=epsilon, axis=axis, where=where)


def triplet_margin_loss(
    anchors: ArrayLike,
    positives: ArrayLike,
    negatives: ArrayLike,
    axis: int = -1,
    norm_degree: ArrayLike = 2,
    margin: ArrayLike = 1.0,
    eps: ArrayLike = 1e-6,
) -> Array:
    """Compute `max(d(anchor, positive) - d(anchor, negative) + margin, 0)`, with d the p-norm of the difference."""
    a, p, n = floating("triplet_margin_loss", anchors=anchors, positives=positives, negatives=negatives)

    def distance(x: Any, y: Any) -> Any:
        return (wnp.sum(wnp.power(wnp.abs(x - y), norm_degree), axis) + eps) ** (1.0 / norm_degree)

    return wnp.maximum(distance(a, p) - distance(a, n) + margin, 0.0)
