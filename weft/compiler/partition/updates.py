"""Updates of slices at known indices, as of `x.at[1:-1].set(y)`: an update of most of an array is padded and its
elements are selected, so that both can be split and devices exchange edges only."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from weft.compiler.patterns import operation
from weft.compiler.rewrite import Match, Rules, everywhere, rewrite, rule
from weft.ir.jaxpr import Atom, Jaxpr, Literal


@rule(operation("dynamic_update_slice")())
def pad_update(m: Match) -> Any:
    """Pad an update of at least half of an array of numbers: writing the rest too costs little."""
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
    """Return the mask of a slice of the result; None if it is the whole result."""
    inside: Atom | None = None
    index = np.dtype(np.int32)
    for d, (n, size, start) in enumerate(zip(m.shape, sizes, first, strict=True)):
        for name, bound, is_inner in (("ge", start, start > 0), ("lt", start + size, start + size < n)):
            if is_inner:
                position = m.make("iota", dtype=index, shape=m.shape, dimension=d)
                one = m.make(name, position, m.literal(bound, index))
                inside = one if inside is None else m.make("and", inside, one)
    return inside


UPDATES = Rules(pad_update)


@everywhere
def pad_updates(jaxpr: Jaxpr) -> Jaxpr:
    """Pad large updates at known indices, and select their elements."""
    return rewrite(jaxpr, UPDATES)
