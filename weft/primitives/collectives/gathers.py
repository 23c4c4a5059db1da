"""Gathers of the operands of all elements, and the scatter of their sum."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from weft.ir.primitive import Axis, Params, primitive
from weft.ir.types import ArrayType
from weft.ir.varying import cast_to_state
from weft.primitives.collectives.base import (
    Collective,
    Groups,
    dimension_names,
    gathering_samples,
    group_samples,
    insert_unnamed,
    values,
)
from weft.primitives.collectives.members import (
    by_group,
    merge_dims,
    own_slices,
    repeat_rows,
    split_dim,
    sum_copies,
    tree_sum,
    with_unit,
    without_unit,
)
from weft.primitives.collectives.permutations import axis_index
from weft.primitives.elementwise.arithmetic import mul
from weft.primitives.movement.concatenate import concatenate
from weft.primitives.movement.shape import move_axis, move_batch_to_front, reshape
from weft.primitives.movement.slicing import dynamic_slice
from weft.primitives.reduction.reduce import reduce_sum
from weft.sharding.factors import AxisFactors
from weft.sharding.manual import ManualAxisType

# From as many members on, operands of a reduce-scatter are added up whole, and sliced then.
MANY = 16


class Gather(Collective):
    """Operands of all elements, stacked along a new dimension (or, `tiled`, concatenated along an existing one)."""

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
        return AxisFactors((tuple(names),), (insert_unnamed(names, all_gather_dimension),))

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
        def place_rows(rows: Any) -> Any:
            rows = move_axis(rows, 0, all_gather_dimension)
            return merge_dims(rows, all_gather_dimension) if tiled else rows

        x = move_batch_to_front(args[0], dims[0], axis)
        if axis_index_groups is None:
            return place_rows(x), None
        return by_group(x, axis_index_groups, lambda rows: repeat_rows(place_rows(rows), rows.shape[0])), 0

    def member_results(self, operands: Sequence[Sequence[Any]], **params: Any) -> Sequence[Sequence[Any]]:
        (members,), dim = operands, params["all_gather_dimension"]
        if not params["tiled"]:
            members = [with_unit(x, dim) for x in members]
        return [[concatenate(*members, dimension=dim)] * len(members)]

    def samples(self) -> Any:
        yield from gathering_samples(self, "all_gather_dimension", values(4, 2, 3), untiled=3)


@primitive
class all_gather(Gather):
    """Operands of all elements, as a value of each of them."""

    def samples(self) -> Any:
        yield from super().samples()
        yield from group_samples(self, values(4, 2, 3), "all_gather_dimension")

    def transpose(self, cotangent: Any, x: Any, *, all_gather_dimension: int, **params: Any) -> Sequence[Any]:
        return [reduce_scatter(cotangent, scatter_dimension=all_gather_dimension, **params)]


class GatherAlike(Gather):
    """`all_gather` with a result whose type says that it is the same for all elements."""

    def definition(self, x: Any, **params: Any) -> Any:
        return all_gather(x, **params)


@primitive
class all_gather_invariant(GatherAlike):
    """Operands of all elements, the same for all of them; so is the cotangent of the result."""

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
        cotangent = cast_to_state(
            cotangent, cotangent.aval.with_placement(manual=state.update(varying=state.varying | {axis_name}))
        )
        sizes = list(cotangent.shape)
        sizes[all_gather_dimension] //= axis_size
        own = mul(axis_index(axis_name=axis_name, varying=True), np.int32(sizes[all_gather_dimension]))
        starts = [own if i == all_gather_dimension else np.int32(0) for i in range(len(sizes))]
        part = dynamic_slice(cotangent, *starts, slice_sizes=tuple(sizes))
        return [part if tiled else reshape(part, new_sizes=x.aval.shape, dimensions=None)]


@primitive
class all_gather_reduced(GatherAlike):
    """Operands of all elements, the same for all of them; each has a term of the cotangent, and `reduce_scatter`
    sums them."""

    def manual(self, state: ManualAxisType, params: Params) -> ManualAxisType:
        axes = frozenset((params["axis_name"],))
        self.check_terms(state, axes)
        return state.update(varying=state.varying - axes, reduced=state.reduced | (axes & state.varying))

    def transpose(self, cotangent: Any, x: Any, *, all_gather_dimension: int, **params: Any) -> Sequence[Any]:
        return [reduce_scatter(cotangent, scatter_dimension=all_gather_dimension, **params)]


@primitive
class reduce_scatter(Collective):
    """Sum over a named axis; each element gets its own slice of the sum."""

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

        def take_slice(total: Any, count: int) -> Any:
            return split_dim(total, scatter_dimension, count) if tiled else total

        if axis_index_groups is None:
            total = sum_copies(x, axis.size) if dim is None else reduce_sum(x, axes=(dim,))
            return take_slice(total, axis.size), scatter_dimension

        def of_group(rows: Any) -> Any:
            return move_axis(take_slice(reduce_sum(rows, axes=(0,)), rows.shape[0]), scatter_dimension, 0)

        return by_group(move_batch_to_front(x, dim, axis), axis_index_groups, of_group), 0

    def member_results(self, operands: Sequence[Sequence[Any]], **params: Any) -> Sequence[Sequence[Any]]:
        (members,), dim = operands, params["scatter_dimension"]
        if len(members) < MANY:
            parts = [own_slices(x, dim, len(members)) for x in members]
            sums = [tree_sum([p[i] for p in parts]) for i in range(len(members))]
        else:  # a table of the sums of slices takes time that is quadratic in their number to make
            sums = own_slices(tree_sum(members), dim, len(members))
        return [sums if params["tiled"] else [without_unit(x, dim) for x in sums]]

    def samples(self) -> Any:
        yield from gathering_samples(self, "scatter_dimension", values(4, 4, 4), untiled=2)
        yield from group_samples(self, values(4, 2, 2), "scatter_dimension")

    def transpose(self, cotangent: Any, x: Any, *, scatter_dimension: int, **params: Any) -> Sequence[Any]:
        gather = all_gather_reduced if params["axis_name"] in x.aval.manual.unreduced else all_gather
        return [gather(cotangent, all_gather_dimension=scatter_dimension, **params)]
