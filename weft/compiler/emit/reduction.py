"""The reduction emitter: one accumulator a result index, folded over the reduced axes. Hero: a `Reduction`.

If the last axis is reduced, lanes run along it, each with an accumulator of its own, and are folded at the end in a
fixed tree.
Otherwise lanes run along the last axis that is kept, and the reduced axes are loops inside.
"""

from __future__ import annotations

from collections.abc import Sequence

from weft.base import dtypes
from weft.base.errors import InternalError
from weft.compiler.emit.emission import Emission, Fusion, storage
from weft.compiler.emit.loop import nest
from weft.compiler.emit.values import Place
from weft.compiler.kernel.ir import Index, Kind, Value
from weft.ops.families import Reduction, kept_axes

# The binary operation by which lanes of a reduction are folded.
FOLDS = {"sum": "add", "prod": "mul", "max": "max", "min": "min", "and": "and", "or": "or", "xor": "xor"}


def emit_reduction(fusion: Fusion) -> Emission:
    """A kernel for a program with one reduction; results are it and elementwise functions of it, all of its shape."""
    hero = fusion.hero
    assert hero is not None
    card = hero.primitive
    if not isinstance(card, Reduction):
        raise InternalError(f"`{card.name}` is no reduction.")
    writer = fusion.writer("reduction")
    k, values = writer.k, writer.values
    (operand,), axes = hero.invars, hero.params["axes"]
    shape = operand.aval.shape  # type: ignore[attr-defined]
    kept = kept_axes(len(shape), axes)
    result_shape = tuple(shape[a] for a in kept)
    width = writer.lanes
    exact = storage(operand)
    wide = dtypes.accumulation_dtype(exact)

    def full(index: Place, folded: Sequence[Index]) -> Place:
        places: dict[int, Index] = dict(zip(kept, index, strict=True))
        places.update(zip(axes, folded, strict=True))
        return tuple(places[a] for a in range(len(shape)))

    def step(accumulator: Value, index: Place, folded: Sequence[Index]) -> Value:
        value = k.scalars.convert(values.at(operand, full(index, folded)), wide)
        return card.combine(k.scalars, accumulator, value)

    def finish(index: Place, total: Value) -> None:
        values.overrides[hero.outvars[0]] = k.scalars.convert(total, exact)
        writer.store_results(tuple(i for i, d in zip(index, result_shape, strict=True) if d != 1))
        del values.overrides[hero.outvars[0]]

    along_rows = bool(axes) and max(axes) == len(shape) - 1
    ordered = sorted(axes)

    def fold(position: int, accumulator: Value, index: Place, folded: dict[int, Index]) -> Value:
        """The accumulator after the loops over the reduced axes from `position` on."""
        if position == len(ordered):
            return step(accumulator, index, [folded[a] for a in axes])
        lanes = along_rows and position == len(ordered) - 1
        axis = ordered[position]
        kind = Kind.LANES if lanes else Kind.SERIAL
        with k.loop(shape[axis], kind=kind, width=width if lanes else 1, carries=[accumulator]) as (i, (inside,)):
            (result,) = k.carry(fold(position + 1, inside, index, {**folded, axis: Index.of(i)}))
        return result

    def body(index: Place) -> None:
        neutral = k.constant(card.initial(wide), wide)
        total = fold(0, neutral, index, {})
        finish(index, k.fold(FOLDS[card.combine_name], total, width) if along_rows else total)

    nest(k, result_shape, None if along_rows else width, body)
    return fusion.finish()
