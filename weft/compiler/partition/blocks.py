"""Blocks that are written at known indices, as `x.at[1:-1].set(y)` does: where a block is most of an array, it is
padded and the elements are chosen, so that both can be split and devices exchange edges only."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from weft.compiler.patterns import operation
from weft.compiler.rewrite import Match, Rules, everywhere, rewrite, rule
from weft.ir.jaxpr import Atom, Jaxpr, Literal


@rule(operation("dynamic_update_slice")())
def chosen_block(m: Match) -> Any:
    """A block that is at least half of an array of numbers, so that it costs little to write the rest too."""
    x, update, *starts = m.equation.invars
    aval, other = update.aval, x.aval
    sizes: Any = aval.shape  # type: ignore[attr-defined]
    if not all(isinstance(n, int) for n in (*sizes, *m.shape)) or m.kind not in "biufc":
        return None
    if aval.weak_type != other.weak_type:  # type: ignore[attr-defined]
        return None
    known = [start.val for start in starts if type(start) is Literal]
    if len(known) < len(starts) or not 0 < math.prod(m.shape) <= 2 * math.prod(sizes):
        return None
    first = [min(max(int(s), 0), n - size) for s, n, size in zip(known, m.shape, sizes, strict=True)]
    config = tuple((s, n - size - s, 0) for s, n, size in zip(first, m.shape, sizes, strict=True))
    inside = within(m, first, sizes)
    if inside is None:
        return update
    return m.make("select_n", inside, x, m.make("pad", update, m.literal(0), padding_config=config))


def within(m: Match, first: Sequence[int], sizes: Sequence[int]) -> Atom | None:
    """Where a block of the result is; None if it is everywhere."""
    inside: Atom | None = None
    index = np.dtype(np.int32)
    for d, (n, size, start) in enumerate(zip(m.shape, sizes, first, strict=True)):
        for name, bound, is_inner in (("ge", start, start > 0), ("lt", start + size, start + size < n)):
            if is_inner:
                position = m.make("iota", dtype=index, shape=m.shape, dimension=d)
                one = m.make(name, position, m.literal(bound, index))
                inside = one if inside is None else m.make("and", inside, one)
    return inside


BLOCKS = Rules(chosen_block)


@everywhere
def choose_blocks(jaxpr: Jaxpr) -> Jaxpr:
    """Write large blocks at known indices by padding them and choosing elements."""
    return rewrite(jaxpr, BLOCKS)
