"""Losses of probabilities: cross-entropies and divergences."""

from __future__ import annotations

import warnings
from typing import Any

import weft.numpy as wnp
from weft import Array, nn
from weft.errors import ArgumentError
from weft.keras.core import config, context
from weft.keras.losses.argument_docs import document
from weft.keras.losses.arguments import broadcastable, equal_shapes, pair
from weft.keras.losses.base import LossFunctionWrapper
from weft.keras.ops import nn as operations
from weft.keras.ops.dispatch import operation

_ONE_HOT = "integer targets need sparse_categorical_crossentropy, or one-hot encoding with keras.utils.to_categorical"


@operation
def binary_crossentropy(
    y_true: Any, y_pred: Any, from_logits: bool = False, label_smoothing: float = 0.0, axis: int = -1
) -> Array:
    """Compute the mean over an axis of -y_true * log(y_pred) - (1 - y_true) * log(1 - y_pred).

    Args:
        y_true: targets in [0, 1].
        y_pred: probabilities (clipped to [epsilon, 1 - epsilon]), or logits; of the same shape.
        from_logits: whether the predictions are logits.
        label_smoothing: how far targets are pulled to 1/2: 0 not at all, 1 wholly.
        axis: what the mean is over.

    Returns:
        losses, without that axis.

    >>> from weft import keras
    >>> print(keras.losses.binary_crossentropy([[1.0, 0.0]], [[0.5, 0.5]]))
    [0.6931472]
    """
    y_true, y_pred = pair(y_true, y_pred)
    equal_shapes("binary_crossentropy", y_true, y_pred, "the last layer needs one unit for each binary target")
    if label_smoothing:
        y_true = y_true * (1.0 - label_smoothing) + 0.5 * label_smoothing
    return wnp.mean(operations.binary_crossentropy(y_true, y_pred, from_logits), axis=axis)


def _one_hot_pair(name: str, y_true: Any, y_pred: Any, axis: int, label_smoothing: float) -> tuple[Array, Array]:
    """Check and smooth the arguments of a loss with a distribution over classes as target."""
    if isinstance(axis, bool):
        raise ArgumentError(f"{name}: `axis` must be an int.", received=f"axis={axis}")
    y_true, y_pred = pair(y_true, y_pred)
    equal_shapes(name, y_true, y_pred, _ONE_HOT)
    if y_pred.ndim == 0:
        raise ArgumentError(f"{name}: predictions must have an axis of classes.", received="a scalar")
    if y_pred.shape[-1] == 1:
        warnings.warn(
            f"{name}: predictions of shape {y_pred.shape} have one class, of which the loss is always 0; use "
            "binary_crossentropy for one unit, or give the last layer a unit for each class",
            SyntaxWarning,
            stacklevel=3,
        )
    if label_smoothing:
        y_true = y_true * (1.0 - label_smoothing) + label_smoothing / y_true.shape[-1]
    return y_true, y_pred


@operation
def categorical_crossentropy(
    y_true: Any, y_pred: Any, from_logits: bool = False, label_smoothing: float = 0.0, axis: int = -1
) -> Array:
    """Compute -sum(y_true * log(y_pred)) along an axis of classes.

    Args:
        y_true: a distribution for each sample, usually one-hot.
        y_pred: probabilities (made to add up to 1) or logits; of the same shape.
        from_logits: whether the predictions are logits.
        label_smoothing: the part of a target that is given to all classes alike.
        axis: the axis of classes.

    Returns:
        losses, without that axis.

    >>> from weft import keras
    >>> print(keras.losses.categorical_crossentropy([[1.0, 0.0]], [[2.0, 2.0]]))
    [0.6931472]
    """
    y_true, y_pred = _one_hot_pair("categorical_crossentropy", y_true, y_pred, axis, label_smoothing)
    return operations.categorical_crossentropy(y_true, y_pred, from_logits, axis)


