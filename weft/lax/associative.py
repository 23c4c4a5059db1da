"""`associative_scan`: all prefixes in a logarithmic number of steps."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from weft.base import tree
from weft.base.errors import message
from weft.base.source import user_line
from weft.ir.types import type_of
from weft.lax.control_flow import leaves_of
from weft.ops.concatenate import concatenate
from weft.ops.shape import reshape, rev
from weft.ops.slicing import slice as slice_primitive

__all__ = ["associative_scan"]


def associative_scan(fn: Callable[[Any, Any], Any], elems: Any, reverse: bool = False, axis: int = 0) -> Any:
    """All prefixes of `elems` along `axis` combined with an associative `fn`, in a number of steps logarithmic in the
    length."""
    if not callable(fn):
        what = "lax.associative_scan takes a function of two arguments first."
        raise TypeError(message(what, received=type(fn).__name__, at=user_line()))
    leaves, treedef = leaves_of(elems, "lax.associative_scan", "elems")
    if not leaves:
        return elems
    ranks = [len(type_of(x).shape) for x in leaves]  # type: ignore[attr-defined]
    if any(not -r <= axis < r for r in ranks):
        what = f"lax.associative_scan: there is no axis {axis}."
        raise ValueError(message(what, received=f"elements of rank {min(ranks)}", at=user_line()))
    axes = [axis % r for r in ranks]
    sizes = {type_of(x).shape[a] for x, a in zip(leaves, axes, strict=True)}  # type: ignore[attr-defined]
    if len(sizes) != 1:
        what = "lax.associative_scan needs one size along the axis for all elements."
        raise ValueError(message(what, received=f"sizes {', '.join(map(str, sorted(sizes)))}", at=user_line()))
    count = sizes.pop()

    def combine(a: list[Any], b: list[Any]) -> list[Any]:
        result = fn(tree.unflatten(treedef, a), tree.unflatten(treedef, b))
        made, found = tree.flatten(result)
        if found != treedef:
            what = "The function of lax.associative_scan must return a value in the structure of its arguments."
            raise TypeError(message(what, received=f"{found} for {treedef}", at=user_line()))
        return made

    def part(values: list[Any], start: int, stop: int, stride: int = 1) -> list[Any]:
        return [slice_along(x, a, start, stop, stride) for x, a in zip(values, axes, strict=True)]

    def prefixes(values: list[Any], size: int) -> list[Any]:
        if size < 2:
            return values
        pairs = combine(part(values, 0, size - 1, 2), part(values, 1, size, 2))
        odd = prefixes(pairs, size // 2)
        if size % 2 == 0:
            inner = combine(part(odd, 0, size // 2 - 1), part(values, 2, size, 2)) if size > 2 else part(values, 2, 2)
        else:
            inner = combine(odd, part(values, 2, size, 2))
        even = [
            concatenate(slice_along(x, a, 0, 1), e, dimension=a) if size > 2 else slice_along(x, a, 0, 1)
            for x, e, a in zip(values, inner, axes, strict=True)
        ]
        return [interleave(e, o, a) for e, o, a in zip(even, odd, axes, strict=True)]

    flipped = [rev(x, dimensions=(a,)) for x, a in zip(leaves, axes, strict=True)] if reverse else leaves
    results = prefixes(flipped, count)
    if reverse:
        results = [rev(x, dimensions=(a,)) for x, a in zip(results, axes, strict=True)]
    return tree.unflatten(treedef, results)


def slice_along(x: Any, axis: int, start: int, stop: int, stride: int = 1) -> Any:
    shape = type_of(x).shape  # type: ignore[attr-defined]
    starts, limits, strides = [0] * len(shape), list(shape), [1] * len(shape)
    starts[axis], limits[axis], strides[axis] = start, stop, stride
    return slice_primitive(
        x, start_indices=tuple(starts), limit_indices=tuple(limits), strides=tuple(strides) if stride != 1 else None
    )


def interleave(even: Any, odd: Any, axis: int) -> Any:
    """even[0], odd[0], even[1], odd[1], ... along `axis`; there may be one more even than odd."""
    count = odd.shape[axis]
    shape = odd.shape
    paired = [
        reshape(x, new_sizes=(*shape[: axis + 1], 1, *shape[axis + 1 :]), dimensions=None)
        for x in (slice_along(even, axis, 0, count), odd)
    ]
    mixed = reshape(
        concatenate(*paired, dimension=axis + 1),
        new_sizes=(*shape[:axis], 2 * count, *shape[axis + 1 :]),
        dimensions=None,
    )
    if even.shape[axis] == count:
        return mixed
    return concatenate(mixed, slice_along(even, axis, count, count + 1), dimension=axis)
