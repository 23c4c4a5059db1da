"""What losses and metrics do to their arguments first: dtypes, ranks, and errors that name the function."""

from __future__ import annotations

from typing import Any

import weft.numpy as wnp
from weft import Array
from weft.errors import ArgumentError


def pair(y_true: Any, y_pred: Any) -> tuple[Array, Array]:
    """Convert targets and predictions to arrays of the predictions' dtype."""
    y_pred = wnp.asarray(y_pred)
    return wnp.asarray(y_true).astype(y_pred.dtype), y_pred


def same_rank(first: Any, second: Any, expand_rank_1: bool = True) -> tuple[Array, Array]:
    """Remove the last axis, if its size is 1, from the longer of two arrays whose ranks differ by one.

    A vector beside an [n, 1] matrix gets the axis instead, unless `expand_rank_1` is False. Other pairs are returned as
    they are.

    >>> import weft.numpy as wnp
    >>> [x.shape for x in same_rank(wnp.zeros((3, 2, 1)), wnp.zeros((3, 2)))]
    [(3, 2), (3, 2)]
    """
    first, second = wnp.asarray(first), wnp.asarray(second)
    if first.ndim == second.ndim + 1 and first.shape[-1] == 1:
        if second.ndim == 1 and expand_rank_1:
            return first, second[:, None]
        return first[..., 0], second
    if second.ndim == first.ndim + 1 and second.shape[-1] == 1:
        if first.ndim == 1 and expand_rank_1:
            return first[:, None], second
        return first, second[..., 0]
    return first, second


def broadcastable(name: str, y_true: Array, y_pred: Array) -> None:
    """Raise if the shapes of targets and predictions do not broadcast."""
    try:
        wnp.broadcast_shapes(y_true.shape, y_pred.shape)
    except ValueError:
        raise _mismatch(name, y_true, y_pred) from None


def equal_shapes(name: str, y_true: Array, y_pred: Array, hint: str = "") -> None:
    """Raise if the shapes of targets and predictions differ."""
    if y_true.shape != y_pred.shape:
        raise _mismatch(name, y_true, y_pred, hint)


def _mismatch(name: str, y_true: Array, y_pred: Array, hint: str = "") -> ArgumentError:
    return ArgumentError(
        f"{name}: the targets do not fit the predictions.",
        received=f"y_true of shape {y_true.shape} and y_pred of shape {y_pred.shape}",
        fix=hint or "reshape the targets, or change the size of the model's last layer",
    )


def errors(name: str, y_true: Any, y_pred: Any) -> tuple[Array, Array]:
    """Convert targets and predictions of a loss that compares them elementwise, and check that they broadcast."""
    y_true, y_pred = same_rank(*pair(y_true, y_pred))
    broadcastable(name, y_true, y_pred)
    return y_true, y_pred
