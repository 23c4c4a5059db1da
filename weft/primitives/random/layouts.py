"""Random bits and keys from hashes of counts: the hashed words, and the position of each word in the result.

One body for two builders: NumPy arrays (`arrays`) and the primitives that are compiled (`definitions`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np

from weft.base import dtypes
from weft.base.settings import config
from weft.primitives.random import philox

# Every size is known when bits are drawn.
Sizes = tuple[int, ...]
HASH = "threefry2x32"
UINT32 = np.dtype(np.uint32)
UINT64 = np.dtype(np.uint64)
UNSIGNED: dict[int, np.dtype[Any]] = {8: np.dtype(np.uint8), 16: np.dtype(np.uint16), 32: UINT32, 64: UINT64}


class Builder(Protocol):
    """Operations on arrays of keys and of unsigned integers. The first operand of `xor`, `or_` and `shift_left` is not
    used again, so the result may take its memory."""

    def hash(self, keys: Any, first: Any, second: Any) -> tuple[Any, Any]:
        """Hash pairs of words, each under its key. Keys and words have one shape, or are scalars."""
        ...

    def hash_all(self, keys: Any, first: Any, second: Any) -> tuple[Any, Any]:
        """Hash all pairs of words under each key: the dimensions of the keys come first."""
        ...

    def hash_counts(self, keys: Any, shape: Sizes) -> tuple[Any, Any]:
        """Hash the counts 0, 1, ... in an array of `shape` under each key, by their `count_words`."""
        ...

    def wrap(self, words: Any, dtype: Any) -> Any:
        """Return keys with words along the last axis."""
        ...

    def generator(self, keys: Any) -> str:
        """Return the name of the generator of the keys."""
        ...

    def words(self, keys: Any) -> Sequence[Any]:
        """Return the words of keys, as one array for each word."""
        ...

    def keys(self, words: Sequence[Any], dtype: Any) -> Any:
        """Return keys from arrays of their words."""
        ...

    def halves(self, keys: Any) -> tuple[Any, Any]:
        """Split keys of four words into two keys of the hash."""
        ...

    def zeros(self, shape: Sizes, dtype: Any) -> Any: ...
    def arange(self, size: int) -> Any: ...
    def reshape(self, x: Any, shape: Sizes) -> Any: ...
    def concatenate(self, *arrays: Any) -> Any:
        """Concatenate along the last axis."""
        ...

    def part(self, x: Any, start: int, stop: int) -> Any:
        """Return x[..., start:stop]."""
        ...

    def convert(self, x: Any, dtype: Any) -> Any:
        """Convert integers to another dtype, modulo 2 to the number of its bits."""
        ...

    def narrow(self, words: Any, dtype: Any) -> Any:
        """Split words into several narrower integers each along the last axis, the lower bits first."""
        ...

    def add(self, x: Any, count: int) -> Any: ...
    def plus(self, x: Any, y: Any) -> Any: ...
    def multiply(self, x: Any, factor: int) -> tuple[Any, Any]:
        """Return the upper and the lower word of the product of words with a word."""
        ...

    def less(self, x: Any, y: Any) -> Any:
        """Return 1 where x is less than y, else 0."""
        ...

    def select(self, index: Any, cases: Sequence[Any]) -> Any:
        """Select the case of each index."""
        ...

    def repeat_last(self, x: Any, shape: Sizes) -> Any:
        """Broadcast an array to a larger shape that begins with its own."""
        ...

    def repeat_first(self, x: Any, shape: Sizes) -> Any:
        """Broadcast an array to a larger shape that ends with its own."""
        ...

    def low_bits(self, x: Any, count: int) -> Any:
        """Return the lowest `count` bits."""
        ...

    def xor(self, x: Any, y: Any) -> Any: ...
    def or_(self, x: Any, y: Any) -> Any: ...
    def shift_left(self, x: Any, count: int) -> Any: ...
    def shift_right(self, x: Any, count: int) -> Any: ...


def random_bits(build: Builder, keys: Any, *, bit_width: int, shape: Sizes) -> Any:
    """Generate `shape` unsigned integers of `bit_width` bits from each key."""
    full = (*keys.shape, *shape)
    if not math.prod(full):
        return build.zeros(full, UNSIGNED[bit_width])
    if build.generator(keys) != HASH:
        return build.reshape(philox.bits(build, build.words(keys), bit_width, math.prod(shape)), full)
    if not config.threefry_partitionable:
        return build.reshape(older_bits(build, keys, bit_width, math.prod(shape)), full)
    first, second = build.hash_counts(keys, shape)
    if bit_width == 64:
        return merge_words(build, first, second)
    return build.convert(build.xor(first, second), UNSIGNED[bit_width])


def random_split(build: Builder, keys: Any, *, shape: Sizes) -> Any:
    """Generate `shape` new keys from each key."""
    full = (*keys.shape, *shape)
    generator = build.generator(keys)
    if not math.prod(full):
        return build.wrap(build.zeros((*full, 2 if generator == HASH else 4), UINT32), keys.dtype)
    if generator == "rbg":
        parts = [random_split(build, half, shape=shape) for half in build.halves(keys)]
        return build.keys([word for part in parts for word in build.words(part)], keys.dtype)
    if generator == "unsafe_rbg":
        size = math.prod(shape)
        words = build.reshape(philox.bits(build, build.words(keys), 32, 40 * size), (*keys.shape, size, 40))
        return build.wrap(build.reshape(build.part(words, 0, 4), (*full, 4)), keys.dtype)
    if not config.threefry_partitionable:
        words = hash_halves(build, keys, 2 * math.prod(shape))
        return build.wrap(build.reshape(words, (*full, 2)), keys.dtype)
    return build.keys(build.hash_counts(keys, shape), keys.dtype)


def random_fold_in(build: Builder, keys: Any, data: Any) -> Any:
    """Generate a new key from each key and a word; a single key serves all words, and a single word all keys."""
    generator = build.generator(keys)
    if generator == "rbg":
        parts = [random_fold_in(build, half, data) for half in build.halves(keys)]
        return build.keys([word for part in parts for word in build.words(part)], keys.dtype)
    if generator == "unsafe_rbg":
        zeros = build.zeros(data.shape, UINT32)
        drawn = build.reshape(philox.bits(build, (zeros, data, zeros, data), 32, 40), (*data.shape, 40))
        shape = keys.shape or data.shape
        words = []
        for i, word in enumerate(build.words(keys)):
            other = build.reshape(build.part(drawn, 36 + i, 37 + i), data.shape)
            words.append(build.xor(build.repeat_last(other, shape), build.repeat_last(word, shape)))
        return build.keys(words, keys.dtype)
    return build.keys(build.hash(keys, np.zeros((), UINT32), data), keys.dtype)


def random_seed(build: Builder, seeds: Any, *, impl: Any) -> Any:
    """Return keys with the upper and lower 32 bits of each seed as words, twice for keys of four words."""
    low = build.convert(seeds, UINT32)
    if dtypes.itemsize_bits(seeds.dtype) > 32:
        high = build.convert(build.shift_right(build.convert(seeds, UINT64), 32), UINT32)
    else:
        high = build.zeros(seeds.shape, UINT32)
    return build.keys([high, low] * (impl.key_shape[0] // 2), impl)


def count_words(build: Builder, counts: Any) -> tuple[Any, Any]:
    """Return the words by which 64-bit counts are hashed, upper ones first; counts of 32 bits have an upper word of
    0."""
    if counts.dtype == UINT32:
        return np.zeros((), UINT32), counts
    low = build.convert(counts, UINT32)
    return build.convert(build.shift_right(counts, 32), UINT32), low


def merge_words(build: Builder, high: Any, low: Any) -> Any:
    """Combine two words to 64-bit integers."""
    return build.or_(build.shift_left(build.convert(high, UINT64), 32), build.convert(low, UINT64))


def hash_halves(build: Builder, keys: Any, size: int) -> Any:
    """Hash `size` words for each key in the older layout: count i is paired with count i + size / 2 (rounded up)."""
    half = -(-size // 2)
    counts = build.arange(half)
    later = build.add(counts, half)
    if size % 2:  # the last pair has no second count
        last = np.zeros((1,), UINT32)
        later = build.concatenate(build.part(later, 0, half - 1), last) if half > 1 else last
    return build.part(build.concatenate(*build.hash_all(keys, counts, later)), 0, size)


def older_bits(build: Builder, keys: Any, bit_width: int, size: int) -> Any:
    """Generate `size` integers for each key in the older layout, in which narrow ones share a word."""
    words = hash_halves(build, keys, -(-size * bit_width // 32))
    if bit_width == 64:
        return merge_words(build, build.part(words, 0, size), build.part(words, size, 2 * size))
    if bit_width < 32:
        words = build.part(build.narrow(words, UNSIGNED[bit_width]), 0, size)
    return words
