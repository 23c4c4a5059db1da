"""Losses of whole batches or images: overlap of segmentations, and distances between embeddings."""

from __future__ import annotations

from typing import Any

import weft.numpy as wnp
from weft import Array, nn, scipy
from weft.errors import ArgumentError
from weft.keras.core import config, context
from weft.keras.losses.argument_docs import document
from weft.keras.losses.arguments import equal_shapes, pair
from weft.keras.losses.base import LossFunctionWrapper
from weft.keras.ops.dispatch import operation

Axes = int | tuple[int, ...] | list[int] | None


def _axes(axis: Axes) -> int | tuple[int, ...] | None:
    return tuple(axis) if isinstance(axis, list) else axis


@operation
@document(
    "losses without these axes.",
    "print(keras.losses.dice([[1.0, 0.0]], [[1.0, 1.0]])) -> 0.3333333",
    y_pred="predictions of the same shape.",
    axis="the axes that are summed; None is all.",
)
def dice(y_true: Any, y_pred: Any, axis: Axes = None) -> Array:
    """Compute 1 - 2 * sum(y_true * y_pred) / (sum(y_true) + sum(y_pred)), over the axes or over everything."""
    y_true, y_pred = pair(y_true, y_pred)
    equal_shapes("dice", y_true, y_pred)
    overlap = wnp.sum(y_true * y_pred, axis=_axes(axis))
    both = wnp.sum(y_true, axis=_axes(axis)) + wnp.sum(y_pred, axis=_axes(axis))
    return 1.0 - 2.0 * overlap / (both + config.epsilon())


@operation
def tversky(y_true: Any, y_pred: Any, alpha: float = 0.5, beta: float = 0.5, axis: Axes = None) -> Array:
    """Compute 1 - both / (both + alpha * only in targets + beta * only in predictions), over the axes or everything.

    Args:
        y_true: targets.
        y_pred: predictions of the same shape.
        alpha: the weight of what only targets have.
        beta: the weight of what only predictions have.
        axis: the axes that are summed; None is all.

    Returns:
        losses without these axes.

    >>> from weft import keras
    >>> print(keras.losses.tversky([[1.0, 0.0]], [[1.0, 1.0]]))
    0.33333337
    """
    y_true, y_pred = pair(y_true, y_pred)
    equal_shapes("tversky", y_true, y_pred)
    overlap = wnp.sum(y_true * y_pred, axis=_axes(axis))
    only_true = wnp.sum(y_true * (1.0 - y_pred), axis=_axes(axis))
    only_predicted = wnp.sum((1.0 - y_true) * y_pred, axis=_axes(axis))
    return 1.0 - overlap / (overlap + only_true * alpha + only_predicted * beta + config.epsilon())


@operation
def circle(
    y_true: Any,
    y_pred: Any,
    ref_labels: Any = None,
    ref_embeddings: Any = None,
    remove_diagonal: bool = True,
    gamma: float = 80,
    margin: float = 0.4,
) -> Array:
    """Compute the circle loss of embeddings (Sun et al., 2020): pairs far from their optimum weigh more.

    Args:
        y_true: integer labels [batch].
        y_pred: embeddings of length 1 [batch, dimension].
        ref_labels, ref_embeddings: what they are compared to; the batch itself if None.
        remove_diagonal: whether the i-th sample is not compared to the i-th of the reference.
        gamma: the scale of similarities.
        margin: how much of a deviation is tolerated.

    Returns:
        losses [batch]; those that are 0 are masked.
    """
    y_pred = wnp.asarray(y_pred)
    labels = wnp.reshape(wnp.asarray(y_true).astype("int32"), (-1,))
    others = y_pred if ref_embeddings is None else wnp.asarray(ref_embeddings)
    other_labels = labels if ref_labels is None else wnp.reshape(wnp.asarray(ref_labels).astype("int32"), (-1,))
    if y_pred.ndim != 2 or labels.shape[0] != y_pred.shape[0] or other_labels.shape[0] != others.shape[0]:
        raise ArgumentError(
            "circle: there must be one label for each embedding: labels [batch], embeddings [batch, dimension].",
            received=f"y_true of shape {wnp.shape(y_true)}, y_pred {y_pred.shape}, ref_labels {other_labels.shape}, "
            f"ref_embeddings {others.shape}",
        )
    distances = wnp.maximum(1.0 - y_pred @ others.T, 0.0)
    alike = labels[:, None] == other_labels[None, :]
    unlike = ~alike
    if remove_diagonal:
        alike = alike & ~wnp.eye(alike.shape[0], alike.shape[1], dtype=bool)
    toward = wnp.maximum(margin + distances, 0.0)
    away = wnp.maximum(1.0 + margin - distances, 0.0)
    pull = wnp.where(alike, -gamma * toward * (margin - distances), -wnp.inf)
    push = wnp.where(unlike, gamma * away * (1.0 - margin - distances), -wnp.inf)
    logsumexp = scipy.special.logsumexp
    values = nn.softplus(logsumexp(pull, axis=1) + logsumexp(push, axis=1))
    context.set_keras_mask(values, values > 0)
    return values


class Dice(LossFunctionWrapper):
    """The Dice loss of segmentations over `axis` (None: over the whole batch); the others are those of `Loss`."""

    def __init__(
        self,
        reduction: str | None = "sum_over_batch_size",
        name: str | None = "dice",
        axis: Axes = None,
        dtype: Any = None,
    ) -> None:
        super().__init__(dice, reduction, name, dtype, axis=axis)


class Tversky(LossFunctionWrapper):
    """The Tversky loss of segmentations; `alpha` weighs what only targets have, `beta` what only predictions have."""

    def __init__(
        self,
        alpha: float = 0.5,
        beta: float = 0.5,
        reduction: str | None = "sum_over_batch_size",
        name: str | None = "tversky",
        axis: Axes = None,
        dtype: Any = None,
    ) -> None:
        super().__init__(tversky, reduction, name, dtype, alpha=alpha, beta=beta, axis=axis)


class Circle(LossFunctionWrapper):
    """The circle loss of embeddings; see `circle`. It is called with (y_true, y_pred) of one batch."""

    def __init__(
        self,
        gamma: float = 80.0,
        margin: float = 0.4,
        remove_diagonal: bool = True,
        reduction: str | None = "sum_over_batch_size",
        name: str | None = "circle",
        dtype: Any = None,
    ) -> None:
        super().__init__(circle, reduction, name, dtype, gamma=gamma, margin=margin, remove_diagonal=remove_diagonal)
