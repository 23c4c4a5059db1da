"""Partitioning of the equations of a jaxpr, and of the bodies of its loops, for given shardings of arguments.

Equations are visited once, in order. `at` has the current sharding of each value, `unreduced` the axes over which it is
a partial sum. An equation is split over an axis only if one of its operands or results already is; if several of its
factors are, the cheapest is chosen, by the bytes that resharding operands and results would send.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from weft.compiler.partition import carries
from weft.compiler.partition.carries import can_defer
from weft.compiler.partition.divide import exchange_pieces, find_division
from weft.compiler.partition.halo import check_halos, fits, gather_reason, halo_traffic
from weft.compiler.partition.partial_sums import partial_sum_on_first
from weft.compiler.partition.propagate import Propagation
from weft.compiler.partition.reasons import CollectiveRecord, Reasons, operation
from weft.compiler.partition.reshard import Transfer, apply, reshard
from weft.compiler.partition.rules import (
    Dims,
    ShardingRule,
    count_shards,
    get_rank,
    local_shape,
    whole,
)
from weft.compiler.partition.uneven import (
    can_split,
    even_reason,
    with_neutral_ends,
    within_manual,
)
from weft.compiler.partition.verify import check_operation, check_value
from weft.ir.body_map import BodyMap
from weft.ir.context import context, join_stacks
from weft.ir.interpreter import literal
from weft.ir.jaxpr import Atom, Equation, Jaxpr, Literal, Var
from weft.ir.parts import Parts, byte_count
from weft.ir.primitive import Primitive
from weft.ir.types import ArrayType, array_type, get_aval
from weft.primitives.control.inspect_sharding import inspect_sharding
from weft.primitives.control.shard_map import shard_map
from weft.primitives.movement.shape import reshape
from weft.primitives.movement.terms import unsum
from weft.sharding.routes import LATENCY, LINK
from weft.sharding.spec import spec_dims
from weft.trace.closed import stage_subjaxpr

# Rates for comparing costs, besides those of collectives: bytes of memory per second, flops per second.
MEMORY, FLOPS = 1e10, 5e10
Axes = tuple[Any, ...]
# The axes over which each factor of an operation is split.
Chosen = dict[str, Axes]


def local_type(aval: Any, dims: Dims, sizes: Mapping[Any, int]) -> Any:
    """Return the type of one shard."""
    if not isinstance(aval, ArrayType):
        return aval
    return array_type(local_shape(aval.shape, dims, sizes), aval.dtype, aval.weak_type)


class CommunicationLog:
    """Collectives and inspected shardings, collected during partitioning."""

    def __init__(self, reasons: Reasons, stays: bool = False) -> None:
        self.reasons = reasons
        # By which estimate operations are split (`cheapest`), and how many would be split otherwise by the other one.
        self.stays, self.doubts = stays, 0
        self.communication: list[CollectiveRecord] = []
        self.inspected: list[tuple[Callable[[Any], None], Dims]] = []
        # How values were split when they were computed, and how many results of bodies were resharded after that.
        self.found: dict[Var, Dims] = {}
        self.resharded_results = 0

    def extend(self, other: CommunicationLog) -> None:
        """Append the entries of another log."""
        self.communication += other.communication
        self.inspected += other.inspected
        self.found.update(other.found)
        self.resharded_results += other.resharded_results
        self.doubts += other.doubts


class BodyPartitioner:
    """Binds the local equations of a jaxpr, or of a body, under the active trace. Its equations run `times` times."""

    def __init__(
        self,
        shardings: Propagation,
        sizes: Mapping[Any, int],
        log: CommunicationLog,
        times: float = 1.0,
        manual: frozenset[Any] = frozenset(),
        verifies: bool = False,
    ) -> None:
        self.verifies = verifies
        self.shardings, self.sizes, self.log, self.times = shardings, sizes, log, times
        # Manual axes: along them the body is a program of one device already.
        self.manual = manual
        self.shared = {a: n for a, n in sizes.items() if a not in manual}
        self.at: dict[Var, Dims] = {}
        self.values: dict[Var, Any] = {}
        # The axes of values that are partial sums, and the equation that summed; the same of values reduced here.
        self.unreduced: dict[Var, tuple[tuple[Any, ...], Equation]] = {}
        self.reduced: dict[Var, tuple[tuple[Any, ...], Equation]] = {}
        # Results of a body that its loop may reduce: over which axes (None: any).
        self.leaving: dict[Var, tuple[Any, ...] | None] = {}
        self.copies: dict[tuple[Var, Dims], Any] = {}
        self.received: dict[Any, tuple[Any, Any]] = {}  # edges of other devices' shards
        self.uses: dict[Var, list[Equation | None]] = {}
        self.defined_by: dict[Var, Equation] = {}

    def define(self, pairs: Any, dims: Sequence[Dims]) -> None:
        """Define arguments and constants, and how they are split."""
        for (v, value), own in zip(pairs, dims, strict=True):
            self.values[v], self.at[v] = value, own

    def target(self, v: Atom) -> Dims:
        """Return the sharding that propagation chose for a value."""
        return self.shardings[v]

    def run(self, jaxpr: Jaxpr) -> None:
        """Bind the local equations of all equations of a jaxpr."""
        for equation in jaxpr.eqns:
            self.defined_by.update(dict.fromkeys(equation.outvars, equation))
            for a in equation.invars:
                if type(a) is Var:
                    self.uses.setdefault(a, []).append(equation)
        for a in jaxpr.outvars:
            if type(a) is Var:
                self.uses.setdefault(a, []).append(None)
        source, stack = context.source, context.stack
        try:
            for equation in jaxpr.eqns:
                context.source = equation.source or source
                context.stack = join_stacks(stack, equation.stack)
                if equation.primitive is inspect_sharding:
                    self.log.inspected.append((equation.params["callback"], self.target(equation.invars[0])))
                elif equation.primitive is shard_map:
                    self.shard_map(equation)
                elif equation.primitive.higher_order:
                    self.control(equation)
                elif equation.primitive.separate:
                    self.separate(equation)
                else:
                    self.operation(equation)
                if self.verifies:
                    for v in equation.outvars:
                        unreduced = self.unreduced[v][0] if v in self.unreduced else ()
                        local = get_aval(self.values[v])
                        check_value(v, self.at[v], unreduced, local, self.sizes, equation, self.shardings.pads)
        finally:
            context.source, context.stack = source, stack

    # -- values ------------------------------------------------------------------------------------------------------

    def value(self, atom: Atom, dims: Dims, equation: Equation | None, reason: str, note: str = "") -> Any:
        """Return a value with a sharding, resharded if necessary; each resharding is done once."""
        if type(atom) is Literal:
            return literal(atom)
        assert type(atom) is Var
        if atom in self.unreduced:
            self.reduce(atom)
        if self.at[atom] == dims:
            return self.values[atom]
        if (atom, dims) in self.copies:
            return self.copies[atom, dims]
        if self.expansion(atom, dims) is not None:
            self.copies[atom, dims] = self.expand(atom, dims)
            return self.copies[atom, dims]
        x, at = self.values[atom], self.at[atom]
        for transfer in reshard(atom.aval, at, dims, self.sizes):
            at = transfer.after(at)  # another reader may need this intermediate sharding
            if transfer.inner:
                x = self.apply_transfers(x, [transfer], atom, dims, equation, reason, note)
                continue
            if (atom, at) not in self.copies:
                self.copies[atom, at] = self.apply_transfers(x, [transfer], atom, dims, equation, reason, note)
            x = self.copies[atom, at]
        return x

    def expansion(self, v: Var, dims: Dims) -> Chosen | None:
        """Return how to split the operation that repeats elements of a smaller operand for a result split as `dims`, so
        that only the operand is resharded; None if another operation defines `v`, or dimensions must be whole."""
        equation = self.defined_by.get(v)
        if equation is None or not expands(equation):
            return None
        rule = self.shardings.rules[equation]
        (names,) = rule.result_names
        if any(axes and name is None for name, axes in zip(names, dims, strict=True)):
            return None
        chosen = {name: axes for name, axes in zip(names, dims, strict=True) if name is not None and axes}
        return chosen if all(self.can_split(rule, name, axes) for name, axes in chosen.items()) else None

    def expand(self, v: Var, dims: Dims) -> Any:
        """Bind the operation that defines a value once more, split so that the value is split as `dims`."""
        equation, chosen = self.defined_by[v], self.expansion(v, dims)
        assert chosen is not None
        rule = self.shardings.rules[equation]
        args = [
            self.operand(i, a, dims_for(names, chosen), equation, rule)
            for i, (a, names) in enumerate(zip(equation.invars, rule.operand_names, strict=True))
        ]
        return self.bind(equation, rule, chosen, args)[0]

    def apply_transfers(
        self,
        x: Any,
        transfers: Sequence[Transfer],
        v: Var,
        dims: Dims,
        equation: Equation | None,
        reason: str,
        note: str = "",
    ) -> Any:
        """Apply collectives to a value and log them; they are for an equation that needs it split as `dims`."""
        for transfer in transfers:
            if transfer.kind != "slice":
                why = self.log.reasons.because(transfer.kind, transfer.axis, v, dims, equation, reason) + note
                self.report(transfer.kind, transfer.axis, transfer.bytes, self.log.reasons.name(v), equation, why)
        return apply(x, transfers, self.sizes, v.aval.shape)  # type: ignore[attr-defined]

    def report(self, kind: str, axis: Any, size: float, value: str, equation: Equation | None, reason: str) -> None:
        """Log a collective."""
        line = None if equation is None else equation.source
        self.log.communication.append(CollectiveRecord(kind, axis, size, value, line, reason, self.times))

    def reduce(self, v: Var) -> None:
        """Reduce a value whose sum was deferred until now."""
        axes, equation = self.reduced[v] = self.unreduced.pop(v)
        wanted = self.target(v)
        transfers = reshard(v.aval, self.at[v], wanted, self.sizes, axes)
        reason = f"{operation(equation)} sums over a split dimension"
        self.values[v] = self.apply_transfers(self.values[v], transfers, v, wanted, equation, reason)
        self.at[v] = wanted

    # -- operations --------------------------------------------------------------------------------------------------

    def operation(self, equation: Equation) -> None:
        """Bind an operation on shards: operands are resharded as its factors need them, and results that it reduces
        over split dimensions are combined, now or before their first use that needs it."""
        rule = self.shardings.rules[equation]
        if equation.primitive is unsum:
            self.unsum(equation)
            return
        if equation.primitive is reshape and self.divide(equation, rule):
            return
        waiting = list(dict.fromkeys(a for a in equation.invars if type(a) is Var and a in self.unreduced))
        axes = self.linear_in(equation, waiting)
        if axes is None:
            for a in waiting:
                self.reduce(a)
            axes, origin = (), equation
        else:
            origin = self.unreduced[waiting[0]][1]
        chosen = self.choose(equation, rule, axes)
        if self.verifies:
            check_operation(equation, rule, chosen, axes)
            check_halos(equation, rule, chosen, self.sizes, self.shardings.pads)
        if axes:
            args = [
                literal(a) if type(a) is Literal else self.partial_value(a, dims_for(names, chosen), equation)
                for a, names in zip(equation.invars, rule.operand_names, strict=True)
            ]
        else:
            args = [
                self.operand(i, a, dims_for(names, chosen), equation, rule)
                for i, (a, names) in enumerate(zip(equation.invars, rule.operand_names, strict=True))
            ]
        results = self.bind(equation, rule, chosen, args)
        if equation.primitive.named_axes(equation.params):
            pairs = zip(equation.invars, rule.operand_names, strict=True)
            size = sum(byte_count(local_type(a.aval, dims_for(names, chosen), self.sizes)) for a, names in pairs)
            written = self.log.reasons.written(equation, self.sizes, size, self.times)
            self.log.communication += [] if written is None else [written]
        summed, how = rule.sums(chosen)
        for v, names, x in zip(equation.outvars, rule.result_names, results, strict=True):
            self.values[v], self.at[v] = x, dims_for(names, chosen)
            if how != "sum":
                transfers = reshard(v.aval, self.at[v], self.at[v], self.sizes, summed, how)
                reason = f"{operation(equation)} is over a split dimension"
                self.values[v] = self.apply_transfers(x, transfers, v, self.at[v], equation, reason)
            elif summed or axes:
                self.unreduced[v] = ((*axes, *summed), origin)
                if self.verifies:
                    unreduced = self.unreduced[v][0]
                    check_value(v, self.at[v], unreduced, get_aval(x), self.sizes, equation, self.shardings.pads)
                if not self.may_defer(v, (*axes, *summed)):
                    self.reduce(v)

    def separate(self, equation: Equation) -> None:
        """Bind an operation whose results are its operands: each stays split as it is."""
        for a in equation.invars:
            if type(a) is Var and a in self.unreduced:
                self.reduce(a)
        primitive: Any = equation.primitive
        outs = primitive(*(self.values[a] if type(a) is Var else literal(a) for a in equation.invars))  # type: ignore[arg-type]
        for v, a, x in zip(equation.outvars, equation.invars, outs, strict=True):
            self.values[v], self.at[v] = x, self.at[a] if type(a) is Var else whole(a.aval)

    def divide(self, equation: Equation, rule: ShardingRule) -> bool:
        """Bind a reshape by exchanging pieces of shards; return False if it divides no split dimension."""
        (a,), (v,) = equation.invars, equation.outvars
        if type(a) is not Var or a in self.unreduced:
            return False
        wanted = self.target(v)
        division = find_division(equation, rule, self.at[a], wanted, self.shared)
        if division is None:
            return False
        reason = f"{operation(equation)} divides a split dimension into fewer parts than devices"

        def report(size: float) -> None:
            self.report("ppermute", division.axis, size, self.log.reasons.name(a), equation, reason)

        shape = local_shape(v.aval.shape, wanted, self.sizes)  # type: ignore[attr-defined]
        self.values[v], self.at[v] = exchange_pieces(self.values[a], division, shape, report), wanted
        return True

    def unsum(self, equation: Equation) -> None:
        """Bind `unsum`, which returns each device's partial sum; if the operand is reduced already, the first device
        returns it and the others zeros."""
        (a,), (v,), axes = equation.invars, equation.outvars, equation.params["axes"]
        goal, dims = self.target(v)[: len(axes)], self.target(v)[len(axes) :]
        own = tuple(self.sizes.get(axis) for axis in axes)
        if goal != tuple((axis,) for axis in axes) or own != equation.params["sizes"]:  # not split over the devices
            define: Any = equation.primitive.definition
            x = self.value(a, dims, equation, f"{operation(equation)} needs it")
            self.values[v], self.at[v] = define(x, **equation.params), (*((),) * len(axes), *dims)
            return
        waiting = self.unreduced[a][0] if type(a) is Var and a in self.unreduced else ()
        if waiting and set(waiting) <= set(axes):
            x = self.partial_value(a, dims, equation)  # other uses may reduce it
        else:
            x, waiting = self.value(a, dims, equation, "as a result it is to be"), ()
        self.values[v] = partial_sum_on_first(x, [axis for axis in axes if axis not in waiting], len(axes))
        self.at[v] = (*goal, *dims)

    def operand(self, i: int, a: Atom, dims: Dims, equation: Equation, rule: ShardingRule) -> Any:
        """Return an operand with the sharding that an operation needs. Texts are made only if it must be sent."""
        if type(a) is Var and a not in self.unreduced and self.at[a] == dims:
            return self.values[a]
        if type(a) is Literal:
            return literal(a)
        reasons = (gather_reason, even_reason) if type(a) is Var else ()
        notes = (why(rule, i, self.at[a], dims, self.sizes, self.shardings.pads) for why in reasons)  # type: ignore[index]
        note = next(filter(None, notes), rule.why_whole(i))
        return self.value(a, dims, equation, f"{operation(equation)} needs it", note)

    def partial_value(self, a: Atom, dims: Dims, equation: Equation) -> Any:
        """Return an operand that stays a partial sum."""
        assert type(a) is Var
        if self.at[a] == dims:
            return self.values[a]
        transfers = reshard(a.aval, self.at[a], dims, self.sizes)
        return self.apply_transfers(self.values[a], transfers, a, dims, equation, f"{operation(equation)} needs it")

    def bind(self, equation: Equation, rule: ShardingRule, chosen: Chosen, args: Sequence[Any]) -> Any:
        """Bind an operation on shards."""
        primitive: Any = equation.primitive
        if not chosen and type(primitive).bind_local is Primitive.bind_local:
            out = primitive(*args, **equation.params)
            return out if primitive.multiple_results else [out]
        results = [
            local_type(v.aval, dims_for(names, chosen), self.sizes)
            for v, names in zip(equation.outvars, rule.result_names, strict=True)
        ]

        def report(kind: str, axis: Any, count: float, x: Any, operand: int = 0, what: str = "") -> None:
            reason = f"{operation(equation)} is along a split dimension"
            if what:
                reason = self.log.reasons.reads(axis, equation.invars[operand], equation, what)
            self.report(kind, axis, count, x.aval.short(), equation, reason)

        types, names = [a.aval.plain for a in equation.invars], (rule.operand_names, rule.result_names)
        parts = Parts(types, results, *names, chosen, self.shared, report, rule.reach, self.received)
        return primitive.bind_local(parts, with_neutral_ends(parts, rule, args), equation.params)

    def linear_in(self, equation: Equation, waiting: Sequence[Var]) -> tuple[Any, ...] | None:
        """Return the axes over which results are unreduced if the `waiting` operands stay unreduced; None if they must
        be reduced. They need not if the operation is linear: in its one operand, or in operands unreduced over the same
        axes."""
        if not waiting:
            return None
        axes = self.unreduced[waiting[0]][0]
        if not can_defer(equation) or any(self.unreduced[a][0] != axes for a in waiting):
            return None
        if len(waiting) == 1 and sum(type(a) is Var for a in equation.invars) == 1:
            return axes
        both = all(type(a) is Var and a in self.unreduced for a in equation.invars)
        return axes if both and len({self.at[a] for a in equation.invars}) == 1 else None  # type: ignore[index]

    def may_defer(self, v: Var, axes: tuple[Any, ...]) -> bool:
        """Return whether a value may stay unreduced: its only use is linear, in operands that all are unreduced."""
        users = self.uses.get(v, [])
        if len(users) != 1:
            return False
        user = users[0]
        if user is None:
            return v in self.leaving and (axes == self.leaving[v] or carries.may_leave(self.target(v), axes))
        if "in_specs" in user.params:  # a body that takes partial sums
            spec = user.params["in_specs"][user.invars.index(v)]
            return user.invars.count(v) == 1 and set(axes) == spec.unreduced
        if not can_defer(user):
            return False
        others = [a for a in user.invars if a is not v and type(a) is Var]
        if len(others) > 1 or (others and len(user.invars) > 2):
            return False
        if not others:
            return user.invars.count(v) == 1
        known = self.unreduced.get(others[0])
        return self.will_defer(others[0], axes) if known is None else known[0] == axes

    def will_defer(self, v: Var, axes: tuple[Any, ...]) -> bool:
        """Return whether a value that is not computed yet will be unreduced over these axes: it is a sum over a
        dimension that is split over them, or a linear function of one."""
        equation = self.defined_by.get(v)
        if v in self.values or equation is None or equation.primitive.higher_order or len(self.uses.get(v, ())) != 1:
            return False
        operands = [a for a in equation.invars if type(a) is Var]
        if len(operands) == 1 and can_defer(equation):
            known = self.unreduced.get(operands[0])
            return self.will_defer(operands[0], axes) if known is None else known[0] == axes
        rule = self.shardings.rules[equation]
        for a, names in zip(equation.invars, rule.operand_names, strict=True):
            if type(a) is Var:
                for name, own in zip(names, self.at.get(a, self.target(a)), strict=True):
                    if name is not None and own == axes and rule.combine.get(name) == "sum":
                        return name not in rule.results
        return False

    def choose(self, equation: Equation, rule: ShardingRule, taken: Sequence[Any]) -> Chosen:
        """Choose the axes over which each factor of an operation is split."""
        chosen: Chosen = {}
        by_operands = factors_split(equation.invars, rule.operand_names, self.at)
        by_results = factors_split(equation.outvars, rule.result_names, self.shardings.dims)
        if not by_operands and not by_results:
            return chosen
        for axis in self.sizes:
            if axis in taken:  # operands are unreduced over it
                continue
            operands = by_operands.get(axis)
            found = {**(operands or {}), **by_results.get(axis, {})}
            candidates = [f for f in found if self.can_split(rule, f, (*chosen.get(f, ()), axis))]
            options: list[str | None] = [*candidates]
            if not operands or all(f in rule.inside for f in candidates):
                options.append(None)
            trials = [chosen if f is None else {**chosen, f: (*chosen.get(f, ()), axis)} for f in options]
            chosen = trials[0] if len(trials) == 1 else self.cheapest(equation, rule, trials)
        return {f: axes if len(axes) < 2 else self.as_operands(equation, rule, f, axes) for f, axes in chosen.items()}

    def cheapest(self, equation: Equation, rule: ShardingRule, trials: Sequence[Chosen]) -> Chosen:
        """Return the cheapest of several ways to split an operation. What the next operations need is not known: by one
        estimate results are resharded as propagation wants them at once, by the other they stay as they are."""
        first = min(trials, key=lambda t: self.cost(equation, rule, t))
        second = min(trials, key=lambda t: self.cost(equation, rule, t, stays=True))
        self.log.doubts += first is not second
        return second if self.log.stays else first

    def as_operands(
        self, equation: Equation, rule: ShardingRule, factor: str, axes: tuple[Any, ...]
    ) -> tuple[Any, ...]:
        """Order axes as in the first operand that is split over all of them."""
        for i, d in rule.dims[factor]:
            a = equation.invars[i] if i < rule.operands else None
            if type(a) is Var and set(self.at[a][d]) == set(axes):
                return self.at[a][d]
        return axes

    def can_split(self, rule: ShardingRule, factor: str, axes: tuple[Any, ...]) -> bool:
        """Return whether a factor of an operation can be split over axes."""
        if factor in rule.reach:
            return fits(rule, factor, axes, self.sizes, self.shardings.pads)
        size = rule.sizes[factor]
        return size % count_shards(axes, self.sizes) == 0 or (
            factor not in rule.even and can_split(size, axes, self.sizes, self.shardings.pads)
        )

    def cost(self, equation: Equation, rule: ShardingRule, chosen: Chosen, stays: bool = False) -> float:
        """Estimate the seconds of resharding operands and results, and of the work of one device. A result that `stays`
        is only summed, and messages have no latency."""
        latency, seconds = 0.0 if stays else LATENCY, 0.0
        for a, names in zip(equation.invars, rule.operand_names, strict=True):
            if type(a) is Var:
                seconds += self.operand_cost(a, dims_for(names, chosen), latency)
        summed, how = rule.sums(chosen)
        if summed or not (stays or expands(equation)):
            for v, names in zip(equation.outvars, rule.result_names, strict=True):
                seconds += self.transfer_cost(v, dims_for(names, chosen), self.target(v), summed, how, latency)
        for factor, slices in rule.inside.items():
            seconds += self.inside_cost(equation, rule, factor, slices, chosen)
        rounds, count = halo_traffic(equation, rule, chosen, self.sizes) if rule.reach else (0, 0)
        seconds += LATENCY * rounds + count / LINK
        touched = sum(
            byte_count(v.aval) for v in (*equation.invars, *equation.outvars) if isinstance(v.aval, ArrayType)
        )
        work = touched / MEMORY + equation.primitive.flops(equation) / FLOPS
        return seconds + work / math.prod(count_shards(axes, self.sizes) for axes in chosen.values())

    def inside_cost(
        self, equation: Equation, rule: ShardingRule, factor: str, slices: int, chosen: Mapping[str, tuple[Any, ...]]
    ) -> float:
        """Estimate the seconds of an operation's own communication: slices of its first operand to all devices."""
        count = count_shards(chosen.get(factor, ()), self.sizes)
        if count == 1 or not slices or not rule.sizes[factor]:
            return 0.0
        parts = math.prod(count_shards(axes, self.sizes) for axes in dims_for(rule.names[0], chosen))
        size = byte_count(equation.invars[0].aval) / rule.sizes[factor] * count / parts
        return LATENCY + size * slices * (count - 1) / LINK

    def operand_cost(self, a: Var, dims: Dims, latency: float = LATENCY) -> float:
        """Estimate the seconds until an operand is split as `dims`."""
        if self.at[a] == dims or (a, dims) in self.copies:
            return 0.0
        chosen = self.expansion(a, dims)
        if chosen is None:
            return self.transfer_cost(a, self.at[a], dims, latency=latency)
        equation = self.defined_by[a]
        operands = zip(equation.invars, self.shardings.rules[equation].operand_names, strict=True)
        return sum(self.operand_cost(b, dims_for(names, chosen), latency) for b, names in operands if type(b) is Var)

    def transfer_cost(
        self,
        v: Any,
        src: Dims,
        dst: Dims,
        unreduced: Sequence[Any] = (),
        how: str = "sum",
        latency: float = LATENCY,
    ) -> float:
        """Estimate the seconds of a resharding."""
        transfers = reshard(v.aval, src, dst, self.sizes, unreduced, how)
        return sum(latency + m.bytes / LINK for m in transfers if m.kind != "slice")

    # -- bodies --------------------------------------------------------------------------------------------------------

    def shard_map(self, equation: Equation) -> None:
        """Inline the body of a `shard_map`, which is local along its manual axes already."""
        params = equation.params
        body: Jaxpr = params["jaxpr"]
        inner = BodyPartitioner(
            self.shardings, self.sizes, self.log, self.times, self.manual | params["manual_axes"], self.verifies
        )
        args, dims = [], []
        for a, v, spec in zip(equation.invars, body.invars, params["in_specs"], strict=True):
            manual = spec_dims(spec, get_rank(v.aval))
            own = within_manual(v.aval, manual, self.target(v), self.sizes)
            split = tuple((*m, *o) for m, o in zip(manual, own, strict=True))
            terms = self.in_order(spec.unreduced)
            reason = f"{operation(equation)} needs it"
            args.append(self.carry(a, split, terms, equation) if terms else self.value(a, split, equation, reason))
            dims.append(own)
        inner.define(zip(body.invars, args, strict=True), dims)
        inner.define(zip(body.constvars, body.consts, strict=True), [whole(v.aval) for v in body.constvars])
        inner.run(body)
        for v, a, spec in zip(equation.outvars, body.outvars, params["out_specs"], strict=True):
            manual = spec_dims(spec, get_rank(a.aval))
            own = self.target(a) if type(a) is Var else whole(a.aval)
            own = within_manual(a.aval, manual, own, self.sizes)
            self.values[v] = inner.value(a, own, equation, f"{operation(equation)} returns it")
            self.at[v] = tuple((*m, *o) for m, o in zip(manual, own, strict=True))
            if terms := self.in_order(spec.unreduced):
                self.unreduced[v] = terms, equation
                if not self.may_defer(v, terms):
                    self.reduce(v)

    def in_order(self, axes: Collection[Any]) -> tuple[Any, ...]:
        """Return axes in the order of the mesh."""
        return tuple(axis for axis in self.sizes if axis in axes)

    def control(self, equation: Equation) -> None:
        """Bind a loop or a conditional on shards. Arguments and results of bodies have the shardings of propagation, so
        that carries are split alike before and after an iteration."""
        primitive: Any = equation.primitive
        mapping = primitive.body_map(equation.params)
        operands: list[Dims] = [whole(a.aval) for a in equation.invars]
        for body, arguments in zip(mapping.bodies, mapping.arguments, strict=True):
            for v, i in zip(body.invars, arguments, strict=True):
                if i is not None:
                    own = self.argument_dims(mapping, body, v)
                    operands[i if i >= 0 else ~i] = own if i >= 0 else ((), *own)
        reason = f"{operation(equation)} has it"
        results, wanted_results = self.result_dims(equation, mapping)
        bodies, partitioners, log = self.local_bodies(equation, mapping, wanted_results, {})
        waiting = carries.candidates(mapping, partitioners)
        while waiting:
            bodies, partitioners, log = self.local_bodies(equation, mapping, wanted_results, waiting)
            left = {c: own for c, own in waiting.items() if carries.leaves(mapping, partitioners, c, own[0])}
            if left == waiting:
                break
            waiting = left
            if not waiting:
                bodies, partitioners, log = self.local_bodies(equation, mapping, wanted_results, {})
        begins = {mapping.arguments[b][argument]: axes for (b, argument, _), (axes, _) in waiting.items()}
        args = [
            self.carry(a, dims, begins[i], equation) if i in begins else self.value(a, dims, equation, reason)
            for i, (a, dims) in enumerate(zip(equation.invars, operands, strict=True))
        ]
        self.log.extend(log)
        outs = primitive(*args, **primitive.with_bodies(bodies, equation.params))
        for v, x, dims in zip(equation.outvars, outs, results, strict=True):
            self.values[v], self.at[v] = x, dims
        leaving = {k: (c[0], c[2]) for c in waiting for k in carries.carry_results(mapping, c)}
        for k, (b, i) in {**carries.stack_results(mapping), **leaving}.items():
            inner = mapping.bodies[b].outvars[i]
            if inner in partitioners[b].unreduced:
                v = equation.outvars[k]
                self.unreduced[v] = partitioners[b].unreduced[inner]
                if not self.may_defer(v, self.unreduced[v][0]):
                    self.reduce(v)

    def carry(self, a: Atom, dims: Dims, axes: tuple[Any, ...], equation: Equation) -> Any:
        """Return the first value of a carry that is unreduced over axes."""
        if type(a) is Var and a in self.unreduced and self.unreduced[a][0] == axes and self.at[a] == dims:
            return self.values[a]
        x = self.value(a, dims, equation, f"{operation(equation)} has it")
        return x if carries.is_zero(a, self.defined_by) else carries.on_first(x, axes, self.sizes)

    def local_bodies(
        self,
        equation: Equation,
        mapping: BodyMap,
        results: Sequence[Sequence[Dims]],
        waiting: Mapping[carries.Carry, carries.PendingSum],
    ) -> tuple[list[Jaxpr], list[BodyPartitioner], CommunicationLog]:
        """Partition the bodies of a loop or a conditional; return them with their partitioners and a log. The carries
        in `waiting` are unreduced, and stacked results may be."""
        log = CommunicationLog(self.log.reasons, self.log.stays)
        bodies, partitioners = [], []
        for b, (body, outs) in enumerate(zip(mapping.bodies, results, strict=True)):
            times = self.times * iterations(equation)
            inner = BodyPartitioner(self.shardings, self.sizes, log, times, self.manual, self.verifies)
            for (own, argument, result), total in waiting.items():
                if own == b:
                    inner.unreduced[body.invars[argument]] = total
                    inner.leaving[body.outvars[result]] = total[0]
            stacked = [body.outvars[i] for own, i in carries.stack_results(mapping).values() if own == b]
            inner.leaving.update({v: None for v in stacked if type(v) is Var})
            dims = [self.argument_dims(mapping, body, v) for v in body.invars]
            bodies.append(self.local_body(inner, body, dims, outs, equation))
            partitioners.append(inner)
        return bodies, partitioners, log

    def argument_dims(self, mapping: BodyMap, body: Jaxpr, v: Var) -> Dims:
        """Return the sharding of a body's argument. Arguments of several bodies that are one operand are split as in
        the last body."""
        last = mapping.bodies[-1]
        if body is last:
            return self.target(v)
        mine = mapping.arguments[mapping.bodies.index(body)][body.invars.index(v)]
        theirs = mapping.arguments[-1]
        return self.target(last.invars[theirs.index(mine)]) if mine in theirs else self.target(v)

    def result_dims(self, equation: Equation, mapping: BodyMap) -> tuple[list[Dims], list[list[Dims]]]:
        """Return the shardings of the results of an equation, and those of its bodies' results."""
        inner: list[list[Dims]] = [[self.target(v) for v in body.outvars] for body in mapping.bodies]
        for b, argument, result in mapping.carries:
            inner[b][result] = self.argument_dims(mapping, mapping.bodies[b], mapping.bodies[b].invars[argument])
        outs: list[Dims] = []
        for sources in mapping.results:
            b, i, stacked = sources[0]
            for other, j, _ in sources[1:]:
                inner[other][j] = inner[b][i]
            outs.append(((), *inner[b][i]) if stacked else inner[b][i])
        for b in mapping.predicates:  # all devices need the predicate
            inner[b] = [whole(v.aval) for v in mapping.bodies[b].outvars]
        return outs, inner

    def local_body(
        self, inner: BodyPartitioner, body: Jaxpr, dims: Sequence[Dims], outs: Sequence[Dims], equation: Equation
    ) -> Jaxpr:
        """Stage the local equations of a body with these shardings of arguments and results."""
        types = [local_type(v.aval, own, self.sizes) for v, own in zip(body.invars, dims, strict=True)]

        def local(*args: Any) -> list[Any]:
            inner.define(zip(body.invars, args, strict=True), dims)
            inner.define(zip(body.constvars, body.consts, strict=True), [whole(v.aval) for v in body.constvars])
            inner.run(body)
            reason = f"{operation(equation)} has it"
            inner.log.found.update(inner.at)
            ends = zip(body.outvars, outs, strict=True)
            inner.log.resharded_results += sum(type(v) is Var and inner.at[v] != own for v, own in ends)
            return [
                inner.values[v]
                if type(v) is Var and v in inner.leaving and v in inner.unreduced and inner.at[v] == own
                else inner.value(v, own, equation, reason)
                for v, own in zip(body.outvars, outs, strict=True)
            ]

        return stage_subjaxpr(local, types, name=body.name)


