"""Rules of control flow: loops and branches."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from weft.compiler.target.stablehlo.emitter import Emitter, Parts, Site, flatten, part_rule, part_types, regroup
from weft.compiler.target.stablehlo.types import BOOL, INT32, int64_array
from weft.compiler.target.stablehlo.writer import Shape, Value
from weft.ir.jaxpr import Equation, Jaxpr, Literal

Types = Sequence[tuple[Shape, Any]]
Groups = Sequence[Types]


def loop(
    e: Emitter,
    initial: Sequence[Value],
    condition: Callable[[list[Value]], Value],
    body: Callable[[list[Value]], Sequence[Value]],
) -> list[Value]:
    """Write a `while` over arrays."""
    types = [(x.shape, x.dtype) for x in initial]
    regions = [e.region(types, lambda carry: [condition(carry)]), e.region(types, body)]
    return e.write("stablehlo.while", initial, types, "", regions)


@part_rule("while")
def while_(e: Emitter, site: Site, equation: Equation, *operands: Parts) -> list[Parts]:
    """Write a loop as long as a condition holds."""
    p = equation.params
    first, second = p["cond_nconsts"], p["cond_nconsts"] + p["body_nconsts"]
    cond_consts, body_consts, carry = operands[:first], operands[first:second], operands[second:]

    def condition(values: list[Value]) -> Value:
        ((result,),) = e.body(p["cond_jaxpr"], [*cond_consts, *regroup(values, carry)])
        return result

    def body(values: list[Value]) -> list[Value]:
        return flatten(e.body(p["body_jaxpr"], [*body_consts, *regroup(values, carry)]))

    return regroup(loop(e, flatten(carry), condition, body), carry)


def write_branch(e: Emitter, branch: Jaxpr, operands: Sequence[Parts], arguments: list[Value]) -> list[Value]:
    """Write a branch, which has no arguments of its own."""
    return flatten(e.body(branch, operands))


@part_rule("cond")
def cond(e: Emitter, site: Site, equation: Equation, index: Parts, *operands: Parts) -> list[Parts]:
    """Write a choice of branches; an index out of range is clamped."""
    branches = equation.params["branches"]
    (which,) = index
    types = [part_types(v.aval) for v in equation.outvars]
    known = equation.invars[0]
    if len(branches) == 1 or isinstance(known, Literal):
        chosen = int(known.val) if isinstance(known, Literal) else 0
        return e.body(branches[min(max(chosen, 0), len(branches) - 1)], operands)
    regions = [e.region((), functools.partial(write_branch, e, branch, operands)) for branch in branches]
    results = [t for each in types for t in each]
    if which.dtype == BOOL:
        return regroup(e.write("stablehlo.if", [which], results, "", regions[::-1]), types)
    if which.dtype != INT32:
        wide = e.convert(which, np.dtype(np.int64))
        which = e.convert(
            e.same("clamp", e.scalar(0, wide.dtype), wide, e.scalar(len(branches) - 1, wide.dtype)), INT32
        )
    # StableHLO takes the last branch for every index out of range.
    which = e.same("maximum", which, e.scalar(0, INT32))
    return regroup(e.write("stablehlo.case", [which], results, "", regions), types)


def count_loop(
    e: Emitter, count: Value, initial: Sequence[Value], step: Callable[[Value, list[Value]], Sequence[Value]]
) -> list[Value]:
    """Write a loop over the indices from 0 up to a count."""

    def condition(values: list[Value]) -> Value:
        return e.compare("LT", values[0], count)

    def body(values: list[Value]) -> list[Value]:
        results = step(values[0], values[1:])
        return [e.same("add", values[0], e.scalar(1, INT32)), *results]

    return loop(e, [e.scalar(0, INT32), *initial], condition, body)[1:]


@part_rule("scan")
def scan(e: Emitter, site: Site, equation: Equation, *operands: Parts) -> list[Parts]:
    """Write a loop over the leading axis of arrays: it reads slices and updates slices of its results."""
    p = equation.params
    first, second, length = p["num_consts"], p["num_consts"] + p["num_carry"], int(p["length"])
    consts, carry, xs = operands[:first], operands[first:second], operands[second:]
    stacked = [part_types(v.aval, site.source) for v in equation.outvars[p["num_carry"] :]]
    empty = [tuple(e.full(0, *t) for t in parts) for parts in stacked]
    groups = [*carry, *empty]
    if not length:
        return groups

    def step(index: Value, values: list[Value]) -> list[Value]:
        found = regroup(values, groups)
        state, ys = found[: len(carry)], found[len(carry) :]
        at = e.same("subtract", e.scalar(length - 1, INT32), index) if p["reverse"] else index
        slices = [tuple(read_slice(e, x, at) for x in parts) for parts in xs]
        results = e.body(p["jaxpr"], [*consts, *state, *slices])
        new = [
            tuple(write_slice(e, y, value, at) for y, value in zip(*pair, strict=True))
            for pair in zip(ys, results[len(carry) :], strict=True)
        ]
        return flatten([*results[: len(carry)], *new])

    return regroup(count_loop(e, e.scalar(length, INT32), flatten(groups), step), groups)


def read_slice(e: Emitter, x: Value, index: Value) -> Value:
    """Return the slice at an index of the leading axis."""
    shape = (1, *x.shape[1:])
    starts = [index, *[e.scalar(0, index.dtype)] * (len(shape) - 1)]
    return e.reshape(
        e.op("dynamic_slice", [x, *starts], shape, x.dtype, f"slice_sizes = {int64_array(shape)}"), shape[1:]
    )


def write_slice(e: Emitter, x: Value, value: Value, index: Value) -> Value:
    """Return an array with another slice at an index of the leading axis."""
    starts = [index, *[e.scalar(0, index.dtype)] * (len(x.shape) - 1)]
    return e.op("dynamic_update_slice", [x, e.reshape(value, (1, *value.shape)), *starts], x.shape, x.dtype)


@part_rule("repeat")
def repeat(e: Emitter, site: Site, equation: Equation, count: Parts, *operands: Parts) -> list[Parts]:
    """Write a loop over a count that is computed."""
    p = equation.params
    consts, carry = operands[: p["nconsts"]], operands[p["nconsts"] :]
    (total,) = count

    def step(index: Value, values: list[Value]) -> list[Value]:
        at = index
        if p["reverse"]:
            at = e.same("subtract", e.same("subtract", total, e.scalar(1, INT32)), index)
        return flatten(e.body(p["jaxpr"], [(at,), *consts, *regroup(values, carry)]))

    return regroup(count_loop(e, total, flatten(carry), step), carry)
