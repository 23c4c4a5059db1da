"""Sharding of a value over a mesh: as a constraint for the compiler, or in its type."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from weft.base.errors import AxisSpecError, ShardingTypeError
from weft.ir.context import EVALUATION, context
from weft.ir.kinds import Resharding
from weft.ir.parts import Parts
from weft.ir.primitive import Axis, Params, Sample, primitive
from weft.ir.types import ArrayType, get_aval
from weft.ir.varying import cast_to_state
from weft.primitives.movement.shape import ramp
from weft.sharding.factors import AxisFactors, elementwise
from weft.sharding.shardings import NamedSharding, Sharding, as_auto_sharding, type_sharding
from weft.sharding.spec import UNCONSTRAINED, PartitionSpec, entry_axes, split_axes


@primitive
class sharding_constraint(Resharding):
    """Operand with a constraint: where a program is partitioned it is split by `sharding`; on one device it is
    unchanged."""

    linear = (0,)
    copies = "all"
    introduces = ()
    keeps_nan = "all"
    weight = 0
    partitions = True

    def type(self, x: ArrayType, *, sharding: Any) -> ArrayType:
        check_split(x, sharding)
        return x

    def eval(self, x: Any, *, sharding: Any) -> Any:
        return x

    def definition(self, x: Any, *, sharding: Any) -> Any:
        return x

    def user_spec(self, params: Params) -> PartitionSpec | None:
        sharding = params["sharding"]
        return sharding.spec if isinstance(sharding, NamedSharding) else None

    def factors(self, x: ArrayType, **params: Any) -> AxisFactors:
        return elementwise([x.ndim])

    def bind_local(self, parts: Parts, args: Sequence[Any], params: Params) -> Sequence[Any]:
        return args  # parts are as they are

    def batch(self, axis: Axis, args: Any, dims: Any, *, sharding: Any) -> tuple[Any, int]:
        (x,), (dim,) = args, dims
        entry = axis.spmd or UNCONSTRAINED
        if isinstance(sharding, NamedSharding) and set(axis.spmd).intersection(split_axes(sharding.spec.partitions)):
            raise AxisSpecError(
                "vmap: spmd_axis_name must not name an axis that splits another dimension of a constraint.",
                received=f"spmd_axis_name={axis.spmd!r}, and a constraint to {sharding.spec!r}",
                fix="another axis, in either of them",
            )
        return sharding_constraint(x, sharding=with_entry(sharding, dim, entry)), dim

    def transpose(self, cotangent: Any, x: Any, *, sharding: Any) -> Sequence[Any]:
        return [sharding_constraint(cotangent, sharding=sharding)]

    def samples(self) -> Any:
        yield Sample(ramp(2, 3), sharding=None)


@primitive
class reshard(Resharding):
    """Operand with the sharding `sharding` in its type, split over Explicit axes by the necessary communication.
    `source` is the sharding of its type before. None, of either, leaves the sharding to the compiler."""

    linear = (0,)
    copies = "all"
    introduces = ()
    keeps_nan = "all"
    weight = 0
    partitions = True
    types_placement = True

    def type(self, x: ArrayType, *, sharding: Any, source: Any) -> ArrayType:
        check_split(x, sharding)
        return x.with_placement(sharding=type_sharding(sharding, x.ndim))

    def eval(self, x: Any, *, sharding: Any, source: Any) -> Any:
        return x

    def definition(self, x: Any, *, sharding: Any, source: Any) -> Any:
        return x

    def drop_placement(self, params: Params) -> Params:
        """Convert the shardings to constraints for the compiler; the type is plain."""
        return {key: None if s is None else as_auto_sharding(s) for key, s in params.items()}

    def user_spec(self, params: Params) -> PartitionSpec | None:
        sharding = params["sharding"]
        return None if sharding is None else sharding.spec

    def factors(self, x: ArrayType, **params: Any) -> AxisFactors:
        return elementwise([x.ndim])

    def bind_local(self, parts: Parts, args: Sequence[Any], params: Params) -> Sequence[Any]:
        return args  # parts are as they are

    def batch(self, axis: Axis, args: Any, dims: Any, *, sharding: Any, source: Any) -> tuple[Any, int]:
        (x,), (dim,) = args, dims
        aval: Any = get_aval(x)
        entry = aval.spec.partitions[dim] if axis.sharding is None else axis.sharding.spec[0]
        if sharding is not None and set(entry_axes(entry)) & set(split_axes(sharding.spec.partitions)):
            raise ShardingTypeError(
                f"A mesh axis must split only one dimension; {entry!r} splits the mapped dimension and another one.",
                received=f"{sharding.spec!r} for {aval.short()}",
                fix=f"leave {entry!r} out of the spec",
            )
        return reshard(x, sharding=with_entry(sharding, dim, entry), source=with_entry(source, dim, entry)), dim

    def transpose(self, cotangent: Any, x: Any, *, sharding: Any, source: Any) -> Sequence[Any]:
        return [reshard(cotangent, sharding=cotangent_sharding(source), source=cotangent_sharding(sharding))]

    def samples(self) -> Any:
        yield Sample(ramp(2, 3), sharding=None, source=None)


def check_split(x: ArrayType, sharding: Any) -> None:
    """Raise unless a value can be split by a sharding in its type: evenly, over Explicit axes."""
    if isinstance(sharding, Sharding):
        sharding.check_compatible_aval(x.shape)
        typed = type_sharding(sharding, x.ndim)
        if typed is not None and all(isinstance(d, int) for d in x.shape):
            typed.check_even(x.shape)


def with_entry(sharding: Any, dim: int, entry: Any) -> Any:
    """Insert a dimension at `dim` into a sharding, split by `entry` unless its axes split another dimension."""
    if not isinstance(sharding, NamedSharding):
        return sharding
    spec = sharding.spec
    taken = {a for e in spec.partitions for a in entry_axes(e)}
    if taken & set(entry_axes(entry)):
        entry = None
    entries = [*spec.partitions, *[None] * (dim - len(spec))]
    return sharding.update(spec=spec.update(partitions=(*entries[:dim], entry, *entries[dim:])))


def cotangent_sharding(sharding: NamedSharding | None) -> NamedSharding | None:
    """Return the sharding of the cotangent of a value."""
    return None if sharding is None else sharding.update(spec=sharding.spec.to_ct_spec())


def drop_sharding(x: Any) -> Any:
    """Remove the sharding from the type of a value; the compiler chooses one."""
    aval = get_aval(x)
    sharding = getattr(aval, "explicit_sharding", None)
    return x if sharding is None else reshard(x, sharding=None, source=sharding)


def split_as(x: Any, aval: Any) -> Any:
    """Reshard a value to the sharding of a type, or remove its sharding if the type has none. Outside of programs there
    is no compiler to choose one, so it is replicated."""
    now, wanted = (getattr(t, "explicit_sharding", None) for t in (get_aval(x), aval))
    if now == wanted:
        return x
    if now is not None and wanted is None and context.trace is EVALUATION:
        wanted = NamedSharding(now.mesh, PartitionSpec(*[None] * len(aval.shape)))
    return drop_sharding(x) if wanted is None else reshard(x, sharding=wanted, source=now)


def cast_to_type(x: Any, aval: Any) -> Any:
    """Convert a derivative to the placement of a type: zeros and ones have no sharding and are the same on all
    devices."""
    return x if aval.is_plain and get_aval(x).is_plain else split_as(cast_to_state(x, aval), aval)
