"""The tables of GPUs: the emitter of each kind of fusion. There are no library calls yet."""

from __future__ import annotations

from weft.base.errors import NotSupportedError
from weft.compiler.emit.emitters import EMITTERS
from weft.compiler.target.library_call import LibraryCall
from weft.compiler.target.tables import Tables
from weft.ir.jaxpr import Equation


def plan(equation: Equation) -> LibraryCall:
    """The call of a library for an unfused equation: an error that names the operation."""
    raise NotSupportedError(f"{equation.primitive.name} has no code for GPUs yet.", fix="compute it on a CPU device")


TABLES = Tables(EMITTERS, plan)