@operation
def sparse_categorical_crossentropy(
    y_true: Any, y_pred: Any, from_logits: bool = False, ignore_class: int | None = None, axis: int = -1
) -> Array:
    """Compute -log(y_pred[y_true]) along an axis of classes.

    Args:
        y_true: integers of the shape of the predictions without the axis of classes, or with size 1 there.
        y_pred: probabilities (made to add up to 1) or logits.
        from_logits: whether the predictions are logits.
        ignore_class: a target that does not count: its loss is 0 and it is masked, so that means leave it out.
        axis: the axis of classes.

    Returns:
        losses, without that axis.

    >>> from weft import keras
    >>> print(keras.losses.sparse_categorical_crossentropy([1, 0], [[0.5, 0.5], [0.25, 0.75]]))
    [0.6931472 1.3862944]
    """
    y_true, y_pred = wnp.asarray(y_true), wnp.asarray(y_pred)
    if y_pred.ndim == 0:
        raise ArgumentError(
            "sparse_categorical_crossentropy: predictions must have an axis of classes.", received="a scalar"
        )
    classes = axis % y_pred.ndim
    if y_true.ndim == y_pred.ndim and y_true.shape[classes] == 1:
        y_true = wnp.squeeze(y_true, axis=classes)
    if y_true.shape != y_pred.shape[:classes] + y_pred.shape[classes + 1 :]:
        one_hot = y_true.shape == y_pred.shape
        raise ArgumentError(
            "sparse_categorical_crossentropy: the targets do not fit the predictions.",
            received=f"y_true of shape {y_true.shape} and y_pred of shape {y_pred.shape}, with classes in axis {axis}",
            fix="use categorical_crossentropy for one-hot targets"
            if one_hot
            else "targets have the shape of the predictions without the axis of classes",
        )
    if ignore_class is None:
        return operations.sparse_categorical_crossentropy(y_true, y_pred, from_logits, axis)
    valid = y_true != ignore_class
    # Predictions that do not count become all alike: their losses and derivatives are finite before the `where`.
    y_pred = wnp.where(wnp.expand_dims(valid, classes), y_pred, wnp.ones_like(y_pred))
    y_true = wnp.where(valid, y_true, wnp.zeros_like(y_true))
    values = operations.sparse_categorical_crossentropy(y_true, y_pred, from_logits, axis)
    values = wnp.where(valid, values, wnp.zeros_like(values))
    context.set_keras_mask(values, valid)
    return values


@operation
def binary_focal_crossentropy(
    y_true: Any,
    y_pred: Any,
    apply_class_balancing: bool = False,
    alpha: float = 0.25,
    gamma: float = 2.0,
    from_logits: bool = False,
    label_smoothing: float = 0.0,
    axis: int = -1,
) -> Array:
    """Compute the binary cross-entropy times (1 - p)^gamma, where p is the probability of the target.

    Easy samples count less. With `apply_class_balancing`, targets of 1 are weighted by alpha and those of 0 by 1 -
    alpha. The other arguments are as in `binary_crossentropy`.

    Args:
        y_true: targets.
        y_pred: probabilities or logits, of the same shape.
        apply_class_balancing: whether targets are weighted.
        alpha: the weight of targets of 1; those of 0 have 1 - alpha.
        gamma: how much less easy samples count.
        from_logits: whether the predictions are logits.
        label_smoothing: how far targets are pulled to 1/2.
        axis: what the mean is over.

    Returns:
        losses, without that axis.

    >>> from weft import keras
    >>> print(keras.losses.binary_focal_crossentropy([[1.0, 0.0]], [[0.5, 0.5]]))
    [0.1732868]
    """
    y_true, y_pred = pair(y_true, y_pred)
    equal_shapes("binary_focal_crossentropy", y_true, y_pred, "the last layer needs one unit for each binary target")
    if label_smoothing:
        y_true = y_true * (1.0 - label_smoothing) + 0.5 * label_smoothing
    if from_logits:
        y_pred = nn.sigmoid(y_pred)
    right = y_true * y_pred + (1.0 - y_true) * (1.0 - y_pred)
    values = wnp.power(1.0 - right, gamma) * operations.binary_crossentropy(y_true, y_pred)
    if apply_class_balancing:
        values = values * (y_true * alpha + (1.0 - y_true) * (1.0 - alpha))
    return wnp.mean(values, axis=axis)


