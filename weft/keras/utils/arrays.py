"""Small conversions of NumPy arrays and of data for `fit`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

import weft
from weft.errors import ArgumentError, OutOfBoundsIndexError
from weft.keras import ops


def to_categorical(x: Any, num_classes: int | None = None) -> Any:
    """Encode classes as one-hot vectors.

    Args:
        x: integers from 0 to `num_classes - 1`; a last axis of size 1 is dropped.
        num_classes: how many classes, `max(x) + 1` by default.

    Returns:
        A NumPy array with one axis more, or an array of Weft for one of Weft.

    Example:
        >>> from weft import keras
        >>> keras.utils.to_categorical([0, 2], 3)
        array([[1., 0., 0.],
               [0., 0., 1.]])
    """
    if isinstance(x, weft.Array) and num_classes is not None:
        labels = x.squeeze(-1) if x.ndim > 1 and x.shape[-1] == 1 else x
        return ops.one_hot(labels, num_classes)
    classes = np.asarray(x, dtype="int64")
    if classes.ndim > 1 and classes.shape[-1] == 1:
        classes = classes[..., 0]
    if num_classes is None:
        if not classes.size:
            raise ArgumentError("`num_classes` must be given if there are no classes to count.")
        num_classes = int(classes.max()) + 1
    if classes.size and not -num_classes <= classes.min() <= classes.max() < num_classes:
        raise OutOfBoundsIndexError(
            f"Classes must be integers from 0 to {num_classes - 1}.",
            received=f"integers from {classes.min()} to {classes.max()}",
        )
    return np.eye(num_classes)[classes]


def normalize(x: Any, axis: int = -1, order: int = 2) -> Any:
    """Divide vectors by their norm; those of norm 0 are unchanged.

    Args:
        x: an array.
        axis: the axis of the vectors.
        order: of the norm.

    Returns:
        A NumPy array, or an array of Weft for one of Weft.

    Example:
        >>> from weft import keras
        >>> keras.utils.normalize([[3.0, 4.0]])
        array([[0.6, 0.8]])
    """
    if isinstance(x, weft.Array):
        return ops.normalize(x, axis, order)
    array = np.asarray(x)
    norms = np.atleast_1d(np.linalg.norm(array, order, axis))
    norms[norms == 0] = 1
    return array / np.expand_dims(norms, axis)


def pad_sequences(
    sequences: Sequence[Any],
    maxlen: int | None = None,
    dtype: Any = "int32",
    padding: str = "pre",
    truncating: str = "pre",
    value: Any = 0.0,
) -> np.ndarray:
    """Pad sequences of several lengths to one array.

    Args:
        sequences: a list of sequences, whose elements are numbers or arrays of one shape.
        maxlen: the length of all; that of the longest by default.
        dtype: of the result; `object` for strings.
        padding: whether `value` is added "pre" (before) or "post" (after) a sequence.
        truncating: whether longer sequences lose their start ("pre") or their end ("post").
        value: what is added.

    Returns:
        A NumPy array of shape (sequences, maxlen, ...).

    Example:
        >>> from weft import keras
        >>> keras.utils.pad_sequences([[1], [2, 3]])
        array([[0, 1],
               [2, 3]], dtype=int32)
    """
    for name, mode in (("padding", padding), ("truncating", truncating)):
        if mode not in ("pre", "post"):
            raise ArgumentError(f"`{name}` must be 'pre' or 'post'.", received=f"{name}={mode!r}")
    if not all(hasattr(sequence, "__len__") for sequence in sequences):
        raise ArgumentError("`sequences` must be a list of sequences.", received=repr(sequences)[:100])
    text = np.issubdtype(dtype, np.str_) or np.issubdtype(dtype, np.object_)
    if isinstance(value, str) and not text:
        raise ArgumentError("Strings need `dtype=object`.", received=f"dtype={dtype!r}, value={value!r}")
    longest = max((len(sequence) for sequence in sequences), default=0)
    length = longest if maxlen is None else maxlen
    element = next((np.asarray(sequence).shape[1:] for sequence in sequences if len(sequence)), ())
    padded = np.full((len(sequences), length, *element), value, dtype=dtype)
    for i, sequence in enumerate(sequences):
        if not len(sequence) or not length:
            continue
        part = np.asarray(sequence[-length:] if truncating == "pre" else sequence[:length], dtype=dtype)
        if part.shape[1:] != element:
            raise ArgumentError(
                f"Elements of all sequences must have the same shape; those of sequence {i} differ from the first's.",
                received=f"{part.shape[1:]} and {element}",
            )
        if padding == "post":
            padded[i, : len(part)] = part
        else:
            padded[i, -len(part) :] = part
    return padded


def pack_x_y_sample_weight(x: Any, y: Any = None, sample_weight: Any = None) -> Any:
    """Pack inputs, targets and weights as a batch for `fit`.

    Args:
        x: inputs.
        y: targets, or None.
        sample_weight: weights of samples, or None.

    Returns:
        `x`, `(x,)`, `(x, y)` or `(x, y, sample_weight)`.
    """
    if sample_weight is not None:
        return (x, y, sample_weight)
    if y is not None:
        return (x, y)
    # A tuple or list alone would be read as a batch.
    return (x,) if isinstance(x, (list, tuple)) else x


def unpack_x_y_sample_weight(data: Any) -> tuple[Any, Any, Any]:
    """Unpack the inputs, targets and weights of a batch.

    Args:
        data: `x`, `(x,)`, `(x, y)` or `(x, y, sample_weight)`.

    Returns:
        `(x, y, sample_weight)`, with None for what is not there.

    Example:
        >>> from weft import keras
        >>> keras.utils.unpack_x_y_sample_weight((1, 2))
        (1, 2, None)
    """
    if not isinstance(data, (list, tuple)):
        return (data, None, None)
    if not 1 <= len(data) <= 3:
        raise ArgumentError(
            "A batch must be `x`, `(x,)`, `(x, y)` or `(x, y, sample_weight)`.", received=f"{len(data)} parts"
        )
    x, y, weight = (*data, None, None)[:3]
    return (x, y, weight)
