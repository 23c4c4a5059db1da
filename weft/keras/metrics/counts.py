"""Counts of right and wrong predictions at thresholds, and confusion matrices."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

import weft
import weft.numpy as wnp
from weft import Array, lax, nn
from weft.errors import ArgumentError
from weft.keras.core import config
from weft.keras.losses.arguments import equal_shapes, same_rank

# Below all predictions: as a threshold it lets all pass, as a prediction it passes none.
LOWEST = -1e10


class Counts(NamedTuple):
    """For each threshold (and each label, where labels are apart) the sum of the weights of ..."""

    true_positives: Array
    false_positives: Array
    true_negatives: Array
    false_negatives: Array


def threshold_list(name: str, thresholds: Any, default: float = 0.5) -> list[float]:
    """Return thresholds in [0, 1] as a list, by default [`default`]."""
    if thresholds is None:
        return [default]
    listed = list(thresholds) if isinstance(thresholds, (list, tuple, np.ndarray)) else [thresholds]
    wrong = [value for value in listed if value is None or not 0 <= value <= 1]
    if wrong:
        raise ArgumentError(f"{name}: thresholds must be in [0, 1].", received=f"{wrong}")
    return listed


def even_thresholds(count: int) -> list[float]:
    """`count` thresholds from 0 to 1 with equal distances."""
    return [0.0, *((i + 1) * 1.0 / (count - 1) for i in range(count - 2)), 1.0]


def are_even(thresholds: Sequence[float]) -> bool:
    """Return whether thresholds go from 0 to 1 in equal steps, so that a prediction's bucket can be computed."""
    count = len(thresholds)
    if count < 3:
        return False
    return bool(np.allclose(thresholds, np.arange(count, dtype=np.float32) / (count - 1), atol=config.epsilon()))


def only_top_k(predictions: Array, k: int) -> Array:
    """Return the k largest predictions of each row, with `LOWEST` in place of the others."""
    _, indices = lax.top_k(predictions, k)
    among = wnp.sum(nn.one_hot(indices, predictions.shape[-1], dtype=predictions.dtype), axis=-2)
    return wnp.where(among > 0, predictions, LOWEST)


def _weights(name: str, sample_weight: Any, y_pred: Array) -> Array:
    """Broadcast weights to the shape of the predictions; weights without the last axis apply to all of it."""
    weights = wnp.asarray(sample_weight).astype(y_pred.dtype)
    if weights.ndim == y_pred.ndim - 1 and weights.ndim > 0:
        weights = weights[..., None]
    elif weights.ndim == y_pred.ndim + 1 and weights.shape[-1] == 1:
        weights = weights[..., 0]
    try:
        return wnp.broadcast_to(weights, y_pred.shape)
    except ValueError:
        raise ArgumentError(
            f"{name}: the sample weights do not fit the predictions.",
            received=f"weights of shape {np.shape(sample_weight)} for predictions of shape {y_pred.shape}",
            fix=f"give one for each prediction or for each row: {y_pred.shape} or {y_pred.shape[:-1]}",
        ) from None


