"""Algebraic simplification that keeps every bit, those of NaNs, infinities, signed zeros and denormals included.

No reassociation, and no identity that holds for real numbers only: x - x is not 0 if x may be infinite, x + 0 is not x
if x may be -0.0, and x * -1 is not -x for NaN, whose sign the first keeps and the second flips.
"""

from __future__ import annotations

import functools
import math
from typing import Any

import numpy as np

from weft.base import dtypes
from weft.compiler.passes.canonicalize import CANONICAL
from weft.compiler.passes.data_movement import get_shape, is_static
from weft.compiler.patterns import literal, operands, operation, same_literal
from weft.compiler.rewrite import Match, Rules, everywhere, rewrite, rule
from weft.ir.jaxpr import Atom, Equation, Jaxpr, Literal
from weft.primitives.elementwise.convert import holds_all
from weft.primitives.families import Reduction, remaining_axes

x, y, p = operands("x y p")
c = literal("c")
convert, select, absolute = operation("convert_element_type"), operation("select_n"), operation("abs")
slice_, broadcast, negated = operation("slice"), operation("broadcast_in_dim"), operation("neg")

# ---------------------------------------------------------------------------------------------------------- arithmetic


# The exponents of normal numbers.
EXPONENTS = {dtypes.float32: (-126, 127), dtypes.float64: (-1022, 1023)}


@rule(x * 1)
def multiply_by_one(m: Match, x: Atom) -> Any:
    """Not for complex numbers: infinity times the imaginary 0 is NaN."""
    return x if m.kind in "iuf" else None


@rule(x * 0)
def multiply_by_zero(m: Match, x: Atom) -> Any:
    return m.full(0) if m.kind in "iu" else None


@rule(x / 1)
def divide_by_one(m: Match, x: Atom) -> Any:
    return x if m.kind in "iuf" else None


@rule(x / c)
def divide_by_power_of_two(m: Match, x: Atom, c: Literal) -> Any:
    """Multiply by the reciprocal, which is exact: both are the same number rounded once."""
    exponents = EXPONENTS.get(m.type.dtype)
    if exponents is None or not np.isfinite(c.val):
        return None
    fraction, exponent = math.frexp(float(c.val))
    if abs(fraction) != 0.5 or not exponents[0] <= 1 - exponent <= exponents[1]:
        return None
    reciprocal = math.copysign(math.ldexp(1.0, 1 - exponent), fraction)
    return m.make("mul", x, m.literal(reciprocal))


@rule(x + -0.0)
def add_negative_zero(m: Match, x: Atom) -> Any:
    """For integers this is adding 0."""
    return x if m.kind in "iuf" else None


@rule(x + 0)
def add_zero(m: Match, x: Atom) -> Any:
    """Only if x cannot be -0.0, which the addition turns into 0.0."""
    return x if m.kind == "f" and never_negative_zero(m, x) else None


@rule(x - 0)
def subtract_zero(m: Match, x: Atom) -> Any:
    return x if m.kind in "iuf" else None


@rule(x - x)
def subtract_itself(m: Match, x: Atom) -> Any:
    return m.full(0) if m.kind in "iu" else None


@rule(negated(negated(x)))
def negate_twice(m: Match, x: Atom) -> Any:
    return x


@rule(absolute(negated(x)))
def magnitude_of_negative(m: Match, x: Atom) -> Any:
    return m.make("abs", x) if dtypes.kind(x.aval.dtype) in "if" else None  # type: ignore[attr-defined]


@rule(absolute(absolute(x).named("inner")))
def magnitude_twice(m: Match, x: Atom, inner: Equation) -> Any:
    return inner.outvars[0] if m.kind in "if" else None


@rule(operation("max")(x, x))
def max_of_itself(m: Match, x: Atom) -> Any:
    return x


@rule(operation("min")(x, x))
def min_of_itself(m: Match, x: Atom) -> Any:
    return x


@rule(operation("floor")(operation("floor")(x).named("inner")))
def floor_twice(m: Match, inner: Equation) -> Any:
    return inner.outvars[0]


@rule(operation("ceil")(operation("ceil")(x).named("inner")))
def ceil_twice(m: Match, inner: Equation) -> Any:
    return inner.outvars[0]


@rule(operation("integer_pow")(x))
def small_power(m: Match, x: Atom) -> Any:
    """Replace the first power by the number itself, and the second one by a multiplication."""
    power = m.params["y"]
    if power == 1 and m.kind in "iufc":
        return x
    return m.make("mul", x, x) if power == 2 and m.kind in "iufc" else None


SEARCH_DEPTH = 8


def never_negative_zero(m: Match, atom: Atom, depth: int = 0) -> bool:
    """Return whether a value is known not to be -0.0."""
    if type(atom) is Literal:
        return not (atom.val == 0 and np.signbit(np.float64(atom.val)))
    found = m.definitions.get(atom)
    if found is None or depth > SEARCH_DEPTH:
        return False
    known = functools.partial(never_negative_zero, m, depth=depth + 1)
    return found.primitive.never_negative_zero(found.invars, known, found.params)


