"""From symbolic index maps (the cards' data) to indices of the kernel language."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from weft.base.errors import InternalError
from weft.compiler.kernel.builder import KernelBuilder
from weft.compiler.kernel.ir import Index, Value
from weft.indexing.expression import Division, Expression, Extremum, FloorDivide, Symbol, terms_of
from weft.indexing.index_map import Constraint, IndexMap
from weft.ir.primitive import Primitive

INT64 = np.dtype(np.int64)


@lru_cache(maxsize=4096)
def sources(primitive: Primitive, types: tuple[Any, ...], params: tuple[tuple[str, Any], ...]) -> tuple[Any, ...]:
    """Where the elements of a result come from. Remembered, because maps are dear to make and shapes repeat."""
    found = primitive.sources(*types, **dict(params))  # type: ignore[attr-defined]
    return tuple((entry[0], entry[1]) for entry in found)


def applied(k: KernelBuilder, index_map: IndexMap, index: Sequence[Index]) -> tuple[Index, ...]:
    """The results of a map at an index."""
    bound = dict(zip(index_map.symbols, index, strict=True))
    return tuple(lowered(k, result, bound) for result in index_map.results)


def lowered(k: KernelBuilder, expression: Any, bound: dict[Symbol, Index]) -> Index:
    """An expression over bound symbols as an index: affine where it is affine, integer values where it is not."""
    if not isinstance(expression, Expression):
        return Index(int(expression))
    if isinstance(expression, Symbol):
        return bound[expression]
    total = Index()
    for monomial, coefficient in terms_of(expression):
        if not monomial:
            total = total + coefficient
            continue
        if len(monomial) > 1:
            raise InternalError(f"The index {expression} is not affine in its atoms.")
        total = total + _atom(k, monomial[0], bound) * coefficient
    return total


def _atom(k: KernelBuilder, atom: Expression, bound: dict[Symbol, Index]) -> Index:
    if isinstance(atom, Symbol):
        return bound[atom]
    if isinstance(atom, Division):
        # Indices are not negative, so that rounding towards zero is rounding down.
        dividend = k.position(lowered(k, atom.dividend, bound))
        divisor = k.constant(number(atom.divisor), INT64)
        op = "div" if isinstance(atom, FloorDivide) else "rem"
        return Index.of(k.compute(op, dividend, divisor))
    if isinstance(atom, Extremum):
        first, *others = (k.position(lowered(k, a, bound)) for a in atom.arguments)
        for other in others:
            first = k.compute("min" if atom.sign > 0 else "max", first, other)
        return Index.of(first)
    raise InternalError(f"An index of kind {type(atom).__name__} cannot be emitted.")


def condition(
    k: KernelBuilder, constraints: Sequence[Constraint], index_map: IndexMap, index: Sequence[Index]
) -> Value | None:
    """Whether all constraints hold at an index; None when they always do."""
    bound = dict(zip(index_map.symbols, index, strict=True))
    joined: Value | None = None
    for constraint in constraints:
        if constraint.always_holds():
            continue
        place = k.position(lowered(k, constraint.expression, bound))
        low = k.compute("ge", place, k.constant(number(constraint.low), INT64))
        high = k.compute("le", place, k.constant(number(constraint.high), INT64))
        both = k.compute("and", low, high)
        joined = both if joined is None else k.compute("and", joined, both)
    return joined


def number(expression: Any) -> int:
    """An expression that must be known when compiling."""
    if isinstance(expression, Expression):
        raise InternalError(f"The size {expression} must be known when a kernel is emitted.")
    return int(expression)
