"""Collectives on trees, over the named axes of vmap, and of the meshes of shard_map and pmap."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from weft.base import tree
from weft.base.arguments import described
from weft.base.errors import ArgumentError, ArgumentTypeError, ShardingTypeError, UnboundAxisError
from weft.base.source import user_line
from weft.ir.context import context
from weft.ir.primitive import apply_casts
from weft.ir.types import ArrayType, type_of
from weft.ir.varying import casts_to
from weft.primitives import casts, collectives
from weft.primitives.collectives import Groups, merge_dims, rows_of, split_dim
from weft.primitives.elementwise.arithmetic import add, div, mul, sub
from weft.primitives.elementwise.bitwise import and_
from weft.primitives.elementwise.compare import eq, ge, lt
from weft.primitives.elementwise.convert import convert_element_type
from weft.primitives.elementwise.select import select_n
from weft.primitives.movement.iota import iota
from weft.primitives.movement.shape import broadcast_in_dim, move_axis, reshape
from weft.primitives.random.bits import KeyDtype, random_unwrap, random_wrap

__all__ = [
    "all_gather", "all_to_all", "axis_index", "axis_size", "pbroadcast", "pcast", "pmax", "pmean", "pmin", "ppermute",
    "pshuffle", "psum", "psum_scatter", "pswapaxes", "ragged_all_to_all",
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
                fix=(
                    f"call this inside vmap(f, axis_name={name!r})",
                    f"call this inside shard_map(f, mesh=...), whose mesh has an axis {name!r}",
                ),
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
    """The size of a named axis; of several, the product."""
    return math.prod(context.axes[n] for n in names_of(axis_name))


def groups_of(function: str, axis_name: Name, axis_index_groups: Any, equal: bool = True) -> Groups:
    """Groups of positions along an axis as a parameter: all positions once, in groups of one size where `equal`."""
    if axis_index_groups is None:
        return None
    one_name(axis_name, f"{function} with axis_index_groups")
    groups = tuple(tuple(int(i) for i in group) for group in axis_index_groups)
    size = axis_size(axis_name)
    if sorted(i for group in groups for i in group) != list(range(size)):
        raise ArgumentError(
            f"lax.{function}: axis_index_groups must have every position along {axis_name!r} once.",
            received=f"{axis_index_groups} for an axis of size {size}",
            fix=f"groups of the numbers in range({size})",
        )
    if equal and len({len(group) for group in groups}) > 1:
        what = f"lax.{function}: axis_index_groups must be of one size."
        raise ArgumentError(what, received=f"{axis_index_groups}", fix="groups with equally many positions each")
    return groups


def grouped(groups: Groups) -> dict[str, Any]:
    """The parameter of a collective for groups, if there are any."""
    return {} if groups is None else {"axis_index_groups": groups}


def by_position(axis_name: Name, table: Sequence[int]) -> Any:
    """Each element's own entry of a table along a named axis."""
    position = reshape(axis_index(axis_name), new_sizes=(1,), dimensions=None)
    return reshape(rows_of(np.array(table, np.int32), position), new_sizes=(), dimensions=None)


def varying(x: Any, names: Sequence[Any]) -> Any:
    """A value as one that varies along those of the named axes that are manual axes of a `shard_map`; what is unreduced
    stays so."""
    if not context.manual:
        return x
    state = type_of(x).manual  # type: ignore[attr-defined]
    return apply_casts(x, casts_to(state, context.manual.intersection(names), frozenset()))


def psum(x: Any, axis_name: Name, *, axis_index_groups: Any = None) -> Any:
    """Sum of each leaf over named axes, or in each group of positions along one; of a Python number, the number times
    the size of the axes, known at once."""
    names = names_of(axis_name)
    groups = groups_of("psum", axis_name, axis_index_groups, equal=False)
    counts = {axis_size(axis_name)} if groups is None else {len(group) for group in groups}

    def one(leaf: Any) -> Any:
        if isinstance(leaf, (int, float, complex)) and len(counts) == 1:
            return leaf * min(counts)
        if type_of(leaf).dtype == bool:  # type: ignore[attr-defined]
            leaf = convert_element_type(leaf, new_dtype=type_of(0).dtype, weak_type=False)  # type: ignore[attr-defined]
        return collectives.psum(varying(leaf, names), axes=names, **grouped(groups))

    return tree.map(one, x)


