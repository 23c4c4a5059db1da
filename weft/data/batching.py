"""Batches: the sample indices of each, and the conversion of samples to arrays."""

from __future__ import annotations

import bisect
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

import weft
from weft.data.adapter import host_leaf
from weft.data.order import Order
from weft.errors import ArgumentError, ShapeMismatchError

# ------------------------------------------------------------------------------------------------- indices of batches


@dataclass(frozen=True)
class Buckets:
    """Grouping of samples of similar length into batches.

    Bucket k has lengths of up to `boundaries[k]`; one more bucket has longer samples.

    Attributes:
        boundaries: Increasing lengths.
        lengths: The length of each sample: an array, or a function of a sample of the source (by default the size of
            the first dimension of its first array), which is called once per sample before the first batch.
        batch_sizes: One for each bucket; None uses that of the loader.

    >>> from weft.data import Loader
    >>> words = [np.ones(n, int) for n in (1, 5, 2, 6)]
    >>> [batch.shape for batch in Loader(words, batch_size=2, buckets=Buckets((3, 6)), pad="bucket")]
    [(2, 3), (2, 6)]
    """

    boundaries: Sequence[int]
    lengths: Sequence[int] | np.ndarray | Callable[[Any], int] | None = None
    batch_sizes: Sequence[int] | None = None

    def __post_init__(self) -> None:
        if list(self.boundaries) != sorted(set(self.boundaries)) or not self.boundaries:
            raise ArgumentError("boundaries of Buckets must increase.", received=repr(self.boundaries))
        if self.batch_sizes is not None and len(self.batch_sizes) != len(self.boundaries) + 1:
            raise ArgumentError(
                "Buckets must have a batch size for each boundary, and one for longer samples.",
                received=f"{len(self.batch_sizes)} batch sizes for {len(self.boundaries)} boundaries",
            )

    def length(self, sample: Any) -> int:
        """Return the length of a sample."""
        if callable(self.lengths):
            return int(self.lengths(sample))
        return len(weft.tree.leaves(sample)[0])

    def bucket(self, length: int) -> int:
        """Return the bucket of a length."""
        return bisect.bisect_left(self.boundaries, length)

    def boundary(self, bucket: int) -> int | None:
        """Return the length that samples of a bucket are padded to; None beyond the last boundary."""
        return self.boundaries[bucket] if bucket < len(self.boundaries) else None

    def batch_size(self, bucket: int, default: int) -> int:
        """Return the number of samples in a batch of a bucket."""
        return default if self.batch_sizes is None else self.batch_sizes[bucket]


@dataclass(frozen=True)
class Plan:
    """The sample indices of all batches of any epoch, and the length that each batch is padded to."""

    order: Order
    batch_size: int
    drop_remainder: bool = False
    buckets: Buckets | None = None
    lengths: np.ndarray | None = None  # of all samples, for buckets

    @property
    def size(self) -> int:
        """Number of batches of an epoch, which does not depend on the order."""
        if self.buckets is None:
            return self._batches(self.order.count, self.batch_size)
        counts = np.bincount(self._bucket_of_samples(), minlength=len(self.buckets.boundaries) + 1)
        sizes = (self.buckets.batch_size(k, self.batch_size) for k in range(len(counts)))
        return sum(self._batches(int(count), size) for count, size in zip(counts, sizes, strict=True))

    def _batches(self, count: int, batch_size: int) -> int:
        return count // batch_size if self.drop_remainder else -(-count // batch_size)

    def _bucket_of_samples(self) -> np.ndarray:
        assert self.buckets is not None and self.lengths is not None
        return np.searchsorted(np.asarray(self.buckets.boundaries), self.lengths)

    def batches(self, epoch: int, start: int = 0) -> Iterator[tuple[np.ndarray | range, int | None]]:
        """Yield the indices of each batch from `start` on, and the length of its bucket."""
        indices = self.order.indices(epoch)
        if self.buckets is None:
            for i in range(start, self.size):
                yield indices[i * self.batch_size : (i + 1) * self.batch_size], None
            return
        indices = np.asarray(indices)
        buckets, found = self._bucket_of_samples()[indices], []
        for bucket in np.unique(buckets):
            positions = np.flatnonzero(buckets == bucket)
            size = self.buckets.batch_size(int(bucket), self.batch_size)
            for i in range(self._batches(len(positions), size)):
                chosen = positions[i * size : (i + 1) * size]
                # A batch is due when its last sample is reached; incomplete batches are due at the end.
                last = int(chosen[-1]) if len(chosen) == size else len(indices) + int(bucket)
                found.append((last, indices[chosen], self.buckets.boundary(int(bucket))))
        for _, chosen, length in sorted(found, key=lambda batch: batch[0])[start:]:
            yield chosen, length


