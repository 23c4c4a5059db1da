"""The call frame of a program: the 64-bit words by which the caller says where its memory is.

The first words are the address of the temporaries, the address of the constants and the list of tapes, which is empty
when a run begins. Then come the addresses of all arguments and of all results, and of the temporaries in each memory
space but the default one, which few programs have. What follows are registers of the program's own, pointers and
counters, which are zero when a run begins, and addresses that linking has fixed (the parameters of library calls). This
order is written down here and nowhere else.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any

import numpy as np

from weft.compiler.program.ir import Program

TEMPORARIES, CONSTANTS, TAPES = 0, 1, 2
FIRST_ARGUMENT = 3


def first_result(program: Program) -> int:
    """The register of the first result."""
    return FIRST_ARGUMENT + len(program.arguments)


def first_space(program: Program) -> int:
    """The register of the first block of temporaries that is not in the default memory space."""
    return first_result(program) + len(program.results)


def first_own(program: Program) -> int:
    """The first register that is the program's own."""
    return first_space(program) + len(program.space_bytes)


class CallFrame:
    """The frame of one program, whose constants are at an address. `fixed` has the registers behind the program's own
    that hold an address in every run."""

    __slots__ = ("constants", "count", "fixed", "pack", "registers")

    def __init__(self, program: Program, constants: int = 0, fixed: Sequence[tuple[int, int]] = ()) -> None:
        self.constants = constants
        own = first_own(program)
        # All registers of a run.
        self.registers = program.registers + len(fixed)
        # The words from the program's own registers on; they are left out where all of them are zero.
        self.fixed = [0] * (self.registers - own) if fixed else []
        for register, address in fixed:
            self.fixed[register - own] = address
        # How many words a call passes; registers beyond them are zero.
        self.count = own + len(self.fixed)
        self.pack = struct.Struct(f"{self.count}Q").pack

    def at(self, constants: int) -> CallFrame:
        """The same frame with its constants at another address."""
        frame = object.__new__(CallFrame)
        frame.constants, frame.registers, frame.fixed = constants, self.registers, self.fixed
        frame.count, frame.pack = self.count, self.pack
        return frame

    def entries(
        self, temporaries: Any, arguments: Sequence[Any], results: Sequence[Any], spaces: Sequence[Any] = ()
    ) -> list[Any]:
        """What a call passes, in order: addresses, or expressions for them in generated code. `spaces` are the blocks
        of temporaries in other memory spaces."""
        return [temporaries, self.constants, 0, *arguments, *results, *spaces, *self.fixed]

    def filled(
        self, temporaries: int, arguments: Sequence[int], results: Sequence[int], spaces: Sequence[int] = ()
    ) -> np.ndarray:
        """All registers of a run that begins."""
        registers = np.zeros(self.registers, np.int64)
        registers[: self.count] = self.entries(temporaries, arguments, results, spaces)
        return registers
