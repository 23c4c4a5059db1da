"""Sums that wait through loops: a carry to which every iteration adds what is still to be summed between devices is
summed once, after the loop.

`carry + gradient`, where the gradient is unreduced over an axis, is unreduced if the carry is. So the carry begins with
its value on the first device along the axis and zeros on the others, each device adds its own parts, and what leaves
the loop is unreduced. A body is first partitioned as if all carries were whole, which shows what it sums; then again
with the carries that may wait, and again without those that have turned out not to.
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
    from weft.compiler.partition.partition import Block

Axes = tuple[Any, ...]
# Over which axes a value is still to be summed, and for which equation.
Sum = tuple[Axes, Equation]
# (body, argument, result), as `BodyMap` has them.
Carry = tuple[int, int, int]


def can_wait(equation: Equation) -> bool:
    """Whether sums of operands may be done on the result instead: it is linear, without rounding to another dtype. A
    product is linear in one operand where the others are literals."""
    primitive = equation.primitive
    types: list[Any] = [a.aval for a in (*equation.invars, *equation.outvars)]
    if primitive.higher_order or primitive is reduce_precision:
        return False
    if primitive is unsum:
        return True
    if not all(isinstance(t, ArrayType) and t.dtype == types[0].dtype for t in types):
        return False
    if primitive.copies == "all" and len(equation.invars) == 1:
        return byte_count(types[-1]) <= byte_count(types[0])  # more would be sent after a broadcast
    literals = sum(type(a) is Literal for a in equation.invars)
    if not primitive.pointwise or not primitive.linear:
        return False
    return literals == len(equation.invars) - 1 if primitive.multilinear else not literals


def is_used(v: Var, jaxpr: Jaxpr) -> bool:
    return v in jaxpr.outvars or any(v in e.invars for e in jaxpr.eqns)


def candidates(carried: BodyMap, blocks: Sequence[Block]) -> dict[Carry, Sum]:
    """The carries whose sums may wait, and over which axes, by what the bodies have summed: the only use of the carry
    leads to its next value, and on the way values are added that were summed over these axes."""
    found: dict[Carry, Sum] = {}
    for carry in carried.carries:
        b, argument, result = carry
        body, block = carried.bodies[b], blocks[b]
        v, after = body.invars[argument], body.outvars[result]
        operand = carried.arguments[b][argument]
        if operand is None or not isinstance(v.aval, ArrayType) or type(after) is not Var or after is v:
            continue
        if len(block.uses.get(v, ())) != 1 or block.uses.get(after) != [None] or used_elsewhere(carried, b, operand):
            continue
        total = summed_on_the_way(block, after, v)
        if total is not None and may_leave(block.at[v], total[0]):
            found[carry] = total
    return found


def summed_on_the_way(block: Block, v: Var, start: Var) -> Sum | None:
    """Over which axes the values were summed that linear operations add up to a value, one of which is `start`; None if
    they differ, or if others are among them."""
    found: dict[Axes, Equation] = {}
    rest, began = [v], False
    while rest:
        a = rest.pop()
        equation = block.defined_by.get(a)
        if a in block.reduced:
            axes, by = block.reduced[a]
            found.setdefault(axes, by)
            began |= equation is not None and first_value(equation, a) is start
        elif a is start:
            began = True
        elif equation is None or len(block.uses[a]) != 1:
            return None
        elif equation.primitive.higher_order:
            before = first_value(equation, a)
            if type(before) is not Var:
                return None
            rest.append(before)
        elif can_wait(equation):
            rest += [x for x in equation.invars if type(x) is Var]
        else:
            return None
    return next(iter(found.items())) if began and len(found) == 1 else None


def first_value(equation: Equation, v: Var) -> Atom | None:
    """The first value of the carry whose last value a result of a loop is; None if it is none."""
    primitive: Any = equation.primitive
    if not primitive.higher_order or primitive is shard_map:  # what a `shard_map` returns is not a carry
        return None
    carried = primitive.body_map(equation.params)
    sources = carried.results[equation.outvars.index(v)]
    found = [carried.arguments[b][i] for b, i, r in carried.carries if (b, r, False) in sources]
    return equation.invars[found[0]] if len(found) == 1 and found[0] is not None else None


def leaves(carried: BodyMap, blocks: Sequence[Block], carry: Carry, axes: Axes) -> bool:
    """Whether the sum of a carry is left to the loop."""
    body, _, result = carry
    known = blocks[body].unreduced.get(carried.bodies[body].outvars[result])
    return known is not None and known[0] == axes


def used_elsewhere(carried: BodyMap, body: int, operand: int) -> bool:
    """Whether another body, one that decides, reads an operand."""
    for b, (other, arguments) in enumerate(zip(carried.bodies, carried.arguments, strict=True)):
        if b != body and any(i == operand and is_used(other.invars[k], other) for k, i in enumerate(arguments)):
            return True
    return False


def results_of(carried: BodyMap, carry: Carry) -> list[int]:
    """The results of a loop that are the last value of a carry."""
    return [k for k, sources in enumerate(carried.results) if (carry[0], carry[2], False) in sources]


def stacked_results(carried: BodyMap) -> dict[int, tuple[int, int]]:
    """The results of a loop that are stacked, and which result of which body each is."""
    return {k: sources[0][:2] for k, sources in enumerate(carried.results) if len(sources) == 1 and sources[0][2]}


def is_zero(a: Atom, defined_by: Mapping[Var, Equation]) -> bool:
    """Whether a value is known to be all zeros."""
    if type(a) is Literal:
        return not np.any(np.asarray(a.val))
    equation = defined_by.get(a)  # type: ignore[arg-type]
    if equation is None or equation.primitive.copies != "all" or not equation.invars:
        return False
    return all(is_zero(x, defined_by) for x in equation.invars)


def on_first(x: Any, axes: Axes, sizes: Mapping[Any, int]) -> Any:
    """A value on the first device along axes, and zeros on the others: their sum is the value."""
    parts = Parts((), (), (), (), {}, sizes)
    zero = broadcast_in_dim(x.dtype.type(0), shape=x.shape, broadcast_dimensions=())
    return parts.on_first(axes, x, zero)


def may_leave(dims: Dims, axes: Axes) -> bool:
    """Whether a value that a loop stacks may be summed after it: not if it is to be split over one of the axes, since
    all of it would be stored until then."""
    return not any(a in axes for own in dims for a in own)
