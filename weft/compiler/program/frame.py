"""The call frame of a program: the 64-bit words that pass the addresses of its memory to a run.

The first words are the address of the temporaries, the address of the constants and the list of tapes, which is empty
when a run begins. Then come the addresses of all arguments and of all results, and of the temporaries in each memory
space but the default one, which few programs have. They are followed by the program's own registers (pointers and
counters, zero when a run begins) and by addresses that linking has fixed (parameters of library calls). This module is
the only definition of that order.
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
    """Return the register of the first result."""
    return FIRST_ARGUMENT + len(program.arguments)


def first_space(program: Program) -> int:
    """Return the register of the first block of temporaries outside the default memory space."""
    return first_result(program) + len(program.results)


def first_own(program: Program) -> int:
    """Return the first of the program's own registers."""
    return first_space(program) + len(program.space_bytes)


class CallFrame:
    """The call frame of one program, with the address of its constants.

    `fixed` lists pairs (register, address) of registers behind the program's own that hold the same address in every
    run.
    """

    __slots__ = ("constants", "count", "fixed", "pack", "registers")

    def __init__(self, program: Program, constants: int = 0, fixed: Sequence[tuple[int, int]] = ()) -> None:
        self.constants = constants
        own = first_own(program)
        # Number of registers of a run.
        self.registers = program.registers + len(fixed)
        # The words from the program's own registers on; empty if all of them are zero.
        self.fixed = [0] * (self.registers - own) if fixed else []
        for register, address in fixed:
            self.fixed[register - own] = address
        # Number of words that a call passes; registers beyond them are zero.
        self.count = own + len(self.fixed)
        self.pack = struct.Struct(f"{self.count}Q").pack

    def at(self, constants: int) -> CallFrame:
        """Return the same frame with its constants at another address."""
        frame = object.__new__(CallFrame)
        frame.constants, frame.registers, frame.fixed = constants, self.registers, self.fixed
        frame.count, frame.pack = self.count, self.pack
        return frame

    def entries(
        self, temporaries: Any, arguments: Sequence[Any], results: Sequence[Any], spaces: Sequence[Any] = ()
    ) -> list[Any]:
        """Return the words that a call passes, in order: addresses, or expressions for them in generated code.

        `spaces` are the blocks of temporaries in other memory spaces.
        """
        return [temporaries, self.constants, 0, *arguments, *results, *spaces, *self.fixed]

    def initial_registers(
        self, temporaries: int, arguments: Sequence[int], results: Sequence[int], spaces: Sequence[int] = ()
    ) -> np.ndarray:
        """Return all registers of a run as they are when it begins."""
        registers = np.zeros(self.registers, np.int64)
        registers[: self.count] = self.entries(temporaries, arguments, results, spaces)
        return registers
