"""Fusions with more than one loop over the results: `tile` and `concatenate`. No index is divided."""

from __future__ import annotations

from typing import Any

from weft.compiler.emit.emission import Emission, Fusion
from weft.compiler.emit.maps.concatenate import emit_concatenate
from weft.compiler.emit.maps.loop import emit_loop
from weft.compiler.emit.result_slices import copy_lanes, lane_axis, visit
from weft.compiler.emit.values import MultiIndex, get_space, row_major
from weft.compiler.kernel.ir import Index
from weft.ir.jaxpr import Jaxpr
from weft.primitives.elementwise.elementwise import Elementwise
from weft.primitives.movement.concatenate import concatenate
from weft.primitives.movement.shape import tile


def emit_loop_kind(fusion: Fusion) -> Emission:
    """Emit the kernel of a loop. A lone `tile` has loops of its own, and so has a `concatenate` that is followed only
    by elementwise operations.
    """
    if fusion.hero is not None and fusion.hero.primitive is tile and len(fusion.jaxpr.eqns) == 1:
        return emit_tile(fusion)
    hero = _find_concatenate(fusion.jaxpr)
    if hero is not None:
        return emit_concatenate(Fusion(fusion.jaxpr, hero, fusion.target))
    return emit_loop(fusion)


def _find_concatenate(jaxpr: Jaxpr) -> int | None:
    """Return the position of the only `concatenate` of a jaxpr if it can be the hero, else None."""
    found = [n for n, e in enumerate(jaxpr.eqns) if e.primitive is concatenate]
    if len(found) != 1:
        return None
    after: set[Any] = set(jaxpr.eqns[found[0]].outvars)
    if get_space(next(iter(after))) != get_space(jaxpr.outvars[0]):
        return None
    for equation in jaxpr.eqns[found[0] + 1 :]:
        if after.intersection(equation.invars):
            if not isinstance(equation.primitive, Elementwise):
                return None
            after.update(equation.outvars)
    return found[0]


def emit_tile(fusion: Fusion) -> Emission:
    """Emit a kernel that stores every copy of an operand in memory."""
    hero: Any = fusion.hero
    (operand,), (out,) = hero.invars, hero.outvars
    shape, counts = operand.aval.shape, hero.params["reps"]
    # Dimensions come in pairs: the index of the copy, and the index inside it.
    pairs = [d for size, count in zip(shape, counts, strict=True) for d in (count, size)]
    wide = [axis for axis, d in enumerate(pairs) if d != 1]
    space = [pairs[axis] for axis in wide]
    writer = fusion.writer("tile")

    def store(index: MultiIndex) -> None:
        indices = dict(zip(wide, index, strict=True))
        inner = tuple(indices.get(2 * axis + 1, Index()) for axis in range(len(shape)))
        value = writer.values.at(operand, inner)
        outer = tuple(i + indices[2 * axis] * shape[axis] if 2 * axis in indices else i for axis, i in enumerate(inner))
        writer.k.store(writer.result(out), row_major(out.aval.shape, outer), value)

    copied = [n for n, axis in enumerate(wide) if axis % 2 == 0]
    width = copy_lanes(fusion)
    axis = lane_axis(space, copied[-1] + 1 if copied else 0, width) if space else None
    visit(writer, space, axis, width, store, threads=True)
    return fusion.finish()
