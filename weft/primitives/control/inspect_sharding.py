"""Inspection of the sharding that a program gives to a value."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from weft.ir.jaxpr import Equation, Jaxpr
from weft.ir.primitive import Axis, Params, Primitive, primitive
from weft.ir.types import Type
from weft.primitives.control.callback import Effect
from weft.sharding.factors import AxisFactors

INSPECTION = Effect("Inspection")


@primitive
class inspect_sharding(Primitive):
    """Calls `callback` with the sharding of the operand when a program is compiled; at run time nothing happens."""

    multiple_results = True
    partitions = True

    def type(self, x: Type, *, callback: Any) -> list[Type]:
        return []

    def effects(self, types: Sequence[Type], params: Params) -> frozenset[Any]:
        return frozenset([INSPECTION])

    def eval(self, x: Any, *, callback: Any) -> list[Any]:
        return []

    def factors(self, x: Any, *, callback: Any) -> AxisFactors | None:
        return AxisFactors((tuple(f"d{i}" for i in range(x.ndim)),), ())

    def jvp(self, tangents: Any, out: Any, *args: Any, **params: Any) -> list[Any]:
        return []

    def batch(self, axis: Axis, args: Any, dims: Any, *, callback: Any) -> tuple[Any, Any]:
        """Inspect the sharding of the whole batch, which has one dimension more."""
        return inspect_sharding(*args, callback=callback), []

    def samples(self) -> Any:
        return iter(())  # carries a Python function


def run_inspections(jaxpr: Jaxpr, sharding: Any) -> Jaxpr:
    """Remove the inspections from a jaxpr, calling each with `sharding`: that of all values of a program for one
    device."""
    if INSPECTION not in jaxpr.effects:
        return jaxpr
    equations: list[Equation] = []
    for e in jaxpr.eqns:
        if e.primitive is inspect_sharding:
            e.params["callback"](sharding)
            continue
        if INSPECTION in e.effects:
            params = {key: _inside(value, sharding) for key, value in e.params.items()}
            e = e.replace(params=params, effects=e.effects - {INSPECTION})
        equations.append(e)
    return jaxpr.replace(eqns=equations)


def _inside(value: Any, sharding: Any) -> Any:
    if isinstance(value, Jaxpr):
        return run_inspections(value, sharding)
    if type(value) in (tuple, list):
        return type(value)(_inside(item, sharding) for item in value)
    return value
