"""Taylor mode: push truncated Taylor series through every operation.

A series is a value and its derivatives with respect to one variable, 1st to the order of the trace. Operations that are
linear in each operand follow Leibniz's rule, and so does a quotient. For any other operation y = f(x) the derivative is
y' = J(x, x') with the jvp rule of its primitive; so the derivatives of y from the first on are the series, of one order
less, of J at the series of x and of x', which are known. For most functions that takes a number of operations
polynomial in the order.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from weft.ir.context import Trace, active, context, push_names, with_aval
from weft.ir.higher_order import HigherOrder
from weft.ir.interpreter import replay
from weft.ir.jaxpr import Jaxpr, drop_dead
from weft.ir.primitive import Primitive
from weft.ir.tangents import accumulate, instantiate
from weft.ir.types import get_aval
from weft.ir.zeros import Zero
from weft.primitives.elementwise.arithmetic import div, mul, neg, sub
from weft.primitives.elementwise.scalar import constant_like
from weft.trace.closed import stage_subjaxpr
from weft.trace.tracer import Tracer
from weft.transforms.jvp import push_forward

Terms = list[Any] | None  # the derivatives; None if all are zero


class TaylorTracer(Tracer):
    """Value with its derivatives."""

    __slots__ = ("primal", "terms")

    def __init__(self, trace: TaylorTrace, primal: Any, terms: list[Any]):
        self._trace = trace
        self.aval = get_aval(primal)
        self.primal = primal
        self.terms = terms

    def known(self) -> Any:
        primal = self.primal
        return primal.known() if isinstance(primal, Tracer) else primal


class TaylorTrace(Trace):
    """Trace that runs each operation on values under the parent trace, and computes the derivatives of its results."""

    __slots__ = ("order", "parent")

    def __init__(self, parent: Trace, order: int):
        self.parent = parent
        self.order = order

    def describe(self) -> str:
        return "a value whose Taylor series is computed by jet"

    def split(self, value: Any) -> tuple[Any, Terms]:
        if type(value) is TaylorTracer and value._trace is self:
            return value.primal, value.terms
        return with_aval(value), None

    def join(self, primal: Any, terms: Terms) -> Any:
        return primal if terms is None else TaylorTracer(self, primal, terms)

    def process(self, primitive: Primitive, args: Sequence[Any], params: dict[str, Any]) -> list[Any]:
        pairs = [self.split(a) for a in args]
        if all(terms is None for _, terms in pairs):
            return self.parent.process(primitive, args, params)
        before, context.trace = context.trace, self.parent
        try:
            outs, series = _propagate(primitive, [p for p, _ in pairs], [t for _, t in pairs], params, self.order)
        finally:
            context.trace = before
        return [self.join(p, t) for p, t in zip(outs, series, strict=True)]


def taylor_flat(
    function: Callable[..., Sequence[Any]], primals: Sequence[Any], series: Sequence[Terms], order: int
) -> tuple[list[Any], list[Terms]]:
    """Apply a flat function to values and their derivatives; return the results and their derivatives up to `order`, at
    least 1."""
    trace = TaylorTrace(context.trace, order)
    with active(trace), push_names("jet"):
        results = function(*(trace.join(with_aval(p), t) for p, t in zip(primals, series, strict=True)))
    pairs = [trace.split(r) for r in results]
    return [p for p, _ in pairs], [t for _, t in pairs]


def _quotient(primals: Sequence[Any], series: Sequence[Terms], order: int) -> list[Any]:
    """Return a quotient and its derivatives, by Leibniz's rule for x = quotient * y."""
    (x, y), (above, below) = primals, series
    assert below is not None
    out = [div(x, y)]
    for k in range(1, order + 1):
        rest = None if above is None else above[k - 1]
        for j in range(k):
            term = mul(out[j], below[k - j - 1])
            term = mul(term, constant_like(term, math.comb(k, j))) if j else term
            rest = neg(term) if rest is None else sub(rest, term)
        out.append(div(rest, y))
    return out


