"""Collectives over named axes: communication between the elements of a `vmap` (and devices of a mesh).

Each has, besides the usual rules, `batch_collective`: its meaning when the named axis is the batch dimension of the
operand.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import numpy as np

from weft.base import dtypes
from weft.base.errors import NotSupportedError, ShardingTypeError
from weft.ir.fusing import COMMUNICATES, Machine, Properties
from weft.ir.primitive import Axis, No, Params, Primitive, Sample, in_state, primitive
from weft.ir.types import ArrayType, array_type
from weft.primitives.elementwise.arithmetic import add, div, mul
from weft.primitives.elementwise.arithmetic import max as max_
from weft.primitives.elementwise.arithmetic import min as min_
from weft.primitives.elementwise.compare import eq
from weft.primitives.elementwise.convert import convert_element_type
from weft.primitives.movement.concatenate import concatenate
from weft.primitives.movement.gather import GatherDimensionNumbers, GatherScatterMode, gather
from weft.primitives.movement.iota import iota
from weft.primitives.movement.shape import batched_at_front, broadcast_in_dim, move_axis, reshape
from weft.primitives.movement.slicing import dynamic_slice
from weft.primitives.movement.slicing import slice as slice_primitive
from weft.primitives.reduction.reduce import reduce_sum
from weft.primitives.reduction.reduce_extrema import reduce_max, reduce_min
from weft.sharding.factors import AxisFactors, elementwise
from weft.sharding.manual import NONE, ManualAxisType

Names = tuple[Any, ...]
Groups = tuple[tuple[int, ...], ...] | None  # positions along an axis that communicate with each other; None: all
ALONE = "it communicates over a named axis, which exists only inside vmap, pmap or shard_map"


class Collective(Primitive):
    """Communicates over the axes in `axes` or `axis_name`; not evaluated alone."""

    eval = No(ALONE)
    # The operand may be unreduced along the axes: what each device has is a term.
    sums: ClassVar[bool] = False
    # All elements along the axes, or of a group of them, get the same.
    same_for_all: ClassVar[bool] = False

    def named_axes(self, params: Params) -> Names:
        return params["axes"] if "axes" in params else (params["axis_name"],)

    def manual(self, state: ManualAxisType, params: Params) -> ManualAxisType:
        """Each element gets a value of its own, unless the operation overrides this. Along an axis that
        the state does not name, such as one of a vmap, results have no state either."""
        axes = frozenset(self.named_axes(params)) & state.vur
        self.check_terms(state, axes)
        return ManualAxisType(
            varying=state.varying | axes, unreduced=state.unreduced - axes, reduced=state.reduced - axes
        )

    def check_terms(self, state: ManualAxisType, axes: frozenset[Any]) -> None:
        """Only sums take operands that are unreduced along their axes."""
        if not self.sums and state.unreduced & axes:
            axis = min(state.unreduced & axes, key=str)
            raise ShardingTypeError(
                f"`{self.name}` over {axis!r} has an operand that is unreduced along it.",
                fix=f"lax.psum(x, {axis!r}) first",
            )

    def varies(self, axes: frozenset[Any], params: Params) -> frozenset[Any]:
        named = self.named_axes(params)
        if self.casts:
            return axes
        alike = self.same_for_all and params.get("axis_index_groups") is None
        return axes.difference(named) if alike else axes.union(named)

    def fusion(self, equation: Any, target: Machine) -> Properties:
        return COMMUNICATES

    def group_results(self, operands: Sequence[Sequence[Any]], **params: Any) -> Sequence[Sequence[Any]]:
        """The collective on all devices along its axes: from each operand of all members, in the order of the axes,
        each result of all members."""
        groups: Groups = params.pop("axis_index_groups", None)
        if groups is None:
            return self.member_results(operands, **params)
        found: list[dict[int, Any]] = []
        for group in groups:
            results = self.member_results([[members[i] for i in group] for members in operands], **params)
            found = found or [{} for _ in results]
            for own, result in zip(found, results, strict=True):
                own.update(zip(group, result, strict=True))
        return [[own[i] for i in range(len(own))] for own in found]

    def member_results(self, operands: Sequence[Sequence[Any]], **params: Any) -> Sequence[Sequence[Any]]:
        """The same for devices that all communicate with each other. By default what `vmap` over the axis makes of the
        members' operands as a batch."""
        (axis_name,) = self.named_axes(params)
        count = len(operands[0])
        axis = Axis(count, axis_name)
        batched = [stacked(members) for members in operands]
        out, dims = self.batch_collective(axis, batched, [0] * len(batched), **params)  # type: ignore[attr-defined]
        outs, dims = (out, dims) if self.multiple_results else ([out], [dims])
        return [
            [x] * count if dim is None else unstacked(move_axis(x, dim, 0)) for x, dim in zip(outs, dims, strict=True)
        ]

    def sample(self, *args: Any, **options: Any) -> Sample:
        """A sample along one named axis `i` of size 4."""
        return Sample(*args, environment={"i": 4}, **options)


