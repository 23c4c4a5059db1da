"""Windows of a time series, and datasets in two parts."""

from __future__ import annotations

import operator
from typing import Any

import numpy as np

import weft
from weft.data import Loader
from weft.errors import ArgumentError
from weft.keras.core.seeds import make_default_seed
from weft.keras.utils.directories import check_format


class _Windows:
    """Windows of an array by index, with targets."""

    def __init__(self, data: np.ndarray, targets: np.ndarray | None, starts: np.ndarray, offsets: np.ndarray) -> None:
        self.data, self.targets, self.starts, self.offsets = data, targets, starts, offsets

    def __len__(self) -> int:
        return len(self.starts)

    def __getitem__(self, index: int) -> Any:
        start = self.starts[index]
        window = self.data[start + self.offsets]
        return window if self.targets is None else (window, self.targets[start])


def timeseries_dataset_from_array(
    data: Any,
    targets: Any,
    sequence_length: int,
    sequence_stride: int = 1,
    sampling_rate: int = 1,
    batch_size: int | None = 128,
    shuffle: bool = False,
    seed: int | None = None,
    start_index: int | None = None,
    end_index: int | None = None,
    format: str = "tf",
) -> Any:
    """Load batches of windows of a time series.

    Args:
        data: the series, whose first axis is time.
        targets: the target of the window that begins at each time, or None.
        sequence_length: how many values a window has.
        sequence_stride: the distance of the starts of windows.
        sampling_rate: the distance of the values of a window.
        batch_size: windows of a batch; None for single windows.
        shuffle: whether windows are in another order in each epoch.
        seed: of the order.
        start_index: the first time that is used.
        end_index: the end of the times that are used.
        format: accepted: the result is a loader of `weft.data`, whatever it says.

    Returns:
        A `weft.data.Loader` of windows, or of pairs of windows and targets.

    Example:
        >>> from weft import keras
        >>> loader = keras.utils.timeseries_dataset_from_array(range(5), None, 3, batch_size=2)
        >>> [batch.tolist() for batch in loader]
        [[[0, 1, 2], [1, 2, 3]], [[2, 3, 4]]]
    """
    check_format(format)
    series = np.asarray(data)
    for name, value in (
        ("sequence_length", sequence_length),
        ("sequence_stride", sequence_stride),
        ("sampling_rate", sampling_rate),
    ):
        if not 0 < value <= len(series):
            raise ArgumentError(
                f"`{name}` is positive, and not more than there are times.", received=f"{value} of {len(series)}"
            )
    first, end = start_index or 0, len(series) if end_index is None else end_index
    if not 0 <= first < end <= len(series):
        raise ArgumentError(
            f"start_index and end_index must be a nonempty range within the {len(series)} times of the data.",
            received=f"{first} to {end}",
        )
    labels = None if targets is None else np.asarray(targets)
    reach = (sequence_length - 1) * sampling_rate + 1
    last = end - reach if labels is None else min(end - reach, first + len(labels) - 1)
    if labels is not None:
        # Target i belongs to the window that begins at time i of the times that are used.
        labels = np.concatenate([np.zeros((first, *labels.shape[1:]), labels.dtype), labels])
    starts = np.arange(first, last + 1, sequence_stride)
    offsets = np.arange(sequence_length) * sampling_rate
    order_seed = make_default_seed() if seed is None and shuffle else seed or 0
    source = _Windows(series, labels, starts, offsets)
    if batch_size is None:
        return Loader(source, None, shuffle=shuffle, seed=order_seed)
    return Loader(source, batch_size, shuffle=shuffle, seed=order_seed)


def split_dataset(
    dataset: Any,
    left_size: float | int | None = None,
    right_size: float | int | None = None,
    shuffle: bool = False,
    seed: int | None = None,
    preferred_backend: str | None = None,
) -> tuple[Any, Any]:
    """Split a dataset into two parts.

    Args:
        dataset: an array, a tuple, list or dict of arrays of one length, or something whose elements are samples.
        left_size: how many samples the first part has, or which part of all as a float.
        right_size: likewise of the second part; the rest by default.
        shuffle: whether samples are in random order first.
        seed: of that order.
        preferred_backend: accepted: the parts are loaders of `weft.data`, whatever it says.

    Returns:
        Two `weft.data.Loader`s of samples.

    Example:
        >>> import numpy as np
        >>> from weft import keras
        >>> left, right = keras.utils.split_dataset(np.arange(5), left_size=0.6)
        >>> [int(x) for x in left], [int(x) for x in right]
        ([0, 1, 2], [3, 4])
    """
    del preferred_backend
    if left_size is None and right_size is None:
        raise ArgumentError("At least one of `left_size` and `right_size` must be given.")
    arrays = isinstance(dataset, np.ndarray) or (
        isinstance(dataset, (tuple, list, dict))
        and bool(weft.tree.leaves(dataset))
        and all(isinstance(leaf, (np.ndarray, weft.Array)) for leaf in weft.tree.leaves(dataset))
    )
    if arrays:
        whole = weft.tree.map(np.asarray, dataset)
        count = len(weft.tree.leaves(whole)[0])
        pick = lambda indices: [weft.tree.map(operator.itemgetter(i), whole) for i in indices]
    else:
        samples = list(dataset)
        count = len(samples)
        pick = lambda indices: [samples[i] for i in indices]
    left, right = (_count(size, count, name) for size, name in ((left_size, "left_size"), (right_size, "right_size")))
    left = count - right if left is None else left  # type: ignore[operator]
    right = count - left if right is None else right
    if left + right > count or min(left, right) < 1:
        raise ArgumentError(
            f"Both parts have samples, and together at most all {count}.", received=f"{left} and {right}"
        )
    order = np.arange(count)
    if shuffle:
        np.random.RandomState(make_default_seed() if seed is None else seed).shuffle(order)
    chosen = order[:left], order[count - right :]
    return Loader(pick(chosen[0]), None), Loader(pick(chosen[1]), None)


def _count(size: float | int | None, count: int, name: str) -> int | None:
    if size is None:
        return None
    if isinstance(size, float):
        if not 0 < size < 1:
            raise ArgumentError(f"`{name}` must be a float in (0, 1) or an integer.", received=f"{name}={size}")
        return round(size * count)
    return int(size)
