"""Exchange halos: extend a device's shard of an operand by the neighbours' elements that its results read."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from weft.base import dtypes
from weft.ir.parts import INDEX, Parts
from weft.ir.primitive import lookup
from weft.sharding.halo import Halo, Message


def with_halo(parts: Parts, x: Any, operand: int, dim: int, fill: Any = None) -> tuple[Any, Halo]:
    """Return the elements that this device's results read of an operand along `dim` (`Halo.width` of them), and the
    halo.

    Elements outside of the operand are `fill`; without `fill` they are undefined.
    """
    name = parts.operand_names[operand][dim]
    assert name is not None
    halo = parts.halo(name, operand)
    position = parts.position(parts.split(name))
    out = extend_shard(parts, x, operand, dim, name, halo)
    if halo.shifts:
        start = affine(position, halo.stride - halo.own, halo.before - halo.low)
        starts = [start if d == dim else INDEX.type(0) for d in range(len(out.shape))]
        sizes = tuple(halo.width if d == dim else n for d, n in enumerate(out.shape))
        out = lookup("dynamic_slice")(out, *starts, slice_sizes=sizes)
    if fill is not None:
        # Devices without a sender receive zeros, so a zero `fill` needs a mask only after an operand that ends early.
        before, after = halo.reads_padding
        before, after = before and not is_zero(fill), after and (halo.uneven or not is_zero(fill))
        out = mask_outside(out, dim, affine(position, halo.stride, -halo.low), halo.reach.size, fill, before, after)
    return out, halo


def extend_shard(parts: Parts, x: Any, operand: int, dim: int, name: str, halo: Halo) -> Any:
    """Return this device's shard extended by the neighbours' elements; cached for operations that need the same."""
    key = id(x), dim, parts.split(name), halo.before, halo.after, halo.messages
    if key not in parts.received:
        pieces = list(shard_pieces(parts, x, operand, dim, name, halo))
        merged = pieces[0] if len(pieces) == 1 else lookup("concatenate")(*pieces, dimension=dim)
        parts.received[key] = merged, x  # keep x alive, so that no other value gets its id
    return parts.received[key][0]


def shard_pieces(parts: Parts, x: Any, operand: int, dim: int, name: str, halo: Halo) -> Iterator[Any]:
    """Yield the slices of this and other shards that make up the extended shard, in order; zeros where no device needs
    the elements."""
    messages = {m.distance: m for m in halo.messages}
    at = -halo.before
    while at < halo.after:
        distance = at // halo.own
        # Range in the shard at this distance, up to its end or the end of the extended shard.
        start, stop = at - distance * halo.own, min(halo.own, halo.after - distance * halo.own)
        message = messages.get(distance)
        if distance == 0:
            yield slice_along(x, dim, start, stop)
        elif message is None:
            yield zeros(x, dim, stop - start)
        else:
            around = message.start - start, stop - message.stop
            pieces = zeros(x, dim, around[0]), receive(parts, x, operand, dim, name, message), zeros(x, dim, around[1])
            yield from (piece for piece in pieces if piece.shape[dim])
        at += stop - start


def receive(parts: Parts, x: Any, operand: int, dim: int, name: str, message: Message) -> Any:
    """Return the elements that a message transfers, sending each message only once."""
    key = id(x), dim, parts.split(name), message
    if key not in parts.received:
        count, where = message.stop - message.start, "before" if message.distance < 0 else "after"
        what = f"{count} element{'s'[: count != 1]} {where} its part along dimension {dim}"

        def report(kind: str, axis: Any, count: float, x: Any, operand: int = operand, what: str = what) -> None:
            parts.report(kind, axis, count, x, operand, what)

        edge = slice_along(x, dim, message.start, message.stop)
        brought = replace(parts, report=report).shift(edge, name, message.distance, message.pairs)
        parts.received[key] = brought, x
    return parts.received[key][0]


def mask_outside(x: Any, dim: int, first: Any, size: int, fill: Any, before: bool = True, after: bool = True) -> Any:
    """Replace elements by `fill` whose index along a dimension, counted from `first`, is negative (if `before`) or at
    least `size` (if `after`)."""
    if before:
        x = where(x, dim, first, "ge", 0, x, broadcast(fill, x.shape))
    return where(x, dim, first, "lt", size, x, broadcast(fill, x.shape)) if after else x


def where(x: Any, dim: int, first: Any, compare: str, bound: int, then: Any, other: Any) -> Any:
    """Select `then` where the index of an element of x along a dimension satisfies the comparison with a bound, else
    `other`."""
    index = lookup("iota")(dtype=INDEX, shape=x.shape, dimension=dim)
    index = lookup("add")(index, broadcast(first, x.shape))
    return lookup("select_n")(lookup(compare)(index, broadcast(INDEX.type(bound), x.shape)), other, then)


def affine(position: Any, factor: int, offset: int) -> Any:
    """Compute `position * factor + offset`."""
    scaled = lookup("mul")(position, INDEX.type(factor))
    return lookup("add")(scaled, INDEX.type(offset)) if offset else scaled


def slice_along(x: Any, dim: int, start: int, stop: int) -> Any:
    """Slice the elements from `start` to `stop` along a dimension."""
    if (start, stop) == (0, x.shape[dim]):
        return x
    starts = tuple(start if d == dim else 0 for d in range(len(x.shape)))
    limits = tuple(stop if d == dim else n for d, n in enumerate(x.shape))
    return lookup("slice")(x, start_indices=starts, limit_indices=limits, strides=None)


def zeros(x: Any, dim: int, count: int) -> Any:
    """Return zeros with `count` elements along a dimension, and otherwise the shape of x."""
    shape = tuple(count if d == dim else n for d, n in enumerate(x.shape))
    return broadcast(np.zeros((), dtypes.storage(x.dtype)), shape)


def broadcast(x: Any, shape: Sequence[int]) -> Any:
    return lookup("broadcast_in_dim")(x, shape=tuple(shape), broadcast_dimensions=())


def is_zero(value: Any) -> bool:
    """Return whether a value is known to have only zero bytes, as devices without a sender receive."""
    if not isinstance(value, (np.ndarray, np.generic)):
        return False
    return not any(np.asarray(value).tobytes())
