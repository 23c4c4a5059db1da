"""How random programs move numbers about: shapes, slices, gathers and scatters."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

import weft.numpy as wnp
from tests.fuzz.generator import SMALL, Draw, Skip, most_of
from weft import lax


def reshape(draw: Draw) -> None:
    x = draw.pick()
    primes, rest = [], x.size
    for prime in (2, 2, 2, 3, 3, 5, 7, 11):
        if rest and rest % prime == 0:
            primes.append(prime)
            rest //= prime
    shape = [1] * draw.between(1, 3)
    for factor in (*primes, rest):
        shape[draw.below(len(shape))] *= factor
    if x.size == 1 and draw.flag():
        shape = []
    draw.keep(lax.reshape(x.array, shape), x.bound)


def transpose(draw: Draw) -> None:
    x = draw.pick(rank=2)
    draw.keep(lax.transpose(x.array, [int(a) for a in draw.rng.permutation(len(x.shape))]), x.bound)


def broadcast(draw: Draw) -> None:
    x = draw.pick()
    extra = draw.between(1, 2)
    rank = len(x.shape) + extra
    if rank > 5:
        raise Skip
    places = sorted(int(a) for a in draw.rng.permutation(rank)[: len(x.shape)])
    shape = [draw.between(1, 5) for _ in range(rank)]
    for axis, size in zip(places, x.shape, strict=True):
        shape[axis] = size if size != 1 or draw.flag() else draw.between(1, 5)
    if math.prod(shape) > 2 * draw.most:
        raise Skip
    draw.keep(lax.broadcast_in_dim(x.array, shape, places), x.bound)


def squeeze(draw: Draw) -> None:
    x = draw.pick()
    ones = [a for a, s in enumerate(x.shape) if s == 1]
    if ones and draw.flag():
        draw.keep(lax.squeeze(x.array, [a for a in ones if draw.flag(0.7)]), x.bound)
    elif len(x.shape) < 4:
        draw.keep(lax.expand_dims(x.array, (draw.below(len(x.shape) + 1),)), x.bound)


def reverse(draw: Draw) -> None:
    x = draw.pick(rank=1)
    draw.keep(lax.rev(x.array, draw.axes(len(x.shape), 1)), x.bound)


def cut(draw: Draw) -> None:
    x = draw.pick(rank=1)
    starts, limits, strides = [], [], []
    for size in x.shape:
        start = draw.below(size) if draw.flag(0.7) else 0
        starts.append(start)
        limits.append(draw.between(min(start + (not draw.flag(0.03)), size), size))
        strides.append(draw.one_of((1, 1, 1, 2, 3)))
    draw.keep(lax.slice(x.array, starts, limits, strides), x.bound)


def pad(draw: Draw) -> None:
    x = draw.pick(rank=1)
    filling = draw.like((), x.dtype)
    configuration = []
    for size in x.shape:
        low, high = draw.between(-1, 2), draw.between(-1, 2)
        inner = draw.one_of((0, 0, 0, 1, 2))
        if size + max(size - 1, 0) * inner + low + high < 0:
            raise Skip
        configuration.append((low, high, inner))
    draw.keep(lax.pad(x.array, filling.array, configuration), max(x.bound, filling.bound))


def concatenate(draw: Draw) -> None:
    x = draw.pick(rank=1)
    axis = draw.axis(x)
    parts = [x]
    for _ in range(draw.between(1, 3)):
        shape = [s if a != axis else draw.between(0, 5) for a, s in enumerate(x.shape)]
        parts.append(draw.like(x.shape if draw.flag() else shape, x.dtype))
    parts = [parts[int(n)] for n in draw.rng.permutation(len(parts))]
    draw.keep(lax.concatenate([p.array for p in parts], axis), max(p.bound for p in parts))


def split(draw: Draw) -> None:
    x = draw.pick(rank=1)
    axis = draw.axis(x)
    first = draw.below(x.shape[axis] + 1)
    for part in lax.split(x.array, (first, x.shape[axis] - first), axis):
        draw.keep(part, x.bound)


def repeat(draw: Draw) -> None:
    x = draw.pick(rank=1)
    if x.size * 8 > 4 * draw.most:
        raise Skip
    draw.keep(lax.tile(x.array, [draw.one_of((1, 1, 2, 3)) for _ in x.shape]), x.bound)


def dynamic_slice(draw: Draw) -> None:
    x = draw.pick(rank=1)
    dtype = draw.one_of((np.int32, np.int32, np.uint8, np.int8))
    starts = [draw.index(dtype).array for _ in x.shape]
    sizes = [draw.between(1, s) if s else 0 for s in x.shape]
    draw.keep(lax.dynamic_slice(x.array, starts, sizes), x.bound)


def dynamic_update(draw: Draw) -> None:
    x = draw.pick(rank=1)
    starts = [draw.index().array for _ in x.shape]
    update = draw.like([draw.between(1, s) if s else 0 for s in x.shape], x.dtype)
    draw.keep(lax.dynamic_update_slice(x.array, update.array, starts), max(x.bound, update.bound))


def indices_for(draw: Draw, size: int, shape: tuple[int, ...]) -> Any:
    """Integers, some of them out of bounds."""
    index = draw.like(shape, draw.one_of((np.int32, np.int32, np.uint8, np.int8)), max(size, 2))
    return index.array


def take(draw: Draw) -> None:
    x = draw.pick("fiub", rank=1)
    axis = draw.axis(x)
    if not x.shape[axis]:
        raise Skip
    mode = draw.one_of(("clip", "wrap", "fill"))
    shape = draw.shape(draw.below(3))
    if math.prod(shape) * x.size > 4 * draw.most * x.shape[axis]:
        raise Skip
    index = indices_for(draw, x.shape[axis], shape)
    if mode != "fill":
        draw.keep(wnp.take(x.array, index, axis, mode=mode), x.bound)
        return
    made = wnp.take(x.array, index, axis, mode="fill", fill_value=np.array(1, x.dtype))
    draw.keep(made, max(x.bound, 1.0))


def take_pairs(draw: Draw) -> None:
    x = draw.pick("fiub", rank=2)
    if not x.size:
        raise Skip
    shape = draw.shape(1)
    first, second = (indices_for(draw, s, shape) for s in x.shape[:2])
    if draw.flag():
        draw.keep(x.array.at[first, second].get(mode="clip"), x.bound)
    else:
        draw.keep(x.array.at[first, ..., second].get(mode="fill", fill_value=0) if len(x.shape) > 2
                  else x.array[first, second], math.inf if x.kind == "f" else most_of(x.dtype))  # fmt: skip


def take_along(draw: Draw) -> None:
    x = draw.pick("fiub", rank=1)
    axis = draw.axis(x)
    if not x.size:
        raise Skip
    index = draw.like(x.shape, np.int32, float(max(x.shape[axis] - 1, 1)))
    draw.keep(wnp.take_along_axis(x.array, lax.abs(index.array), axis, mode="clip"), x.bound)


def scatter(draw: Draw) -> None:
    x = draw.pick("fiu", rank=1)
    if not x.size:
        raise Skip
    count = draw.shape(1)
    name = draw.one_of(("set", "add", "add", "multiply", "min", "max"))
    index = indices_for(draw, x.shape[0], count)
    if name == "set":
        # Which of two updates of one place stays is nobody's promise.
        index = (lax.iota(np.int32, count[0]) * 3) % max(x.shape[0], 1) if count[0] * 3 <= x.shape[0] else None
        if index is None:
            raise Skip
    bound = SMALL if name == "add" else 1.0 if name == "multiply" else x.bound
    target = draw.within(x, 2.0**5)
    update = draw.like(() if draw.flag(0.2) else (*count, *x.shape[1:]), x.dtype, bound)
    if math.prod((*count, *x.shape[1:])) > 2 * draw.most:
        raise Skip
    mode = draw.one_of(("drop", "clip"))
    made = getattr(target.array.at[index], name)(update.array, mode=mode)
    draw.keep(made, target.bound + bound * max(count[0], 1) if x.kind == "f" else most_of(x.dtype))


def scatter_window(draw: Draw) -> None:
    """Whole windows at computed places, as the derivative of a dynamic slice makes them."""
    x = draw.within(draw.pick("fi", rank=2), 2.0**5)
    if not x.size:
        raise Skip
    count = draw.between(1, 4)
    index = indices_for(draw, x.shape[1], (count,))
    update = draw.like((x.shape[0], count, *x.shape[2:]), x.dtype, SMALL)
    draw.keep(x.array.at[:, index].add(update.array, mode="drop"), x.bound + SMALL * count)


def numbered(draw: Draw) -> None:
    shape = draw.shape()
    if not shape:
        raise Skip
    axis = draw.below(len(shape))
    dtype = draw.one_of((np.int32, np.float32, np.uint8))
    value = lax.broadcasted_iota(dtype, shape, axis)
    draw.keep(value, float(max(shape[axis], 1)))


TABLE: tuple[tuple[float, Callable[[Draw], None]], ...] = (
    (4, reshape), (4, transpose), (4, broadcast), (2, squeeze), (2, reverse), (3, cut), (3, pad), (3, concatenate),
    (1, split), (1, repeat), (2, dynamic_slice), (3, dynamic_update), (2, take), (1, take_pairs), (1, take_along),
    (3, scatter), (1, scatter_window), (1, numbered),
)  # fmt: skip
