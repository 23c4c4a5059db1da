"""Kernels that decide in graphs, as data: whether a loop goes on, and which branch is taken. `nodes.py` writes them.

A loop or branch that calls libraries is a conditional node of a graph, whose bodies are graphs. What a node does is
said by a word that one of these kernels sets before it, and for loops at the end of every iteration.
"""

from __future__ import annotations

from typing import ClassVar, NamedTuple, TypeAlias

from weft.base.dataclass import dataclass

# Threads of a block.
THREADS = 256


@dataclass(frozen=True)
class Holds:
    """Goes on as long as a predicate holds. It takes the address of that, the handle of the node, the address of a word
    that says when it last looked for interrupts, and that of the host's word which is not zero if there is one."""

    kind: ClassVar[str] = "while"
    blocks: ClassVar[int] = 1
    threads: ClassVar[int] = 1
    symbol: ClassVar[str] = "node_holds"


@dataclass(frozen=True)
class Chooses:
    """Takes one of several branches, by an integer of so many bytes (a negative number if it is signed), which is
    clamped. It takes the address of that, and the handle of the node."""

    size: int
    branches: int

    kind: ClassVar[str] = "switch"
    blocks: ClassVar[int] = 1
    threads: ClassVar[int] = 1

    @property
    def symbol(self) -> str:
        """Its name, made of all that its code depends on."""
        return f"node_chooses_{'i' if self.size < 0 else 'u'}{abs(self.size)}_{self.branches}"


class SliceCopy(NamedTuple):
    """The slice of an array in an iteration: it is copied from there before the iteration, or to there after it, by
    elements of so many bytes."""

    written: bool
    width: int


@dataclass(frozen=True)
class Advances:
    """Ends an iteration of a counted loop and begins the next: slices that the iteration has written are copied to
    where they belong, those that the next one reads to where it finds them, and so is its index. It takes

    - the address of two words that are zero before the loop: how many iterations have begun, and how many blocks of
      this kernel are done;
    - the number of iterations, or the address of it (an int32) if it is known only on the GPU;
    - the handle of the node, and what `Holds` takes besides;
    - for each slice the address of the array, that of the copy, the bytes from one slice to the next, and the elements
      of a slice;
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
        """Its name, made of all that its code depends on."""
        slices = "".join(f"{'w' if each.written else 'r'}{each.width}" for each in self.slices)
        flags = f"{'s' if self.counted_there else 'n'}{'b' if self.reverse else 'f'}"
        return f"node_advances_{flags}{self.counts}_{self.blocks}_{slices}"


NodeCode: TypeAlias = Holds | Chooses | Advances
