"""Arguments of `fit`, `evaluate` and `predict`: data, class weights, and the split for validation."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

import weft
import weft.numpy as wnp
from weft import data
from weft.data.adapter import to_host_arrays, unpack_batch as unpack_batch
from weft.errors import ArgumentError
from weft.keras.core import config
from weft.keras.core.layouts import row_sharding


def pack_data(x: Any, y: Any = None, sample_weight: Any = None) -> Any:
    """Pack a step's `data`: `(x, y, sample_weight)`, `(x, y)`, or `x` alone."""
    if sample_weight is not None:
        return x, y, sample_weight
    if y is not None:
        return x, y
    return (x,) if isinstance(x, list | tuple) else x


def make_adapter(
    x: Any,
    y: Any = None,
    sample_weight: Any = None,
    batch_size: int | None = None,
    shuffle: Any = False,
    seed: int = 0,
    steps: int | None = None,
) -> data.Adapter:
    """Return an adapter for any data, with floats in the default float dtype; with several processes each reads its
    rows.

    If `steps` is given without a batch size, arrays are divided into that number of batches.
    """
    options: dict[str, Any] = {"shuffle": shuffle, "seed": seed, "float_dtype": float_dtype(), "device": row_sharding()}
    adapter = data.adapt(x, y, sample_weight, batch_size=batch_size, **options)
    if batch_size is None and steps and adapter.kind == "arrays" and adapter.samples:
        adapter = data.adapt(x, y, sample_weight, batch_size=-(-adapter.samples // steps), **options)
    return adapter


def float_dtype() -> np.dtype:
    """Return the default float dtype, `floatx()`."""
    return np.dtype(getattr(weft.numpy, config.floatx()))


def convert_batch(batch: Any) -> Any:
    """Convert the arrays of a batch to NumPy, with floats in the default float dtype."""
    return to_host_arrays(batch, float_dtype())


def on_device(tree: Any) -> Any:
    """Convert arrays to Weft's, without a copy if NumPy's memory can be used in place."""
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
    """Convert NumPy arrays to Weft's dtypes, since calls of programs with other dtypes are slow."""

    def of_leaf(leaf: Any) -> Any:
        dtype = weft.dtypes.canonicalize_dtype(leaf.dtype)
        return leaf if dtype == leaf.dtype else leaf.astype(dtype)

    return weft.tree.map(of_leaf, tree)


def with_class_weight(y: Any, class_weight: Mapping[int, float]) -> np.ndarray:
    """Return sample weights from class weights, for targets that are classes or one-hot.

    >>> with_class_weight(np.array([0, 1, 1]), {0: 1.0, 1: 2.0}).tolist()
    [1.0, 2.0, 2.0]
    """
    if isinstance(y, list | tuple | Mapping):
        raise ArgumentError(
            "class_weight needs a model with one output.",
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
    """Split arrays by rows: the first rows for training, the last fraction `part` (0 to 1, exclusive) for validation.

    >>> split(np.arange(5), 0.4)
    (array([0, 1, 2]), array([3, 4]))
    """
    leaves = weft.tree.leaves(arrays)
    if not 0.0 < part < 1.0:
        raise ArgumentError("validation_split must be in (0, 1).", received=str(part))
    if not leaves or not all(hasattr(leaf, "shape") and hasattr(leaf, "__getitem__") for leaf in leaves):
        kinds = ", ".join(sorted({type(leaf).__name__ for leaf in leaves}))
        raise ArgumentError(
            "validation_split needs arrays; other data must be split before.",
            received=kinds,
            fix="validation_data=",
        )
    count = leaves[0].shape[0]
    first = math.floor(count * (1.0 - part))
    if first in (0, count):
        raise ArgumentError(
            f"Training and validation must have at least one row each; of {count} rows they have {first} and "
            f"{count - first}.",
            received=f"validation_split={part}",
            fix="validation_data=, or a larger part",
        )
    rows = lambda leaf, part: leaf.iloc[part] if hasattr(leaf, "iloc") else leaf[part]
    before = weft.tree.map(lambda leaf: rows(leaf, slice(None, first)), arrays)
    return before, weft.tree.map(lambda leaf: rows(leaf, slice(first, None)), arrays)
