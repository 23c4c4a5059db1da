"""Threefry on a GPU, which is bound by integer units.

Shifts, logic and three-operand sums run in one kind of unit, products and two-operand sums in another, which is less
busy. The assembler puts sums there unless it can fuse two of them into a three-operand sum. So key words are added by
multiply-adds with a factor of one that the assembler cannot fold.
"""

from __future__ import annotations

from weft.compiler.target import llvm
from weft.compiler.target.cuda.math import each_lane
from weft.compiler.target.math.term import Term
from weft.compiler.target.math.threefry import TermWords
from weft.primitives.random import threefry as body

# Size of the grid along its third dimension, which is always one.
ONE = "llvm.nvvm.read.ptx.sreg.nctaid.z"


class GpuWords(TermWords):
    """Words of the hash as lanes of a thread."""

    def __init__(self, function: llvm.Function) -> None:
        one = function.call(ONE, llvm.i32)
        assert one is not None
        self.one = one

    def sum(self, first: Term, second: Term | int) -> Term:
        if isinstance(second, Term):
            return super().sum(first, second)
        # A key word plus a stage index; inline, so that LLVM does not split the sum.
        return _by(f"add.u32 $0, $1, {second};", first)

    def add(self, first: Term, second: Term) -> Term:
        return _by("mad.lo.u32 $0, $1, $2, $3;", first, self.one, second)


def _by(text: str, *operands: Term | llvm.Value) -> Term:
    """Apply an instruction to each lane as inline assembly, which LLVM cannot simplify. Operands that are not terms
    are uniform."""
    terms = [x for x in operands if isinstance(x, Term)]

    def of(*values: llvm.Value) -> llvm.Value:
        found = iter(values)
        passed = [next(found) if isinstance(x, Term) else x for x in operands]
        return terms[0].function.assembly(text, "=r" + ",r" * len(passed), llvm.i32, *passed)

    return each_lane(of, llvm.i32, *terms)


def threefry(key_first: Term, key_second: Term, first: Term, second: Term) -> tuple[Term, Term]:
    """Hash the pair of words (first, second) under a key."""
    return body.threefry(GpuWords(first.function), key_first, key_second, first, second)
