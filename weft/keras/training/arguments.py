"""Arguments of `fit`, `evaluate` and `predict`: data, weights of classes, the part for validation."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

import weft
import weft.numpy as wnp
from weft import data
from weft.data.adapter import converted, unpacked
from weft.errors import ArgumentError
from weft.keras.core import config
from weft.keras.core.layouts import divided_rows

__all__ = ["adapted", "batch_of", "canonical", "on_device", "packed", "split", "unpacked", "with_class_weight"]


def packed(x: Any, y: Any = None, sample_weight: Any = None) -> Any:
    """What a step receives as `data`: `(x, y, sample_weight)`, `(x, y)`, or `x` alone."""
    if sample_weight is not None:
        return x, y, sample_weight
    if y is not None:
        return x, y
    return (x,) if isinstance(x, list | tuple) else x


def adapted(
    x: Any,
    y: Any = None,
    sample_weight: Any = None,
    batch_size: int | None = None,
    shuffle: Any = False,
    seed: int = 0,
    steps: int | None = None,
) -> data.Adapter:
    """Any data as an adapter, floats in the default float dtype; of several processes each reads its rows.

    Where no size of batches is asked for but `steps` of them, arrays are divided into so many.
    """
    options: dict[str, Any] = {"shuffle": shuffle, "seed": seed, "float_dtype": float_dtype(), "device": divided_rows()}
    adapter = data.adapt(x, y, sample_weight, batch_size=batch_size, **options)
    if batch_size is None and steps and adapter.kind == "arrays" and adapter.samples:
        adapter = data.adapt(x, y, sample_weight, batch_size=-(-adapter.samples // steps), **options)
    return adapter


def float_dtype() -> np.dtype:
    """The default float dtype."""
    return np.dtype(getattr(weft.numpy, config.floatx()))


def batch_of(batch: Any) -> Any:
    """A batch of any arrays as NumPy's, floats in the default float dtype."""
    return converted(batch, float_dtype())


def on_device(tree: Any) -> Any:
    """Arrays as Weft's, without a copy where the memory of NumPy's can be read as it is."""
    in_place = weft.default_backend() == "cpu"

    def of_leaf(leaf: Any) -> Any:
        if not isinstance(leaf, np.ndarray):
            return leaf
        canonical = weft.dtypes.canonicalize_dtype(leaf.dtype) == leaf.dtype
        if (
            in_place
            and canonical
            and leaf.flags.c_contiguous
            and leaf.flags.aligned
            and leaf.size
            and leaf.dtype.kind in "fiu"
        ):
            return weft.dlpack.from_dlpack(leaf)
        return wnp.asarray(leaf)

    return weft.tree.map(of_leaf, tree)


def canonical(tree: Any) -> Any:
    """Arrays of NumPy with the dtypes that Weft computes with: calls of programs with others are slow."""

    def of_leaf(leaf: Any) -> Any:
        dtype = weft.dtypes.canonicalize_dtype(leaf.dtype)
        return leaf if dtype == leaf.dtype else leaf.astype(dtype)

    return weft.tree.map(of_leaf, tree)


def with_class_weight(y: Any, class_weight: Mapping[int, float]) -> np.ndarray:
    """Sample weights from the weights of classes: of targets that are classes, or one-hot.

    >>> with_class_weight(np.array([0, 1, 1]), {0: 1.0, 1: 2.0}).tolist()
    [1.0, 2.0, 2.0]
    """
    if isinstance(y, list | tuple | Mapping):
        raise ArgumentError(
            "class_weight is for models with one output.",
            received=f"y of {len(y)} entries",
            fix="sample_weight, with an entry for each output",
        )
    if y is None:
        raise ArgumentError("class_weight needs targets.", received="y=None")
    targets = np.asarray(y)
    if targets.ndim >= 2:
        targets = targets.argmax(axis=-1) if targets.shape[-1] > 1 else targets[..., 0]
    classes = np.round(targets).astype(np.int64)
    weights = np.ones(classes.shape, config.floatx())
    for one, weight in class_weight.items():
        weights[classes == int(one)] = weight
    return weights


def split(arrays: Any, part: float) -> tuple[Any, Any]:
    """The first rows for training, and the last ones, a part between 0 and 1, for validation.

    >>> split(np.arange(5), 0.4)
    (array([0, 1, 2]), array([3, 4]))
    """
    leaves = weft.tree.leaves(arrays)
    if not 0.0 < part < 1.0:
        raise ArgumentError("validation_split is between 0 and 1.", received=str(part))
    if not leaves or not all(hasattr(leaf, "shape") and hasattr(leaf, "__getitem__") for leaf in leaves):
        kinds = ", ".join(sorted({type(leaf).__name__ for leaf in leaves}))
        raise ArgumentError(
            "validation_split takes rows of arrays; other data has to be split before.",
            received=kinds,
            fix="validation_data=",
        )
    count = leaves[0].shape[0]
    first = math.floor(count * (1.0 - part))
    if first in (0, count):
        raise ArgumentError(
            f"validation_split={part} leaves {first} of {count} rows for training and {count - first} for validation.",
            fix="validation_data=, or a larger part",
        )
    rows = lambda leaf, part: leaf.iloc[part] if hasattr(leaf, "iloc") else leaf[part]
    before = weft.tree.map(lambda leaf: rows(leaf, slice(None, first)), arrays)
    return before, weft.tree.map(lambda leaf: rows(leaf, slice(first, None)), arrays)
