"""Carries of loops that are only added to: gradients of what a loop reads in every turn.

    total + dynamic_update_slice(zeros, x, i)    ->    the slice of total at i, plus x, written back

so that a turn touches the slice and not all of the total. A total that starts from 0.0 is never -0.0, which only the
sum of two of them is: so the elements that 0.0 is no longer added to keep their bits.
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
    made: Definitions = {}
    equations: list[Equation] = []
    for equation in jaxpr.eqns:
        if equation.primitive is scan or equation.primitive is repeat:
            equation = in_loop(equation, made)
        for v in equation.outvars:
            made[v] = equation
        equations.append(equation)
    if all(a is b for a, b in zip(equations, jaxpr.eqns, strict=True)):
        return jaxpr
    return jaxpr.replace(eqns=equations)


def in_loop(equation: Equation, made: Definitions) -> Equation:
    """A loop with totals that are changed where they change."""
    body: Jaxpr = equation.params["jaxpr"]
    first, count = carry_of(equation)
    inside = {v: e for e in body.eqns for v in e.outvars}
    uses = uses_in(body)
    changed: dict[int, list[Equation]] = {}
    for place in range(count):
        total, result = body.invars[first + place], body.outvars[place]
        found = added_slice(total, result, inside, uses)
        if found is not None and type(result) is Var and never_negative_zero(equation.invars[first + place], made):
            changed[id(inside[result])] = replaced(total, inside[result], found)
    if not changed:
        return equation
    # An update that was added stands nowhere any more, and its zeros may not either; `drop_dead` sees to them.
    equations = [new for e in body.eqns for new in changed.get(id(e), [e])]
    return equation.replace(params={**equation.params, "jaxpr": body.replace(eqns=equations)})


def carry_of(equation: Equation) -> tuple[int, int]:
    """Which arguments of a loop's body are carries: the first, and how many."""
    params = equation.params
    if equation.primitive is scan:
        return params["num_consts"], params["num_carry"]
    first = 1 + params["nconsts"]
    return first, len(params["jaxpr"].invars) - first


def uses_in(program: Jaxpr) -> Counter[Any]:
    """How often each value is read."""
    uses: Counter[Any] = Counter(a for e in program.eqns for a in e.invars if type(a) is Var)
    uses.update(a for a in program.outvars if type(a) is Var)
    return uses


def addend_of(total: Var, result: Atom, made: Definitions, uses: Counter[Any]) -> Atom | None:
    """What is added to a total that nobody else reads, or None if that is not all that happens to it."""
    equation = made.get(result)
    if equation is None or equation.primitive is not add or uses[total] != 1 or uses[result] != 1:
        return None
    first, second = equation.invars
    addend = second if first is total else first if second is total else None
    return addend if addend is not None and uses[addend] == 1 else None


def added_slice(total: Var, result: Atom, made: Definitions, uses: Counter[Any]) -> Equation | None:
    """The update of zeros that is added to a total, if that is what is added."""
    addend = addend_of(total, result, made, uses)
    update = made.get(addend)
    if update is None or update.primitive is not dynamic_update_slice:
        return None
    number = number_of(update.invars[0], made)
    return update if number is not None and number == 0 and not np.signbit(number) else None


def number_of(atom: Atom, made: Definitions) -> np.float64 | None:
    """The real number of which a value is copies, if it is known."""
    if type(atom) is not Literal:
        found = made.get(atom)
        if found is None or found.primitive is not broadcast_in_dim:
            return None
        atom = found.invars[0]
    if type(atom) is not Literal or dtypes.kind(atom.val.dtype) not in "iuf":
        return None
    return np.float64(atom.val)


def never_negative_zero(start: Atom, made: Definitions) -> bool:
    """Whether a total starts from a number that is not -0.0."""
    number = number_of(start, made)
    return number is not None and not (number == 0 and np.signbit(number))


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
