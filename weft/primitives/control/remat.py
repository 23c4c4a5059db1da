"""Rematerialisation: a call whose intermediate values are computed again in the backward pass instead of stored."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from weft.indexing.ranges import Range
from weft.ir.flow import OperandRanges
from weft.ir.fusing import FENCED, Machine, Properties
from weft.ir.inline import inline_calls
from weft.ir.jaxpr import Equation, Jaxpr
from weft.ir.keys import KeysThrough
from weft.ir.partial_eval import partial_eval
from weft.ir.primitive import Axis, Params, Primitive, Sample, primitive
from weft.ir.rules.differentiation import Split
from weft.ir.tangents import instantiate
from weft.ir.types import ArrayType, Type
from weft.ir.zeros import Linear, Zero, is_linear
from weft.primitives.control.call import Call, forward_residuals, jit as jit_primitive, split_call
from weft.primitives.elementwise.elementwise import Elementwise
from weft.primitives.movement.shape import ramp
from weft.sharding.factors import AxisFactors

Policy = Callable[..., Any]


@primitive
class checkpoint(Call):
    """Call that stores its operands and what `policy` allows, and computes the rest again when differentiated."""

    def partial_eval(self, unknown: Sequence[bool], types: Sequence[Type], params: Params) -> Split | None:
        # Calls are inlined, so that a policy sees the operations inside.
        jaxpr, policy = inline_calls(params["jaxpr"], jit_primitive), params["policy"]

        def saveable(equation: Equation) -> bool:
            return policy is not None and bool(
                policy(equation.primitive, *(v.aval for v in equation.invars), **equation.params)
            )

        known, parts, residuals = jaxpr.memoize(
            ("remat", tuple(unknown), policy),
            lambda: forward_residuals(partial_eval(jaxpr, unknown, saveable=saveable, inside=True), unknown),
        )
        waiting = {**params, "jaxpr": parts.unknown, "differentiated": True}
        return split_call(
            (jit_primitive, {"name": "checkpoint", "jaxpr": known}), (checkpoint, waiting), parts, residuals, unknown
        )

    def transpose_through(
        self, through: Any, cotangents: Sequence[Any], args: Sequence[Any], *, jaxpr: Jaxpr, **params: Any
    ) -> Any:
        """Fence the operands of the backward pass, so that its recomputation is not merged with the forward pass."""
        if params["prevent_cse"] and params["differentiated"]:
            held = [a for a in args if type(a) is not Linear]
            fenced = iter(optimization_barrier(*held)) if held else iter(())
            args = [a if type(a) is Linear else next(fenced) for a in args]
        return super().transpose_through(through, cotangents, args, jaxpr=jaxpr, **params)

    def keys_through(self, through: KeysThrough, operands: Sequence[Any], params: Params) -> Sequence[Any] | None:
        # The backward pass repeats the computation of the forward pass, with the same keys on purpose.
        return None if params.get("differentiated") else super().keys_through(through, operands, params)


@primitive
class optimization_barrier(Primitive):
    """Operands unchanged; no computation is moved or merged across."""

    multiple_results = True
    types_placement = True
    separate = True
    introduces = ()
    keeps_nan = "all"
    weight = 0

    def type(self, *types: Type) -> list[Type]:
        return list(types)

    def eval(self, *arrays: Any) -> list[Any]:
        return list(arrays)

    def jvp(self, tangents: Sequence[Any], out: Any, *args: Any) -> list[Any]:
        nonzero = [t for t in tangents if type(t) is not Zero]
        fenced = iter(optimization_barrier(*nonzero))
        return [t if type(t) is Zero else next(fenced) for t in tangents]

    def transpose(self, cotangents: Any, *args: Any) -> Sequence[Any]:
        fenced = optimization_barrier(*(instantiate(c) for c in cotangents))
        return [c if is_linear(a) else None for c, a in zip(fenced, args, strict=True)]

    def batch(self, axis: Axis, args: Any, dims: Any) -> tuple[Any, Any]:
        return optimization_barrier(*args), list(dims)

    def factors(self, *types: Type) -> AxisFactors:
        names = tuple(
            tuple(f"o{i}d{d}" for d in range(len(t.shape))) if isinstance(t, ArrayType) else ()
            for i, t in enumerate(types)
        )
        return AxisFactors(names, names)

    def bounds(self, operands: OperandRanges) -> Range:
        return operands.anywhere(operands.result)

    def fusion(self, equation: Any, target: Machine) -> Properties:
        return FENCED

    def samples(self) -> Any:
        yield Sample(ramp(3), ramp(2, 2))


@primitive
class checkpoint_name(Elementwise):
    """Operand unchanged, under a name that rematerialisation policies can refer to."""

    name = "name"
    kinds = "biufck"
    linear = (0,)
    identity = True
    weight = 0

    def eval(self, x: Any, *, name: str) -> Any:
        return x

    def transpose(self, cotangent: Any, x: Any, *, name: str) -> Sequence[Any]:
        return [cotangent]

    def emit(self, builder: Any, x: Any, *, name: str) -> Any:
        return x

    def samples(self) -> Any:
        yield Sample(ramp(3), name="activations")
