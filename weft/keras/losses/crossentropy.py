"""Cross-entropies of one value or one distribution, before any mean: from probabilities or from logits."""

from __future__ import annotations

import weft.numpy as wnp
from weft import Array, nn
from weft.keras.core import config


def clipped(probabilities: Array) -> Array:
    """Probabilities in [epsilon, 1 - epsilon], whose logarithms are finite."""
    return wnp.clip(probabilities, config.epsilon(), 1.0 - config.epsilon())


def normalized(output: Array, axis: int = -1) -> Array:
    """Probabilities that add up to 1 along an axis, clipped."""
    return clipped(output / wnp.sum(output, axis=axis, keepdims=True))


def binary(target: Array, output: Array, from_logits: bool = False) -> Array:
    """-target * log(output) - (1 - target) * log(1 - output), element by element."""
    if from_logits:
        return -target * nn.log_sigmoid(output) - (1.0 - target) * nn.log_sigmoid(-output)
    output = clipped(output)
    return -(target * wnp.log(output) + (1.0 - target) * wnp.log(1.0 - output))


def categorical(target: Array, output: Array, from_logits: bool = False, axis: int = -1) -> Array:
    """-sum(target * log(output)) along an axis; outputs that are no logits are normalized first."""
    logarithms = nn.log_softmax(output, axis=axis) if from_logits else wnp.log(normalized(output, axis))
    return -wnp.sum(target * logarithms, axis=axis)


def sparse(target: Array, output: Array, from_logits: bool = False, axis: int = -1) -> Array:
    """-log(output[target]) along an axis; 0 for a target that is no class."""
    chosen = nn.one_hot(target.astype("int32"), output.shape[axis], dtype=output.dtype, axis=axis)
    return categorical(chosen, output, from_logits, axis)
