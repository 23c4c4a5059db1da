"""Calls besides `jit`: composites, which have a name and a version, and JAX's plain calls."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from weft.ir.jaxpr import Jaxpr
from weft.ir.primitive import Axis, Params, primitive
from weft.ir.rules.differentiation import Split
from weft.ir.types import Type
from weft.primitives.control.call import Call, jit

CALL: Any = jit  # the primitive, not its class


@primitive
class composite(Call):
    """Call of `jaxpr`, the definition of the operation `name` of a version, with `attributes`. Its derivatives and
    batches are other operations, so they are calls of `jit`."""

    def jvp_through(
        self, through: Any, primals: Sequence[Any], tangents: Sequence[Any], *, jaxpr: Jaxpr, name: str, **params: Any
    ) -> Any:
        return CALL.jvp_through(through, primals, tangents, jaxpr=jaxpr, name=name)

    def batch_through(
        self,
        through: Any,
        axis: Axis,
        args: Sequence[Any],
        dims: Sequence[int | None],
        *,
        jaxpr: Jaxpr,
        name: str,
        **params: Any,
    ) -> Any:
        return CALL.batch_through(through, axis, args, dims, jaxpr=jaxpr, name=name)

    def partial_eval(self, unknown: Sequence[bool], types: Sequence[Type], params: Params) -> Split | None:
        result: Split | None = CALL.partial_eval(unknown, types, {"jaxpr": params["jaxpr"], "name": params["name"]})
        return result

    def transpose_through(
        self, through: Any, cotangents: Sequence[Any], args: Sequence[Any], *, jaxpr: Jaxpr, name: str, **params: Any
    ) -> Any:
        return CALL.transpose_through(through, cotangents, args, jaxpr=jaxpr, name=name)

    def live_operands(self, live_results: Sequence[bool], params: Params) -> Any:
        return None  # with fewer results it would be another operation


class PlainCall(Call):
    """Call that is bound with `call_jaxpr`, as JAX's are."""

    call_primitive = True

    def bind(self, *args: Any, **params: Any) -> Any:
        """Bind with the parameter name `call_jaxpr`, as JAX does."""
        jaxpr = params.pop("call_jaxpr", None)
        return super().bind(*args, **params if jaxpr is None else {**params, "jaxpr": jaxpr})


@primitive
class core_call(PlainCall):
    """Call of a jaxpr."""


@primitive
class closed_call(PlainCall):
    """Call of a jaxpr with its constants."""
