"""Tables of the CPU target: the emitter of each kind of fusion, and the libraries that compute the other equations."""

from __future__ import annotations

from weft.compiler.emit.emitters import emitter_of
from weft.compiler.target.library_call import LibraryCall
from weft.compiler.target.tables import Tables
from weft.compiler.target.target import Target
from weft.ir.jaxpr import Equation


def _plan(equation: Equation, target: Target) -> LibraryCall:
    """Plan the library call for an equation. The library modules are imported at the first call."""
    from weft.compiler.target.cpu.library.planning import plan

    return plan(equation)


TABLES = Tables(emitter_of, _plan)
