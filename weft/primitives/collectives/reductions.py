"""All-reduces: the sum, the maximum or the minimum over all elements."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from weft.base.errors import NotSupportedError
from weft.ir.primitive import Axis, Params, Sample, primitive
from weft.ir.types import ArrayType
from weft.ir.varying import cast_to_state
from weft.primitives.collectives.base import Collective, Groups, Names, values
from weft.primitives.collectives.members import by_group, combine_tree, repeat_rows, sum_copies, tree_sum
from weft.primitives.elementwise.arithmetic import div, max as max_, min as min_, mul
from weft.primitives.elementwise.compare import eq
from weft.primitives.elementwise.convert import convert_element_type
from weft.primitives.movement.shape import move_batch_to_front
from weft.primitives.reduction.reduce import reduce_sum
from weft.primitives.reduction.reduce_extrema import reduce_max, reduce_min
from weft.sharding.factors import AxisFactors, elementwise
from weft.sharding.manual import ManualAxisType


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
            x = move_batch_to_front(x, dim, axis)
            return by_group(x, axis_index_groups, lambda rows: repeat_rows(self.reduce_dim(rows, 0), rows.shape[0])), 0
        rest = tuple(a for a in axes if a != axis.name)
        result = self.combine_copies(x, axis.size) if dim is None else self.reduce_dim(x, dim)
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

    def combine_copies(self, x: Any, size: int) -> Any:
        """Combine `size` equal elements."""
        return x

    def combine_pair(self, x: Any, y: Any) -> Any:
        """Combine two elements."""
        raise NotSupportedError(f"{self.name} must define `combine_pair`.")

    def member_results(self, operands: Sequence[Sequence[Any]], **params: Any) -> Sequence[Sequence[Any]]:
        (members,) = operands
        return [[combine_tree(self.combine_pair, members)] * len(members)]

    def reduce_dim(self, x: Any, dim: int) -> Any:
        """Reduce along a dimension."""
        raise NotSupportedError(f"{self.name} must define `reduce_dim`.")


@primitive
class psum(AllReduce):
    """Sum over named axes."""

    linear = (0,)
    sums = True
    sampled = (np.float32, np.float16, np.int32, np.complex64)

    def combine_copies(self, x: Any, size: int) -> Any:
        return sum_copies(x, size)

    def reduce_dim(self, x: Any, dim: int) -> Any:
        return reduce_sum(x, axes=(dim,))

    def member_results(self, operands: Sequence[Sequence[Any]], **params: Any) -> Sequence[Sequence[Any]]:
        (members,) = operands
        return [[tree_sum(members)] * len(members)]

    def transpose(self, cotangent: Any, x: Any, **params: Any) -> Sequence[Any]:
        # Along axes with a state in the operand's type, the result and its cotangent are the same for all elements.
        # Along other axes each element has its own result, and all of them depend on each operand.
        if params.get("axis_index_groups") is not None:
            return [psum(cotangent, **params)]
        rest = tuple(a for a in params["axes"] if a not in x.aval.manual.vur)
        cotangent = cast_to_state(cotangent, x.aval.cotangent())
        return [psum(cotangent, axes=rest) if rest else cotangent]


class Extremum(AllReduce):
    """Largest or smallest; equal ones share the derivative."""

    def partial(self, i: int, tangent: Any, out: Any, x: Any, **params: Any) -> Any:
        mask = convert_element_type(eq(x, out), new_dtype=x.dtype, weak_type=False)
        return div(psum(mul(tangent, mask), **params), psum(mask, **params))


@primitive
class pmax(Extremum):
    """Maximum over named axes."""

    def reduce_dim(self, x: Any, dim: int) -> Any:
        return reduce_max(x, axes=(dim,))

    def combine_pair(self, x: Any, y: Any) -> Any:
        return max_(x, y)


@primitive
class pmin(Extremum):
    """Minimum over named axes."""

    def reduce_dim(self, x: Any, dim: int) -> Any:
        return reduce_min(x, axes=(dim,))

    def combine_pair(self, x: Any, y: Any) -> Any:
        return min_(x, y)