class AllReduce(Collective):
    """Every element gets the combination of all."""

    same_for_all = True
    sampled: tuple[Any, ...] = (np.float32, np.int32)  # the dtypes of samples

    def type(self, x: ArrayType, *, axes: Names, axis_index_groups: Groups = None) -> ArrayType:
        return x

    def factors(self, x: ArrayType, **params: Any) -> AxisFactors:
        return elementwise([x.ndim])

    def manual(self, state: ManualAxisType, params: Params) -> ManualAxisType:
        if params.get("axis_index_groups") is not None:  # groups have results of their own
            return super().manual(state, params)
        axes = frozenset(self.named_axes(params))
        return ManualAxisType(
            varying=state.varying - axes, unreduced=state.unreduced - axes, reduced=state.reduced - axes
        )

    def batch(self, axis: Axis, args: Any, dims: Any, **params: Any) -> tuple[Any, Any]:
        return self(args[0], **params), dims[0]

    def batch_collective(
        self, axis: Axis, args: Any, dims: Any, *, axes: Names, axis_index_groups: Groups = None
    ) -> tuple[Any, Any]:
        (x,), (dim,) = args, dims
        if axis_index_groups is not None:
            x = batched_at_front(x, dim, axis)
            return by_group(x, axis_index_groups, lambda rows: alike(self.reduced(rows, 0), rows.shape[0])), 0
        rest = tuple(a for a in axes if a != axis.name)
        result = self.repeated(x, axis.size) if dim is None else self.reduced(x, dim)
        return (self(result, axes=rest) if rest else result), None

    def samples(self) -> Any:
        for dtype in self.sampled:
            yield self.sample(values(4, 2, 3).astype(dtype), axes=("i",))
        yield self.sample(values(4), axes=("i",))
        for axes in (("i",), ("j",), ("i", "j"), ("j", "i")):
            yield Sample(values(2, 3, 4), environment={"i": 2, "j": 3}, axes=axes)
        yield Sample(values(1, 3), environment={"i": 1}, axes=("i",))
        for groups in (((0, 2), (3, 1)), ((1, 2, 3), (0,))):
            yield self.sample(values(4, 2), axes=("i",), axis_index_groups=groups)

    def repeated(self, x: Any, size: int) -> Any:
        """The combination of `size` equal elements."""
        return x

    def combined(self, x: Any, y: Any) -> Any:
        """The combination of two elements."""
        raise NotSupportedError(f"{self.name} does not say how it combines")

    def member_results(self, operands: Sequence[Sequence[Any]], **params: Any) -> Sequence[Sequence[Any]]:
        (members,) = operands
        return [[tree_combined(self.combined, members)] * len(members)]

    def reduced(self, x: Any, dim: int) -> Any:
        """The combination along a dimension."""
        raise NotSupportedError(f"{self.name} does not say how it reduces")


def repeated_sum(x: Any, size: int) -> Any:
    """The sum of `size` equal elements."""
    return mul(x, np.array(size).astype(dtypes.storage(x.dtype)))


