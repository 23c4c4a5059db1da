"""Casts along the manual axes of a `shard_map`: they change the type of a value and not the value. They communicate
nothing; their transposes may."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from weft.base.errors import ShardingTypeError
from weft.ir.kinds import ManualCast
from weft.ir.primitive import Axis, Params, primitive
from weft.ir.types import ArrayType
from weft.ir.varying import cast_to_state
from weft.primitives.collectives.base import Collective, Names
from weft.primitives.collectives.reductions import psum
from weft.sharding.factors import AxisFactors, elementwise
from weft.sharding.manual import ManualAxisType


class Cast(Collective, ManualCast):
    """Cast of the state along `axes` from `before` to `after`, each one of invariant, varying, unreduced, reduced."""

    linear = (0,)
    identity = True
    types_placement = True
    weight = 0
    before: str
    after: str

    def type(self, x: ArrayType, *, axes: Names) -> ArrayType:
        own = {"varying": x.manual.varying, "unreduced": x.manual.unreduced, "reduced": x.manual.reduced}
        own["invariant"] = frozenset(axes) - x.manual.vur
        wrong = sorted(frozenset(axes) - own[self.before], key=str)
        if wrong:
            raise ShardingTypeError(
                f"The operand of `{self.name}` must be {self.before} along {wrong[0]!r}.", received=x.short()
            )
        own[self.before] = own[self.before].difference(axes)
        own[self.after] = own[self.after].union(axes)
        del own["invariant"]
        return x.with_placement(manual=ManualAxisType(**own))

    def varies(self, axes: frozenset[Any], params: Params) -> frozenset[Any]:
        return axes

    def eval(self, x: Any, *, axes: Names) -> Any:
        return x

    def factors(self, x: ArrayType, **params: Any) -> AxisFactors:
        return elementwise([x.ndim])

    def batch(self, axis: Axis, args: Any, dims: Any, *, axes: Names) -> tuple[Any, Any]:
        return self(args[0], axes=axes), dims[0]

    def batch_collective(self, axis: Axis, args: Any, dims: Any, *, axes: Names) -> tuple[Any, Any]:
        rest = tuple(a for a in axes if a != axis.name)
        return (self(args[0], axes=rest) if rest else args[0]), dims[0]

    def transpose(self, cotangent: Any, x: Any, *, axes: Names) -> Sequence[Any]:
        return [cast_to_state(cotangent, x.aval.cotangent())]

    def samples(self) -> Any:
        return iter(())  # they mean something inside of shard_map only, whose laws cover them


@primitive
class pvary(Cast):
    """Cast a value that is the same on all devices to one that may vary."""

    before, after = "invariant", "varying"

    def transpose(self, cotangent: Any, x: Any, *, axes: Names) -> Sequence[Any]:
        return [psum(cotangent, axes=axes)]


@primitive
class preduced(Cast):
    """Cast a value that is the same on all devices to one whose cotangent is unreduced."""

    before, after = "invariant", "reduced"

    def transpose(self, cotangent: Any, x: Any, *, axes: Names) -> Sequence[Any]:
        return [psum(cotangent, axes=axes)]


@primitive
class reduced_vary_cast(Cast):
    """Cast a value that is the same on all devices, with an unreduced cotangent, to one that may vary."""

    before, after = "reduced", "varying"

    def transpose(self, cotangent: Any, x: Any, *, axes: Names) -> Sequence[Any]:
        return [
            vary_unreduced_cast(
                cast_to_state(cotangent, x.aval.with_placement(manual=varying_state(x, axes))), axes=axes
            )
        ]


@primitive
class vary_unreduced_cast(Cast):
    """Cast a value that varies to an unreduced one: each device has a term of a sum."""

    before, after = "varying", "unreduced"


def varying_state(x: Any, axes: Names) -> ManualAxisType:
    """Return the state of an operand, varying along `axes` too."""
    state = x.aval.manual
    result: ManualAxisType = state.update(varying=state.varying.union(axes), reduced=state.reduced.difference(axes))
    return result
