"""Build the steps of control flow: scan, while, repeat and cond.

A carry of a loop has one slot for the whole loop. The body reads it there and, if the old value is dead by then, writes
the new one there; otherwise the new one is copied at the end of the iteration. Where that copies much, a body computes
two iterations: the second reads the results of the first in place, and writes to the slots of the carries again. Slices
of scanned arrays are read and written in place, through registers that point at them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np

from weft.base import dtypes
from weft.compiler.program import tapes
from weft.compiler.program.block import JaxprValues
from weft.compiler.program.carry_order import readers_first
from weft.compiler.program.checks import enclosing_loop
from weft.compiler.program.ir import (
    Branch,
    Communicate,
    Copy,
    Count,
    Fill,
    FrameRegister,
    Loop,
    SetAddress,
    Slot,
    Step,
    While,
    nested_steps,
)
from weft.ir.jaxpr import Equation, Jaxpr
from weft.ir.types import TapeType
from weft.primitives.control.check import CHECK
from weft.primitives.control.cond import cond
from weft.primitives.control.repeat import repeat
from weft.primitives.control.scan import scan, sections
from weft.primitives.control.while_loop import while_

if TYPE_CHECKING:
    from weft.compiler.program.build import ProgramBuilder


@contextmanager
def collect_steps(builder: ProgramBuilder, token: object | None = None) -> Iterator[list[Step]]:
    """Collect the steps built in this context in a list of their own; with a token, as the body of a loop."""
    steps: list[Step] = []
    before = builder.steps, builder.loop, builder.target
    builder.steps = steps
    if token is not None:
        builder.loop, builder.target = token, builder.target.in_loops
    yield steps
    builder.steps, builder.loop, builder.target = before


def carries(
    builder: ProgramBuilder,
    block: JaxprValues,
    position: int,
    operands: Sequence[Any],
    results: Sequence[Any],
    read: Sequence[Slot],
) -> list[Slot]:
    """Return a slot for each carry, initialised with its first value.

    This is the operand's own slot if it dies here and is not in `read`, the other slots that the loop reads; otherwise
    a copy, in the memory of the loop's result if that has a target.
    """
    slots: list[Slot] = []
    for atom, v in zip(operands, results, strict=True):
        start = builder.atom(block, atom)
        target = block.targets.get(v)
        preferred = block.preferred.get(v)
        mine = start not in slots and start not in read and block.dead(start, position, from_now=False)
        if mine and (target is None or start is preferred):
            slots.append(start)
            continue
        slot = target
        if preferred is not None and preferred not in slots and block.dead(preferred, position, from_now=True):
            slot = preferred
        if slot is None:
            slot = builder.temporary(start.size)
        builder.copy(slot, start)
        slots.append(slot)
    return slots


def build_body(
    builder: ProgramBuilder,
    jaxpr: Jaxpr,
    inputs: Sequence[Slot],
    carried: Sequence[Slot],
    targets: Sequence[Slot] = (),
) -> None:
    """Build the steps of a loop's body.

    `inputs` are the slots of its arguments in order, `carried` those of the carries among them. The jaxpr's results are
    the new carries, followed by the values for `targets`.
    """
    block = _fill_body(builder, jaxpr, inputs, carried, carried, targets)
    builder.copy_results(block, [*carried, *targets])


def _fill_body(
    builder: ProgramBuilder,
    jaxpr: Jaxpr,
    inputs: Sequence[Slot],
    current: Sequence[Slot],
    carried: Sequence[Slot],
    targets: Sequence[Slot] = (),
) -> JaxprValues:
    """Build the steps of an iteration that reads the carries from `current`, among `inputs`, and writes the new ones
    to `carried` where these are dead by then."""
    held = {id(slot): v for v, slot in zip(jaxpr.invars, inputs, strict=True)}
    pairs = zip((held[id(slot)] for slot in current), jaxpr.outvars, strict=False)
    own = (slot for slot in current if slot in carried or slot.owner is builder.loop)
    block = JaxprValues(readers_first(jaxpr, list(pairs)), owned=[*carried, *own])
    for v, slot in zip(jaxpr.invars, inputs, strict=True):
        block.put(v, slot)
    for outvar, slot in zip(jaxpr.outvars, carried, strict=False):
        if outvar not in block.slots:
            block.preferred.setdefault(outvar, slot)
    builder.fill(block, [*(None for _ in carried), *targets])
    return block


# A body that copies fewer bytes of carries, or has more steps, computes one iteration.
LEAST_COPIED = 32 << 10
MOST_STEPS = 32
# Loops with fewer iterations stay as they are.
LEAST_ITERATIONS = 4


def _build_two_iterations(builder: ProgramBuilder, jaxpr: Jaxpr, held: Sequence[Slot], carried: Sequence[Slot]) -> None:
    """Build the steps of two iterations of a loop without scanned arrays."""
    first = _fill_body(builder, jaxpr, [*held, *carried], carried, carried)
    between = [builder.atom(first, v) for v in jaxpr.outvars]
    second = _fill_body(builder, jaxpr, [*held, *between], between, carried)
    builder.copy_results(second, carried)


def _count_copies(steps: Sequence[Step], carried: Sequence[Slot]) -> int:
    """Return how many bytes of carries the steps of a body copy; 0 if the body is not to be repeated."""
    if len(steps) > MOST_STEPS or any(step.bodies or isinstance(step, Communicate) for step in nested_steps(steps)):
        return 0
    return sum(step.size for step in steps if isinstance(step, Copy) and step.target in carried)


def finish(builder: ProgramBuilder, block: JaxprValues, results: Sequence[Any], slots: Sequence[Slot]) -> None:
    """Record the slots of a loop's results."""
    for v, slot in zip(results, slots, strict=True):
        builder.define(block, v, slot)


