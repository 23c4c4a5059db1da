"""Single calls of native routines from Python, as the bytecode interpreter makes them for steps."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence

import numpy as np

from weft.compiler.program.ir import TAPE_ROUTINES, Call
from weft.compiler.target.cpu import tape
from weft.compiler.target.cpu.library.routines import address

_ROUTINE = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p)
_TILES = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)


class NativeRoutines:
    """Routines that compiled programs call on this machine."""

    def call(self, step: Call, addresses: Sequence[int], registers: np.ndarray) -> int:
        """Call the routine of a step on memory at these addresses; return its status."""
        parameters = np.array([*step.parameters, 0], np.int64)
        if step.tiles:
            table = np.array([*addresses, parameters.ctypes.data], np.int64)
            _TILES(address(step.routine))(table.ctypes.data, 0, step.tiles)
            return 0
        table = np.array([*addresses, 0], np.int64)
        found = tape.address(step.routine) if step.routine in TAPE_ROUTINES else address(step.routine)
        status: int = _ROUTINE(found)(table.ctypes.data, parameters.ctypes.data, registers.ctypes.data)
        return status

    def free_tapes(self, registers: np.ndarray) -> None:
        """Free the tapes of a finished run."""
        tape.free(registers.ctypes.data)
