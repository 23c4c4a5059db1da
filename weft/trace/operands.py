"""Names of operands in the user's code and the origin of their shardings, for errors."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

from weft.base.source import is_generated, is_internal
from weft.ir.jaxpr import Atom, Equation, Var
from weft.ir.kinds import Resharding
from weft.sharding.spec import split_axes


def describe_operands(values: Sequence[Any]) -> list[tuple[str, str]]:
    """Return, for each operand, the name of the variable that holds it and the origin of its sharding; empty texts if
    unknown."""
    variables = user_variables()
    return [(variable_name(v, variables), sharding_origin(v)) for v in values]


def user_variables() -> dict[str, Any]:
    """Return the variables visible in the innermost user function that is running."""
    frame = sys._getframe(1)
    while frame is not None:
        if not is_internal(frame.f_code.co_filename) and not is_generated(frame.f_code):
            shared = frame.f_globals
            return {**{n: shared[n] for n in frame.f_code.co_names if n in shared}, **frame.f_locals}
        frame = frame.f_back  # type: ignore[assignment]
    return {}


def variable_name(value: Any, variables: dict[str, Any]) -> str:
    """Return the name of the variable that holds a value, or of the argument that it is."""
    var = jaxpr_variable(value)
    for name, held in variables.items():
        if held is value or (var is not None and jaxpr_variable(held) is var):
            return name
    return "" if var is None else jaxpr_variable_name(value._trace, var, variables)


def jaxpr_variable_name(trace: Any, var: Atom, variables: dict[str, Any]) -> str:
    """Return the name of a variable of the jaxpr that is being recorded, as `variable_name` does for values."""
    equation = defining_equation(trace, var)
    if equation is None:
        result: str = trace.argument_names.get(var, "")
        return result
    sources = [v for v in equation.invars if type(v) is Var]
    # A value that was only converted to another dtype keeps the name of its operand.
    if not (equation.primitive.pointwise and len(equation.invars) == len(sources) == 1):
        return ""
    held = next((name for name, x in variables.items() if jaxpr_variable(x) is sources[0]), None)
    return jaxpr_variable_name(trace, sources[0], variables) if held is None else held


def sharding_origin(value: Any) -> str:
    """Describe where a traced value got its sharding: from an argument, or at a line."""
    var = jaxpr_variable(value)
    if var is None:
        return ""
    trace, spec = value._trace, value.aval.spec
    axes = split_axes(spec.partitions) or sorted(spec.unreduced, key=str)
    if not axes:
        return ""
    while True:
        equation = defining_equation(trace, var)
        if equation is None:
            name = trace.argument_names.get(var)
            return "" if name is None else f"from argument {name} of {trace.where}"
        source = next(
            (
                v
                for v in equation.invars
                if not isinstance(equation.primitive, Resharding) and is_split_over(v, axes[0])
            ),
            None,
        )
        if source is None:
            return "" if equation.source is None else f"from {equation.source.describe()}"
        var = source


def jaxpr_variable(value: Any) -> Atom | None:
    """Return the variable of a tracer in the jaxpr that is being recorded, or None."""
    return getattr(value, "_var", None)


def is_split_over(atom: Atom, axis: Any) -> bool:
    """Return whether a value is split, or unreduced, over an axis."""
    spec = getattr(atom.aval, "spec", None)
    return spec is not None and (axis in split_axes(spec.partitions) or axis in spec.unreduced)


def defining_equation(trace: Any, var: Atom) -> Equation | None:
    """Return the equation that computes a variable, or None if it is an argument."""
    return next((e for e in reversed(trace.equations) if var in e.outvars), None)
