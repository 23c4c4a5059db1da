"""The hash of random bits on a GPU, whose units for integers are its limit.

Shifts and logic run in one kind of units, sums of two numbers and products in another, which has half as much to do. So
half of the rotations are multiplications: x * 2**n in 64 bits has what is shifted out in its upper word, and the logic
that follows takes both words at once. Parts of the key are added as one number each, since sums of three are logic's.
"""

from __future__ import annotations

from weft.compiler.target import llvm
from weft.compiler.target.cuda.math import each_lane
from weft.compiler.target.math.term import Term
from weft.compiler.target.math.threefry import TermWords
from weft.primitives.random import threefry as body

# The rotations that are multiplications: ten of the twenty.
MULTIPLIED = frozenset({13, 15, 17, 29})


class GpuWords(TermWords):
    """Words as lanes of a thread."""

    def sum(self, first: Term, second: Term | int) -> Term:
        if isinstance(second, Term):
            return super().sum(first, second)
        # A part of the key and the index of a stage, which nobody is to add apart.
        return _by(f"add.u32 $0, $1, {second};", "=r,r", llvm.i32, first)

    def mix(self, first: Term, second: Term, rotation: int) -> tuple[Term, Term]:
        if rotation not in MULTIPLIED:
            return super().mix(first, second, rotation)
        wide = _by(f"mul.wide.u32 $0, $1, {1 << rotation};", "=l,r", llvm.i64, second)
        total = first + second
        return total, total ^ (wide.narrow(32) | wide.lshr(32).narrow(32))


def _by(text: str, constraints: str, element: llvm.Type, x: Term) -> Term:
    """What an instruction makes of each lane; LLVM does not know what it computes."""
    return each_lane(lambda word: x.function.assembly(text, constraints, element, word), element, x)


def threefry(key_first: Term, key_second: Term, first: Term, second: Term) -> tuple[Term, Term]:
    """The hash of the pair of words (first, second) under a key."""
    return body.threefry(GpuWords(), key_first, key_second, first, second)
