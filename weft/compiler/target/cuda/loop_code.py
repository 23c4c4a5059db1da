"""Loops that are one kernel, as data, which is all that running a program from disk needs. `loops.py` finds and
writes them."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence

from weft.base.dataclass import dataclass
from weft.compiler.program.ir import Step
from weft.compiler.program.outline import Address, Outline

# Threads per block: the size of the largest group.
THREADS = 256


@dataclass(frozen=True)
class LoopCode:
    """Kernel of a loop: its outline, the blocks of each of its parts, and the loops (by the indices of their
    counters) in which copies of carries are exchanges of addresses."""

    symbol: str
    outline: Outline
    blocks: int
    parts: int = 1
    exchanges: tuple[int, ...] = ()

    @property
    def grid(self) -> int:
        """Blocks of all parts."""
        return self.blocks * self.parts

    @property
    def counts(self) -> bool:
        """Whether blocks synchronise at a counter in memory."""
        return self.blocks > 1 and self.parts == 1

    @property
    def addresses(self) -> list[Address]:
        """Memory passed as parameters."""
        return self.outline.addresses

    @property
    def counters(self) -> list[int]:
        """Counter registers passed as parameters."""
        return self.outline.counters


def loop_code(outline: Outline, blocks: int, parts: int = 1, exchanges: Sequence[int] = ()) -> LoopCode:
    """Return the kernel of a loop for `blocks` blocks per part; its name is a digest of everything its code depends
    on."""
    depends = outline.rows, blocks, parts, tuple(exchanges)
    digest = hashlib.blake2b(repr(depends).encode(), digest_size=10).hexdigest()
    return LoopCode(f"loop_{digest}", outline, blocks, parts, tuple(exchanges))


def positions(loops: Mapping[Step, LoopCode], steps: Sequence[Step]) -> list[tuple[int, int, int, tuple[int, ...]]]:
    """Return for each loop its index among all steps of a program, and the arguments of `loop_code` besides the
    outline."""
    found = [(i, loops[step]) for i, step in enumerate(steps) if step in loops]
    return [(i, code.blocks, code.parts, code.exchanges) for i, code in found]
