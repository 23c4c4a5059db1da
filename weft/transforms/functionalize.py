"""Errors as values: run a jaxpr and return, beside its results, which of its checks failed first.

`Run` interprets the equations under the active trace, with a rule for each operation that runs sub-jaxprs. It tracks a
code, 0 if nothing failed, and the values that messages show (`primitives/control/failures.py`). Checks of indices and
divisors are the `check` equations that user functions bind; results are tested for nan if `introduced` of their
primitive says that nan may be new there.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from weft.base import dtypes
from weft.base.settings import config
from weft.ir.context import context, join_stacks
from weft.ir.interpreter import last_uses, literal, replay
from weft.ir.jaxpr import Equation, Jaxpr, Literal, drop_dead, subjaxprs
from weft.ir.nans import allows_nans, can_be
from weft.ir.types import ArrayType, Type, array_type, get_aval
from weft.ir.varying import cast_to_state
from weft.primitives.control.call import Call
from weft.primitives.control.check import CHECK, check, drop_checks, split_operands, without_checks
from weft.primitives.control.cond import cond
from weft.primitives.control.custom import CustomCall, JvpRule, VjpRule
from weft.primitives.control.failures import CHECK_FAILED, DIVISION, INDEX, NAN, NOTHING, Sites, union
from weft.primitives.control.lanes import Lane, lanes
from weft.primitives.control.loop_bodies import with_extra_arguments
from weft.primitives.control.repeat import repeat
from weft.primitives.control.scan import scan
from weft.primitives.control.shard_map import in_scope, shard_map
from weft.primitives.control.tape import zeros
from weft.primitives.control.while_loop import while_
from weft.primitives.elementwise.arithmetic import add, div
from weft.primitives.elementwise.bitwise import and_, not_
from weft.primitives.elementwise.compare import eq, gt, lt, ne
from weft.primitives.elementwise.convert import convert_element_type
from weft.primitives.elementwise.select import where
from weft.primitives.movement.shape import broadcast_in_dim, reshape
from weft.primitives.movement.slicing import dynamic_slice
from weft.primitives.reduction.reduce_extrema import argmax
from weft.primitives.reduction.reduce_other import reduce_or
from weft.sharding.spec import PartitionSpec
from weft.trace.closed import stage_subjaxpr

Kinds = frozenset[str]
_INT = np.dtype(np.int32)
_CODE = array_type((), _INT)
# What sites report of the kinds of `check`.
_REPORTED = {"user": CHECK_FAILED, "debug": CHECK_FAILED, "divisor": DIVISION, "index": INDEX}


class Functional(NamedTuple):
    """Jaxpr whose last results are the code of the first failure and the values of all slots, with their meaning."""

    jaxpr: Jaxpr
    sites: Sites


def functionalize(jaxpr: Jaxpr, kinds: Kinds) -> Functional | None:
    """Return a sub-jaxpr with its errors as results, or None if nothing in it can fail."""
    return jaxpr.memoize(("functionalized", kinds, config.checks), lambda: (_functionalize(jaxpr, kinds),))[0]


def _functionalize(jaxpr: Jaxpr, kinds: Kinds) -> Functional | None:
    sites = NOTHING

    def function(*args: Any) -> list[Any]:
        nonlocal sites
        run = Run(kinds)  # it holds traced values, so it ends with the trace
        results = run.equations(jaxpr, args)
        sites = run.sites
        return [*results, *run.outputs()]

    staged = stage_subjaxpr(function, jaxpr.in_avals, name=jaxpr.name)
    return Functional(staged, sites) if sites.sites else None


class Run:
    """Interpretation of a jaxpr with the errors found so far."""

    def __init__(self, kinds: Kinds, sites: Sites = NOTHING, code: Any = None, values: Sequence[Any] = ()):
        self.kinds, self.sites, self.code = kinds, sites, code
        # The values in each slot.
        self.slots: list[list[Any]] = []
        rest = iter(values)
        for slot in sites.slots:
            self.slots.append([next(rest) for _ in slot])

    def outputs(self) -> list[Any]:
        """Return the code and the values of all slots: the last results of `Functional` jaxprs."""
        code = np.zeros((), _INT) if self.code is None else self.code
        return [code, *(v for slot in self.slots for v in slot)]

    # -- what failed -----------------------------------------------------------------------------------------------

    def fail(self, bad: Any, kind: str, text: str, form: Any, values: Sequence[Any], at: str | None) -> None:
        """Report a check that failed if `bad`, a scalar, is true."""
        code = where(bad, np.array(1, _INT), np.array(0, _INT))
        self.merge(Sites.of(kind, text, form, values, at), [code, *values])

    def merge(self, sites: Sites, outputs: Sequence[Any]) -> None:
        """Merge the errors of a part of the program; the first failure counts."""
        code, *values = outputs
        merged, (_, offset), (_, indices) = union([self.sites, sites])
        first = None if self.code is None else eq(self.code, np.array(0, _INT))
        if offset:
            code = where(gt(code, np.array(0, _INT)), add(code, np.array(offset, _INT)), np.array(0, _INT))
        self.sites, self.code = merged, code if first is None else where(first, code, self.code)
        rest = iter(values)
        for i, slot in zip(indices, sites.slots, strict=True):
            new = [drop_weak_type(next(rest)) for _ in slot]
            if i == len(self.slots):
                self.slots.append(new)
            elif first is not None:
                self.slots[i] = [where(broadcast_mask(first, n), n, o) for n, o in zip(new, self.slots[i], strict=True)]

    # -- equations -------------------------------------------------------------------------------------------------

    def equations(self, jaxpr: Jaxpr, args: Sequence[Any]) -> list[Any]:
        """Interpret the jaxpr under the active trace and return its results."""
        values: dict[Any, Any] = dict(zip(jaxpr.constvars, jaxpr.consts, strict=True))
        values.update(zip(jaxpr.invars, args, strict=True))
        source, stack = context.source, context.stack
        try:
            for equation, finished in zip(jaxpr.eqns, last_uses(jaxpr), strict=True):
                context.source = equation.source or source
                context.stack = join_stacks(stack, equation.stack)
                operands = [literal(a) if type(a) is Literal else values[a] for a in equation.invars]
                values.update(zip(equation.outvars, self.equation(equation, operands), strict=True))
                for v in finished:
                    values.pop(v, None)
        finally:
            context.source, context.stack = source, stack
        return [literal(a) if type(a) is Literal else values[a] for a in jaxpr.outvars]

    def equation(self, equation: Equation, operands: Sequence[Any]) -> Sequence[Any]:
        primitive = equation.primitive
        rule = next((r for kind, r in _RULES if isinstance(primitive, kind)), None)
        if rule is not None:
            return rule(self, equation, operands)
        if subjaxprs(equation.params):  # parts of a kernel, and functions of solvers: they cannot report anything
            equation = without_checks(equation)
        results = context.trace.process(primitive, operands, equation.params)
        if DIVISION in self.kinds and primitive is div:
            aval: Any = equation.invars[1].aval
            if can_be("inf", aval):  # divisors that are integers are checked by the function that the user called
                zero = eq(operands[1], np.zeros((), aval.dtype))
                self.fail(reduce_any(zero), DIVISION, "", None, [], get_line(equation))
        if NAN in self.kinds and equation.invars and not allows_nans(equation.stack):
            if "nan" in primitive.introduced(equation.params, intended=False):
                for v, result in zip(equation.outvars, results, strict=True):
                    if can_be("nan", v.aval):
                        self.fail(reduce_any(ne(result, result)), NAN, primitive.name, None, [], get_line(equation))
        return results

    def check(self, equation: Equation, operands: Sequence[Any]) -> Sequence[Any]:
        """Apply a `check` equation: report the first of the elements that fail it."""
        params = equation.params
        kind = _REPORTED[params["kind"]]
        if kind not in self.kinds:
            if kind in (DIVISION, INDEX) and config.checks == "all":  # it is checked by what runs this program
                check(*operands, **params)
            return []
        value, shown, masks = split_operands(operands, params)
        bad = find_failures(value, params)
        for mask in masks:
            bad = and_(bad, broadcast_mask(mask, bad))
        if kind == CHECK_FAILED:
            outputs = [select_first(bad, v) for v in shown] if get_aval(bad).shape else list(shown)  # type: ignore[attr-defined]
            outputs[0] = where(reduce_any(bad), outputs[0], np.array(0, _INT))
            self.merge(params["about"], outputs)
        elif kind == DIVISION:
            self.fail(reduce_any(bad), kind, "", None, [], get_line(equation))
        else:
            axis, shape, window = params["about"]
            wide_window = f" and {window} elements from there on do not fit" if window != 1 else ""
            text = (
                f"out-of-bounds indexing for array of shape {tuple(shape)}: index {{}} is out of bounds for axis {axis}"
                f" with size {shape[axis]}{wide_window}."
            )
            self.fail(reduce_any(bad), kind, text, None, [select_first(bad, value)], get_line(equation))
        return []

    # -- operations that run sub-jaxprs ----------------------------------------------------------------------------

    def split(self, results: Sequence[Any], count: int, sites: Sites) -> Sequence[Any]:
        """Return the first `count` results of a functionalised operation and merge the others as errors."""
        self.merge(sites, results[count:])
        return results[:count]

    def call(self, equation: Equation, operands: Sequence[Any]) -> Sequence[Any]:
        inner = functionalize(equation.params["jaxpr"], self.kinds)
        if inner is None:
            return self.bind_unchecked(equation, operands)
        params = {k: v for k, v in equation.params.items() if k != "donated"}
        results = context.trace.process(equation.primitive, operands, {**params, "jaxpr": inner.jaxpr})
        return self.split(results, len(equation.outvars), inner.sites)

    def bind_unchecked(self, equation: Equation, operands: Sequence[Any]) -> Sequence[Any]:
        """Bind an operation with the checks inside removed, because they are reported elsewhere or cannot fail."""
        return context.trace.process(equation.primitive, operands, without_checks(equation).params)

    def bind_beside(self, jaxpr: Jaxpr, equation: Equation, operands: Sequence[Any]) -> Sequence[Any]:
        """Bind an operation with derivative rules of its own, which accept no further results: its errors are computed
        beside it, by the jaxpr that it calls. Common subexpressions are merged in compilation."""
        inner = functionalize(jaxpr, self.kinds)
        if inner is not None:
            count = len(jaxpr.outvars)
            live = [i >= count for i in range(len(inner.jaxpr.outvars))]
            self.merge(inner.sites, replay(drop_dead(inner.jaxpr, live)[0], *operands))
        return self.bind_unchecked(equation, operands)

    def custom(self, equation: Equation, operands: Sequence[Any]) -> Sequence[Any]:
        """Report the checks of the function, not those of a forward rule that calls it once more. A backward rule has
        no function beside it, so its checks stay."""
        jaxpr, rule = equation.params["call_jaxpr"], equation.params["rule"]
        if CHECK in jaxpr.effects:
            quiet: Any
            if isinstance(rule, JvpRule):
                quiet = JvpRule(lambda nonzero: drop_checks(rule.jvp(nonzero)), rule.name)
            else:
                quiet = VjpRule(
                    lambda nonzero: drop_checks(rule.forward(nonzero)), rule.backward, rule.name, len(jaxpr.outvars)
                )
            equation = equation.replace(params={**equation.params, "rule": quiet})
        return self.bind_beside(jaxpr, equation, operands)

    def lanes(self, equation: Equation, operands: Sequence[Any]) -> Sequence[Any]:
        lane: Lane = equation.params["lane"]
        primitive: Any = equation.primitive
        quiet = Lane(drop_checks(lane.jaxpr), lane.axes, lane.batched, lane.forced)
        equation = equation.replace(params=primitive.make_params(quiet, equation.params["name"]))
        return self.bind_beside(lane.over_all()[0], equation, operands)

    def cond(self, equation: Equation, operands: Sequence[Any]) -> Sequence[Any]:
        branches = equation.params["branches"]
        found = [functionalize(b, self.kinds) for b in branches]
        if not any(found):
            return self.bind_unchecked(equation, operands)
        count = len(equation.outvars)
        sites, _, _ = union([f.sites for f in found if f is not None])

        def reporting(i: int) -> Jaxpr:
            branch, inner = branches[i], found[i]

            def function(*args: Any) -> list[Any]:
                run = Run(self.kinds)
                results = replay(drop_checks(branch) if inner is None else inner.jaxpr, *args)
                for k, other in enumerate(found):
                    if other is not None:
                        run.merge(other.sites, results[count:] if k == i else empty_outputs(other.sites))
                return [*results[:count], *run.outputs()]

            return stage_subjaxpr(function, branch.in_avals, name=branch.name)

        new = [reporting(i) for i in range(len(branches))]
        results = context.trace.process(equation.primitive, operands, {"branches": equalize_states(new)})
        return self.split(results, count, sites)

    def carry_errors(
        self, sites: Sites, body: Callable[[Run, Sequence[Any]], Sequence[Any]], types: Sequence[Type], name: str
    ) -> tuple[Jaxpr, list[Any]]:
        """Extend the body of a loop by the errors so far as last arguments and results; return its jaxpr and the errors
        before the first iteration. Along manual axes errors vary as the values they are computed from do."""
        carried: list[Type] = [_CODE, *sites.types]
        count = len(carried)

        def function(*args: Any) -> list[Any]:
            code, *values = args[-count:]
            run = Run(self.kinds, sites, code, values)
            results = body(run, args[:-count])
            outputs = [cast_to_state(v, t) for v, t in zip(run.outputs(), carried, strict=True)]
            return [*results, *outputs]

        staged = stage_subjaxpr(function, [*types, *carried], name=name)
        if any(not t.is_plain for t in staged.out_avals[-count:]):
            carried = list(staged.out_avals[-count:])
            staged = stage_subjaxpr(function, [*types, *carried], name=name)
        return staged, [zeros(t) for t in carried]

    def scan(self, equation: Equation, operands: Sequence[Any]) -> Sequence[Any]:
        params = equation.params
        inner = functionalize(params["jaxpr"], self.kinds)
        if inner is None:
            return self.bind_unchecked(equation, operands)
        first, carry = params["num_consts"] + params["num_carry"], params["num_carry"]
        count = len(equation.outvars)
        body, start = self.carry_errors(
            inner.sites, self.iteration_body(inner, count), params["jaxpr"].in_avals, params["jaxpr"].name
        )
        errors = len(start)
        invars, outvars = body.invars, body.outvars
        body = body.replace(
            invars=[*invars[:first], *invars[-errors:], *invars[first:-errors]],
            outvars=[*outvars[:carry], *outvars[-errors:], *outvars[carry:-errors]],
        )
        results = context.trace.process(
            equation.primitive,
            [*operands[:first], *start, *operands[first:]],
            {**params, "jaxpr": body, "num_carry": carry + errors},
        )
        self.merge(inner.sites, results[carry : carry + errors])
        return [*results[:carry], *results[carry + errors :]]

    def iteration_body(self, inner: Functional, count: int) -> Callable[[Run, Sequence[Any]], Sequence[Any]]:
        """Return the body of one iteration, which keeps the first failure of all iterations."""

        def body(run: Run, args: Sequence[Any]) -> Sequence[Any]:
            results = replay(inner.jaxpr, *args)
            run.merge_iteration(results[count:])
            return results[:count]

        return body

    def merge_iteration(self, outputs: Sequence[Any]) -> None:
        """Merge the errors that another iteration found at the same sites."""
        first = eq(self.code, np.array(0, _INT))
        new, old = list(outputs), self.outputs()
        code, *values = [where(broadcast_mask(first, o), n, o) for n, o in zip(new, old, strict=True)]
        self.code = code
        rest = iter(values)
        self.slots = [[next(rest) for _ in slot] for slot in self.slots]

    def repeat(self, equation: Equation, operands: Sequence[Any]) -> Sequence[Any]:
        inner = functionalize(equation.params["jaxpr"], self.kinds)
        if inner is None:
            return self.bind_unchecked(equation, operands)
        jaxpr, count = equation.params["jaxpr"], len(equation.outvars)
        body, start = self.carry_errors(inner.sites, self.iteration_body(inner, count), jaxpr.in_avals, jaxpr.name)
        results = context.trace.process(equation.primitive, [*operands, *start], {**equation.params, "jaxpr": body})
        return self.split(results, count, inner.sites)

    def while_(self, equation: Equation, operands: Sequence[Any]) -> Sequence[Any]:
        """Functionalise a loop. It continues after a failure, as it would without checks. A condition that can fail is
        computed at the end of each iteration, and once before the first."""
        params = equation.params
        first, second = params["cond_nconsts"], params["cond_nconsts"] + params["body_nconsts"]
        cond_jaxpr, body_jaxpr = params["cond_jaxpr"], params["body_jaxpr"]
        condition, body = functionalize(cond_jaxpr, self.kinds), functionalize(body_jaxpr, self.kinds)
        if condition is None and body is None:
            return self.bind_unchecked(equation, operands)
        count = len(equation.outvars)
        parts = [f.sites for f in (body, condition) if f is not None]
        sites, _, _ = union(parts)

        def iteration(run: Run, args: Sequence[Any]) -> Sequence[Any]:
            # Constants of the condition, constants of the body, carry, and whether the condition holds.
            carry = replay(drop_checks(body_jaxpr) if body is None else body.jaxpr, *args[first : second + count])
            found = Run(self.kinds)
            if body is not None:
                carry = list(found.split(carry, count, body.sites))
            if condition is None:
                run.merge_iteration(found.outputs())
                return carry
            holds = found.split(replay(condition.jaxpr, *args[:first], *carry), 1, condition.sites)
            run.merge_iteration(found.outputs())
            return [*carry, *holds]

        carry = list(operands[second:])
        types = [*cond_jaxpr.in_avals[:first], *body_jaxpr.in_avals]
        if condition is not None:
            outputs = replay(condition.jaxpr, *operands[:first], *carry)
            before = Run(self.kinds)
            for others in parts[:-1]:
                before.merge(others, empty_outputs(others))
            carry += before.split(outputs, 1, condition.sites)
            types.append(cond_jaxpr.outvars[0].aval)
        looped, start = self.carry_errors(sites, iteration, types, body_jaxpr.name)
        if condition is not None:
            start = [cast_to_state(v, t) for v, t in zip(before.outputs(), looped.in_avals[-len(start) :], strict=True)]
            consts = operands[:second]
            test = make_condition(looped.in_avals[second:], count)
            new = {"cond_jaxpr": test, "cond_nconsts": 0, "body_jaxpr": looped, "body_nconsts": second}
        else:
            consts = [*operands[:first], *operands[:second]]
            test = with_extra_arguments(drop_checks(cond_jaxpr), looped.in_avals[second + count :])
            new = {"cond_jaxpr": test, "cond_nconsts": first, "body_jaxpr": looped, "body_nconsts": second}
        results = context.trace.process(equation.primitive, [*consts, *carry, *start], new)
        self.merge(sites, results[len(carry) :])
        return results[:count]

    def shard_map(self, equation: Equation, operands: Sequence[Any]) -> Sequence[Any]:
        """Functionalise a `shard_map`: each device has its own errors, and those of the first device that failed
        count."""
        params = equation.params
        axes = tuple(a for a in params["mesh"].axis_names if a in params["manual_axes"])
        with in_scope(params):
            inner = functionalize(params["jaxpr"], self.kinds)
            if inner is None:
                return self.bind_unchecked(equation, operands)
            count = len(equation.outvars)

            def function(*args: Any) -> list[Any]:
                results = replay(inner.jaxpr, *args)
                return [*results[:count], *(add_leading_axis(r) for r in results[count:])]

            body = stage_subjaxpr(function, params["jaxpr"].in_avals, name=params["jaxpr"].name)
        specs = (*params["out_specs"], *[PartitionSpec(axes)] * (len(body.outvars) - count))
        results = context.trace.process(equation.primitive, operands, {**params, "jaxpr": body, "out_specs": specs})
        failed = ne(results[count], np.array(0, _INT))
        self.merge(inner.sites, [select_first(failed, r) for r in results[count:]])
        return results[:count]


# The rule of each operation that checks, or runs sub-jaxprs: the first that fits.
_RULES: tuple[tuple[type, Callable[..., Sequence[Any]]], ...] = (
    (type(check), Run.check),
    (type(lanes), Run.lanes),
    (Call, Run.call),
    (CustomCall, Run.custom),
    (type(cond), Run.cond),
    (type(scan), Run.scan),
    (type(while_), Run.while_),
    (type(repeat), Run.repeat),
    (type(shard_map), Run.shard_map),
)


def get_line(equation: Equation) -> str | None:
    """Return the user's line of an equation, as messages show it."""
    return None if equation.source is None else equation.source.describe()