def pmean(x: Any, axis_name: Name, *, axis_index_groups: Any = None) -> Any:
    """Mean of each leaf over named axes, or in each group of positions along one."""
    groups = groups_of("pmean", axis_name, axis_index_groups, equal=False)
    size: Any = axis_size(axis_name)
    if groups is not None:
        sizes = {i: len(group) for group in groups for i in group}
        equal = len(set(sizes.values())) == 1
        size = sizes[0] if equal else by_position(axis_name, [sizes[i] for i in range(size)])

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
    """Maximum of each leaf over named axes, or in each group of positions along one."""
    return extremum(collectives.pmax, x, axis_name, axis_index_groups)


def pmin(x: Any, axis_name: Name, *, axis_index_groups: Any = None) -> Any:
    """Minimum of each leaf over named axes, or in each group of positions along one."""
    return extremum(collectives.pmin, x, axis_name, axis_index_groups)


def extremum(card: Any, x: Any, axis_name: Name, axis_index_groups: Any) -> Any:
    names = names_of(axis_name)
    groups = groups_of(card.name, axis_name, axis_index_groups, equal=False)
    return tree.map(lambda leaf: card(varying(leaf, names), axes=names, **grouped(groups)), x)


def axis_index(axis_name: Name) -> Any:
    """The position of this element along a named axis; along several, in row-major order."""
    index: Any = None
    for name in names_of(axis_name):
        own = collectives.axis_index(axis_name=name, **({"varying": True} if name in context.manual else {}))
        index = own if index is None else add(mul(index, np.int32(context.axes[name])), own)
    return index


STATES = ("varying", "unreduced", "reduced")