@primitive
class psum(AllReduce):
    """Sum over named axes."""

    linear = (0,)
    sums = True
    sampled = (np.float32, np.float16, np.int32, np.complex64)

    def repeated(self, x: Any, size: int) -> Any:
        return repeated_sum(x, size)

    def reduced(self, x: Any, dim: int) -> Any:
        return reduce_sum(x, axes=(dim,))

    def member_results(self, operands: Sequence[Sequence[Any]], **params: Any) -> Sequence[Sequence[Any]]:
        (members,) = operands
        return [[tree_sum(members)] * len(members)]

    def transpose(self, cotangent: Any, x: Any, **params: Any) -> Sequence[Any]:
        # Where types say what the operand is, the result and its cotangent are the same for all. Where they say
        # nothing, each element has a result of its own, and all of them depend on each operand.
        if params.get("axis_index_groups") is not None:
            return [psum(cotangent, **params)]
        rest = tuple(a for a in params["axes"] if a not in x.aval.manual.vur)
        cotangent = in_state(cotangent, x.aval.cotangent())
        return [psum(cotangent, axes=rest) if rest else cotangent]


class Extremum(AllReduce):
    """Largest or smallest; equal ones share the derivative."""

    def partial(self, i: int, tangent: Any, out: Any, x: Any, **params: Any) -> Any:
        mask = convert_element_type(eq(x, out), new_dtype=x.dtype, weak_type=False)
        return div(psum(mul(tangent, mask), **params), psum(mask, **params))


@primitive
class pmax(Extremum):
    """Maximum over named axes."""

    def reduced(self, x: Any, dim: int) -> Any:
        return reduce_max(x, axes=(dim,))

    def combined(self, x: Any, y: Any) -> Any:
        return max_(x, y)


@primitive
class pmin(Extremum):
    """Minimum over named axes."""

    def reduced(self, x: Any, dim: int) -> Any:
        return reduce_min(x, axes=(dim,))

    def combined(self, x: Any, y: Any) -> Any:
        return min_(x, y)


@primitive
class axis_index(Collective):
    """The position of this element along a named axis."""

    def type(self, *, axis_name: Any, varying: bool = False) -> ArrayType:
        state = ManualAxisType(varying=[axis_name]) if varying else NONE
        return array_type((), np.dtype(np.int32), manual=state)

    def unplaced(self, params: Params) -> Params:
        return {"axis_name": params["axis_name"]}

    def batch_collective(self, axis: Axis, args: Any, dims: Any, **params: Any) -> tuple[Any, int]:
        return iota(dtype=np.dtype(np.int32), shape=(axis.size,), dimension=0), 0

    def samples(self) -> Any:
        yield self.sample(axis_name="i")
        yield Sample(environment={"i": 2, "j": 3}, axis_name="j")


class Gather(Collective):
    """The operands of all elements, stacked along a new dimension (or, `tiled`, concatenated along an existing one)."""

    linear = (0,)
    same_for_all = True

    def type(
        self,
        x: ArrayType,
        *,
        axis_name: Any,
        axis_size: int,
        all_gather_dimension: int,
        tiled: bool,
        axis_index_groups: Groups = None,
    ) -> ArrayType:
        shape = list(x.shape)
        if tiled:
            shape[all_gather_dimension] *= axis_size
        else:
            shape.insert(all_gather_dimension, axis_size)
        return x.plain_of_shape(shape)

    def factors(self, x: ArrayType, *, all_gather_dimension: int, tiled: bool, **params: Any) -> AxisFactors:
        names = list(dimension_names(x.ndim))
        if tiled:
            names[all_gather_dimension] = None
            return AxisFactors((tuple(names),), (tuple(names),))
        return AxisFactors((tuple(names),), (inserted(names, all_gather_dimension),))

    def batch(self, axis: Axis, args: Any, dims: Any, *, all_gather_dimension: int, **params: Any) -> tuple[Any, int]:
        x = move_axis(args[0], dims[0], 0)
        return self(x, all_gather_dimension=all_gather_dimension + 1, **params), 0

    def batch_collective(
        self,
        axis: Axis,
        args: Any,
        dims: Any,
        *,
        all_gather_dimension: int,
        tiled: bool,
        axis_index_groups: Groups = None,
        **params: Any,
    ) -> tuple[Any, Any]:
        def gathered(rows: Any) -> Any:
            rows = move_axis(rows, 0, all_gather_dimension)
            return merge_dims(rows, all_gather_dimension) if tiled else rows

        x = batched_at_front(args[0], dims[0], axis)
        if axis_index_groups is None:
            return gathered(x), None
        return by_group(x, axis_index_groups, lambda rows: alike(gathered(rows), rows.shape[0])), 0

    def member_results(self, operands: Sequence[Sequence[Any]], **params: Any) -> Sequence[Sequence[Any]]:
        (members,), dim = operands, params["all_gather_dimension"]
        if not params["tiled"]:
            members = [with_unit(x, dim) for x in members]
        return [[concatenate(*members, dimension=dim)] * len(members)]

    def samples(self) -> Any:
        yield from gathering_samples(self, "all_gather_dimension", values(4, 2, 3), untiled=3)


