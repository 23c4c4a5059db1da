"""Inline every plain call."""

from __future__ import annotations

from weft.compiler.rewrite import everywhere
from weft.ir.inline import inline_calls
from weft.ir.jaxpr import Jaxpr


@everywhere
def inline(jaxpr: Jaxpr) -> Jaxpr:
    """Replace calls by the equations of the called jaxprs. Needs: a traced jaxpr. Makes: no calls."""
    return inline_calls(jaxpr)
