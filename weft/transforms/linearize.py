"""Linearize: run a function at a point and record its action on tangents as a linear jaxpr.

Operations on primal values run under the parent trace; operations on tangents are staged. The staged jaxpr's constants
are the residuals.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from weft.base.source import Location
from weft.ir.context import Trace, active, context, push_names, with_aval
from weft.ir.jaxpr import Jaxpr, drop_dead
from weft.ir.primitive import Primitive
from weft.ir.types import get_aval
from weft.ir.zeros import Zero
from weft.trace.stage import StagedTracer, StagingTrace
from weft.transforms.jvp import JVPTrace


class TangentTrace(Trace):
    """Trace that stages operations on tangents and splits those with both known and unknown results; the parent trace
    processes all others."""

    __slots__ = ("parent", "staging")
    stages_tangents = True

    def __init__(self, parent: Trace):
        self.parent = parent
        self.staging = StagingTrace("a linear program", parent)

    def process(self, primitive: Primitive, args: Sequence[Any], params: dict[str, Any]) -> list[Any]:
        staging = self.staging
        unknown = [type(a) is StagedTracer and a._trace is staging for a in args]
        if not any(unknown):
            return self.parent.process(primitive, args, params)
        split = primitive.partial_eval(unknown, [get_aval(a) for a in args], params) if primitive.higher_order else None
        if split is None:
            return staging.process(primitive, args, params)
        known: list[Any] = []
        if split.known is not None:
            operation, known_params = split.known
            known = self.parent.process(operation, [args[i] for i in split.known_in], known_params)
        count = len(split.unknown_out) - sum(split.unknown_out)
        known, residuals = known[:count], known[count:]
        operation, waiting_params = split.unknown
        operands = [args[i] if i >= 0 else residuals[~i] for i in split.unknown_in]
        waiting = staging.process(operation, operands, waiting_params)
        ready, later = iter(known), iter(waiting)
        return [next(later) if u else next(ready) for u in split.unknown_out]


def linearize_flat(
    function: Callable[..., Sequence[Any]],
    primals: Sequence[Any],
    nonzero: Sequence[bool] | None = None,
    name: str = "jvp",
    at: Location | None = None,
) -> tuple[list[Any], Jaxpr, list[bool]]:
    """Linearize a flat function; return its results, the linear jaxpr (nonzero tangents in, nonzero tangents out,
    residuals as constants), and which results have a nonzero tangent."""
    parent = context.trace
    tangent_trace = TangentTrace(parent)
    trace = JVPTrace(tangent_trace, name, at)
    mask = [True] * len(primals) if nonzero is None else list(nonzero)
    arguments = []
    inputs = []
    for primal, is_nonzero in zip(primals, mask, strict=True):
        primal = with_aval(primal)
        aval = primal.aval.tangent()
        tangent = tangent_trace.staging.argument(aval) if is_nonzero else Zero(aval)
        if is_nonzero:
            arguments.append(tangent)
        inputs.append(trace.join(primal, tangent))
    with active(trace), push_names(name):
        results = function(*inputs)
    pairs = [trace.split(r) for r in results]
    live = [type(t) is not Zero for _, t in pairs]
    jaxpr, _ = tangent_trace.staging.finish(arguments, [t for (_, t), n in zip(pairs, live, strict=True) if n])
    jaxpr, _ = drop_dead(jaxpr, [True] * len(jaxpr.outvars))
    return [p for p, _ in pairs], jaxpr, live
