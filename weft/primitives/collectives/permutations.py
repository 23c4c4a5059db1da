"""Exchanges of operands or slices between elements, and the position of an element."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from weft.ir.primitive import Axis, Params, Sample, primitive
from weft.ir.types import ArrayType, array_type
from weft.primitives.collectives.base import GROUPS, Collective, Groups, dimension_names, insert_unnamed, values
from weft.primitives.collectives.members import (
    by_group,
    gather_rows,
    own_slices,
    with_unit,
    without_unit,
    zeros_like,
)
from weft.primitives.collectives.reductions import psum
from weft.primitives.elementwise.arithmetic import mul
from weft.primitives.elementwise.compare import eq
from weft.primitives.elementwise.convert import convert_element_type
from weft.primitives.movement.concatenate import concatenate
from weft.primitives.movement.iota import iota
from weft.primitives.movement.shape import move_axis, move_batch_to_front, reshape
from weft.sharding.factors import AxisFactors, elementwise
from weft.sharding.manual import NONE, ManualAxisType


@primitive
class axis_index(Collective):
    """Position of this element along a named axis."""

    def type(self, *, axis_name: Any, varying: bool = False) -> ArrayType:
        state = ManualAxisType(varying=[axis_name]) if varying else NONE
        return array_type((), np.dtype(np.int32), manual=state)

    def drop_placement(self, params: Params) -> Params:
        return {"axis_name": params["axis_name"]}

    def batch_collective(self, axis: Axis, args: Any, dims: Any, **params: Any) -> tuple[Any, int]:
        return iota(dtype=np.dtype(np.int32), shape=(axis.size,), dimension=0), 0

    def samples(self) -> Any:
        yield self.sample(axis_name="i")
        yield Sample(environment={"i": 2, "j": 3}, axis_name="j")


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
        return AxisFactors((tuple(names),), (insert_unnamed(remaining, concat_axis),))

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
        def exchange(rows: Any) -> Any:
            rows = move_axis(rows, split_axis + 1, 0)  # (new batch, old batch, rest)
            return move_axis(rows, 1, concat_axis + 1)

        x = move_batch_to_front(args[0], dims[0], axis)
        return (exchange(x) if axis_index_groups is None else by_group(x, axis_index_groups, exchange)), 0

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
        own = gather_rows(move_axis(x, dim, 0), [source])
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
    """Send to other elements: `perm` lists (source, destination); elements that receive nothing get zeros."""

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
        x = move_batch_to_front(args[0], dims[0], axis)
        senders = [axis.size] * axis.size  # out of bounds: filled with zeros
        for source, destination in perm:
            senders[destination] = source
        return gather_rows(x, senders), 0

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
