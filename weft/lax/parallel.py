"""Collectives on trees, over the named axes of vmap, and of the meshes of shard_map and pmap."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from weft.base import tree
from weft.base.arguments import described
from weft.base.errors import ArgumentError, ArgumentTypeError
from weft.ir.context import context
from weft.ir.types import ArrayType, get_aval
from weft.ir.varying import apply_casts, casts_to
from weft.lax import groups as several
from weft.lax.argument_docs import document
from weft.lax.named_axes import (
    Name,
    axis_index as axis_index,
    axis_names,
    axis_size as axis_size,
    by_position,
    canonical_groups,
    group_params,
    one_name,
    varying,
)
from weft.primitives import collectives
from weft.primitives.collectives import Groups, casts, merge_dims, split_dim
from weft.primitives.elementwise.arithmetic import div
from weft.primitives.elementwise.compare import eq
from weft.primitives.elementwise.convert import convert_element_type
from weft.primitives.elementwise.select import select_n
from weft.primitives.movement.shape import broadcast_in_dim, move_axis
from weft.primitives.random.bits import KeyDtype, random_unwrap, random_wrap


@document("A tree like `x`.", x="a tree of arrays.")
def psum(x: Any, axis_name: Name, *, axis_index_groups: Any = None) -> Any:
    """Sum each leaf over named axes, or within each group of indices along them.

    The sum of a Python number is the number times the size of the axes, known at once.

    >>> import weft
    >>> import weft.numpy as wnp
    >>> from weft import lax
    >>> weft.vmap(lambda x: x / lax.psum(x, "i"), axis_name="i")(wnp.array([1.0, 3.0]))
    Array([0.25, 0.75], dtype=float32)
    """
    names = axis_names(axis_name)
    groups = canonical_groups("psum", axis_name, axis_index_groups, equal=False)
    counts = {axis_size(axis_name)} if groups is None else {len(group) for group in groups}

    def one(leaf: Any) -> Any:
        if isinstance(leaf, (int, float, complex)) and len(counts) == 1:
            return leaf * min(counts)
        if get_aval(leaf).dtype == bool:  # type: ignore[attr-defined]
            leaf = convert_element_type(leaf, new_dtype=get_aval(0).dtype, weak_type=False)  # type: ignore[attr-defined]
        if groups is not None and len(names) > 1:
            return several.reduce_groups(collectives.psum, leaf, names, groups)
        return collectives.psum(varying(leaf, names), axes=names, **group_params(groups))

    return tree.map(one, x)


@document("A tree like `x`.", x="a tree of arrays.")
def pmean(x: Any, axis_name: Name, *, axis_index_groups: Any = None) -> Any:
    """Average each leaf over named axes, or within each group of indices along them.

    >>> import weft
    >>> import weft.numpy as wnp
    >>> from weft import lax
    >>> weft.vmap(lambda x: x - lax.pmean(x, "i"), axis_name="i")(wnp.array([1.0, 3.0]))
    Array([-1.,  1.], dtype=float32)
    """
    groups = canonical_groups("pmean", axis_name, axis_index_groups, equal=False)
    size: Any = axis_size(axis_name)
    if groups is not None:
        sizes = {i: len(group) for group in groups for i in group}
        equal = len(set(sizes.values())) == 1
        size = sizes[0] if equal else by_position(axis_name, [sizes[i] for i in range(size)])

    def one(leaf: Any) -> Any:
        aval = get_aval(leaf)
        if not isinstance(leaf, (int, float, complex)) and aval.tangent() != aval:  # integers become floats
            leaf = convert_element_type(leaf, new_dtype=get_aval(0.0).dtype, weak_type=False)  # type: ignore[attr-defined]
        total = psum(leaf, axis_name, axis_index_groups=axis_index_groups)
        if isinstance(total, (int, float, complex)):
            return total / size
        return div(total, convert_element_type(size, new_dtype=total.dtype, weak_type=False))

    return tree.map(one, x)


@document("A tree like `x`.", x="a tree of arrays.")
def pmax(x: Any, axis_name: Name, *, axis_index_groups: Any = None) -> Any:
    """Compute the maximum of each leaf over named axes, or within each group of indices along them.

    >>> import weft
    >>> import weft.numpy as wnp
    >>> from weft import lax
    >>> weft.vmap(lambda x: lax.pmax(x, "i"), axis_name="i")(wnp.array([1, 3]))
    Array([3, 3], dtype=int32)
    """
    return extremum(collectives.pmax, x, axis_name, axis_index_groups)


@document("A tree like `x`.", x="a tree of arrays.")
def pmin(x: Any, axis_name: Name, *, axis_index_groups: Any = None) -> Any:
    """Compute the minimum of each leaf over named axes, or within each group of indices along them.

    >>> import weft
    >>> import weft.numpy as wnp
    >>> from weft import lax
    >>> weft.vmap(lambda x: lax.pmin(x, "i"), axis_name="i")(wnp.array([1, 3]))
    Array([1, 1], dtype=int32)
    """
    return extremum(collectives.pmin, x, axis_name, axis_index_groups)


def extremum(primitive: Any, x: Any, axis_name: Name, axis_index_groups: Any) -> Any:
    names = axis_names(axis_name)
    groups = canonical_groups(primitive.name, axis_name, axis_index_groups, equal=False)
    if groups is not None and len(names) > 1:
        return tree.map(lambda leaf: several.reduce_groups(primitive, leaf, names, groups), x)
    return tree.map(lambda leaf: primitive(varying(leaf, names), axes=names, **group_params(groups)), x)


STATES = ("varying", "unreduced", "reduced")


def pcast(x: Any, axis_name: Name, *, to: str) -> Any:
    """Cast each leaf, unchanged, to be `to` along the named axes inside of `shard_map`, without communication.

    "varying": each device has its own value; "unreduced": each device has a term of a sum; "reduced": all devices have
    the same value, with a cotangent that is unreduced. Casts to "varying" are inserted automatically where needed, so
    only the others ever have to be written.
    """
    names = axis_names(axis_name)
    if to not in STATES:
        raise ArgumentError(f"lax.pcast: `to` must be one of {', '.join(map(repr, STATES))}.", received=repr(to))
    axes = context.manual.intersection(names)

    def one(leaf: Any) -> Any:
        aval = get_aval(leaf)
        assert isinstance(aval, ArrayType)
        state = aval.manual
        wrong = axes & ({"varying": state.unreduced, "unreduced": state.reduced, "reduced": state.varying}[to])
        wrong |= axes - state.vur if to == "unreduced" else (axes & state.unreduced if to == "reduced" else frozenset())
        if wrong:
            axis = min(wrong, key=str)
            raise ArgumentError(
                f"lax.pcast: a value cannot become {to} along {axis!r} without communication.",
                received=aval.short(),
                fix=PCASTS[to].format(axis=repr(axis)),
            )
        if to == "unreduced":
            missing = tuple(sorted(axes - state.unreduced, key=str))
            return casts.vary_unreduced_cast(leaf, axes=missing) if missing else leaf
        wanted = (axes, frozenset()) if to == "varying" else (frozenset(), axes)
        return apply_casts(leaf, casts_to(state, *wanted))

    return tree.map(one, x)


PCASTS = {
    "varying": "lax.psum(x, {axis}) sums what is unreduced",
    "unreduced": "lax.pcast(x, {axis}, to='varying') first, if every device has a term of the sum",
    "reduced": "lax.all_gather(x, {axis}, to='reduced'), or lax.psum(x, {axis}) first",
}

GATHERS = {
    "varying": collectives.all_gather,
    "invarying": collectives.all_gather_invariant,
    "reduced": collectives.all_gather_reduced,
}


def all_gather(
    x: Any, axis_name: Name, *, axis_index_groups: Any = None, axis: int = 0, tiled: bool = False, to: str = "varying"
) -> Any:
    """Gather each leaf of all elements, stacked, or concatenated if `tiled`, along `axis`.

    Inside of `shard_map`, `to` sets the type of the result: "varying"; "invarying", the same on all devices; or
    "reduced", the same with an unreduced cotangent.

    Args:
        x: a tree of arrays.
        axis_name: the name of an axis of `vmap`, `pmap` or `shard_map`, or a tuple of names.
        axis_index_groups: lists of positions along the axis, which are reduced apart.
        axis: where the new axis is, or along which to concatenate.
        tiled: whether to concatenate.
        to: "varying", "invarying" or "reduced".

    Returns:
        A tree like `x`, with an axis of the size of the named one.

    >>> import weft
    >>> import weft.numpy as wnp
    >>> from weft import lax
    >>> weft.vmap(lambda x: lax.all_gather(x, "i"), axis_name="i")(wnp.array([1, 3]))
    Array([[1, 3],
           [1, 3]], dtype=int32)
    """
    names = axis_names(axis_name)
    groups = canonical_groups("all_gather", axis_name, axis_index_groups)
    if to not in GATHERS:
        raise ArgumentError(f"lax.all_gather: `to` must be one of {', '.join(map(repr, GATHERS))}.", received=repr(to))
    if to != "varying" and groups is not None:
        raise ArgumentError(
            "lax.all_gather in groups needs to='varying', since its results vary.",
            received=f"to={to!r}",
            fix="to='varying'",
        )

    def one(leaf: Any) -> Any:
        aval = get_aval(leaf)
        assert isinstance(aval, ArrayType)
        dim = dimension("all_gather", axis, aval.ndim + (not tiled), aval)
        if groups is not None and len(names) > 1:
            return several.gather_groups(leaf, names, groups, dim, tiled)
        for name in reversed(names):
            checked = name in context.manual
            primitive = GATHERS[to] if checked else collectives.all_gather
            leaf = primitive(
                varying(leaf, (name,)), axis_name=name,
                axis_size=context.axes[name] if groups is None else len(groups[0]),
                all_gather_dimension=dim, tiled=tiled, **group_params(groups),
            )  # fmt: skip
        if not tiled:
            for _ in names[1:]:
                leaf = merge_dims(leaf, dim)
        return leaf

    return tree.map(one, x)


def dimension(function: str, axis: Any, rank: int, aval: ArrayType) -> int:
    """Normalize a dimension of an operand or result of a given rank to a non-negative index."""
    if not isinstance(axis, (int, np.integer)):
        raise ArgumentTypeError(f"lax.{function}: a dimension must be an integer.", received=described(axis))
    if not -rank <= axis < rank:
        raise ArgumentError(f"lax.{function}: there is no dimension {axis}.", received=f"an operand {aval.short()}")
    return int(axis) % rank


def check_fits(function: str, axis_name: Name, shape: Sequence[Any], dim: int, size: int, tiled: bool) -> None:
    """Raise an error unless a dimension that is divided among elements has a slice for each of them."""
    if (shape[dim] % size if tiled else shape[dim] != size) != 0:
        need = f"a multiple of {size}" if tiled else f"equal to {size}"
        what = f"lax.{function}: dimension {dim} must be {need}, the size of {axis_name!r}."
        least = max(-(-shape[dim] // size), 1) * size
        fix = f"pad it to {least}" if tiled or least == size else "tiled=True splits a dimension that is larger"
        raise ArgumentError(what, received=f"shape {tuple(shape)}", fix=fix)


def psum_scatter(
    x: Any, axis_name: Name, *, scatter_dimension: int = 0, axis_index_groups: Any = None, tiled: bool = False
) -> Any:
    """Sum each leaf over named axes; each element keeps its slice of the sum along `scatter_dimension`.

    Args:
        x: a tree of arrays.
        axis_name: the name of an axis of `vmap`, `pmap` or `shard_map`, or a tuple of names.
        scatter_dimension: the dimension that is divided.
        axis_index_groups: lists of positions along the axis, which are reduced apart.
        tiled: whether the dimension stays, shortened; otherwise it is removed.

    Returns:
        A tree like `x`.

    >>> import weft
    >>> import weft.numpy as wnp
    >>> from weft import lax
    >>> weft.vmap(lambda x: lax.psum_scatter(x, "i"), axis_name="i")(wnp.array([[1, 2], [10, 20]]))
    Array([11, 22], dtype=int32)
    """
    names = axis_names(axis_name)
    groups = canonical_groups("psum_scatter", axis_name, axis_index_groups)
    size = axis_size(axis_name) if groups is None else len(groups[0])

    def one(leaf: Any) -> Any:
        aval = get_aval(leaf)
        assert isinstance(aval, ArrayType)
        dim = dimension("psum_scatter", scatter_dimension, aval.ndim, aval)
        check_fits("psum_scatter", axis_name, aval.shape, dim, size, tiled)
        if groups is not None and len(names) > 1:
            return several.scatter_groups(leaf, names, groups, dim, tiled)
        for i, name in enumerate(names):
            own = context.axes[name] if groups is None else size
            last = i == len(names) - 1
            leaf = collectives.reduce_scatter(
                varying(leaf, (name,)), axis_name=name, axis_size=own, scatter_dimension=dim, tiled=tiled or not last,
                **group_params(groups),
            )  # fmt: skip
        return leaf

    return tree.map(one, x)


def all_to_all(
    x: Any, axis_name: Name, split_axis: int, concat_axis: int, *, axis_index_groups: Any = None, tiled: bool = False
) -> Any:
    """Exchange a dimension with named axes.

    Slices along `split_axis` are sent to their elements, and the received ones are stacked at `concat_axis`.

    Args:
        x: a tree of arrays.
        axis_name: the name of an axis of `vmap`, `pmap` or `shard_map`, or a tuple of names.
        split_axis: the dimension whose slices are sent.
        concat_axis: the dimension along which received slices are stacked.
        axis_index_groups: lists of positions along the axis, which are reduced apart.
        tiled: whether dimensions are divided and concatenated instead of exchanged.

    Returns:
        A tree like `x`.

    >>> import weft
    >>> import weft.numpy as wnp
    >>> from weft import lax
    >>> weft.vmap(lambda x: lax.all_to_all(x, "i", 0, 0), axis_name="i")(wnp.array([[1, 2], [3, 4]]))
    Array([[1, 3],
           [2, 4]], dtype=int32)
    """
    names = axis_names(axis_name)
    groups = canonical_groups("all_to_all", axis_name, axis_index_groups)
    size = axis_size(names) if groups is None else len(groups[0])

    def one(leaf: Any) -> Any:
        aval = get_aval(leaf)
        assert isinstance(aval, ArrayType)
        split = dimension("all_to_all", split_axis, aval.ndim, aval)
        concat = dimension("all_to_all", concat_axis, aval.ndim, aval)
        check_fits("all_to_all", axis_name, aval.shape, split, size, tiled)
        if groups is not None and len(names) > 1:
            return several.exchange_groups(leaf, names, groups, split, concat, tiled)
        if not tiled:
            return exchange_axis(leaf, names, split, concat, groups)
        return merge_dims(exchange_axis(split_dim(leaf, split, size), names, split, concat, groups), concat)

    return tree.map(one, x)


def exchange_axis(x: Any, names: tuple[Any, ...], split_axis: int, concat_axis: int, groups: Groups) -> Any:
    """Exchange a dimension, as large as all the named axes together, with them, one axis after the other."""
    x = varying(x, names)
    if len(names) == 1:
        size = context.axes[names[0]] if groups is None else len(groups[0])
        return collectives.all_to_all(
            x,
            split_axis=split_axis,
            concat_axis=concat_axis,
            axis_name=names[0],
            axis_size=size,
            **group_params(groups),
        )
    for i, name in enumerate(names[:-1]):
        x = split_dim(x, split_axis + i, context.axes[name])
    for i, name in enumerate(names):
        dim, size = split_axis + i, context.axes[name]
        x = collectives.all_to_all(x, split_axis=dim, concat_axis=dim, axis_name=name, axis_size=size)
    for _ in names[:-1]:
        x = merge_dims(x, split_axis)
    return move_axis(x, split_axis, concat_axis)


@document("A tree like `x`.", x="a tree of arrays.", perm="pairs (source, destination).")
def ppermute(x: Any, axis_name: Name, perm: Sequence[tuple[int, int]]) -> Any:
    """Send each leaf along `perm`, pairs (source, destination); an element that receives nothing gets zeros.

    Indices along several axes are in row-major order.

    >>> import weft
    >>> import weft.numpy as wnp
    >>> from weft import lax
    >>> weft.vmap(lambda x: lax.ppermute(x, "i", [(0, 1), (1, 2)]), axis_name="i")(wnp.array([1, 2, 3]))
    Array([0, 1, 2], dtype=int32)
    """
    names = axis_names(axis_name)
    size = axis_size(axis_name)
    pairs = tuple((int(s), int(d)) for s, d in perm)
    for column, word in ((0, "source"), (1, "destination")):
        found = [p[column] for p in pairs]
        if len(set(found)) != len(found) or any(not 0 <= f < size for f in found):
            what = f"lax.ppermute: every {word} must appear once and lie in range({size})."
            raise ArgumentError(
                what, received=f"perm={pairs}", fix="pairs such as [(i, (i + 1) % n) for i in range(n)]"
            )

    def one(leaf: Any) -> Any:
        impl = get_aval(leaf).dtype  # type: ignore[attr-defined]
        if isinstance(impl, KeyDtype):  # an element that receives nothing gets the key of zeros
            return random_wrap(permute(varying(random_unwrap(leaf), names), names, pairs), impl=impl)
        return permute(varying(leaf, names), names, pairs)

    return tree.map(one, x)


def permute(x: Any, names: tuple[Any, ...], pairs: Sequence[tuple[int, int]]) -> Any:
    """Permute over the last axis once for each distance that something is sent, and then over the other axes."""
    if len(names) == 1:
        return collectives.ppermute(x, axis_name=names[0], perm=tuple(pairs))
    size = context.axes[names[-1]]
    ways: dict[tuple[int, tuple[tuple[int, int], ...]], list[int]] = {}
    for shift in range(size):
        for goal in range(size):
            going = [(s, d) for s, d in pairs if d % size == goal and (d - s) % size == shift]
            if going:
                ways.setdefault((shift, tuple((s // size, d // size) for s, d in going)), []).append(goal)
    result = None
    zeros = broadcast_in_dim(np.zeros((), x.dtype), shape=x.shape, broadcast_dimensions=())
    for (shift, moves), goals in ways.items():
        sent = x
        if shift:
            sent = collectives.ppermute(
                sent, axis_name=names[-1], perm=tuple((i, (i + shift) % size) for i in range(size))
            )
        if any(s != d for s, d in moves):
            sent = permute(sent, names[:-1], moves)
        rest = axis_size(names[:-1])
        receives = [int(i // size in {d for _, d in moves} and i % size in goals) for i in range(rest * size)]
        mask = eq(by_position(names, receives), np.int32(1))
        result = select_n(mask, zeros if result is None else result, sent)
    return varying(zeros, names) if result is None else result


def pshuffle(x: Any, axis_name: Name, perm: Sequence[int]) -> Any:
    """Permute elements: element i receives from element `perm[i]`."""
    if sorted(perm) != list(range(axis_size(axis_name))):
        what = f"lax.pshuffle needs a permutation of range({axis_size(axis_name)}), the positions along {axis_name!r}."
        raise ArgumentError(what, received=str(list(perm)))
    return ppermute(x, axis_name, list(zip(perm, range(len(perm)), strict=True)))


def pswapaxes(x: Any, axis_name: Name, axis: int, *, axis_index_groups: Any = None) -> Any:
    """Exchange a dimension of each leaf with a named axis."""
    return all_to_all(x, axis_name, axis, axis, axis_index_groups=axis_index_groups)


def pbroadcast(x: Any, axis_name: Name, source: int) -> Any:
    """Send each leaf of the element at index `source` along a named axis to all elements."""
    name = one_name(axis_name, "pbroadcast")
    size = context.axes[name]
    if not 0 <= source < size:
        raise ArgumentError(f"lax.pbroadcast: source must lie in range({size}).", received=str(source))
    return tree.map(
        lambda leaf: collectives.pbroadcast(varying(leaf, (name,)), axis_name=name, axis_size=size, source=int(source)),
        x,
    )
