"""Data movement in random programs: shapes, slices, gathers and scatters."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tests.fuzz.draw import ALL, Draw, Skip, Value
from tests.fuzz.numbers import SHORT, SMALL, most_of

INDICES = (np.int32, np.int32, np.int32, np.uint8, np.int8, np.uint32)


def reshape(draw: Draw) -> None:
    x = draw.pick(ALL + "k")
    primes, rest = [], x.size
    for prime in (2, 2, 2, 3, 3, 5, 7, 11):
        if rest and rest % prime == 0:
            primes.append(prime)
            rest //= prime
    shape = [1] * draw.between(1, 4)
    for factor in (*primes, rest):
        shape[draw.below(len(shape))] *= factor
    if x.size == 1 and draw.flag():
        shape = []
    draw.keep(draw.call("lax.reshape", x, tuple(shape)), x.bound)


def transpose(draw: Draw) -> None:
    x = draw.pick(ALL + "k", rank=2)
    draw.keep(draw.call("lax.transpose", x, draw.permutation(x.rank)), x.bound)


def broadcast(draw: Draw) -> None:
    x = draw.pick(ALL + "k")
    rank = x.rank + draw.between(0, 2)
    if rank > 5 or not rank:
        raise Skip
    axes = sorted(draw.permutation(rank)[: x.rank])
    shape = [draw.one_of((1, 1, 2, 3, 4, 5, 0)) for _ in range(rank)]
    for axis, size in zip(axes, x.shape, strict=True):
        shape[axis] = size if size != 1 or draw.flag() else draw.between(1, 5)
    if math.prod(shape) > 2 * draw.settings.most:
        raise Skip
    draw.keep(draw.call("lax.broadcast_in_dim", x, tuple(shape), tuple(axes)), x.bound)


def squeeze(draw: Draw) -> None:
    x = draw.pick(ALL + "k", accepts=lambda v: 1 in v.shape)
    ones = [a for a, s in enumerate(x.shape) if s == 1]
    draw.keep(draw.call("lax.squeeze", x, [a for a in ones if draw.flag(0.7)] or ones[:1]), x.bound)


def expand(draw: Draw) -> None:
    x = draw.pick(ALL + "k", most=3)
    draw.keep(draw.call("lax.expand_dims", x, (draw.below(x.rank + 1),)), x.bound)


def reverse(draw: Draw) -> None:
    x = draw.pick(ALL + "k", rank=1)
    draw.keep(draw.call("lax.rev", x, draw.axes(x.rank, 1)), x.bound)


def roll(draw: Draw) -> None:
    x = draw.pick(rank=1)
    draw.keep(draw.call("np.roll", x, draw.between(-3, 3), draw.axis(x)), x.bound)


def cut(draw: Draw) -> None:
    x = draw.pick(ALL + "k", rank=1)
    starts, limits, strides = [], [], []
    # Often little is cut off, as by the transpose of a pad.
    edges = draw.flag()
    for size in x.shape:
        if edges:
            low, high = draw.one_of((0, 0, 1, 2)), draw.one_of((0, 0, 1, 2))
            starts.append(min(low, size))
            limits.append(max(size - high, starts[-1]))
            strides.append(1)
            continue
        start = draw.below(size) if draw.flag(0.7) else 0
        starts.append(start)
        limits.append(draw.between(min(start + (not draw.flag(0.05)), size), size))
        strides.append(draw.one_of((1, 1, 1, 2, 3)))
    draw.keep(draw.call("lax.slice", x, starts, limits, strides), x.bound)


def pad(draw: Draw) -> None:
    x = draw.pick(rank=1)
    filling = draw.like((), x.dtype) if draw.flag() else draw.call("np.asarray", np.zeros((), x.dtype))
    filling = draw.bounded(filling, min(filling.bound, max(x.bound, 1)) if draw.exact else math.inf)
    configuration = []
    for size in x.shape:
        low, high = draw.between(-1, 2), draw.between(-1, 2)
        inner = draw.one_of((0, 0, 0, 1, 2))
        if draw.flag(0.4):
            low = high = inner = 0
        if size + max(size - 1, 0) * inner + low + high < 0:
            raise Skip
        configuration.append((low, high, inner))
    draw.keep(draw.call("lax.pad", x, filling, configuration), max(x.bound, filling.bound))


def concatenate(draw: Draw) -> None:
    x = draw.pick(rank=1)
    axis = draw.axis(x)
    parts = [x]
    for _ in range(draw.between(1, 3)):
        shape = [s if a != axis else draw.between(0, 5) for a, s in enumerate(x.shape)]
        parts.append(draw.like(x.shape if draw.flag() else shape, x.dtype))
    parts = [parts[n] for n in draw.permutation(len(parts))]
    draw.keep(draw.call("lax.concatenate", parts, axis), max(p.bound for p in parts))


def split(draw: Draw) -> None:
    x = draw.pick(rank=1)
    axis = draw.axis(x)
    first = draw.below(x.shape[axis] + 1)
    for part in draw.call("lax.split", x, (first, x.shape[axis] - first), axis):
        draw.keep(part, x.bound)


def stack(draw: Draw) -> None:
    x = draw.pick()
    if x.size * 3 > draw.settings.most:
        raise Skip
    parts = [x, *(draw.like(x.shape, x.dtype) for _ in range(draw.below(3)))]
    draw.keep(draw.call("lax.stack", parts, axis=draw.below(len(x.shape) + 1)), max(p.bound for p in parts))


def unstack(draw: Draw) -> None:
    x = draw.pick(rank=1, accepts=lambda v: 0 < min(v.shape) <= 4)
    axis = min(range(len(x.shape)), key=lambda a: x.shape[a])
    for part in draw.call("lax.unstack", x, axis=axis):
        draw.keep(part, x.bound)


def tile(draw: Draw) -> None:
    x = draw.pick(rank=1)
    if x.size * 8 > 4 * draw.settings.most:
        raise Skip
    draw.keep(draw.call("lax.tile", x, [draw.one_of((1, 1, 2, 3)) for _ in x.shape]), x.bound)


def iota(draw: Draw) -> None:
    shape = draw.shape(draw.between(1, 3))
    axis, dtype = draw.below(len(shape)), draw.dtype("fiu")
    if dtype in SHORT:
        raise Skip
    draw.keep(draw.call("lax.broadcasted_iota", dtype, shape, axis), float(max(shape[axis], 1)))


def starts(draw: Draw, x: Value, dtype: Any = np.int32) -> list[Value]:
    return [draw.index(dtype) for _ in x.shape]


def with_focus_as_index(draw: Draw) -> Value | None:
    """Use the value in focus as an index, if it can be one and chance decides so."""
    focus = draw.focus
    if focus is None or focus.kind not in "iu" or focus.bits < 8 or draw.flag(0.4):
        return None
    draw.focus = None
    return focus


def dynamic_slice(draw: Draw) -> None:
    index = with_focus_as_index(draw)
    x = draw.pick(ALL, rank=1)
    if index is not None and index.rank:
        raise Skip
    dtype = index.dtype if index is not None else draw.one_of(INDICES)
    where = starts(draw, x, dtype)
    where[0] = index or where[0]
    sizes = [draw.between(1, s) if s else 0 for s in x.shape]
    draw.keep(draw.call("lax.dynamic_slice", x, where, sizes), x.bound)


def dynamic_update(draw: Draw) -> None:
    index = with_focus_as_index(draw)
    if index is not None and index.rank:
        raise Skip
    if draw.focus is not None and draw.flag(0.3):
        update = draw.pick(rank=1)
        x = draw.like([s + draw.below(3) for s in update.shape], update.dtype)
    else:
        x = draw.pick(rank=1)
        update = draw.like([draw.between(1, s) if s else 0 for s in x.shape], x.dtype)
    where = starts(draw, x, index.dtype if index is not None else np.int32)
    where[0] = index or where[0]
    draw.keep(draw.call("lax.dynamic_update_slice", x, update, where), max(x.bound, update.bound))


def indices(draw: Draw, size: int, shape: Sequence[int]) -> Value:
    """Integers, some of them out of bounds."""
    index = draw.like(shape, draw.one_of(INDICES), max(size, 2))
    return index if draw.exact or draw.flag(0.3) else draw.limited(index, max(size, 2))


def gather(draw: Draw) -> None:
    """Elements at computed indices, by one of the ways to ask for them."""
    index = with_focus_as_index(draw)
    x = draw.pick(rank=1, accepts=lambda v: v.size > 0)
    ways: list[Callable[[Draw, Value, Value | None], None]] = [take, take_along]
    draw.one_of([*ways, take_pairs] if x.rank > 1 and index is None else ways)(draw, x, index)


def take(draw: Draw, x: Value, index: Value | None) -> None:
    axis = draw.axis(x)
    if index is None:
        index = indices(draw, x.shape[axis], draw.shape(draw.below(3)))
    if index.size * x.size > 4 * draw.settings.most * x.shape[axis]:
        raise Skip
    mode = draw.one_of(("clip", "wrap", "fill"))
    filling: dict[str, Any] = {"fill_value": 1 if x.kind != "b" else True} if mode == "fill" else {}
    if mode == "wrap" and index.kind == "u":
        mode = "clip"
    draw.keep(draw.call("np.take", x, index, axis, mode=mode, **filling), max(x.bound, 1.0))


def take_along(draw: Draw, x: Value, index: Value | None) -> None:
    axis = draw.axis(x)
    if index is None or index.shape != x.shape:
        index = draw.like(x.shape, np.int32, float(max(x.shape[axis] - 1, 1)))
    draw.keep(draw.call("np.take_along_axis", x, index, axis, mode="clip"), x.bound)


def take_pairs(draw: Draw, x: Value, index: Value | None) -> None:
    shape = draw.shape(1)
    first, second = (indices(draw, s, shape) for s in x.shape[:2])
    if draw.flag() or x.rank < 3:
        text = f"{x.name}.at[{first.name}, {second.name}].get(mode='clip')"
    else:
        text = f"{x.name}.at[{first.name}, ..., {second.name}].get(mode='fill', fill_value=0)"
    draw.keep(draw.assign(text), x.bound)


def scatter(name: str) -> Callable[[Draw], None]:
    """Draw updates at computed indices; those of a plain `set` are distinct, since duplicates have no defined order."""

    def draw_it(draw: Draw) -> None:
        index = with_focus_as_index(draw)
        as_update = index is None and draw.focus is not None and draw.flag(0.3)
        kinds = "fiuc" if name in ("add", "subtract", "multiply") else ALL if name == "set" else "fiu"
        x = draw.pick(kinds, rank=1, accepts=lambda v: v.size > 0)
        bound = SMALL if name in ("add", "subtract") else 1.0 if name == "multiply" else x.bound
        if as_update:
            update, shape = draw.within(x, bound), (draw.between(1, 6), *x.shape[1:])
            x = draw.like(shape, update.dtype)
            count: tuple[int, ...] = update.shape[:1]
        else:
            count = index.shape if index is not None else draw.shape(1)
            if math.prod((*count, *x.shape[1:])) > 2 * draw.settings.most:
                raise Skip
            update = draw.like(() if draw.flag(0.2) else (*count, *x.shape[1:]), x.dtype, bound)
        if name == "set":
            if math.prod(count) * 3 > x.shape[0] or len(count) != 1:
                count, update = (), draw.like(x.shape[1:], x.dtype, bound)
                index = draw.index(np.int32, x.shape[0])
            else:
                index = draw.assign(f"(lax.iota(onp.int32, {count[0]}) * 3) % {max(x.shape[0], 1)}")
        elif index is None:
            index = indices(draw, x.shape[0], count)
        x = draw.within(x, most_of(x.dtype) / 4)
        mode = draw.one_of(("drop", "clip"))
        result = draw.assign(f"{x.name}.at[{index.name}].{name}({update.name}, mode={mode!r})")
        draw.keep(result, x.bound + bound * max(math.prod(count), 1))

    return draw_it


def scatter_windows(draw: Draw) -> None:
    """Whole windows at computed indices, as the derivative of a dynamic slice has them."""
    x = draw.pick("fic", rank=2, accepts=lambda v: v.size > 0)
    x = draw.within(x, 2.0**5)
    count = draw.between(1, 4)
    index = indices(draw, x.shape[1], (count,))
    update = draw.like((x.shape[0], count, *x.shape[2:]), x.dtype, SMALL)
    draw.keep(draw.assign(f"{x.name}.at[:, {index.name}].add({update.name}, mode='drop')"), x.bound + SMALL * count)


def barrier(draw: Draw) -> None:
    parts = [draw.pick(ALL) for _ in range(draw.between(1, 2))]
    for value, before in zip(draw.call("lax.optimization_barrier", tuple(parts)), parts, strict=True):
        draw.keep(value, before.bound)


def there(draw: Draw, x: Value) -> tuple[Value, Callable[[Value], Value]]:
    """Draw a movement of data and its inverse, as the transpose of the movement does."""
    bound = x.bound
    match draw.one_of(("pad", "pad", "pad", "transpose", "reshape", "rev", "roll", "broadcast")):
        case "pad":
            # Mostly along the last axis: that is where vectors run.
            widths = [(draw.below(3), draw.below(3)) if draw.flag(0.4) else (0, 0) for _ in x.shape]
            widths[-1] = (draw.between(0, 2), draw.between(1, 2))
            inner = [draw.one_of((0, 0, 0, 1)) for _ in x.shape]
            config = [(low, high, i) for (low, high), i in zip(widths, inner, strict=True)]
            moved = draw.call("lax.pad", x, np.zeros((), x.dtype), config)
            low = [w for w, _ in widths]
            limits = [a + max(s + (s - 1) * i, 0) for a, s, i in zip(low, x.shape, inner, strict=True)]
            strides = [i + 1 for i in inner]
            back = lambda y: draw.call("lax.slice", y, low, limits, strides)
        case "transpose":
            order = draw.permutation(x.rank)
            moved = draw.call("lax.transpose", x, order)
            back = lambda y: draw.call("lax.transpose", y, tuple(order.index(a) for a in range(x.rank)))
        case "reshape":
            moved = draw.call("lax.reshape", x, (x.size,))
            back = lambda y: draw.call("lax.reshape", y, x.shape)
        case "rev":
            axes = draw.axes(x.rank, 1)
            moved = draw.call("lax.rev", x, axes)
            back = lambda y: draw.call("lax.rev", y, axes)
        case "roll":
            shift, axis = draw.between(-2, 2), draw.axis(x)
            moved = draw.call("np.roll", x, shift, axis)
            back = lambda y: draw.call("np.roll", y, -shift, axis)
        case _:
            moved = draw.call("lax.broadcast_in_dim", x, (2, *x.shape), tuple(range(1, x.rank + 1)))
            back = lambda y: draw.assign(f"{y.name}[1]")
    moved.bound = bound
    return moved, lambda y: draw.bounded(back(y), y.bound)


def there_and_back(draw: Draw) -> None:
    """Move, compute, move back, reduce: what derivatives make of every movement."""
    least = 2 if draw.flag(0.7) else 1
    x = draw.pick("fiu", rank=least, most=4, accepts=lambda v: 0 < v.size <= draw.settings.most)
    x = draw.within(x, SMALL)
    moved, undone = x, []
    for _ in range(draw.between(1, 2)):
        moved, back = there(draw, moved)
        undone.append(back)
    names = ("neg", "abs", "sign", "square") if moved.kind != "f" or draw.exact else ("neg", "tanh", "square", "exp")
    y = draw.call(f"lax.{draw.one_of(names)}", moved)
    y.bound = moved.bound**2
    if draw.flag():
        other = draw.like(y.shape[-1:] if draw.flag() else (), y.dtype, 2)
        y = draw.bounded(draw.assign(f"lax.mul({y.name}, np.broadcast_to({other.name}, {y.shape}))"), 2 * y.bound)
    for back in undone[::-1]:
        y = back(y)
    draw.keep(y, y.bound)
    if draw.flag(0.8):
        axes = draw.axes(y.rank, 1) if draw.flag() else (0,)
        name = draw.one_of(("reduce_sum", "reduce_sum", "reduce_max", "reduce_min"))
        count = math.prod(y.shape[a] for a in axes)
        draw.keep(draw.call(f"lax.{name}", y, axes), y.bound * count)
