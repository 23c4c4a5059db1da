"""Prepared programs at concrete sizes: all that running one needs, without the code that prepares it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from weft.base.memo import cached_property
from weft.compiler.program.ir import Program
from weft.indexing.expression import Symbol
from weft.ir.at_sizes import at_sizes
from weft.ir.jaxpr import Jaxpr

if TYPE_CHECKING:
    from weft.compiler.program.prepared import PreparedProgram

# Fields of a program at sizes that are computed at the first access.
_LOOKED_AT = frozenset({"steps", "arguments", "results", "constants", "constant_slots"})


class ProgramAtSizes(Program):
    """A prepared program at concrete sizes: integers and offsets. Its steps are built at the first access."""

    def __init__(self, prepared: PreparedProgram, sizes: Mapping[Symbol, int], integers: list[Any]) -> None:
        self.prepared, self.sizes, self.integers = prepared, sizes, integers
        general = prepared.program
        self.name, self.aliases = general.name, general.aliases
        self.offsets, self.temporary_bytes = prepared.plan(integers)
        self.constant_bytes, self.registers = general.constant_bytes, general.registers
        self.nanoseconds = prepared.estimate(integers)
        self.schedules, self.space_bytes, self.axes = {}, {}, []

    def __getattr__(self, name: str) -> Any:
        if name not in _LOOKED_AT:
            raise AttributeError(name)
        complete = self.prepared.steps_at(self)
        for field in _LOOKED_AT:
            setattr(self, field, getattr(complete, field))
        return getattr(self, name)

    @cached_property
    def fused(self) -> Jaxpr:
        """The fused jaxpr at the sizes."""
        return at_sizes(self.prepared.family.fused, self.sizes)

    @property
    def calls_python(self) -> bool:
        """Whether a step calls a Python function: False, since such programs are not prepared."""
        return False

    def takes(self, argument: int) -> bool:
        """Return whether an argument is donated, which does not depend on sizes."""
        return self.prepared.program.takes(argument)

    @property
    def uses_threads(self) -> bool:
        """Whether a step is split into tasks for several threads."""
        return any(self.prepared.grain(row, self.integers) for row in self.prepared.rows)
