"""From a fusion to its kernels: the emitter of each kind."""

from __future__ import annotations

from collections.abc import Callable

from weft.base.errors import InternalError
from weft.compiler.emit.emission import Emission, Fusion
from weft.compiler.emit.loop import emit_loop
from weft.compiler.emit.reduction import emit_reduction
from weft.ir.jaxpr import Jaxpr

EMITTERS: dict[str, Callable[[Fusion], Emission]] = {
    "loop": emit_loop,
    "concatenate": emit_loop,
    "transpose": emit_loop,
    "row": emit_reduction,
    "column": emit_reduction,
    "all": emit_reduction,
}


def emit(kind: str, program: Jaxpr, hero: int | None, vector_bytes: int) -> Emission:
    """The kernels of a fusion."""
    emitter = EMITTERS.get(kind)
    if emitter is None:
        raise InternalError(f"There is no emitter for fusions of kind {kind}.", stage="emit", text=str(program))
    return emitter(Fusion(program, hero, vector_bytes))
