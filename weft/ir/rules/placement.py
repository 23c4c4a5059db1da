"""Rules for sharding, manual mesh axes and devices."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from weft.ir.missing_rule import MissingRule
from weft.ir.rules.bindable import Bindable, Operands, Params, positions
from weft.ir.types import Type
from weft.sharding.device import Device
from weft.sharding.factors import AxisFactors
from weft.sharding.infer import Operation, result_specs
from weft.sharding.manual import ManualAxisType
from weft.sharding.shardings import Sharding
from weft.sharding.spec import PartitionSpec

if TYPE_CHECKING:
    from weft.ir.parts import Parts


class Placement(Bindable):
    """Sharding of an operation over a mesh. `factors` alone suffices for most operations."""

    if TYPE_CHECKING:
        linear: ClassVar[Operands]

    # `type` receives the operands' types with their placements (sharding, manual axes, memory) and returns those of the
    # results. Operations with sub-jaxprs need it; for all others placements follow from `factors`.
    types_placement: ClassVar[bool] = False
    # Carries information for partitioning over meshes (a sharding, a mesh); passes keep it until partitioning has run.
    partitions: ClassVar[bool] = False
    # Each result is the operand at its position, so it may be split in any way, whatever the others are.
    separate: ClassVar[bool] = False

    def factors(self, *types: Type, **params: Any) -> AxisFactors | None:
        """Return the correspondence between operand and result dimensions; None if no dimension can be split."""
        return None

    def explicit_factors(self, *types: Type, **params: Any) -> AxisFactors | None:
        """Return the factors along which Explicit shardings propagate to result types.

        A result is split in the dimensions that correspond to split dimensions of operands, whatever communication that
        takes. By default these are the factors that need none besides sums.
        """
        if isinstance(self.factors, MissingRule):
            return None
        found = self.factors(*types, **params)
        return None if found is None else found.without(found.inside)

    def explicit_specs(
        self, operation: Operation, types: Sequence[Any], results: Sequence[Any], params: Params
    ) -> list[PartitionSpec]:
        """Return the specs of results over Explicit mesh axes, from those of the operands."""
        rule: Any = self.factors
        reason = rule.reason if isinstance(rule, MissingRule) else "it has no `factors` rule"
        return result_specs(operation, self.explicit_factors(*types, **params), reason, [t.shape for t in results])

    def linear_operands(self, types: Sequence[Any], params: Params) -> Sequence[int]:
        """Return the indices of operands in which the operation is linear for these types, so that pending sums of them
        may be reduced after it."""
        return positions(self.linear, len(types))

    def named_axes(self, params: Params) -> tuple[Any, ...]:
        """Return the named axes that the operation communicates over."""
        return ()

    def manual(self, state: ManualAxisType, params: Params) -> ManualAxisType:
        """Return the results' state along manual axes, given `state`, the join of the operands' states."""
        return state

    def varies(self, axes: frozenset[Any], params: Params) -> frozenset[Any]:
        """Return the mesh axes along which results may differ between devices if operands differ along `axes`."""
        return axes

    def localize(self, params: Params, local_results: Sequence[Type]) -> Params:
        """Return the parameters for one shard, whose results have the types `local_results`."""
        return params

    def bind_local(self, parts: Parts, args: Sequence[Any], params: Params) -> Sequence[Any]:
        """Bind the operation on one device's shards of the operands; `parts` describes how they are split."""
        out = self(*args, **self.localize(params, parts.results))
        return out if self.multiple_results else [out]

    def drop_placement(self, params: Params) -> Params:
        """Return the parameters without the parts that describe placement, for jaxprs with plain types."""
        return params

    def destination(self, params: Params) -> Device | Sharding | None:
        """Return the device or sharding of the result if it is independent of the operands' (device_put), else None."""
        return None
