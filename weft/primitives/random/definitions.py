"""Definitions of the operations on random keys, for code: random bits by the cipher of counts.

They give the same bits as the operations' own meaning. After them only `random_wrap` and `random_unwrap` know of keys;
these do nothing but look at the two words of a key.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from weft.base import dtypes
from weft.base.settings import config
from weft.ir.primitive import lookup
from weft.ir.types import Shape
from weft.primitives.elementwise.arithmetic import add
from weft.primitives.elementwise.bitwise import or_, shift_left, shift_right_logical, xor
from weft.primitives.elementwise.convert import bitcast_convert_type, convert_element_type
from weft.primitives.movement.concatenate import concatenate
from weft.primitives.movement.iota import iota
from weft.primitives.movement.shape import broadcast_in_dim, reshape
from weft.primitives.reduction.reduce_other import part

# When code is made for it, every size is known.
Sizes = tuple[int, ...]
UINT32 = np.dtype(np.uint32)
UINT64 = np.dtype(np.uint64)
UNSIGNED: dict[int, np.dtype[Any]] = {8: np.dtype(np.uint8), 16: np.dtype(np.uint16), 32: UINT32, 64: UINT64}


def word(value: int) -> np.ndarray:
    return np.array(value, UINT32)


def converted(x: Any, dtype: Any) -> Any:
    return x if x.dtype == dtype else convert_element_type(x, new_dtype=dtype, weak_type=False)


def reshaped(x: Any, shape: Shape) -> Any:
    return x if x.shape == shape else reshape(x, new_sizes=shape, dimensions=None)


def leading(x: Any, shape: Shape) -> Any:
    """An operand repeated along the dimensions of `shape` that come after its own; scalars stay."""
    rank = len(x.shape)
    if not rank or x.shape == shape:
        return x
    return broadcast_in_dim(x, shape=shape, broadcast_dimensions=tuple(range(rank)))


# ---------------------------------------------------------------------------------------------------------- the cipher


def words_of(keys: Any) -> tuple[Any, Any]:
    """The two words of each key."""
    words = lookup("random_unwrap")(keys)
    last = len(words.shape) - 1
    first, second = (reshaped(part(words, i, i + 1, axis=last), keys.shape) for i in range(2))
    return first, second


def keys_from(first: Any, second: Any, dtype: Any) -> Any:
    """Keys from their words."""
    columns = [reshaped(a, (*a.shape, 1)) for a in (first, second)]
    return lookup("random_wrap")(concatenate(*columns, dimension=len(first.shape)), impl=dtype)


def enciphered_counts(keys: Any, shape: Sizes) -> tuple[Any, Any]:
    """For each key the encipherments of the 64-bit counts 0, 1, ... in an array of `shape`."""
    full = (*keys.shape, *shape)
    size = math.prod(shape)
    low: Any = word(0)
    high: Any = word(0)
    if size > 1 << 32:
        counts = iota(dtype=UINT64, shape=(size,), dimension=0)
        low = converted(counts, UINT32)
        # A literal of 64 bits would be narrowed.
        high = trailing(converted(shift_right_logical(counts, converted(word(32), UINT64)), UINT32), shape, full)
    elif shape:
        low = iota(dtype=UINT32, shape=(size,), dimension=0)
    first, second = (leading(a, full) for a in words_of(keys))
    return lookup("threefry2x32")(first, second, high, trailing(low, shape, full))


def trailing(x: Any, shape: Shape, full: Shape) -> Any:
    """A list of counts in `shape`, repeated for every key."""
    if not x.shape:
        return x if not full else broadcast_in_dim(x, shape=full, broadcast_dimensions=())
    x = reshaped(x, shape)
    places = tuple(range(len(full) - len(shape), len(full)))
    return x if x.shape == full else broadcast_in_dim(x, shape=full, broadcast_dimensions=places)


def enciphered_halves(keys: Any, size: int) -> Any:
    """For each key `size` words in the older layout: count i is paired with count i + size / 2 (rounded up)."""
    half = -(-size // 2)
    full = (*keys.shape, half)
    counts = iota(dtype=UINT32, shape=(half,), dimension=0)
    later: Any = add(counts, word(half))
    if size % 2:  # the last pair has no second count
        last = np.zeros((1,), UINT32)
        later = concatenate(part(later, 0, half - 1), last, dimension=0) if half > 1 else last
    first, second = (trailing(a, (half,), full) for a in (counts, later))
    pair = lookup("threefry2x32")(*(leading(a, full) for a in words_of(keys)), first, second)
    axis = len(keys.shape)
    return part(concatenate(*pair, dimension=axis), 0, size, axis=axis)


# ------------------------------------------------------------------------------------------------------ the operations


def random_bits(keys: Any, *, bit_width: int, shape: Sizes) -> Any:
    full = (*keys.shape, *shape)
    if not math.prod(full):
        return broadcast_in_dim(np.zeros((), UNSIGNED[bit_width]), shape=full, broadcast_dimensions=())
    if not config.threefry_partitionable:
        return older_bits(keys, bit_width, math.prod(shape), full)
    first, second = enciphered_counts(keys, shape)
    if bit_width == 64:
        return joined(first, second)
    return converted(xor(first, second), UNSIGNED[bit_width])


def joined(high: Any, low: Any) -> Any:
    """64-bit integers from two words."""
    return or_(shift_left(converted(high, UINT64), converted(word(32), UINT64)), converted(low, UINT64))


def older_bits(keys: Any, bit_width: int, size: int, full: Shape) -> Any:
    """Integers in the older layout, in which narrow ones share a word."""
    axis = len(keys.shape)
    words = enciphered_halves(keys, -(-size * bit_width // 32))
    if bit_width == 64:
        return reshaped(joined(part(words, 0, size, axis=axis), part(words, size, 2 * size, axis=axis)), full)
    if bit_width < 32:
        words = bitcast_convert_type(words, new_dtype=UNSIGNED[bit_width])
        words = reshaped(words, (*keys.shape, words.shape[-2] * words.shape[-1]))
        words = part(words, 0, size, axis=axis)
    return reshaped(words, full)


def random_split(keys: Any, *, shape: Sizes) -> Any:
    full, size = (*keys.shape, *shape), math.prod(shape)
    if not math.prod(full):
        empty = broadcast_in_dim(np.zeros((), UINT32), shape=(*full, 2), broadcast_dimensions=())
        return lookup("random_wrap")(empty, impl=keys.dtype)
    if not config.threefry_partitionable:
        return lookup("random_wrap")(reshaped(enciphered_halves(keys, 2 * size), (*full, 2)), impl=keys.dtype)
    return keys_from(*enciphered_counts(keys, shape), keys.dtype)


def random_fold_in(keys: Any, data: Any) -> Any:
    full = keys.shape or data.shape
    whole = data if data.shape == full else broadcast_in_dim(data, shape=full, broadcast_dimensions=())
    first, second = lookup("threefry2x32")(*words_of(keys), word(0), whole)
    return keys_from(first, second, keys.dtype)


def random_seed(seeds: Any, *, impl: Any) -> Any:
    low = converted(seeds, UINT32)
    if dtypes.itemsize_bits(seeds.dtype) > 32:
        high = converted(shift_right_logical(converted(seeds, UINT64), np.array(32, UINT64)), UINT32)
    else:
        high = np.zeros((), UINT32)
        high = broadcast_in_dim(high, shape=seeds.shape, broadcast_dimensions=())
    return keys_from(high, low, impl)
