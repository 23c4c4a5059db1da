"""Verify a jaxpr: the invariants that every transformation and pass must preserve."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NoReturn

import numpy as np

from weft.base import dtypes
from weft.base.errors import JaxprTypeError
from weft.ir.jaxpr import Atom, Equation, Jaxpr, Literal, Var, join_effects, subjaxprs
from weft.ir.printer import equation_text
from weft.ir.staged import infer_type
from weft.ir.types import ArrayType, Type, array_type, get_aval


def verify(jaxpr: Jaxpr) -> Jaxpr:
    """Raise `JaxprTypeError` unless the jaxpr is well formed; return it.

    Every variable is defined once, before its use; the result types and effects of each equation are those that its
    primitive's rules return; constants match their variables; sub-jaxprs are well formed too. Weak types may differ:
    they matter for promotion only.
    """
    jaxpr.memoize("verified", lambda: _verify(jaxpr))
    return jaxpr


check_jaxpr = verify


def type_of_constant(value: Any) -> Type:
    """Return the type of a constant without canonicalization: float64 stays float64, whatever `enable_x64` is."""
    if isinstance(value, np.ndarray) and value.dtype.names is None:
        return array_type(value.shape, value.dtype)
    return get_aval(value)


def _verify(jaxpr: Jaxpr) -> bool:
    defined: set[Var] = set()
    for var in (*jaxpr.constvars, *jaxpr.invars):
        define(var, defined, "an argument")
    if len(jaxpr.constvars) != len(jaxpr.consts):
        fail(f"The jaxpr must have a variable for each constant; got {len(jaxpr.constvars)} for {len(jaxpr.consts)}.")
    for i, (var, value) in enumerate(zip(jaxpr.constvars, jaxpr.consts, strict=True)):
        found = type_of_constant(value)
        if not var.aval.matches(found):
            fail(f"Constant {i} must have the type of its variable, {var.aval.short()}; got {found.short()}.")
    for equation in jaxpr.eqns:
        for i, atom in enumerate(equation.invars):
            check_atom(atom, defined, f"Operand {i} of {equation.primitive.name}", equation)
        check_equation(equation)
        for var in equation.outvars:
            define(var, defined, f"a result of {equation.primitive.name}", equation)
    for i, atom in enumerate(jaxpr.outvars):
        check_atom(atom, defined, f"Result {i} of the program", None)
    if jaxpr.effects != join_effects(jaxpr.eqns):
        fail(f"The effects of the jaxpr, {sorted(map(str, jaxpr.effects))}, differ from those of its equations.")
    return True


def define(var: Any, defined: set[Var], what: str, equation: Equation | None = None) -> None:
    if type(var) is not Var:
        fail(f"{what} is defined as {var!r}, which is not a variable.", equation)
    if var in defined:
        fail(f"A variable of type {var.aval.short()} is defined again, as {what}.", equation)
    defined.add(var)


def check_atom(atom: Atom, defined: set[Var], what: str, equation: Equation | None) -> None:
    """Raise unless an operand or a result is a variable in `defined`, or a literal that fits its type."""
    if type(atom) is Literal:
        value = np.asarray(atom.val)
        if not isinstance(atom.aval, ArrayType) or atom.aval.shape or value.shape:
            fail(f"{what} is a literal of type {atom.aval.short()}; literals must be scalars.", equation)
        if value.dtype != dtypes.storage(atom.aval.dtype):
            fail(f"{what} is a literal of type {atom.aval.short()} that holds {value.dtype}.", equation)
    elif atom not in defined:
        fail(f"{what} is used before it is defined.", equation)


def check_equation(equation: Equation) -> None:
    """Raise unless sub-jaxprs are well formed and result types and effects are those of the primitive's rules."""
    primitive, operands = equation.primitive, [a.aval for a in equation.invars]
    for jaxpr in subjaxprs(equation.params):
        verify(jaxpr)
    try:
        out_types = infer_type(primitive, operands, equation.params)
    except Exception as error:
        message = str(error).partition("\n")[0]
        fail(f"The type rule of {primitive.name} refuses the operands: {message}", equation, error)
    expected: Sequence[Type] = out_types if primitive.multiple_results else [out_types]
    if len(expected) != len(equation.outvars):
        fail(f"{primitive.name} must have {len(expected)} results; the equation has {len(equation.outvars)}.", equation)
    for i, (var, aval) in enumerate(zip(equation.outvars, expected, strict=True)):
        if not var.aval.matches(aval):
            fail(f"Result {i} of {primitive.name} must have type {aval.short()}; got {var.aval.short()}.", equation)
    effects = primitive.effects(operands, equation.params)
    if effects != equation.effects:
        said = sorted(map(str, equation.effects))
        fail(f"{primitive.name} must have effects {sorted(map(str, effects))}; the equation has {said}.", equation)


def fail(what: str, equation: Equation | None = None, cause: BaseException | None = None) -> NoReturn:
    """Raise with the equation and its source line."""
    source = None if equation is None else equation.source
    raise JaxprTypeError(
        what,
        at=None if source is None else source.describe(),
        received=None if equation is None else equation_text(equation),
    ) from cause