def build_scan(builder: ProgramBuilder, block: JaxprValues, position: int, equation: Equation) -> None:
    params = equation.params
    jaxpr, length = params["jaxpr"], params["length"]
    consts, carry, xs = sections(equation.invars, params["num_consts"], params["num_carry"])
    count = params["num_carry"]
    held = [builder.atom(block, a) for a in consts]
    scanned = [builder.atom(block, a) for a in xs]
    carried = carries(builder, block, position, carry, equation.outvars[:count], [*held, *scanned])
    stacked = [builder.allocate(block, v, position) for v in equation.outvars[count:]]
    for v, slot in zip(equation.outvars[count:], stacked, strict=True):
        if isinstance(v.aval, TapeType):
            builder.steps.append(Fill(slot))
    finish(builder, block, equation.outvars[:count], carried)
    token = object()
    counter = FrameRegister("counter")
    with collect_steps(builder, token) as body, enclosing_loop(builder, "scan", counter, equation):
        slices = [
            _slice(builder, v, slot, counter)
            for v, slot in zip(jaxpr.invars[len(held) + count :], scanned, strict=True)
        ]
        outs = jaxpr.outvars[count:]
        targets = [_target(builder, v, slot, counter) for v, slot in zip(outs, stacked, strict=True)]
        build_body(builder, jaxpr, [*held, *carried, *slices], carried, targets)
        for v, slot, target in zip(outs, stacked, targets, strict=True):
            if isinstance(v.aval, TapeType):
                tapes.write_at(builder, v.aval, slot, counter, target)
    times = length
    no_slices = not xs and not stacked and not equation.effects and type(length) is int
    if no_slices and length >= LEAST_ITERATIONS and _count_copies(body, carried) >= LEAST_COPIED:
        if length % 2:
            once = Loop(FrameRegister("counter"), FrameRegister("bound"), 1, False, body, token, label="scan")
            builder.steps.append(once)
            token, counter = object(), FrameRegister("counter")
        with collect_steps(builder, token) as body, enclosing_loop(builder, "scan", counter, equation):
            _build_two_iterations(builder, jaxpr, held, carried)
        times = length // 2
    builder.steps.append(Loop(counter, FrameRegister("bound"), times, params["reverse"], body, token, label="scan"))


