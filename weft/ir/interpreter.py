"""Run a jaxpr: bind its equations under the active trace (`replay`), or compute them on NumPy arrays with the
primitives' `eval` rules (`run`)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from weft.base.dtypes import is_canonical
from weft.ir.context import EVALUATION, context, join_stacks
from weft.ir.higher_order import check_operands
from weft.ir.jaxpr import Equation, Jaxpr, Literal, Var
from weft.ir.nans import allows_nans, check_finite, checks_for_nans
from weft.ir.types import ArrayType, get_aval
from weft.ir.varying import cast_to_state


def last_uses(jaxpr: Jaxpr) -> list[tuple[Var, ...]]:
    """Return for each equation the variables that are dead after it."""

    def compute() -> list[tuple[Var, ...]]:
        seen = {v for v in jaxpr.outvars if type(v) is Var}
        uses: list[tuple[Var, ...]] = []
        for equation in reversed(jaxpr.eqns):
            last = []
            for v in (*equation.invars, *equation.outvars):
                if type(v) is Var and v not in seen:
                    seen.add(v)
                    last.append(v)
            uses.append(tuple(last))
        return uses[::-1]

    return jaxpr.memoize("last_uses", compute)


def replay(jaxpr: Jaxpr, *args: Any) -> list[Any]:
    """Bind every equation under the active trace, with its own source line and name stack; return the results."""
    if len(args) != len(jaxpr.invars):
        raise TypeError(f"The number of arguments must match the jaxpr's {len(jaxpr.invars)}; got {len(args)}.")
    values: dict[Any, Any] = dict(zip(jaxpr.constvars, jaxpr.consts, strict=True))
    values.update(zip(jaxpr.invars, args, strict=True))
    source, stack = context.source, context.stack
    try:
        for equation, finished in zip(jaxpr.eqns, last_uses(jaxpr), strict=True):
            context.source = equation.source or source
            context.stack = join_stacks(stack, equation.stack)
            operands = [literal(a) if type(a) is Literal else values[a] for a in equation.invars]
            results = context.trace.process(equation.primitive, operands, equation.params)
            values.update(zip(equation.outvars, results, strict=True))
            for v in finished:
                values.pop(v, None)
    finally:
        context.source, context.stack = source, stack
    results = [literal(a) if type(a) is Literal else values[a] for a in jaxpr.outvars]
    return [r if a.aval.is_plain else cast_to_state(r, a.aval) for r, a in zip(results, jaxpr.outvars, strict=True)]


def literal(atom: Literal) -> Any:
    """Return a literal as an operand of the literal's type. A NumPy scalar alone would lose a weak type, and 64 bits
    with `enable_x64` off."""
    aval = atom.aval
    if isinstance(aval, ArrayType) and (aval.weak_type or not is_canonical(aval.dtype)):
        return EVALUATION.lift(atom.val, aval)
    return atom.val


def evaluate(jaxpr: Jaxpr, *args: Any) -> list[Any]:
    """Evaluate a jaxpr on arguments. Works under every transformation: `grad(lambda x: evaluate(p, x)[0])`."""
    check_operands("evaluate", [get_aval(a) for a in args], jaxpr.in_avals)
    return replay(jaxpr, *args)


def run(jaxpr: Jaxpr, arrays: Sequence[Any]) -> list[Any]:
    """Compute the results on NumPy arrays, freeing every intermediate after its last use.

    NumPy's warnings about infinities and nan are disabled: these are ordinary results, and whether NumPy warns depends
    on its build.
    """
    with np.errstate(all="ignore"):
        return _run(jaxpr, arrays)


def _run(jaxpr: Jaxpr, arrays: Sequence[Any]) -> list[Any]:
    checking = checks_for_nans()
    values: dict[Any, Any] = {v: storage_array(c) for v, c in zip(jaxpr.constvars, jaxpr.consts, strict=True)}
    values.update(zip(jaxpr.invars, arrays, strict=True))
    for equation, finished in zip(jaxpr.eqns, last_uses(jaxpr), strict=True):
        operands = [a.val if type(a) is Literal else values[a] for a in equation.invars]
        results = run_equation(equation, operands)
        if checking and not equation.primitive.higher_order and not allows_nans(equation.stack):
            check_finite(equation.primitive, equation.params, results, equation.source)
        values.update(zip(equation.outvars, results, strict=True))
        for v in finished:
            values.pop(v, None)
    return [a.val if type(a) is Literal else values[a] for a in jaxpr.outvars]


def run_equation(equation: Equation, operands: Sequence[Any]) -> Sequence[Any]:
    """Compute one equation on NumPy arrays; collectives go to `context.meet` if it is set."""
    if context.meet is not None and equation.primitive.named_axes(equation.params):
        return context.meet(equation, operands)
    source = context.source
    context.source = equation.source or source
    try:
        results = equation.primitive.eval(*operands, **equation.params)
    finally:
        context.source = source
    return results if equation.primitive.multiple_results else (results,)


def storage_array(value: Any) -> Any:
    """Return the NumPy array behind a constant (concrete arrays hold theirs in `_value`)."""
    held = getattr(value, "_value", None)
    return np.asarray(value) if held is None else held