@operation
def categorical_focal_crossentropy(
    y_true: Any,
    y_pred: Any,
    alpha: Any = 0.25,
    gamma: float = 2.0,
    from_logits: bool = False,
    label_smoothing: float = 0.0,
    axis: int = -1,
) -> Array:
    """Compute the categorical cross-entropy with its terms times alpha * (1 - y_pred)^gamma: easy samples count less.

    `alpha` is one weight, or one for each class. The other arguments are as in `categorical_crossentropy`.

    Args:
        y_true: targets.
        y_pred: probabilities or logits, of the same shape.
        alpha: a weight, or one for each class.
        gamma: how much less easy samples count.
        from_logits: whether the predictions are logits.
        label_smoothing: the part of a target that is given to all classes alike.
        axis: the axis of classes.

    Returns:
        losses, without that axis.

    >>> from weft import keras
    >>> print(keras.losses.categorical_focal_crossentropy([[1.0, 0.0]], [[0.5, 0.5]]))
    [0.0433217]
    """
    y_true, y_pred = _one_hot_pair("categorical_focal_crossentropy", y_true, y_pred, axis, label_smoothing)
    if from_logits:
        y_pred = nn.softmax(y_pred, axis=axis)
    output = y_pred / wnp.sum(y_pred, axis=axis, keepdims=True)
    output = wnp.clip(output, config.epsilon(), 1.0 - config.epsilon())
    weights = wnp.power(1.0 - output, gamma) * wnp.asarray(alpha, y_pred.dtype)
    return wnp.sum(weights * -y_true * wnp.log(output), axis=axis)


@operation
def categorical_generalized_cross_entropy(y_true: Any, y_pred: Any, q: float) -> Array:
    """Compute (1 - p^q) / q, where p is the probability of the integer target.

    It is between cross-entropy (q near 0) and 1 - p (q = 1), in which labels that are wrong pull less (Zhang and
    Sabuncu, 2018).

    Args:
        y_true: integer targets.
        y_pred: probabilities along the last axis.
        q: from 0 to 1.

    Returns:
        values without the last axis.

    >>> from weft import keras
    >>> print(keras.losses.categorical_generalized_cross_entropy([1], [[0.75, 0.25]], q=0.5))
    [1.]
    """
    y_pred = wnp.asarray(y_pred)
    y_true = wnp.asarray(y_true)
    if y_true.ndim == y_pred.ndim and y_true.shape[-1] == 1:
        y_true = y_true[..., 0]
    chosen = nn.one_hot(y_true.astype("int32"), y_pred.shape[-1], dtype=y_pred.dtype)
    equal_shapes("categorical_generalized_cross_entropy", chosen, y_pred, "the targets have to be integers")
    return (1.0 - wnp.power(wnp.sum(y_pred * chosen, axis=-1), q)) / q


@operation
@document(
    "values without the last axis.",
    "print(keras.losses.kl_divergence([[0.5, 0.5]], [[0.5, 0.5]])) -> [0.]",
    y_true="distributions along the last axis.",
    y_pred="distributions; the shapes broadcast.",
)
def kl_divergence(y_true: Any, y_pred: Any) -> Array:
    """Compute sum(y_true * log(y_true / y_pred)) over the last axis; both are clipped to [epsilon, 1]."""
    y_true, y_pred = pair(y_true, y_pred)
    broadcastable("kl_divergence", y_true, y_pred)
    y_true, y_pred = (wnp.clip(values, config.epsilon(), 1.0) for values in (y_true, y_pred))
    return wnp.sum(y_true * wnp.log(y_true / y_pred), axis=-1)


@operation
@document(
    "values without the last axis.",
    "print(keras.losses.poisson([[1.0, 0.0]], [[1.0, 1.0]])) -> [0.99999994]",
    y_true="counts.",
    y_pred="rates; the shapes broadcast.",
)
def poisson(y_true: Any, y_pred: Any) -> Array:
    """Compute the mean of y_pred - y_true * log(y_pred + epsilon) over the last axis: predictions are rates."""
    y_true, y_pred = pair(y_true, y_pred)
    broadcastable("poisson", y_true, y_pred)
    return wnp.mean(y_pred - y_true * wnp.log(y_pred + config.epsilon()), axis=-1)


