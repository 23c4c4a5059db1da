"""Insert traps: for the checks of the program, and for NaN and infinity if the settings ask for these."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from weft.base import dtypes
from weft.base.compile_options import CompileOptions
from weft.compiler.passes.bounds import Bounds
from weft.compiler.rewrite import make_literal, map_bodies, new_equation
from weft.indexing.ranges import Range
from weft.ir.higher_order import ControlFlow
from weft.ir.interpreter import run
from weft.ir.jaxpr import Atom, Equation, Jaxpr, Var, subjaxprs
from weft.ir.nans import allows_nans, can_be
from weft.ir.parameters import params_key
from weft.ir.primitive import Params, lookup
from weft.primitives.control.check import CHECK, CheckedValue, Flags, MappedAxis, check, split_operands, without_checks
from weft.primitives.families import Reduction

_TRAP = lookup("trap")
# An equation of no line.
NOWHERE = Equation([], [], _TRAP, {})


def insert_checks(jaxpr: Jaxpr, options: CompileOptions) -> Jaxpr:
    """Replace each check by a trap, and test the results of operations for NaN and infinity if the options ask for it.

    Needs: no calls. Keeps: its form, and all results.
    """
    return check_results(with_traps(jaxpr, options), options)


def with_traps(jaxpr: Jaxpr, options: CompileOptions) -> Jaxpr:
    """Return the jaxpr with traps after its operations, and in its loops and branches."""
    return jaxpr.memoize(("with_traps", options), lambda: _with_traps(jaxpr, options))


def _with_traps(jaxpr: Jaxpr, options: CompileOptions) -> Jaxpr:
    before = [inside(e, options) for e in jaxpr.eqns]
    unchanged = all(a is b for a, b in zip(before, jaxpr.eqns, strict=True))
    if unchanged and not options.tests_values and not any(e.primitive is check for e in before):
        return jaxpr
    writer = Writer()
    collector = TestCollector(writer, options)
    for equation in before:
        if equation.primitive is check:
            writer.add_trap(equation)
            continue
        if equation.effects or isinstance(equation.primitive, ControlFlow):
            collector.flush()  # so that errors are raised before later effects
        writer.keep(equation)
        if options.tests_values:
            collector.enter(equation)
    collector.flush()
    return jaxpr.replace(eqns=writer.equations)


def inside(equation: Equation, options: CompileOptions) -> Equation:
    """Return an equation with traps in its loop bodies and branches. Other sub-jaxprs, such as the combiner of a
    reduction, are parts of kernels, which cannot stop a program: they lose their checks."""
    if isinstance(equation.primitive, ControlFlow):
        return map_bodies(equation, lambda jaxpr: with_traps(jaxpr, options))
    if any(CHECK in p.effects for p in subjaxprs(equation.params)):
        return without_checks(equation)
    return equation


# Limit of the equations that are recomputed to describe an error.
LONGEST_RECIPE = 32


class Recipe:
    """A jaxpr that computes the values of an error message from `operands`. Passes do not enter it."""

    def __init__(self, jaxpr: Jaxpr, operands: Sequence[Atom]) -> None:
        self.jaxpr = jaxpr
        self.operands = operands

    def __call__(self, *arrays: Any) -> list[Any]:
        return run(self.jaxpr, arrays)

    def __repr__(self) -> str:
        return f"<{len(self.jaxpr.eqns)} equations>"


def can_recompute(equation: Equation) -> bool:
    """Return whether an equation can be recomputed to the bit for an error message, from values that are in memory
    anyway. So the index of a gather, for example, is not written to memory just for the message."""
    primitive = equation.primitive
    if primitive.copies or not primitive.introduced(equation.params):
        return True
    return primitive.pointwise and primitive.exact([a.aval for a in equation.invars], equation.params)


def make_recipe(values: Sequence[Atom], defined: Mapping[Any, Equation]) -> Recipe:
    """Collect the exact equations, up to a limit, that compute the values, and their operands."""
    needed: dict[Equation, None] = {}
    waiting = [v for v in values if v in defined]
    while waiting:
        equation = defined[waiting.pop()]
        if equation in needed:
            continue
        if not can_recompute(equation) or len(needed) == LONGEST_RECIPE:
            continue
        needed[equation] = None
        waiting += [a for a in equation.invars if a in defined]
    order = {id(e): i for i, e in enumerate(dict.fromkeys(defined.values()))}
    equations = sorted(needed, key=lambda e: order[id(e)])
    computed = {v for e in equations for v in e.outvars}
    read = dict.fromkeys([*(a for e in equations for a in e.invars), *values])
    operands = [a for a in read if type(a) is Var and a not in computed]
    return Recipe(Jaxpr((), operands, values, equations, (), "recipe"), operands)


def check_results(jaxpr: Jaxpr, options: CompileOptions) -> Jaxpr:
    """Test the results of a whole jaxpr for NaN and infinity as the options ask for it, whatever computed them."""
    kinds = [kind for kind, wanted in (("nan", options.debug_nans), ("inf", options.debug_infs)) if wanted]
    if not kinds:
        return jaxpr
    writer = Writer()
    writer.equations += jaxpr.eqns
    definitions: dict[Any, Equation] = {v: e for e in jaxpr.eqns for v in e.outvars}
    for i, v in enumerate(jaxpr.outvars):
        equation = definitions.get(v)
        tested = [] if equation is None else kinds_to_check(equation, v.aval, options)
        values = [
            TestedValue(kind, v, "", i, equation) for kind in kinds if kind not in tested and can_be(kind, v.aval)
        ]
        if values:
            writer.trap_nonfinite(values)
    return jaxpr if len(writer.equations) == len(jaxpr.eqns) else jaxpr.replace(eqns=writer.equations)


def kinds_to_check(equation: Equation, aval: Any, options: CompileOptions) -> list[str]:
    """Return which of "nan" and "inf" a result of an equation is tested for."""
    primitive = equation.primitive
    if isinstance(primitive, ControlFlow) or not equation.invars:
        return []
    introduced, kinds = primitive.introduced(equation.params), []
    wanted = options.debug_nans or (
        options.checks_all and "nan" in primitive.introduced(equation.params, intended=False)
    )
    if "nan" in introduced and wanted and can_be("nan", aval):
        kinds.append("nan")
    if "inf" in introduced and options.debug_infs and can_be("inf", aval):
        kinds.append("inf")
    return kinds


class TestedValue(NamedTuple):
    """A value that is tested for NaN or infinity: result number `result` of an operation."""

    kind: str
    atom: Atom
    operation: str
    result: int
    equation: Equation | None

    def describe(self) -> CheckedValue:
        """Return the description of the value for an error message."""
        if self.equation is None:
            return CheckedValue(self.kind, self.operation, self.result, None, ())
        lanes = [lane for lane in self.equation.stack if isinstance(lane, MappedAxis)]
        shape: Any = self.atom.aval.shape  # type: ignore[attr-defined]
        # A function that was mapped before it was called here has its lanes on the stack twice.
        once = list({(str(lane), lane.size): lane for lane in lanes}.values())
        fitting = (f for f in (lanes, once) if tuple(lane.size for lane in f) == shape[: len(f)])
        names = tuple(str(lane) for lane in next(fitting, []))
        return CheckedValue(self.kind, self.operation, self.result, self.equation.source, names)


class TestCollector:
    """Collects the values to test in groups that one reduction tests: values of one shape that a kernel can compute
    together, because no element of one depends on all elements of another."""

    def __init__(self, writer: Writer, options: CompileOptions) -> None:
        self.writer, self.options = writer, options
        self.groups: dict[Any, list[TestedValue]] = {}
        self.phases: dict[Any, int] = {}
        # By shape: the trailing axes that the jaxpr reduces in arrays of that shape. Kernels of whole rows (softmax and
        # the like) can reduce the tests as well, if they do it row by row.
        self.rows: dict[Any, tuple[int, ...]] = {}

    def enter(self, equation: Equation) -> None:
        """Add the results of an equation that must be tested."""
        primitive = equation.primitive
        phase = max((self.phases.get(a, 0) for a in equation.invars), default=0)
        if not primitive.pointwise and primitive.introduces and not primitive.identity:
            phase += 1
        if isinstance(primitive, Reduction):
            shape, axes = equation.invars[0].aval.shape, tuple(sorted(equation.params["axes"]))  # type: ignore[attr-defined]
            if axes and axes[0] > 0 and axes == tuple(range(axes[0], len(shape))):
                self.rows.setdefault(shape, axes)
        silent = allows_nans(equation.stack)
        for i, v in enumerate(equation.outvars):
            self.phases[v] = phase
            if silent:
                continue
            for kind in kinds_to_check(equation, v.aval, self.options):
                group = self.groups.setdefault((phase, v.aval.shape), [])  # type: ignore[attr-defined]
                group.append(TestedValue(kind, v, primitive.name, i, equation))

    def flush(self) -> None:
        """Write the tests of all collected values."""
        for (_, shape), values in sorted(self.groups.items(), key=lambda item: item[0][0]):
            self.writer.trap_nonfinite(values, self.rows.get(shape, ()))
        self.groups, self.rows = {}, {}


class Writer:
    """Appends equations to a jaxpr. `known` has the ranges of its integer arguments."""

    def __init__(self, known: Mapping[Any, Range] | None = None) -> None:
        self.equations: list[Equation] = []
        self.like = NOWHERE
        self.defined: dict[Any, Equation] = {}
        self.bounds = Bounds(self.defined, known or {})
        self._known: set[Any] = set()

    def keep(self, equation: Equation) -> None:
        """Append an equation of the original jaxpr."""
        self.equations.append(equation)
        for v in equation.outvars:
            self.defined[v] = equation

    def make(self, name: str, *args: Atom, **params: Any) -> Var:
        """Append an equation and return its result."""
        equation = new_equation(lookup(name), args, params, self.like)
        self.equations.append(equation)
        return equation.outvars[0]

    def trap(self, operands: Sequence[Atom], params: Params) -> None:
        """Append a trap."""
        like = self.like
        self.equations.append(Equation(operands, [], _TRAP, params, frozenset({CHECK}), like.source, like.stack))

    # -- checks ----------------------------------------------------------------------------------------------------

    def add_trap(self, equation: Equation) -> None:
        """Append the trap of a check, unless the check cannot fail."""
        flag = self.make_flag(equation)
        if flag is not None:
            recipe = make_recipe(equation.invars, self.defined)
            self.trap([flag, *recipe.operands], {**equation.params, "recipe": recipe})

    def make_flag(self, equation: Equation) -> Var | None:
        """Append the equations of a check and return whether it fails; None if it cannot fail, or repeats another."""
        key = (equation.invars, params_key({**equation.params, "about": None}))
        if key in self._known:
            return None
        self._known.add(key)
        self.like = equation
        value, _, active = split_operands(equation.invars, equation.params)
        aval: Any = value.aval
        outside = self.outside(value, equation.params)
        if outside is None:
            return None
        for mask in active:
            shape: Any = mask.aval.shape
            if shape != aval.shape:
                dims = tuple(range(len(shape)))
                mask = self.make("broadcast_in_dim", mask, shape=aval.shape, broadcast_dimensions=dims)
            outside = self.make("and", outside, mask)
        return self.make("reduce_or", outside, axes=tuple(range(aval.ndim))) if aval.shape else outside

    def outside(self, value: Atom, params: Params) -> Var | None:
        """Return a mask of the elements for which a check fails; None if it cannot fail."""
        aval: Any = value.aval
        if params["kind"] == "debug":
            return None
        if params["kind"] == "user":
            return self.make("not", value)
        possible = self.bounds.of(value)
        if params["kind"] == "divisor":
            return self.make("eq", value, make_literal(0, aval.dtype)) if 0 in possible else None
        limits = dtypes.iinfo(aval.dtype)
        tests = []
        if params["low"] > possible.lower:
            tests.append(self.make("lt", value, make_literal(min(params["low"], limits.max), aval.dtype)))
        if params["high"] < possible.upper:
            tests.append(self.make("gt", value, make_literal(max(params["high"], limits.min), aval.dtype)))
        if not tests:
            return None
        return tests[0] if len(tests) == 1 else self.make("or", *tests)

    # -- nan and inf -----------------------------------------------------------------------------------------------

    def trap_nonfinite(self, values: Sequence[TestedValue], row: tuple[int, ...] = ()) -> None:
        """Append a trap for the first NaN or infinity in values of one shape, in the order in which they are computed;
        the axes of `row` are reduced first.

        Its flag is the greatest code that `Flags` has for a value and an element, or 0 if all are finite.
        """
        last = values[-1].equation
        self.like = NOWHERE if last is None else last
        shape: tuple[int, ...] = values[0].atom.aval.shape  # type: ignore[attr-defined]
        outer = shape[: len(shape) - len(row)] if row else ()
        flags = Flags(len(values), math.prod(outer), math.prod(shape[len(outer) :]))
        count = np.dtype(np.uint32 if flags.most < 2**32 else np.uint64)
        code: Atom = self.full(0, count, shape)
        for i, value in enumerate(reversed(values), 1):
            code = self.make("select_n", self.wrong(value.kind, value.atom), code, self.full(i, count, shape))
        if shape:
            code = self.largest(code, flags.size + 1, shape, range(len(outer), len(shape)), count, True)
        if outer:
            code = self.largest(code, flags.row, outer, range(len(outer)), count, False)
        descriptions = tuple(value.describe() for value in values)
        self.trap([code], {"kind": "number", "shape": shape, "flags": flags, "made": descriptions})

    def largest(
        self, code: Atom, step: int, shape: tuple[int, ...], axes: Sequence[int], count: Any, scaled: bool
    ) -> Var:
        """Return the maximum over some axes of the nonzero codes combined with `left`, the number of elements from each
        to the end: code * step + left if `scaled`, else left * step + code."""
        left = self.left(shape, axes, count)
        first, second = (code, left) if scaled else (left, code)
        numbered = self.make("add", self.make("mul", first, make_literal(step, count)), second)
        found = self.make("gt", code, make_literal(0, count))
        return self.make(
            "reduce_max", self.make("select_n", found, self.full(0, count, shape), numbered), axes=tuple(axes)
        )

    def full(self, value: int, dtype: Any, shape: tuple[int, ...]) -> Atom:
        """Return an array filled with one value."""
        literal = make_literal(value, dtype)
        return self.make("broadcast_in_dim", literal, shape=shape, broadcast_dimensions=()) if shape else literal

    def wrong(self, kind: str, value: Atom) -> Var:
        """Return a mask of the elements that are NaN, or infinite."""
        if kind == "nan":
            return self.make("ne", value, value)
        aval: Any = value.aval
        parts = [self.make("real", value), self.make("imag", value)] if dtypes.kind(aval.dtype) == "c" else [value]
        tests = [
            self.make("eq", self.make("abs", part), make_literal(np.inf, part.aval.dtype))  # type: ignore[attr-defined]
            for part in parts
        ]
        return tests[0] if len(tests) == 1 else self.make("or", *tests)

    def left(self, shape: tuple[int, ...], axes: Sequence[int], count: Any) -> Atom:
        """Return for each element the number of elements from it to the end, counted along some axes."""
        total: Any = None
        stride = 1
        for dimension in reversed(axes):
            if shape[dimension] != 1:
                index = self.make("iota", dtype=count, shape=shape, dimension=dimension)
                step = self.make("mul", index, make_literal(stride, count)) if stride != 1 else index
                total = step if total is None else self.make("add", step, total)
            stride *= shape[dimension]
        if total is None:
            return self.full(1, count, shape)
        return self.make("sub", make_literal(stride, count), total)