def expands(equation: Equation) -> bool:
    """Return whether an operation only repeats elements of a smaller operand, or makes them of none: to split it in
    another way is cheaper than to reshard its result."""
    if not equation.invars:
        return len(equation.outvars) == 1
    if equation.primitive.copies != "all" or len(equation.outvars) != 1:
        return False
    types: list[Any] = [a.aval for a in (*equation.invars, *equation.outvars)]
    return len(types) == 2 and byte_count(types[0]) < byte_count(types[1])


def iterations(equation: Equation) -> int:
    """Return how many times bodies run, or 1 if that is not known."""
    count = equation.primitive.iterations(equation.params)  # type: ignore[attr-defined]
    return count if isinstance(count, int) else 1


def factors_split(
    values: Sequence[Atom], groups: Sequence[Sequence[str | None]], dims: Mapping[Var, Dims]
) -> dict[Any, dict[str, None]]:
    """Return for each axis the factors along which some values are split over it."""
    found: dict[Any, dict[str, None]] = {}
    for v, names in zip(values, groups, strict=True):
        own = dims.get(v) if type(v) is Var else None
        if own is not None:
            for name, axes in zip(names, own, strict=True):
                if axes and name is not None:
                    for axis in axes:
                        found.setdefault(axis, {})[name] = None
    return found


def dims_for(names: Sequence[str | None], chosen: Mapping[Any, tuple[Any, ...]]) -> Dims:
    """Return the sharding of a value whose dimensions have these factors."""
    return tuple([chosen.get(name, ()) for name in names])
