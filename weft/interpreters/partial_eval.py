"""Partial evaluation: tracing with some arguments known, and dead code elimination, under the names of
`jax.interpreters.partial_eval`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from weft.base.publish import publish as _publish
from weft.ir.context import active, context, with_aval
from weft.ir.jaxpr import Jaxpr, drop_dead
from weft.ir.types import Type, get_aval
from weft.trace.stage import StagedTracer, stage
from weft.transforms.linearize import TangentTrace

DynamicJaxprTracer = JaxprTracer = StagedTracer


class PartialVal(tuple[Any, Any]):
    """Known value, `(None, value)`, or the type of an unknown one, `(type, None)`."""

    def __new__(cls, xs: tuple[Any, Any]) -> PartialVal:
        return super().__new__(cls, xs)

    @classmethod
    def known(cls, const: Any) -> PartialVal:
        """Make a known value."""
        return cls((None, const))

    @classmethod
    def unknown(cls, aval: Type) -> PartialVal:
        """Make an unknown value of a type."""
        return cls((aval, None))

    def is_known(self) -> bool:
        """Return whether the value is known."""
        return self[0] is None

    def get_known(self) -> Any:
        """Return the value, or None if it is unknown."""
        return self[1] if self.is_known() else None

    def get_aval(self) -> Type:
        """Return the type."""
        return get_aval(self[1]) if self.is_known() else self[0]


def trace_to_jaxpr_nounits(
    fun: Any, pvals: Sequence[PartialVal], instantiate: bool | Sequence[bool] = False
) -> tuple[Jaxpr, list[PartialVal], list[Any]]:
    """Run a flat function of `linear_util` on known and unknown arguments: evaluate operations on known values, record
    all others.

    Returns the jaxpr from unknown arguments to unknown results, the results (each known or not), and the constants of
    the jaxpr. Results marked in `instantiate` are always among those of the jaxpr.
    """
    function: Callable[..., Any] = getattr(fun, "call_wrapped", fun)
    trace = TangentTrace(context.trace)
    staging = trace.staging
    arguments = [with_aval(p[1]) if p.is_known() else staging.argument(p[0]) for p in pvals]
    unknown = [a for a, p in zip(arguments, pvals, strict=True) if not p.is_known()]
    with active(trace):
        results = list(function(*arguments))
    flags = [instantiate] * len(results) if isinstance(instantiate, bool) else list(instantiate)
    recorded = [f or (type(r) is StagedTracer and r._trace is staging) for r, f in zip(results, flags, strict=True)]
    jaxpr, constants = staging.finish(unknown, [r for r, n in zip(results, recorded, strict=True) if n])
    out = [
        PartialVal.unknown(get_aval(r)) if n else PartialVal.known(r) for r, n in zip(results, recorded, strict=True)
    ]
    return jaxpr, out, constants


def trace_to_jaxpr_dynamic(
    fun: Any, in_avals: Sequence[Type], *, keep_inputs: Sequence[bool] | None = None
) -> tuple[Jaxpr, list[Type], list[Any]]:
    """Trace a flat function of `linear_util` for arguments of these types. Return the jaxpr, the types of its results,
    and its constants. Arguments that `keep_inputs` does not mark are traced and then dropped."""
    function: Callable[..., Any] = getattr(fun, "call_wrapped", fun)
    jaxpr, constants = stage(lambda *args: list(function(*args)), list(in_avals))
    if keep_inputs is not None:
        jaxpr = jaxpr.replace(invars=[v for v, k in zip(jaxpr.invars, keep_inputs, strict=True) if k])
    return jaxpr, jaxpr.out_avals, constants


def _flags(value: bool | Sequence[bool], count: int) -> list[bool]:
    return [value] * count if isinstance(value, bool) else list(value)


def dce_jaxpr(
    jaxpr: Jaxpr, used_outputs: bool | Sequence[bool], instantiate: bool | Sequence[bool] = False
) -> tuple[Jaxpr, list[bool]]:
    """Remove dead code from a jaxpr: equations that neither the used results nor effects need. Also return which
    arguments remain; those marked in `instantiate` always do."""
    return drop_dead(
        jaxpr, _flags(used_outputs, len(jaxpr.outvars)), keep_inputs=_flags(instantiate, len(jaxpr.invars))
    )


def dce_jaxpr_consts(
    jaxpr: Jaxpr, used_outputs: Sequence[bool], instantiate: bool | Sequence[bool] = False
) -> tuple[Jaxpr, list[bool], list[bool]]:
    """Remove dead code as `dce_jaxpr` does; also return which constants remain, before the arguments."""
    found, used = dce_jaxpr(jaxpr, used_outputs, instantiate)
    return found, [v in found.constvars for v in jaxpr.constvars], used


_publish(__name__)