@primitive
class all_gather(Gather):
    """The operands of all elements, as a value of each of them."""

    def samples(self) -> Any:
        yield from super().samples()
        yield from grouped_samples(self, values(4, 2, 3), "all_gather_dimension")

    def transpose(self, cotangent: Any, x: Any, *, all_gather_dimension: int, **params: Any) -> Sequence[Any]:
        return [reduce_scatter(cotangent, scatter_dimension=all_gather_dimension, **params)]


class GatherAlike(Gather):
    """The operands of all elements, as a value that is the same for all of them, which types say. It does what
    `all_gather` does."""

    def definition(self, x: Any, **params: Any) -> Any:
        return all_gather(x, **params)


@primitive
class all_gather_invariant(GatherAlike):
    """The operands of all elements, which all have alike; a cotangent of it is the same for all too."""

    def manual(self, state: ManualAxisType, params: Params) -> ManualAxisType:
        self.check_terms(state, frozenset((params["axis_name"],)))
        return state.update(varying=state.varying - {params["axis_name"]})

    def transpose(
        self, cotangent: Any, x: Any, *, axis_name: Any, axis_size: int, all_gather_dimension: int, tiled: bool
    ) -> Sequence[Any]:
        if axis_name not in x.aval.manual.varying:  # types say nothing of the axis: cotangents differ
            params = {"axis_name": axis_name, "axis_size": axis_size, "tiled": tiled}
            return [reduce_scatter(cotangent, scatter_dimension=all_gather_dimension, **params)]
        state = cotangent.aval.manual
        cotangent = in_state(cotangent, cotangent.aval.placed(manual=state.update(varying=state.varying | {axis_name})))
        sizes = list(cotangent.shape)
        sizes[all_gather_dimension] //= axis_size
        own = mul(axis_index(axis_name=axis_name, varying=True), np.int32(sizes[all_gather_dimension]))
        starts = [own if i == all_gather_dimension else np.int32(0) for i in range(len(sizes))]
        part = dynamic_slice(cotangent, *starts, slice_sizes=tuple(sizes))
        return [part if tiled else reshape(part, new_sizes=x.aval.shape, dimensions=None)]


@primitive
class all_gather_reduced(GatherAlike):
    """The operands of all elements, which all have alike; each has a term of the cotangent, and `reduce_scatter` sums
    them."""

    def manual(self, state: ManualAxisType, params: Params) -> ManualAxisType:
        axes = frozenset((params["axis_name"],))
        self.check_terms(state, axes)
        return state.update(varying=state.varying - axes, reduced=state.reduced | (axes & state.varying))

    def transpose(self, cotangent: Any, x: Any, *, all_gather_dimension: int, **params: Any) -> Sequence[Any]:
        return [reduce_scatter(cotangent, scatter_dimension=all_gather_dimension, **params)]


