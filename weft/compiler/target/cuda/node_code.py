"""Kernels that drive conditional nodes of graphs, as data: loop conditions and branch indices. `nodes.py` writes them.

A loop or branch that calls libraries is a conditional node, whose bodies are graphs. One of these kernels sets its
condition before the node, and for loops again at the end of every iteration.
"""

from __future__ import annotations

from typing import ClassVar, NamedTuple, TypeAlias

from weft.base.dataclass import dataclass

# Threads per block.
THREADS = 256


@dataclass(frozen=True)
class Holds:
    """Loop condition given by a predicate. Parameters: the address of the predicate, the handle of the node, the
    address of the time of the last poll, and that of the host's interrupt word."""

    kind: ClassVar[str] = "while"
    blocks: ClassVar[int] = 1
    threads: ClassVar[int] = 1
    symbol: ClassVar[str] = "node_holds"


@dataclass(frozen=True)
class Chooses:
    """Branch index, an integer of `size` bytes (negative if signed), which is clamped. Parameters: its address and
    the handle of the node."""

    size: int
    branches: int

    kind: ClassVar[str] = "switch"
    blocks: ClassVar[int] = 1
    threads: ClassVar[int] = 1

    @property
    def symbol(self) -> str:
        """Name of the kernel, which encodes everything its code depends on."""
        return f"node_chooses_{'i' if self.size < 0 else 'u'}{abs(self.size)}_{self.branches}"


class SliceCopy(NamedTuple):
    """Copy of the slice of an array that an iteration reads (before it) or writes (after it), by elements of `width`
    bytes."""

    written: bool
    width: int


@dataclass(frozen=True)
class Advances:
    """Step of a counted loop: copies the slices that the last iteration wrote to their arrays and those that the next
    one reads to fixed addresses, and writes the index.

    Parameters:

    - the address of two words that are zero before the loop: iterations started, and blocks of this kernel done;
    - the number of iterations, or its address (an int32) if it is only known on the GPU;
    - the handle of the node, and the poll time and interrupt word of `Holds`;
    - for each slice the addresses of the array and of the copy, the bytes between slices, and the elements of a slice;
    - for each of `counts` an address to which the index is written, as an int32.
    """

    slices: tuple[SliceCopy, ...]
    counts: int
    counted_there: bool
    reverse: bool
    blocks: int

    kind: ClassVar[str] = "while"
    threads: ClassVar[int] = THREADS

    @property
    def symbol(self) -> str:
        """Name of the kernel, which encodes everything its code depends on."""
        slices = "".join(f"{'w' if each.written else 'r'}{each.width}" for each in self.slices)
        flags = f"{'s' if self.counted_there else 'n'}{'b' if self.reverse else 'f'}"
        return f"node_advances_{flags}{self.counts}_{self.blocks}_{slices}"


NodeCode: TypeAlias = Holds | Chooses | Advances
