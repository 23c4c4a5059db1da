"""Open every plain call."""

from __future__ import annotations

from typing import Any

from weft.compiler.rewrite import everywhere
from weft.ir.inline import inlined
from weft.ir.jaxpr import Jaxpr
from weft.ops.call import jit
from weft.ops.custom import custom_jvp_call, custom_vjp_call
from weft.ops.lanes import lanes
from weft.ops.remat import checkpoint

# Calls that differ from the program they call only under differentiation, and where that program stands.
CALLS: dict[Any, str] = {
    jit: "jaxpr",
    checkpoint: "jaxpr",
    lanes: "jaxpr",
    custom_jvp_call: "call_jaxpr",
    custom_vjp_call: "call_jaxpr",
}


@everywhere
def inline(jaxpr: Jaxpr) -> Jaxpr:
    """Put the equations of called programs in the place of the calls. Needs: a traced program. Makes: no calls."""
    return inlined(jaxpr, CALLS)