@primitive
class reduce_scatter(Collective):
    """Sum over a named axis, of which each element gets its own slice."""

    linear = (0,)
    sums = True

    def type(
        self,
        x: ArrayType,
        *,
        axis_name: Any,
        axis_size: int,
        scatter_dimension: int,
        tiled: bool,
        axis_index_groups: Groups = None,
    ) -> ArrayType:
        shape = list(x.shape)
        if tiled:
            shape[scatter_dimension] //= axis_size
        else:
            del shape[scatter_dimension]
        return x.plain_of_shape(shape)

    def factors(self, x: ArrayType, *, scatter_dimension: int, tiled: bool, **params: Any) -> AxisFactors:
        names = list(dimension_names(x.ndim))
        names[scatter_dimension] = None
        results = names if tiled else names[:scatter_dimension] + names[scatter_dimension + 1 :]
        return AxisFactors((tuple(names),), (tuple(results),))

    def batch(self, axis: Axis, args: Any, dims: Any, *, scatter_dimension: int, **params: Any) -> tuple[Any, int]:
        x = move_axis(args[0], dims[0], 0)
        return reduce_scatter(x, scatter_dimension=scatter_dimension + 1, **params), 0

    def batch_collective(
        self,
        axis: Axis,
        args: Any,
        dims: Any,
        *,
        scatter_dimension: int,
        tiled: bool,
        axis_index_groups: Groups = None,
        **params: Any,
    ) -> tuple[Any, int]:
        (x,), (dim,) = args, dims

        def scattered(total: Any, count: int) -> Any:
            return split_dim(total, scatter_dimension, count) if tiled else total

        if axis_index_groups is None:
            total = repeated_sum(x, axis.size) if dim is None else reduce_sum(x, axes=(dim,))
            return scattered(total, axis.size), scatter_dimension

        def of_group(rows: Any) -> Any:
            return move_axis(scattered(reduce_sum(rows, axes=(0,)), rows.shape[0]), scatter_dimension, 0)

        return by_group(batched_at_front(x, dim, axis), axis_index_groups, of_group), 0

    def member_results(self, operands: Sequence[Sequence[Any]], **params: Any) -> Sequence[Sequence[Any]]:
        (members,), dim = operands, params["scatter_dimension"]
        parts = [own_slices(x, dim, len(members)) for x in members]
        sums = [tree_sum([p[i] for p in parts]) for i in range(len(members))]
        return [sums if params["tiled"] else [without_unit(x, dim) for x in sums]]

    def samples(self) -> Any:
        yield from gathering_samples(self, "scatter_dimension", values(4, 4, 4), untiled=2)
        yield from grouped_samples(self, values(4, 2, 2), "scatter_dimension")

    def transpose(self, cotangent: Any, x: Any, *, scatter_dimension: int, **params: Any) -> Sequence[Any]:
        gather = all_gather_reduced if params["axis_name"] in x.aval.manual.unreduced else all_gather
        return [gather(cotangent, all_gather_dimension=scatter_dimension, **params)]


