"""Dispatch of a fusion to the emitter that its target has for its kind."""

from __future__ import annotations

from weft.base.errors import InternalError
from weft.compiler.emit.emission import Emission, Fusion
from weft.compiler.target.tables import get_tables
from weft.compiler.target.target import Target
from weft.ir.jaxpr import Jaxpr


def emit(kind: str, jaxpr: Jaxpr, hero: int | None, target: Target, schedule: int = 0) -> Emission:
    """Emit the kernels of a fusion of the given kind."""
    emitter = get_tables(target).get_emitter(kind)
    if emitter is None:
        raise InternalError(f"There is no emitter for fusions of kind {kind}.", stage="emit", text=str(jaxpr))
    emission: Emission = emitter(Fusion(jaxpr, hero, target, schedule))
    return emission
