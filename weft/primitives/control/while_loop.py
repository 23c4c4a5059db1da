"""`while`: a loop that runs as long as a condition holds. Reverse mode works without a bound on the number of steps.

Partial evaluation splits a loop into a forward loop that counts its steps and writes the residuals of the linear part
to tapes, and a `repeat` of the linear part over that count, which reads the tapes; the transpose of a `repeat` is a
`repeat` backwards.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from weft.ir.body_map import BodyMap
from weft.ir.higher_order import Loop, check_operands
from weft.ir.interpreter import replay, run
from weft.ir.jaxpr import Jaxpr, drop_dead
from weft.ir.keys import KeysThrough
from weft.ir.partial_eval import PartialJaxpr, partial_eval, remat_split_jaxpr
from weft.ir.primitive import Axis, Params, primitive
from weft.ir.rules.differentiation import RematSplit, Split
from weft.ir.tangents import instantiate
from weft.ir.types import TapeType, Type
from weft.ir.unplaced import varying_along
from weft.ir.varying import manual_state, varying_type
from weft.ir.zeros import Zero
from weft.primitives.control.call import jit as jit_primitive
from weft.primitives.control.cond import refuse_ordered_effects, select_lanes
from weft.primitives.control.lanes import run_lanes, with_flag
from weft.primitives.control.loop_bodies import (
    find_unused,
    fixpoint,
    live_carry,
    merge_by_mask,
    others,
    pick,
    rearrange,
    with_extra_arguments,
)
from weft.primitives.control.masked import can_mask, mask_jaxpr
from weft.primitives.control.repeat import COUNT, invariant_residuals, linear_body, repeat
from weft.primitives.control.tape import batch_value, tape_new, tape_read, tape_write, zeros
from weft.primitives.elementwise.arithmetic import add
from weft.primitives.movement.shape import move_axis
from weft.primitives.reduction.reduce_other import reduce_or
from weft.sharding.manual import ManualAxisType
from weft.trace.closed import stage_subjaxpr


@primitive
class while_(Loop):
    """Apply `body_jaxpr` to the carry while `cond_jaxpr` holds. Operands: constants of cond, constants of body,
    carry."""

    name = "while"

    def type(
        self, *types: Type, cond_jaxpr: Jaxpr, cond_nconsts: int, body_jaxpr: Jaxpr, body_nconsts: int
    ) -> list[Type]:
        cond_consts, body_consts, carry = parts(types, cond_nconsts, body_nconsts)
        check_operands(self.name, [*cond_consts, *carry], cond_jaxpr.in_avals)
        check_operands(self.name, [*body_consts, *carry], body_jaxpr.in_avals)
        decides = manual_state(cond_jaxpr.outvars[0].aval).varying
        return [varying_type(t, decides) for t in body_jaxpr.out_avals]

    def operand_states(self, types: Sequence[Type], params: Params) -> Sequence[ManualAxisType]:
        cond_consts = params["cond_jaxpr"].in_avals[: params["cond_nconsts"]]
        return list(map(manual_state, [*cond_consts, *params["body_jaxpr"].in_avals]))

    def body_map(self, params: Params) -> BodyMap:
        condition, body = params["cond_jaxpr"], params["body_jaxpr"]
        first, second = params["cond_nconsts"], params["body_nconsts"]
        count = len(body.outvars)
        carry = range(first + second, first + second + count)
        arguments = ((*range(first), *carry), (*range(first, first + second), *carry))
        results = tuple(((1, i, False),) for i in range(count))
        return BodyMap((condition, body), arguments, results, tuple((1, second + i, i) for i in range(count)), (0,))

    def with_bodies(self, bodies: Sequence[Any], params: Params) -> Params:
        return {**params, "cond_jaxpr": bodies[0], "body_jaxpr": bodies[1]}

    def effects(self, types: Sequence[Type], params: Params) -> frozenset[Any]:
        result: frozenset[Any] = params["cond_jaxpr"].effects | params["body_jaxpr"].effects
        return result

    def eval(
        self, *arrays: Any, cond_jaxpr: Jaxpr, cond_nconsts: int, body_jaxpr: Jaxpr, body_nconsts: int
    ) -> list[Any]:
        cond_consts, body_consts, carry = parts(arrays, cond_nconsts, body_nconsts)
        while run(cond_jaxpr, (*cond_consts, *carry))[0]:
            carry = run(body_jaxpr, (*body_consts, *carry))
        return list(carry)

    def jvp_through(
        self,
        through: Any,
        primals: Sequence[Any],
        tangents: Sequence[Any],
        *,
        cond_jaxpr: Jaxpr,
        cond_nconsts: int,
        body_jaxpr: Jaxpr,
        body_nconsts: int,
    ) -> Any:
        cond_consts, body_consts, carry = parts(primals, cond_nconsts, body_nconsts)
        _, const_tangents, carry_tangents = parts(tangents, cond_nconsts, body_nconsts)
        const_nonzero = [type(t) is not Zero for t in const_tangents]
        pushed, nonzero = fixpoint(
            lambda mask: through(body_jaxpr, [*const_nonzero, *mask], mask),
            [type(t) is not Zero for t in carry_tangents],
        )
        # jvp returns (constants, carry, constant tangents, carry tangents); the loop wants constants together.
        k, c, dk = body_nconsts, len(carry), sum(const_nonzero)
        order = [*range(k), *range(k + c, k + c + dk), *range(k, k + c), *range(k + c + dk, k + c + dk + sum(nonzero))]
        tangent_types = [t.aval.tangent() for t in pick(body_jaxpr.outvars, nonzero)]
        results = while_(
            *cond_consts,
            *body_consts,
            *pick(const_tangents, const_nonzero),
            *carry,
            *(instantiate(t) for t in pick(carry_tangents, nonzero)),
            cond_jaxpr=with_extra_arguments(cond_jaxpr, tangent_types),
            cond_nconsts=cond_nconsts,
            body_jaxpr=rearrange(pushed, order),
            body_nconsts=k + dk,
        )
        zeros = [Zero.of(v.aval) for v in others(body_jaxpr.outvars, nonzero)]
        return results[:c], merge_by_mask(nonzero, results[c:], zeros)

    def batch_through(
        self,
        through: Any,
        axis: Axis,
        args: Sequence[Any],
        dims: Sequence[int | None],
        *,
        cond_jaxpr: Jaxpr,
        cond_nconsts: int,
        body_jaxpr: Jaxpr,
        body_nconsts: int,
    ) -> Any:
        operands = [a if d is None else move_axis(a, d, 0) for a, d in zip(args, dims, strict=True)]
        cond_consts, body_consts, carry = parts(operands, cond_nconsts, body_nconsts)
        cond_batched, const_batched, carry_batched = parts([d is not None for d in dims], cond_nconsts, body_nconsts)

        batched, differs = find_batched_carry(
            through, axis, cond_jaxpr, body_jaxpr, cond_batched, const_batched, carry_batched
        )
        condition, _ = through(cond_jaxpr, axis, [*cond_batched, *batched], differs)
        body, _ = through(body_jaxpr, axis, [*const_batched, *batched], batched)
        carry = [
            batch_value(x, None, axis) if b and not d else x
            for x, b, d in zip(carry, batched, carry_batched, strict=True)
        ]
        carry_dims = [0 if b else None for b in batched]
        if not differs:
            results = while_(
                *cond_consts, *body_consts, *carry,
                cond_jaxpr=condition, cond_nconsts=cond_nconsts, body_jaxpr=body, body_nconsts=body_nconsts,
            )  # fmt: skip
            return results, carry_dims
        refuse_ordered_effects(cond_jaxpr.effects | body_jaxpr.effects)

        def any_left(*values: Any) -> list[Any]:
            return [reduce_or(replay(condition, *values)[0], axes=(0,))]

        def step_those_left(*values: Any) -> list[Any]:
            conds, consts, state = parts(values, cond_nconsts, body_nconsts)
            (left,) = replay(condition, *conds, *state)
            # What an iteration does for elements that are done is thrown away.
            after = iter(run_lanes(lane_body, axis, left, [*consts, *state], [*const_batched, *batched]))
            return [keep(left, next(after), x) if b else x for x, b in zip(state, batched, strict=True)]

        changing = body_jaxpr.replace(outvars=pick(body_jaxpr.outvars, batched))
        lane_body = mask_jaxpr(changing) if can_mask(changing) else with_flag(changing)

        results = while_(
            *cond_consts,
            *cond_consts,
            *body_consts,
            *carry,
            cond_jaxpr=stage_subjaxpr(any_left, condition.in_avals, name=cond_jaxpr.name),
            cond_nconsts=cond_nconsts,
            body_jaxpr=stage_subjaxpr(
                step_those_left,
                [*condition.in_avals[:cond_nconsts], *body.in_avals],
                name=body_jaxpr.name,
            ),
            body_nconsts=cond_nconsts + body_nconsts,
        )
        return results, carry_dims

    def partial_eval(self, unknown: Sequence[bool], types: Sequence[Type], params: Params) -> Split | None:
        cond_jaxpr, body_jaxpr = params["cond_jaxpr"], params["body_jaxpr"]
        cond_nconsts, body_nconsts = params["cond_nconsts"], params["body_nconsts"]
        cond_unknown, const_unknown, carry_unknown = parts(unknown, cond_nconsts, body_nconsts)

        def split_body(mask: Any) -> Any:
            split = partial_eval(body_jaxpr, [*const_unknown, *mask], instantiate=mask)
            return split, split.unknown_out

        split, carry_mask = fixpoint(split_body, carry_unknown)
        split = split.varying_along(manual_state(cond_jaxpr.outvars[0].aval).varying)
        ignored = find_unused(cond_jaxpr)
        if any(u and v not in ignored for u, v in zip([*cond_unknown, *carry_mask], cond_jaxpr.invars, strict=True)):
            return None  # whether to go on depends on something unknown
        tape_types = split.residual_types
        carried = len(carry_mask) - sum(carry_mask)
        invariant = invariant_residuals(split, carried, body_nconsts - sum(const_unknown))
        taped = [k for k in range(len(tape_types)) if k not in invariant]
        known_consts = [cond_nconsts + i for i, u in enumerate(const_unknown) if not u]
        first_carry = cond_nconsts + body_nconsts
        known_carry = [first_carry + i for i, u in enumerate(carry_mask) if not u]
        cond_in = list(range(cond_nconsts))
        forward = forward_loop(params, split, carry_mask, taped, carried, len(known_consts))
        waiting = linear_body(split, taped, list(invariant), split.unknown.name)
        return Split(
            known=(jit_primitive, {"name": "while_forward", "jaxpr": forward}),
            known_in=(*cond_in, *known_consts, *known_carry),
            unknown=(repeat, {"jaxpr": waiting, "nconsts": len(tape_types) + sum(const_unknown), "reverse": False}),
            # residuals of the forward loop: the count, then the tapes
            unknown_in=(
                ~0,
                *(~(1 + n) for n in range(len(taped))),
                *(known_consts[i] for i in invariant.values()),
                *(cond_nconsts + i for i, u in enumerate(const_unknown) if u),
                *(first_carry + i for i, u in enumerate(carry_mask) if u),
            ),
            unknown_out=carry_mask,
            residual_types=tuple(forward.out_avals[carried:]),
        )

    def remat_split(self, types: Sequence[Type], params: Params, saveable: Any) -> RematSplit | None:
        """Split the body. Saved values of each iteration are written to tapes; the second loop counts again, to read
        them."""
        cond_jaxpr, body_jaxpr = params["cond_jaxpr"], params["body_jaxpr"]
        cond_nconsts, body_nconsts = params["cond_nconsts"], params["body_nconsts"]
        found = remat_split_jaxpr(body_jaxpr, saveable)
        if found is None:
            return None
        first, second, stored = found
        decides = manual_state(cond_jaxpr.outvars[0].aval).varying
        first, second = varying_along(first, decides), varying_along(second, decides)
        carry_types = body_jaxpr.out_avals
        size, tapes = len(carry_types), [TapeType(varying_type(v.aval, decides)) for v in stored]

        def writing(*values: Any) -> list[Any]:
            inputs, written, count = values[: body_nconsts + size], values[body_nconsts + size : -1], values[-1]
            results = replay(first, *inputs)
            tapes_out = [tape_write(t, count, r) for t, r in zip(written, results[size:], strict=True)]
            return [*results[:size], *tapes_out, add(count, ONE)]

        def loop(*values: Any) -> list[Any]:
            result: list[Any] = while_(
                *values, *(tape_new(element=t.element) for t in tapes), ZERO,
                cond_jaxpr=with_extra_arguments(cond_jaxpr, [*tapes, COUNT]), cond_nconsts=cond_nconsts,
                body_jaxpr=stage_subjaxpr(writing, [*body_jaxpr.in_avals, *tapes, COUNT], name=body_jaxpr.name),
                body_nconsts=body_nconsts,
            )  # fmt: skip
            return result

        def reading(*values: Any) -> list[Any]:
            consts, state, count = values[:body_nconsts], values[body_nconsts + len(tapes) : -1], values[-1]
            entries = [tape_read(t, count) for t in values[body_nconsts : body_nconsts + len(tapes)]]
            return [*replay(second, *consts, *state, *entries), add(count, ONE)]

        def again(*values: Any) -> list[Any]:
            result: list[Any] = while_(
                *values, ZERO,
                cond_jaxpr=with_extra_arguments(cond_jaxpr, [COUNT]), cond_nconsts=cond_nconsts,
                body_jaxpr=stage_subjaxpr(
                    reading, [*body_jaxpr.in_avals[:body_nconsts], *tapes, *carry_types, COUNT], name=body_jaxpr.name
                ),
                body_nconsts=body_nconsts + len(tapes),
            )[:size]  # fmt: skip
            return result

        before = cond_nconsts + body_nconsts
        operands = [*types[:before], *tapes, *types[before:]]
        name = {"name": "while_stored"}
        stores = stage_subjaxpr(loop, types, name="while_stored")
        return RematSplit(
            first=(jit_primitive, {**name, "jaxpr": stores}),
            first_types=tuple(stores.out_avals),
            stored=tuple(range(size, size + len(tapes))),
            second=(jit_primitive, {**name, "jaxpr": stage_subjaxpr(again, operands, name="while_stored")}),
            second_in=(*range(before), *(~k for k in range(len(tapes))), *range(before, len(types))),
        )

    def live_operands(self, live_results: Sequence[bool], params: Params) -> Any:
        """Keep the parts of the carry that a result, the condition, an effect or another kept part needs."""
        condition, body, conds, consts = (
            params[k] for k in ("cond_jaxpr", "body_jaxpr", "cond_nconsts", "body_nconsts")
        )
        _, read = drop_dead(condition, [True], False)
        start = [live or decides for live, decides in zip(live_results, read[conds:], strict=True)]
        used, carry = live_carry(body, consts, start)
        if not any(carry):
            return None
        keep_condition, keep_body = [*read[:conds], *carry], [*used, *carry]
        changed = {
            "cond_jaxpr": drop_dead(condition, [True], keep_condition)[0],
            "cond_nconsts": sum(read[:conds]),
            "body_jaxpr": drop_dead(body, carry, keep_body)[0],
            "body_nconsts": sum(used),
        }
        return [*read[:conds], *keep_body], changed, list(carry)

    def keys_through(self, through: KeysThrough, operands: Sequence[Any], params: Params) -> Sequence[Any] | None:
        """Follow keys as `scan` does; the condition runs before each iteration."""
        conds, bodies = params["cond_nconsts"], params["body_nconsts"]
        carry = list(operands[conds + bodies :])
        for _ in range(2):
            through(params["cond_jaxpr"], (*operands[:conds], *carry))
            carry = list(through(params["body_jaxpr"], (*operands[conds : conds + bodies], *carry)))
        return carry

    def samples(self) -> Any:
        return iter(())  # has sub-jaxprs; the composition tests cover it


def parts(values: Sequence[Any], cond_nconsts: int, body_nconsts: int) -> tuple[list[Any], list[Any], list[Any]]:
    """Split values into constants of the condition, constants of the body, and carry."""
    both = cond_nconsts + body_nconsts
    return list(values[:cond_nconsts]), list(values[cond_nconsts:both]), list(values[both:])


def keep(left: Any, new: Any, old: Any) -> Any:
    """Select the new value for elements still running. A tape is never restored: entries that finished elements write
    are not read."""
    return new if isinstance(new.aval, TapeType) else select_lanes(left, [old, new])


def forward_loop(
    params: Params,
    split: PartialJaxpr,
    carry_mask: Sequence[bool],
    taped: Sequence[int],
    carried: int,
    const_count: int,
) -> Jaxpr:
    """Return the known part: the loop over the known carry, a counter and the tapes; results: known carry, count,
    tapes."""
    cond_jaxpr, cond_nconsts = params["cond_jaxpr"], params["cond_nconsts"]
    known_types, tape_types = split.known.in_avals, [split.residual_types[k] for k in taped]
    state_types = known_types[const_count:]
    extra = [COUNT, *(TapeType(t) for t in tape_types)]

    def body(*values: Any) -> list[Any]:
        consts, state, count = (
            values[:const_count],
            values[const_count : const_count + carried],
            values[const_count + carried],
        )
        tapes = values[const_count + carried + 1 :]
        results = replay(split.known, *consts, *state)
        new, residuals = results[:carried], results[carried:]
        written = [tape_write(t, count, residuals[k]) for t, k in zip(tapes, taped, strict=True)]
        return [*new, add(count, ONE), *written]

    def condition(*values: Any) -> list[Any]:
        # Parts of the carry that are unknown do not matter to the condition, but are among its arguments.
        state = iter(values[cond_nconsts : cond_nconsts + carried])
        full = [
            placeholder(v.aval) if u else next(state)
            for v, u in zip(cond_jaxpr.invars[cond_nconsts:], carry_mask, strict=True)
        ]
        return replay(cond_jaxpr, *values[:cond_nconsts], *full)

    def forward(*values: Any) -> list[Any]:
        tapes = [tape_new(element=t) for t in tape_types]
        result: list[Any] = while_(
            *values,
            ZERO,
            *tapes,
            cond_jaxpr=stage_subjaxpr(
                condition, [*cond_jaxpr.in_avals[:cond_nconsts], *state_types, *extra], name=cond_jaxpr.name
            ),
            cond_nconsts=cond_nconsts,
            body_jaxpr=stage_subjaxpr(body, [*known_types, *extra], name=params["body_jaxpr"].name),
            body_nconsts=const_count,
        )
        return result

    return stage_subjaxpr(forward, [*cond_jaxpr.in_avals[:cond_nconsts], *known_types], name="while_forward")


def placeholder(aval: Type) -> Any:
    return zeros(aval.strong())


ZERO = np.zeros((), np.int32)
ONE = np.ones((), np.int32)


def find_batched_carry(
    through: Any,
    axis: Axis,
    cond_jaxpr: Jaxpr,
    body_jaxpr: Jaxpr,
    cond_batched: Sequence[bool],
    const_batched: Sequence[bool],
    carry_batched: Sequence[bool],
) -> tuple[tuple[bool, ...], bool]:
    """Return which parts of the carry of a batched loop differ between elements, and whether its condition does: then
    elements stop at different times, and every part that changes becomes their own."""
    # Values that the body passes along are the same for all elements, whatever the number of their iterations.
    passed = zip(body_jaxpr.outvars, body_jaxpr.invars[len(const_batched) :], strict=True)
    own = [result is not argument for result, argument in passed]

    def with_own(mask: Sequence[bool]) -> tuple[tuple[bool, ...], bool]:
        _, (differs,) = through(cond_jaxpr, axis, [*cond_batched, *mask])
        return tuple(m or (differs and o) for m, o in zip(mask, own, strict=True)), differs

    def step(mask: Any) -> Any:
        mask, _ = with_own(mask)
        return None, through(body_jaxpr, axis, [*const_batched, *mask], mask)[1]

    _, found = fixpoint(step, carry_batched)
    return with_own(found)
