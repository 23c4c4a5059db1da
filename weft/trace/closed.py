"""Staging of sub-jaxprs: they may own concrete constants, never values of a surrounding trace."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from weft.base import errors
from weft.base.source import user_line
from weft.ir.context import context
from weft.ir.jaxpr import Jaxpr
from weft.ir.types import Type
from weft.trace.refs import Touched
from weft.trace.stage import stage
from weft.trace.tracer import Tracer


def stage_subjaxpr(
    function: Callable[..., Sequence[Any]],
    types: Sequence[Type],
    *,
    name: str = "",
    inherits_line: bool = False,
    takes_refs: bool = False,
) -> Jaxpr:
    """Trace a flat function that may close over concrete arrays only. With `inherits_line`, for a function that a rule
    and not the user wrote, its equations get the line of the equation being processed. With `takes_refs` it may touch
    mutable arrays from outside; `get_touched_refs` returns them."""
    line = context.source

    def of_one_line(*args: Any) -> Sequence[Any]:
        context.source = line
        return function(*args)

    refs: list[tuple[Any, bool]] | None = [] if takes_refs else None
    flat = of_one_line if inherits_line else function
    jaxpr, constants = stage(flat, types, where=name or "a rule", name=name, refs=refs)
    if refs:
        touched = [Touched(*pair) for pair in refs]
        jaxpr.memoize("touched", lambda: touched)
    for value in constants:
        if isinstance(value, Tracer):
            raise errors.UnexpectedTracerError(
                "A custom derivative rule uses a traced value that is not one of its arguments.",
                received=f"{value.aval.short()}, {value.origin()}",
                fix="pass the value as an argument of the differentiated function, or save it as a residual",
                at=user_line(),
            )
    return jaxpr
