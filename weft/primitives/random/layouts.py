"""Random bits and keys from hashes of counts: which words are hashed, and where each word of the result goes.

One body for two builders: NumPy arrays (`arrays`) and the primitives that are compiled (`definitions`).
"""

from __future__ import annotations

import math
from typing import Any, Protocol

import numpy as np

from weft.base import dtypes
from weft.base.settings import config

# Every size is known when bits are drawn.
Sizes = tuple[int, ...]
UINT32 = np.dtype(np.uint32)
UINT64 = np.dtype(np.uint64)
UNSIGNED: dict[int, np.dtype[Any]] = {8: np.dtype(np.uint8), 16: np.dtype(np.uint16), 32: UINT32, 64: UINT64}


class Builder(Protocol):
    """Operations on arrays of keys and of unsigned integers. The first operand of `xor`, `or_` and `shift_left` is not
    used again, so the result may take its memory."""

    def hash(self, keys: Any, first: Any, second: Any) -> tuple[Any, Any]:
        """The hash of pairs of words, each under its key. Keys and words have one shape, or are scalars."""
        ...

    def hash_all(self, keys: Any, first: Any, second: Any) -> tuple[Any, Any]:
        """The hash of all pairs of words under each key: the dimensions of the keys come first."""
        ...

    def hash_counts(self, keys: Any, shape: Sizes) -> tuple[Any, Any]:
        """The hash of the counts 0, 1, ... in an array of `shape` under each key, by their `count_words`."""
        ...

    def wrap(self, words: Any, dtype: Any) -> Any:
        """Keys whose words are along the last axis."""
        ...

    def keys(self, first: Any, second: Any, dtype: Any) -> Any:
        """Keys from their first and second words."""
        ...

    def zeros(self, shape: Sizes, dtype: Any) -> Any: ...
    def arange(self, size: int) -> Any: ...
    def reshape(self, x: Any, shape: Sizes) -> Any: ...
    def concatenate(self, *arrays: Any) -> Any:
        """Along the last axis."""
        ...

    def part(self, x: Any, start: int, stop: int) -> Any:
        """x[..., start:stop]"""
        ...

    def convert(self, x: Any, dtype: Any) -> Any:
        """Integers in another dtype, modulo 2 to the number of its bits."""
        ...

    def narrow(self, words: Any, dtype: Any) -> Any:
        """Words as several narrower integers each along the last axis, the lower bits first."""
        ...

    def add(self, x: Any, count: int) -> Any: ...
    def xor(self, x: Any, y: Any) -> Any: ...
    def or_(self, x: Any, y: Any) -> Any: ...
    def shift_left(self, x: Any, count: int) -> Any: ...
    def shift_right(self, x: Any, count: int) -> Any: ...


def random_bits(build: Builder, keys: Any, *, bit_width: int, shape: Sizes) -> Any:
    """`shape` unsigned integers of `bit_width` bits from each key."""
    full = (*keys.shape, *shape)
    if not math.prod(full):
        return build.zeros(full, UNSIGNED[bit_width])
    if not config.threefry_partitionable:
        return build.reshape(older_bits(build, keys, bit_width, math.prod(shape)), full)
    first, second = build.hash_counts(keys, shape)
    if bit_width == 64:
        return merged(build, first, second)
    return build.convert(build.xor(first, second), UNSIGNED[bit_width])


def random_split(build: Builder, keys: Any, *, shape: Sizes) -> Any:
    """`shape` new keys from each key."""
    full = (*keys.shape, *shape)
    if not math.prod(full):
        return build.wrap(build.zeros((*full, 2), UINT32), keys.dtype)
    if not config.threefry_partitionable:
        words = hashed_halves(build, keys, 2 * math.prod(shape))
        return build.wrap(build.reshape(words, (*full, 2)), keys.dtype)
    return build.keys(*build.hash_counts(keys, shape), keys.dtype)


def random_fold_in(build: Builder, keys: Any, data: Any) -> Any:
    """A new key from each key and a word; a single key serves all words, and a single word all keys."""
    return build.keys(*build.hash(keys, np.zeros((), UINT32), data), keys.dtype)


def random_seed(build: Builder, seeds: Any, *, impl: Any) -> Any:
    """Keys whose words are the upper and lower 32 bits of each seed."""
    low = build.convert(seeds, UINT32)
    if dtypes.itemsize_bits(seeds.dtype) > 32:
        high = build.convert(build.shift_right(build.convert(seeds, UINT64), 32), UINT32)
    else:
        high = build.zeros(seeds.shape, UINT32)
    return build.keys(high, low, impl)


def count_words(build: Builder, counts: Any) -> tuple[Any, Any]:
    """The words by which 64-bit counts are hashed, upper ones first; counts of 32 bits have an upper word of 0."""
    if counts.dtype == UINT32:
        return np.zeros((), UINT32), counts
    low = build.convert(counts, UINT32)
    return build.convert(build.shift_right(counts, 32), UINT32), low


def merged(build: Builder, high: Any, low: Any) -> Any:
    """64-bit integers from two words."""
    return build.or_(build.shift_left(build.convert(high, UINT64), 32), build.convert(low, UINT64))


def hashed_halves(build: Builder, keys: Any, size: int) -> Any:
    """For each key `size` words in the older layout: count i is paired with count i + size / 2 (rounded up)."""
    half = -(-size // 2)
    counts = build.arange(half)
    later = build.add(counts, half)
    if size % 2:  # the last pair has no second count
        last = np.zeros((1,), UINT32)
        later = build.concatenate(build.part(later, 0, half - 1), last) if half > 1 else last
    return build.part(build.concatenate(*build.hash_all(keys, counts, later)), 0, size)


def older_bits(build: Builder, keys: Any, bit_width: int, size: int) -> Any:
    """For each key `size` integers in the older layout, in which narrow ones share a word."""
    words = hashed_halves(build, keys, -(-size * bit_width // 32))
    if bit_width == 64:
        return merged(build, build.part(words, 0, size), build.part(words, size, 2 * size))
    if bit_width < 32:
        words = build.part(build.narrow(words, UNSIGNED[bit_width]), 0, size)
    return words
