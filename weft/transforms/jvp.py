"""Forward mode: push tangents through every operation by its primitive's jvp rule."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from weft.base.source import Location, user_location
from weft.ir.context import Trace, active, context, push_names, with_aval
from weft.ir.higher_order import HigherOrder
from weft.ir.interpreter import replay
from weft.ir.jaxpr import Jaxpr
from weft.ir.primitive import Primitive
from weft.ir.tangents import instantiate
from weft.ir.types import Type, get_aval
from weft.ir.zeros import Zero
from weft.primitives.movement.sharding_constraint import cast_to_type
from weft.trace.closed import stage_subjaxpr
from weft.trace.tracer import Tracer


class JVPTracer(Tracer):
    """Primal value with its tangent."""

    __slots__ = ("primal", "tangent")

    def __init__(self, trace: JVPTrace, primal: Any, tangent: Any):
        self._trace = trace
        self.aval = get_aval(primal)
        self.primal = primal
        self.tangent = tangent

    def _text(self, aval: Any, depth: int) -> str:
        primal = self.primal._text(aval, depth + 1) if isinstance(self.primal, Tracer) else self.primal
        if getattr(self._trace.parent, "stages_tangents", False):  # type: ignore[attr-defined]
            return f"GradTracer(primal={primal}, typeof(tangent)={aval.tangent().short()})"
        tangent = self.tangent._text(aval.tangent(), depth + 1) if isinstance(self.tangent, Tracer) else self.tangent
        return f"JVPTracer(primal={primal}, tangent={tangent})"

    def known(self) -> Any:
        primal = self.primal
        return primal.known() if isinstance(primal, Tracer) else primal


class JVPTrace(Trace):
    """Trace that runs each operation on primals under the parent trace, and its jvp rule if a tangent is not zero."""

    __slots__ = ("at", "name", "parent")

    def __init__(self, parent: Trace, name: str = "jvp", at: Location | None = None):
        self.parent = parent
        self.name = name
        self.at = at

    def describe(self) -> str:
        return f"a value being differentiated by {self.name}" + (
            f", called at {self.at.describe()}" if self.at is not None else ""
        )

    def split(self, value: Any) -> tuple[Any, Any]:
        if type(value) is JVPTracer and value._trace is self:
            return value.primal, value.tangent
        value = with_aval(value)
        return value, Zero.of(value.aval)

    def join(self, primal: Any, tangent: Any) -> Any:
        return primal if type(tangent) is Zero else JVPTracer(self, primal, tangent)

    def process(self, primitive: Primitive, args: Sequence[Any], params: dict[str, Any]) -> list[Any]:
        for a in args:
            if type(a) is JVPTracer and a._trace is self:
                break
        else:
            return self.parent.process(primitive, args, params)
        pairs = [self.split(a) for a in args]
        primals, tangents = [p for p, _ in pairs], [t for _, t in pairs]
        before, context.trace = context.trace, self.parent
        source = context.source
        context.source = source or user_location()  # found once for all the operations of a rule
        try:
            outs, out_tangents = push_forward(primitive, primals, tangents, params)
        finally:
            context.trace, context.source = before, source
        return [self.join(p, t) for p, t in zip(outs, out_tangents, strict=True)]


def push_forward(
    primitive: Primitive, primals: Sequence[Any], tangents: Sequence[Any], params: dict[str, Any]
) -> tuple[list[Any], list[Any]]:
    """Apply one operation to primals and tangents under the active trace; return the results and their tangents."""
    if isinstance(primitive, HigherOrder):
        return primitive.jvp_through(jvp_jaxpr, primals, tangents, **params)
    # Primitives with JAX's rules compute results and tangents together.
    own = getattr(primitive, "push_forward", None)
    if own is not None:
        outs, out_tangents = own(primals, tangents, params)
        return list(outs), list(out_tangents)
    decompose = getattr(primitive, "decompose", None)
    if decompose is not None and type(primitive).jvp is Primitive.jvp and type(primitive).partial is Primitive.partial:
        outs, out_tangents = jvp_flat(lambda *a: as_list(decompose(*a, **params)), primals, tangents)
        return outs, out_tangents
    out = primitive(*primals, **params)
    out_tangents = primitive.jvp(tangents, out, *primals, **params)
    return (out, out_tangents) if primitive.multiple_results else ([out], [out_tangents])


def as_list(x: Any) -> list[Any]:
    return list(x) if isinstance(x, (list, tuple)) else [x]


def jvp_flat(
    function: Callable[..., Sequence[Any]],
    primals: Sequence[Any],
    tangents: Sequence[Any],
    name: str = "jvp",
    at: Location | None = None,
) -> tuple[list[Any], list[Any]]:
    """Apply a flat function to primals and tangents (some `Zero`); return the results and their tangents."""
    trace = JVPTrace(context.trace, name, at)
    with active(trace), push_names(name):
        results = function(*(trace.join(with_aval(p), t) for p, t in zip(primals, tangents, strict=True)))
    pairs = [trace.split(r) for r in results]
    return [p for p, _ in pairs], [t for _, t in pairs]


def jvp_jaxpr(
    jaxpr: Jaxpr, nonzero: Sequence[bool], instantiated: bool | Sequence[bool] = False
) -> tuple[Jaxpr, tuple[bool, ...]]:
    """Return the jaxpr that maps primals and nonzero tangents to results and their nonzero tangents, and which results
    have a nonzero tangent.

    Results marked in `instantiated` always have one.
    """
    force = (instantiated,) * len(jaxpr.outvars) if isinstance(instantiated, bool) else tuple(instantiated)
    return jaxpr.memoize(("jvp", tuple(nonzero), force), lambda: _jvp_jaxpr(jaxpr, tuple(nonzero), force))


def _jvp_jaxpr(jaxpr: Jaxpr, nonzero: tuple[bool, ...], force: tuple[bool, ...]) -> tuple[Jaxpr, tuple[bool, ...]]:
    count = len(jaxpr.invars)
    tangent_types: list[Type] = [v.aval.tangent() for v, n in zip(jaxpr.invars, nonzero, strict=True) if n]
    nonzero_out: list[bool] = []

    def function(*flat: Any) -> list[Any]:
        primals, rest = flat[:count], iter(flat[count:])
        tangents = [next(rest) if n else Zero.of(v.aval) for v, n in zip(jaxpr.invars, nonzero, strict=True)]
        outs, out_tangents = jvp_flat(lambda *a: replay(jaxpr, *a), primals, tangents)
        nonzero_out.extend(type(t) is not Zero or f for t, f in zip(out_tangents, force, strict=True))
        live = [(t, v.aval.tangent()) for t, v, n in zip(out_tangents, jaxpr.outvars, nonzero_out, strict=True) if n]
        return [*outs, *(cast_to_type(instantiate(t), aval) for t, aval in live)]

    result = stage_subjaxpr(function, [*jaxpr.in_avals, *tangent_types], name=jaxpr.name)
    return result, tuple(nonzero_out)
