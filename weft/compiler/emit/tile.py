"""The emitter of repeated arrays: loops over copies and over the operand, so that no index is divided. Hero: `tile`."""

from __future__ import annotations

from typing import Any

from weft.compiler.emit.concatenate import emit_concatenate
from weft.compiler.emit.emission import Emission, Fusion
from weft.compiler.emit.loop import emit_loop
from weft.compiler.emit.pieces import copy_lanes, lane_axis, visit
from weft.compiler.emit.values import Place, row_major
from weft.compiler.kernel.ir import Index
from weft.ops.concatenate import concatenate
from weft.ops.shape import tile


def emit_loop_or_tile(fusion: Fusion) -> Emission:
    """The kernel of a loop. A `tile` that stands alone has loops of its own, and so has a `concatenate` that nothing
    follows."""
    program = fusion.program
    if fusion.hero is not None and fusion.hero.primitive is tile and len(program.eqns) == 1:
        return emit_tile(fusion)
    last = program.eqns[-1]
    if last.primitive is concatenate and tuple(program.outvars) == tuple(last.outvars):
        return emit_concatenate(Fusion(program, len(program.eqns) - 1, fusion.vector_bytes))
    return emit_loop(fusion)


def emit_tile(fusion: Fusion) -> Emission:
    """A kernel that stores every copy; the operand is in memory."""
    hero: Any = fusion.hero
    (operand,), (made,) = hero.invars, hero.outvars
    shape, counts = operand.aval.shape, hero.params["reps"]
    # Dimensions come in pairs: which copy it is, and the place in it.
    pairs = [d for size, count in zip(shape, counts, strict=True) for d in (count, size)]
    kept = [axis for axis, d in enumerate(pairs) if d != 1]
    space = [pairs[axis] for axis in kept]
    writer = fusion.writer("tile")

    def store(index: Place) -> None:
        places = dict(zip(kept, index, strict=True))
        inner = tuple(places.get(2 * axis + 1, Index()) for axis in range(len(shape)))
        value = writer.values.at(operand, inner)
        outer = tuple(i + places[2 * axis] * shape[axis] if 2 * axis in places else i for axis, i in enumerate(inner))
        writer.k.store(writer.result(made), row_major(made.aval.shape, outer), value)

    copied = [n for n, axis in enumerate(kept) if axis % 2 == 0]
    width = copy_lanes(fusion)
    axis = lane_axis(space, copied[-1] + 1 if copied else 0, width) if space else None
    visit(writer, space, axis, width, store, threads=True)
    return fusion.finish()
