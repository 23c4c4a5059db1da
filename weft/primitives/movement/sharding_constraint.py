"""Saying how a value is split over a mesh."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from weft.ir.primitive import Axis, Params, Primitive, Sample, primitive
from weft.ir.types import ArrayType
from weft.primitives.movement.shape import ramp
from weft.sharding.factors import AxisFactors, elementwise
from weft.sharding.shardings import NamedSharding
from weft.sharding.spec import PartitionSpec


@primitive
class sharding_constraint(Primitive):
    """The operand, split as `sharding` says where a program is partitioned; on one device the operand as it is."""

    linear = (0,)
    copies = "all"
    introduces = ()
    keeps_nan = "all"
    weight = 0
    partitions = True

    def type(self, x: ArrayType, *, sharding: Any) -> ArrayType:
        return x

    def eval(self, x: Any, *, sharding: Any) -> Any:
        return x

    def definition(self, x: Any, *, sharding: Any) -> Any:
        return x

    def fixed_spec(self, params: Params) -> PartitionSpec | None:
        sharding = params["sharding"]
        return sharding.spec if isinstance(sharding, NamedSharding) else None

    def factors(self, x: ArrayType, **params: Any) -> AxisFactors:
        return elementwise([x.ndim])

    def batch(self, axis: Axis, args: Any, dims: Any, *, sharding: Any) -> tuple[Any, int]:
        (x,), (dim,) = args, dims
        if isinstance(sharding, NamedSharding):
            entries = list(sharding.spec.partitions)
            entries += [None] * (dim - len(entries))
            named = axis.name if axis.name in sharding.mesh.axis_names else None
            sharding = sharding.update(spec=sharding.spec.update(partitions=(*entries[:dim], named, *entries[dim:])))
        return sharding_constraint(x, sharding=sharding), dim

    def transpose(self, cotangent: Any, x: Any, *, sharding: Any) -> Sequence[Any]:
        return [sharding_constraint(cotangent, sharding=sharding)]

    def samples(self) -> Any:
        yield Sample(ramp(2, 3), sharding=None)