def pcast(x: Any, axis_name: Name, *, to: str) -> Any:
    """Each leaf as it is, as a value that inside of `shard_map` is `to` along the named axes: "varying", each device
    with its own; "unreduced", each device with a term of a sum; "reduced", the same on all, with a cotangent that is
    unreduced. Nothing is communicated. What must vary is cast by itself, so only the others ever need to be written."""
    names = names_of(axis_name)
    if to not in STATES:
        raise ArgumentError(f"lax.pcast: to is one of {', '.join(map(repr, STATES))}.", received=repr(to))
    axes = context.manual.intersection(names)

    def one(leaf: Any) -> Any:
        aval = type_of(leaf)
        assert isinstance(aval, ArrayType)
        state = aval.manual
        wrong = axes & ({"varying": state.unreduced, "unreduced": state.reduced, "reduced": state.varying}[to])
        wrong |= axes - state.vur if to == "unreduced" else (axes & state.unreduced if to == "reduced" else frozenset())
        if wrong:
            axis = min(wrong, key=str)
            raise ShardingTypeError(
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
    """Each leaf of all elements, stacked (or `tiled`: concatenated) along `axis`. Inside of `shard_map` the result is
    "varying" for the types, "invarying", the same on all devices, or "reduced": the same, with an unreduced
    cotangent."""
    names = names_of(axis_name)
    groups = groups_of("all_gather", axis_name, axis_index_groups)
    if to not in GATHERS:
        raise ArgumentError(f"lax.all_gather: to is one of {', '.join(map(repr, GATHERS))}.", received=repr(to))
    if to != "varying" and groups is not None:
        raise ArgumentError(
            "lax.all_gather in groups has results that vary.", received=f"to={to!r}", fix="to='varying'"
        )

    def one(leaf: Any) -> Any:
        aval = type_of(leaf)
        assert isinstance(aval, ArrayType)
        dim = dimension("all_gather", axis, aval.ndim + (not tiled), aval)
        for name in reversed(names):
            checked = name in context.manual
            card = GATHERS[to] if checked else collectives.all_gather
            leaf = card(
                varying(leaf, (name,)), axis_name=name,
                axis_size=context.axes[name] if groups is None else len(groups[0]),
                all_gather_dimension=dim, tiled=tiled, **grouped(groups),
            )  # fmt: skip
        if not tiled:
            for _ in names[1:]:
                leaf = merge_dims(leaf, dim)
        return leaf

    return tree.map(one, x)


def dimension(function: str, axis: Any, rank: int, aval: ArrayType) -> int:
    """A dimension as a position, of an operand or of a result of some rank."""
    if not isinstance(axis, (int, np.integer)):
        raise ArgumentTypeError(f"lax.{function}: a dimension is an integer.", received=described(axis))
    if not -rank <= axis < rank:
        raise ArgumentError(f"lax.{function}: there is no dimension {axis}.", received=f"an operand {aval.short()}")
    return int(axis) % rank


def check_fits(function: str, axis_name: Name, shape: Sequence[Any], dim: int, size: int, tiled: bool) -> None:
    """A dimension that is shared out among elements has a slice for each of them."""
    if (shape[dim] % size if tiled else shape[dim] != size) != 0:
        need = f"a multiple of {size}" if tiled else f"equal to {size}"
        what = f"lax.{function}: dimension {dim} must be {need}, the size of {axis_name!r}."
        fix = "tiled=True splits a dimension that is larger" if not tiled and not shape[dim] % size else None
        raise ArgumentError(what, received=f"shape {tuple(shape)}", fix=fix)


def psum_scatter(
    x: Any, axis_name: Name, *, scatter_dimension: int = 0, axis_index_groups: Any = None, tiled: bool = False
) -> Any:
    """Sum over named axes, of which each element keeps its slice along `scatter_dimension`."""
    names = names_of(axis_name)
    groups = groups_of("psum_scatter", axis_name, axis_index_groups)
    size = axis_size(axis_name) if groups is None else len(groups[0])

    def one(leaf: Any) -> Any:
        aval = type_of(leaf)
        assert isinstance(aval, ArrayType)
        dim = dimension("psum_scatter", scatter_dimension, aval.ndim, aval)
        check_fits("psum_scatter", axis_name, aval.shape, dim, size, tiled)
        for i, name in enumerate(names):
            own = context.axes[name] if groups is None else size
            last = i == len(names) - 1
            leaf = collectives.reduce_scatter(
                varying(leaf, (name,)), axis_name=name, axis_size=own, scatter_dimension=dim, tiled=tiled or not last,
                **grouped(groups),
            )  # fmt: skip
        return leaf

    return tree.map(one, x)


def all_to_all(
    x: Any, axis_name: Name, split_axis: int, concat_axis: int, *, axis_index_groups: Any = None, tiled: bool = False
) -> Any:
    """Exchange a dimension with named axes: slices along `split_axis` go to their elements and are stacked at
    `concat_axis`."""
    names = names_of(axis_name)
    groups = groups_of("all_to_all", axis_name, axis_index_groups)
    size = axis_size(names) if groups is None else len(groups[0])

    def one(leaf: Any) -> Any:
        aval = type_of(leaf)
        assert isinstance(aval, ArrayType)
        split = dimension("all_to_all", split_axis, aval.ndim, aval)
        concat = dimension("all_to_all", concat_axis, aval.ndim, aval)
        check_fits("all_to_all", axis_name, aval.shape, split, size, tiled)
        if not tiled:
            return exchanged(leaf, names, split, concat, groups)
        return merge_dims(exchanged(split_dim(leaf, split, size), names, split, concat, groups), concat)

    return tree.map(one, x)


def exchanged(x: Any, names: tuple[Any, ...], split_axis: int, concat_axis: int, groups: Groups) -> Any:
    """One dimension, as large as the named axes together, exchanged with them: with one after the other."""
    x = varying(x, names)
    if len(names) == 1:
        size = context.axes[names[0]] if groups is None else len(groups[0])
        return collectives.all_to_all(
            x, split_axis=split_axis, concat_axis=concat_axis, axis_name=names[0], axis_size=size, **grouped(groups)
        )
    for i, name in enumerate(names[:-1]):
        x = split_dim(x, split_axis + i, context.axes[name])
    for i, name in enumerate(names):
        dim, size = split_axis + i, context.axes[name]
        x = collectives.all_to_all(x, split_axis=dim, concat_axis=dim, axis_name=name, axis_size=size)
    for _ in names[:-1]:
        x = merge_dims(x, split_axis)
    return move_axis(x, split_axis, concat_axis)


def ppermute(x: Any, axis_name: Name, perm: Sequence[tuple[int, int]]) -> Any:
    """Send each leaf along `perm`, pairs (source, destination); an element that receives nothing gets zeros. Positions
    along several axes are in row-major order."""
    names = names_of(axis_name)
    size = axis_size(axis_name)
    pairs = tuple((int(s), int(d)) for s, d in perm)
    for column, word in ((0, "source"), (1, "destination")):
        found = [p[column] for p in pairs]
        if len(set(found)) != len(found) or any(not 0 <= f < size for f in found):
            what = f"lax.ppermute: every {word} must appear once and lie in range({size})."
            raise ArgumentError(what, received=f"perm={pairs}")

    def one(leaf: Any) -> Any:
        impl = type_of(leaf).dtype  # type: ignore[attr-defined]
        if isinstance(impl, KeyDtype):  # who receives nothing gets the key of zeros
            return random_wrap(permuted(varying(random_unwrap(leaf), names), names, pairs), impl=impl)
        return permuted(varying(leaf, names), names, pairs)

    return tree.map(one, x)


def permuted(x: Any, names: tuple[Any, ...], pairs: Sequence[tuple[int, int]]) -> Any:
    """`ppermute` over the last axis by each distance that something goes along it, then over the others."""
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
            sent = permuted(sent, names[:-1], moves)
        rest = axis_size(names[:-1])
        receives = [int(i // size in {d for _, d in moves} and i % size in goals) for i in range(rest * size)]
        mask = eq(by_position(names, receives), np.int32(1))
        result = select_n(mask, zeros if result is None else result, sent)
    return varying(zeros, names) if result is None else result


def pshuffle(x: Any, axis_name: Name, perm: Sequence[int]) -> Any:
    """Element i receives from element `perm[i]`."""
    if sorted(perm) != list(range(axis_size(axis_name))):
        what = f"lax.pshuffle needs a permutation of range({axis_size(axis_name)}), the positions along {axis_name!r}."
        raise ArgumentError(what, received=str(list(perm)))
    return ppermute(x, axis_name, list(zip(perm, range(len(perm)), strict=True)))


def pswapaxes(x: Any, axis_name: Name, axis: int, *, axis_index_groups: Any = None) -> Any:
    """Exchange a dimension of each leaf with a named axis."""
    return all_to_all(x, axis_name, axis, axis, axis_index_groups=axis_index_groups)


def pbroadcast(x: Any, axis_name: Name, source: int) -> Any:
    """Each leaf of the element at `source` along a named axis, for all elements."""
    name = one_name(axis_name, "pbroadcast")
    size = context.axes[name]
    if not 0 <= source < size:
        raise ArgumentError(f"lax.pbroadcast: source must lie in range({size}).", received=str(source))
    return tree.map(
        lambda leaf: collectives.pbroadcast(varying(leaf, (name,)), axis_name=name, axis_size=size, source=int(source)),
        x,
    )


def ragged_all_to_all(
    operand: Any,
    output: Any,
    input_offsets: Any,
    send_sizes: Any,
    output_offsets: Any,
    recv_sizes: Any,
    *,
    axis_name: Name,
    axis_index_groups: Any = None,
) -> Any:
    """Send slices of different sizes to the other elements along a named axis. Element j gets the `send_sizes[j]` rows
    of `operand` from `input_offsets[j]` on, and puts them into its `output` from this element's `output_offsets[j]` on;
    rows of `output` that nobody sends stay. `recv_sizes[i]` is what element i sends here."""
    name = one_name(axis_name, "ragged_all_to_all")
    groups = groups_of("ragged_all_to_all", axis_name, axis_index_groups)
    count = context.axes[name] if groups is None else len(groups[0])
    x, result = type_of(operand), type_of(output)
    assert isinstance(x, ArrayType) and isinstance(result, ArrayType)
    if x.dtype != result.dtype or x.shape[1:] != result.shape[1:] or not x.shape:
        what = "lax.ragged_all_to_all: operand and output differ in their first dimension only."
        raise ArgumentError(what, received=f"{x.short()} and {result.short()}")
    tables = {
        "input_offsets": input_offsets, "send_sizes": send_sizes,
        "output_offsets": output_offsets, "recv_sizes": recv_sizes,
    }  # fmt: skip
    for word, table in tables.items():
        aval = type_of(table)
        if not isinstance(aval, ArrayType) or aval.shape != (count,) or np.dtype(aval.dtype).kind not in "iu":
            raise ArgumentError(
                f"lax.ragged_all_to_all: {word} has an integer for each of the {count} elements.", received=aval.short()
            )
    exchange = lambda table: all_to_all(table, name, 0, 0, axis_index_groups=axis_index_groups)
    begins, sizes, goals = (exchange(tables[word]) for word in ("input_offsets", "send_sizes", "output_offsets"))
    every = all_gather(operand, name, axis_index_groups=axis_index_groups)
    rows = iota(dtype=np.dtype(np.int32), shape=(result.shape[0],), dimension=0)
    filled = varying(output, (name,))
    for i in range(count):
        begin, size, goal = (entry(table, i) for table in (begins, sizes, goals))
        step = sub(rows, goal)
        sent = rows_of(entry(every, i), add(step, begin))
        own = and_(ge(step, np.int32(0)), lt(step, size))
        own = broadcast_in_dim(own, shape=result.shape, broadcast_dimensions=(0,))
        filled = select_n(own, filled, sent)
    return filled


def entry(x: Any, i: int) -> Any:
    """Entry i along the first dimension; an integer as int32."""
    found = reshape(rows_of(x, [i]), new_sizes=x.shape[1:], dimensions=None)
    whole = np.dtype(found.dtype).kind in "iu" and not found.shape
    return convert_element_type(found, new_dtype=np.dtype(np.int32), weak_type=False) if whole else found
