"""Have a program compute, beside its results, whether a check of it found something: one flag, read at the end.

That is how checked programs run. What was found, and where, is told by the same program with a trap for each check
(`checks.py`), which runs on the same arguments after the flag was set. So here nothing is counted or stored in memory
for an error, loops carry the flag instead of stopping, and fewer values are tested: a nan that must show in a value
that is tested anyway is found there.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from weft.base.settings import config
from weft.compiler.passes.checks import NOWHERE, Writer, kinds_of
from weft.compiler.rewrite import make_literal, new_equation
from weft.indexing.ranges import Range
from weft.ir.flow import dtype_range
from weft.ir.inline import Constants, collect_constants, copy_equations
from weft.ir.jaxpr import Atom, Equation, Jaxpr, Literal, Var, subjaxprs
from weft.ir.nans import allows_nans, can_be, checks_for_nans
from weft.ir.primitive import Params, lookup, positions
from weft.ir.types import array_type
from weft.primitives.control.check import CHECK, check, unchecked, without_checks
from weft.primitives.control.cond import cond
from weft.primitives.control.repeat import repeat
from weft.primitives.control.scan import scan
from weft.primitives.control.while_loop import while_
from weft.primitives.elementwise.elementwise import Elementwise
from weft.primitives.families import Reduction
from weft.primitives.movement.gather import GatherScatterMode
from weft.primitives.movement.scatter import Scatter, window_sizes

_FLAG = array_type((), np.dtype(np.bool_))
_COUNT = np.dtype(np.uint8)
Ranges = tuple[Range | None, ...]
# At most so many operations between a slice that a loop gets and a check are done for all iterations at once.
LONGEST_CHAIN = 16


def insert_flags(jaxpr: Jaxpr) -> Jaxpr:
    """Make one trap of all checks of a jaxpr, and of the tests of its values. Needs: no calls. Keeps: its form."""
    flagged = with_flag(jaxpr, (None,) * len(jaxpr.invars), outermost=True)
    if flagged is None:
        return unchecked(jaxpr)
    *results, flag = flagged.outvars
    writer = Writer()
    writer.equations += flagged.eqns
    writer.trap([flag], {"kind": "any"})
    return flagged.replace(eqns=writer.equations, outvars=results)


def with_flag(
    jaxpr: Jaxpr, ranges: Ranges, *, outermost: bool = False, shown: frozenset[int] = frozenset()
) -> Jaxpr | None:
    """The jaxpr with one more result, whether something was found in it; None if nothing can be. `ranges` are those of
    integers among its arguments; the results with an index in `shown` need no test for nan."""
    return jaxpr.memoize(
        ("with_flag", config.key(), ranges, outermost, shown),
        lambda: _Flagged(jaxpr, ranges, outermost, shown).flagged(),
    )


def uncovered(jaxpr: Jaxpr, outermost: bool, shown: frozenset[int]) -> set[Any]:
    """The values that must be tested for nan: where it does not show in another one that is tested."""
    wanted: set[Any] = set()
    shows: set[Any] = {jaxpr.outvars[n] for n in shown}  # a nan in these is found elsewhere
    results = {v for v in jaxpr.outvars if type(v) is Var} if outermost and config.debug_nans else set()
    for equation in reversed(jaxpr.eqns):
        silent = allows_nans(equation.stack)
        lasting = lasting_carries(equation) if equation.primitive is scan else frozenset()
        for i, v in enumerate(equation.outvars):
            looked_at = (not silent and "nan" in kinds_of(equation, v.aval)) or v in results or i in lasting
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


def lasting_carries(loop: Equation) -> frozenset[int]:
    """The carries of a loop of at least one iteration that are tested and in which a nan stays: one test after the last
    iteration is enough."""
    params = loop.params
    if type(params["length"]) is not int or params["length"] < 1:
        return frozenset()
    return params["jaxpr"].memoize(
        ("lasting carries", config.key(), params["num_consts"], params["num_carry"]),
        lambda: frozenset(
            n for n in range(params["num_carry"]) if _lasts(params["jaxpr"], params["num_consts"] + n, n)
        ),
    )


def _lasts(body: Jaxpr, argument: int, result: int) -> bool:
    before, after = body.invars[argument], body.outvars[result]
    if not can_be("nan", before.aval) or not checks_for_nans():
        return False
    last_equation = next((e for e in body.eqns if after in e.outvars), None)
    if last_equation is None or allows_nans(last_equation.stack) or "nan" not in kinds_of(last_equation, after.aval):
        return False
    reached: set[Any] = {after}
    for equation in reversed(body.eqns):
        if len(equation.outvars) == 1 and equation.outvars[0] in reached and can_be("nan", equation.outvars[0].aval):
            reached.update(_nan_operands(equation))
    return before in reached


def _nan_operands(equation: Equation) -> list[Atom]:
    """The operands of which every nan becomes one of the result."""
    found = positions(equation.primitive.nan_operands(equation.params), len(equation.invars))
    return [equation.invars[i] for i in found if can_be("nan", equation.invars[i].aval)]


class _Flagged:
    """A jaxpr while its flag is put in."""

    def __init__(self, jaxpr: Jaxpr, ranges: Ranges, outermost: bool, shown: frozenset[int]) -> None:
        self.jaxpr = jaxpr
        known = {v: r for v, r in zip(jaxpr.invars, ranges, strict=True) if r is not None}
        self.writer = Writer(known)
        self.flags: list[Atom] = []
        self.constants: Constants = collect_constants(jaxpr)
        self.wanted = uncovered(jaxpr, outermost, shown) if checks_for_nans() else set()
        # Checks that a scatter does itself, and the scatters that have something to find.
        self.absorbed = absorbed_checks(jaxpr) if any(e.primitive is check for e in jaxpr.eqns) else {}
        self.noting: set[Equation] = set()
        self.results = set(jaxpr.outvars) if outermost and config.debug_nans else set()
        # By shape: the trailing axes that the jaxpr reduces in arrays of that shape, so that kernels of whole rows
        # (softmax and the like) can reduce the tests as well.
        self.rows: dict[Any, tuple[int, ...]] = {}

    def flagged(self) -> Jaxpr | None:
        for equation in self.jaxpr.eqns:
            self.note_rows(equation)
        for v in self.jaxpr.invars:
            self.test(v)
        for equation in self.jaxpr.eqns:
            self.visit(equation)
        if not self.flags:
            return None
        flag = self.any_of(self.flags)
        return self.jaxpr.replace(
            constvars=[v for v, _ in self.constants.values()],
            consts=[c for _, c in self.constants.values()],
            eqns=self.writer.equations,
            outvars=[*self.jaxpr.outvars, flag],
        )

    def visit(self, equation: Equation) -> None:
        if equation.primitive is check:
            found = self.absorbed.get(equation)
            if found is not None:
                if not self.writer.bounds.of(equation.invars[0]).within(bounds_of(equation)):
                    self.noting.add(found)
            elif (flag := self.writer.flag_of(equation)) is not None:
                self.flags.append(flag)
            return
        if isinstance(equation.primitive, Scatter) and self.scatter(equation):
            return
        if equation.primitive.control:
            _INSIDE[equation.primitive](self, equation)
        else:
            # What reduces two elements and the like is part of a kernel.
            inside = any(CHECK in inner.effects for inner in subjaxprs(equation.params))
            self.writer.keep(without_checks(equation) if inside else equation)
        for v in equation.outvars:
            self.test(v)

    def scatter(self, equation: Equation) -> bool:
        """A scatter that has a flag, if it has something to find: windows that do not lie in the operand, and where
        that takes less than testing the whole result, a nan."""
        (result,) = equation.outvars
        outside = equation in self.noting
        small = 2 * _size(result) < _size(equation.invars[2])
        nan = result in self.wanted and result not in self.results and not small
        if not outside and not nan:
            return False
        self.writer.like = equation
        params = {**equation.params, "card": equation.primitive.name, "outside": outside, "nan": nan}
        flagged = new_equation(lookup("scatter_flagged"), equation.invars, params, equation)
        self.flags.append(flagged.outvars[1])
        self.writer.keep(flagged.replace(outvars=(result, flagged.outvars[1])))
        if not nan:
            self.test(result)
        return True

    def note_rows(self, equation: Equation) -> None:
        if isinstance(equation.primitive, Reduction):
            shape, axes = equation.invars[0].aval.shape, tuple(sorted(equation.params["axes"]))  # type: ignore[attr-defined]
            if axes and axes[0] > 0 and axes == tuple(range(axes[0], len(shape))):
                self.rows.setdefault(shape, axes)

    def test(self, v: Var) -> None:
        """Test a value for nan, if it must be."""
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

    def any_of(self, flags: Sequence[Atom]) -> Atom:
        total = flags[0]
        for flag in flags[1:]:
            total = self.writer.make("or", total, flag)
        return total

    # -- loops and branches ----------------------------------------------------------------------------------------

    def ranges(self, atoms: Sequence[Atom]) -> Ranges:
        """What is known of operands that a sub-jaxpr gets as they are."""
        return tuple([self.range_of(a) for a in atoms])

    def range_of(self, atom: Atom) -> Range | None:
        limits = dtype_range(atom.aval)
        if limits is Range.EVERYTHING:
            return None
        found = self.writer.bounds.of(atom)
        return None if found == limits else found

    def keep_as(self, equation: Equation, operands: Sequence[Atom], results: Sequence[Var], params: Params) -> None:
        effects = equation.primitive.effects([a.aval for a in operands], params)
        self.writer.keep(equation.replace(invars=operands, outvars=results, params=params, effects=effects))

    def keep_silent(self, equation: Equation) -> None:
        """A loop or a branch in which nothing is left to be found."""
        self.writer.keep(without_checks(equation) if CHECK in equation.effects else equation)

    def carried(self) -> Var:
        """The flag that comes out of a loop or a branch."""
        flag = Var(_FLAG)
        self.flags.append(flag)
        return flag

    def scan(self, equation: Equation) -> None:
        params, operands = equation.params, equation.invars
        constants, first = params["num_consts"], params["num_consts"] + params["num_carry"]
        counters = [self.counted(equation, n) for n in range(params["num_carry"])]
        known = (*self.ranges(operands[:constants]), *counters, *self.ranges(operands[first:]))
        unflagged = self.without_checks_of_slices(equation)
        body = with_flag(unflagged, known, shown=lasting_carries(equation))
        if body is None:
            self.keep_silent(equation)
            return
        body = accumulating(body, first, params["num_carry"])
        operands = (*operands[:first], make_literal(False, np.bool_), *operands[first:])
        carry, rest = equation.outvars[: params["num_carry"]], equation.outvars[params["num_carry"] :]
        params = {**params, "jaxpr": body, "num_carry": params["num_carry"] + 1}
        self.keep_as(equation, operands, [*carry, self.carried(), *rest], params)

    def without_checks_of_slices(self, equation: Equation) -> Jaxpr:
        """The body of a loop without the checks of what is computed from slices alone: here the whole is checked at
        once."""
        body, operands, length = equation.params["jaxpr"], equation.invars, equation.params["length"]
        if type(length) is not int or length < 1:
            return body
        constants, first = equation.params["num_consts"], equation.params["num_consts"] + equation.params["num_carry"]
        whole: dict[Any, Atom] = dict(zip(body.invars[first:], operands[first:], strict=True))
        scalars = {v: a for v, a in zip(body.invars[:constants], operands[:constants], strict=True) if not _shape(v)}
        defined = {v: e for e in body.eqns for v in e.outvars}
        remaining = []
        for inner in body.eqns:
            chain = None
            if inner.primitive is check and len(inner.invars) == 1:
                chain = chain_of(inner.invars[0], defined, whole, scalars)
            if chain is None:
                remaining.append(inner)
                continue
            for link in chain:
                self.writer.like = link
                args = [whole.get(a) or scalars.get(a) or a for a in link.invars]
                whole[link.outvars[0]] = self.writer.make(link.primitive.name, *args, **link.params)
            flag = self.writer.flag_of(inner.replace(invars=(whole[inner.invars[0]],)))
            if flag is not None:
                self.flags.append(flag)
        return body if len(remaining) == len(body.eqns) else body.replace(eqns=remaining)

    def counted(self, equation: Equation, i: int) -> Range | None:
        """The range of a carry that grows by the same in every iteration."""
        params = equation.params
        body, start = params["jaxpr"], equation.invars[params["num_consts"] + i]
        before, after = body.invars[params["num_consts"] + i], body.outvars[i]
        limits = dtype_range(start.aval)
        if limits is Range.EVERYTHING or type(params["length"]) is not int:
            return None
        from_start, iterations = self.writer.bounds.of(start), max(params["length"] - 1, 0)
        step = 0
        if after is not before:
            added = next((e for e in body.eqns if after in e.outvars), None)
            if added is None or added.primitive.name != "add" or before not in added.invars:
                return None
            other = added.invars[1 if added.invars[0] is before else 0]
            if type(other) is not Literal:
                return None
            step = int(other.val)
        last = from_start + step * iterations
        whole = Range(min(from_start.lower, last.lower), max(from_start.upper, last.upper))
        return whole if whole.within(limits) and whole != limits else None

    def repeat(self, equation: Equation) -> None:
        params, operands = equation.params, equation.invars
        count = params["nconsts"]
        known: Ranges = (None, *self.ranges(operands[1 : 1 + count]), *[None] * (len(operands) - 1 - count))
        body = with_flag(params["jaxpr"], known)
        if body is None:
            self.keep_silent(equation)
            return
        body = accumulating(body, len(operands), len(equation.outvars))
        operands = (*operands, make_literal(False, np.bool_))
        self.keep_as(equation, operands, [*equation.outvars, self.carried()], {**params, "jaxpr": body})

    def cond(self, equation: Equation) -> None:
        branches, operands = equation.params["branches"], equation.invars
        known = self.ranges(operands[1:])
        flagged = [with_flag(branch, known) for branch in branches]
        if all(branch is None for branch in flagged):
            self.keep_silent(equation)
            return
        none = make_literal(False, np.bool_)
        new_branches = []
        for branch, new in zip(branches, flagged, strict=True):
            silent = unchecked(branch)
            new_branches.append(silent.replace(outvars=[*silent.outvars, none]) if new is None else new)
        self.keep_as(equation, operands, [*equation.outvars, self.carried()], {"branches": tuple(new_branches)})

    def while_(self, equation: Equation) -> None:
        """A loop that ends when something is found: it may be what keeps it going."""
        params, operands = equation.params, equation.invars
        first, second = params["cond_nconsts"], params["cond_nconsts"] + params["body_nconsts"]
        unknown: Ranges = (None,) * (len(operands) - second)
        body = with_flag(params["body_jaxpr"], (*self.ranges(operands[first:second]), *unknown))
        condition = with_flag(params["cond_jaxpr"], (*self.ranges(operands[:first]), *unknown))
        if body is None and condition is None:
            self.keep_silent(equation)
            return
        flags: list[Var] = []
        if body is None:
            body = unchecked(params["body_jaxpr"])
        else:
            flags = [Var(_FLAG)]
            body = body.replace(invars=[*body.invars, Var(_FLAG)])
        silent = unless(unchecked(params["cond_jaxpr"]) if condition is None else condition, flags)
        params = {**params, "body_jaxpr": body, "cond_jaxpr": silent}
        results = [*equation.outvars, *[self.carried() for _ in flags]]
        self.keep_as(equation, (*operands, *[make_literal(False, np.bool_) for _ in flags]), results, params)
        if condition is not None:
            # What the condition found has no way out of the loop, but it ended it: so it is found once more.
            args = (*operands[:first], *equation.outvars)
            *_, flag = copy_equations(condition, equation, args, self.writer.equations, self.constants)
            self.flags.append(flag)


# How the flag comes out of each operation that runs sub-jaxprs.
_INSIDE: dict[Any, Callable[[_Flagged, Equation], None]] = {
    cond: _Flagged.cond,
    repeat: _Flagged.repeat,
    scan: _Flagged.scan,
    while_: _Flagged.while_,
}


def bounds_of(equation: Equation) -> Range:
    """What a check lets pass."""
    return Range(equation.params["low"], equation.params["high"])


def absorbed_checks(jaxpr: Jaxpr) -> dict[Equation, Equation]:
    """Checks of indices, with the scatters that leave out exactly those windows which the checks are about."""
    checks: dict[Any, list[Equation]] = {}
    for equation in jaxpr.eqns:
        if equation.primitive is check and equation.params["kind"] == "index" and len(equation.invars) == 1:
            checks.setdefault(equation.invars[0], []).append(equation)
    defined = {v: e for e in jaxpr.eqns for v in e.outvars}
    found: dict[Equation, Equation] = {}
    for equation in jaxpr.eqns:
        if isinstance(equation.primitive, Scatter) and equation.params["mode"] is GatherScatterMode.FILL_OR_DROP:
            for value, passing in components_of(equation, defined):
                for asking in checks.get(value, ()):
                    if bounds_of(asking) == passing:
                        found.setdefault(asking, equation)
    return found


def components_of(equation: Equation, defined: Mapping[Any, Equation]) -> list[tuple[Atom, Range]]:
    """The indices of which the index vectors of a scatter consist, as the user wrote them, each with the range in which
    a window lies in the operand."""
    operand, indices, updates = equation.invars
    shape, dimension_numbers = _shape(operand), equation.params["dimension_numbers"]
    sizes = window_sizes(len(shape), _shape(updates), dimension_numbers)
    source = defined.get(indices)
    parts: Sequence[Atom] = (indices,)
    if source is not None and source.primitive.name == "concatenate":
        if source.params["dimension"] != len(_shape(indices)) - 1 or any(_shape(a)[-1] != 1 for a in source.invars):
            return []
        parts = source.invars
    starts = dimension_numbers.scatter_dims_to_operand_dims
    if len(parts) != len(starts) or not all(type(shape[d]) is int and type(sizes[d]) is int for d in starts):
        return []
    found = []
    for part, d in zip(parts, starts, strict=True):
        while (source := defined.get(part)) is not None and source.primitive.name in ("broadcast_in_dim", "reshape"):
            part = source.invars[0]
        if (written := unwrapped(part, shape[d], defined)) is None:
            found.append((part, Range(0, shape[d] - sizes[d])))
        elif sizes[d] == 1:
            found.append((written, Range(-shape[d], shape[d] - 1)))
    return found


def unwrapped(value: Atom, size: int, defined: Mapping[Any, Equation]) -> Atom | None:
    """`i` of `where(i < 0, i + size, i)`; None of anything else."""
    chosen = defined.get(value)
    if chosen is None or chosen.primitive.name != "select_n" or len(chosen.invars) != 3:
        return None
    condition, index, raised = chosen.invars
    negative, total = defined.get(condition), defined.get(raised)
    if negative is None or negative.primitive.name != "lt" or total is None or total.primitive.name != "add":
        return None
    zero, added = negative.invars[1], total.invars[1]
    fits = type(zero) is Literal and not zero.val and type(added) is Literal and int(added.val) == size
    return index if fits and negative.invars[0] is index and total.invars[0] is index else None


def chain_of(
    value: Atom, defined: Mapping[Any, Equation], whole: Mapping[Any, Atom], scalars: Mapping[Any, Atom]
) -> list[Equation] | None:
    """The elementwise operations that compute a value in an iteration of a loop from slices of arrays, and from scalars
    that are the same in every iteration; in order, without those that were done for the whole. None if there are
    others."""
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


def accumulating(body: Jaxpr, before: int, after: int) -> Jaxpr:
    """A body whose flag, its last result, is a carry: result `after`, argument `before`."""
    *results, found = body.outvars
    flag = Var(_FLAG)
    either = new_equation(lookup("or"), (flag, found), {}, NOWHERE)
    return body.replace(
        invars=[*body.invars[:before], flag, *body.invars[before:]],
        eqns=[*body.eqns, either],
        outvars=[*results[:after], either.outvars[0], *results[after:]],
    )


def unless(condition: Jaxpr, flags: Sequence[Var]) -> Jaxpr:
    """A condition that does not hold where one of the flags is set: those that are its new arguments, and its own."""
    holds, *own = condition.outvars
    equations = list(condition.eqns)
    for flag in (*own, *flags):
        fine = new_equation(lookup("not"), (flag,), {}, NOWHERE)
        both = new_equation(lookup("and"), (holds, fine.outvars[0]), {}, NOWHERE)
        equations += [fine, both]
        holds = both.outvars[0]
    return condition.replace(invars=[*condition.invars, *flags], eqns=equations, outvars=[holds])