@primitive
class all_to_all(Collective):
    """Element b gets slice b of every element's `split_axis`, stacked at `concat_axis`: a transpose of batch and
    dimension."""

    linear = (0,)

    def type(
        self,
        x: ArrayType,
        *,
        axis_name: Any,
        axis_size: int,
        split_axis: int,
        concat_axis: int,
        axis_index_groups: Groups = None,
    ) -> ArrayType:
        shape = [d for i, d in enumerate(x.shape) if i != split_axis]
        shape.insert(concat_axis, axis_size)
        return x.plain_of_shape(shape)

    def factors(self, x: ArrayType, *, split_axis: int, concat_axis: int, **params: Any) -> AxisFactors:
        names = list(dimension_names(x.ndim))
        names[split_axis] = None
        remaining = names[:split_axis] + names[split_axis + 1 :]
        return AxisFactors((tuple(names),), (inserted(remaining, concat_axis),))

    def batch(
        self, axis: Axis, args: Any, dims: Any, *, split_axis: int, concat_axis: int, **params: Any
    ) -> tuple[Any, int]:
        x = move_axis(args[0], dims[0], 0)
        return all_to_all(x, split_axis=split_axis + 1, concat_axis=concat_axis + 1, **params), 0

    def batch_collective(
        self,
        axis: Axis,
        args: Any,
        dims: Any,
        *,
        split_axis: int,
        concat_axis: int,
        axis_index_groups: Groups = None,
        **params: Any,
    ) -> tuple[Any, int]:
        def exchanged(rows: Any) -> Any:
            rows = move_axis(rows, split_axis + 1, 0)  # (new batch, old batch, rest)
            return move_axis(rows, 1, concat_axis + 1)

        x = batched_at_front(args[0], dims[0], axis)
        return (exchanged(x) if axis_index_groups is None else by_group(x, axis_index_groups, exchanged)), 0

    def member_results(self, operands: Sequence[Sequence[Any]], **params: Any) -> Sequence[Sequence[Any]]:
        (members,), split, concat = operands, params["split_axis"], params["concat_axis"]
        parts = [[without_unit(p, split) for p in own_slices(x, split, len(members))] for x in members]
        arrived = [[with_unit(p[i], concat) for p in parts] for i in range(len(members))]
        return [[concatenate(*own, dimension=concat) for own in arrived]]

    def samples(self) -> Any:
        common: dict[str, Any] = {"axis_name": "i", "axis_size": 4}
        for split in range(3):
            for concat in range(3):
                shape = [2, 3, 2]
                shape[split] = 4
                yield self.sample(values(4, *shape), split_axis=split, concat_axis=concat, **common)
        yield self.sample(values(4, 4, 2).astype(np.int32), split_axis=0, concat_axis=1, **common)
        common = {"axis_name": "i", "axis_size": 2, "axis_index_groups": GROUPS}
        yield self.sample(values(4, 2, 3), split_axis=0, concat_axis=1, **common)

    def transpose(self, cotangent: Any, x: Any, *, split_axis: int, concat_axis: int, **params: Any) -> Sequence[Any]:
        return [all_to_all(cotangent, split_axis=concat_axis, concat_axis=split_axis, **params)]


@primitive
class pbroadcast(Collective):
    """Every element gets the operand of the one at `source`."""

    linear = (0,)
    same_for_all = True

    def type(self, x: ArrayType, *, axis_name: Any, axis_size: int, source: int) -> ArrayType:
        return x

    def factors(self, x: ArrayType, **params: Any) -> AxisFactors:
        return elementwise([x.ndim])

    def member_results(self, operands: Sequence[Sequence[Any]], **params: Any) -> Sequence[Sequence[Any]]:
        (members,) = operands
        return [[members[params["source"]]] * len(members)]

    def batch(self, axis: Axis, args: Any, dims: Any, **params: Any) -> tuple[Any, Any]:
        return pbroadcast(args[0], **params), dims[0]

    def batch_collective(self, axis: Axis, args: Any, dims: Any, *, source: int, **params: Any) -> tuple[Any, Any]:
        (x,), (dim,) = args, dims
        if dim is None:
            return x, None
        own = rows_of(move_axis(x, dim, 0), [source])
        return reshape(own, new_sizes=own.shape[1:], dimensions=None), None

    def transpose(self, cotangent: Any, x: Any, *, axis_name: Any, axis_size: int, source: int) -> Sequence[Any]:
        total = psum(cotangent, axes=(axis_name,))
        varies = axis_name in x.aval.manual.varying
        own = eq(axis_index(axis_name=axis_name, **({"varying": True} if varies else {})), np.int32(source))
        return [mul(total, convert_element_type(own, new_dtype=total.dtype, weak_type=False))]

    def samples(self) -> Any:
        yield self.sample(values(4, 2, 3), axis_name="i", axis_size=4, source=2)
        yield self.sample(values(4).astype(np.int32), axis_name="i", axis_size=4, source=0)
        yield Sample(values(2, 3, 4), environment={"i": 2, "j": 3}, axis_name="j", axis_size=3, source=1)


