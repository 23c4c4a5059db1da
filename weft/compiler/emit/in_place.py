"""Results that may reuse the memory of an argument: their elements depend on it only at their own index."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from weft.compiler.emit.values import get_space
from weft.compiler.fuse.classify import structure
from weft.ir.fusing import POINTWISE
from weft.ir.jaxpr import Equation, Jaxpr, Var


def pointwise_pairs(jaxpr: Jaxpr) -> list[tuple[int, int]]:
    """Return pairs (argument, result) that may share memory when a kernel visits every index once and writes all
    results there: the argument is read at that index only, and elements have the same size."""
    results = jaxpr.outvars
    space = get_space(results[0])
    elsewhere = read_elsewhere(jaxpr, space)
    pairs = []
    for argument, v in enumerate(jaxpr.invars):
        if v in elsewhere or get_space(v) != space:
            continue
        for i, result in enumerate(results):
            if v.aval.dtype.itemsize == result.aval.dtype.itemsize:  # type: ignore[attr-defined]
                pairs.append((argument, i))
    return pairs


def read_elsewhere(jaxpr: Jaxpr, space: tuple[int, ...], heroes: Sequence[Equation] = ()) -> set[Any]:
    """Return the values that are read at indices of a space other than the visited one, directly or through results
    of other equations. Heroes read at the visited index."""
    found: set[Any] = set()
    for equation in reversed(jaxpr.eqns):
        if any(equation is hero for hero in heroes):
            continue
        if not _reads_same_index(equation, space) or not found.isdisjoint(equation.outvars):
            found.update(a for a in equation.invars if type(a) is Var)
    return found


def _reads_same_index(equation: Equation, space: tuple[int, ...]) -> bool:
    """Return whether an equation reads its operands at the index of its result."""
    if get_space(equation.outvars[0]) != space:
        return False
    properties = structure(equation)
    if properties.role == POINTWISE:
        return True
    return properties.trivial and all(get_space(a) == space for a in equation.invars)
