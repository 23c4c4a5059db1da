"""Inclusive scans with an associative function, in a logarithmic number of steps."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from weft.base import tree
from weft.base.errors import ArgumentError, ArgumentTypeError
from weft.base.tracebacks import boundary
from weft.ir.context import with_aval
from weft.ir.types import get_aval
from weft.lax.control_flow import flatten_argument
from weft.primitives.movement.shape import rev
from weft.primitives.reduction.cumulative import prefixes


@boundary
def associative_scan(fn: Callable[[Any, Any], Any], elems: Any, reverse: bool = False, axis: int = 0) -> Any:
    """Combine all prefixes of `elems` along `axis` with an associative `fn`.

    The number of steps is logarithmic in the length of the axis.

    Args:
        fn: an associative function of two trees like `elems`, which acts on each position by itself.
        elems: a tree of arrays.
        reverse: whether to scan from the last element to the first.
        axis: the axis to scan along.

    Returns:
        A tree like `elems`, whose element i combines the elements 0, ..., i.

    >>> import weft.numpy as wnp
    >>> from weft import lax
    >>> lax.associative_scan(lax.max, wnp.array([1, 3, 2, 5]))
    Array([1, 3, 3, 5], dtype=int32)
    """
    if not callable(fn):
        what = "The first argument of lax.associative_scan must be a function of two arguments."
        raise ArgumentTypeError(what, received=type(fn).__name__)
    leaves, treedef = flatten_argument(elems, "lax.associative_scan", "elems")
    if not leaves:
        return elems
    ranks = [len(get_aval(x).shape) for x in leaves]  # type: ignore[attr-defined]
    if any(not -r <= axis < r for r in ranks):
        what = f"lax.associative_scan: there is no axis {axis}."
        raise ArgumentError(what, received=f"elements of rank {min(ranks)}")
    axes = [axis % r for r in ranks]
    sizes = {get_aval(x).shape[a] for x, a in zip(leaves, axes, strict=True)}  # type: ignore[attr-defined]
    if len(sizes) != 1:
        what = "All elements of lax.associative_scan must have the same size along the axis."
        raise ArgumentError(what, received=f"sizes {', '.join(map(str, sorted(sizes)))}")

    def combine(a: list[Any], b: list[Any]) -> list[Any]:
        result = fn(tree.unflatten(treedef, a), tree.unflatten(treedef, b))
        combined, found = tree.flatten(result)
        if found != treedef:
            what = "The function of lax.associative_scan must return a value in the structure of its arguments."
            raise ArgumentTypeError(what, received=f"{found} for {treedef}")
        return combined

    flipped = [rev(x, dimensions=(a,)) for x, a in zip(leaves, axes, strict=True)] if reverse else leaves
    results = prefixes(combine, [with_aval(x) for x in flipped], axes)
    if reverse:
        results = [rev(x, dimensions=(a,)) for x, a in zip(results, axes, strict=True)]
    return tree.unflatten(treedef, results)