@operation
@document(
    "losses [batch].",
    "print(keras.losses.ctc([[1]], [[[0.0, 0.0]]])) -> [0.6931472]",
    y_true="labels [batch, length], integers from 1; 0 is the blank, and pads sequences that are shorter.",
    y_pred="logits [batch, time, classes], class 0 is the blank.",
)
def ctc(y_true: Any, y_pred: Any) -> Array:
    """Compute -log of the likelihood of label sequences over all their alignments (Graves et al., 2006)."""
    y_true, y_pred = wnp.asarray(y_true), wnp.asarray(y_pred)
    if y_true.ndim != 2 or y_pred.ndim != 3 or y_true.shape[0] != y_pred.shape[0]:
        raise ArgumentError(
            "ctc: targets must be integers [batch, length], and predictions logits [batch, time, classes].",
            received=f"y_true of shape {y_true.shape} and y_pred of shape {y_pred.shape}",
        )
    lengths = wnp.sum((y_true != 0).astype("int32"), axis=-1)
    times = wnp.full(y_pred.shape[:1], y_pred.shape[1], "int32")
    logits = y_pred.astype(wnp.promote_types(y_pred.dtype, "float32"))
    return operations.ctc_loss(y_true, logits, lengths, times)


class BinaryCrossentropy(LossFunctionWrapper):
    """Cross-entropy of binary targets.

    Args:
        from_logits: whether predictions are logits rather than probabilities.
        label_smoothing: how far targets are pulled to 1/2.
        axis: what the mean of each sample is over.
        reduction, name, dtype: as of `Loss`.

    >>> from weft import keras
    >>> print(keras.losses.BinaryCrossentropy(from_logits=True)([[1.0], [0.0]], [[0.0], [0.0]]))
    0.6931472
    """

    def __init__(
        self,
        from_logits: bool = False,
        label_smoothing: float = 0.0,
        axis: int = -1,
        reduction: str | None = "sum_over_batch_size",
        name: str | None = "binary_crossentropy",
        dtype: Any = None,
    ) -> None:
        super().__init__(
            binary_crossentropy,
            reduction,
            name,
            dtype,
            from_logits=from_logits,
            label_smoothing=label_smoothing,
            axis=axis,
        )


class BinaryFocalCrossentropy(LossFunctionWrapper):
    """Cross-entropy of binary targets in which easy samples count less; see `binary_focal_crossentropy`.

    Args:
        apply_class_balancing: whether targets are weighted.
        alpha: the weight of targets of 1.
        gamma: how much less easy samples count.
        from_logits: whether predictions are logits rather than probabilities.
        label_smoothing: how far targets are pulled to 1/2.
        axis: what the mean of each sample is over.
        reduction, name, dtype: as of `Loss`.

    >>> from weft import keras
    >>> print(keras.losses.BinaryFocalCrossentropy()([[1.0], [0.0]], [[0.5], [0.5]]))
    0.1732868
    """

    def __init__(
        self,
        apply_class_balancing: bool = False,
        alpha: float = 0.25,
        gamma: float = 2.0,
        from_logits: bool = False,
        label_smoothing: float = 0.0,
        axis: int = -1,
        reduction: str | None = "sum_over_batch_size",
        name: str | None = "binary_focal_crossentropy",
        dtype: Any = None,
    ) -> None:
        super().__init__(
            binary_focal_crossentropy,
            reduction,
            name,
            dtype,
            apply_class_balancing=apply_class_balancing,
            alpha=alpha,
            gamma=gamma,
            from_logits=from_logits,
            label_smoothing=label_smoothing,
            axis=axis,
        )


class CategoricalCrossentropy(LossFunctionWrapper):
    """Cross-entropy of one-hot targets, or of distributions over classes.

    Args:
        from_logits: whether predictions are logits rather than probabilities.
        label_smoothing: the part of a target that is given to all classes alike.
        axis: the axis of classes.
        reduction, name, dtype: as of `Loss`.

    >>> from weft import keras
    >>> print(keras.losses.CategoricalCrossentropy()([[0.0, 1.0]], [[0.5, 0.5]]))
    0.6931472
    """

    def __init__(
        self,
        from_logits: bool = False,
        label_smoothing: float = 0.0,
        axis: int = -1,
        reduction: str | None = "sum_over_batch_size",
        name: str | None = "categorical_crossentropy",
        dtype: Any = None,
    ) -> None:
        super().__init__(
            categorical_crossentropy,
            reduction,
            name,
            dtype,
            from_logits=from_logits,
            label_smoothing=label_smoothing,
            axis=axis,
        )