def empty_outputs(sites: Sites) -> list[Any]:
    """Return the outputs of a program that did not run: no failure, and zeros."""
    return [np.zeros((), _INT), *(zeros(t) for t in sites.types)]


def make_condition(types: Sequence[Type], index: int) -> Jaxpr:
    """Return the condition of a loop that carries the condition's value as argument `index`."""
    return stage_subjaxpr(lambda *args: [args[index]], types, name="condition")


def equalize_states(branches: Sequence[Jaxpr]) -> tuple[Jaxpr, ...]:
    """Cast the results of branches so that they vary along the same manual axes: those of any of them."""
    from_all = [[b.out_avals[i] for b in branches] for i in range(len(branches[0].outvars))]
    wanted = [next((t for t in types if not t.is_plain), types[0]) for types in from_all]
    if all(a == b for types, b in zip(from_all, wanted, strict=True) for a in types):
        return tuple(branches)

    def cast(branch: Jaxpr) -> Jaxpr:
        def function(*args: Any) -> list[Any]:
            return [cast_to_state(r, t) for r, t in zip(replay(branch, *args), wanted, strict=True)]

        return stage_subjaxpr(function, branch.in_avals, name=branch.name)

    return tuple(cast(b) for b in branches)


def find_failures(value: Any, params: Any) -> Any:
    """Return which elements fail a check, as a mask."""
    if params["kind"] in ("user", "debug"):
        return not_(value)
    dtype = get_aval(value).dtype  # type: ignore[attr-defined]
    if params["kind"] == "divisor":
        return eq(value, np.zeros((), dtype))
    limits = dtypes.iinfo(dtype)
    low, high = np.array(max(params["low"], limits.min), dtype), np.array(min(params["high"], limits.max), dtype)
    inside = and_(not_(lt(value, low)), not_(gt(value, high)))
    return not_(inside)