# ------------------------------------------------------------------------------------------------- samples to arrays

PadTo = int | str | None


@dataclass(frozen=True)
class Collation:
    """Conversion of samples to a batch: arrays are padded to one size and stacked along a new first dimension.

    Attributes:
        pad: None, "longest" (of the batch), "bucket" (the boundary of its bucket), the size of the first dimension, or
            a tree of these that is a prefix of a sample.
        pad_value: The value of padding.
        function: The user's function from a list of samples to a batch, or None.
    """

    pad: Any = None
    pad_value: Any = 0
    function: Callable[[list[Any]], Any] | None = None

    def __call__(self, samples: list[Any], length: int | None = None) -> Any:
        if self.function is not None:
            return self.function(samples)
        first = samples[0]
        if type(first) is np.ndarray and all(type(sample) is np.ndarray for sample in samples):
            return self._stack(samples, self.pad, length)  # the common case of samples that are one array
        leaves, structure = weft.tree.flatten(first)
        columns = [leaves, *(self._leaves(sample, structure) for sample in samples[1:])]
        if self.pad is None or isinstance(self.pad, (int, str)):
            pads = [self.pad] * len(leaves)
        else:
            is_none = lambda x: x is None
            pads = weft.tree.leaves(weft.tree.broadcast(self.pad, first, is_leaf=is_none), is_leaf=is_none)
        stacked = [self._stack(list(c), pads[i], length) for i, c in enumerate(zip(*columns, strict=True))]
        return weft.tree.unflatten(structure, stacked)

    def _leaves(self, sample: Any, structure: Any) -> list[Any]:
        leaves, found = weft.tree.flatten(sample)
        if found != structure:
            raise ShapeMismatchError(
                "The samples of a batch must have the same tree structure.", received=f"{structure} and {found}"
            )
        return leaves

    def _stack(self, leaves: list[Any], pad: PadTo, length: int | None) -> np.ndarray:
        arrays = [leaf if type(leaf) is np.ndarray else np.asarray(host_leaf(leaf)) for leaf in leaves]
        shapes = {array.shape for array in arrays}
        target = self._target(shapes, pad, length)
        if len(shapes) == 1 and target in shapes:
            return np.stack(arrays)
        out = np.full((len(arrays), *target), self.pad_value, np.result_type(*{array.dtype for array in arrays}))
        for row, array in zip(out, arrays, strict=True):
            row[tuple(slice(0, size) for size in array.shape)] = array
        return out

    def _target(self, shapes: set[tuple[int, ...]], pad: PadTo, length: int | None) -> tuple[int, ...]:
        """Return the shape that samples of these shapes are padded to."""
        ranks = {len(shape) for shape in shapes}
        if len(ranks) > 1 or (pad is None and len(shapes) > 1):
            raise ShapeMismatchError(
                "The samples of a batch must have the same shape.",
                received=" and ".join(map(str, sorted(shapes)[:3])),
                fix=("Loader(..., pad='longest')", "Loader(..., pad=128)", "a Map that makes them equal"),
            )
        longest = tuple(max(sizes) for sizes in zip(*shapes, strict=True))
        wanted = length if pad == "bucket" else pad
        if not isinstance(wanted, int) or not longest:
            return longest
        if longest[0] > wanted:
            raise ShapeMismatchError(
                "A sample must not be longer than the size that it is padded to.",
                received=f"shape {longest}, pad to {wanted}",
                fix=f"a Map that cuts: lambda sample: sample[:{wanted}]",
            )
        return (wanted, *longest[1:])


def rows_in(batch: Any) -> int:
    """Return the number of samples in a batch."""
    leaves = weft.tree.leaves(batch)
    return np.shape(leaves[0])[0] if leaves and np.shape(leaves[0]) else 0
