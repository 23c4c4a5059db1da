"""Carries of loops that are only added to: gradients of operands that a loop reads in every iteration.

    carry + dynamic_update_slice(zeros, x, i)    ->    the slice of the carry at i, plus x, written back

so that an iteration touches the slice and not the whole carry. A carry that starts from 0.0 is never -0.0, which only
the sum of two of them is: so the elements that 0.0 is no longer added to keep their bits.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from weft.base import dtypes
from weft.compiler.passes.data_movement import get_shape
from weft.compiler.patterns import CarryMatch, Definitions, carry, loop, operands, operation
from weft.compiler.rewrite import Match, Rules, everywhere, new_equation, rewrite, rule
from weft.ir.jaxpr import Atom, Equation, Jaxpr, Literal
from weft.ir.primitive import lookup
from weft.primitives.movement.shape import broadcast_in_dim

zeros, x = operands("zeros x")
update_slice = operation("dynamic_update_slice")


@rule(
    loop("scan", "repeat", update=(carry.once + update_slice(zeros, x, ...).named("update").once).in_any_order.once),
    keeps_effects=True,
)
def add_to_slice(m: Match, carries: list[CarryMatch]) -> Any:
    """Add to the slice of the carry in place of adding an array that is zero elsewhere.

    Nothing reads that array any more, and perhaps not its zeros; `drop_dead` removes them.
    """
    body: Jaxpr = m.params["jaxpr"]
    instead: dict[Equation, list[Equation]] = {}
    for found in carries:
        added = uniform_value(found.bound["zeros"], found.definitions)
        start = uniform_value(found.start, m.definitions)
        if is_positive_zero(added) and start is not None and not is_negative_zero(start):
            instead[found.equation] = slice_update(found)
    if not instead:
        return None
    equations = [new for e in body.eqns for new in instead.get(e, [e])]
    return m.replace(params={**m.params, "jaxpr": body.replace(eqns=equations)})


def slice_update(found: CarryMatch) -> list[Equation]:
    """Make the equations that read a slice of the carry, add to it, and write it back."""
    update, total = found.bound["update"], found.equation
    value, starts = found.bound["x"], update.invars[2:]
    sizes = {"slice_sizes": tuple(get_shape(value))}
    before = new_equation(lookup("dynamic_slice"), [found.argument, *starts], sizes, update)
    # The order of the operands decides between two nans.
    operands = [before.outvars[0] if a is found.argument else value for a in total.invars]
    after = new_equation(lookup("add"), operands, {}, total)
    return [before, after, update.replace(invars=[found.argument, after.outvars[0], *starts], outvars=total.outvars)]


def uniform_value(atom: Atom, definitions: Definitions) -> np.float64 | None:
    """Return the real number that all elements of a value equal, or None if it is not known."""
    if type(atom) is not Literal:
        found = definitions.get(atom)
        if found is None or found.primitive is not broadcast_in_dim:
            return None
        atom = found.invars[0]
    if type(atom) is not Literal or dtypes.kind(atom.val.dtype) not in "iuf":
        return None
    return np.float64(atom.val)


def is_positive_zero(value: np.float64 | None) -> bool:
    """Return whether a number is 0.0, and not -0.0."""
    return value is not None and value == 0 and not np.signbit(value)


def is_negative_zero(value: np.float64) -> bool:
    """Return whether a number is -0.0."""
    return bool(value == 0 and np.signbit(value))


ACCUMULATE = Rules(add_to_slice)


@everywhere
def accumulate(jaxpr: Jaxpr) -> Jaxpr:
    """Add to slices of carries in loops where only slices change. Needs: any. Keeps: its form."""
    return rewrite(jaxpr, ACCUMULATE)
