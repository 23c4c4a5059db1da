"""Random programs of data movement: chains of it, arithmetic between them, then reductions, sorts and products.

All numbers are small integers in float32 or int32, so that sums have the same bits in whatever order they are added up.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

import weft.numpy as wnp
from weft import lax

# No array grows beyond this (large ones beyond the second number), and no number in it.
MOST_ELEMENTS, MOST_LARGE, MOST = 600, 400_000, 2**22


class Draw:
    """A program while it is drawn: its random numbers, its arrays, and how large a number in each can be."""

    def __init__(self, rng: np.random.Generator, arrays: list[Any], most: int) -> None:
        self.rng = rng
        self.arrays = [(a, most) for a in arrays]

    def below(self, n: int) -> int:
        return int(self.rng.integers(0, max(n, 1)))

    def between(self, low: int, high: int) -> int:
        return int(self.rng.integers(low, high + 1))

    def pick(self) -> tuple[Any, int]:
        # The newest arrays most of the time, so that chains become long.
        return self.arrays[-1 - min(self.below(2), self.below(len(self.arrays)))]

    def axis(self, x: Any) -> int:
        return self.below(x.ndim)


def pad(draw: Draw, x: Any) -> Any:
    low, high = ([draw.between(-1 if d > 2 else 0, 2) if draw.below(2) else 0 for d in x.shape] for _ in range(2))
    inner = [draw.below(2) if draw.below(4) == 0 else 0 for _ in x.shape]
    return lax.pad(x, np.asarray(draw.between(0, 3), x.dtype), list(zip(low, high, inner, strict=True)))


def cut(draw: Draw, x: Any) -> Any:
    starts = [draw.below(min(d, 3)) if draw.below(2) else 0 for d in x.shape]
    limits = [draw.between(max(s + 1, d - 2), d) for s, d in zip(starts, x.shape, strict=True)]
    return lax.slice(x, starts, limits, [draw.between(1, 2) if draw.below(4) == 0 else 1 for _ in x.shape])


def padded_and_cut(draw: Draw, x: Any) -> Any:
    """What is added at the edges of an array is cut off again, after arithmetic."""
    low, high = ([draw.between(0, 2) for _ in x.shape] for _ in range(2))
    wide = lax.pad(x, np.asarray(1, x.dtype), [(a, b, 0) for a, b in zip(low, high, strict=True)])
    return lax.slice(wide * 2, low, [a + d for a, d in zip(low, x.shape, strict=True)]) - x


def reverse(draw: Draw, x: Any) -> Any:
    return lax.rev(x, sorted({draw.axis(x), draw.axis(x)}))


def reshape(draw: Draw, x: Any) -> Any:
    shape, rest = [1] * draw.between(1, 4), x.size
    for prime in (2, 2, 2, 2, 3, 3, 5, 7):
        if rest % prime == 0:
            shape[draw.below(len(shape))] *= prime
            rest //= prime
    shape[draw.below(len(shape))] *= rest
    return lax.reshape(x, shape)


def transpose(draw: Draw, x: Any) -> Any:
    return lax.transpose(x, [int(a) for a in draw.rng.permutation(x.ndim)])


def roll(draw: Draw, x: Any) -> Any:
    axis = draw.axis(x)
    return wnp.roll(x, draw.between(-3, 3), axis)


def concatenate(draw: Draw, x: Any) -> Any:
    axis = draw.axis(x)
    parts = [
        x,
        lax.rev(x, [axis]) if draw.below(2) else lax.slice_in_dim(x, 0, draw.between(1, x.shape[axis]), 1, axis),
    ]
    return lax.concatenate(parts[:: draw.between(0, 1) * 2 - 1], axis)


def gather(draw: Draw, x: Any) -> Any:
    axis = draw.axis(x)
    size = x.shape[axis]
    wanted = draw.rng.integers(-size - 1, size + 1, draw.between(1, size + 1)).astype(np.int32)
    return wnp.take(x, wnp.asarray(wanted), axis, mode=("clip", "wrap", "fill")[draw.below(3)], fill_value=2)


def dynamic(draw: Draw, x: Any) -> Any:
    axis = draw.axis(x)
    size = draw.between(1, x.shape[axis])
    start = wnp.asarray(np.int32(draw.between(-1, 2)))
    if draw.below(2):
        return lax.dynamic_update_slice_in_dim(x, lax.slice_in_dim(x, 0, size, 1, axis) + 1, start, axis)
    return lax.dynamic_slice_in_dim(x, start, size, axis)


def broadcast(draw: Draw, x: Any) -> Any:
    axes = sorted(int(a) for a in draw.rng.permutation(x.ndim + 1)[: x.ndim])
    shape = [draw.between(1, 3)] * (x.ndim + 1)
    for axis, size in zip(axes, x.shape, strict=True):
        shape[axis] = size
    return lax.broadcast_in_dim(x, shape, axes)


def repeated(draw: Draw, x: Any) -> Any:
    return wnp.tile(x, [draw.between(1, 2) for _ in x.shape])


def squeezed(draw: Draw, x: Any) -> Any:
    return lax.index_in_dim(x, draw.below(x.shape[-1]), x.ndim - 1, keepdims=bool(draw.below(2)))


def masked(draw: Draw, x: Any) -> Any:
    index = lax.broadcasted_iota(np.int32, x.shape, draw.axis(x))
    return wnp.where(index < draw.between(1, 4), x, -x)


def windowed(draw: Draw, x: Any) -> Any:
    axis = draw.axis(x)
    window = [1] * x.ndim
    window[axis] = min(2, x.shape[axis])
    return lax.reduce_window(x, np.asarray(-4, x.dtype), lax.max, window, [1] * x.ndim, "SAME")


MOVEMENT: list[Callable[[Draw, Any], Any]] = [
    pad, cut, padded_and_cut, padded_and_cut, reverse, reshape, transpose, roll, concatenate, gather, dynamic,
    broadcast, repeated, squeezed, masked, windowed,
]  # fmt: skip


def arithmetic(draw: Draw, x: Any, most: int) -> tuple[Any, int]:
    same = [(a, m) for a, m in draw.arrays if a.shape == x.shape and a is not x]
    chosen = draw.below(4)
    if same and chosen < 2:
        other, bound = same[draw.below(len(same))]
        return (x + other, most + bound) if chosen else (wnp.maximum(x, other), max(most, bound))
    return (x * 2 + 1, 2 * most + 1) if chosen == 2 else (-abs(x), most)


def reduction(draw: Draw, x: Any, most: int) -> tuple[Any, int]:
    axes = tuple(sorted({draw.axis(x), draw.axis(x)}))
    axis, dtype = axes[0], x.dtype
    chosen = draw.below(10)
    if chosen < 2:
        return x.sum(axes, dtype=dtype), most * x.size
    if chosen == 2:
        return x.max(axes) - x.min(axes), 2 * most
    if chosen == 3:
        return lax.cumsum(x, axis, reverse=bool(draw.below(2))), most * x.shape[axis]
    if chosen == 4:
        return lax.argmax(x, axis, np.int32).astype(dtype), x.size
    if chosen == 5:
        return wnp.sort(x, axis) + lax.cummax(x, axis), 2 * most
    if chosen == 6:
        return matmul(draw, x), most * most * x.size
    if chosen == 7:
        where = draw.rng.integers(-1, 4, x.shape[axis]).astype(np.int32)
        total = wnp.zeros((3, *x.shape[:axis], *x.shape[axis + 1 :]), dtype)
        return total.at[wnp.asarray(where)].add(wnp.moveaxis(x, axis, 0), mode="drop"), most * x.size
    # Values beside what they were reduced to: several passes over a row.
    return x - x.sum(axes, keepdims=True, dtype=dtype), most * (x.size + 1)


def matmul(draw: Draw, x: Any) -> Any:
    """Products of an array with itself, turned round, along one of its axes; the others are free or in common."""
    axis = draw.axis(x)
    others = [a for a in range(x.ndim) if a != axis]
    batch = [a for a in others if draw.below(2)]
    if math.prod(x.shape[a] ** (2 - (a in batch)) for a in others) > MOST_LARGE:
        return x
    return lax.dot_general(x, lax.rev(x, others[:1]), (((axis,), (axis,)), (batch, batch)))


def program(seed: int, large: bool = False) -> tuple[Callable[..., Any], list[np.ndarray]]:
    """The program of a seed: a function and arrays for it, of a few elements or of enough for several threads."""
    rng = np.random.default_rng(seed)
    dtype = ("float32", "float32", "int32")[seed % 3]
    shape = [int(d) for d in rng.integers(1, 6, rng.integers(1, 5))]
    if large:
        shape[rng.integers(0, len(shape))] = int(rng.integers(20_000, 60_000)) // math.prod(shape)
    bound, limit = (1, MOST_LARGE) if large else (8, MOST_ELEMENTS)
    arrays = [rng.integers(-bound, bound + 1, shape).astype(dtype) for _ in range(2)]
    steps = int(rng.integers(3, 9))

    def run(*args: Any) -> Any:
        draw = Draw(np.random.default_rng([seed, 1]), list(args), bound)
        for _ in range(steps):
            x, most = draw.pick()
            kind = draw.below(8)
            if kind < 5 and x.ndim:
                result = MOVEMENT[draw.below(len(MOVEMENT))](draw, x), most
            elif kind < 7 or not x.ndim:
                result = arithmetic(draw, x, most)
            else:
                result = reduction(draw, x, most)
            if 0 < math.prod(result[0].shape) <= limit and result[1] <= MOST:
                draw.arrays.append(result)
        x, most = draw.arrays[-1]
        last = reduction(draw, x, most) if x.ndim else (x, most)
        return (last[0] if last[1] <= 4 * MOST and last[0].size <= limit else x), *(a for a, _ in draw.arrays[-2:])

    return run, arrays