def count(
    name: str,
    y_true: Any,
    y_pred: Any,
    thresholds: Sequence[float],
    *,
    dtype: Any,
    even: bool = False,
    top_k: int | None = None,
    class_id: int | None = None,
    sample_weight: Any = None,
    multi_label: bool = False,
    label_weights: Any = None,
) -> Counts:
    """Count predictions above thresholds by their targets.

    Args:
        name: the metric, for errors.
        y_true: targets; all but 0 count as true.
        y_pred: predictions of the same shape.
        thresholds: a prediction is positive if it is greater.
        dtype: of the counts.
        even: whether the thresholds go from 0 to 1 in equal steps.
        top_k: how many of the largest predictions of each row may be positive; None is all.
        class_id: the one entry of the last axis that counts; None is all.
        sample_weight: a weight for each prediction, or for each row.
        multi_label: whether each entry of the last axis has counts of its own.
        label_weights: a weight for each entry of the last axis.

    Returns:
        counts [thresholds], or [thresholds, labels].
    """
    y_pred, y_true = same_rank(wnp.asarray(y_pred).astype(dtype), wnp.asarray(y_true).astype(dtype))
    equal_shapes(name, y_true, y_pred)
    weights = None if sample_weight is None else _weights(name, sample_weight, y_pred)
    if top_k is not None:
        y_pred = only_top_k(y_pred, top_k)
    if label_weights is not None:
        by_label = wnp.broadcast_to(wnp.asarray(label_weights).astype(dtype), y_pred.shape)
        weights = by_label if weights is None else weights * by_label
    if class_id is not None:
        if y_pred.ndim < 2:
            raise ArgumentError(
                f"{name}: with `class_id`, predictions must have an axis of classes.", received=f"shape {y_pred.shape}"
            )
        y_true, y_pred = y_true[..., class_id], y_pred[..., class_id]
        weights = None if weights is None else weights[..., class_id]
    # From here on [rows, labels], where labels without counts of their own are rows.
    shape = (-1, y_pred.shape[-1]) if multi_label else (-1, 1)
    positive = wnp.reshape(y_true != 0, shape)
    y_pred = wnp.reshape(y_pred, shape)
    weights = wnp.ones_like(y_pred) if weights is None else wnp.reshape(weights, shape)
    right = wnp.where(positive, weights, 0)
    wrong = wnp.where(positive, 0, weights)
    if even:
        above_right, above_wrong = _above_even(y_pred, right, wrong, thresholds)
    else:
        above = y_pred[None] > wnp.asarray(thresholds, y_pred.dtype)[:, None, None]
        above_right = wnp.sum(wnp.where(above, right[None], 0), axis=1)
        above_wrong = wnp.sum(wnp.where(above, wrong[None], 0), axis=1)
    counts = Counts(
        above_right, above_wrong, wnp.sum(wrong, axis=0) - above_wrong, wnp.sum(right, axis=0) - above_right
    )
    return counts if multi_label else Counts(*(array[:, 0] for array in counts))


def _above_even(y_pred: Array, right: Array, wrong: Array, thresholds: Sequence[float]) -> tuple[Array, Array]:
    """Sum the weights of targets whose predictions are above each of several equally spaced thresholds.

    The time depends on the number of predictions alone: each is added to the bucket below it, and the buckets are
    summed from the top.
    """
    buckets = len(thresholds)
    index = wnp.ceil(wnp.clip(y_pred, 0.0, 1.0) * (buckets - 1)).astype("int32") - 1
    # A threshold just below 0, as of AUC, is passed by 0 itself; else 0 is in no bucket.
    index = wnp.maximum(index, 0) if thresholds[0] < 0 else wnp.where(index < 0, buckets, index)

    def of_label(index: Array, right: Array, wrong: Array) -> Array:
        sums = wnp.zeros((buckets, 2), right.dtype).at[index].add(wnp.stack([right, wrong], axis=-1), mode="drop")
        return wnp.cumsum(sums[::-1], axis=0)[::-1]

    above = weft.vmap(of_label, in_axes=1, out_axes=1)(index, right, wrong)
    return above[..., 0], above[..., 1]


def confusion_matrix(labels: Array, predictions: Array, classes: int, weights: Array, dtype: Any) -> Array:
    """Sum weights by label (row) and prediction (column). Labels and predictions that are no class are dropped."""
    flat = wnp.where(
        (labels >= 0) & (labels < classes) & (predictions >= 0) & (predictions < classes),
        labels * classes + predictions,
        classes * classes,
    )
    sums = wnp.zeros((classes * classes,), dtype).at[flat].add(weights.astype(dtype), mode="drop")
    return wnp.reshape(sums, (classes, classes))
