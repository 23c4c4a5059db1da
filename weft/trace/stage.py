"""Staging: run a Python function on tracers and record its equations as a jaxpr."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np

from weft.base.errors import NotSupportedError, ShardingTypeError
from weft.base.settings import config
from weft.base.source import Location, user_line
from weft.indexing.expression import Expression
from weft.ir.context import Trace, context, current_source
from weft.ir.jaxpr import Atom, Equation, Jaxpr, Literal, Var
from weft.ir.primitive import Primitive, lookup
from weft.ir.staged import infer_type, raise_with_names
from weft.ir.types import ArrayType, ShapeDtypeStruct, Type, get_aval
from weft.ir.varying import Cast, operand_casts
from weft.trace.leaks import report_leaks
from weft.trace.operands import describe_operands
from weft.trace.tracer import Tracer, check_leak, type_text


class StagedTracer(Tracer):
    """Variable of the jaxpr being recorded."""

    __slots__ = ("_var", "source")

    def __init__(self, trace: StagingTrace, var: Var, source: Location | None = None):
        self._trace = trace
        self.aval = var.aval
        self._var = var
        self.source = source

    def _text(self, aval: Any, depth: int) -> str:
        trace: StagingTrace = self._trace  # type: ignore[assignment]
        if trace.observer is not None and not trace.finished:
            return trace.observer.text(self)
        return f"JitTracer({type_text(aval)})"

    def observe(self) -> Any:
        trace: StagingTrace = self._trace  # type: ignore[assignment]
        return None if trace.observer is None or trace.finished else trace.observer.value(self)

    def origin(self) -> str:
        trace: StagingTrace = self._trace  # type: ignore[assignment]
        name = trace.argument_names.get(self._var)
        if name is not None:
            return f"argument {name} of {trace.where}"
        at = f", made at {self.source.describe()}" if self.source is not None else ""
        return f"a value inside {trace.where}{at}"


class Observer(Protocol):
    """Computes values of a program while it is recorded, since its arguments have values."""

    def begin(self, trace: StagingTrace, arguments: Sequence[StagedTracer]) -> None:
        """Receive the trace and its arguments before the function is called."""
        ...

    def value(self, tracer: StagedTracer) -> Any:
        """Return the value of a tracer as a NumPy array, or None if it has none that all devices share."""
        ...

    def text(self, tracer: StagedTracer) -> str:
        """Return the text that `print` shows for a tracer."""
        ...


class Cell:
    """Value of a mutable array from outside in a jaxpr: at first an argument."""

    __slots__ = ("argument", "ref", "value", "written")

    def __init__(self, ref: Any, argument: StagedTracer):
        self.ref, self.argument, self.value, self.written = ref, argument, argument, False


class StagingTrace(Trace):
    """Trace that records every operation as an equation. Values from outside become constants of the jaxpr."""

    __slots__ = (
        "argument_names",
        "cells",
        "constants",
        "equations",
        "finished",
        "observer",
        "parent",
        "repeats",
        "where",
    )

    def __init__(
        self,
        where: str = "a traced function",
        parent: Trace | None = None,
        repeats: bool = False,
        observer: Observer | None = None,
    ):
        self.where = where
        self.observer = observer
        self.repeats = repeats  # the recorded equations run many times, as part of a loop
        self.parent = context.trace if parent is None else parent
        self.equations: list[Equation] = []
        self.constants: dict[int, tuple[Var, Any]] = {}  # id -> variable and value (held, so that ids stay unique)
        self.argument_names: dict[Var, str] = {}
        self.cells: dict[int, Cell] = {}  # by the id of a mutable array
        self.finished = False

    def describe(self) -> str:
        return f"a value inside {self.where}"

    def argument(self, aval: Type, name: str | None = None) -> StagedTracer:
        var = Var(aval)
        if name is not None:
            self.argument_names[var] = name
        return StagedTracer(self, var)

    def cell(self, ref: Any, aval: Type) -> Cell:
        """Return the cell of a mutable array from outside, creating it with a new argument at its first use."""
        found = self.cells.get(id(ref))
        if found is None:
            found = self.cells[id(ref)] = Cell(ref, self.argument(aval))
        return found

    def atom(self, value: Any) -> Atom:
        """Return the variable or literal of a value in this jaxpr."""
        if type(value) is StagedTracer:
            if value._trace is self:
                return value._var
            trace: StagingTrace = value._trace  # type: ignore[assignment]
            check_leak(value, value.source, trace.finished, trace.where)
        if isinstance(value, Expression):
            return self.size(value)
        aval = get_aval(value)
        if isinstance(aval, ArrayType) and not aval.shape and not isinstance(value, (Tracer, ShapeDtypeStruct)):
            literal = literal_value(value, aval)
            if literal is not None:
                return Literal(literal, aval)
        known = self.constants.get(id(value))
        if known is None:
            known = self.constants[id(value)] = (Var(aval), value)
        return known[0]

    def process(self, primitive: Primitive, args: Sequence[Any], params: dict[str, Any]) -> list[Any]:
        atoms = [a._var if type(a) is StagedTracer and a._trace is self else self.atom(a) for a in args]
        types = [a.aval for a in atoms]
        if primitive.higher_order or any(not t.is_plain for t in types):
            casts = operand_casts(primitive, types, params)
            if casts is not None:
                atoms = [self.cast(a, own) if own else a for a, own in zip(atoms, casts, strict=True)]
                types = [a.aval for a in atoms]
        try:
            out_types = infer_type(primitive, types, params)
        except ShardingTypeError:
            raise_with_names(primitive, types, params, describe_operands(args))
            raise
        effects = primitive.effects(types, params)
        variables = [Var(t) for t in out_types] if primitive.multiple_results else [Var(out_types)]
        source = context.source or current_source()
        self.equations.append(Equation(atoms, variables, primitive, params, effects, source, context.stack))
        return [StagedTracer(self, v, source) for v in variables]

    def size(self, expression: Expression) -> Atom:
        """Return a symbolic size as a number of this jaxpr, typed like a Python integer."""
        before, context.trace = context.trace, self
        try:
            return self.atom(Expression.as_array(expression))
        finally:
            context.trace = before

    def cast(self, atom: Atom, casts: Sequence[Cast]) -> Atom:
        """Apply casts along manual axes to a variable, so that cotangents of values that all devices share are summed.
        A literal has no cotangent."""
        for name, axes in casts if type(atom) is Var else ():
            (tracer,) = self.process(lookup(name), [StagedTracer(self, atom)], {"axes": axes})  # type: ignore[arg-type]
            atom = tracer._var
        return atom

    def slice(self, arguments: Sequence[StagedTracer], result: StagedTracer) -> tuple[Jaxpr, list[Any]]:
        """Return the jaxpr that computes one value from the arguments, without other effects, and its constants."""
        needed = {result._var}
        equations: list[Equation] = []
        for equation in reversed(self.equations):
            if not needed.isdisjoint(equation.outvars):
                equations.append(equation)
                needed.update(a for a in equation.invars if type(a) is Var)
        held = [(v, c) for v, c in self.constants.values() if v in needed]
        invars = [a._var for a in arguments]
        values = [c for _, c in held]
        return Jaxpr(tuple(v for v, _ in held), invars, [result._var], equations[::-1], values, ""), values

    def finish(self, arguments: Sequence[Any], results: Sequence[Any], name: str = "") -> tuple[Jaxpr, list[Any]]:
        """Close the jaxpr and return it with its constants, which the caller attaches or passes."""
        outvars = [self.atom(r) for r in results]
        self.finished = True
        variables = [v for v, _ in self.constants.values()]
        values = [c for _, c in self.constants.values()]
        jaxpr = Jaxpr((*variables,), [a._var for a in arguments], outvars, self.equations, values, name)
        return jaxpr, values


def literal_value(value: Any, aval: ArrayType) -> Any:
    """Convert a concrete scalar to a NumPy scalar array of its type; None if it must stay a constant (keys)."""
    if not isinstance(aval.dtype, np.dtype) or (aval.dtype.kind == "V" and aval.dtype.names):
        return None
    literal = np.array(getattr(value, "_value", value), dtype=aval.dtype)
    literal.flags.writeable = False
    return literal


def stage(
    function: Callable[..., Sequence[Any]],
    types: Sequence[Type],
    *,
    where: str = "a traced function",
    names: Sequence[str] | None = None,
    name: str = "",
    repeats: bool = False,
    refs: list[tuple[Any, bool]] | None = None,
    observer: Observer | None = None,
) -> tuple[Jaxpr, list[Any]]:
    """Trace `function` (flat arguments to a flat list of results) on arguments of `types`.

    Returns the jaxpr with its constants attached and the list of those constants, which may include tracers of
    outer traces; a caller that stores the jaxpr beyond this call passes constants as operands
    (`constants_to_arguments`).

    Mutable arrays from outside that the function touches are appended to `refs`, with whether it writes them: their
    values are further arguments, and what is written is returned after the results. Without `refs` they are an error.
    With an `observer`, conversions of tracers to Python values compute them.
    """
    trace = StagingTrace(where, repeats=repeats, observer=observer)
    argument_names: Sequence[str | None] = names or [None] * len(types)
    arguments = [trace.argument(t, n) for t, n in zip(types, argument_names, strict=True)]
    if observer is not None:
        observer.begin(trace, arguments)
    before, source = context.trace, context.source
    context.trace, context.source = trace, None  # what is traced has lines of its own
    try:
        results = function(*arguments)
    except BaseException:
        trace.finished = True
        raise
    finally:
        context.trace, context.source = before, source
    if trace.cells:
        if refs is None:
            trace.finished = True
            raise _cannot_touch(trace)
        cells = list(trace.cells.values())
        refs.extend((cell.ref, cell.written) for cell in cells)
        arguments = [*arguments, *(cell.argument for cell in cells)]
        results = [*results, *(cell.value for cell in cells if cell.written)]
    jaxpr, values = trace.finish(arguments, results, name)
    if config.check_tracer_leaks:
        del arguments, results
        report_leaks(trace)
    return jaxpr, values


def _cannot_touch(trace: StagingTrace) -> NotSupportedError:
    """Create the error for a mutable array from outside in a jaxpr that has no way to return it."""
    return NotSupportedError(
        f"A mutable array reference from outside is used in {trace.where}, where it cannot be.",
        received=next(iter(trace.cells.values())).ref.short(),
        fix="pass ref[...] as an argument, return what is to be written, and write it outside",
        at=user_line(),
    )
