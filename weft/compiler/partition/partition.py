"""The local jaxpr: every equation on the parts of one device, with the collectives that this takes.

Equations are visited once, in order. For each value it is known how it is split now (`at`) and over which axes it is
unreduced. An equation is split over an axis only where one of its operands or results is already; where several of its
factors are, the cheaper one is taken, by the bytes that operands and results would have to be sent for it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from weft.base.dataclass import dataclass
from weft.base.settings import config
from weft.compiler.partition import carries
from weft.compiler.partition.carries import can_wait
from weft.compiler.partition.halo import check_halos, fits, sent, why_gathered
from weft.compiler.partition.propagate import Propagation
from weft.compiler.partition.reasons import Collective, Reasons, operation
from weft.compiler.partition.reshard import Transfer, apply, reshard
from weft.compiler.partition.rules import (
    Dims,
    Rule,
    local_shape,
    parts_of,
    rank_of,
    whole,
)
from weft.compiler.partition.terms import first_term
from weft.compiler.partition.uneven import (
    can_split,
    cleared,
    evened,
    splittable,
    why_even,
    with_neutral_ends,
    within_manual,
)
from weft.compiler.partition.verify import check_axes, check_operation, check_value, manual_axes, verify_local
from weft.ir.body_map import BodyMap
from weft.ir.context import context, join_stacks
from weft.ir.interpreter import literal
from weft.ir.jaxpr import Atom, Equation, Jaxpr, Literal, Var, subjaxprs
from weft.ir.kinds import Resharding
from weft.ir.parts import Parts, byte_count
from weft.ir.primitive import Primitive
from weft.ir.types import ArrayType, array_type, get_aval
from weft.primitives.control.inspect_sharding import inspect_sharding
from weft.primitives.control.shard_map import shard_map
from weft.primitives.movement.terms import unsum
from weft.sharding.routes import LATENCY, LINK
from weft.sharding.spec import UNCONSTRAINED, dims_of, rename_axes
from weft.trace.closed import stage_subjaxpr

# What costs are compared by, besides collectives: bytes a second of memory, flops a second.
MEMORY, FLOPS = 1e10, 5e10


@dataclass
class Partitioned:
    """The jaxpr that each device runs; how its arguments and results are split; what it communicates."""

    jaxpr: Jaxpr
    in_dims: list[Dims]
    out_dims: list[Dims]
    communication: list[Collective]
    # What is to be told how values are split, and how they are.
    inspected: list[tuple[Callable[[Any], None], Dims]]


def partition(
    jaxpr: Jaxpr,
    sizes: Mapping[Any, int],
    in_dims: Sequence[Dims | None],
    out_dims: Sequence[Dims | None],
    stored: Sequence[bool] = (),
    names: Sequence[str] = (),
    evenly: bool = False,
) -> Partitioned:
    """The local jaxpr of a jaxpr without calls, on a mesh whose axes have these sizes. Arguments and results are split
    as `in_dims` and `out_dims` say, or, where that is None, as it turns out. Arguments that are `stored` are split for
    memory's sake; `names` are those of arguments, for reasons. Arguments and results of which nobody says how they are
    split may be to be split `evenly`."""
    shardings = Propagation(jaxpr, sizes)
    for i, (v, dims) in enumerate(zip(jaxpr.invars, in_dims, strict=True)):
        if dims is not None:
            shardings.fix(v, dims, stored=i < len(stored) and stored[i])
    for v in jaxpr.constvars:
        shardings.fix(v, whole(v.aval))
    for result, dims in zip(jaxpr.outvars, out_dims, strict=True):
        if dims is not None and type(result) is Var and result not in shardings.dims:
            shardings.fix(result, dims, stored=bool(stored), said="result")
    fix_constraints(shardings, jaxpr)
    shardings.run()
    if config.enable_checks:
        for v, own in shardings.dims.items():
            check_axes(v, own, (), sizes)
    ends = evened if evenly else lambda aval, dims, sizes: dims
    found = [ends(v.aval, shardings[v], sizes) for v in jaxpr.invars]
    log = Log(Reasons(shardings, names))
    split: list[Dims] = []

    def local(*args: Any) -> list[Any]:
        block = Block(shardings, sizes, log)
        args = tuple(cleared(x, v.aval, dims, sizes) for x, v, dims in zip(args, jaxpr.invars, found, strict=True))
        block.define(zip(jaxpr.invars, args, strict=True), found)
        block.define(zip(jaxpr.constvars, jaxpr.consts, strict=True), [whole(v.aval) for v in jaxpr.constvars])
        block.run(jaxpr)
        outs = []
        for v, dims in zip(jaxpr.outvars, out_dims, strict=True):
            split.append(ends(v.aval, block.target(v), sizes) if dims is None else dims)
            outs.append(block.value(v, split[-1], None, "as a result it is to be"))
        return outs

    types = [local_type(v.aval, dims, sizes) for v, dims in zip(jaxpr.invars, found, strict=True)]
    staged = stage_subjaxpr(local, types, name=jaxpr.name)
    if config.enable_checks:
        verify_local(staged, found, split, jaxpr.out_avals, sizes, manual_axes(jaxpr), unsummed_axes(jaxpr))
    return Partitioned(staged, found, split, log.communication, log.inspected)


def unsummed_axes(jaxpr: Jaxpr) -> list[frozenset[Any]]:
    """Return, for each result, the axes along which its parts are the terms of a sum."""
    found = {e.outvars[0]: frozenset(e.params["axes"]) for e in jaxpr.eqns if e.primitive is unsum}
    return [found.get(v, frozenset()) if type(v) is Var else frozenset() for v in jaxpr.outvars]


def fix_constraints(shardings: Propagation, jaxpr: Jaxpr) -> None:
    """Fix what `sharding_constraint`s say, in bodies too, and begin with what specs of `shard_map` say."""
    for equation in jaxpr.memoize("constraining", lambda: list(filter(constrains, jaxpr.eqns))):
        primitive = equation.primitive
        spec = primitive.user_spec(equation.params) if isinstance(primitive, Resharding) else None
        if spec is not None:
            (v,) = equation.outvars
            named: Any = equation.params["sharding"]
            own = rename_axes(dims_of(spec, rank_of(v.aval)), named.mesh.shape, shardings.sizes)
            if own is None:  # axes of another mesh that those of this one cannot express
                continue
            dims = splittable(v.aval, own, shardings.sizes)
            if any(e is UNCONSTRAINED for e in spec.partitions):
                shardings.begin(v, dims, said="constraint")
            else:
                shardings.fix(v, dims, said="constraint")
        if primitive is shard_map:
            for values, specs in ((equation.invars, "in_specs"), (equation.outvars, "out_specs")):
                for a, own in zip(values, equation.params[specs], strict=True):
                    if type(a) is Var:
                        shardings.begin(a, dims_of(own, rank_of(a.aval)))
        for body in subjaxprs(equation.params):
            fix_constraints(shardings, body)


def constrains(equation: Equation) -> bool:
    """Whether an equation, or one in its bodies, may say how values are split."""
    primitive, params = equation.primitive, equation.params
    return (isinstance(primitive, Resharding) and primitive.user_spec(params) is not None) or bool(subjaxprs(params))


def local_type(aval: Any, dims: Dims, sizes: Mapping[Any, int]) -> Any:
    """The type of one part."""
    if not isinstance(aval, ArrayType):
        return aval
    return array_type(local_shape(aval.shape, dims, sizes), aval.dtype, aval.weak_type)


class Log:
    """What becomes known on the way: collectives, and the shardings that somebody wants to see."""

    def __init__(self, reasons: Reasons) -> None:
        self.reasons = reasons
        self.communication: list[Collective] = []
        self.inspected: list[tuple[Callable[[Any], None], Dims]] = []

    def extend(self, other: Log) -> None:
        self.communication += other.communication
        self.inspected += other.inspected


class Block:
    """Binds the local equations of a jaxpr, or of a body, under the active trace. Its equations run `times` often."""

    def __init__(
        self,
        shardings: Propagation,
        sizes: Mapping[Any, int],
        log: Log,
        times: float = 1.0,
        manual: frozenset[Any] = frozenset(),
    ) -> None:
        self.shardings, self.sizes, self.log, self.times = shardings, sizes, log, times
        # Axes that are split by hand here: each device along them has a body of its own.
        self.manual = manual
        self.shared = {a: n for a, n in sizes.items() if a not in manual}
        self.at: dict[Var, Dims] = {}
        self.values: dict[Var, Any] = {}
        # Values that are still to be summed: over which axes, and for which equation.
        self.unreduced: dict[Var, tuple[tuple[Any, ...], Equation]] = {}
        # Values whose sums were done here, and results whose sums may be done by who gets them: over which axes.
        self.reduced: dict[Var, tuple[tuple[Any, ...], Equation]] = {}
        self.leaving: dict[Var, tuple[Any, ...] | None] = {}
        self.copies: dict[tuple[Var, Dims], Any] = {}
        self.received: dict[Any, tuple[Any, Any]] = {}  # edges of the parts of others
        self.uses: dict[Var, list[Equation | None]] = {}
        self.defined_by: dict[Var, Equation] = {}

    def define(self, pairs: Any, dims: Sequence[Dims]) -> None:
        """Values that are there from the beginning, and how they are split."""
        for (v, value), own in zip(pairs, dims, strict=True):
            self.values[v], self.at[v] = value, own

    def target(self, v: Atom) -> Dims:
        """How propagation splits a value."""
        return self.shardings[v]

    def run(self, jaxpr: Jaxpr) -> None:
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
                else:
                    self.operation(equation)
                if config.enable_checks:
                    for v in equation.outvars:
                        unreduced = self.unreduced[v][0] if v in self.unreduced else ()
                        check_value(v, self.at[v], unreduced, get_aval(self.values[v]), self.sizes, equation)
        finally:
            context.source, context.stack = source, stack

    # -- values ------------------------------------------------------------------------------------------------------

    def value(self, atom: Atom, dims: Dims, equation: Equation | None, reason: str, note: str = "") -> Any:
        """A value split in a certain way: as it is, or resharded, once for all that want it so."""
        if type(atom) is Literal:
            return literal(atom)
        assert type(atom) is Var
        if atom in self.unreduced:
            self.reduce(atom)
        if self.at[atom] == dims:
            return self.values[atom]
        if (atom, dims) in self.copies:
            return self.copies[atom, dims]
        x, at = self.values[atom], self.at[atom]
        for transfer in reshard(atom.aval, at, dims, self.sizes):
            at = transfer.after(at)  # others may have wanted it as it is on the way
            if transfer.inner:
                x = self.resharded(x, [transfer], atom, dims, equation, reason, note)
                continue
            if (atom, at) not in self.copies:
                self.copies[atom, at] = self.resharded(x, [transfer], atom, dims, equation, reason, note)
            x = self.copies[atom, at]
        return x

    def resharded(
        self,
        x: Any,
        transfers: Sequence[Transfer],
        v: Var,
        dims: Dims,
        equation: Equation | None,
        reason: str,
        note: str = "",
    ) -> Any:
        """A value after some collectives, which are for an equation that wants it split as `dims`."""
        for transfer in transfers:
            if transfer.kind != "slice":
                why = self.log.reasons.because(transfer.kind, transfer.axis, v, dims, equation, reason) + note
                self.report(transfer.kind, transfer.axis, transfer.bytes, self.log.reasons.name(v), equation, why)
        return apply(x, transfers, self.sizes, v.aval.shape)  # type: ignore[attr-defined]

    def report(self, kind: str, axis: Any, size: float, value: str, equation: Equation | None, reason: str) -> None:
        """Note a collective."""
        line = None if equation is None else equation.source
        self.log.communication.append(Collective(kind, axis, size, value, line, reason, self.times))

    def reduce(self, v: Var) -> None:
        """Do the sums of a value that have waited until now."""
        axes, equation = self.reduced[v] = self.unreduced.pop(v)
        wanted = self.target(v)
        transfers = reshard(v.aval, self.at[v], wanted, self.sizes, axes)
        reason = f"{operation(equation)} sums over a split dimension"
        self.values[v] = self.resharded(self.values[v], transfers, v, wanted, equation, reason)
        self.at[v] = wanted

    # -- operations --------------------------------------------------------------------------------------------------

    def operation(self, equation: Equation) -> None:
        """One operation on parts: operands are resharded as its factors need them, and what it sums over split
        dimensions is combined, now or where the sum is first needed."""
        rule = self.shardings.rules[equation]
        if equation.primitive is unsum:
            self.unsum(equation)
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
        if config.enable_checks:
            check_operation(equation, rule, chosen, axes)
            check_halos(equation, rule, chosen, self.sizes)
        if axes:
            args = [
                literal(a) if type(a) is Literal else self.unsummed(a, wanted(names, chosen), equation)
                for a, names in zip(equation.invars, rule.operand_names, strict=True)
            ]
        else:
            args = [
                self.operand(i, a, wanted(names, chosen), equation, rule)
                for i, (a, names) in enumerate(zip(equation.invars, rule.operand_names, strict=True))
            ]
        results = self.bind(equation, rule, chosen, args)
        if equation.primitive.named_axes(equation.params):
            pairs = zip(equation.invars, rule.operand_names, strict=True)
            size = sum(byte_count(local_type(a.aval, wanted(names, chosen), self.sizes)) for a, names in pairs)
            written = self.log.reasons.written(equation, self.sizes, size, self.times)
            self.log.communication += [] if written is None else [written]
        summed, how = rule.sums(chosen)
        for v, names, x in zip(equation.outvars, rule.result_names, results, strict=True):
            self.values[v], self.at[v] = x, wanted(names, chosen)
            if how != "sum":
                transfers = reshard(v.aval, self.at[v], self.at[v], self.sizes, summed, how)
                reason = f"{operation(equation)} is over a split dimension"
                self.values[v] = self.resharded(x, transfers, v, self.at[v], equation, reason)
            elif summed or axes:
                self.unreduced[v] = ((*axes, *summed), origin)
                if config.enable_checks:
                    check_value(v, self.at[v], self.unreduced[v][0], get_aval(x), self.sizes, equation)
                if not self.may_wait(v, (*axes, *summed)):
                    self.reduce(v)

    def unsum(self, equation: Equation) -> None:
        """What each device has of a sum that is still to be done; if it is done, the first device has it, and the
        others have zeros."""
        (a,), (v,), axes = equation.invars, equation.outvars, equation.params["axes"]
        goal, dims = self.target(v)[: len(axes)], self.target(v)[len(axes) :]
        own = tuple(self.sizes.get(axis) for axis in axes)
        if goal != tuple((axis,) for axis in axes) or own != equation.params["sizes"]:  # nobody wants terms on devices
            define: Any = equation.primitive.definition
            x = self.value(a, dims, equation, f"{operation(equation)} needs it")
            self.values[v], self.at[v] = define(x, **equation.params), (*((),) * len(axes), *dims)
            return
        waiting = self.unreduced[a][0] if type(a) is Var and a in self.unreduced else ()
        if waiting and set(waiting) <= set(axes):
            x = self.unsummed(a, dims, equation)  # it may be used elsewhere, where it is summed
        else:
            x, waiting = self.value(a, dims, equation, "as a result it is to be"), ()
        self.values[v] = first_term(x, [axis for axis in axes if axis not in waiting], len(axes))
        self.at[v] = (*goal, *dims)

    def operand(self, i: int, a: Atom, dims: Dims, equation: Equation, rule: Rule) -> Any:
        """An operand of an operation, split as it needs it. Texts are for what has to be sent only."""
        if type(a) is Var and a not in self.unreduced and self.at[a] == dims:
            return self.values[a]
        if type(a) is Literal:
            return literal(a)
        reasons = (why_gathered, why_even) if type(a) is Var else ()
        notes = (why(rule, i, self.at[a], dims, self.sizes) for why in reasons)  # type: ignore[index]
        note = next(filter(None, notes), rule.why_whole(i))
        return self.value(a, dims, equation, f"{operation(equation)} needs it", note)

    def unsummed(self, a: Atom, dims: Dims, equation: Equation) -> Any:
        """An operand whose sum goes on waiting."""
        assert type(a) is Var
        if self.at[a] == dims:
            return self.values[a]
        transfers = reshard(a.aval, self.at[a], dims, self.sizes)
        return self.resharded(self.values[a], transfers, a, dims, equation, f"{operation(equation)} needs it")

    def bind(self, equation: Equation, rule: Rule, chosen: dict[str, tuple[Any, ...]], args: Sequence[Any]) -> Any:
        """The operation on parts."""
        primitive: Any = equation.primitive
        if not chosen and type(primitive).bind_local is Primitive.bind_local:
            out = primitive(*args, **equation.params)
            return out if primitive.multiple_results else [out]
        results = [
            local_type(v.aval, wanted(names, chosen), self.sizes)
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
        """The axes over which the results are unreduced if the operands' sums go on waiting; None if they cannot. They
        can where the operation is linear: of one operand, or a sum of operands that are unreduced alike."""
        if not waiting:
            return None
        axes = self.unreduced[waiting[0]][0]
        if not can_wait(equation) or any(self.unreduced[a][0] != axes for a in waiting):
            return None
        if len(waiting) == 1 and sum(type(a) is Var for a in equation.invars) == 1:
            return axes
        both = all(type(a) is Var and a in self.unreduced for a in equation.invars)
        return axes if both and len({self.at[a] for a in equation.invars}) == 1 else None  # type: ignore[index]

    def may_wait(self, v: Var, axes: tuple[Any, ...]) -> bool:
        """Whether the sum of a value can wait: its only use is linear, and will have nothing that is already summed."""
        users = self.uses.get(v, [])
        if len(users) != 1:
            return False
        user = users[0]
        if user is None:
            return v in self.leaving and (axes == self.leaving[v] or carries.may_leave(self.target(v), axes))
        if "in_specs" in user.params:  # a body that takes the terms
            spec = user.params["in_specs"][user.invars.index(v)]
            return user.invars.count(v) == 1 and set(axes) == spec.unreduced
        if not can_wait(user):
            return False
        others = [a for a in user.invars if a is not v and type(a) is Var]
        if len(others) > 1 or (others and len(user.invars) > 2):
            return False
        if not others:
            return user.invars.count(v) == 1
        known = self.unreduced.get(others[0])
        return self.will_wait(others[0], axes) if known is None else known[0] == axes

    def will_wait(self, v: Var, axes: tuple[Any, ...]) -> bool:
        """Whether a value that is not there yet will be unreduced over these axes: it is a sum over a dimension that
        is split over them, or a linear function of one."""
        equation = self.defined_by.get(v)
        if v in self.values or equation is None or equation.primitive.higher_order or len(self.uses.get(v, ())) != 1:
            return False
        operands = [a for a in equation.invars if type(a) is Var]
        if len(operands) == 1 and can_wait(equation):
            known = self.unreduced.get(operands[0])
            return self.will_wait(operands[0], axes) if known is None else known[0] == axes
        rule = self.shardings.rules[equation]
        for a, names in zip(equation.invars, rule.operand_names, strict=True):
            if type(a) is Var:
                for name, own in zip(names, self.at.get(a, self.target(a)), strict=True):
                    if name is not None and own == axes and rule.combine.get(name) == "sum":
                        return name not in rule.results
        return False

    def choose(self, equation: Equation, rule: Rule, taken: Sequence[Any]) -> dict[str, tuple[Any, ...]]:
        """Over which axes each factor is split."""
        chosen: dict[str, tuple[Any, ...]] = {}
        by_operands = factors_split(equation.invars, rule.operand_names, self.at)
        by_results = factors_split(equation.outvars, rule.result_names, self.shardings.dims)
        if not by_operands and not by_results:
            return chosen
        for axis in self.sizes:
            if axis in taken:  # an axis over which a sum is waiting splits nothing
                continue
            operands = by_operands.get(axis)
            found = operands or by_results.get(axis, {})
            candidates = [f for f in found if self.can_split(rule, f, (*chosen.get(f, ()), axis))]
            options: list[str | None] = [*candidates]
            if not operands or all(f in rule.inside for f in candidates):
                options.append(None)
            trials = [chosen if f is None else {**chosen, f: (*chosen.get(f, ()), axis)} for f in options]
            chosen = trials[0] if len(trials) == 1 else min(trials, key=lambda t: self.cost(equation, rule, t))
        return {f: axes if len(axes) < 2 else self.as_operands(equation, rule, f, axes) for f, axes in chosen.items()}

    def as_operands(self, equation: Equation, rule: Rule, factor: str, axes: tuple[Any, ...]) -> tuple[Any, ...]:
        """Some axes in the order in which the first operand that is split over all of them is."""
        for i, d in rule.dims[factor]:
            a = equation.invars[i] if i < rule.operands else None
            if type(a) is Var and set(self.at[a][d]) == set(axes):
                return self.at[a][d]
        return axes

    def can_split(self, rule: Rule, factor: str, axes: tuple[Any, ...]) -> bool:
        if factor in rule.reach:
            return fits(rule, factor, axes, self.sizes)
        size = rule.sizes[factor]
        return size % parts_of(axes, self.sizes) == 0 or (factor not in rule.even and can_split(size, axes, self.sizes))

    def cost(self, equation: Equation, rule: Rule, chosen: dict[str, tuple[Any, ...]]) -> float:
        """Seconds, roughly: resharding operands and results, and the work of one device."""
        seconds = 0.0
        for a, names in zip(equation.invars, rule.operand_names, strict=True):
            if type(a) is Var:
                seconds += self.transfer_cost(a, self.at[a], wanted(names, chosen))
        summed, how = rule.sums(chosen)
        for v, names in zip(equation.outvars, rule.result_names, strict=True):
            seconds += self.transfer_cost(v, wanted(names, chosen), self.target(v), summed, how)
        for factor, slices in rule.inside.items():
            seconds += self.inside_cost(equation, rule, factor, slices, chosen)
        rounds, count = sent(equation, rule, chosen, self.sizes) if rule.reach else (0, 0)
        seconds += LATENCY * rounds + count / LINK
        touched = sum(
            byte_count(v.aval) for v in (*equation.invars, *equation.outvars) if isinstance(v.aval, ArrayType)
        )
        work = touched / MEMORY + equation.primitive.flops(equation) / FLOPS
        return seconds + work / math.prod(parts_of(axes, self.sizes) for axes in chosen.values())

    def inside_cost(
        self, equation: Equation, rule: Rule, factor: str, slices: int, chosen: Mapping[str, tuple[Any, ...]]
    ) -> float:
        """Seconds for what an operation sends by itself: slices of its first operand along a factor, to all others."""
        count = parts_of(chosen.get(factor, ()), self.sizes)
        if count == 1 or not slices or not rule.sizes[factor]:
            return 0.0
        parts = math.prod(parts_of(axes, self.sizes) for axes in wanted(rule.names[0], chosen))
        size = byte_count(equation.invars[0].aval) / rule.sizes[factor] * count / parts
        return LATENCY + size * slices * (count - 1) / LINK

    def transfer_cost(self, v: Any, src: Dims, dst: Dims, unreduced: Sequence[Any] = (), how: str = "sum") -> float:
        transfers = reshard(v.aval, src, dst, self.sizes, unreduced, how)
        return sum(LATENCY + m.bytes / LINK for m in transfers if m.kind != "slice")

    # -- bodies --------------------------------------------------------------------------------------------------------

    def shard_map(self, equation: Equation) -> None:
        """A body that is local along its manual axes already: its equations are bound here."""
        params = equation.params
        body: Jaxpr = params["jaxpr"]
        inner = Block(self.shardings, self.sizes, self.log, self.times, self.manual | params["manual_axes"])
        args, dims = [], []
        for a, v, spec in zip(equation.invars, body.invars, params["in_specs"], strict=True):
            manual = dims_of(spec, rank_of(v.aval))
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
            manual = dims_of(spec, rank_of(a.aval))
            own = self.target(a) if type(a) is Var else whole(a.aval)
            own = within_manual(a.aval, manual, own, self.sizes)
            self.values[v] = inner.value(a, own, equation, f"{operation(equation)} returns it")
            self.at[v] = tuple((*m, *o) for m, o in zip(manual, own, strict=True))
            if terms := self.in_order(spec.unreduced):
                self.unreduced[v] = terms, equation
                if not self.may_wait(v, terms):
                    self.reduce(v)

    def in_order(self, axes: Collection[Any]) -> tuple[Any, ...]:
        """A set of axes in the order of the mesh."""
        return tuple(axis for axis in self.sizes if axis in axes)

    def control(self, equation: Equation) -> None:
        """A loop or a branch: what goes into bodies and comes out of them is split as propagation says, so that carries
        are split alike before and after."""
        primitive: Any = equation.primitive
        carried = primitive.body_map(equation.params)
        operands: list[Dims] = [whole(a.aval) for a in equation.invars]
        for body, arguments in zip(carried.bodies, carried.arguments, strict=True):
            for v, i in zip(body.invars, arguments, strict=True):
                if i is not None:
                    own = self.argument_dims(carried, body, v)
                    operands[i if i >= 0 else ~i] = own if i >= 0 else ((), *own)
        reason = f"{operation(equation)} has it"
        results, wanted_results = self.result_dims(equation, carried)
        bodies, blocks, log = self.local_bodies(equation, carried, wanted_results, {})
        waiting = carries.candidates(carried, blocks)
        while waiting:
            bodies, blocks, log = self.local_bodies(equation, carried, wanted_results, waiting)
            left = {c: own for c, own in waiting.items() if carries.leaves(carried, blocks, c, own[0])}
            if left == waiting:
                break
            waiting = left
            if not waiting:
                bodies, blocks, log = self.local_bodies(equation, carried, wanted_results, {})
        begins = {carried.arguments[b][argument]: axes for (b, argument, _), (axes, _) in waiting.items()}
        args = [
            self.carry(a, dims, begins[i], equation) if i in begins else self.value(a, dims, equation, reason)
            for i, (a, dims) in enumerate(zip(equation.invars, operands, strict=True))
        ]
        self.log.extend(log)
        outs = primitive(*args, **primitive.with_bodies(bodies, equation.params))
        for v, x, dims in zip(equation.outvars, outs, results, strict=True):
            self.values[v], self.at[v] = x, dims
        leaving = {k: (c[0], c[2]) for c in waiting for k in carries.results_of(carried, c)}
        for k, (b, i) in {**carries.stacked_results(carried), **leaving}.items():
            inner = carried.bodies[b].outvars[i]
            if inner in blocks[b].unreduced:
                v = equation.outvars[k]
                self.unreduced[v] = blocks[b].unreduced[inner]
                if not self.may_wait(v, self.unreduced[v][0]):
                    self.reduce(v)

    def carry(self, a: Atom, dims: Dims, axes: tuple[Any, ...], equation: Equation) -> Any:
        """The first value of a carry that is unreduced over axes."""
        if type(a) is Var and a in self.unreduced and self.unreduced[a][0] == axes and self.at[a] == dims:
            return self.values[a]
        x = self.value(a, dims, equation, f"{operation(equation)} has it")
        return x if carries.is_zero(a, self.defined_by) else carries.on_first(x, axes, self.sizes)

    def local_bodies(
        self,
        equation: Equation,
        carried: BodyMap,
        results: Sequence[Sequence[Dims]],
        waiting: Mapping[carries.Carry, carries.Sum],
    ) -> tuple[list[Jaxpr], list[Block], Log]:
        """The bodies of a loop or a branch on parts, with the blocks that have bound them and what they communicate.
        The sums of some carries are `waiting`, and those of stacked results may."""
        log = Log(self.log.reasons)
        bodies, blocks = [], []
        for b, (body, outs) in enumerate(zip(carried.bodies, results, strict=True)):
            inner = Block(self.shardings, self.sizes, log, self.times * iterations(equation), self.manual)
            for (own, argument, result), total in waiting.items():
                if own == b:
                    inner.unreduced[body.invars[argument]] = total
                    inner.leaving[body.outvars[result]] = total[0]
            stacked = [body.outvars[i] for own, i in carries.stacked_results(carried).values() if own == b]
            inner.leaving.update({v: None for v in stacked if type(v) is Var})
            dims = [self.argument_dims(carried, body, v) for v in body.invars]
            bodies.append(self.local_body(inner, body, dims, outs, equation))
            blocks.append(inner)
        return bodies, blocks, log

    def argument_dims(self, carried: BodyMap, body: Jaxpr, v: Var) -> Dims:
        """How an argument of a body is split: those of several bodies that are one operand agree with the last body."""
        last = carried.bodies[-1]
        if body is last:
            return self.target(v)
        mine = carried.arguments[carried.bodies.index(body)][body.invars.index(v)]
        theirs = carried.arguments[-1]
        return self.target(last.invars[theirs.index(mine)]) if mine in theirs else self.target(v)

    def result_dims(self, equation: Equation, carried: BodyMap) -> tuple[list[Dims], list[list[Dims]]]:
        """How the results of the equation are split, and those of its bodies."""
        inner: list[list[Dims]] = [[self.target(v) for v in body.outvars] for body in carried.bodies]
        for b, argument, result in carried.carries:
            inner[b][result] = self.argument_dims(carried, carried.bodies[b], carried.bodies[b].invars[argument])
        outs: list[Dims] = []
        for sources in carried.results:
            b, i, stacked = sources[0]
            for other, j, _ in sources[1:]:
                inner[other][j] = inner[b][i]
            outs.append(((), *inner[b][i]) if stacked else inner[b][i])
        for b in carried.predicates:  # what decides is the same for all
            inner[b] = [whole(v.aval) for v in carried.bodies[b].outvars]
        return outs, inner

    def local_body(
        self, inner: Block, body: Jaxpr, dims: Sequence[Dims], outs: Sequence[Dims], equation: Equation
    ) -> Jaxpr:
        types = [local_type(v.aval, own, self.sizes) for v, own in zip(body.invars, dims, strict=True)]

        def local(*args: Any) -> list[Any]:
            inner.define(zip(body.invars, args, strict=True), dims)
            inner.define(zip(body.constvars, body.consts, strict=True), [whole(v.aval) for v in body.constvars])
            inner.run(body)
            reason = f"{operation(equation)} has it"
            return [
                inner.values[v]
                if type(v) is Var and v in inner.leaving and v in inner.unreduced and inner.at[v] == own
                else inner.value(v, own, equation, reason)
                for v, own in zip(body.outvars, outs, strict=True)
            ]

        return stage_subjaxpr(local, types, name=body.name)


def iterations(equation: Equation) -> int:
    """How often bodies run, if that is known."""
    count = equation.primitive.iterations(equation.params)  # type: ignore[attr-defined]
    return count if isinstance(count, int) else 1


def factors_split(
    values: Sequence[Atom], groups: Sequence[Sequence[str | None]], dims: Mapping[Var, Dims]
) -> dict[Any, dict[str, None]]:
    """The factors that some values are split along over each axis."""
    found: dict[Any, dict[str, None]] = {}
    for v, names in zip(values, groups, strict=True):
        own = dims.get(v) if type(v) is Var else None
        if own is not None:
            for name, axes in zip(names, own, strict=True):
                if axes and name is not None:
                    for axis in axes:
                        found.setdefault(axis, {})[name] = None
    return found


def wanted(names: Sequence[str | None], chosen: Mapping[Any, tuple[Any, ...]]) -> Dims:
    """How a value is split whose dimensions have these factors."""
    return tuple([chosen.get(name, ()) for name in names])
