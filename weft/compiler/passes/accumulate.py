"""Carries of loops that are only added to: gradients of what a loop reads in every iteration.

    total + dynamic_update_slice(zeros, x, i)    ->    the slice of total at i, plus x, written back

so that an iteration touches the slice and not all of the total. A total that starts from 0.0 is never -0.0, which only
the sum of two of them is: so the elements that 0.0 is no longer added to keep their bits.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np

from weft.base import dtypes
from weft.compiler.rewrite import everywhere, new_equation
from weft.ir.jaxpr import Atom, Equation, Jaxpr, Literal, Var
from weft.ir.primitive import lookup
from weft.primitives.control.repeat import repeat
from weft.primitives.control.scan import scan
from weft.primitives.elementwise.arithmetic import add
from weft.primitives.movement.shape import broadcast_in_dim
from weft.primitives.movement.slicing import dynamic_update_slice

Definitions = dict[Any, Equation]


@everywhere
def accumulate(jaxpr: Jaxpr) -> Jaxpr:
    """Add to slices of totals in loops where only slices change. Needs: any. Keeps: its form."""
    definitions: Definitions = {}
    equations: list[Equation] = []
    for equation in jaxpr.eqns:
        if equation.primitive is scan or equation.primitive is repeat:
            equation = in_loop(equation, definitions)
        for v in equation.outvars:
            definitions[v] = equation
        equations.append(equation)
    if all(a is b for a, b in zip(equations, jaxpr.eqns, strict=True)):
        return jaxpr
    return jaxpr.replace(eqns=equations)


def in_loop(equation: Equation, definitions: Definitions) -> Equation:
    """A loop that updates only the slices of its totals that change."""
    body: Jaxpr = equation.params["jaxpr"]
    first, count = carry_of(equation)
    inside = {v: e for e in body.eqns for v in e.outvars}
    uses = uses_in(body)
    changed: dict[int, list[Equation]] = {}
    for i in range(count):
        total, result = body.invars[first + i], body.outvars[i]
        found = added_slice(total, result, inside, uses)
        if found is not None and type(result) is Var and never_negative_zero(equation.invars[first + i], definitions):
            changed[id(inside[result])] = replaced(total, inside[result], found)
    if not changed:
        return equation
    # Nothing reads the update that was added any more, and perhaps not its zeros; `drop_dead` removes them.
    equations = [new for e in body.eqns for new in changed.get(id(e), [e])]
    return equation.replace(params={**equation.params, "jaxpr": body.replace(eqns=equations)})


def carry_of(equation: Equation) -> tuple[int, int]:
    """Which arguments of a loop's body are carries: the first, and how many."""
    params = equation.params
    if equation.primitive is scan:
        return params["num_consts"], params["num_carry"]
    first = 1 + params["nconsts"]
    return first, len(params["jaxpr"].invars) - first


def uses_in(jaxpr: Jaxpr) -> Counter[Any]:
    """How often each value is read."""
    uses: Counter[Any] = Counter(a for e in jaxpr.eqns for a in e.invars if type(a) is Var)
    uses.update(a for a in jaxpr.outvars if type(a) is Var)
    return uses


def addend_of(total: Var, result: Atom, definitions: Definitions, uses: Counter[Any]) -> Atom | None:
    """What is added to a total that nobody else reads, or None if that is not all that happens to it."""
    equation = definitions.get(result)
    if equation is None or equation.primitive is not add or uses[total] != 1 or uses[result] != 1:
        return None
    first, second = equation.invars
    addend = second if first is total else first if second is total else None
    return addend if addend is not None and uses[addend] == 1 else None


def added_slice(total: Var, result: Atom, definitions: Definitions, uses: Counter[Any]) -> Equation | None:
    """The update of zeros that is added to a total, if that is what is added."""
    addend = addend_of(total, result, definitions, uses)
    update = definitions.get(addend)
    if update is None or update.primitive is not dynamic_update_slice:
        return None
    value = uniform_value(update.invars[0], definitions)
    return update if value is not None and value == 0 and not np.signbit(value) else None


def uniform_value(atom: Atom, definitions: Definitions) -> np.float64 | None:
    """The real number whose copies are the elements of a value, if it is known."""
    if type(atom) is not Literal:
        found = definitions.get(atom)
        if found is None or found.primitive is not broadcast_in_dim:
            return None
        atom = found.invars[0]
    if type(atom) is not Literal or dtypes.kind(atom.val.dtype) not in "iuf":
        return None
    return np.float64(atom.val)


def never_negative_zero(start: Atom, definitions: Definitions) -> bool:
    """Whether a total starts from a number that is not -0.0."""
    value = uniform_value(start, definitions)
    return value is not None and not (value == 0 and np.signbit(value))


def replaced(total: Var, sum_: Equation, update: Equation) -> list[Equation]:
    """The equations for a sum with an update: the slice before, the slice after, and where it is written."""
    _, value, *starts = update.invars
    shape: Sequence[int] = value.aval.shape  # type: ignore[attr-defined]
    cut, plus = lookup("dynamic_slice"), lookup("add")
    before = new_equation(cut, [total, *starts], {"slice_sizes": tuple(shape)}, update)
    # In the order that they had, which decides between two nans.
    operands = [before.outvars[0] if a is total else value for a in sum_.invars]
    after = new_equation(plus, operands, {}, sum_)
    return [before, after, update.replace(invars=[total, after.outvars[0], *starts], outvars=sum_.outvars)]
