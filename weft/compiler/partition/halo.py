"""Factors along which devices exchange the edges of their parts: where they can be split, what is sent, and why a
dimension is gathered after all."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from weft.compiler.partition.rules import Dims, Rule, local_shape, parts_of
from weft.compiler.partition.uneven import can_split
from weft.compiler.partition.verify import fail
from weft.ir.jaxpr import Equation
from weft.ir.parts import byte_count
from weft.ir.types import array_type
from weft.sharding.halo import Halo, halo_of, needs

# From so many others, at most, a device is sent something of an operand.
MOST_MESSAGES = 32


def fits(rule: Rule, name: str, axes: Sequence[Any], sizes: Mapping[Any, int]) -> bool:
    """Whether a factor with halos can be split over axes: its dimensions can, each by itself, into no more parts than
    they have elements, and what all devices do with what they get, of not too many others, is the same."""
    count = parts_of(axes, sizes)
    for halo in (halo_of(r, count) for r in rule.reach[name] if r is not None):
        if halo is None or len(halo.messages) > MOST_MESSAGES:
            return False
    return all(size >= count and can_split(size, axes, sizes) for size in lengths(rule, name))


def lengths(rule: Rule, name: str) -> set[int]:
    """The sizes of the dimensions of a factor with halos."""
    return {size for r in rule.reach[name] if r is not None for size in (r.size, r.count)} or {rule.sizes[name]}


def halos(rule: Rule, chosen: Mapping[str, Sequence[Any]], sizes: Mapping[Any, int]) -> Iterator[tuple[int, int, Halo]]:
    """The operands, their dimensions and halos of an operation that is split so."""
    for name, axes in chosen.items():
        for i, d in rule.dims[name] if axes and name in rule.reach else ():
            reach = rule.reach[name][i] if i < rule.operands else None
            halo = None if reach is None else halo_of(reach, parts_of(axes, sizes))
            if halo is not None:
                yield i, d, halo


def sent(
    equation: Equation, rule: Rule, chosen: Mapping[str, tuple[Any, ...]], sizes: Mapping[Any, int]
) -> tuple[float, float]:
    """How often neighbours send each other something, both of them at once, and how many bytes a device sends."""
    rounds = total = 0.0
    for i, d, halo in halos(rule, chosen, sizes):
        if halo.messages:
            aval: Any = equation.invars[i].aval
            local = local_shape(aval.shape, tuple(chosen.get(n or "", ()) for n in rule.names[i]), sizes)
            slice_ = byte_count(array_type((*local[:d], 1, *local[d + 1 :]), aval.dtype))
            rounds += max(sum(m.distance > 0 for m in halo.messages), sum(m.distance < 0 for m in halo.messages))
            total += slice_ * halo.sent
    return rounds, total


def why_gathered(rule: Rule, operand: int, dims: Dims, wanted: Dims, sizes: Mapping[Any, int]) -> str:
    """Why an operand that is split along factors with halos is gathered, in some dimensions, for an operation."""
    for name, axes, left in zip(rule.names[operand], dims, wanted, strict=True):
        if len(axes) > len(left) and name is not None and name in rule.reach:
            count = parts_of(axes, sizes)
            for size in sorted(lengths(rule, name)):
                if size < count or not can_split(size, axes, sizes):
                    return f": {size} element{'s'[: size != 1]} do not split into {count} parts"
            found = [halo_of(r, count) for r in rule.reach[name] if r is not None]
            if any(halo is None for halo in found):
                return ": the parts of the result would not all be made alike of those that it has"
            if not fits(rule, name, axes, sizes):
                return ": devices would have to send to too many others"
            return ": the edges of its parts would take longer"
    return ""


def check_halos(
    equation: Equation, rule: Rule, chosen: Mapping[str, tuple[Any, ...]], sizes: Mapping[Any, int]
) -> None:
    """Each device has, or is sent by the one that has it, every element that it needs, and knows where it is."""
    for name, axes in chosen.items():
        if axes and name in rule.reach and not fits(rule, name, axes, sizes):
            fail(f"It cannot be split along {name} over {axes}: {rule.reach[name]}.", equation)
    for i, d, halo in halos(rule, chosen, sizes):
        messages = {m.distance: m for m in halo.messages}
        for device in range(halo.parts):
            start, stop = needs(halo.reach, halo.parts, device)
            own = device * halo.own
            # The ends of what it needs of each part; what is between them is there if they are.
            needed = range(start // halo.own, (stop - 1) // halo.own + 1)
            edges = {k for part in needed for k in (part * halo.own, (part + 1) * halo.own - 1)}
            for k in sorted(edges | {start, stop - 1}):
                source = k // halo.own
                if source == device or not start <= k < stop:
                    continue
                message = messages.get(source - device)
                if message is None or (source, device) not in message.pairs:
                    fail(f"Nobody sends element {k} of operand {i}, dimension {d}, to device {device}.", equation)
                elif not message.start <= k % halo.own < message.stop:
                    fail(f"Element {k} of operand {i}, dimension {d}, is not in {message}.", equation)
            first = halo.first(device)
            if stop > start and not (first <= start and stop <= first + halo.width):
                fail(f"Device {device} reads {halo.width} elements from {first} on, needs {start}:{stop}.", equation)
            if not -halo.before <= first - own <= first + halo.width - own <= halo.after:
                fail(f"Device {device} reads beyond what it is sent of operand {i}, dimension {d}: {halo}.", equation)
