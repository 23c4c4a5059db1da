"""Cotangents of the cases that a selection does not take: they stay zero, even times an infinite derivative.

The gradient of `where(x > 0, sqrt(x), 0)` at 0 is 0: the branch that is not taken has a cotangent of zero, and an
infinite derivative. Zero times infinity is NaN, so the selection is applied once more to the cotangent of the branch's
operand.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from weft.ir.choices import operand_cases
from weft.ir.jaxpr import Equation, Jaxpr, Literal
from weft.ir.kinds import Select
from weft.ir.tangents import accumulate
from weft.ir.zeros import Linear, Zero
from weft.primitives.control.call import Call
from weft.primitives.control.custom import CustomCall
from weft.primitives.elementwise.arithmetic import div
from weft.trace.array import Array
from weft.trace.tracer import Tracer


class Choice(NamedTuple):
    """One case of a selection by an array: the selecting primitive, its operand `which`, and the case."""

    primitive: Any
    which: Any
    position: int
    cases: int

    def is_same(self, other: Choice) -> bool:
        return self.position == other.position and (self.which is other.which or _are_equal(self.which, other.which))


def _are_equal(one: Any, other: Any) -> bool:
    """Return whether two values are the same known number: a literal is another object each time it is read."""
    values = [np.asarray(v) for v in (one, other) if isinstance(v, Array) and not isinstance(v, Tracer) and not v.shape]
    return len(values) == 2 and values[0].dtype == values[1].dtype and bool(values[0] == values[1])


class Masked(NamedTuple):
    """Cotangent that is zero where its choices take other cases; `exact` until it is multiplied by a derivative that
    may be infinite."""

    value: Any
    choices: tuple[Choice, ...]
    exact: bool

    def plain(self) -> Any:
        """Return the cotangent as an array, with all choices applied."""
        return self.within(())

    def within(self, applied: Sequence[Choice]) -> Any:
        """Return the cotangent with all choices applied except those in `applied`."""
        value = self.value
        for choice in () if self.exact else self.choices:
            if not any(choice.is_same(k) for k in applied):
                value = choice.primitive.mask_case(choice.which, choice.position, choice.cases, value)
        return value

    def and_choice(self, choice: Choice) -> tuple[Choice, ...]:
        """Return the choices with another one added, unless it is among them."""
        return self.choices if any(choice.is_same(c) for c in self.choices) else (*self.choices, choice)


def apply_choices(cotangent: Any) -> Any:
    """Convert a cotangent to the form that transpose rules take, an array or `Zero`."""
    return cotangent.plain() if type(cotangent) is Masked else cotangent


def add_cotangents(before: Any, cotangent: Any) -> Any:
    """Add two cotangents; the sum is masked by the choices that both have."""
    if type(before) is Masked and type(cotangent) is Masked:
        common = tuple(c for c in before.choices if any(c.is_same(d) for d in cotangent.choices))
        if common:
            value = accumulate(before.within(common), cotangent.within(common))
            return Masked(value, common, before.exact and cotangent.exact)
    return accumulate(apply_choices(before), apply_choices(cotangent))


def mask_result(equation: Equation, cotangents: Sequence[Any], operands: Sequence[Any]) -> Masked | None:
    """Return the cotangent of an equation's result if it is masked and the operation maps each of its elements to one
    element of every linear operand, else None. The operands of a selection are masked by that selection."""
    primitive = equation.primitive
    if (
        len(cotangents) != 1
        or not primitive.pointwise
        or not (isinstance(primitive, Select) or type(cotangents[0]) is Masked)
    ):
        return None
    out: Any = equation.outvars[0].aval
    linear: list[Any] = [a.aval for a in operands if type(a) is Linear]
    if type(cotangents[0]) is Zero or any(aval.shape != out.shape for aval in linear):
        return None
    (found,) = cotangents
    return found if type(found) is Masked else Masked(found, (), True)


def open_call(equation: Equation, cotangents: Sequence[Any]) -> Jaxpr | None:
    """Return the jaxpr that an equation calls if it is pointwise and a cotangent is masked, to transpose it equation by
    equation."""
    primitive = equation.primitive
    if primitive.opens is None or not _is_call(primitive) or not any(type(ct) is Masked for ct in cotangents):
        return None
    inner: Jaxpr = equation.params[primitive.opens]
    return inner if all(e.primitive.pointwise or e.primitive.opens for e in inner.eqns) else None


def _is_call(primitive: Any) -> bool:
    """Return whether a primitive calls its jaxpr and does nothing else; not `checkpoint`, whose backward pass is
    fenced."""
    return getattr(type(primitive), "transpose_through", None) in (Call.transpose_through, CustomCall.transpose_through)


def mask_arguments(equation: Equation, operands: Sequence[Any], cotangents: Sequence[Any]) -> Sequence[Any]:
    """Mark the cotangents of a call's operands that its jaxpr reads under one case of a choice only: they are zero
    where that takes another case."""
    primitive = equation.primitive
    if primitive.opens is None or not _is_call(primitive):
        return cotangents
    results = list(cotangents)
    for i, cases in enumerate(operand_cases(equation.params[primitive.opens])):
        ct = results[i]
        if ct is None or type(ct) is Zero or any(type(operands[c.which]) is Linear for c in cases) or not cases:
            continue
        choices = tuple(Choice(c.primitive, operands[c.which], c.position, c.cases) for c in cases)
        results[i] = Masked(ct, choices, True)
    return results


def mask_operands(
    equation: Equation, result: Masked, operands: Sequence[Any], cotangents: Sequence[Any]
) -> Sequence[Any]:
    """Mask the cotangents of an equation's operands, which its transpose rule returned, by the choices of the result's
    cotangent."""
    primitive, choices, exact = equation.primitive, result.choices, result.exact
    if isinstance(primitive, Select):
        count = len(operands) - 1
        own = [result.and_choice(Choice(primitive, operands[0], i - 1, count)) for i in range(len(operands))]
    else:
        own = [choices] * len(operands)
        known = enumerate(zip(equation.invars, operands, strict=True))
        exact = exact and all(type(a) is Linear or _is_harmless(v, primitive is div and i == 1) for i, (v, a) in known)
    pairs = zip(cotangents, own, strict=True)
    return [ct if ct is None or type(ct) is Zero else Masked(ct, cases, exact) for ct, cases in pairs]


def _is_harmless(atom: Any, divides: bool) -> bool:
    """Return whether zero times an operand, or zero divided by it, is zero: it is a finite literal."""
    if type(atom) is not Literal:
        return False
    value = np.asarray(atom.val).astype(np.complex128)
    return bool(np.isfinite(value) and not (divides and value == 0))
