"""Factors with halos, along which devices exchange the edges of their shards: which of them can be split, what they
send, and why a dimension is gathered after all."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from weft.compiler.partition.rules import Dims, ShardingRule, count_shards, local_shape
from weft.compiler.partition.uneven import can_split
from weft.compiler.partition.verify import fail
from weft.ir.jaxpr import Equation
from weft.ir.parts import byte_count
from weft.ir.types import array_type
from weft.sharding.halo import Halo, needs, plan_halo

# Limit of the devices from which one device receives parts of an operand.
MOST_MESSAGES = 32


def fits(rule: ShardingRule, name: str, axes: Sequence[Any], sizes: Mapping[Any, int], pads: bool) -> bool:
    """Return whether a factor with halos can be split over axes: each of its dimensions can, into no more shards than
    it has elements; all devices run the same program on what they receive; and they receive it from few others."""
    count = count_shards(axes, sizes)
    for halo in (plan_halo(r, count) for r in rule.reach[name] if r is not None):
        if halo is None or len(halo.messages) > MOST_MESSAGES:
            return False
    return all(size >= count and can_split(size, axes, sizes, pads) for size in lengths(rule, name))


def lengths(rule: ShardingRule, name: str) -> set[int]:
    """Return the sizes of the dimensions of a factor with halos."""
    return {size for r in rule.reach[name] if r is not None for size in (r.size, r.count)} or {rule.sizes[name]}


def halos(
    rule: ShardingRule, chosen: Mapping[str, Sequence[Any]], sizes: Mapping[Any, int]
) -> Iterator[tuple[int, int, Halo]]:
    """Yield (operand, dimension, halo) for operands with edges that devices exchange if factors are split so."""
    for name, axes in chosen.items():
        for i, d in rule.dims[name] if axes and name in rule.reach else ():
            reach = rule.reach[name][i] if i < rule.operands else None
            halo = None if reach is None else plan_halo(reach, count_shards(axes, sizes))
            if halo is not None:
                yield i, d, halo


def halo_traffic(
    equation: Equation, rule: ShardingRule, chosen: Mapping[str, tuple[Any, ...]], sizes: Mapping[Any, int]
) -> tuple[float, float]:
    """Return the number of rounds of messages between neighbours, in both directions at once, and the bytes that a
    device sends."""
    rounds = total = 0.0
    for i, d, halo in halos(rule, chosen, sizes):
        if halo.messages:
            aval: Any = equation.invars[i].aval
            local = local_shape(aval.shape, tuple(chosen.get(n or "", ()) for n in rule.names[i]), sizes)
            slice_ = byte_count(array_type((*local[:d], 1, *local[d + 1 :]), aval.dtype))
            rounds += max(sum(m.distance > 0 for m in halo.messages), sum(m.distance < 0 for m in halo.messages))
            total += slice_ * halo.sent
    return rounds, total


def gather_reason(
    rule: ShardingRule, operand: int, dims: Dims, wanted: Dims, sizes: Mapping[Any, int], pads: bool
) -> str:
    """Explain why an operand that is split along factors with halos is gathered for an operation."""
    for name, axes, left in zip(rule.names[operand], dims, wanted, strict=True):
        if len(axes) > len(left) and name is not None and name in rule.reach:
            count = count_shards(axes, sizes)
            for size in sorted(lengths(rule, name)):
                if size < count or not can_split(size, axes, sizes, pads):
                    return f": {size} element{'s'[: size != 1]} do not split into {count} parts"
            found = [plan_halo(r, count) for r in rule.reach[name] if r is not None]
            if any(halo is None for halo in found):
                return ": devices would compute different parts of their shards of the result"
            if not fits(rule, name, axes, sizes, pads):
                return ": devices would have to send to too many others"
            return ": the edges of its shards would take longer"
    return ""


def check_halos(
    equation: Equation,
    rule: ShardingRule,
    chosen: Mapping[str, tuple[Any, ...]],
    sizes: Mapping[Any, int],
    pads: bool,
) -> None:
    """Raise unless each device has or receives every element that it reads, where it reads it."""
    for name, axes in chosen.items():
        if axes and name in rule.reach and not fits(rule, name, axes, sizes, pads):
            fail(f"It cannot be split along {name} over {axes}: {rule.reach[name]}.", equation)
    for i, d, halo in halos(rule, chosen, sizes):
        messages = {m.distance: m for m in halo.messages}
        for device in range(halo.parts):
            start, stop = needs(halo.reach, halo.parts, device)
            own = device * halo.own
            # The first and the last element that it reads of each shard: those between them come with them.
            needed = range(start // halo.own, (stop - 1) // halo.own + 1)
            edges = {k for part in needed for k in (part * halo.own, (part + 1) * halo.own - 1)}
            for k in sorted(edges | {start, stop - 1}):
                source = k // halo.own
                if source == device or not start <= k < stop:
                    continue
                message = messages.get(source - device)
                if message is None or (source, device) not in message.pairs:
                    fail(f"No device sends element {k} of operand {i}, dimension {d}, to device {device}.", equation)
                elif not message.start <= k % halo.own < message.stop:
                    fail(f"Element {k} of operand {i}, dimension {d}, is not in {message}.", equation)
            first = halo.first(device)
            if stop > start and not (first <= start and stop <= first + halo.width):
                fail(f"Device {device} reads {halo.width} elements from {first} on, needs {start}:{stop}.", equation)
            if not -halo.before <= first - own <= first + halo.width - own <= halo.after:
                fail(f"Device {device} reads beyond the halo of operand {i}, dimension {d}: {halo}.", equation)
