"""Base of all collectives: communication between the elements of a `vmap`, and between the devices of a mesh.

Besides the usual rules each has `batch_collective`: its meaning when the named axis is the batch dimension of the
operand.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np

from weft.base.errors import ShardingTypeError
from weft.ir.fusing import COMMUNICATES, Machine, Properties
from weft.ir.primitive import Axis, No, Params, Primitive, Sample
from weft.primitives.collectives.members import stack_members, unstack_members
from weft.primitives.movement.shape import move_axis
from weft.sharding.manual import ManualAxisType

Names = tuple[Any, ...]
Groups = tuple[tuple[int, ...], ...] | None  # positions along an axis that communicate with each other; None: all


ALONE = "it communicates over a named axis, which exists only inside vmap, pmap or shard_map"


class Collective(Primitive):
    """Operation that communicates over the axes in `axes` or `axis_name`; it cannot be evaluated alone."""

    eval = No(ALONE)
    # The operand may be unreduced along the axes: what each device has is a term.
    sums: ClassVar[bool] = False
    # All elements along the axes, or of a group of them, get the same.
    same_for_all: ClassVar[bool] = False

    def named_axes(self, params: Params) -> Names:
        return params["axes"] if "axes" in params else (params["axis_name"],)

    def manual(self, state: ManualAxisType, params: Params) -> ManualAxisType:
        """Return the state of results that vary along the axes; operations with other results override this. Along an
        axis that the state does not name, such as one of a vmap, results have no state either."""
        axes = frozenset(self.named_axes(params)) & state.vur
        self.check_terms(state, axes)
        return ManualAxisType(
            varying=state.varying | axes, unreduced=state.unreduced - axes, reduced=state.reduced - axes
        )

    def check_terms(self, state: ManualAxisType, axes: frozenset[Any]) -> None:
        """Raise if an operand is unreduced along the axes, unless the operation is a sum."""
        if not self.sums and state.unreduced & axes:
            axis = min(state.unreduced & axes, key=str)
            raise ShardingTypeError(
                f"The operand of `{self.name}` over {axis!r} must not be unreduced along it.",
                fix=f"lax.psum(x, {axis!r}) first",
            )

    def varies(self, axes: frozenset[Any], params: Params) -> frozenset[Any]:
        named = self.named_axes(params)
        alike = self.same_for_all and params.get("axis_index_groups") is None
        return axes.difference(named) if alike else axes.union(named)

    def fusion(self, equation: Any, target: Machine) -> Properties:
        return COMMUNICATES

    def group_results(self, operands: Sequence[Sequence[Any]], **params: Any) -> Sequence[Sequence[Any]]:
        """Compute the collective for all devices along its axes. `operands` has, for each operand, the arrays of all
        members in the order of the axes; the results have the same form."""
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
        """Compute the collective for devices that all communicate with each other. By default this is
        `batch_collective` on the members' operands as a batch."""
        (axis_name,) = self.named_axes(params)
        count = len(operands[0])
        axis = Axis(count, axis_name)
        batched = [stack_members(members) for members in operands]
        out, dims = self.batch_collective(axis, batched, [0] * len(batched), **params)  # type: ignore[attr-defined]
        outs, dims = (out, dims) if self.multiple_results else ([out], [dims])
        return [
            [x] * count if dim is None else unstack_members(move_axis(x, dim, 0))
            for x, dim in zip(outs, dims, strict=True)
        ]

    def sample(self, *args: Any, **options: Any) -> Sample:
        """Create a sample along one named axis `i` of size 4."""
        return Sample(*args, environment={"i": 4}, **options)


def dimension_names(rank: int) -> Sequence[str | None]:
    """Return a factor name for each dimension."""
    return [f"d{i}" for i in range(rank)]


def insert_unnamed(names: Sequence[str | None], dim: int) -> tuple[str | None, ...]:
    """Insert a dimension without a factor name at `dim`."""
    return (*names[:dim], None, *names[dim:])


GROUPS = ((0, 2), (3, 1))


def values(*shape: int) -> np.ndarray:
    """Return distinct numbers, for samples."""
    count = int(np.prod(shape))
    return ((np.arange(count) * 7 % 29 - 11) / 4 + np.arange(count) / 64).astype(np.float32).reshape(shape)


def group_samples(primitive: Collective, x: np.ndarray, dimension: str) -> Any:
    """Yield samples along one axis in two groups of two."""
    for tiled in (True, False):
        options: dict[str, Any] = {"axis_name": "i", "axis_size": 2, "tiled": tiled, dimension: 1}
        yield primitive.sample(x, axis_index_groups=GROUPS, **options)


def gathering_samples(primitive: Collective, dimension: str, x: np.ndarray, untiled: int) -> Any:
    """Yield samples along each dimension, tiled, and along the first `untiled` ones not tiled."""
    for tiled, count in ((True, x.ndim - 1), (False, untiled)):
        for dim in range(count):
            yield primitive.sample(x, axis_name="i", axis_size=4, tiled=tiled, **{dimension: dim})
    yield primitive.sample(x.astype(np.int32), axis_name="i", axis_size=4, tiled=True, **{dimension: 1})
    twice = np.stack([x, x * 2])
    options: dict[str, Any] = {"axis_name": "i", "axis_size": 4, "tiled": True, dimension: 0}
    yield Sample(twice, environment={"o": 2, "i": 4}, **options)
