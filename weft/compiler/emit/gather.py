"""The emitter of lookups: one loop over the results, whose loads have indices that are known at run time only.

Hero: a `gather`, which like everything else is the value at an index. The emitter only chooses how lanes run: along
rows that are read whole, which makes copies of them, or along the indices where rows are short.
"""

from __future__ import annotations

import math

from weft.compiler.emit.emission import Emission, Fusion, Writer
from weft.compiler.emit.in_place import pointwise_pairs
from weft.compiler.emit.pieces import copy_lanes, lane_axis, visit
from weft.compiler.emit.values import space_of
from weft.ops.gather import gather

# Registers that a row of a copy may take at a time.
REGISTERS = 4


def emit_gather(fusion: Fusion) -> Emission:
    """A kernel that computes all results, which have one space."""
    writer = fusion.writer("gather")
    space = space_of(fusion.program.outvars[0])
    run = _run(fusion)
    width = _width(fusion, writer, run)
    axis = lane_axis(space, len(space) - run, width) if space else None
    visit(writer, space, axis, width, writer.store_results, threads=True)
    return fusion.finish(in_place=pointwise_pairs(fusion.program))


def _run(fusion: Fusion) -> int:
    """How many trailing dimensions of the results are rows of one lookup; all, if lookups go along the last one."""
    hero = fusion.hero
    space = space_of(fusion.program.outvars[0])
    if hero is None or hero.primitive is not gather or space_of(hero.outvars[0]) != space:
        return len(space)
    shape = hero.outvars[0].aval.shape  # type: ignore[attr-defined]
    offset = hero.params["dimension_numbers"].offset_dims
    wide = [axis for axis, d in enumerate(shape) if d != 1]
    count = 0
    while count < len(wide) and wide[-1 - count] in offset:
        count += 1
    return count or len(space)


def _width(fusion: Fusion, writer: Writer, run: int) -> int:
    """The lanes of a row: as many registers as it fills, up to a few."""
    width = copy_lanes(fusion)
    space = space_of(fusion.program.outvars[0])
    if run == len(space):
        return width
    row = math.prod(space[len(space) - run :])
    while width * 2 <= min(row, REGISTERS * copy_lanes(fusion)):
        width *= 2
    return width
