"""Random bits and keys in terms of other primitives, for compiled code.

After these definitions only `random_wrap` and `random_unwrap` handle keys; they only rearrange the words of a key.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from weft.indexing.dimension import definitely_less_equal
from weft.ir.primitive import lookup
from weft.ir.types import Shape
from weft.primitives.elementwise.arithmetic import add, mul
from weft.primitives.elementwise.bitwise import and_, mulhi, or_, shift_left, shift_right_logical, xor
from weft.primitives.elementwise.compare import lt, ne
from weft.primitives.elementwise.convert import bitcast_convert_type, convert_element_type
from weft.primitives.elementwise.select import select_n
from weft.primitives.movement.concatenate import concatenate
from weft.primitives.movement.iota import iota
from weft.primitives.movement.shape import broadcast_in_dim, reshape
from weft.primitives.random.layouts import UINT32, UINT64, Sizes, count_words
from weft.primitives.reduction.reduce_other import part


class PrimitiveBuilder:
    """`layouts.Builder` that binds primitives."""

    def hash(self, keys: Any, first: Any, second: Any) -> tuple[Any, Any]:
        shape = keys.shape or second.shape
        if second.shape != shape:
            second = broadcast_in_dim(second, shape=shape, broadcast_dimensions=())
        result: tuple[Any, Any] = lookup("threefry2x32")(*self.words(keys), first, second)
        return result

    def hash_all(self, keys: Any, first: Any, second: Any) -> tuple[Any, Any]:
        full = (*keys.shape, *second.shape)
        key_words = (with_dimensions(words, full, 0) for words in self.words(keys))
        counts = (with_dimensions(words, full, len(keys.shape)) for words in (first, second))
        result: tuple[Any, Any] = lookup("threefry2x32")(*key_words, *counts)
        return result

    def hash_counts(self, keys: Any, shape: Sizes) -> tuple[Any, Any]:
        size = math.prod(shape)
        high = low = np.zeros((), UINT32)
        if shape:
            counts = iota(dtype=UINT32 if definitely_less_equal(size, 1 << 32) else UINT64, shape=(size,), dimension=0)
            high, low = (self.reshape(words, shape if words.shape else ()) for words in count_words(self, counts))
        return self.hash_all(keys, high, low)

    def generator(self, keys: Any) -> str:
        result: str = keys.dtype.impl
        return result

    def words(self, keys: Any) -> Sequence[Any]:
        words = lookup("random_unwrap")(keys)
        return [self.reshape(self.part(words, i, i + 1), keys.shape) for i in range(words.shape[-1])]

    def halves(self, keys: Any) -> tuple[Any, Any]:
        words, half = self.words(keys), keys.dtype.half
        return self.keys(words[:2], half), self.keys(words[2:], half)

    def wrap(self, words: Any, dtype: Any) -> Any:
        return lookup("random_wrap")(words, impl=dtype)

    def keys(self, words: Sequence[Any], dtype: Any) -> Any:
        return self.wrap(self.concatenate(*(self.reshape(a, (*a.shape, 1)) for a in words)), dtype)

    def zeros(self, shape: Sizes, dtype: Any) -> Any:
        return broadcast_in_dim(np.zeros((), dtype), shape=shape, broadcast_dimensions=())

    def arange(self, size: int) -> Any:
        return iota(dtype=UINT32, shape=(size,), dimension=0)

    def reshape(self, x: Any, shape: Sizes) -> Any:
        return x if x.shape == shape else reshape(x, new_sizes=shape, dimensions=None)

    def concatenate(self, *arrays: Any) -> Any:
        return concatenate(*arrays, dimension=len(arrays[0].shape) - 1)

    def part(self, x: Any, start: int, stop: int) -> Any:
        return part(x, start, stop, axis=len(x.shape) - 1)

    def convert(self, x: Any, dtype: Any) -> Any:
        return x if x.dtype == dtype else convert_element_type(x, new_dtype=dtype, weak_type=False)

    def narrow(self, words: Any, dtype: Any) -> Any:
        narrow = bitcast_convert_type(words, new_dtype=dtype)
        return self.reshape(narrow, (*narrow.shape[:-2], narrow.shape[-2] * narrow.shape[-1]))

    def add(self, x: Any, count: int) -> Any:
        return add(x, self.constant(x, count))

    def plus(self, x: Any, y: Any) -> Any:
        return add(x, y)

    def multiply(self, x: Any, factor: int) -> tuple[Any, Any]:
        constant = np.array(factor, UINT32)
        return mulhi(x, constant), mul(x, constant)

    def less(self, x: Any, y: Any) -> Any:
        return self.convert(lt(x, y), UINT32)

    def select(self, index: Any, cases: Sequence[Any]) -> Any:
        # Two at a time: cases of more than two need a signed index.
        if len(cases) == 2:
            return select_n(ne(index, np.zeros((), UINT32)), *cases)
        low, high = (self.select(self.low_bits(index, 1), cases[i : i + 2]) for i in (0, 2))
        return self.select(self.shift_right(index, 1), (low, high))

    def repeat_last(self, x: Any, shape: Sizes) -> Any:
        return x if x.shape == shape else with_dimensions_all(x, shape, 0)

    def repeat_first(self, x: Any, shape: Sizes) -> Any:
        return x if x.shape == shape else with_dimensions_all(x, shape, len(shape) - len(x.shape))

    def low_bits(self, x: Any, count: int) -> Any:
        return and_(x, np.array((1 << count) - 1, UINT32))

    def xor(self, x: Any, y: Any) -> Any:
        return xor(x, y)

    def or_(self, x: Any, y: Any) -> Any:
        return or_(x, y)

    def shift_left(self, x: Any, count: int) -> Any:
        return shift_left(x, self.constant(x, count))

    def shift_right(self, x: Any, count: int) -> Any:
        return shift_right_logical(x, self.constant(x, count))

    def constant(self, x: Any, count: int) -> Any:
        """Return a count in the dtype of `x`, by an operation, because a literal of 64 bits would be narrowed."""
        return self.convert(np.array(count, UINT32), x.dtype)


def with_dimensions(x: Any, shape: Shape, start: int) -> Any:
    """Broadcast `x` to `shape`, with its dimensions starting at `start`; scalars stay."""
    rank = len(x.shape)
    if not rank or x.shape == shape:
        return x
    return broadcast_in_dim(x, shape=shape, broadcast_dimensions=tuple(range(start, start + rank)))


def with_dimensions_all(x: Any, shape: Shape, start: int) -> Any:
    """Broadcast `x` to `shape`, with its dimensions starting at `start`."""
    dims = tuple(range(start, start + len(x.shape)))
    return broadcast_in_dim(x, shape=shape, broadcast_dimensions=dims)


PRIMITIVES = PrimitiveBuilder()
