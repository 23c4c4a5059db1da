"""Mask residuals that only one case of a selection reads: they are 1 where another case is selected.

`where(x > 0, sqrt(x), -x)` has the linear part `where(mask, t * r, -t)` with r = 0.5 / sqrt(x), which is NaN below 0.
Within one program the selection hides that in derivatives of any order. Across the boundary of a call, a loop or a
branch the cotangent of r is an ordinary array of zeros, and zero times the derivative of r is NaN again. So the
selection is applied to r before it crosses the boundary.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from weft.base import dtypes
from weft.ir.jaxpr import Atom, Equation, Jaxpr, Literal, Var
from weft.ir.kinds import Select
from weft.ir.types import ArrayType, array_type


class Selection(NamedTuple):
    """Selecting primitive, the number of its cases, and the equation with the user's line."""

    primitive: Any
    cases: int
    equation: Equation


# Selections by the selecting operand and the index of the case.
Cases = dict[tuple[Atom, int], Selection]


def mask_residuals(
    known: Sequence[Equation], unknown: Sequence[Equation], results: Sequence[Atom], waits: set[Atom]
) -> tuple[list[Equation], list[Equation]]:
    """Replace residuals that the `unknown` equations read in one case of a selection only by selections that are 1 in
    the other cases.

    `waits` holds the unknown variables, and `results` are those returned. Return the equations to add to the `known`
    ones, and the unknown equations.
    """
    if not any(isinstance(e.primitive, Select) or e.primitive.opens for e in unknown):
        return [], list(unknown)
    computed = {v for e in known for v in e.outvars}
    reads = _reading_cases(unknown, results, waits)
    masked: dict[Atom, Atom] = {}
    added: list[Equation] = []
    for v, cases in reads.items():
        if v not in computed or not cases or not _is_inexact(v):
            continue
        value: Any = v
        for (which, position), (primitive, count, at) in cases.items():
            one = Literal(np.ones((), v.aval.dtype), array_type((), v.aval.dtype, v.aval.weak_type))
            operands = [value if i == position else one for i in range(count)]
            value = Var(v.aval)
            added.append(Equation([which, *operands], [value], primitive, {}, frozenset(), at.source, at.stack))
        masked[v] = value
    if not masked:
        return [], list(unknown)
    return added, [
        e.replace(invars=[masked.get(v, v) for v in e.invars]) if any(v in masked for v in e.invars) else e
        for e in unknown
    ]


class OperandCase(NamedTuple):
    """One case of a selection inside of a call: the selecting primitive, the index of the call's operand that selects,
    the index of the case and the number of cases."""

    primitive: Any
    which: int
    position: int
    cases: int


def operand_cases(jaxpr: Jaxpr) -> list[list[OperandCase]]:
    """Find for each argument the selections by other arguments that read it in one case only."""
    return jaxpr.memoize("operand_cases", lambda: _operand_cases(jaxpr))


def _operand_cases(jaxpr: Jaxpr) -> list[list[OperandCase]]:
    if not any(isinstance(e.primitive, Select) or e.primitive.opens for e in jaxpr.eqns):
        return [[] for _ in jaxpr.invars]
    index = {v: i for i, v in enumerate(jaxpr.invars)}
    reads = _reading_cases(jaxpr.eqns, jaxpr.outvars, {v for e in jaxpr.eqns for v in e.outvars})
    return [
        [
            OperandCase(selection.primitive, index[which], position, selection.cases)
            for (which, position), selection in reads.get(v, {}).items()
            if type(which) is Var and which in index
        ]
        for v in jaxpr.invars
    ]


def _reading_cases(equations: Sequence[Equation], results: Sequence[Atom], waits: set[Atom]) -> dict[Any, Cases]:
    """Find for each variable the cases of selections in which all its uses are."""
    found: dict[Any, Cases] = {v: {} for v in results if type(v) is Var}

    def read(v: Atom, cases: Cases) -> None:
        if type(v) is Var:
            before = found.get(v)
            found[v] = cases if before is None else {k: e for k, e in before.items() if k in cases}

    for equation in reversed(equations):
        outs = [found.get(v, {}) for v in equation.outvars]
        cases = {k: e for k, e in outs[0].items() if all(k in o for o in outs[1:])} if outs else {}
        primitive, shape = (
            equation.primitive,
            _shape(equation.outvars[0]) if outs and _is_elementwise(equation) else None,
        )
        selects = isinstance(primitive, Select)
        inner = operand_cases(equation.params[primitive.opens]) if primitive.opens and not equation.effects else ()
        for i, v in enumerate(equation.invars):
            is_case = selects and i > 0
            same = shape is not None and _shape(v) == shape and (is_case or not selects)
            own = dict(cases) if same else {}
            steps = [(c.which, c.position, c.primitive, c.cases) for c in inner[i]] if inner else []
            if same and is_case:
                steps.append((0, i - 1, primitive, len(equation.invars) - 1))
            for operand, position, chooser, count in steps:
                which = equation.invars[operand]
                if type(which) is Var and which not in waits:
                    own[which, position] = Selection(chooser, count, equation)
            read(v, own)
    return found


def _is_elementwise(equation: Equation) -> bool:
    """Return whether every element of the results depends on the elements at its index and on scalars only."""
    primitive = equation.primitive
    shape = _shape(equation.outvars[0])
    if shape is None or any(_shape(v) != shape for v in equation.outvars):
        return False
    if primitive.pointwise:
        return not equation.effects
    if primitive.opens is None or equation.effects:
        return False
    inner: Jaxpr = equation.params[primitive.opens]
    return all(_is_elementwise(e) and _shape(e.outvars[0]) == shape for e in inner.eqns)


def _shape(v: Atom) -> Any:
    return getattr(v.aval, "shape", None)


def _is_inexact(v: Any) -> bool:
    return type(v.aval) is ArrayType and dtypes.kind(v.aval.dtype) in "fc"
