"""Operations that only affect which equations stay and in what order: sinks, tokens and copies."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from weft.base.errors import ArgumentTypeError
from weft.ir.primitive import Axis, Params, Primitive, Sample, primitive
from weft.ir.types import ArrayType, Type, array_type
from weft.primitives.control.callback import DEBUG, Effect, debug_callback
from weft.primitives.control.remat import optimization_barrier
from weft.primitives.elementwise.elementwise import Elementwise
from weft.primitives.families import Composite
from weft.primitives.movement.shape import broadcast_in_dim, ramp

SINK = Effect("Sink")


@primitive
class dce_sink(Primitive):
    """Uses its operands, so that dead code elimination keeps them. Compiled code omits it, unless `prevent_mlir_dce`:
    then it computes the operands too."""

    multiple_results = True

    def type(self, *types: Type, prevent_mlir_dce: bool) -> list[Type]:
        return []

    def effects(self, types: Sequence[Type], params: Params) -> frozenset[Any]:
        return frozenset((SINK, DEBUG) if params["prevent_mlir_dce"] else (SINK,))

    def eval(self, *arrays: Any, prevent_mlir_dce: bool) -> list[Any]:
        return []

    def jvp(self, tangents: Sequence[Any], out: Any, *args: Any, **params: Any) -> list[Any]:
        return []

    def batch(self, axis: Axis, args: Sequence[Any], dims: Sequence[int | None], **params: Any) -> tuple[Any, Any]:
        return self(*args, **params), []

    def definition(self, *args: Any, prevent_mlir_dce: bool) -> list[Any]:
        if prevent_mlir_dce and args:
            debug_callback(*args, callback=ignore, result_types=(), ordered=False)
        return []

    def samples(self) -> Any:
        yield Sample(ramp(3), ramp(2, 2), prevent_mlir_dce=False)


def ignore(*arrays: Any) -> list[Any]:
    """Do nothing: the callback of sinks."""
    return []


@primitive
class create_token(Composite):
    """Token: a value without elements, which only orders operations."""

    def decompose(self) -> Any:
        return broadcast_in_dim(np.zeros((), np.bool_), shape=(0,), broadcast_dimensions=())

    def samples(self) -> Any:
        yield Sample(differentiable=False)


@primitive
class after_all(Composite):
    """Token that follows others."""

    def type(self, *types: ArrayType) -> ArrayType:
        for i, aval in enumerate(types):
            if aval.dtype != np.bool_ or aval.shape != (0,):
                raise ArgumentTypeError(
                    "Operands of after_all must be tokens.",
                    received=f"{aval.short()} at position {i}",
                    fix="lax.create_token()",
                )
        return array_type((0,), np.dtype(np.bool_))

    def decompose(self, *tokens: Any) -> Any:
        return optimization_barrier(*tokens)[0] if tokens else create_token()

    def samples(self) -> Any:
        yield Sample(np.zeros(0, np.bool_), np.zeros(0, np.bool_), differentiable=False)


class Identity(Elementwise):
    """Operand unchanged."""

    kinds = "biufck"
    linear = (0,)
    identity = True
    weight = 0

    def eval(self, x: Any) -> Any:
        return x

    def transpose(self, cotangent: Any, x: Any) -> Sequence[Any]:
        return [cotangent]

    def emit(self, builder: Any, x: Any) -> Any:
        return x

    def samples(self) -> Any:
        yield Sample(ramp(3))


@primitive
class copy(Identity):
    """Operand unchanged, in memory of its own as far as a program can tell."""


@primitive
class stage(Identity):
    """Value as one of the function that is being traced."""