class CategoricalFocalCrossentropy(LossFunctionWrapper):
    """Cross-entropy of one-hot targets in which easy samples count less; see `categorical_focal_crossentropy`."""

    def __init__(
        self,
        alpha: Any = 0.25,
        gamma: float = 2.0,
        from_logits: bool = False,
        label_smoothing: float = 0.0,
        axis: int = -1,
        reduction: str | None = "sum_over_batch_size",
        name: str | None = "categorical_focal_crossentropy",
        dtype: Any = None,
    ) -> None:
        super().__init__(
            categorical_focal_crossentropy,
            reduction,
            name,
            dtype,
            alpha=alpha,
            gamma=gamma,
            from_logits=from_logits,
            label_smoothing=label_smoothing,
            axis=axis,
        )


class SparseCategoricalCrossentropy(LossFunctionWrapper):
    """Cross-entropy of integer targets.

    Args:
        from_logits: whether predictions are logits rather than probabilities.
        ignore_class: a target that does not count, such as that of padding.
        reduction: as of `Loss`.
        axis: the axis of classes.
        name, dtype: as of `Loss`.

    >>> from weft import keras
    >>> print(keras.losses.SparseCategoricalCrossentropy(ignore_class=-1)([1, -1], [[0.5, 0.5], [0.1, 0.9]]))
    0.6931472
    """

    def __init__(
        self,
        from_logits: bool = False,
        ignore_class: int | None = None,
        reduction: str | None = "sum_over_batch_size",
        axis: int = -1,
        name: str | None = "sparse_categorical_crossentropy",
        dtype: Any = None,
    ) -> None:
        super().__init__(
            sparse_categorical_crossentropy,
            reduction,
            name,
            dtype,
            from_logits=from_logits,
            ignore_class=ignore_class,
            axis=axis,
        )


class CategoricalGeneralizedCrossEntropy(LossFunctionWrapper):
    """(1 - p^q) / q of integer targets, which tolerates wrong labels. `q` must be in (0, 1); see the function."""

    def __init__(
        self,
        q: float = 0.5,
        reduction: str | None = "sum_over_batch_size",
        name: str | None = "categorical_generalized_cross_entropy",
        dtype: Any = None,
    ) -> None:
        if not 0 < q < 1:
            raise ArgumentError("CategoricalGeneralizedCrossEntropy: `q` must be in (0, 1).", received=f"q={q}")
        super().__init__(categorical_generalized_cross_entropy, reduction, name, dtype, q=q)


class KLDivergence(LossFunctionWrapper):
    """The Kullback-Leibler divergence of predictions from targets; the arguments are those of `Loss`.

    >>> from weft import keras
    >>> print(keras.losses.KLDivergence()([[0.5, 0.5]], [[0.5, 0.5]]))
    0.0
    """

    def __init__(
        self, reduction: str | None = "sum_over_batch_size", name: str | None = "kl_divergence", dtype: Any = None
    ) -> None:
        super().__init__(kl_divergence, reduction, name, dtype)


class Poisson(LossFunctionWrapper):
    """y_pred - y_true * log(y_pred), for counts as targets and rates as predictions; arguments are those of `Loss`."""

    def __init__(
        self, reduction: str | None = "sum_over_batch_size", name: str | None = "poisson", dtype: Any = None
    ) -> None:
        super().__init__(poisson, reduction, name, dtype)


class CTC(LossFunctionWrapper):
    """Connectionist temporal classification of padded label sequences; see `ctc`. The arguments are those of `Loss`."""

    def __init__(
        self, reduction: str | None = "sum_over_batch_size", name: str | None = "ctc", dtype: Any = None
    ) -> None:
        super().__init__(ctc, reduction, name, dtype)
