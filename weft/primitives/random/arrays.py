"""Random bits and keys as NumPy arrays."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from weft.primitives.random.layouts import UINT32, UINT64, Sizes, count_words
from weft.primitives.random.threefry import threefry_arrays, threefry_integers

WORDS = np.dtype([("first", np.uint32), ("second", np.uint32)])
FEW = 8  # so many words are hashed sooner as Python integers
BLOCK = 1 << 14  # words hashed at a time, so that the rounds stay in cache


def words_of(keys: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The two words of each key, contiguous."""
    first, second = (np.ascontiguousarray(keys[name]).reshape(keys.shape) for name in ("first", "second"))
    return first, second


class ArrayBuilder:
    """What `layouts.Builder` asks for, on NumPy arrays."""

    def hash(self, keys: Any, first: Any, second: Any) -> tuple[Any, Any]:
        if not keys.shape and not np.shape(second):
            key_first, key_second = keys.item()
            return threefry_integers()(key_first, key_second, int(first), int(second))
        key_first, key_second = words_of(keys)
        return threefry_arrays(key_first, key_second, first, second)

    def hash_all(self, keys: Any, first: Any, second: Any) -> tuple[Any, Any]:
        shape = (*keys.shape, *(1,) * np.ndim(second))
        key_first, key_second = words_of(keys)
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
        return np.ascontiguousarray(words).view(WORDS)[..., 0]

    def keys(self, first: Any, second: Any, dtype: Any) -> Any:
        out = np.empty(np.shape(first), WORDS)
        out["first"], out["second"] = first, second
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

    def xor(self, x: Any, y: Any) -> Any:
        return np.bitwise_xor(x, y, out=x)

    def or_(self, x: Any, y: Any) -> Any:
        return np.bitwise_or(x, y, out=x)

    def shift_left(self, x: Any, count: int) -> Any:
        return np.left_shift(x, x.dtype.type(count), out=x)

    def shift_right(self, x: Any, count: int) -> Any:
        return x >> x.dtype.type(count)


ARRAYS = ArrayBuilder()