def reduce_any(flags: Any) -> Any:
    """Return whether any element of a mask is set."""
    rank = len(get_aval(flags).shape)  # type: ignore[attr-defined]
    return reduce_or(flags, axes=tuple(range(rank))) if rank else flags


def drop_weak_type(value: Any) -> Any:
    """Convert a value to the type that is not weak."""
    aval: Any = get_aval(value)
    return convert_element_type(value, new_dtype=aval.dtype) if aval.weak_type else value


def broadcast_mask(mask: Any, like: Any) -> Any:
    """Broadcast a mask for the leading dimensions of an array to all of its dimensions."""
    shape, rank = get_aval(like).shape, len(get_aval(mask).shape)  # type: ignore[attr-defined]
    return broadcast_in_dim(mask, shape=shape, broadcast_dimensions=tuple(range(rank))) if len(shape) > rank else mask


def add_leading_axis(value: Any) -> Any:
    """Insert a leading dimension of size 1."""
    aval: ArrayType = get_aval(value)  # type: ignore[assignment]
    dims = tuple(range(1, 1 + aval.ndim))
    return broadcast_in_dim(value, shape=(1, *aval.shape), broadcast_dimensions=dims)


def select_first(flags: Any, value: Any) -> Any:
    """Select, from a value with an entry per flag (and further dimensions), the entry of the first flag that is set."""
    aval: Any = get_aval(value)
    lead = get_aval(flags).shape  # type: ignore[attr-defined]
    if not lead:
        return value
    own, size = aval.shape[len(lead) :], int(np.prod(lead))
    index = argmax(reshape(flags, new_sizes=(size,)), axes=(0,), index_dtype=_INT)
    rows = reshape(value, new_sizes=(size, *own))
    start = [index, *[np.zeros((), _INT)] * len(own)]
    return reshape(dynamic_slice(rows, *start, slice_sizes=(1, *own)), new_sizes=own)
