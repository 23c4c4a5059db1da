"""Crossentropies of predictions and targets."""

from __future__ import annotations

from typing import Any

import weft.numpy as wnp
from weft import nn
from weft.errors import ShapeMismatchError
from weft.keras.core.config import epsilon
from weft.keras.ops.argument_docs import document
from weft.keras.ops.dispatch import inexact, operation, tensor


def _same_shape(target: Any, output: Any, name: str) -> None:
    if target.shape != output.shape:
        raise ShapeMismatchError(
            f"{name}: target and output must have the same shape.",
            received=f"target {target.shape}, output {output.shape}",
        )


@operation
@document(
    "An array of the same shape.",
    target="0 or 1, or probabilities.",
    output="probabilities, which are limited to `[epsilon, 1 - epsilon]`, or logits.",
)
def binary_crossentropy(target: Any, output: Any, from_logits: bool = False) -> Any:
    """Compute `-target * log(output) - (1 - target) * log(1 - output)` for each element."""
    output = inexact(output)
    target = tensor(target).astype(output.dtype)
    _same_shape(target, output, "binary_crossentropy")
    if from_logits:
        return -(target * nn.log_sigmoid(output) + (1 - target) * nn.log_sigmoid(-output))
    output = wnp.clip(output, epsilon(), 1 - epsilon())
    return -(target * wnp.log(output) + (1 - target) * wnp.log(1 - output))


@operation
def categorical_crossentropy(target: Any, output: Any, from_logits: bool = False, axis: int = -1) -> Any:
    """Compute `-sum(target * log(output))` along the axis of classes.

    Args:
        target: probabilities of classes, or one-hot vectors.
        output: probabilities, which are divided by their sum and limited to `[epsilon, 1 - epsilon]`, or logits.
        from_logits: whether `output` is logits.
        axis: the axis of classes.

    Returns:
        An array without that axis.
    """
    output = inexact(output)
    target = tensor(target).astype(output.dtype)
    _same_shape(target, output, "categorical_crossentropy")
    return -wnp.sum(target * _log_probabilities(output, from_logits, axis), axis)


@operation
def sparse_categorical_crossentropy(target: Any, output: Any, from_logits: bool = False, axis: int = -1) -> Any:
    """Compute `-log(output[target])` along the axis of classes.

    Args:
        target: integers; a last axis of size 1 is dropped. The crossentropy of one that is no class is 0.
        output: probabilities, which are divided by their sum and limited to `[epsilon, 1 - epsilon]`, or logits.
        from_logits: whether `output` is logits.
        axis: the axis of classes.

    Returns:
        An array of the shape of `target`.
    """
    output = inexact(output)
    target = tensor(target).astype("int32")
    if output.ndim == target.ndim and target.shape[-1] == 1:
        target = wnp.squeeze(target, -1)
    without = [size for i, size in enumerate(output.shape) if i != axis % output.ndim]
    if target.shape != tuple(without):
        raise ShapeMismatchError(
            "sparse_categorical_crossentropy takes a target of the shape of the output without the axis of classes.",
            received=f"target {target.shape}, output {output.shape}, axis={axis}",
        )
    return -wnp.sum(
        nn.one_hot(target, output.shape[axis], axis=axis, dtype=output.dtype)
        * _log_probabilities(output, from_logits, axis),
        axis,
    )


def _log_probabilities(output: Any, from_logits: bool, axis: int) -> Any:
    if from_logits:
        return nn.log_softmax(output, axis)
    output = output / wnp.sum(output, axis, keepdims=True)
    return wnp.log(wnp.clip(output, epsilon(), 1 - epsilon()))
