"""Loops that are more than one over the results: repeated arrays (`tile`) and joined ones. No index is divided."""

from __future__ import annotations

from typing import Any

from weft.compiler.emit.emission import Emission, Fusion
from weft.compiler.emit.maps.concatenate import emit_concatenate
from weft.compiler.emit.maps.loop import emit_loop
from weft.compiler.emit.pieces import copy_lanes, lane_axis, visit
from weft.compiler.emit.values import MultiIndex, row_major, space_of
from weft.compiler.kernel.ir import Index
from weft.ir.jaxpr import Jaxpr
from weft.primitives.elementwise.elementwise import Elementwise
from weft.primitives.movement.concatenate import concatenate
from weft.primitives.movement.shape import tile


def emit_loop_kind(fusion: Fusion) -> Emission:
    """The kernel of a loop. A `tile` that stands alone has loops of its own, and so has a `concatenate` if all that
    follows it is at its own index."""
    if fusion.hero is not None and fusion.hero.primitive is tile and len(fusion.program.eqns) == 1:
        return emit_tile(fusion)
    joined = _joined(fusion.program)
    if joined is not None:
        return emit_concatenate(Fusion(fusion.program, joined, fusion.target))
    return emit_loop(fusion)


def _joined(program: Jaxpr) -> int | None:
    """The position of the one `concatenate` of a program, if it can be the hero."""
    found = [n for n, e in enumerate(program.eqns) if e.primitive is concatenate]
    if len(found) != 1:
        return None
    after: set[Any] = set(program.eqns[found[0]].outvars)
    if space_of(next(iter(after))) != space_of(program.outvars[0]):
        return None
    for equation in program.eqns[found[0] + 1 :]:
        if after.intersection(equation.invars):
            if not isinstance(equation.primitive, Elementwise):
                return None
            after.update(equation.outvars)
    return found[0]


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

    def store(index: MultiIndex) -> None:
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