@primitive
class ppermute(Collective):
    """Send to other elements: `perm` lists (source, destination); who receives nothing gets zeros."""

    linear = (0,)

    def type(self, x: ArrayType, *, axis_name: Any, perm: tuple[tuple[int, int], ...]) -> ArrayType:
        return x

    def factors(self, x: ArrayType, **params: Any) -> AxisFactors:
        return elementwise([x.ndim])

    def batch(self, axis: Axis, args: Any, dims: Any, **params: Any) -> tuple[Any, Any]:
        return ppermute(args[0], **params), dims[0]

    def batch_collective(
        self, axis: Axis, args: Any, dims: Any, *, axis_name: Any, perm: tuple[tuple[int, int], ...]
    ) -> tuple[Any, int]:
        x = batched_at_front(args[0], dims[0], axis)
        senders = [axis.size] * axis.size  # out of bounds: filled with zeros
        for source, destination in perm:
            senders[destination] = source
        return rows_of(x, senders), 0

    def member_results(self, operands: Sequence[Sequence[Any]], **params: Any) -> Sequence[Sequence[Any]]:
        (members,), senders = operands, {d: s for s, d in params["perm"]}
        return [[members[senders[d]] if d in senders else zeros_like(members[d]) for d in range(len(members))]]

    def samples(self) -> Any:
        for perm in (((0, 1), (1, 2), (2, 3), (3, 0)), ((0, 3), (2, 1)), ((1, 1),), ()):
            yield self.sample(values(4, 2, 3), axis_name="i", perm=perm)
        yield self.sample(values(4).astype(np.int32), axis_name="i", perm=((0, 2), (3, 0)))
        yield Sample(values(2, 3, 4), environment={"i": 2, "j": 3}, axis_name="j", perm=((0, 1), (1, 0)))

    def transpose(self, cotangent: Any, x: Any, *, axis_name: Any, perm: tuple[tuple[int, int], ...]) -> Sequence[Any]:
        return [ppermute(cotangent, axis_name=axis_name, perm=tuple((d, s) for s, d in perm))]


def rows_of(x: Any, positions: Any) -> Any:
    """The rows of an array at some positions, numbers or an integer array, zeros for those out of bounds; for keys all
    are within bounds."""
    keys = isinstance(x.dtype, dtypes.ExtendedDtype)
    mode = {"mode": GatherScatterMode.CLIP, "fill_value": None} if keys else FILLED
    dnums = GatherDimensionNumbers(
        offset_dims=tuple(range(1, len(x.shape))), collapsed_slice_dims=(0,), start_index_map=(0,)
    )
    indices = np.array(positions, np.int32).reshape(-1, 1) if isinstance(positions, list) else positions
    if len(indices.shape) == 1:
        indices = reshape(indices, new_sizes=(indices.shape[0], 1), dimensions=None)
    return gather(
        x, indices,
        dimension_numbers=dnums, slice_sizes=(1, *x.shape[1:]), indices_are_sorted=False, unique_indices=False,
        **mode,
    )  # fmt: skip


def by_group(x: Any, groups: Sequence[Sequence[int]], function: Callable[[Any], Any]) -> Any:
    """A function of the rows of each group, whose results have a row for each of its members, for all rows."""
    results = concatenate(*(function(rows_of(x, list(group))) for group in groups), dimension=0)
    return rows_of(results, np.argsort([i for group in groups for i in group]).tolist())


def alike(x: Any, count: int) -> Any:
    """An array as `count` equal rows."""
    return broadcast_in_dim(x, shape=(count, *x.shape), broadcast_dimensions=tuple(range(1, len(x.shape) + 1)))


FILLED: Params = {"mode": GatherScatterMode.FILL_OR_DROP, "fill_value": 0}
GROUPS = ((0, 2), (3, 1))


def grouped_samples(card: Collective, x: np.ndarray, dimension: str) -> Any:
    """Samples along one axis in two groups of two."""
    for tiled in (True, False):
        options: dict[str, Any] = {"axis_name": "i", "axis_size": 2, "tiled": tiled, dimension: 1}
        yield card.sample(x, axis_index_groups=GROUPS, **options)


def values(*shape: int) -> np.ndarray:
    """Distinct numbers, for samples."""
    count = int(np.prod(shape))
    return ((np.arange(count) * 7 % 29 - 11) / 4 + np.arange(count) / 64).astype(np.float32).reshape(shape)


