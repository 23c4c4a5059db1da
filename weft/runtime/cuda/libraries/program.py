"""Library calls of one program, prepared for a GPU."""

from __future__ import annotations

import math
from collections.abc import Container, Sequence
from typing import Any

from weft.compiler.program.assign import align
from weft.compiler.program.ir import ALIGNMENT, TAPE_ROUTINES, Call, Kind, Program, SetAddress, Slot
from weft.runtime.cuda.libraries.calls import PreparedCall

# Alignment of arguments and results, which are blocks of their own.
BLOCK_ALIGNMENT = 256


class ProgramCalls:
    """Prepared calls of a program. They share temporary memory behind the program's temporaries."""

    def __init__(self, program: Program, driver: Any) -> None:
        self._prepared = prepare_calls(program, driver, find_routines(program))
        self._offset = round_up(align(program.temporary_bytes))
        workspace = max((call.workspace for call in self._prepared.values()), default=0)
        self.temporary_bytes = self._offset + workspace if workspace else program.temporary_bytes

    def start(self, step: Call, work: Any, addresses: Sequence[int], temporaries: int) -> None:
        """Start a call; `temporaries` is the address of the program's temporaries."""
        work.call(self._prepared[id(step)], addresses, temporaries + self._offset)


def find_routines(program: Program) -> set[str]:
    """Return the library routines that a program calls."""
    return {s.routine for s in program.all_steps() if isinstance(s, Call)} - {"host", *TAPE_ROUTINES}


def prepare_calls(program: Program, driver: Any, routines: Container[str]) -> dict[int, PreparedCall]:
    """Prepare the calls of these routines in a program, by the ids of their steps."""
    alignments = Alignments(program)
    return {
        id(step): driver.libraries.prepare(step.routine, step.parameters, [alignments.of(s) for s in step.slots])
        for step in program.all_steps()
        if isinstance(step, Call) and step.routine in routines
    }


class Alignments:
    """Alignments of the addresses of a program's slots."""

    def __init__(self, program: Program) -> None:
        self._pointers: dict[Slot, list[SetAddress]] = {}
        for step in program.all_steps():
            if isinstance(step, SetAddress):
                self._pointers.setdefault(step.target, []).append(step)

    def of(self, slot: Slot) -> int:
        """Return the alignment of a slot; one that points into another may be at any multiple of its stride."""
        if slot.kind in (Kind.ARGUMENT, Kind.RESULT):
            return BLOCK_ALIGNMENT
        if slot.kind is Kind.POINTED:
            parts = [math.gcd(self.of(step.base), step.stride) for step in self._pointers.get(slot, ())]
            return math.gcd(*parts) if parts else 1
        return ALIGNMENT


def round_up(size: int) -> int:
    """Round a size up to the alignment of blocks."""
    return -(-size // BLOCK_ALIGNMENT) * BLOCK_ALIGNMENT
