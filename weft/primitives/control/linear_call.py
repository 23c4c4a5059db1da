"""`linear_call`: a call of a function that is linear in some arguments, with a transpose of the user's."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from weft.ir.jaxpr import Jaxpr
from weft.ir.primitive import Axis, Params, primitive
from weft.ir.rules.differentiation import RematSplit, Split
from weft.ir.tangents import accumulate, instantiate
from weft.ir.types import Type
from weft.ir.zeros import Linear, Zero
from weft.primitives.control.call import Call, jit
from weft.primitives.movement.shape import move_batch_to_front

CALL: Any = jit  # the primitive, not its class


class Later:
    """Jaxpr that is staged at its first use."""

    def __init__(self, make: Callable[[], Jaxpr]):
        self._make = make
        self._jaxpr: Jaxpr | None = None

    def __call__(self) -> Jaxpr:
        if self._jaxpr is None:
            self._jaxpr = self._make()
        return self._jaxpr

    def __repr__(self) -> str:
        return "transpose"


@primitive
class linear_call(Call):
    """Call of `jaxpr`, linear in all arguments after the first `num_held`; `transposed` maps the held arguments and
    the cotangents of all results to the cotangents of the others."""

    def jvp_through(
        self,
        through: Any,
        primals: Sequence[Any],
        tangents: Sequence[Any],
        *,
        jaxpr: Jaxpr,
        num_held: int,
        **params: Any,
    ) -> Any:
        outs = self(*primals, jaxpr=jaxpr, num_held=num_held, **params)
        changes: list[Any] = [Zero.of(t) for t in jaxpr.out_avals]
        held, linear = tangents[:num_held], tangents[num_held:]
        if any(type(t) is not Zero for t in linear):
            own = map(instantiate, linear)
            changes = self(*primals[:num_held], *own, jaxpr=jaxpr, num_held=num_held, **params)
        if any(type(t) is not Zero for t in held):
            rest = [*held, *(Zero(t.aval) if type(t) is Zero else Zero.of(t.aval) for t in linear)]
            _, further = CALL.jvp_through(through, primals, rest, jaxpr=jaxpr, name=jaxpr.name)
            changes = [accumulate(a, b) for a, b in zip(changes, further, strict=True)]
        return outs, changes

    def batch_through(
        self,
        through: Any,
        axis: Axis,
        args: Sequence[Any],
        dims: Sequence[int | None],
        *,
        jaxpr: Jaxpr,
        transposed: Later,
        num_held: int,
        **params: Any,
    ) -> Any:
        flags = [i >= num_held or d is not None for i, d in enumerate(dims)]
        operands = [move_batch_to_front(a, d, axis) if f else a for a, d, f in zip(args, dims, flags, strict=True)]
        batched, _ = through(jaxpr, axis, flags, True)

        def make() -> Jaxpr:
            back = transposed()
            held = flags[:num_held]
            result: Jaxpr = through(back, axis, [*held, *[True] * (len(back.invars) - num_held)], True)[0]
            return result

        results = self(*operands, jaxpr=batched, transposed=Later(make), num_held=num_held, **params)
        return results, [0] * len(results)

    def partial_eval(self, unknown: Sequence[bool], types: Sequence[Type], params: Params) -> Split | None:
        return None

    def transpose_through(
        self,
        through: Any,
        cotangents: Sequence[Any],
        args: Sequence[Any],
        *,
        jaxpr: Jaxpr,
        transposed: Later,
        num_held: int,
        **params: Any,
    ) -> Any:
        incoming = map(instantiate, cotangents)
        held = args[:num_held]
        results = self(
            *held, *incoming, jaxpr=transposed(), transposed=Later(lambda: jaxpr), num_held=num_held, **params
        )
        linear = zip(results, args[num_held:], strict=True)
        return [*[None] * num_held, *(ct if type(a) is Linear else None for ct, a in linear)]

    def remat_split(self, types: Sequence[Type], params: Params, saveable: Any) -> RematSplit | None:
        return None

    def live_operands(self, live_results: Sequence[bool], params: Params) -> Any:
        return None  # its transpose takes the cotangents of all results
