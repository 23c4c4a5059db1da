"""Compare a jaxpr for all sizes with the one that an earlier call has for its own sizes.

A function may tell a symbolic size from an `int` in ways that leave no trace (`type(n) is int`, a method that only one
of them has). At the sizes of an earlier call its jaxpr must be that of the earlier call, else the sizes stay numbers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from weft.ir.jaxpr import Equation, Jaxpr, Literal
from weft.ir.types import Type


def agree(left: Jaxpr, right: Jaxpr, constants: tuple[int, int] = (0, 0)) -> bool:
    """Return whether two jaxprs have the same equations: types, operations, wiring, literals and parameters.

    Constants are compared by type: arrays that a function closes over may have changed between calls. A value that
    is computed from constants alone, such as an index `n - 1`, may be a literal in the other jaxpr. The first
    `constants` inputs of each are constants.
    """
    if left is right:
        return True
    if constants[0] == constants[1] and _match(left, right, left.eqns, right.eqns, set(), (0, 0)):
        return True
    known = {*left.invars[: constants[0]], *right.invars[: constants[1]]}
    return _match(left, right, required_equations(left, known), required_equations(right, known), known, constants)


def required_equations(jaxpr: Jaxpr, constants: set[Any]) -> list[Equation]:
    """Return the equations that depend on arguments and that results or effects depend on.

    Adds the variables that depend on constants only to `constants`.
    """
    equations: list[Equation] = []
    for equation in jaxpr.eqns:
        if equation.effects or any(type(a) is not Literal and a not in constants for a in equation.invars):
            equations.append(equation)
        else:
            constants.update(equation.outvars)
    needed = set(filter(lambda a: type(a) is not Literal, jaxpr.outvars))
    required = []
    for equation in reversed(equations):
        if equation.effects or any(v in needed for v in equation.outvars):
            needed.update(a for a in equation.invars if type(a) is not Literal)
            required.append(equation)
    return required[::-1]


def _match(
    left: Jaxpr,
    right: Jaxpr,
    these: Sequence[Equation],
    those: Sequence[Equation],
    constants: set[Any],
    skipped: tuple[int, int],
) -> bool:
    """Compare equations one by one, and all inputs except the first `skipped` ones."""
    known: dict[Any, Any] = {}

    def define(these: Sequence[Any], those: Sequence[Any]) -> bool:
        known.update(zip(these, those, strict=False))
        return len(these) == len(those) and all(_same(a.aval, b.aval) for a, b in zip(these, those, strict=True))

    def read(these: Sequence[Any], those: Sequence[Any]) -> bool:
        return len(these) == len(those) and all(map(equal, these, those))

    def equal(a: Any, b: Any) -> bool:
        if type(a) is Literal and type(b) is Literal:
            return _same(a.aval, b.aval) and _same(a.val, b.val)
        if all(type(atom) is Literal or atom in constants for atom in (a, b)):
            return bool(a.aval.shape == b.aval.shape and a.aval.dtype == b.aval.dtype)
        return type(a) is not Literal and known.get(a) is b

    if len(these) != len(those):
        return False
    if not (define(left.constvars, right.constvars) and define(left.invars[skipped[0] :], right.invars[skipped[1] :])):
        return False
    for a, b in zip(these, those, strict=True):
        if a.primitive is not b.primitive or not read(a.invars, b.invars) or not define(a.outvars, b.outvars):
            return False
        if not _same(a.params, b.params):
            return False
    return read(left.outvars, right.outvars)


def _same(left: Any, right: Any) -> bool:
    """Return whether two parameters are equal. Values that cannot be compared, such as functions that each trace makes,
    count as equal if they have one type."""
    if left is right:
        return True
    match left, right:
        case Jaxpr(), Jaxpr():
            return agree(left, right)
        case tuple() | list(), tuple() | list():
            return len(left) == len(right) and all(map(_same, left, right))
        case Mapping(), Mapping():
            return left.keys() == right.keys() and all(_same(left[key], right[key]) for key in left)
        case np.ndarray() | np.generic(), _:
            return bool(np.array_equal(left, right)) or _are_nans(left, right)
        case bool() | int() | complex() | str() | Type() | np.dtype(), _:
            return bool(left == right)
        case float(), float():
            return left == right or _are_nans(left, right)
    return type(left) is type(right)


def _are_nans(left: Any, right: Any) -> bool:
    return bool(np.shape(left) == np.shape(right) and np.all((left == right) | ((left != left) & (right != right))))
