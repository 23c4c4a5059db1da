"""Run Programs with every memory access checked, by the interpreters of Programs and kernels."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tests.compiler.host import compile_program, interpret
from weft.compiler.program.ir import Launch, Program
from weft.compiler.program.verifier import verify
from weft.compiler.target.target import Target
from weft.ir.interpreter import storage_array
from weft.ir.jaxpr import Jaxpr


def checked(jaxpr: Jaxpr, arrays: Sequence[Any], target: Target | None = None, most: int = 1 << 20) -> Any:
    """The results of a program, as bytes, run step by step with all accesses checked; None for those of more than
    `most` elements in all kernels."""
    program = verify(compile_program(jaxpr, target=target).program)
    if elements(program) > most:
        return None
    return interpret(program, [np.array(storage_array(a)) for a in arrays])


def elements(program: Program) -> int:
    """How many elements the kernels of a program touch, roughly."""
    return sum(b.size for step in program.all_steps() if isinstance(step, Launch) for b in step.full.buffers)
