"""Loops that are one kernel, as data: running a program from disk takes no more. `loops.py` finds and writes them."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from weft.compiler.program.ir import Step
from weft.compiler.program.outline import Address, Outline

# Threads of a block: as many as the largest group of threads has.
THREADS = 256


@dataclass(frozen=True)
class LoopCode:
    """The kernel of a loop: what it takes from outside, and the blocks of threads that it wants."""

    symbol: str
    outline: Outline
    blocks: int

    @property
    def addresses(self) -> list[Address]:
        """The memory that it takes as parameters."""
        return self.outline.addresses

    @property
    def counters(self) -> list[int]:
        """The registers of counters that it takes as parameters."""
        return self.outline.counters


def loop_code(outline: Outline, blocks: int) -> LoopCode:
    """The kernel of a loop for so many blocks; its name is made of all that its code depends on."""
    digest = hashlib.blake2b(repr((outline.rows, blocks)).encode(), digest_size=10).hexdigest()
    return LoopCode(f"loop_{digest}", outline, blocks)


def positions(loops: Mapping[Step, LoopCode], steps: Sequence[Step]) -> list[tuple[int, int]]:
    """For each loop its index among all steps of a program, and its blocks."""
    return [(i, loops[step].blocks) for i, step in enumerate(steps) if step in loops]
