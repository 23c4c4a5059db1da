"""`jet`: derivatives of any order of a function along a curve, by Taylor series."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from weft.api.flat import OutTree, check_callable, check_leaves, flat_function, get_name
from weft.base import dtypes, tree
from weft.base.errors import ArgumentError, ArgumentTypeError, TangentMismatchError
from weft.base.publish import publish as _publish
from weft.ir.tangents import instantiate
from weft.ir.types import get_aval
from weft.ir.zeros import Zero
from weft.lax import full_like, mul
from weft.numpy.util import ensure_array
from weft.transforms.taylor import Terms, taylor_flat


def jet(fun: Callable[..., Any], primals: Any, series: Any, factorial_scaled: bool = True, **_: Any) -> tuple[Any, Any]:
    """Compute the derivatives of `fun(x(t), ...)` with respect to t at t = 0 from those of its arguments.

    All primitives that have derivatives have series, those of loops and branches among them.

    Args:
        fun: a function of arrays, or of trees of them.
        primals: a tuple of the values of its arguments at t = 0.
        series: for each argument a list of its derivatives, from the first on; each has the structure of the argument,
            and all lists have the same length.
        factorial_scaled: whether terms are derivatives; else they are the coefficients of the powers of t.

    Returns:
        The results of `fun`, and in the same structure lists of their derivatives.

    >>> from weft.experimental.jet import jet
    >>> import weft.numpy as np
    >>> value, (first, second) = jet(np.sin, (0.0,), ([1.0, 0.0],))
    >>> float(value), float(first), float(second)
    (0.0, 1.0, 0.0)
    """
    check_callable(fun, "jet")
    for values, word in ((primals, "primals"), (series, "series")):
        if not isinstance(values, (tuple, list)):
            raise ArgumentTypeError(
                f"jet needs {word} as a tuple or list with one entry per argument.",
                received=type(values).__name__,
                fix=f"({word},)",
            )
    if len(primals) != len(series) or not all(isinstance(terms, (tuple, list)) for terms in series):
        raise ArgumentError(
            f"jet of {get_name(fun)}: there must be a list of derivatives for each of the primals.",
            received=f"{len(primals)} primals and {len(series)} series",
            fix="jet(f, (x,), ([x1, x2],))",
        )
    orders = {len(terms) for terms in series}
    if len(orders) > 1:
        raise ArgumentError(
            "jet terms have inconsistent lengths for different arguments.",
            received=f"lengths {', '.join(str(len(terms)) for terms in series)}",
        )
    order = orders.pop() if orders else 0
    flat, in_tree = tree.flatten((tuple(primals), {}))
    check_leaves(fun, "jet", flat, primals, {})
    flat = [ensure_array(x) for x in flat]
    terms: list[list[Any]] = [[] for _ in flat]
    for k in range(order):
        term = tuple(each[k] for each in series)
        leaves, structure = tree.flatten((term, {}))
        if structure != in_tree:
            raise TangentMismatchError(
                f"jet of {get_name(fun)}: each term of a series must have the structure of its primal.",
                received=f"{structure} for {in_tree}",
            )
        for x, leaf, own in zip(flat, leaves, terms, strict=True):
            own.append(_scale_term(_fit_term(fun, x, leaf), k + 1, math.factorial(k + 1), factorial_scaled))
    out = OutTree()
    function = flat_function(fun, in_tree, out)
    if not order:
        results = function(*flat)
        return tree.unflatten(out.treedef, results), tree.unflatten(out.treedef, [[] for _ in results])
    results, found = taylor_flat(function, flat, terms, order)
    lists = [_finish_terms(x, own, order, factorial_scaled) for x, own in zip(results, found, strict=True)]
    return tree.unflatten(out.treedef, results), tree.unflatten(out.treedef, lists)


def _fit_term(fun: Any, x: Any, term: Any) -> Any:
    """Check that a term fits its argument and convert it to the dtype of the argument."""
    if dtypes.kind(x.dtype) not in "fc":
        raise ArgumentTypeError(
            f"jet of {get_name(fun)}: arguments must be real or complex to have series.",
            received=x.aval.short(),
            fix="x.astype(float), or close over it: jet(lambda x: f(x, n), ...)",
        )
    term = ensure_array(term)
    if term.shape != x.shape or (dtypes.kind(term.dtype) == "c" and dtypes.kind(x.dtype) != "c"):
        raise TangentMismatchError(
            f"jet of {get_name(fun)}: each term of a series must have the shape and dtype of its primal.",
            received=f"{term.aval.short()} for {x.aval.short()}",
        )
    return term.astype(x.dtype)


def _scale_term(term: Any, k: int, factor: float, is_scaled: bool) -> Any:
    return term if is_scaled or k < 2 else mul(term, full_like(term, factor))


def _finish_terms(x: Any, terms: Terms, order: int, factorial_scaled: bool) -> list[Any]:
    if terms is None:
        return [instantiate(Zero.of(get_aval(x)))] * order
    return [_scale_term(t, k, 1 / math.factorial(k), factorial_scaled) for k, t in enumerate(terms, 1)]


_publish(__name__)
