"""Kinds of primitives that passes recognise by `isinstance` in folders below the one that defines the operations."""

from __future__ import annotations

from typing import Any

from weft.ir.primitive import Params, Primitive
from weft.sharding.shardings import Sharding
from weft.sharding.spec import PartitionSpec


class Select(Primitive):
    """The first operand selects which of the others each element comes from (select_n)."""


class Constant(Primitive):
    """Operation without operands whose value its parameters determine, once sizes are known (size)."""

    def literal(self, params: Params) -> Any:
        """Return the value, or None as long as it depends on a symbolic size."""
        raise NotImplementedError


class ManualCast(Primitive):
    """Changes only the state of the type along its parameter `axes`, manual axes of a `shard_map` (pvary)."""


class Resharding(Primitive):
    """Sets the sharding of its operand to its parameter `sharding`, and computes nothing (sharding_constraint,
    reshard)."""

    def destination(self, params: Params) -> Sharding | None:
        sharding: Sharding | None = params["sharding"]
        return sharding

    def user_spec(self, params: Params) -> PartitionSpec | None:
        """Return the spec that the user set for the result, or None if it is left to the compiler."""
        raise NotImplementedError
