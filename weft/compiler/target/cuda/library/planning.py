"""From an equation, or a fusion of the kind "library", to the call that computes it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from weft.base.errors import InternalError, NotSupportedError
from weft.compiler.fuse.fusion import fusion
from weft.compiler.target.cuda.library.composites import Composite
from weft.compiler.target.cuda.library.matmuls import plan_matmul
from weft.compiler.target.library_call import LibraryCall
from weft.ir.jaxpr import Equation
from weft.primitives.contraction.contract import dot_general

PLANS: dict[Any, Callable[[Equation], LibraryCall]] = {dot_general: plan_matmul}


def plan(equation: Equation) -> LibraryCall:
    """The call that computes an equation. Operands and results are dense arrays, stored by rows."""
    card = equation.primitive
    if card is fusion:
        routine: Composite = equation.params["routine"]
        return routine.plan(equation)
    if card.higher_order:
        raise InternalError(f"{card.name} carries programs: no library can call them.", stage="library")
    found = PLANS.get(card)
    if found is None:
        raise NotSupportedError(f"{card.name} has no code for GPUs yet.", fix="compute it on a CPU device")
    return found(equation)
