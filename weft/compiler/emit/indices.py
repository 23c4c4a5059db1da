"""Lowering of symbolic index maps (data of primitives) to indices of the kernel language."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from weft.base.errors import InternalError
from weft.compiler.kernel.builder import KernelBuilder
from weft.compiler.kernel.ir import Index, Value, is_zero
from weft.indexing.expression import (
    Division,
    Expression,
    Extremum,
    FloorDivide,
    Integer,
    Symbol,
    as_terms,
    free_symbols,
)
from weft.indexing.guards import current
from weft.indexing.index_map import Constraint, IndexMap
from weft.ir.primitive import Primitive

INT32 = np.dtype(np.int32)
INT64 = np.dtype(np.int64)


def sources(primitive: Primitive, types: tuple[Any, ...], params: tuple[tuple[str, Any], ...]) -> tuple[Any, ...]:
    """Return the index maps from a result's elements to their sources. Cached, because maps are expensive to build
    and shapes repeat; while sizes are assumed (`current.answers`), the cache belongs to the emission.
    """
    answers = current.answers
    if answers is None:
        return _sources(primitive, types, params)
    key = (primitive, types, params)
    found: tuple[Any, ...] | None = answers.remembered.get(key)
    if found is None:
        found = answers.remembered[key] = _sources.__wrapped__(primitive, types, params)
    return found


@lru_cache(maxsize=4096)
def _sources(primitive: Primitive, types: tuple[Any, ...], params: tuple[tuple[str, Any], ...]) -> tuple[Any, ...]:
    found = primitive.sources(*types, **dict(params))  # type: ignore[attr-defined]
    return tuple((entry[0], entry[1]) for entry in found)


def apply_map(k: KernelBuilder, index_map: IndexMap, index: Sequence[Index]) -> tuple[Index, ...]:
    """Evaluate an index map at an index."""
    bound = dict(zip(index_map.symbols, index, strict=True))
    return tuple(lower_expression(k, result, bound) for result in index_map.results)


def lower_expression(k: KernelBuilder, expression: Any, bound: dict[Symbol, Index]) -> Index:
    """Convert an expression over bound symbols to an index: affine where it is affine, integer values elsewhere."""
    if not isinstance(expression, Expression):
        return Index(int(expression))
    if isinstance(expression, Symbol) and expression in bound:
        return bound[expression]
    total = Index()
    for monomial, scale in as_terms(expression):
        # Sizes multiply the coefficient: the index is affine in its variables.
        coefficient, varying = scale, []
        for atom in monomial:
            if bound.keys().isdisjoint(atom.symbols):
                coefficient = coefficient * atom
            else:
                varying.append(atom)
        if len(varying) > 1:
            raise InternalError(f"The index {expression} is not affine in its atoms.")
        total = total + (_atom(k, varying[0], bound) * coefficient if varying else coefficient)
    return total


def _atom(k: KernelBuilder, atom: Expression, bound: dict[Symbol, Index]) -> Index:
    if isinstance(atom, Symbol):
        return bound[atom]
    if isinstance(atom, Division):
        dividend, divisor = lower_expression(k, atom.dividend, bound), constant_divisor(atom.divisor, bound)
        quotient = floor_divide(k, dividend, divisor)
        return quotient if isinstance(atom, FloorDivide) else dividend - quotient * divisor
    if isinstance(atom, Extremum):
        first, *others = (k.position(lower_expression(k, a, bound)) for a in atom.arguments)
        for other in others:
            first = k.compute("min" if atom.sign > 0 else "max", first, other)
        return Index.of(first)
    raise InternalError(f"An index of kind {type(atom).__name__} cannot be emitted.")


def floor_divide(k: KernelBuilder, dividend: Index, divisor: Integer) -> Index:
    """Divide an index by a positive integer, rounding down.

    Terms that are multiples of the divisor cost nothing, nor does a rest with only one possible quotient. Other rests
    take a multiplication and a shift, or a division if the divisor is a symbolic size.
    """
    whole, left = Index(), Index(dividend.constant)
    for term, coefficient in dividend.terms:
        if is_zero(coefficient % divisor):
            whole = whole + Index(0, ((term, coefficient // divisor),))
        else:
            left = left + Index(0, ((term, coefficient),))
    bounds = k.bounds(left)
    if bounds is None:
        # The dividend is not negative, so rounding towards zero is rounding down.
        position, by = k.position(dividend), k.constant(divisor, INT64)
        return Index.of(k.compute("div", position, by))
    shift = bounds[0] // divisor
    left, low, high = left - shift * divisor, bounds[0] - shift * divisor, bounds[1] - shift * divisor
    whole = whole + shift
    if high < divisor:
        return whole
    if isinstance(divisor, Expression):
        dtype, multiplier, bits = INT32 if high < 1 << 31 else INT64, None, 0
    else:
        dtype, multiplier, bits = _reciprocal(divisor, high)
    position = k.position(left, dtype)
    if multiplier is None:
        quotient = k.compute("div", position, k.constant(divisor, dtype))
    else:
        scaled = position if multiplier == 1 else k.compute("mul", position, k.constant(multiplier, dtype))
        quotient = k.compute("shift_right_logical", scaled, k.constant(bits, dtype))
    k.ranges[quotient] = (low // divisor, high // divisor)
    return whole + Index.of(quotient)


def _reciprocal(divisor: int, high: int) -> tuple[np.dtype[Any], int | None, int]:
    """Return a dtype, a multiplier and a shift such that x * multiplier >> shift is x // divisor for all x from 0 to
    `high`.
    """
    for dtype, limit in ((INT32, 1 << 31), (INT64, 1 << 63)):
        for bits in range(63):
            multiplier = -(-(1 << bits) // divisor)
            if high * multiplier >= limit:
                break
            # The multiplier is too large by error / 2**bits / divisor, which must not carry x * multiplier past an
            # integer.
            if high * (multiplier * divisor - (1 << bits)) < 1 << bits:
                return dtype, multiplier, bits
    return INT64, None, 0


def position_dtype(k: KernelBuilder, index: Index) -> np.dtype[Any]:
    """Return the narrowest integer dtype that holds an index: vectors of int32 are half as long."""
    bounds = k.bounds(index)
    return INT32 if bounds is not None and bounds[0] >= -(1 << 31) and bounds[1] < 1 << 31 else INT64


def condition(
    k: KernelBuilder, constraints: Sequence[Constraint], index_map: IndexMap, index: Sequence[Index]
) -> Value | None:
    """Return whether all constraints hold at an index, or None if they always do."""
    bound = dict(zip(index_map.symbols, index, strict=True))
    result: Value | None = None
    for constraint in constraints:
        if not constraint.always_holds():
            index_value = lower_expression(k, constraint.expression, bound)
            result = both(k, result, within(k, index_value, constraint.low, constraint.high))
    return result


def within(k: KernelBuilder, index: Index, low: Integer, high: Integer) -> Value | None:
    """Return whether low <= index <= high, or None if that always holds."""
    bounds, dtype = k.bounds(index), position_dtype(k, index)
    if low > high or (bounds is not None and (bounds[1] < low or bounds[0] > high)):
        return k.constant(False, np.bool_)
    result: Value | None = None
    if bounds is None or bounds[0] < low:
        result = k.compute("ge", k.position(index, dtype), k.constant(low, dtype))
    if bounds is None or bounds[1] > high:
        result = both(k, result, k.compute("le", k.position(index, dtype), k.constant(high, dtype)))
    return result


def both(k: KernelBuilder, first: Value | None, second: Value | None) -> Value | None:
    """Return the conjunction of two conditions; None stands for a condition that always holds."""
    if first is None or second is None:
        return second if first is None else first
    never = k.constant(False, np.bool_)
    return never if never in (first, second) else k.compute("and", first, second)


def constant_divisor(divisor: Integer, bound: dict[Symbol, Index]) -> Integer:
    """Check that a divisor does not depend on loop variables and return it; it may be a symbolic size."""
    if not bound.keys().isdisjoint(free_symbols(divisor)):
        raise InternalError(f"The divisor of an index must not vary in a loop; got {divisor}.")
    return divisor
