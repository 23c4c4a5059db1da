"""The tables of CPUs: the emitter of each kind of fusion, and the libraries that compute the rest."""

from __future__ import annotations

from weft.compiler.emit.emitters import emitter_of
from weft.compiler.target.library_call import LibraryCall
from weft.compiler.target.tables import Tables
from weft.compiler.target.target import Target
from weft.ir.jaxpr import Equation


def _plan(equation: Equation, target: Target) -> LibraryCall:
    """The call that computes an equation; how libraries are called is loaded with the first of them."""
    from weft.compiler.target.cpu.library.planning import plan

    return plan(equation)


TABLES = Tables(emitter_of, _plan)
