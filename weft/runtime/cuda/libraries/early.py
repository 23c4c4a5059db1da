"""Library calls that are prepared before a program is complete: cuDNN compiles attention for half a second."""

from __future__ import annotations

from functools import partial
from typing import Any

from weft.compiler.fuse.fusion import fusions
from weft.compiler.program.ir import ALIGNMENT
from weft.compiler.target.cuda.library.composites import LibraryComposite
from weft.compiler.target.threads import in_background
from weft.ir.jaxpr import Jaxpr


def prepare_early(driver: Any, fused: Jaxpr) -> None:
    """Start preparing the slow calls of a fused program in threads, while others compile kernels.

    Arrays are assumed to have the usual alignment; a call is prepared again if they do not.
    """
    slow: dict[Any, None] = {}
    for equation in fusions(fused):
        composite = equation.params.get("routine")
        if isinstance(composite, LibraryComposite) and composite.slow:
            call = composite.plan(equation)
            addresses = len(equation.invars) + len(equation.outvars) + len(call.scratch)
            slow[call.routine, call.parameters, (ALIGNMENT,) * addresses] = None
    # Layers have equal calls: a thread for each would wait for the first one, and none would compile.
    for call_of_layers in slow:
        in_background(partial(driver.in_thread, partial(driver.libraries.prepare, *call_of_layers)))
