"""Sums deferred through loops: a carry to which every iteration adds an unreduced value is all-reduced once, after the
loop.

`carry + gradient`, where the gradient is unreduced over an axis, is unreduced if the carry is. So the carry starts as
its value on the first device along the axis and zeros on the others, each device adds its own partial sums, and the
result of the loop is unreduced. A body is first partitioned as if all carries were reduced, which shows what it sums;
then again with the carries that may be deferred, and again without those that turned out not to be.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from weft.compiler.partition.rules import Dims
from weft.ir.body_map import BodyMap
from weft.ir.jaxpr import Atom, Equation, Jaxpr, Literal, Var
from weft.ir.parts import Parts, byte_count
from weft.ir.types import ArrayType
from weft.primitives.control.shard_map import shard_map
from weft.primitives.elementwise.rounding import reduce_precision
from weft.primitives.movement.shape import broadcast_in_dim
from weft.primitives.movement.terms import unsum

if TYPE_CHECKING:
    from weft.compiler.partition.bodies import BodyPartitioner

Axes = tuple[Any, ...]
# The axes over which a value is unreduced, and the equation that summed over them.
PendingSum = tuple[Axes, Equation]
# (body, argument, result), as `BodyMap` has them.
Carry = tuple[int, int, int]


def can_defer(equation: Equation) -> bool:
    """Return whether an all-reduce of operands may be done on the result instead: the operation is linear, without
    rounding to another dtype. A multiplication is linear in one operand if the other is a literal."""
    primitive = equation.primitive
    types: list[Any] = [a.aval for a in (*equation.invars, *equation.outvars)]
    if primitive.higher_order or primitive is reduce_precision:
        return False
    if primitive is unsum:
        return True
    if not all(isinstance(t, ArrayType) and t.dtype == types[0].dtype for t in types):
        return False
    if primitive.copies == "all" and len(equation.invars) == 1:
        return byte_count(types[-1]) <= byte_count(types[0])  # after a broadcast more bytes would be sent
    literals = sum(type(a) is Literal for a in equation.invars)
    if not primitive.pointwise or not primitive.linear:
        return False
    return literals == len(equation.invars) - 1 if primitive.multilinear else not literals


def is_used(v: Var, jaxpr: Jaxpr) -> bool:
    """Return whether a jaxpr reads or returns a value."""
    return v in jaxpr.outvars or any(v in e.invars for e in jaxpr.eqns)


def candidates(mapping: BodyMap, partitioners: Sequence[BodyPartitioner]) -> dict[Carry, PendingSum]:
    """Return the carries whose sums may be deferred, with their axes: the only use of the carry leads to its next
    value, and values are added on the way that the partitioned body reduced over these axes."""
    found: dict[Carry, PendingSum] = {}
    for carry in mapping.carries:
        b, argument, result = carry
        body, partitioner = mapping.bodies[b], partitioners[b]
        v, after = body.invars[argument], body.outvars[result]
        operand = mapping.arguments[b][argument]
        if operand is None or not isinstance(v.aval, ArrayType) or type(after) is not Var or after is v:
            continue
        if (
            len(partitioner.uses.get(v, ())) != 1
            or partitioner.uses.get(after) != [None]
            or used_elsewhere(mapping, b, operand)
        ):
            continue
        total = sum_along_path(partitioner, after, v)
        if total is not None and may_leave(partitioner.at[v], total[0]):
            found[carry] = total
    return found


def sum_along_path(partitioner: BodyPartitioner, v: Var, start: Var) -> PendingSum | None:
    """Return the axes over which the values were reduced that linear operations add up to `v`, one of them `start`;
    None if they differ, or if other values are added."""
    found: dict[Axes, Equation] = {}
    rest, began = [v], False
    while rest:
        a = rest.pop()
        equation = partitioner.defined_by.get(a)
        if a in partitioner.reduced:
            axes, by = partitioner.reduced[a]
            found.setdefault(axes, by)
            began |= equation is not None and first_value(equation, a) is start
        elif a is start:
            began = True
        elif equation is None or len(partitioner.uses[a]) != 1:
            return None
        elif equation.primitive.higher_order:
            before = first_value(equation, a)
            if type(before) is not Var:
                return None
            rest.append(before)
        elif can_defer(equation):
            rest += [x for x in equation.invars if type(x) is Var]
        else:
            return None
    return next(iter(found.items())) if began and len(found) == 1 else None


def first_value(equation: Equation, v: Var) -> Atom | None:
    """Return the operand with which a carry starts whose last value is result `v` of a loop; None for other results."""
    primitive: Any = equation.primitive
    if not primitive.higher_order or primitive is shard_map:  # results of a `shard_map` are not carries
        return None
    mapping = primitive.body_map(equation.params)
    sources = mapping.results[equation.outvars.index(v)]
    found = [mapping.arguments[b][i] for b, i, r in mapping.carries if (b, r, False) in sources]
    return equation.invars[found[0]] if len(found) == 1 and found[0] is not None else None


def leaves(mapping: BodyMap, partitioners: Sequence[BodyPartitioner], carry: Carry, axes: Axes) -> bool:
    """Return whether a body leaves a carry unreduced over these axes."""
    body, _, result = carry
    known = partitioners[body].unreduced.get(mapping.bodies[body].outvars[result])
    return known is not None and known[0] == axes


def used_elsewhere(mapping: BodyMap, body: int, operand: int) -> bool:
    """Return whether another body, such as the condition of a while loop, reads an operand."""
    for b, (other, arguments) in enumerate(zip(mapping.bodies, mapping.arguments, strict=True)):
        if b != body and any(i == operand and is_used(other.invars[k], other) for k, i in enumerate(arguments)):
            return True
    return False


def carry_results(mapping: BodyMap, carry: Carry) -> list[int]:
    """Return the results of a loop that are the last value of a carry."""
    return [k for k, sources in enumerate(mapping.results) if (carry[0], carry[2], False) in sources]


def stack_results(mapping: BodyMap) -> dict[int, tuple[int, int]]:
    """Map the stacked results of a loop to the (body, result) that each stacks."""
    return {k: sources[0][:2] for k, sources in enumerate(mapping.results) if len(sources) == 1 and sources[0][2]}


def is_zero(a: Atom, defined_by: Mapping[Var, Equation]) -> bool:
    """Return whether a value is known to be all zeros."""
    if type(a) is Literal:
        return not np.any(np.asarray(a.val))
    equation = defined_by.get(a)  # type: ignore[arg-type]
    if equation is None or equation.primitive.copies != "all" or not equation.invars:
        return False
    return all(is_zero(x, defined_by) for x in equation.invars)


def on_first(x: Any, axes: Axes, sizes: Mapping[Any, int]) -> Any:
    """Make a value a partial sum on the first device along axes, and zeros on the others: their sum is the value."""
    parts = Parts((), (), (), (), {}, sizes)
    zero = broadcast_in_dim(x.dtype.type(0), shape=x.shape, broadcast_dimensions=())
    return parts.on_first(axes, x, zero)


def may_leave(dims: Dims, axes: Axes) -> bool:
    """Return whether a result of a loop may be reduced after it: not if it is split over one of the axes, since all of
    it would be stored until then."""
    return not any(a in axes for own in dims for a in own)
