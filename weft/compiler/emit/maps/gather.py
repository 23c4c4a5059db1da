"""Emitter of gathers: one loop over the results, whose loads have indices known at run time only. Hero: a `gather`,
which is evaluated at an index like every other operation.

Lanes run along the last dimension: if that is part of the gathered slices, an index is read once per row, and the row
is copied; else each lane has its own index.
"""

from __future__ import annotations

from collections.abc import Sequence

from weft.compiler.emit.emission import Emission, Fusion
from weft.compiler.emit.in_place import pointwise_pairs
from weft.compiler.emit.result_slices import copy_lanes, visit
from weft.compiler.emit.values import get_space
from weft.primitives.movement.gather import gather

# Registers that a row of a copy may take at a time.
REGISTERS = 4


def emit_gather(fusion: Fusion) -> Emission:
    """Emit a kernel that computes all results, which have the same space."""
    writer = fusion.writer("gather")
    space = get_space(fusion.jaxpr.outvars[0])
    width = _width(fusion, space)
    visit(writer, space, len(space) - 1 if space else None, width, writer.store_results, threads=True)
    return fusion.finish(in_place=pointwise_pairs(fusion.jaxpr))


def _width(fusion: Fusion, space: Sequence[int]) -> int:
    """Return the lanes of a row: up to a few registers, and no more lanes than the row has elements. If each lane has
    an index of its own, one register.
    """
    hero, width = fusion.hero, copy_lanes(fusion)
    if hero is None or hero.primitive is not gather or get_space(hero.outvars[0]) != space or not space:
        return width
    shape = hero.outvars[0].aval.shape  # type: ignore[attr-defined]
    last = max(axis for axis, d in enumerate(shape) if d != 1)
    if last not in hero.params["dimension_numbers"].offset_dims:
        return width
    result: int = min(REGISTERS * width, 1 << max(space[-1].bit_length() - 1, 0))
    return result