def gathering_samples(card: Collective, dimension: str, x: np.ndarray, untiled: int) -> Any:
    """Samples along each dimension, tiled, and along the first `untiled` ones not tiled."""
    for tiled, count in ((True, x.ndim - 1), (False, untiled)):
        for dim in range(count):
            yield card.sample(x, axis_name="i", axis_size=4, tiled=tiled, **{dimension: dim})
    yield card.sample(x.astype(np.int32), axis_name="i", axis_size=4, tiled=True, **{dimension: 1})
    twice = np.stack([x, x * 2])
    options: dict[str, Any] = {"axis_name": "i", "axis_size": 4, "tiled": True, dimension: 0}
    yield Sample(twice, environment={"o": 2, "i": 4}, **options)


def dimension_names(rank: int) -> Sequence[str | None]:
    """A factor name for each dimension."""
    return [f"d{i}" for i in range(rank)]


def inserted(names: Sequence[str | None], dim: int) -> tuple[str | None, ...]:
    """Factor names with a dimension inserted that has none."""
    return (*names[:dim], None, *names[dim:])


def merge_dims(x: Any, dim: int) -> Any:
    """Dimensions `dim` and `dim + 1` merged into one."""
    shape = x.shape
    return reshape(x, new_sizes=(*shape[:dim], shape[dim] * shape[dim + 1], *shape[dim + 2 :]), dimensions=None)


def split_dim(x: Any, dim: int, count: int) -> Any:
    """Dimension `dim` split into two, the first of size `count`."""
    shape = x.shape
    return reshape(x, new_sizes=(*shape[:dim], count, shape[dim] // count, *shape[dim + 1 :]), dimensions=None)


# -- groups: operands of all members ---------------------------------------------------------------------------------


def tree_combined(combine: Any, members: Sequence[Any]) -> Any:
    """A balanced tree over the members: the order depends on their number alone, and halves of it are orders of halves
    of the members."""
    if len(members) == 1:
        return members[0]
    half = 1 << ((len(members) - 1).bit_length() - 1)
    return combine(tree_combined(combine, members[:half]), tree_combined(combine, members[half:]))


def tree_sum(members: Sequence[Any]) -> Any:
    """The sum of arrays, rounded once where their dtype has few bits."""
    dtype = members[0].dtype
    if dtypes.kind(dtype) != "f" or dtype.itemsize >= 4:
        return tree_combined(add, members)
    wide = [convert_element_type(x, new_dtype=np.dtype(np.float32), weak_type=False) for x in members]
    return convert_element_type(tree_combined(add, wide), new_dtype=dtype, weak_type=False)


def stacked(members: Sequence[Any]) -> Any:
    """Arrays along a new first dimension."""
    return concatenate(*(with_unit(x, 0) for x in members), dimension=0)


def unstacked(x: Any) -> list[Any]:
    """The arrays along the first dimension."""
    return [without_unit(part, 0) for part in own_slices(x, 0, x.shape[0])]


def own_slices(x: Any, dim: int, count: int) -> list[Any]:
    """The parts of a dimension, one for each member."""
    size = x.shape[dim] // count
    slices = []
    for i in range(count):
        starts = tuple(i * size if d == dim else 0 for d in range(len(x.shape)))
        limits = tuple((i + 1) * size if d == dim else n for d, n in enumerate(x.shape))
        slices.append(slice_primitive(x, start_indices=starts, limit_indices=limits, strides=None))
    return slices


def with_unit(x: Any, dim: int) -> Any:
    """An array with one more dimension, of size 1."""
    return reshape(x, new_sizes=(*x.shape[:dim], 1, *x.shape[dim:]), dimensions=None)


def without_unit(x: Any, dim: int) -> Any:
    """An array without a dimension of size 1."""
    return reshape(x, new_sizes=(*x.shape[:dim], *x.shape[dim + 1 :]), dimensions=None)


def zeros_like(x: Any) -> Any:
    """Zeros of an array's type."""
    return broadcast_in_dim(np.zeros((), dtypes.storage(x.dtype)), shape=x.shape, broadcast_dimensions=())
