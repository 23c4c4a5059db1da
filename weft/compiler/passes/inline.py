"""Open every plain call."""

from __future__ import annotations

from weft.compiler.rewrite import everywhere
from weft.ir.inline import inlined
from weft.ir.jaxpr import Jaxpr


@everywhere
def inline(jaxpr: Jaxpr) -> Jaxpr:
    """Put the equations of called programs in the place of the calls. Needs: a traced program. Makes: no calls."""
    return inlined(jaxpr)
