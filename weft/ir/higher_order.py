"""Primitives with sub-jaxprs: calls, branches and loops."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from weft.base.errors import JaxprTypeError, ShardingTypeError
from weft.ir.batching import Axis
from weft.ir.body_map import BodyMap
from weft.ir.keys import KeysThrough
from weft.ir.missing_rule import missing
from weft.ir.primitive import Params, Primitive
from weft.ir.types import Type
from weft.sharding.manual import ManualAxisType

NO_AXES: frozenset[Any] = frozenset()


class HigherOrder(Primitive):
    """Primitive with sub-jaxprs. Its rules receive the calling transformation as `through` and apply it to the
    sub-jaxprs, so `primitives` never imports `transforms`."""

    multiple_results = True
    higher_order = True
    types_placement = True
    # Only one of the jaxprs runs.
    exclusive: ClassVar[bool] = False
    # Taylor mode differentiates the jaxpr that `as_call` returns.
    taylor_inside: ClassVar[bool] = False
    # An eager call is compiled as one program instead of being run operation by operation.
    staged_alone: ClassVar[bool] = False

    def operand_states(self, types: Sequence[Type], params: Params) -> Sequence[ManualAxisType]:
        """Return the state along manual axes that each operand must have: that of the body argument it is passed to."""
        raise missing(f"`{self.name}` needs an `operand_states` rule to be used inside of shard_map.")

    def bound_axes(self, params: Params) -> frozenset[Any]:
        """Return the named axes that the operation brings into scope for its sub-jaxprs."""
        return NO_AXES

    def iterations(self, params: Params) -> Any:
        """Return how often the sub-jaxprs run, an integer or a dimension; 1 if it is not known."""
        return 1

    def body_map(self, params: Params) -> BodyMap:
        """Return how arguments and results of the sub-jaxprs correspond to operands and results."""
        raise missing(f"`{self.name}` must have a `body_map` rule, which maps its operands to its sub-jaxprs.")

    def with_bodies(self, bodies: Sequence[Any], params: Params) -> Params:
        """Return the parameters with other sub-jaxprs, given in the order of `body_map`."""
        return {**params, "jaxpr": bodies[0]}

    def chosen(self, index: int, params: Params) -> Any:
        """Return the sub-jaxpr that runs if the first operand is `index`, for `exclusive` operations."""
        raise missing(f"`{self.name}` does not choose between sub-jaxprs, so it has no `chosen` rule.")

    def as_call(self, operands: Sequence[Any], params: Params) -> tuple[Any, Sequence[Any]]:
        """Return the jaxpr and the operands of the call that this operation is equivalent to, if it is a plain call."""
        raise missing(f"`{self.name}` is not a plain call of a jaxpr, so it has no `as_call` rule.")

    def keys_through(self, through: KeysThrough, operands: Sequence[Any], params: Params) -> Sequence[Any] | None:
        return None if self.opens is None else through(params[self.opens], operands)

    def jvp_through(
        self, through: Any, primals: Sequence[Any], tangents: Sequence[Any], **params: Any
    ) -> tuple[list[Any], list[Any]]:
        """Return the results and their tangents; `through(jaxpr, nonzero, instantiate)` is the jvp of a sub-jaxpr."""
        raise missing(f"`{self.name}` has no jvp rule.")

    def transpose_through(
        self, through: Any, cotangents: Sequence[Any], args: Sequence[Any], **params: Any
    ) -> Sequence[Any]:
        """Return the cotangents of `Linear` operands; `through(jaxpr, linear, nonzero_cotangents)` transposes a
        sub-jaxpr."""
        raise missing(f"`{self.name}` has no transpose rule.")

    def batch_through(
        self, through: Any, axis: Axis, args: Sequence[Any], dims: Sequence[int | None], **params: Any
    ) -> tuple[list[Any], list[int | None]]:
        """Return the results and their batch dimensions; `through(jaxpr, axis, batched, instantiate)` batches a
        sub-jaxpr along dimension 0."""
        raise missing(f"`{self.name}` has no batch rule.")


class ControlFlow(HigherOrder):
    """Branch or a loop: runs its sub-jaxprs and does nothing else."""


class Loop(ControlFlow):
    """Control flow that runs its sub-jaxprs repeatedly."""


def check_operands(name: str, types: Sequence[Type], expected: Sequence[Type]) -> None:
    """Raise unless the operand types of an equation match the argument types of its sub-jaxpr, up to weak types."""
    if len(types) != len(expected):
        raise JaxprTypeError(f"`{name}` carries a program of {len(expected)} arguments, but got {len(types)} operands.")
    for i, (aval, wanted) in enumerate(zip(types, expected, strict=True)):
        if aval is not wanted and not wanted.accepts(aval):
            if aval.plain.matches(wanted.plain):
                raise ShardingTypeError(
                    f"`{name}`: operand {i} must have the placement of the argument it is passed for.",
                    received=f"{aval.short()} for {wanted.short()}",
                    fix="split operands as the body, which is traced for one element of a vmap, takes them",
                )
            raise JaxprTypeError(
                f"`{name}`: operand {i} must have the type of the argument it is passed for.",
                received=f"{aval.short()} for {wanted.short()}",
            )
