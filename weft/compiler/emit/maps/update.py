"""Emitter of a slice written into an array: only the slice is visited. Hero: `dynamic_update_slice`."""

from __future__ import annotations

import math
from typing import Any

from weft.compiler.emit.emission import Emission, Fusion, KernelWriter
from weft.compiler.emit.maps.loop import nest
from weft.compiler.emit.result_slices import copy_lanes, lane_axis, visit
from weft.compiler.emit.values import MultiIndex, expand, get_space, row_major
from weft.ir.jaxpr import Literal


def emit_update(fusion: Fusion) -> Emission:
    """Emit a kernel that overwrites a slice of the hero's first operand with the update."""
    hero = fusion.hero
    assert hero is not None
    operand, update, *starts = hero.invars
    (out,) = hero.outvars
    shape, sizes = operand.aval.shape, update.aval.shape  # type: ignore[attr-defined]
    updated = begin_update(fusion)
    if not math.prod(sizes):
        return fusion.finish(updated=updated)
    writer = fusion.writer("update")
    space = get_space(update)
    cut = [axis for axis, (a, b) in enumerate(zip(shape, sizes, strict=True)) if a != b]
    strided_dims = sum(1 for d in sizes[: cut[-1] if cut else 0] if d != 1)

    def store(index: MultiIndex) -> None:
        inside = expand(update, index)
        first = writer.values.clamp_starts(starts, shape, sizes)
        target = tuple(i + start for i, start in zip(inside, first, strict=True))
        writer.k.store(writer.result(out), row_major(shape, target), writer.values.at(update, inside))

    width = copy_lanes(fusion)
    visit(writer, space, lane_axis(space, strided_dims, width) if space else None, width, store, threads=True)
    return fusion.finish(updated=updated)


def begin_update(fusion: Fusion) -> list[tuple[int, int]]:
    """Initialise the result with the hero's first operand: by sharing its buffer (the returned pair), or by a kernel
    that copies it, if the hero also reads it in another way or if it is a literal."""
    hero: Any = fusion.hero
    operand, *others = hero.invars
    if type(operand) is not Literal and operand not in others:
        return [(fusion.arguments[operand], 0)]
    writer = fusion.writer("copy")
    copy_operand(fusion, writer)
    return []


def copy_operand(fusion: Fusion, writer: KernelWriter) -> None:
    """Emit a loop that stores the hero's first operand as the result."""
    hero: Any = fusion.hero
    operand, out = hero.invars[0], hero.outvars[0]

    def store(index: MultiIndex) -> None:
        writer.store(out, index, writer.values.at(operand, expand(operand, index)))

    nest(writer.k, get_space(out), copy_lanes(fusion), store)
