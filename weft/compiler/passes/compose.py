"""Equations that one call of a library computes together, as the target's folder knows."""

from __future__ import annotations

from weft.compiler.rewrite import everywhere
from weft.compiler.target.tables import tables_of
from weft.compiler.target.target import Target
from weft.ir.jaxpr import Jaxpr


@everywhere
def compose(jaxpr: Jaxpr, target: Target) -> Jaxpr:
    """Make fusions of the kind "library". Needs: canonical. Keeps: its form; rounds otherwise."""
    if not target.libraries.present:
        return jaxpr
    composed = tables_of(target).compose
    return jaxpr if composed is None else composed(jaxpr, target)
