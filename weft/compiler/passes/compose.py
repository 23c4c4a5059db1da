"""Passes that a target defines for its libraries: definitions in terms of operations that a library has, and groups of
equations that one library call computes."""

from __future__ import annotations

from weft.compiler.passes.decompose import with_definitions
from weft.compiler.rewrite import everywhere
from weft.compiler.target.tables import get_tables
from weft.compiler.target.target import Target
from weft.ir.jaxpr import Jaxpr


@everywhere
def define(jaxpr: Jaxpr, target: Target) -> Jaxpr:
    """Replace operations by the target's definitions of them. Needs: primitives. Keeps: its form."""
    definition = get_tables(target).definition if target.libraries.present else None
    return jaxpr if definition is None else with_definitions(jaxpr, lambda equation: definition(equation, target))


@everywhere
def compose(jaxpr: Jaxpr, target: Target) -> Jaxpr:
    """Group equations into fusions of the kind "library". Needs: canonical. Keeps: its form; rounds otherwise."""
    if not target.libraries.present:
        return jaxpr
    composed = get_tables(target).compose
    return jaxpr if composed is None else composed(jaxpr, target)
