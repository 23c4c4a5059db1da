"""Differentiation rules of primitives, under the names of `jax.interpreters.ad`.

`primitive_jvps[p]` is a function of primals, tangents and parameters that returns results and their tangents;
`primitive_transposes[p]` one of cotangents and operands, `UndefinedPrimal` where it is linear. A tangent or cotangent
that is zero is a `Zero`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from weft.api.user_primitive import primitive_jvps as primitive_jvps, primitive_transposes as primitive_transposes
from weft.base import tree
from weft.base.publish import publish as _publish
from weft.ir.jaxpr import Jaxpr
from weft.ir.primitive import Primitive, lookup
from weft.ir.tangents import accumulate, instantiate
from weft.ir.types import Type
from weft.ir.zeros import Linear as _Linear, Zero as Zero, is_linear as _is_linear
from weft.transforms.jvp import JVPTrace as JVPTrace, JVPTracer as JVPTracer, jvp_flat
from weft.transforms.linearize import linearize_flat

UndefinedPrimal = _Linear
is_undefined_primal = _is_linear

# For tree functions an operand without value has no leaves.
tree.register_pytree_node(UndefinedPrimal, lambda x: ((), x.aval), lambda aval, _: UndefinedPrimal(aval))

add_jaxvals_p = lookup("add")


def add_jaxvals(x: Any, y: Any) -> Any:
    """Add two tangents or cotangents of one value."""
    return accumulate(x, y)


def add_tangents(x: Any, y: Any) -> Any:
    """Add two tangents. Both may be a `Zero`."""
    return accumulate(x, y)


def instantiate_zeros(tangent: Any) -> Any:
    """Convert a `Zero` to zeros of its type; return anything else unchanged."""
    return instantiate(tangent)


def zeros_like_aval(aval: Type) -> Any:
    """Return zeros of a type."""
    return instantiate(Zero(aval))


def defjvp(primitive: Primitive, *jvprules: Callable[..., Any] | None) -> None:
    """Define the derivative of a primitive with one result by a function for each operand: of the tangent, the
    operands and the parameters. None says that the derivative in that operand is zero."""
    defjvp2(primitive, *(None if rule is None else _without_result(rule) for rule in jvprules))


def _without_result(rule: Callable[..., Any]) -> Callable[..., Any]:
    return lambda tangent, out, /, *primals, **params: rule(tangent, *primals, **params)


def defjvp2(primitive: Primitive, *jvprules: Callable[..., Any] | None) -> None:
    """Define the derivative as `defjvp` does, by functions of the tangent, the result, the operands and the
    parameters."""

    def rule(primals: Sequence[Any], tangents: Sequence[Any], /, **params: Any) -> tuple[Any, Any]:
        out = primitive.bind(*primals, **params)
        total: Any = Zero.of(out.aval)
        for one, tangent in zip(jvprules, tangents, strict=True):
            if one is not None and type(tangent) is not Zero:
                total = accumulate(total, one(tangent, out, *primals, **params))
        return out, total

    primitive_jvps[primitive] = rule


def deflinear(primitive: Primitive, transpose_rule: Callable[..., Any]) -> None:
    """Define a primitive as linear in all operands together. The rule takes the cotangent and the parameters, and
    returns a cotangent for each operand."""
    deflinear2(primitive, lambda cotangent, /, *args, **params: transpose_rule(cotangent, **params))


def deflinear2(primitive: Primitive, transpose_rule: Callable[..., Any]) -> None:
    """Define a primitive as linear as `deflinear` does, by a rule of the cotangent, the operands and the parameters."""

    def jvp_rule(primals: Sequence[Any], tangents: Sequence[Any], /, **params: Any) -> tuple[Any, Any]:
        out = primitive.bind(*primals, **params)
        if all(type(t) is Zero for t in tangents):
            return out, ([Zero.of(o.aval) for o in out] if primitive.multiple_results else Zero.of(out.aval))
        return out, primitive.bind(*map(instantiate, tangents), **params)

    def transpose(cotangent: Any, /, *args: Any, **params: Any) -> Any:
        if type(cotangent) is Zero:
            return [Zero(a.aval.cotangent()) if is_undefined_primal(a) else None for a in args]
        return transpose_rule(cotangent, *args, **params)

    primitive_jvps[primitive] = jvp_rule
    primitive_transposes[primitive] = transpose


def defbilinear(primitive: Primitive, lhs_rule: Callable[..., Any], rhs_rule: Callable[..., Any]) -> None:
    """Define a primitive of two operands as linear in each. `lhs_rule(cotangent, lhs, rhs, **params)` returns the
    cotangent of the first operand, which is an `UndefinedPrimal` there, `rhs_rule` that of the second."""
    defjvp(
        primitive,
        lambda t, x, y, /, **params: primitive.bind(t, y, **params),
        lambda t, x, y, /, **params: primitive.bind(x, t, **params),
    )

    def transpose(cotangent: Any, x: Any, y: Any, /, **params: Any) -> Any:
        if is_undefined_primal(x):
            return (Zero(x.aval) if type(cotangent) is Zero else lhs_rule(cotangent, x, y, **params)), None
        return None, Zero(y.aval) if type(cotangent) is Zero else rhs_rule(cotangent, x, y, **params)

    primitive_transposes[primitive] = transpose


def get_primitive_transpose(p: Primitive) -> Callable[..., Any]:
    """Return the transpose rule of a primitive; raise NotImplementedError if it has none."""
    found = primitive_transposes.get(p)
    if found is None:
        raise NotImplementedError(f"Transpose rule (for reverse-mode differentiation) for '{p}' not implemented")
    return found


def _as_callable(fun: Any) -> Callable[..., Any]:
    return getattr(fun, "call_wrapped", fun)


def jvp(
    fun: Any,
    primals: Sequence[Any],
    tangents: Sequence[Any],
    has_aux: bool = False,
    instantiate: bool | Sequence[bool] = True,
) -> Any:
    """Evaluate a flat function (of `linear_util`, or a plain one that returns a list) and its tangents. With `has_aux`
    it returns a pair, whose second element comes last. `instantiate` marks tangents that must not be `Zero`."""
    auxiliary: list[Any] = []

    def flat(*args: Any) -> Any:
        out = _as_callable(fun)(*args)
        if has_aux:
            out, aux = out
            auxiliary.append(aux)
        return out

    outs, out_tangents = jvp_flat(flat, primals, tangents)
    flags = [instantiate] * len(outs) if isinstance(instantiate, bool) else instantiate
    out_tangents = [instantiate_zeros(t) if flag else t for t, flag in zip(out_tangents, flags, strict=True)]
    return (outs, out_tangents, *auxiliary)


def linearize(traceable: Any, primals: Sequence[Any], has_aux: bool = False) -> tuple[Any, ...]:
    """Evaluate a flat function at a point. Return its results and the jaxpr from tangents of its arguments to those of
    its results, with the residuals as constants; results that do not depend on the arguments have zeros there. With
    `has_aux` the auxiliary output of the function comes last."""
    auxiliary: list[Any] = []

    def flat(*args: Any) -> Any:
        out = _as_callable(traceable)(*args)
        if has_aux:
            out, aux = out
            auxiliary.append(aux)
        return out

    outs, jaxpr, live = linearize_flat(flat, primals)
    if not all(live):
        jaxpr = _with_zeros(jaxpr, [o.aval for o in outs], live)
    return (outs, jaxpr, *auxiliary)


def _with_zeros(jaxpr: Jaxpr, types: Sequence[Any], live: Sequence[bool]) -> Jaxpr:
    """Add zeros to the results of a linear jaxpr, for the results that are not `live`."""
    zeros = [zeros_like_aval(t.tangent()) for t, n in zip(types, live, strict=True) if not n]
    variables = [type(jaxpr.invars[0])(z.aval) for z in zeros]
    own, others = iter(jaxpr.outvars), iter(variables)
    return jaxpr.replace(
        constvars=(*jaxpr.constvars, *variables),
        consts=(*jaxpr.consts, *zeros),
        outvars=[next(own) if n else next(others) for n in live],
    )


_publish(__name__)
