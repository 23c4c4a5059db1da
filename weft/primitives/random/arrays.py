"""Random bits and keys as NumPy arrays."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from weft.base import dtypes
from weft.primitives.random.layouts import UINT32, UINT64, Sizes, count_words
from weft.primitives.random.threefry import threefry_arrays, threefry_integers

WORDS = np.dtype([("first", np.uint32), ("second", np.uint32)])
# The names of fields tell generators with keys of one size from each other.
RBG_WORDS = np.dtype([(name, np.uint32) for name in ("first", "second", "third", "fourth")])
UNSAFE_WORDS = np.dtype([(f"unsafe_{name}", np.uint32) for name in RBG_WORDS.names or ()])
GENERATORS = {WORDS: "threefry2x32", RBG_WORDS: "rbg", UNSAFE_WORDS: "unsafe_rbg"}
FEW = 8  # up to this many words are hashed faster as Python integers
BLOCK = 1 << 14  # words hashed at a time, so that the rounds stay in cache


def split_words(keys: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the two words of each key, contiguous."""
    first, second = (np.ascontiguousarray(keys[name]).reshape(keys.shape) for name in ("first", "second"))
    return first, second


class ArrayBuilder:
    """`layouts.Builder` on NumPy arrays."""

    def hash(self, keys: Any, first: Any, second: Any) -> tuple[Any, Any]:
        if not keys.shape and not np.shape(second):
            key_first, key_second = keys.item()
            return threefry_integers()(key_first, key_second, int(first), int(second))
        key_first, key_second = split_words(keys)
        return threefry_arrays(key_first, key_second, first, second)

    def hash_all(self, keys: Any, first: Any, second: Any) -> tuple[Any, Any]:
        shape = (*keys.shape, *(1,) * np.ndim(second))
        key_first, key_second = split_words(keys)
        return threefry_arrays(key_first.reshape(shape), key_second.reshape(shape), first, second)

    def hash_counts(self, keys: Any, shape: Sizes) -> tuple[Any, Any]:
        full, size = (*keys.shape, *shape), math.prod(shape)
        if keys.size * size <= FEW:
            hashed = threefry_integers()
            pairs = [hashed(a, b, 0, count) for a, b in keys.ravel().tolist() for count in range(size)]
            words = np.array(pairs, UINT32)
            return words[:, 0].reshape(full), words[:, 1].reshape(full)
        flat = keys.reshape(-1)
        x, y = np.empty((flat.size, size), UINT32), np.empty((flat.size, size), UINT32)
        columns = min(size, BLOCK)
        rows = max(1, BLOCK // columns)
        for start in range(0, size, columns):
            stop = min(start + columns, size)
            high, low = count_words(self, np.arange(start, stop, dtype=UINT64 if stop > 1 << 32 else UINT32))
            for row in range(0, flat.size, rows):
                part = slice(row, row + rows)
                x[part, start:stop], y[part, start:stop] = self.hash_all(flat[part], high, low)
        return x.reshape(full), y.reshape(full)

    def wrap(self, words: Any, dtype: Any) -> Any:
        return np.ascontiguousarray(words).view(dtypes.storage(dtype))[..., 0]

    def generator(self, keys: Any) -> str:
        return GENERATORS[keys.dtype]

    def words(self, keys: Any) -> Sequence[Any]:
        return [np.ascontiguousarray(keys[name]).reshape(keys.shape) for name in keys.dtype.names]

    def halves(self, keys: Any) -> tuple[Any, Any]:
        words = self.words(keys)
        return self.keys(words[:2], WORDS), self.keys(words[2:], WORDS)

    def keys(self, words: Sequence[Any], dtype: Any) -> Any:
        storage = dtypes.storage(dtype)
        out = np.empty(np.shape(words[0]), storage)
        for name, word in zip(storage.names or (), words, strict=True):
            out[name] = word
        return out

    def zeros(self, shape: Sizes, dtype: Any) -> Any:
        return np.zeros(shape, dtype)

    def arange(self, size: int) -> Any:
        return np.arange(size, dtype=UINT32)

    def reshape(self, x: Any, shape: Sizes) -> Any:
        return x.reshape(shape)

    def concatenate(self, *arrays: Any) -> Any:
        return np.concatenate(arrays, axis=-1)

    def part(self, x: Any, start: int, stop: int) -> Any:
        return x[..., start:stop]

    def convert(self, x: Any, dtype: Any) -> Any:
        return x.astype(dtype, copy=False)

    def narrow(self, words: Any, dtype: Any) -> Any:
        return np.ascontiguousarray(words).view(dtype)

    def add(self, x: Any, count: int) -> Any:
        return x + x.dtype.type(count)

    def plus(self, x: Any, y: Any) -> Any:
        return np.add(x, y)

    def multiply(self, x: Any, factor: int) -> tuple[Any, Any]:
        product = np.asarray(x).astype(UINT64) * np.uint64(factor)
        return (product >> np.uint64(32)).astype(UINT32), product.astype(UINT32)

    def less(self, x: Any, y: Any) -> Any:
        return np.less(x, y).astype(UINT32)

    def select(self, index: Any, cases: Sequence[Any]) -> Any:
        return np.choose(index, cases)

    def repeat_last(self, x: Any, shape: Sizes) -> Any:
        return np.broadcast_to(np.reshape(x, (*x.shape, *(1,) * (len(shape) - x.ndim))), shape).copy()

    def repeat_first(self, x: Any, shape: Sizes) -> Any:
        return np.broadcast_to(x, shape).copy()

    def low_bits(self, x: Any, count: int) -> Any:
        return x & UINT32.type((1 << count) - 1)

    def xor(self, x: Any, y: Any) -> Any:
        return np.bitwise_xor(x, y, out=x)

    def or_(self, x: Any, y: Any) -> Any:
        return np.bitwise_or(x, y, out=x)

    def shift_left(self, x: Any, count: int) -> Any:
        return np.left_shift(x, x.dtype.type(count), out=x)

    def shift_right(self, x: Any, count: int) -> Any:
        return x >> x.dtype.type(count)


ARRAYS = ArrayBuilder()