# --------------------------------------------------------------------------------------------------- bits and booleans


def has_all_bits(c: Literal) -> bool:
    """Return whether a literal is True, or an integer with all bits set."""
    return bool(c.val) if c.val.dtype == np.bool_ else c.val.dtype.kind in "iu" and int(~c.val) == 0


def has_no_bits(c: Literal) -> bool:
    """Return whether a literal is False or 0."""
    return not int(c.val)


@rule(x & c)
def and_with_constant(m: Match, x: Atom, c: Literal) -> Any:
    if has_no_bits(c):
        return m.full(0)
    return x if has_all_bits(c) else None


@rule(x | c)
def or_with_constant(m: Match, x: Atom, c: Literal) -> Any:
    if has_all_bits(c):
        return m.full(c.val)
    return x if has_no_bits(c) else None


@rule(x ^ c)
def xor_with_nothing(m: Match, x: Atom, c: Literal) -> Any:
    return x if has_no_bits(c) else None


@rule(x & x)
def and_with_itself(m: Match, x: Atom) -> Any:
    return x


@rule(x | x)
def or_with_itself(m: Match, x: Atom) -> Any:
    return x


@rule(x ^ x)
def xor_with_itself(m: Match, x: Atom) -> Any:
    return m.full(0)


@rule(~~x)
def not_twice(m: Match, x: Atom) -> Any:
    return x


@rule(operation("ne")(convert(x), 0))
def boolean_from_integer(m: Match, x: Atom) -> Any:
    """Drop the conversion of a boolean to a number that is compared with 0."""
    return x if x.aval.dtype == np.bool_ else None  # type: ignore[attr-defined]


# -------------------------------------------------------------------------------------------------------------- choice


@rule(select())
def select_among_equals(m: Match) -> Any:
    _, first, *others = m.equation.invars
    if any(o is not first and not same_literal(o, first) for o in others):
        return None
    return first if get_shape(first) == m.shape else m.broadcast(first, m.shape)


@rule(select())
def select_by_constant(m: Match) -> Any:
    which, *cases = m.equation.invars
    if type(which) is not Literal:
        return None
    case = cases[min(max(int(which.val), 0), len(cases) - 1)]
    return case if get_shape(case) == m.shape else m.broadcast(case, m.shape)


@rule(select(~p, x, y))
def select_by_negation(m: Match, p: Atom, x: Atom, y: Atom) -> Any:
    return m.make("select_n", p, y, x) if p.aval.dtype == np.bool_ else None  # type: ignore[attr-defined]


# -------------------------------------------------------------------------------------------- conversions and complex


@rule(convert(convert(x).named("inner")))
def merge_conversions(m: Match, x: Atom, inner: Equation) -> Any:
    """Only if the dtype between holds all values of the first, so that it changes nothing.

    Not for integers by way of floats to integers: floats saturate at the limits of the last dtype, where integers wrap.
    """
    source, between, last = x.aval.dtype, inner.params["new_dtype"], m.params["new_dtype"]  # type: ignore[attr-defined]
    kinds = dtypes.kind(source), dtypes.kind(between), dtypes.kind(last)
    if not holds_all(source, between) or kinds[0] == "c":
        return None
    if kinds[0] in "iu" and kinds[1] in "fc" and kinds[2] in "iu" and not holds_all(source, last):
        return None
    return x if source == last else m.make("convert_element_type", x, **m.params)


@rule(operation("real")(operation("complex")(x, y)))
def real_of_complex(m: Match, x: Atom) -> Any:
    return x if get_shape(x) == m.shape else m.broadcast(x, m.shape)


@rule(operation("imag")(operation("complex")(x, y)))
def imaginary_of_complex(m: Match, y: Atom) -> Any:
    return y if get_shape(y) == m.shape else m.broadcast(y, m.shape)


@rule(operation("conj")(operation("conj")(x)))
def conjugate_twice(m: Match, x: Atom) -> Any:
    return x if x.aval.dtype == m.type.dtype else None  # type: ignore[attr-defined]


# ------------------------------------------------------------------------------ slices of padded and joined operands


@rule(slice_(operation("pad")(x, y).named("inner")))
def slice_inside_padding(m: Match, x: Atom, y: Atom, inner: Equation) -> Any:
    """Only if the slice reads the operand alone, or padding alone."""
    shape, config = get_shape(x), inner.params["padding_config"]
    if not is_static(shape) or any(interior for _, _, interior in config) or 0 in m.shape:
        return None
    steps = m.params["strides"] or (1,) * len(shape)
    starts = tuple(a - low for a, (low, _, _) in zip(m.params["start_indices"], config, strict=True))
    lasts = [a + (size - 1) * step for a, size, step in zip(starts, m.shape, steps, strict=True)]
    if any(last < 0 or start >= n for start, last, n in zip(starts, lasts, shape, strict=True)):
        return m.broadcast(y, m.shape)
    if any(start < 0 or last >= n for start, last, n in zip(starts, lasts, shape, strict=True)):
        return None
    limits = tuple(last + 1 for last in lasts)
    return m.make("slice", x, start_indices=starts, limit_indices=limits, strides=m.params["strides"])


