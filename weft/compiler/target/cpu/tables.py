"""Tables of the CPU target: the emitter of each kind of fusion, and the libraries that compute the other equations."""

from __future__ import annotations

from typing import TYPE_CHECKING

from weft.base.lazy import lazy
from weft.compiler.emit.emitters import get_emitter
from weft.compiler.target.library_call import LibraryCall
from weft.compiler.target.tables import Tables
from weft.compiler.target.target import Target
from weft.ir.jaxpr import Equation

if TYPE_CHECKING:
    from weft.compiler.target.cpu.library import planning
else:
    planning = lazy("weft.compiler.target.cpu.library.planning")


def _plan(equation: Equation, target: Target) -> LibraryCall:
    """Plan the library call for an equation."""
    return planning.plan(equation)


TABLES = Tables(get_emitter, _plan)
