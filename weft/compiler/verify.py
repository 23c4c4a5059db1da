"""Verification of the two levels below the jaxpr: the Program and its kernels."""

from __future__ import annotations

from collections.abc import Sequence

from weft.compiler.kernel import verifier as kernels
from weft.compiler.program import verifier as programs
from weft.compiler.program.ir import Launch, Program


def verify_program(program: Program, spaces: Sequence[str]) -> Program:
    """Raise `InternalError` unless a Program and every kernel that it launches are well formed, for a target with these
    memory spaces; return the Program."""
    launched = {(id(s.full), s.sizes): s for s in program.all_steps() if isinstance(s, Launch)}
    for step in launched.values():
        kernels.verify(step.concrete)
    return programs.verify(program, spaces)