@rule(slice_(operation("concatenate")().named("inner")))
def slice_of_one_part(m: Match, inner: Equation) -> Any:
    """Only if the slice reads one of the concatenated operands."""
    d = inner.params["dimension"]
    starts, steps = m.params["start_indices"], m.params["strides"] or (1,) * len(m.shape)
    if not is_static(inner.outvars[0].aval.shape) or 0 in m.shape:  # type: ignore[attr-defined]
        return None
    first, last = starts[d], starts[d] + (m.shape[d] - 1) * steps[d]
    offset = 0
    for part in inner.invars:
        size = get_shape(part)[d]
        if offset <= first and last < offset + size:
            shifted = tuple(a - offset if i == d else a for i, a in enumerate(starts))
            limits = tuple(a + (n - 1) * step + 1 for a, n, step in zip(shifted, m.shape, steps, strict=True))
            return m.make("slice", part, start_indices=shifted, limit_indices=limits, strides=m.params["strides"])
        offset += size
    return None


# ---------------------------------------------------------------------------------------------------------- reductions


@rule(operation(Reduction)(x))
def reduction_of_one(m: Match, x: Atom) -> Any:
    """Only if all reduced dimensions have size 1. A sum starts from 0.0, so that -0.0 becomes 0.0."""
    if any(get_shape(x)[a] != 1 for a in m.params["axes"]):
        return None
    primitive: Any = m.equation.primitive
    if m.kind in primitive.one_plus_zero:
        return m.make("add", m.reshape(x, m.shape), m.literal(0))
    return m.reshape(x, m.shape) if m.kind in primitive.one_as_is else None


@rule(operation(Reduction)(broadcast(x).named("inner")))
def reduction_of_broadcast(m: Match, x: Atom, inner: Equation) -> Any:
    """Reduce the operand of the broadcast: copies of integers have the extremes of the original.

    Not for floats: a reduction may change the sign of NaN.
    """
    primitive: Any = m.equation.primitive
    axes = m.params["axes"]
    shape, placed = inner.params["shape"], inner.params["broadcast_dimensions"]
    copies = tuple(a for a in axes if a not in placed)
    if not primitive.idempotent or m.kind not in "biu" or not copies:
        return None
    if 1 in get_shape(x) or any(shape[a] == 0 for a in copies):
        return None
    rest = tuple(placed.index(a) for a in axes if a in placed)
    reduced = m.make(primitive.name, x, axes=rest) if rest else x
    if get_shape(reduced) == m.shape:
        return reduced
    remaining = remaining_axes(len(shape), axes)
    positions = tuple(remaining.index(d) for d in placed if d not in axes)
    return m.make("broadcast_in_dim", reduced, shape=m.shape, broadcast_dimensions=positions)


@rule(operation(Reduction)(operation(Reduction)(x).named("inner")))
def merge_reductions(m: Match, x: Atom, inner: Equation) -> Any:
    primitive: Any = m.equation.primitive
    if inner.primitive is not m.equation.primitive or m.kind not in primitive.any_order:
        return None
    remaining = remaining_axes(len(get_shape(x)), inner.params["axes"])
    axes = (*inner.params["axes"], *(remaining[a] for a in m.params["axes"]))
    return m.make(primitive.name, x, axes=tuple(sorted(axes)))


SIMPLE = Rules(
    multiply_by_one,
    multiply_by_zero,
    divide_by_one,
    divide_by_power_of_two,
    add_negative_zero,
    add_zero,
    subtract_zero,
    subtract_itself,
    negate_twice,
    magnitude_of_negative,
    magnitude_twice,
    max_of_itself,
    min_of_itself,
    floor_twice,
    ceil_twice,
    small_power,
    and_with_constant,
    or_with_constant,
    xor_with_nothing,
    and_with_itself,
    or_with_itself,
    xor_with_itself,
    not_twice,
    boolean_from_integer,
    select_among_equals,
    select_by_constant,
    select_by_negation,
    merge_conversions,
    real_of_complex,
    imaginary_of_complex,
    conjugate_twice,
    slice_inside_padding,
    slice_of_one_part,
    reduction_of_one,
    reduction_of_broadcast,
    merge_reductions,
)
RULES = Rules(SIMPLE, CANONICAL)


@everywhere
def simplify(jaxpr: Jaxpr) -> Jaxpr:
    """Remove arithmetic that does not change a bit. Needs: the canonical form. Keeps: it."""
    return rewrite(jaxpr, RULES)
