"""`repeat`: a loop whose number of steps is known only at run time. Reverse mode of `while` uses it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from weft.ir.body_map import BodyMap
from weft.ir.higher_order import Loop, check_operands
from weft.ir.interpreter import replay, run
from weft.ir.jaxpr import Jaxpr, drop_dead
from weft.ir.partial_eval import PartialJaxpr, partial_eval
from weft.ir.primitive import Axis, Params, primitive
from weft.ir.rules.differentiation import Split
from weft.ir.tangents import accumulate, instantiate
from weft.ir.types import TapeType, Type, array_type, get_aval
from weft.ir.varying import manual_state, varying_type
from weft.ir.zeros import Linear, Zero
from weft.primitives.control.call import jit as jit_primitive
from weft.primitives.control.cond import select_lanes
from weft.primitives.control.lanes import run_lanes, with_flag
from weft.primitives.control.loop_bodies import fixpoint, live_carry, merge_by_mask, others, pick, rearrange
from weft.primitives.control.masked import can_mask, mask_jaxpr
from weft.primitives.control.tape import batch_value, tape_new, tape_read, tape_write
from weft.primitives.elementwise.compare import lt
from weft.primitives.movement.shape import move_axis
from weft.primitives.reduction.reduce_extrema import reduce_max
from weft.sharding.manual import ManualAxisType
from weft.trace.closed import stage_subjaxpr

COUNT = array_type((), np.dtype(np.int32))


@primitive
class repeat(Loop):
    """Apply `jaxpr` to (step, constants, carry) for every step in range(count), in order or backwards.

    Operands: count, `nconsts` constants, carry. Step and count are int32.
    """

    def type(self, count: Type, *types: Type, jaxpr: Jaxpr, nconsts: int, reverse: bool) -> list[Type]:
        check_operands(self.name, [COUNT, *types], jaxpr.in_avals)
        return [varying_type(t, manual_state(count).varying) for t in jaxpr.out_avals]

    def operand_states(self, types: Sequence[Type], params: Params) -> Sequence[ManualAxisType]:
        return [manual_state(types[0]), *map(manual_state, params["jaxpr"].in_avals[1:])]

    def body_map(self, params: Params) -> BodyMap:
        body, consts = params["jaxpr"], params["nconsts"]
        arguments = tuple(i or None for i in range(len(body.invars)))
        results = tuple(((0, i, False),) for i in range(len(body.outvars)))
        return BodyMap((body,), (arguments,), results, tuple((0, 1 + consts + i, i) for i in range(len(results))))

    def effects(self, types: Sequence[Type], params: Params) -> frozenset[Any]:
        result: frozenset[Any] = params["jaxpr"].effects
        return result

    def eval(self, count: Any, *arrays: Any, jaxpr: Jaxpr, nconsts: int, reverse: bool) -> list[Any]:
        consts, carry = arrays[:nconsts], arrays[nconsts:]
        steps = range(int(count))
        for step in reversed(steps) if reverse else steps:
            carry = tuple(run(jaxpr, (np.asarray(step, np.int32), *consts, *carry)))
        return list(carry)

    def jvp_through(
        self,
        through: Any,
        primals: Sequence[Any],
        tangents: Sequence[Any],
        *,
        jaxpr: Jaxpr,
        nconsts: int,
        reverse: bool,
    ) -> Any:
        count, *rest = primals
        const_tangents, carry_tangents = tangents[1 : 1 + nconsts], tangents[1 + nconsts :]
        const_nonzero = [type(t) is not Zero for t in const_tangents]
        pushed, nonzero = fixpoint(
            lambda mask: through(jaxpr, [False, *const_nonzero, *mask], mask),
            [type(t) is not Zero for t in carry_tangents],
        )
        k, c, dk, dc = nconsts, len(carry_tangents), sum(const_nonzero), sum(nonzero)
        first = 1 + k + c
        order = [*range(1 + k), *range(first, first + dk), *range(1 + k, first), *range(first + dk, first + dk + dc)]
        results = repeat(
            count,
            *rest[:k],
            *pick(const_tangents, const_nonzero),
            *rest[k:],
            *(instantiate(t) for t in pick(carry_tangents, nonzero)),
            jaxpr=rearrange(pushed, order),
            nconsts=k + dk,
            reverse=reverse,
        )
        missing = [Zero.of(v.aval) for v in others(jaxpr.outvars, nonzero)]
        return results[:c], merge_by_mask(nonzero, results[c:], missing)

    def batch_through(
        self,
        through: Any,
        axis: Axis,
        args: Sequence[Any],
        dims: Sequence[int | None],
        *,
        jaxpr: Jaxpr,
        nconsts: int,
        reverse: bool,
    ) -> Any:
        operands = [a if d is None else move_axis(a, d, 0) for a, d in zip(args, dims, strict=True)]
        count, consts, carry = operands[0], operands[1 : 1 + nconsts], operands[1 + nconsts :]
        const_batched = [d is not None for d in dims[1 : 1 + nconsts]]
        differs = dims[0] is not None
        start = [d is not None or differs for d in dims[1 + nconsts :]]
        body, batched = fixpoint(lambda mask: through(jaxpr, axis, [False, *const_batched, *mask], mask), start)
        carry = [
            batch_value(x, None, axis) if b and d is None else x
            for x, b, d in zip(carry, batched, dims[1 + nconsts :], strict=True)
        ]
        out_dims = [0 if b else None for b in batched]
        if not differs:
            return repeat(count, *consts, *carry, jaxpr=body, nconsts=nconsts, reverse=reverse), out_dims

        def step_those_left(step: Any, counts: Any, *values: Any) -> list[Any]:
            state = values[nconsts:]
            left = lt(step, counts)
            # What an iteration does for elements that are done is thrown away.
            after = run_lanes(lane_body, axis, left, [step, *values], [False, *const_batched, *batched])
            return [
                new if isinstance(get_aval(new), TapeType) else select_lanes(left, [old, new])
                for new, old in zip(after, state, strict=True)
            ]

        lane_body = mask_jaxpr(jaxpr) if can_mask(jaxpr) else with_flag(jaxpr)
        types = body.in_avals[1:]
        body_left = stage_subjaxpr(step_those_left, [COUNT, get_aval(count), *types], name=jaxpr.name)
        longest = reduce_max(count, axes=(0,))
        return repeat(longest, count, *consts, *carry, jaxpr=body_left, nconsts=nconsts + 1, reverse=reverse), out_dims

    def partial_eval(self, unknown: Sequence[bool], types: Sequence[Type], params: Params) -> Split | None:
        if unknown[0]:
            return None
        jaxpr, nconsts, reverse = params["jaxpr"], params["nconsts"], params["reverse"]
        const_unknown = tuple(unknown[1 : 1 + nconsts])

        def split_body(mask: Any) -> Any:
            split = partial_eval(jaxpr, [False, *const_unknown, *mask], instantiate=mask)
            return split, split.unknown_out

        split, carry_mask = fixpoint(split_body, unknown[1 + nconsts :])
        split = split.varying_along(manual_state(types[0]).varying)
        known_consts = [1 + i for i, u in enumerate(const_unknown) if not u]
        carried = len(carry_mask) - sum(carry_mask)
        invariant = invariant_residuals(split, carried, 1 + len(known_consts))  # argument 0 is the step
        taped = [k for k in range(len(split.residual_types)) if k not in invariant]
        held = [k for k in invariant if invariant[k] > 0]
        forward = forward_repeat(split, taped, carried, len(known_consts), params)
        waiting = linear_body(split, taped, held, jaxpr.name)
        first_carry = 1 + nconsts
        return Split(
            known=(jit_primitive, {"name": "repeat_forward", "jaxpr": forward}),
            known_in=(0, *known_consts, *(first_carry + i for i, u in enumerate(carry_mask) if not u)),
            unknown=(
                repeat,
                {"jaxpr": waiting, "nconsts": len(taped) + len(held) + sum(const_unknown), "reverse": reverse},
            ),
            unknown_in=(
                0,
                *(~n for n in range(len(taped))),
                *(known_consts[invariant[k] - 1] for k in held),
                *(1 + i for i, u in enumerate(const_unknown) if u),
                *(first_carry + i for i, u in enumerate(carry_mask) if u),
            ),
            unknown_out=carry_mask,
            residual_types=tuple(TapeType(split.residual_types[k]) for k in taped),
        )

    def transpose_through(
        self, through: Any, cotangents: Sequence[Any], args: Sequence[Any], *, jaxpr: Jaxpr, nconsts: int, reverse: bool
    ) -> Any:
        count, consts, carry = args[0], args[1 : 1 + nconsts], args[1 + nconsts :]
        linear_const = [type(a) is Linear for a in consts]
        # Every part of the carry is linear, or is passed along unchanged by a linear function; treat it as linear.
        body, _ = through(jaxpr, [False, *linear_const, *([True] * len(carry))], [True] * len(carry), True)
        held = others(consts, linear_const)
        sums = [a.aval.cotangent() for a in pick(consts, linear_const)]
        carry_types = [v.aval.cotangent() for v in jaxpr.outvars]
        h, s = len(held), len(sums)

        def backward(step: Any, *values: Any) -> list[Any]:
            known, totals, incoming = values[:h], values[h : h + s], values[h + s :]
            outgoing = replay(body, step, *known, *incoming)
            return [*(accumulate(t, o) for t, o in zip(totals, outgoing[:s], strict=True)), *outgoing[s:]]

        backward_jaxpr = stage_subjaxpr(
            backward, [COUNT, *(get_aval(a) for a in held), *sums, *carry_types], name=jaxpr.name
        )
        start = [instantiate(Zero(t)) for t in sums]
        results = repeat(
            count,
            *held,
            *start,
            *(instantiate(c) for c in cotangents),
            jaxpr=backward_jaxpr,
            nconsts=h,
            reverse=not reverse,
        )
        const_cotangents = merge_by_mask(linear_const, results[:s], [None] * h)
        return [None, *const_cotangents, *results[s:]]

    def live_operands(self, live_results: Sequence[bool], params: Params) -> Any:
        jaxpr, nconsts = params["jaxpr"], params["nconsts"]
        used, carry = live_carry(jaxpr, 1 + nconsts, live_results)
        if not any(carry):
            return None
        keep = [True, *used[1:], *carry]  # of the body the first argument is the step, and of the loop their number
        changed = {**params, "jaxpr": drop_dead(jaxpr, carry, keep)[0], "nconsts": sum(used[1:])}
        return keep, changed, list(carry)

    def samples(self) -> Any:
        return iter(())  # has a sub-jaxpr; the composition tests cover it


def invariant_residuals(split: PartialJaxpr, known_results: int, count: int) -> dict[int, int]:
    """Map residuals that are among the first `count` arguments of the known body, the same in all iterations (or the
    step), to the index of the argument: they need no tape."""
    argument_index = {v: i for i, v in enumerate(split.known.invars[:count])}
    residuals = split.known.outvars[known_results:]
    return {k: argument_index[v] for k, v in enumerate(residuals) if v in argument_index}


def forward_repeat(split: PartialJaxpr, taped: Sequence[int], carried: int, consts: int, params: Params) -> Jaxpr:
    """Return the known part of a `repeat`: (count, known constants, known carry) -> (known carry, tapes)."""
    name, types = params["jaxpr"].name, split.known.in_avals
    elements = [split.residual_types[k] for k in taped]

    def known_body(step: Any, *values: Any) -> list[Any]:
        results = replay(split.known, step, *values[: consts + carried])
        tapes = values[consts + carried :]
        return [
            *results[:carried],
            *(tape_write(t, step, results[carried + k]) for t, k in zip(tapes, taped, strict=True)),
        ]

    def forward(count: Any, *values: Any) -> list[Any]:
        body = stage_subjaxpr(known_body, [*types, *map(TapeType, elements)], name=name)
        tapes = [tape_new(element=t) for t in elements]
        result: list[Any] = repeat(count, *values, *tapes, jaxpr=body, nconsts=consts, reverse=params["reverse"])
        return result

    return stage_subjaxpr(forward, types, name="repeat_forward")


def linear_body(split: PartialJaxpr, taped: Sequence[int], held: Sequence[int], name: str) -> Jaxpr:
    """Return the body of the unknown part: (step, tapes, held residuals, unknown constants, unknown carry) -> unknown
    carry. Residuals that are neither on a tape nor held are the step."""
    types = split.residual_types
    arguments = [COUNT, *(TapeType(types[k]) for k in taped), *(types[k] for k in held)]
    first = len(taped) + len(held)

    def body(step: Any, *values: Any) -> list[Any]:
        residuals = {k: tape_read(t, step) for k, t in zip(taped, values, strict=False)}
        residuals.update(zip(held, values[len(taped) : first], strict=True))
        return replay(split.unknown, *(residuals.get(k, step) for k in range(len(types))), *values[first:])

    return stage_subjaxpr(body, [*arguments, *split.unknown.in_avals[len(types) :]], name=name)
