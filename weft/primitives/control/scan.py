"""`scan`: a loop over the leading axis of arrays, with a carry, and all of its rules."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from weft.base import dtypes
from weft.ir.body_map import BodyMap
from weft.ir.higher_order import Loop, check_operands
from weft.ir.interpreter import replay, run
from weft.ir.jaxpr import Equation, Jaxpr, drop_dead
from weft.ir.keys import KeysThrough
from weft.ir.partial_eval import partial_eval, remat_split_jaxpr
from weft.ir.primitive import Axis, Params, primitive
from weft.ir.rules.differentiation import RematSplit, Split
from weft.ir.tangents import accumulate, instantiate
from weft.ir.types import ArrayType, TapeType, Type, get_aval
from weft.ir.varying import manual_state
from weft.ir.zeros import Linear, Zero
from weft.primitives.control.loop_bodies import fixpoint, merge_by_mask, others, pick, rearrange
from weft.primitives.control.tape import Tape, batch_value
from weft.primitives.movement.shape import move_axis
from weft.sharding.manual import ManualAxisType
from weft.trace.closed import stage_subjaxpr
from weft.trace.ref_bodies import LoopRefs
from weft.trace.refs import get_touched_refs, ref_values, write_back


@primitive
class scan(Loop):
    """Apply `jaxpr` to (constants, carry, one slice of each xs) for every index, to (carry, one slice of each ys).

    Operands: `num_consts` constants, `num_carry` carry, then xs, all of leading size `length`. Results: carry, stacked
    ys.
    """

    def type(self, *types: Type, jaxpr: Jaxpr, length: Any, num_carry: int, **params: Any) -> list[Type]:
        consts, carry, xs = sections(types, params["num_consts"], num_carry)
        wanted = jaxpr.in_avals
        first = len(consts) + len(carry)
        check_operands(
            self.name, [*consts, *carry, *xs], [*wanted[:first], *(stack_type(t, length) for t in wanted[first:])]
        )
        outs = jaxpr.out_avals
        return [*outs[:num_carry], *(stack_type(t, length) for t in outs[num_carry:])]

    def operand_states(self, types: Sequence[Type], params: Params) -> Sequence[ManualAxisType]:
        return list(map(manual_state, params["jaxpr"].in_avals))

    def body_map(self, params: Params) -> BodyMap:
        body, consts, carry = params["jaxpr"], params["num_consts"], params["num_carry"]
        arguments = tuple(i if i < consts + carry else ~i for i in range(len(body.invars)))
        results = tuple(((0, i, i >= carry),) for i in range(len(body.outvars)))
        return BodyMap((body,), (arguments,), results, tuple((0, consts + i, i) for i in range(carry)))

    def effects(self, types: Sequence[Type], params: Params) -> frozenset[Any]:
        result: frozenset[Any] = params["jaxpr"].effects
        return result

    def eval(
        self, *arrays: Any, jaxpr: Jaxpr, length: int, reverse: bool, unroll: int, num_consts: int, num_carry: int
    ) -> list[Any]:
        consts, carry, xs = sections(arrays, num_consts, num_carry)
        types: list[Any] = jaxpr.out_avals[num_carry:]
        ys: list[Any] = [
            Tape(t) if is_tape(t) else np.empty((length, *t.shape), dtypes.storage(t.dtype)) for t in types
        ]
        for step in reversed(range(length)) if reverse else range(length):
            results = run(jaxpr, (*consts, *carry, *(x.read(step) if isinstance(x, Tape) else x[step] for x in xs)))
            carry = results[:num_carry]
            for i, value in enumerate(results[num_carry:]):
                if isinstance(value, Tape):
                    ys[i] = ys[i].write(step, value)
                else:
                    ys[i][step] = value
        return [*carry, *ys]

    def jvp_through(
        self,
        through: Any,
        primals: Sequence[Any],
        tangents: Sequence[Any],
        *,
        jaxpr: Jaxpr,
        num_consts: int,
        num_carry: int,
        **params: Any,
    ) -> Any:
        consts, carry, xs = sections(primals, num_consts, num_carry)
        dconsts, dcarry, dxs = sections(tangents, num_consts, num_carry)
        const_nonzero, xs_nonzero = nonzero_mask(dconsts), nonzero_mask(dxs)

        def step(mask: Any) -> Any:
            pushed, nonzero_out = through(
                jaxpr, [*const_nonzero, *mask, *xs_nonzero], [*mask, *[False] * (len(jaxpr.outvars) - num_carry)]
            )
            return (pushed, nonzero_out), nonzero_out[:num_carry]

        (pushed, nonzero_out), carry_nonzero = fixpoint(step, nonzero_mask(dcarry))
        ys_nonzero = nonzero_out[num_carry:]
        # jvp orders arguments (consts, carry, xs, their tangents); the loop wants each kind together.
        n, k, c = len(jaxpr.invars), num_consts, num_carry
        dk, dc, dx = sum(const_nonzero), sum(carry_nonzero), sum(xs_nonzero)
        order = [
            *range(k), *range(n, n + dk),
            *range(k, k + c), *range(n + dk, n + dk + dc),
            *range(k + c, n), *range(n + dk + dc, n + dk + dc + dx),
        ]  # fmt: skip
        m = len(jaxpr.outvars)
        outvars = pushed.outvars
        results_order = [*outvars[:c], *outvars[m : m + dc], *outvars[c:m], *outvars[m + dc :]]
        results = scan(
            *consts, *pick(dconsts, const_nonzero),
            *carry, *(instantiate(t) for t in pick(dcarry, carry_nonzero)),
            *xs, *pick(dxs, xs_nonzero),
            jaxpr=rearrange(pushed, order).replace(outvars=results_order),
            num_consts=k + dk, num_carry=c + dc, **params,
        )  # fmt: skip
        new_carry, new_dcarry, rest = results[:c], results[c : c + dc], results[c + dc :]
        ys, dys = rest[: m - c], rest[m - c :]
        outs = jaxpr.out_avals
        out_types = [*outs[:c], *(stack_type(t, params["length"]) for t in outs[c:])]
        nonzero = [*carry_nonzero, *ys_nonzero]
        missing = [Zero.of(t) for t in others(out_types, nonzero)]
        return [*new_carry, *ys], merge_by_mask(nonzero, [*new_dcarry, *dys], missing)

    def batch_through(
        self,
        through: Any,
        axis: Axis,
        args: Sequence[Any],
        dims: Sequence[int | None],
        *,
        jaxpr: Jaxpr,
        num_consts: int,
        num_carry: int,
        **params: Any,
    ) -> Any:
        first_xs = num_consts + num_carry
        operands = [
            a if d is None or is_tape(get_aval(a)) else move_axis(a, d, 0 if i < first_xs else 1)
            for i, (a, d) in enumerate(zip(args, dims, strict=True))
        ]
        const_batched, carry_batched, xs_batched = sections([d is not None for d in dims], num_consts, num_carry)

        def step(mask: Any) -> Any:
            body, out = through(
                jaxpr, axis, [*const_batched, *mask, *xs_batched], [*mask, *[False] * (len(jaxpr.outvars) - num_carry)]
            )
            return (body, out), out[:num_carry]

        (body, out), batched = fixpoint(step, carry_batched)
        consts, carry, xs = sections(operands, num_consts, num_carry)
        carry = [
            batch_value(x, None, axis) if b and not d else x
            for x, b, d in zip(carry, batched, carry_batched, strict=True)
        ]
        results = scan(*consts, *carry, *xs, jaxpr=body, num_consts=num_consts, num_carry=num_carry, **params)
        ys_dims = [0 if is_tape(v.aval) else 1 for v in jaxpr.outvars[num_carry:]]
        return results, [
            *(0 if b else None for b in batched),
            *(p if b else None for p, b in zip(ys_dims, out[num_carry:], strict=True)),
        ]

    def partial_eval(self, unknown: Sequence[bool], types: Sequence[Type], params: Params) -> Split | None:
        return self.split(unknown, params)

    def split(
        self, unknown: Sequence[bool], params: Params, saveable: Callable[[Equation], bool] | None = None
    ) -> Split:
        """Split the loop into two: residuals of each iteration of the first are stacked for the second. Values that
        `saveable` refuses are computed in both instead."""
        jaxpr: Jaxpr = params["jaxpr"]
        num_consts, num_carry = params["num_consts"], params["num_carry"]
        rest = {n: params[n] for n in ("length", "reverse", "unroll")}
        const_unknown, carry_unknown, xs_unknown = sections(unknown, num_consts, num_carry)

        def split_body(mask: Any) -> Any:
            force = [*mask, *[False] * (len(jaxpr.outvars) - num_carry)]
            split = partial_eval(jaxpr, [*const_unknown, *mask, *xs_unknown], instantiate=force, saveable=saveable)
            return split, split.unknown_out[:num_carry]

        split, carry_mask = fixpoint(split_body, carry_unknown)
        const_indices = [i for i, u in enumerate(const_unknown) if not u]
        first_carry, first_xs = num_consts, num_consts + num_carry
        carry_indices = [first_carry + i for i, u in enumerate(carry_mask) if not u]
        xs_indices = [first_xs + i for i, u in enumerate(xs_unknown) if not u]
        known, count = split.known, len(split.known.outvars) - len(split.residual_types)
        # A residual that is a constant or a slice of an x needs no stacking: the unknown loop takes the operand itself.
        direct = dict(zip(known.invars, [*const_indices, *carry_indices, *xs_indices], strict=True))
        constant = {
            k: direct[v] for k, v in enumerate(known.outvars[count:]) if v in direct and direct[v] < first_carry
        }
        sliced = {k: direct[v] for k, v in enumerate(known.outvars[count:]) if v in direct and direct[v] >= first_xs}
        saved = [k for k in range(len(split.residual_types)) if k not in constant and k not in sliced]
        known_carry = len(carry_indices)
        forward = known.replace(outvars=[*known.outvars[:count], *(known.outvars[count + k] for k in saved)])
        # The unknown body takes (residuals, unknown consts, carry, xs); put slices of residuals among the xs.
        r, uk, uc = len(split.residual_types), sum(const_unknown), sum(carry_mask)
        order = [*constant, *range(r, r + uk + uc), *saved, *sliced, *range(r + uk + uc, len(split.unknown.invars))]
        waiting = rearrange(split.unknown, order)
        return Split(
            known=(scan, {"jaxpr": forward, "num_consts": len(const_indices), "num_carry": known_carry, **rest}),
            known_in=(*const_indices, *carry_indices, *xs_indices),
            unknown=(scan, {"jaxpr": waiting, "num_consts": len(constant) + uk, "num_carry": uc, **rest}),
            unknown_in=(
                *constant.values(),
                *(i for i, u in enumerate(const_unknown) if u),
                *(first_carry + i for i, u in enumerate(carry_mask) if u),
                *(~n for n in range(len(saved))),
                *sliced.values(),
                *(first_xs + i for i, u in enumerate(xs_unknown) if u),
            ),
            unknown_out=split.unknown_out,
            residual_types=tuple(stack_type(split.residual_types[k], params["length"]) for k in saved),
        )

    def remat_split(self, types: Sequence[Type], params: Params, saveable: Any) -> RematSplit | None:
        """Split the body. Saved values of each iteration are stacked, and read by the second loop like an x."""
        jaxpr, length, num_carry = params["jaxpr"], params["length"], params["num_carry"]
        found = remat_split_jaxpr(jaxpr, saveable)
        if found is None:
            return None
        first, second, stored = found
        ys = {v: num_carry + k for k, v in enumerate(jaxpr.outvars[num_carry:])}
        further = [v for v in stored if v not in ys]  # others are stacked already
        count = len(jaxpr.outvars)
        positions = {**ys, **{v: count + k for k, v in enumerate(further)}}
        outs = [*first.outvars[:count], *further]
        out_types = [v.aval for v in outs]
        return RematSplit(
            first=(scan, {**params, "jaxpr": first.replace(outvars=outs)}),
            first_types=(*out_types[:num_carry], *(stack_type(t, length) for t in out_types[num_carry:])),
            stored=tuple(positions[v] for v in stored),
            second=(scan, {**params, "jaxpr": second}),
            second_in=(*range(len(types)), *(~k for k in range(len(stored)))),
            whole=tuple(ys[v] for v in stored if v in ys),
        )

    def transpose_through(
        self,
        through: Any,
        cotangents: Sequence[Any],
        args: Sequence[Any],
        *,
        jaxpr: Jaxpr,
        num_consts: int,
        num_carry: int,
        reverse: bool,
        **params: Any,
    ) -> Any:
        consts, carry, xs = sections(args, num_consts, num_carry)
        if not all(type(a) is Linear for a in carry):
            every = {"jaxpr": jaxpr, "num_consts": num_consts, "num_carry": num_carry, "reverse": reverse, **params}
            if not all(self._linear_carries(args, every)):
                return self._transpose_rest(through, cotangents, args, every)
        linear_consts = [type(a) is Linear for a in consts]
        linear_xs = [type(a) is Linear for a in xs]
        ct_carry, ct_ys = cotangents[:num_carry], cotangents[num_carry:]
        ys_nonzero_in = nonzero_mask(ct_ys)
        linear = [*linear_consts, *[True] * num_carry, *linear_xs]
        body, _ = through(jaxpr, linear, [*[True] * num_carry, *ys_nonzero_in], True, takes_refs=True)
        inner = get_touched_refs(body)
        held_consts, held_xs = others(consts, linear_consts), others(xs, linear_xs)
        sums = [a.aval.cotangent() for a in pick(consts, linear_consts)]
        h, s, x = len(held_consts), len(sums), len(held_xs)

        def backward(*values: Any) -> list[Any]:
            known, totals, incoming = values[:h], values[h : h + s], values[h + s : h + s + num_carry]
            slices, ct_slices = values[h + s + num_carry : h + s + num_carry + x], values[h + s + num_carry + x :]
            outgoing = replay(body, *known, *slices, *incoming, *ct_slices, *ref_values(inner))
            count = len(outgoing) - sum(t.written for t in inner)
            write_back(inner, outgoing[count:])
            outgoing = outgoing[:count]
            return [*(accumulate(t, o) for t, o in zip(totals, outgoing[:s], strict=True)), *outgoing[s:]]

        carry_types = [v.aval.cotangent() for v in jaxpr.outvars[:num_carry]]
        xs_avals = [v.aval for v in others(jaxpr.invars[num_consts + num_carry :], linear_xs)]
        ys_avals = [v.aval.cotangent() for v in pick(jaxpr.outvars[num_carry:], ys_nonzero_in)]
        types = [*map(get_aval, held_consts), *sums, *carry_types, *xs_avals, *ys_avals]
        backward_jaxpr = stage_subjaxpr(backward, types, name=jaxpr.name, takes_refs=True)
        touched = get_touched_refs(backward_jaxpr)
        refs = LoopRefs.of(touched)
        if touched:
            backward_jaxpr = refs.arrange(backward_jaxpr, touched, h, s + num_carry, True)
        results = scan(
            *held_consts, *ref_values(refs.constant),
            *(instantiate(Zero(t)) for t in sums), *(instantiate(c) for c in ct_carry), *ref_values(refs.carried),
            *held_xs, *pick(ct_ys, ys_nonzero_in),
            jaxpr=backward_jaxpr, num_consts=h + len(refs.constant), num_carry=s + num_carry + len(refs.carried),
            reverse=not reverse, **params,
        )  # fmt: skip
        first, last = s + num_carry, s + num_carry + len(refs.carried)
        write_back(refs.carried, results[first:last])
        results = [*results[:first], *results[last:]]
        const_cts = merge_by_mask(linear_consts, results[:s], [None] * h)
        xs_cts = merge_by_mask(linear_xs, results[s + num_carry :], [None] * x)
        return [*const_cts, *results[s : s + num_carry], *xs_cts]

    def _linear_carries(self, args: Sequence[Any], params: Params) -> list[bool]:
        """Return which parts of the carry depend on linear operands after some iteration; a counter does not."""
        jaxpr, num_consts, num_carry = params["jaxpr"], params["num_consts"], params["num_carry"]
        const_linear, carry_linear, xs_linear = sections([type(a) is Linear for a in args], num_consts, num_carry)

        def step(mask: Any) -> Any:
            linear = {v for v, n in zip(jaxpr.invars, [*const_linear, *mask, *xs_linear], strict=True) if n}
            for equation in jaxpr.eqns:
                if any(v in linear for v in equation.invars):
                    linear.update(equation.outvars)
            return None, [v in linear for v in jaxpr.outvars[:num_carry]]

        return list(fixpoint(step, carry_linear)[1])

    def _transpose_rest(self, through: Any, cotangents: Sequence[Any], args: Sequence[Any], params: Params) -> Any:
        """Transpose a loop whose carry has parts that are not linear: another loop computes the values that depend on
        these."""
        split = self.split([type(a) is Linear for a in args], params)
        assert split.known is not None and split.unknown is not None, "parts of the carry are of both kinds"
        held = scan(*(args[i] for i in split.known_in), **split.known[1])
        residuals = held[len(held) - len(split.residual_types) :]
        operands = [args[i] if i >= 0 else residuals[~i] for i in split.unknown_in]
        found = self.transpose_through(through, pick(cotangents, split.unknown_out), operands, **split.unknown[1])
        results: list[Any] = [None] * len(args)
        for i, ct in zip(split.unknown_in, found, strict=True):
            if i >= 0 and type(args[i]) is Linear:
                results[i] = ct
        return results

    def live_operands(self, live_results: Sequence[bool], params: Params) -> Any:
        jaxpr, num_consts, num_carry = params["jaxpr"], params["num_consts"], params["num_carry"]
        ys_live = list(live_results[num_carry:])

        def step(mask: Any) -> Any:
            _, used = drop_dead(jaxpr, [*mask, *ys_live], False)
            return used, used[num_consts : num_consts + num_carry]

        used, carry_live = fixpoint(step, live_results[:num_carry])
        keep = [*used[:num_consts], *carry_live, *used[num_consts + num_carry :]]
        smaller, _ = drop_dead(jaxpr, [*carry_live, *ys_live], keep)
        changed = {**params, "jaxpr": smaller, "num_consts": sum(used[:num_consts]), "num_carry": sum(carry_live)}
        return keep, changed, [*carry_live, *ys_live]

    def iterations(self, params: Params) -> Any:
        return params["length"]

    def keys_through(self, through: KeysThrough, operands: Sequence[Any], params: Params) -> Sequence[Any] | None:
        """Follow keys through two iterations, which show reuse: a key used in one is reused in the next, unless the
        carry has a new one."""
        jaxpr, consts, count = params["jaxpr"], params["num_consts"], params["num_carry"]
        carry, arrays = list(operands[consts : consts + count]), operands[consts + count :]
        out: Sequence[Any] = ()
        for first in (True,) if params["length"] == 1 else (True, False):
            slices = [through.fresh(v.aval) for v in jaxpr.invars[consts + count :]]
            out = through(jaxpr, (*operands[:consts], *carry, *slices))
            carry = list(out[:count])
            for array, part in zip(arrays, slices, strict=True):
                if first and array is not None and part is not None and part.any_used:
                    array.use(through.at, "scan")
        return [*carry, *(None for _ in out[count:])]

    def samples(self) -> Any:
        return iter(())  # has a sub-jaxpr; the composition tests cover it


def sections(values: Sequence[Any], num_consts: int, num_carry: int) -> tuple[list[Any], list[Any], list[Any]]:
    """Split values into constants, carry and xs."""
    both = num_consts + num_carry
    return list(values[:num_consts]), list(values[num_consts:both]), list(values[both:])


def nonzero_mask(tangents: Sequence[Any]) -> list[bool]:
    return [type(t) is not Zero for t in tangents]


def stack_type(aval: Type, length: Any) -> Type:
    """Return the type of `length` values: an array with one more dimension; for tapes, a tape of them."""
    if isinstance(aval, TapeType):
        return TapeType(aval)
    assert isinstance(aval, ArrayType)
    return aval.with_dimension(0, length)


def is_tape(aval: Type) -> bool:
    return isinstance(aval, TapeType)
