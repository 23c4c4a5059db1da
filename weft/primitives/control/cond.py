"""`cond`: run one of several branches, chosen by an index; `lax.cond` and `lax.switch` bind it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from weft.base.errors import OrderedEffectError
from weft.base.source import user_line
from weft.ir.body_map import BodyMap
from weft.ir.higher_order import ControlFlow, check_operands
from weft.ir.interpreter import replay, run
from weft.ir.jaxpr import Jaxpr, Var, drop_dead
from weft.ir.keys import KeysThrough
from weft.ir.partial_eval import PartialJaxpr, partial_eval, remat_split_jaxpr
from weft.ir.primitive import Axis, Params, primitive
from weft.ir.rules.differentiation import RematSplit, Split
from weft.ir.types import TapeType, Type, get_aval
from weft.ir.unplaced import varying_along
from weft.ir.varying import manual_state, varying_type
from weft.ir.zeros import Linear, Zero
from weft.primitives.control.call import batch_first
from weft.primitives.control.lanes import run_lanes, with_flag
from weft.primitives.control.masked import can_mask, mask_jaxpr
from weft.primitives.control.tape import tape_select, zeros
from weft.primitives.elementwise.compare import eq, ne
from weft.primitives.elementwise.select import clamp, select_n
from weft.primitives.movement.shape import broadcast_in_dim
from weft.primitives.movement.sharding_constraint import cast_to_type
from weft.sharding.manual import ManualAxisType
from weft.trace.closed import stage_subjaxpr
from weft.trace.ref_bodies import with_equal_refs
from weft.trace.refs import NOTHING, get_touched_refs, ref_values, write_back


@primitive
class cond(ControlFlow):
    """Results of `branches[index]` on the operands; an index out of range is clamped."""

    exclusive = True

    def type(self, index: Type, *types: Type, branches: tuple[Jaxpr, ...]) -> list[Type]:
        for branch in branches:
            check_operands(self.name, types, branch.in_avals)
        return [varying_type(t, manual_state(index).varying) for t in branches[0].out_avals]

    def operand_states(self, types: Sequence[Type], params: Params) -> Sequence[ManualAxisType]:
        return [manual_state(types[0]), *map(manual_state, params["branches"][0].in_avals)]

    def body_map(self, params: Params) -> BodyMap:
        branches = params["branches"]
        arguments = tuple(range(1, 1 + len(branches[0].invars)))
        count = len(branches[0].outvars)
        results = tuple(tuple((b, i, False) for b in range(len(branches))) for i in range(count))
        return BodyMap(branches, (arguments,) * len(branches), results)

    def with_bodies(self, bodies: Sequence[Any], params: Params) -> Params:
        return {**params, "branches": tuple(bodies)}

    def effects(self, types: Sequence[Type], params: Params) -> frozenset[Any]:
        return frozenset().union(*(b.effects for b in params["branches"]))

    def eval(self, index: Any, *arrays: Any, branches: tuple[Jaxpr, ...]) -> list[Any]:
        return run(branches[int(np.clip(index, 0, len(branches) - 1))], arrays)

    def jvp_through(
        self, through: Any, primals: Sequence[Any], tangents: Sequence[Any], *, branches: tuple[Jaxpr, ...]
    ) -> Any:
        nonzero = [type(t) is not Zero for t in tangents[1:]]
        union = union_masks([through(b, nonzero)[1] for b in branches])
        pushed = tuple(through(b, nonzero, union)[0] for b in branches)
        results = cond(*primals, *(t for t in tangents[1:] if type(t) is not Zero), branches=pushed)
        count = len(branches[0].outvars)
        tangents_out = iter(results[count:])
        return results[:count], [
            next(tangents_out) if n else Zero.of(t) for n, t in zip(union, branches[0].out_avals, strict=True)
        ]

    def batch_through(
        self, through: Any, axis: Axis, args: Sequence[Any], dims: Sequence[int | None], *, branches: tuple[Jaxpr, ...]
    ) -> Any:
        operands = batch_first(args, dims)
        index, operands = operands[0], operands[1:]
        batched = [d is not None for d in dims[1:]]
        if dims[0] is None:
            union = union_masks([through(b, axis, batched)[1] for b in branches])
            batched_branches = tuple(through(b, axis, batched, union)[0] for b in branches)
            return cond(index, *operands, branches=batched_branches), [0 if b else None for b in union]
        refuse_ordered_effects(self.effects((), {"branches": branches}))
        # The index differs between elements: run every branch and choose element by element.
        index = which(index, len(branches))
        passed = find_forwarded(branches)
        chosen = [k for k, p in enumerate(passed) if p is None]
        results = []
        for i, branch in enumerate(branches):
            branch = (
                branch.replace(outvars=[branch.outvars[k] for k in chosen]) if len(chosen) < len(passed) else branch
            )
            lane_jaxpr = mask_jaxpr(branch) if can_mask(branch) else with_flag(branch)
            results.append(run_lanes(lane_jaxpr, axis, is_case(index, i), operands, batched))
        selected = iter([select_lanes(index, cases) for cases in zip(*results, strict=True)])
        return [next(selected) if p is None else operands[p] for p in passed], [
            0 if p is None or batched[p] else None for p in passed
        ]

    def partial_eval(self, unknown: Sequence[bool], types: Sequence[Type], params: Params) -> Split | None:
        if unknown[0]:
            return None
        branches, rest = params["branches"], tuple(unknown[1:])
        union = union_masks([partial_eval(b, rest).unknown_out for b in branches])
        decides = manual_state(types[0]).varying
        parts = [partial_eval(b, rest, instantiate=union).varying_along(decides) for b in branches]
        slots, slot_indices = assign_slots([p.residual_types for p in parts])
        counts = [len(p.known.outvars) - len(p.residual_types) for p in parts]
        known = tuple(
            write_slots(p.known, count, slots, indices)
            for p, count, indices in zip(parts, counts, slot_indices, strict=True)
        )
        waiting = tuple(read_residual_slots(p, slots, indices) for p, indices in zip(parts, slot_indices, strict=True))
        return Split(
            known=(cond, {"branches": known}),
            known_in=(0, *(i + 1 for i, u in enumerate(rest) if not u)),
            unknown=(cond, {"branches": waiting}),
            unknown_in=(0, *(~k for k in range(len(slots))), *(i + 1 for i, u in enumerate(rest) if u)),
            unknown_out=union,
            residual_types=tuple(slots),
        )

    def remat_split(self, types: Sequence[Type], params: Params, saveable: Any) -> RematSplit | None:
        """Split the branches. Values that they store share slots, because only one branch runs."""
        branches: tuple[Jaxpr, ...] = params["branches"]
        found = [remat_split_jaxpr(b, saveable) for b in branches]
        if not any(found):
            return None
        splits = [f or (b, b, []) for f, b in zip(found, branches, strict=True)]
        decides = manual_state(types[0]).varying
        slots, slot_indices = assign_slots([[varying_type(v.aval, decides) for v in stored] for _, _, stored in splits])
        count = len(branches[0].outvars)
        first = tuple(
            write_slots(varying_along(stores, decides), count, slots, indices)
            for (stores, _, _), indices in zip(splits, slot_indices, strict=True)
        )
        second = tuple(
            read_slots(varying_along(again, decides), slots, indices)
            for (_, again, _), indices in zip(splits, slot_indices, strict=True)
        )
        return RematSplit(
            first=(cond, {"branches": first}),
            first_types=tuple(first[0].out_avals),
            stored=tuple(range(count, count + len(slots))),
            second=(cond, {"branches": second}),
            second_in=(*range(len(types)), *(~k for k in range(len(slots)))),
        )

    def transpose_through(
        self, through: Any, cotangents: Sequence[Any], args: Sequence[Any], *, branches: tuple[Jaxpr, ...]
    ) -> Any:
        index, *operands = args
        linear = [type(a) is Linear for a in operands]
        nonzero = [type(c) is not Zero for c in cotangents]
        union = union_masks([through(b, linear, nonzero, takes_refs=True)[1] for b in branches])
        pulled = [through(b, linear, nonzero, union, takes_refs=True)[0] for b in branches]
        touched = NOTHING
        if any(map(get_touched_refs, pulled)):
            pulled, touched = with_equal_refs(pulled, list(map(get_touched_refs, pulled)))
        held = [a for a in operands if type(a) is not Linear]
        incoming = (*(c for c in cotangents if type(c) is not Zero), *ref_values(touched))
        found = cond(index, *held, *incoming, branches=tuple(pulled))
        write_back(touched, found[sum(union) :])
        results, flags = iter(found), iter(union)
        return [
            None,
            *(
                (next(results) if next(flags) else Zero(a.aval.cotangent())) if n else None
                for a, n in zip(operands, linear, strict=True)
            ),
        ]

    def live_operands(self, live_results: Sequence[bool], params: Params) -> Any:
        branches = params["branches"]
        used = union_masks([drop_dead(b, live_results, False)[1] for b in branches])
        smaller = tuple(drop_dead(b, live_results, used)[0] for b in branches)
        return [True, *used], {"branches": smaller}, list(live_results)

    def keys_through(self, through: KeysThrough, operands: Sequence[Any], params: Params) -> Sequence[Any] | None:
        return through.either(params["branches"], operands[1:])

    def chosen(self, index: int, params: Params) -> Jaxpr:
        branches = params["branches"]
        result: Jaxpr = branches[min(max(index, 0), len(branches) - 1)]
        return result

    def samples(self) -> Any:
        return iter(())  # has sub-jaxprs; the composition tests cover it


def union_masks(masks: Sequence[Sequence[bool]]) -> tuple[bool, ...]:
    """Return the union of masks."""
    return tuple(any(column) for column in zip(*masks, strict=True))


def find_forwarded(branches: Sequence[Jaxpr]) -> list[int | None]:
    """Return, for each result, the operand that every branch returns for it, or None."""
    positions = [{v: i for i, v in enumerate(b.invars)} for b in branches]
    found: list[int | None] = []
    for results in zip(*(b.outvars for b in branches), strict=True):
        same = {own.get(v) if type(v) is Var else None for own, v in zip(positions, results, strict=True)}
        found.append(same.pop() if len(same) == 1 else None)
    return found


def which(index: Any, count: int) -> Any:
    """Convert a batched index to the selector of `select_n`: boolean for two cases, clamped for more."""
    if count == 2:
        return ne(index, np.zeros((), index.dtype))
    return clamp(np.zeros((), index.dtype), index, np.array(count - 1, index.dtype))


def is_case(index: Any, case: int) -> Any:
    """Return a mask of the elements of the batch that take a case, for an index that `which` returned."""
    return eq(index, np.array(case, index.dtype))


def select_lanes(index: Any, cases: Sequence[Any]) -> Any:
    """Select, for each element of the batch, its case."""
    if len(cases) == 1:
        return cases[0]
    if isinstance(get_aval(cases[0]), TapeType):
        return tape_select(index, *cases)
    shape = cases[0].shape
    if len(shape) > 1:
        index = broadcast_in_dim(index, shape=shape, broadcast_dimensions=(0,))
    return select_n(index, *cases)


def refuse_ordered_effects(effects: frozenset[Any]) -> None:
    """Raise if an effect is ordered: it cannot happen for all elements of a batch at once."""
    for effect in effects:
        if getattr(effect, "ordered", False):
            raise OrderedEffectError(
                "vmap cannot run an ordered effect: the elements of a batch have no order.",
                fix="use ordered=False, or a loop (lax.map, scan) instead of vmap",
                at=user_line(),
            )


def assign_slots(residuals: Sequence[Sequence[Type]]) -> tuple[list[Type], list[list[int]]]:
    """Assign slots to the residuals of all branches. Return the types of the slots and the slot of each residual;
    branches share slots of one type, because only one branch runs."""
    slots: list[Type] = []
    slot_indices: list[list[int]] = []
    for types in residuals:
        free = list(range(len(slots)))
        indices = []
        for aval in types:
            found = next((s for s in free if slots[s] == aval), None)
            if found is None:
                slots.append(aval)
                found = len(slots) - 1
            else:
                free.remove(found)
            indices.append(found)
        slot_indices.append(indices)
    return slots, slot_indices


def write_slots(branch: Jaxpr, count: int, slots: Sequence[Type], indices: Sequence[int]) -> Jaxpr:
    """Return a branch whose results after the first `count` are in their slots, with zeros in the others."""

    def function(*args: Any) -> list[Any]:
        results = replay(branch, *args)
        filled = dict(zip(indices, results[count:], strict=True))
        slotted = [cast_to_type(filled[s] if s in filled else zeros(t), t) for s, t in enumerate(slots)]
        return [*results[:count], *slotted]

    return stage_subjaxpr(function, branch.in_avals, name=branch.name)


def read_slots(branch: Jaxpr, slots: Sequence[Type], indices: Sequence[int]) -> Jaxpr:
    """Return a branch whose last arguments are slots, from which it reads its own last arguments."""
    own = branch.in_avals[: len(branch.invars) - len(indices)]

    def function(*args: Any) -> list[Any]:
        return replay(branch, *args[: len(own)], *(args[len(own) + s] for s in indices))

    return stage_subjaxpr(function, [*own, *slots], name=branch.name)


def read_residual_slots(part: PartialJaxpr, slots: Sequence[Type], indices: Sequence[int]) -> Jaxpr:
    """Return the unknown part of a branch, reading its residuals from their slots."""

    def function(*args: Any) -> list[Any]:
        return replay(part.unknown, *(args[s] for s in indices), *args[len(slots) :])

    return stage_subjaxpr(function, [*slots, *part.unknown.in_avals[len(indices) :]], name=part.unknown.name)
