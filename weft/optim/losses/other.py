"""Losses for pairs, segmentation and maximum functions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import weft.numpy as wnp
from weft import Array, lax, nn
from weft.errors import ArgumentError
from weft.optim.losses.checks import floating, integers, same_shape
from weft.optim.losses.regression import cosine_similarity
from weft.typing import ArrayLike


def ntxent(embeddings: ArrayLike, labels: ArrayLike, temperature: float = 0.07) -> Array:
    """Compute the mean over pairs of equal labels of `-log(e^s / (e^s + sum over unequal e^s'))`, s = cosine /
    temperature.
    """
    (embeddings,) = floating("ntxent", embeddings=embeddings)
    labels = integers("ntxent", "labels", labels)
    if labels.shape != embeddings.shape[:1]:
        raise ArgumentError(
            f"ntxent takes one label for each embedding; got embeddings {embeddings.shape}, labels {labels.shape}"
        )
    similar = cosine_similarity(embeddings[None, :, :], embeddings[:, None, :], epsilon=1e-6) / temperature
    same = labels[:, None] == labels[None, :]
    others = ~wnp.eye(len(labels), dtype=bool)
    positive = same & others
    negative = ~same
    largest = lax.stop_gradient(wnp.max(similar, axis=1, keepdims=True, where=others, initial=-wnp.inf))
    scaled = similar - largest
    against = wnp.sum(wnp.exp(scaled), axis=1, keepdims=True, where=negative)
    losses = wnp.log(wnp.exp(scaled) + against) - scaled
    count = wnp.sum(positive)
    total = wnp.sum(wnp.where(positive, losses, 0.0))
    return wnp.where(count > 0, total / wnp.maximum(count, 1), 0.0)


def make_fenchel_young_loss(max_fun: Callable[..., Any]) -> Callable[..., Array]:
    """Return the loss max_fun(scores) - targets . scores of vectors on the last axis (Blondel et al. 2020)."""

    def fenchel_young_loss(scores: ArrayLike, targets: ArrayLike, *args: Any, **kwargs: Any) -> Array:
        scores, targets = wnp.asarray(scores), wnp.asarray(targets)
        maximum = wnp.vectorize(lambda row: max_fun(row, *args, **kwargs), signature="(n)->()")
        return maximum(scores) - wnp.vectorize(wnp.vdot, signature="(n),(n)->()")(targets, scores)

    return fenchel_young_loss


def dice_loss(
    predictions: ArrayLike,
    targets: Any,
    *,
    class_weights: ArrayLike | None = None,
    smooth: float = 1.0,
    alpha: float = 0.5,
    beta: float = 0.5,
    apply_softmax: bool = True,
    reduction: str = "mean",
    ignore_background: bool = False,
    axis: int | Sequence[int] | None = None,
) -> Array:
    """Compute `1 - (I + smooth) / (I + alpha * (P - I) + beta * (T - I) + smooth)` per class.

    I, P and T are sums of products, predictions and targets over the axes between batch and classes.
    """
    if reduction not in ("mean", "sum", "none"):
        raise ArgumentError(f'reduction must be "mean", "sum" or "none", got {reduction!r}')
    (shares,) = floating("dice_loss", predictions=predictions)
    targets = wnp.asarray(targets)
    # Predictions and targets may each lack the class axis.
    if shares.ndim == targets.ndim - 1:
        shares = shares[..., None]
    elif targets.ndim == shares.ndim - 1:
        targets = targets[..., None]
    same_shape("dice_loss", predictions=shares, targets=targets)
    if apply_softmax:
        one = shares.shape[-1] == 1
        shares = nn.sigmoid(shares) if one else nn.softmax(shares, axis=-1)
    if ignore_background and shares.shape[-1] > 1:
        shares, targets = shares[..., 1:], targets[..., 1:]
    if axis is None:
        axis = range(1, shares.ndim - 1)
    axes = axis if isinstance(axis, int) else tuple(axis)
    shared = wnp.sum(shares * targets, axis=axes)
    false_positive = wnp.sum(shares, axis=axes) - shared
    false_negative = wnp.sum(targets, axis=axes) - shared
    loss = 1.0 - (shared + smooth) / (shared + alpha * false_positive + beta * false_negative + smooth)
    if class_weights is not None:
        class_weights = wnp.asarray(class_weights)
        if ignore_background and class_weights.shape[-1] == loss.shape[-1] + 1:
            class_weights = class_weights[..., 1:]
        loss = loss * class_weights
    if reduction == "none":
        return loss
    return wnp.mean(loss, axis=-1) if reduction == "mean" else wnp.sum(loss, axis=-1)


def binary_dice_loss(predictions: ArrayLike, targets: Any, *, smooth: float = 1.0, apply_sigmoid: bool = True) -> Array:
    """Compute `dice_loss` of one class, from logits or with `apply_sigmoid=False` from probabilities."""
    (predictions,) = floating("binary_dice_loss", predictions=predictions)
    targets = wnp.asarray(targets)
    if predictions.shape[-1:] != (1,):
        predictions = predictions[..., None]
    if targets.shape[-1:] != (1,):
        targets = targets[..., None]
    if apply_sigmoid:
        predictions = nn.sigmoid(predictions)
    return dice_loss(predictions, targets, smooth=smooth, apply_softmax=False)


def multiclass_generalized_dice_loss(
    predictions: ArrayLike,
    targets: Any,
    *,
    smooth: float = 1.0,
    apply_softmax: bool = True,
    ignore_background: bool = False,
) -> Array:
    """Compute the mean of `dice_loss` over batch and classes, weighted by inverse squared frequencies of classes.

    Weights are w = 1 / f^2 for f of the targets over all axes but the last, divided by their mean (Sudre et al. 2017).
    """
    (predictions,) = floating("multiclass_generalized_dice_loss", predictions=predictions)
    targets = wnp.asarray(targets)
    same_shape("multiclass_generalized_dice_loss", predictions=predictions, targets=targets)
    frequency = wnp.sum(targets, axis=tuple(range(targets.ndim - 1)))
    weights = 1.0 / (frequency**2 + 1e-7)  # finite for classes that do not occur
    losses = dice_loss(
        predictions,
        targets,
        class_weights=weights / wnp.mean(weights),
        smooth=smooth,
        apply_softmax=apply_softmax,
        reduction="none",
        ignore_background=ignore_background,
    )
    return wnp.mean(losses)
