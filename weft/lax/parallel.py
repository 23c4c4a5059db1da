"""Collectives on trees, over the named axes of vmap (and of meshes)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from weft.base import tree
from weft.base.errors import ArgumentError, UnboundAxisError
from weft.base.source import user_line
from weft.ir.context import context
from weft.ir.types import type_of
from weft.primitives import collectives
from weft.primitives.collectives import merge_dims, split_dim
from weft.primitives.elementwise.arithmetic import div
from weft.primitives.elementwise.convert import convert_element_type
from weft.primitives.movement.shape import move_axis

__all__ = [
    "all_gather", "all_to_all", "axis_index", "axis_size", "pmax", "pmean", "pmin", "ppermute", "pshuffle", "psum",
    "psum_scatter", "pswapaxes",
]  # fmt: skip

Name = Any


def names_of(axis_name: Name) -> tuple[Any, ...]:
    """The named axes asked for, each checked to be in scope."""
    names = tuple(axis_name) if isinstance(axis_name, (tuple, list)) else (axis_name,)
    for name in names:
        if getattr(type(name), "__hash__", None) is None or name not in context.axes:
            known = ", ".join(map(repr, context.axes)) or "none"
            raise UnboundAxisError(
                f"There is no axis named {name!r} here; in scope: {known}.",
                fix=f"call this inside vmap(f, axis_name={name!r})",
                at=user_line(),
            )
    return names


def one_name(axis_name: Name, function: str) -> Any:
    """The one named axis asked for."""
    names = names_of(axis_name)
    if len(names) != 1:
        what = f"lax.{function} goes over one named axis."
        raise ArgumentError(what, received=f"{axis_name!r}", fix="call it for one after the other")
    return names[0]


def axis_size(axis_name: Name) -> int:
    """The size of a named axis."""
    return math.prod(context.axes[n] for n in names_of(axis_name))


def varying(x: Any, names: tuple[Any, ...]) -> Any:
    """A value as one that varies along those of the named axes that are manual axes of a `shard_map`."""
    if not context.manual:
        return x
    manual = type_of(x).manual  # type: ignore[attr-defined]
    axes = tuple(a for a in names if a in context.manual and a not in manual.varying | manual.unreduced)
    return collectives.pvary(x, axes=axes) if axes else x


def no_groups(function: str, axis_index_groups: Any) -> None:
    if axis_index_groups is not None:
        what = f"lax.{function}: axis_index_groups are not supported over the axes of a vmap."
        fix = "nest two vmaps with a name each, and communicate over the inner one"
        raise ArgumentError(what, received=f"{axis_index_groups}", fix=fix)


def psum(x: Any, axis_name: Name, *, axis_index_groups: Any = None) -> Any:
    """Sum of each leaf over named axes; of a Python number, the number times the size of the axes, known at once."""
    no_groups("psum", axis_index_groups)
    names = names_of(axis_name)

    def one(leaf: Any) -> Any:
        if isinstance(leaf, (int, float, complex)):
            return leaf * axis_size(axis_name)
        if type_of(leaf).dtype == bool:  # type: ignore[attr-defined]
            leaf = convert_element_type(leaf, new_dtype=type_of(0).dtype, weak_type=False)  # type: ignore[attr-defined]
        return collectives.psum(varying(leaf, names), axes=names)

    return tree.map(one, x)


def pmean(x: Any, axis_name: Name, *, axis_index_groups: Any = None) -> Any:
    """Mean of each leaf over named axes."""
    size = axis_size(axis_name)

    def one(leaf: Any) -> Any:
        aval = type_of(leaf)
        if not isinstance(leaf, (int, float, complex)) and aval.tangent() != aval:  # integers become floats
            leaf = convert_element_type(leaf, new_dtype=type_of(0.0).dtype, weak_type=False)  # type: ignore[attr-defined]
        total = psum(leaf, axis_name, axis_index_groups=axis_index_groups)
        if isinstance(total, (int, float, complex)):
            return total / size
        return div(total, convert_element_type(size, new_dtype=total.dtype, weak_type=False))

    return tree.map(one, x)


def pmax(x: Any, axis_name: Name, *, axis_index_groups: Any = None) -> Any:
    """Maximum of each leaf over named axes."""
    no_groups("pmax", axis_index_groups)
    names = names_of(axis_name)
    return tree.map(lambda leaf: collectives.pmax(varying(leaf, names), axes=names), x)


def pmin(x: Any, axis_name: Name, *, axis_index_groups: Any = None) -> Any:
    """Minimum of each leaf over named axes."""
    no_groups("pmin", axis_index_groups)
    names = names_of(axis_name)
    return tree.map(lambda leaf: collectives.pmin(varying(leaf, names), axes=names), x)


def axis_index(axis_name: Name) -> Any:
    """The position of this element along a named axis; along several, in row-major order."""
    index: Any = None
    for name in names_of(axis_name):
        own = collectives.axis_index(axis_name=name, **({"varying": True} if name in context.manual else {}))
        index = own if index is None else index * context.axes[name] + own
    return index


def all_gather(
    x: Any, axis_name: Name, *, axis_index_groups: Any = None, axis: int = 0, tiled: bool = False, to: str = "varying"
) -> Any:
    """Each leaf of all elements, stacked (or `tiled`: concatenated) along `axis`."""
    no_groups("all_gather", axis_index_groups)
    if to != "varying":
        raise ArgumentError(
            f"lax.all_gather over the axis of a vmap returns a value of the batch: to must be 'varying', got {to!r}."
        )
    names = names_of(axis_name)

    def one(leaf: Any) -> Any:
        for name in reversed(names):
            rank = len(type_of(leaf).shape) + (not tiled)  # type: ignore[attr-defined]
            dim = axis % rank
            leaf = collectives.all_gather(
                varying(leaf, (name,)),
                axis_name=name,
                axis_size=context.axes[name],
                all_gather_dimension=dim,
                tiled=tiled,
            )
        if len(names) > 1 and not tiled:
            for _ in names[1:]:
                leaf = merge_dims(leaf, axis % (len(leaf.shape) - 1))
        return leaf

    return tree.map(one, x)


def psum_scatter(
    x: Any, axis_name: Name, *, scatter_dimension: int = 0, axis_index_groups: Any = None, tiled: bool = False
) -> Any:
    """Sum over a named axis, of which each element keeps its slice along `scatter_dimension`."""
    no_groups("psum_scatter", axis_index_groups)
    name = one_name(axis_name, "psum_scatter")
    size = context.axes[name]

    def one(leaf: Any) -> Any:
        shape = type_of(leaf).shape  # type: ignore[attr-defined]
        fits = shape[scatter_dimension] % size == 0 if tiled else shape[scatter_dimension] == size
        if not fits:
            need = f"a multiple of {size}" if tiled else f"equal to {size}"
            what = f"lax.psum_scatter: dimension {scatter_dimension} must be {need}, the size of axis {name!r}."
            raise ArgumentError(what, received=f"shape {shape}")
        return collectives.reduce_scatter(
            varying(leaf, (name,)), axis_name=name, axis_size=size, scatter_dimension=scatter_dimension, tiled=tiled
        )

    return tree.map(one, x)


def all_to_all(
    x: Any, axis_name: Name, split_axis: int, concat_axis: int, *, axis_index_groups: Any = None, tiled: bool = False
) -> Any:
    """Exchange a dimension with a named axis: slices along `split_axis` go to their elements and are stacked at
    `concat_axis`."""
    no_groups("all_to_all", axis_index_groups)
    names = names_of(axis_name)
    size = axis_size(names)

    def one(leaf: Any) -> Any:
        shape = type_of(leaf).shape  # type: ignore[attr-defined]
        if (shape[split_axis] % size if tiled else shape[split_axis] != size) != 0:
            need = f"a multiple of {size}" if tiled else f"equal to {size}"
            what = f"lax.all_to_all: dimension {split_axis} must be {need}, the size of {axis_name!r}."
            raise ArgumentError(what, received=f"shape {shape}")
        if not tiled:
            return exchanged(leaf, names, split_axis, concat_axis)
        return merge_dims(exchanged(split_dim(leaf, split_axis, size), names, split_axis, concat_axis), concat_axis)

    return tree.map(one, x)


def exchanged(x: Any, names: tuple[Any, ...], split_axis: int, concat_axis: int) -> Any:
    """One dimension, as large as the named axes together, exchanged with them: with one after the other."""
    x = varying(x, names)
    for i, name in enumerate(names[:-1]):
        x = split_dim(x, split_axis + i, context.axes[name])
    last = len(names) - 1
    for i, name in enumerate(names):
        dim = split_axis + i
        goal = concat_axis if last == 0 else dim
        x = collectives.all_to_all(x, split_axis=dim, concat_axis=goal, axis_name=name, axis_size=context.axes[name])
    for _ in names[:-1]:
        x = merge_dims(x, split_axis)
    return x if last == 0 else move_axis(x, split_axis, concat_axis)


def ppermute(x: Any, axis_name: Name, perm: Sequence[tuple[int, int]]) -> Any:
    """Send each leaf along `perm`, pairs (source, destination); an element that receives nothing gets zeros."""
    name = one_name(axis_name, "ppermute")
    size = context.axes[name]
    pairs = tuple((int(s), int(d)) for s, d in perm)
    for column, word in ((0, "source"), (1, "destination")):
        found = [p[column] for p in pairs]
        if len(set(found)) != len(found) or any(not 0 <= f < size for f in found):
            what = f"lax.ppermute: every {word} must appear once and lie in range({size})."
            raise ArgumentError(what, received=f"perm={pairs}")
    return tree.map(lambda leaf: collectives.ppermute(varying(leaf, (name,)), axis_name=name, perm=pairs), x)


def pshuffle(x: Any, axis_name: Name, perm: Sequence[int]) -> Any:
    """Element i receives from element `perm[i]`."""
    if sorted(perm) != list(range(len(perm))):
        raise ArgumentError("lax.pshuffle needs a permutation.", received=str(list(perm)))
    return ppermute(x, axis_name, list(zip(perm, range(len(perm)), strict=True)))


def pswapaxes(x: Any, axis_name: Name, axis: int, *, axis_index_groups: Any = None) -> Any:
    """Exchange a dimension of each leaf with a named axis."""
    return all_to_all(x, axis_name, axis, axis, axis_index_groups=axis_index_groups)
