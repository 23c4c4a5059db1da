"""Compute, beside the results of a program, whether any of its checks failed: one flag, read at the end.

Checked programs run in this form. If the flag is set, the same program with a trap for each check (`checks.py`) runs on
the same arguments, to find which check failed and where. So nothing is counted or stored in memory here for an error,
loops carry the flag instead of stopping, and fewer values are tested: a NaN that propagates to a value that is tested
anyway is found there.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from weft.base.compile_options import CompileOptions
from weft.compiler.passes.checks import NOWHERE, Writer, kinds_to_check
from weft.compiler.passes.index_checks import find_scatter_checks, passing_range
from weft.compiler.patterns import carry, literal, loop
from weft.compiler.rewrite import make_literal, new_equation
from weft.indexing.ranges import Range
from weft.ir.flow import dtype_range
from weft.ir.higher_order import ControlFlow
from weft.ir.inline import Constants, collect_constants, copy_equations
from weft.ir.jaxpr import Atom, Equation, Jaxpr, Literal, Var, subjaxprs
from weft.ir.nans import allows_nans, can_be
from weft.ir.primitive import Params, lookup
from weft.ir.rules.bindable import positions
from weft.ir.types import array_type
from weft.primitives.control.check import CHECK, check, drop_checks, without_checks
from weft.primitives.control.cond import cond
from weft.primitives.control.repeat import repeat
from weft.primitives.control.scan import scan
from weft.primitives.control.while_loop import while_
from weft.primitives.elementwise.elementwise import Elementwise
from weft.primitives.families import Reduction
from weft.primitives.movement.scatter import Scatter

_FLAG = array_type((), np.dtype(np.bool_))
_COUNT = np.dtype(np.uint8)
Ranges = tuple[Range | None, ...]
# Limit of the operations between a slice that a loop reads and a check, if these are done for all iterations at once.
LONGEST_CHAIN = 16
COUNTER = loop("scan", update=(carry + literal("step")).in_any_order)


def insert_flags(jaxpr: Jaxpr, options: CompileOptions) -> Jaxpr:
    """Join all checks of a jaxpr, and its tests for NaN, in one trap. Needs: no calls. Keeps: its form."""
    flagged = with_flag(jaxpr, (None,) * len(jaxpr.invars), options, outermost=True)
    if flagged is None:
        return drop_checks(jaxpr)
    *results, flag = flagged.outvars
    writer = Writer()
    writer.equations += flagged.eqns
    writer.trap([flag], {"kind": "any"})
    return flagged.replace(eqns=writer.equations, outvars=results)


def with_flag(
    jaxpr: Jaxpr,
    ranges: Ranges,
    options: CompileOptions,
    *,
    outermost: bool = False,
    shown: frozenset[int] = frozenset(),
) -> Jaxpr | None:
    """Return the jaxpr with one more result, whether a check in it failed; None if none can fail.

    Args:
        jaxpr: the program, or a body of one.
        ranges: the known ranges of its arguments.
        options: the options of the compiler, which say what is tested.
        outermost: whether its results are those of the whole program.
        shown: indices of results that need no test for NaN, because the caller tests them.
    """
    return jaxpr.memoize(
        ("with_flag", options, ranges, outermost, shown),
        lambda: _FlagInserter(jaxpr, ranges, options, outermost, shown).insert(),
    )


def values_to_test(jaxpr: Jaxpr, options: CompileOptions, outermost: bool, shown: frozenset[int]) -> set[Any]:
    """Return the values that must be tested for NaN: those whose NaNs need not propagate to another tested value."""
    wanted: set[Any] = set()
    shows: set[Any] = {jaxpr.outvars[n] for n in shown}  # a nan in these is found elsewhere
    results = {v for v in jaxpr.outvars if type(v) is Var} if outermost and options.debug_nans else set()
    for equation in reversed(jaxpr.eqns):
        silent = allows_nans(equation.stack)
        lasting = lasting_carries(equation, options) if equation.primitive is scan else frozenset()
        for i, v in enumerate(equation.outvars):
            is_tested = not silent and "nan" in kinds_to_check(equation, v.aval, options)
            looked_at = is_tested or v in results or i in lasting
            if looked_at and v not in shows and can_be("nan", v.aval):
                wanted.add(v)
            if not looked_at and v not in shows:
                continue
            if i in lasting:
                shows.add(equation.invars[equation.params["num_consts"] + i])
            elif len(equation.outvars) == 1 and can_be("nan", v.aval):
                shows.update(_nan_operands(equation))
    arguments = [v for v in dict.fromkeys(jaxpr.invars) if v in results and v not in shows and can_be("nan", v.aval)]
    return wanted.union(arguments)


def lasting_carries(loop: Equation, options: CompileOptions) -> frozenset[int]:
    """Return the carries of a loop of at least one iteration that are tested and in which a NaN stays: one test after
    the last iteration is enough."""
    params = loop.params
    if type(params["length"]) is not int or params["length"] < 1:
        return frozenset()
    result: frozenset[int] = params["jaxpr"].memoize(
        ("lasting carries", options, params["num_consts"], params["num_carry"]),
        lambda: frozenset(
            n for n in range(params["num_carry"]) if _lasts(params["jaxpr"], params["num_consts"] + n, n, options)
        ),
    )
    return result


def _lasts(body: Jaxpr, argument: int, result: int, options: CompileOptions) -> bool:
    """Return whether a NaN in an argument of a body propagates to a result, which is tested."""
    before, after = body.invars[argument], body.outvars[result]
    if not can_be("nan", before.aval) or not options.tests_values:
        return False
    last_equation = next((e for e in body.eqns if after in e.outvars), None)
    if (
        last_equation is None
        or allows_nans(last_equation.stack)
        or "nan" not in kinds_to_check(last_equation, after.aval, options)
    ):
        return False
    reached: set[Any] = {after}
    for equation in reversed(body.eqns):
        if len(equation.outvars) == 1 and equation.outvars[0] in reached and can_be("nan", equation.outvars[0].aval):
            reached.update(_nan_operands(equation))
    return before in reached


def _nan_operands(equation: Equation) -> list[Atom]:
    """Return the operands whose NaNs propagate to the result."""
    found = positions(equation.primitive.nan_operands(equation.params), len(equation.invars))
    return [equation.invars[i] for i in found if can_be("nan", equation.invars[i].aval)]


class _FlagInserter:
    """Copies the equations of one jaxpr and adds those that compute its flag."""

    def __init__(
        self, jaxpr: Jaxpr, ranges: Ranges, options: CompileOptions, outermost: bool, shown: frozenset[int]
    ) -> None:
        self.jaxpr, self.options = jaxpr, options
        known = {v: r for v, r in zip(jaxpr.invars, ranges, strict=True) if r is not None}
        self.writer = Writer(known)
        self.flags: list[Atom] = []
        self.constants: Constants = collect_constants(jaxpr)
        self.wanted = values_to_test(jaxpr, options, outermost, shown) if options.tests_values else set()
        # Checks that a scatter does itself, and the scatters for which one of these may fail.
        self.scatter_checks = find_scatter_checks(jaxpr) if any(e.primitive is check for e in jaxpr.eqns) else {}
        self.checking_scatters: set[Equation] = set()
        self.results = set(jaxpr.outvars) if outermost and options.debug_nans else set()
        # By shape: the trailing axes that the jaxpr reduces in arrays of that shape, so that kernels of whole rows
        # (softmax and the like) can reduce the tests as well.
        self.rows: dict[Any, tuple[int, ...]] = {}

    def insert(self) -> Jaxpr | None:
        """Return the jaxpr with its flag as a last result; None if no check can fail."""
        for equation in self.jaxpr.eqns:
            self.note_rows(equation)
        for v in self.jaxpr.invars:
            self.test(v)
        for equation in self.jaxpr.eqns:
            self.visit(equation)
        if not self.flags:
            return None
        flag = functools.reduce(lambda total, flag: self.writer.make("or", total, flag), self.flags)
        return self.jaxpr.replace(
            constvars=[v for v, _ in self.constants.values()],
            consts=[c for _, c in self.constants.values()],
            eqns=self.writer.equations,
            outvars=[*self.jaxpr.outvars, flag],
        )

    def visit(self, equation: Equation) -> None:
        """Copy an equation, and add the flags of its checks and tests."""
        if equation.primitive is check:
            found = self.scatter_checks.get(equation)
            if found is not None:
                if not self.writer.bounds.of(equation.invars[0]).within(passing_range(equation)):
                    self.checking_scatters.add(found)
            elif (flag := self.writer.make_flag(equation)) is not None:
                self.flags.append(flag)
            return
        if isinstance(equation.primitive, Scatter) and self.scatter(equation):
            return
        if isinstance(equation.primitive, ControlFlow):
            _INSIDE[equation.primitive](self, equation)
        else:
            # Other sub-jaxprs, such as the combiner of a reduction, are parts of kernels, which cannot return a flag.
            inside = any(CHECK in inner.effects for inner in subjaxprs(equation.params))
            self.writer.keep(without_checks(equation) if inside else equation)
        for v in equation.outvars:
            self.test(v)

    def scatter(self, equation: Equation) -> bool:
        """Make a scatter compute a flag, and return whether it needs one: for windows outside of the operand, and for
        NaNs if the update is smaller than the result, which is tested otherwise."""
        (result,) = equation.outvars
        outside = equation in self.checking_scatters
        small = 2 * _size(result) < _size(equation.invars[2])
        nan = result in self.wanted and result not in self.results and not small
        if not outside and not nan:
            return False
        self.writer.like = equation
        params = {**equation.params, "scatter": equation.primitive.name, "outside": outside, "nan": nan}
        flagged = new_equation(lookup("scatter_flagged"), equation.invars, params, equation)
        self.flags.append(flagged.outvars[1])
        self.writer.keep(flagged.replace(outvars=(result, flagged.outvars[1])))
        if not nan:
            self.test(result)
        return True

    def note_rows(self, equation: Equation) -> None:
        """Remember the axes of a reduction over trailing axes."""
        if isinstance(equation.primitive, Reduction):
            shape, axes = equation.invars[0].aval.shape, tuple(sorted(equation.params["axes"]))  # type: ignore[attr-defined]
            if axes and axes[0] > 0 and axes == tuple(range(axes[0], len(shape))):
                self.rows.setdefault(shape, axes)

    def test(self, v: Var) -> None:
        """Add the flag of a value that must be tested for NaN."""
        if v not in self.wanted:
            return
        defined = self.writer.defined.get(v)
        if defined is not None:
            self.writer.like = defined
        shape: tuple[int, ...] = v.aval.shape  # type: ignore[attr-defined]
        make = self.writer.make
        flag = self.writer.wrong("nan", v)
        if row := self.rows.get(shape, ()):
            # Reductions of rows and of all are two operations that do not merge, so that the first stays with the rows.
            rows = make("convert_element_type", make("reduce_or", flag, axes=row), new_dtype=_COUNT)
            most = make("reduce_max", rows, axes=tuple(range(len(shape) - len(row))))
            flag = make("gt", most, make_literal(0, _COUNT))
        elif shape:
            flag = make("reduce_or", flag, axes=tuple(range(len(shape))))
        self.flags.append(flag)

    # -- loops and branches ----------------------------------------------------------------------------------------

    def ranges(self, atoms: Sequence[Atom]) -> Ranges:
        """Return the ranges of operands that a sub-jaxpr gets unchanged."""
        return tuple([self.known_range(a) for a in atoms])

    def known_range(self, atom: Atom) -> Range | None:
        """Return the range of an operand if it is narrower than its dtype."""
        limits = dtype_range(atom.aval)
        if limits is Range.EVERYTHING:
            return None
        found = self.writer.bounds.of(atom)
        return None if found == limits else found

    def keep_as(self, equation: Equation, operands: Sequence[Atom], results: Sequence[Var], params: Params) -> None:
        """Copy an equation with other operands, results and parameters."""
        effects = equation.primitive.effects([a.aval for a in operands], params)
        self.writer.keep(equation.replace(invars=operands, outvars=results, params=params, effects=effects))

    def keep_silent(self, equation: Equation) -> None:
        """Copy a loop or a conditional none of whose checks can fail."""
        self.writer.keep(without_checks(equation) if CHECK in equation.effects else equation)

    def add_flag(self) -> Var:
        """Add the flag that a loop or a conditional returns."""
        flag = Var(_FLAG)
        self.flags.append(flag)
        return flag

    def scan(self, equation: Equation) -> None:
        """Copy a scan with its flag as a further carry."""
        params, operands = equation.params, equation.invars
        constants, first = params["num_consts"], params["num_consts"] + params["num_carry"]
        known = (
            *self.ranges(operands[:constants]),
            *self.counter_ranges(equation),
            *self.ranges(operands[first:]),
        )
        unflagged = self.without_checks_of_slices(equation)
        body = with_flag(unflagged, known, self.options, shown=lasting_carries(equation, self.options))
        if body is None:
            self.keep_silent(equation)
            return
        body = carry_flag(body, first, params["num_carry"])
        operands = (*operands[:first], make_literal(False, np.bool_), *operands[first:])
        carries, rest = equation.outvars[: params["num_carry"]], equation.outvars[params["num_carry"] :]
        params = {**params, "jaxpr": body, "num_carry": params["num_carry"] + 1}
        self.keep_as(equation, operands, [*carries, self.add_flag(), *rest], params)

    def without_checks_of_slices(self, equation: Equation) -> Jaxpr:
        """Return the body of a scan without the checks of values that are computed elementwise from slices; add the
        flags of the same checks for whole arrays, all iterations at once."""
        body, operands, length = equation.params["jaxpr"], equation.invars, equation.params["length"]
        if type(length) is not int or length < 1:
            unchanged: Jaxpr = body
            return unchanged
        constants, first = equation.params["num_consts"], equation.params["num_consts"] + equation.params["num_carry"]
        whole: dict[Any, Atom] = dict(zip(body.invars[first:], operands[first:], strict=True))
        scalars = {v: a for v, a in zip(body.invars[:constants], operands[:constants], strict=True) if not _shape(v)}
        defined = {v: e for e in body.eqns for v in e.outvars}
        remaining = []
        for inner in body.eqns:
            chain = None
            if inner.primitive is check and len(inner.invars) == 1:
                chain = elementwise_chain(inner.invars[0], defined, whole, scalars)
            if chain is None:
                remaining.append(inner)
                continue
            for link in chain:
                self.writer.like = link
                args = [whole.get(a) or scalars.get(a) or a for a in link.invars]
                whole[link.outvars[0]] = self.writer.make(link.primitive.name, *args, **link.params)
            flag = self.writer.make_flag(inner.replace(invars=(whole[inner.invars[0]],)))
            if flag is not None:
                self.flags.append(flag)
        result: Jaxpr = body if len(remaining) == len(body.eqns) else body.replace(eqns=remaining)
        return result

    def counter_ranges(self, equation: Equation) -> list[Range | None]:
        """Return the ranges of the carries of a scan that grow by a constant in every iteration, or that stay."""
        params = equation.params
        body, first = params["jaxpr"], params["num_consts"]
        steps: dict[int, Any] = {found.result: found.bound["step"].val for found in COUNTER.match_carries(equation)}
        for n in range(params["num_carry"]):
            if body.outvars[n] is body.invars[first + n]:
                steps[n] = 0
        return [
            self.counter_range(equation.invars[first + n], steps[n], params["length"]) if n in steps else None
            for n in range(params["num_carry"])
        ]

    def counter_range(self, start: Atom, step: Any, length: Any) -> Range | None:
        """Return the range of a carry that grows by `step` in every iteration, if it is narrower than its dtype."""
        limits = dtype_range(start.aval)
        if limits is Range.EVERYTHING or type(length) is not int:
            return None
        from_start = self.writer.bounds.of(start)
        last = from_start + int(step) * max(length - 1, 0)
        whole = Range(min(from_start.lower, last.lower), max(from_start.upper, last.upper))
        return whole if whole.within(limits) and whole != limits else None

    def repeat(self, equation: Equation) -> None:
        """Copy a counted loop with its flag as a further carry."""
        params, operands = equation.params, equation.invars
        count = params["nconsts"]
        known: Ranges = (None, *self.ranges(operands[1 : 1 + count]), *[None] * (len(operands) - 1 - count))
        body = with_flag(params["jaxpr"], known, self.options)
        if body is None:
            self.keep_silent(equation)
            return
        body = carry_flag(body, len(operands), len(equation.outvars))
        operands = (*operands, make_literal(False, np.bool_))
        self.keep_as(equation, operands, [*equation.outvars, self.add_flag()], {**params, "jaxpr": body})

    def cond(self, equation: Equation) -> None:
        """Copy a conditional with the flag of the branch that runs as a further result."""
        branches, operands = equation.params["branches"], equation.invars
        known = self.ranges(operands[1:])
        flagged = [with_flag(branch, known, self.options) for branch in branches]
        if all(branch is None for branch in flagged):
            self.keep_silent(equation)
            return
        none = make_literal(False, np.bool_)
        new_branches = []
        for branch, new in zip(branches, flagged, strict=True):
            silent = drop_checks(branch)
            new_branches.append(silent.replace(outvars=[*silent.outvars, none]) if new is None else new)
        self.keep_as(equation, operands, [*equation.outvars, self.add_flag()], {"branches": tuple(new_branches)})

    def while_(self, equation: Equation) -> None:
        """Copy a while loop that also ends when its flag is set: a wrong value may be what keeps it going."""
        params, operands = equation.params, equation.invars
        first, second = params["cond_nconsts"], params["cond_nconsts"] + params["body_nconsts"]
        unknown: Ranges = (None,) * (len(operands) - second)
        body = with_flag(params["body_jaxpr"], (*self.ranges(operands[first:second]), *unknown), self.options)
        condition = with_flag(params["cond_jaxpr"], (*self.ranges(operands[:first]), *unknown), self.options)
        if body is None and condition is None:
            self.keep_silent(equation)
            return
        flags: list[Var] = []
        if body is None:
            body = drop_checks(params["body_jaxpr"])
        else:
            flags = [Var(_FLAG)]
            body = body.replace(invars=[*body.invars, Var(_FLAG)])
        silent = unless(drop_checks(params["cond_jaxpr"]) if condition is None else condition, flags)
        params = {**params, "body_jaxpr": body, "cond_jaxpr": silent}
        results = [*equation.outvars, *[self.add_flag() for _ in flags]]
        self.keep_as(equation, (*operands, *[make_literal(False, np.bool_) for _ in flags]), results, params)
        if condition is not None:
            # The condition returns no flag, but a failed check in it ended the loop: so compute it once more.
            args = (*operands[:first], *equation.outvars)
            *_, flag = copy_equations(condition, equation, args, self.writer.equations, self.constants)
            self.flags.append(flag)


# The method for each operation that runs sub-jaxprs.
_INSIDE: dict[Any, Callable[[_FlagInserter, Equation], None]] = {
    cond: _FlagInserter.cond,
    repeat: _FlagInserter.repeat,
    scan: _FlagInserter.scan,
    while_: _FlagInserter.while_,
}


def elementwise_chain(
    value: Atom, defined: Mapping[Any, Equation], whole: Mapping[Any, Atom], scalars: Mapping[Any, Atom]
) -> list[Equation] | None:
    """Return the elementwise equations of a scan's body that compute a value from slices and loop-invariant scalars, in
    order and without those that were done for whole arrays already; None if it depends on anything else."""
    needed: dict[Equation, None] = {}
    waiting = [value]
    while waiting:
        atom = waiting.pop()
        if atom in whole:
            if _shape(atom) != _shape(value):
                return None
        elif type(atom) is not Literal and atom not in scalars:
            equation = defined.get(atom)
            if equation is None or not isinstance(equation.primitive, Elementwise) or len(needed) == LONGEST_CHAIN:
                return None
            if _shape(atom) != _shape(value) or not any(type(a) is Var for a in equation.invars):
                return None
            needed[equation] = None
            waiting += equation.invars
    if value not in whole and not needed:
        return None
    order = {id(e): n for n, e in enumerate(defined.values())}
    return sorted(needed, key=lambda e: order[id(e)])


def _shape(atom: Any) -> Any:
    return atom.aval.shape


def _size(atom: Any) -> int:
    return math.prod(d if type(d) is int else 1 for d in _shape(atom))


def carry_flag(body: Jaxpr, before: int, after: int) -> Jaxpr:
    """Make the flag of a body, its last result, a carry that is argument `before` and result `after`."""
    *results, found = body.outvars
    flag = Var(_FLAG)
    either = new_equation(lookup("or"), (flag, found), {}, NOWHERE)
    return body.replace(
        invars=[*body.invars[:before], flag, *body.invars[before:]],
        eqns=[*body.eqns, either],
        outvars=[*results[:after], either.outvars[0], *results[after:]],
    )


def unless(condition: Jaxpr, flags: Sequence[Var]) -> Jaxpr:
    """Make a condition false where a flag is set: one of `flags`, which become arguments, or its own."""
    holds, *own = condition.outvars
    equations = list(condition.eqns)
    for flag in (*own, *flags):
        fine = new_equation(lookup("not"), (flag,), {}, NOWHERE)
        both = new_equation(lookup("and"), (holds, fine.outvars[0]), {}, NOWHERE)
        equations += [fine, both]
        holds = both.outvars[0]
    return condition.replace(invars=[*condition.invars, *flags], eqns=equations, outvars=[holds])