def _slice(builder: ProgramBuilder, v: Any, base: Slot, counter: FrameRegister) -> Slot:
    """Return the slice of a scanned operand in this iteration."""
    if isinstance(v.aval, TapeType):
        return tapes.read_at(builder, v.aval, base, counter)
    return _slice_slot(builder, v, base, counter, written=False)


def _target(builder: ProgramBuilder, v: Any, base: Slot, counter: FrameRegister) -> Slot:
    """Return the slot for the slice of a result in this iteration."""
    if isinstance(v.aval, TapeType):
        return builder.temporary(builder.size(v.aval))
    return _slice_slot(builder, v, base, counter, written=True)


def _slice_slot(builder: ProgramBuilder, v: Any, base: Slot, counter: FrameRegister, written: bool) -> Slot:
    size = builder.size(v.aval)
    slot = builder.slice_slot(base, size)
    builder.steps.append(SetAddress(slot, base, counter, size, written))
    return slot


def build_repeat(builder: ProgramBuilder, block: JaxprValues, position: int, equation: Equation) -> None:
    params = equation.params
    jaxpr, constants = params["jaxpr"], params["nconsts"]
    count, *rest = equation.invars
    bound = builder.atom(block, count)
    held = [builder.atom(block, a) for a in rest[:constants]]
    carried = carries(builder, block, position, rest[constants:], equation.outvars, [bound, *held])
    finish(builder, block, equation.outvars, carried)
    token = object()
    counter = FrameRegister("counter")
    with collect_steps(builder, token) as body, enclosing_loop(builder, "a loop", counter, equation):
        step = builder.temporary(4)
        builder.steps.append(Count(step, counter))
        build_body(builder, jaxpr, [step, *held, *carried], carried)
    builder.steps.append(Loop(counter, FrameRegister("bound"), bound, params["reverse"], body, token, label="repeat"))


def build_while(builder: ProgramBuilder, block: JaxprValues, position: int, equation: Equation) -> None:
    params = equation.params
    condition, body = params["cond_jaxpr"], params["body_jaxpr"]
    first, second = params["cond_nconsts"], params["body_nconsts"]
    held_condition = [builder.atom(block, a) for a in equation.invars[:first]]
    held = [builder.atom(block, a) for a in equation.invars[first : first + second]]
    operands = equation.invars[first + second :]
    carried = carries(builder, block, position, operands, equation.outvars, [*held_condition, *held])
    finish(builder, block, equation.outvars, carried)
    token = object()
    counter = FrameRegister("counter") if CHECK in equation.effects else None
    with collect_steps(builder, token) as test, enclosing_loop(builder, "while", counter, equation):
        inner = JaxprValues(condition)
        for v, slot in zip(condition.invars, [*held_condition, *carried], strict=True):
            inner.put(v, slot)
        builder.fill(inner)
        predicate = builder.atom(inner, condition.outvars[0])
    with collect_steps(builder, token) as inner_steps, enclosing_loop(builder, "while", counter, equation):
        build_body(builder, body, [*held, *carried], carried)
    builder.steps.append(While(test, predicate, FrameRegister("test"), inner_steps, token, counter))


def build_cond(builder: ProgramBuilder, block: JaxprValues, position: int, equation: Equation) -> None:
    index, *operands = equation.invars
    which = builder.atom(block, index)
    slots = [builder.atom(block, a) for a in operands]
    results = [builder.allocate(block, v, position) for v in equation.outvars]
    branches = []
    for branch in equation.params["branches"]:
        with collect_steps(builder) as steps:
            inner = JaxprValues(branch)
            for v, slot in zip(branch.invars, slots, strict=True):
                inner.put(v, slot)
            builder.fill(inner, results)
            builder.copy_results(inner, results)
        branches.append(steps)
    dtype = np.dtype(dtypes.storage(index.aval.dtype))  # type: ignore[attr-defined]
    builder.steps.append(Branch(which, dtype, FrameRegister("choice"), branches))


# Functions that build the steps of each primitive with sub-jaxprs.
BUILDERS: dict[Any, Callable[[ProgramBuilder, JaxprValues, int, Equation], None]] = {
    cond: build_cond,
    repeat: build_repeat,
    scan: build_scan,
    while_: build_while,
}