def _propagate(
    primitive: Primitive, primals: list[Any], series: list[Terms], params: dict[str, Any], order: int
) -> tuple[list[Any], list[Terms]]:
    """Apply one operation under the active trace; return the results and their derivatives."""
    if primitive is div and series[1] is not None:
        quotient = _quotient(primals, series, order)
        return [quotient[0]], [quotient[1:]]
    if isinstance(primitive, HigherOrder) and primitive.taylor_inside:
        jaxpr, operands = primitive.as_call(primals, params)
        return taylor_flat(lambda *a: replay(jaxpr, *a), operands, series, order)
    positions = [i for i, terms in enumerate(series) if terms is not None]
    linear = range(len(primals)) if primitive.linear == "all" else primitive.linear
    if primitive.multilinear and len(positions) <= 2 and set(positions) <= set(linear):
        terms = _product(primitive, primals, series, params, positions, order)
        return [terms[0]], [terms[1:]]
    derivative, nonzero = _derivative(primitive, primals, series, params)
    outs = list(context.trace.process(primitive, primals, params))
    moving = [terms for terms in series if terms is not None]
    arguments = [*primals, *(terms[0] for terms in moving)]
    later_values: list[Any]
    later_series: list[Terms]
    if order == 1:
        later_values, later_series = replay(derivative, *arguments), [None] * sum(nonzero)
    else:
        shorter: list[Terms] = [None if terms is None else terms[:-1] for terms in series]
        later: list[Terms] = [terms[1:] for terms in moving]
        later_values, later_series = taylor_flat(
            lambda *a: replay(derivative, *a), arguments, [*shorter, *later], order - 1
        )
    rest = iter(zip(later_values, later_series, strict=True))
    out_series: list[Terms] = []
    for moves in nonzero:
        if not moves:
            out_series.append(None)
            continue
        value, later_terms = next(rest)
        out_series.append([value, *(_zeros(value, order - 1) if later_terms is None else later_terms)])
    return outs, out_series


def _zeros(value: Any, count: int) -> list[Any]:
    return [instantiate(Zero(get_aval(value)))] * count


def _derivative(
    primitive: Primitive, primals: Sequence[Any], series: Sequence[Terms], params: dict[str, Any]
) -> tuple[Jaxpr, list[bool]]:
    """Return a jaxpr from the operands and their nonzero derivatives to the nonzero derivatives of the results, and
    which results have one."""
    moving = [terms is not None for terms in series]
    types = [get_aval(p) for p in primals]
    nonzero: list[bool] = []

    def function(*flat: Any) -> list[Any]:
        own, rest = flat[: len(types)], iter(flat[len(types) :])
        tangents = [next(rest) if moves else Zero.of(aval) for aval, moves in zip(types, moving, strict=True)]
        _, found = push_forward(primitive, own, tangents, params)
        nonzero.extend(type(t) is not Zero for t in found)
        return [t for t in found if type(t) is not Zero]

    tangent_types = [aval.tangent() for aval, moves in zip(types, moving, strict=True) if moves]
    jaxpr = stage_subjaxpr(function, [*types, *tangent_types], name=primitive.name, inherits_line=True)
    # The value is computed beside the derivative; where that does not need it, its series would be in vain.
    return drop_dead(jaxpr, [True] * len(jaxpr.outvars))[0], nonzero


def _product(
    primitive: Primitive,
    primals: Sequence[Any],
    series: Sequence[Terms],
    params: dict[str, Any],
    positions: Sequence[int],
    order: int,
) -> list[Any]:
    """Return the value and derivatives of an operation that is linear in each of one or two operands, by Leibniz's
    rule."""

    def at(j: int, k: int) -> Any:
        """Apply the operation to the j-th derivative of the first operand and the k-th of the second."""
        operands = list(primals)
        for position, order in zip(positions, (j, k), strict=False):
            terms = series[position]
            if order and terms is not None:
                operands[position] = terms[order - 1]
        return primitive(*operands, **params)

    if len(positions) == 1:
        return [at(k, 0) for k in range(order + 1)]
    out = []
    for k in range(order + 1):
        total: Any = None
        for j in range(k + 1):
            term, count = at(j, k - j), math.comb(k, j)
            term = term if count == 1 else mul(term, constant_like(term, count))
            total = term if total is None else accumulate(total, term)
        out.append(total)
    return out
