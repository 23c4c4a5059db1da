"""Unify the types that bodies of control flow take and return: branches agree, and loops return what they take."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from weft.base import dtypes
from weft.ir.interpreter import replay
from weft.ir.jaxpr import Jaxpr
from weft.ir.types import get_aval
from weft.ir.varying import cast_to_state, manual_state
from weft.primitives.elementwise.convert import convert_element_type
from weft.trace.closed import stage_subjaxpr


def merge_types(a: Any, b: Any) -> Any:
    """Return type `a`, made varying along the manual axes of either type and reduced along those of either."""
    one, other = manual_state(a), manual_state(b)
    if one is other:
        return a
    varying = one.varying | other.varying
    reduced = (one.reduced | other.reduced) - varying - one.unreduced
    return a.with_placement(manual=one.update(varying=varying - one.unreduced, reduced=reduced))


def with_result_types(jaxpr: Jaxpr, result_types: Sequence[Any]) -> Jaxpr:
    """Return a jaxpr that converts its results to these types."""
    if all(v.aval == w for v, w in zip(jaxpr.outvars, result_types, strict=True)):
        return jaxpr

    def convert_values(*args: Any) -> list[Any]:
        return [convert_type(r, w) for r, w in zip(replay(jaxpr, *args), result_types, strict=True)]

    key = ("result types", tuple(result_types))
    return jaxpr.memoize(key, lambda: stage_subjaxpr(convert_values, jaxpr.in_avals, name=jaxpr.name))


def with_carry_types(jaxpr: Jaxpr, first: int, types: Sequence[Any]) -> Jaxpr:
    """Return a jaxpr that takes arguments of `types` from index `first` on and converts them to its own types."""
    own = jaxpr.in_avals
    if tuple(own[first : first + len(types)]) == tuple(types):
        return jaxpr

    def convert_values(*args: Any) -> list[Any]:
        carry = args[first : first + len(types)]
        back = [convert_type(x, a) for x, a in zip(carry, own[first:], strict=False)]
        return replay(jaxpr, *args[:first], *back, *args[first + len(types) :])

    new_types = [*own[:first], *types, *own[first + len(types) :]]
    key = ("carry types", first, tuple(types))
    return jaxpr.memoize(key, lambda: stage_subjaxpr(convert_values, new_types, name=jaxpr.name))


def convert_type(value: Any, aval: Any) -> Any:
    """Convert a value to a type of the same shape, including its weakness."""
    value = cast_to_state(value, aval)
    if get_aval(value) == aval:
        return value
    return convert_element_type(value, new_dtype=aval.dtype, weak_type=aval.weak_type)


def fix_carry_types(
    stage_body: Callable[[list[Any]], tuple[Jaxpr, Any, Any]], init: list[Any], count: int, report: Callable[..., Any]
) -> tuple[Any, list[Any]]:
    """Stage a loop's body so that the carry keeps its types; return the body and the initial carry.

    Weakly typed parts of the initial carry take the type that the body computes for them, and parts that the body makes
    vary along manual axes vary from the start; any other change is reported as the user's error. Where only weakness
    changes, the body is not traced again: it sees weak values, as in JAX.
    """
    rounds = 0
    while True:
        types: list[Any] = [get_aval(x) for x in init]
        body = stage_body(types)
        outs: list[Any] = [v.aval for v in body[0].outvars[:count]]
        if len(outs) == len(types) and any(
            manual_state(b) is not manual_state(a) for a, b in zip(types, outs, strict=True)
        ):
            wider = [cast_to_state(x, merge_types(a, b)) for x, a, b in zip(init, types, outs, strict=True)]
            if any(get_aval(x) != a for x, a in zip(wider, types, strict=True)):
                init = wider
                continue
            outs = [merge_types(b, a) for a, b in zip(types, outs, strict=True)]
            body = (with_result_types(body[0], [*outs, *(v.aval for v in body[0].outvars[count:])]), *body[1:])
        if len(outs) == len(types) and all(a == b for a, b in zip(types, outs, strict=True)):
            return body, init
        if len(outs) != len(types):
            report(body, types, outs)
        if all(a.strong() == b.strong() for a, b in zip(types, outs, strict=True)):
            types = [b if a.weak_type else a for a, b in zip(types, outs, strict=True)]
            jaxpr = with_result_types(body[0], [*types, *(v.aval for v in body[0].outvars[count:])])
            fixed = with_carry_types(jaxpr, len(body[1]), types)
            return (fixed, *body[1:]), [convert_type(x, a) for x, a in zip(init, types, strict=True)]
        new = []
        for x, a, b in zip(init, types, outs, strict=True):
            if a.weak_type and a.shape == b.shape and promotes(a, b):
                new.append(convert_type(x, b))
            elif a.matches(b):
                new.append(convert_type(x, a.strong()))
            else:
                report(body, types, outs)
        if all(get_aval(x) == a for x, a in zip(new, types, strict=True)):
            result_types = [*types, *(v.aval for v in body[0].outvars[count:])]
            return (with_result_types(body[0], result_types), *body[1:]), new
        rounds += 1
        if rounds == 3:
            return body, init
        init = new


def promotes(weak: Any, other: Any) -> bool:
    """Return whether a weakly typed value takes the other type's dtype when the two are combined."""
    promoted = dtypes.promote_pair(weak.dtype, True, other.dtype, other.weak_type)[0]
    return dtypes.canonicalize_dtype(promoted) == other.dtype
