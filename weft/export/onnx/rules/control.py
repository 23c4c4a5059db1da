"""Rules of control flow: branches, loops over arrays, and loops under a condition."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from weft.export.onnx.emitter import BOOL, INT32, INT64, Emitter
from weft.export.onnx.graph import Value
from weft.export.onnx.lower import emit_jaxpr, part_types
from weft.export.onnx.rules.elementwise import compare
from weft.export.onnx.table import Parts, parts_rule
from weft.ir.jaxpr import Equation, Jaxpr
from weft.ir.types import TapeType


def flatten(values: Sequence[Parts]) -> list[Value]:
    """Return the tensors of several arrays."""
    return [part for parts in values for part in parts]


def group(values: Sequence[Value], avals: Sequence[Any]) -> list[Parts]:
    """Return the arrays of types `avals` that consist of tensors."""
    rest = iter(values)
    return [tuple(next(rest) for _ in part_types(aval)) for aval in avals]


def body_inputs(g: Emitter, avals: Sequence[Any]) -> list[Parts]:
    """Append inputs of types `avals` to a body."""
    return [tuple(g.input("v", dtype, shape) for dtype, shape in part_types(aval)) for aval in avals]


def check_no_tapes(g: Emitter, avals: Sequence[Any]) -> None:
    """Raise if a loop stores a value of each step for reverse mode, whose number is unknown."""
    if any(isinstance(aval, TapeType) for aval in avals):
        raise g.refuse(
            "it stores values of an unknown number of steps for a derivative", "use scan or fori_loop with known bounds"
        )


@parts_rule("cond")
def write_cond(g: Emitter, e: Equation, index: Parts, *operands: Parts) -> list[Parts]:
    """Run the branch with an index, which is clamped: a chain of `If`."""
    branches = e.params["branches"]
    avals = [v.aval for v in e.outvars]
    types = [t for aval in avals for t in part_types(aval)]

    def choose(first: int) -> list[Value]:
        if first == len(branches) - 1:
            return flatten(emit_jaxpr(g, branches[first], operands))
        taken = compare(g, "LessOrEqual", index[0], g.scalar(first, index[0]))
        with g.body("then") as then:
            g.give(then, flatten(emit_jaxpr(g, branches[first], operands)))
        with g.body("otherwise") as otherwise:
            g.give(otherwise, choose(first + 1))
        return g.nodes("If", [taken], types, then_branch=then, else_branch=otherwise)

    return group(choose(0), avals)


@parts_rule("scan")
def write_scan(g: Emitter, e: Equation, *operands: Parts) -> list[Parts]:
    """Loop over leading axes: `Scan`, or `Loop` if there is nothing to read."""
    params, jaxpr = e.params, e.params["jaxpr"]
    first, last = params["num_consts"], params["num_consts"] + params["num_carry"]
    avals = [v.aval for v in e.outvars]
    check_no_tapes(g, [*jaxpr.in_avals, *avals])
    consts, carry, xs = operands[:first], operands[first:last], operands[last:]
    types = [t for aval in avals for t in part_types(aval)]
    reverse = params["reverse"]
    if not xs:
        return _count_steps(g, e, consts, carry)
    with g.body("step") as body:
        state = body_inputs(g, jaxpr.in_avals[first:last])
        slices = body_inputs(g, jaxpr.in_avals[last:])
        g.give(body, flatten(emit_jaxpr(g, jaxpr, [*consts, *state, *slices])))
    arrays = flatten(xs)
    results = len(types) - len(flatten(carry))
    directions: dict[str, Any] = {"num_scan_inputs": len(arrays)}
    if reverse:
        directions |= {"scan_input_directions": (1,) * len(arrays)}
        directions |= {"scan_output_directions": (1,) * results} if results else {}
    found = g.nodes("Scan", [*flatten(carry), *arrays], types, body=body, **directions)
    return group(found, avals)


def _count_steps(g: Emitter, e: Equation, consts: Sequence[Parts], carry: Sequence[Parts]) -> list[Parts]:
    """Loop a number of times without arrays to read; results of a reversed loop are reversed."""
    params, jaxpr = e.params, e.params["jaxpr"]
    types = [t for v in e.outvars for t in part_types(v.aval)]
    trips = g.reshape(g.dimension(params["length"]), ())

    def step(at: Value, state: Sequence[Parts]) -> tuple[Value | None, list[Value]]:
        return None, flatten(emit_jaxpr(g, jaxpr, [*consts, *state]))

    first = params["num_consts"]
    avals = jaxpr.in_avals[first : first + params["num_carry"]]
    found = loop(g, trips, None, carry, avals, types, step)
    if params["reverse"]:
        state = len(flatten(carry))
        found = [*found[:state], *(g.slice_backwards(v) for v in found[state:])]
    return group(found, [v.aval for v in e.outvars])


def loop(
    g: Emitter,
    trips: Value | None,
    condition: Value | None,
    carry: Sequence[Parts],
    avals: Sequence[Any],
    types: Sequence[Any],
    step: Callable[[Value, Sequence[Parts]], tuple[Value | None, list[Value]]],
) -> list[Value]:
    """Emit a `Loop`: `step` returns the condition to continue (None: it always does) and the results of a step."""
    with g.body("step") as body:
        at = g.input("v", INT64, ())
        going = g.input("v", BOOL, ())
        state = body_inputs(g, avals)
        again, values = step(at, state)
        g.give(body, [going if again is None else again, *values])
    return g.nodes("Loop", [trips, condition, *flatten(carry)], types, body=body)


@parts_rule("while")
def write_while(g: Emitter, e: Equation, *operands: Parts) -> list[Parts]:
    """Loop under a condition, which is computed before the loop and at the end of each step."""
    params = e.params
    condition, body = params["cond_jaxpr"], params["body_jaxpr"]
    first, second = params["cond_nconsts"], params["cond_nconsts"] + params["body_nconsts"]
    cond_consts, body_consts, carry = operands[:first], operands[first:second], operands[second:]
    avals = [v.aval for v in e.outvars]
    check_no_tapes(g, [*body.in_avals, *avals])
    start = emit_jaxpr(g, condition, [*cond_consts, *carry])[0][0]

    def step(at: Value, state: Sequence[Parts]) -> tuple[Value | None, list[Value]]:
        values = emit_jaxpr(g, body, [*body_consts, *state])
        return emit_jaxpr(g, condition, [*cond_consts, *values])[0][0], flatten(values)

    types = [t for aval in avals for t in part_types(aval)]
    return group(loop(g, None, start, carry, body.in_avals[len(body_consts) :], types, step), avals)


@parts_rule("repeat")
def write_repeat(g: Emitter, e: Equation, count: Parts, *operands: Parts) -> list[Parts]:
    """Loop a number of times that is known when the graph runs."""
    jaxpr: Jaxpr = e.params["jaxpr"]
    nconsts = e.params["nconsts"]
    consts, carry = operands[:nconsts], operands[nconsts:]
    avals = [v.aval for v in e.outvars]
    check_no_tapes(g, [*jaxpr.in_avals, *avals])
    last = g.elementwise("Sub", count[0], g.constant(np.int32(1)))

    def step(at: Value, state: Sequence[Parts]) -> tuple[Value | None, list[Value]]:
        number = g.cast(at, INT32)
        if e.params["reverse"]:
            number = g.elementwise("Sub", last, number)
        return None, flatten(emit_jaxpr(g, jaxpr, [(number,), *consts, *state]))

    types = [t for aval in avals for t in part_types(aval)]
    trips = g.cast(count[0], INT64)
    return group(loop(g, trips, None, carry, jaxpr.in_avals[1 + nconsts :], types, step), avals)
