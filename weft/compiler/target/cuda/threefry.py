"""The hash of random bits on a GPU, whose units for integers are its limit.

Shifts, logic and sums of three numbers run in one kind of units, products and sums of two in another, which has less to
do. The assembler has every sum of two in the latter but where it can make one sum of three out of two. So parts of the
key are added by products with a one that it does not know.
"""

from __future__ import annotations

from weft.compiler.target import llvm
from weft.compiler.target.cuda.math import each_lane
from weft.compiler.target.math.term import Term
from weft.compiler.target.math.threefry import TermWords
from weft.primitives.random import threefry as body

# How many blocks a grid has along its third dimension: one.
ONE = "llvm.nvvm.read.ptx.sreg.nctaid.z"


class GpuWords(TermWords):
    """Words as lanes of a thread."""

    def __init__(self, function: llvm.Function) -> None:
        one = function.call(ONE, llvm.i32)
        assert one is not None
        self.one = one

    def sum(self, first: Term, second: Term | int) -> Term:
        if isinstance(second, Term):
            return super().sum(first, second)
        # A part of the key and the index of a stage, which nobody is to add apart.
        return _by(f"add.u32 $0, $1, {second};", first)

    def add(self, first: Term, second: Term) -> Term:
        return _by("mad.lo.u32 $0, $1, $2, $3;", first, self.one, second)


def _by(text: str, *operands: Term | llvm.Value) -> Term:
    """What an instruction makes of each lane; LLVM does not know what it computes. Values are the same in all lanes."""
    terms = [x for x in operands if isinstance(x, Term)]

    def of(*values: llvm.Value) -> llvm.Value:
        found = iter(values)
        taken = [next(found) if isinstance(x, Term) else x for x in operands]
        return terms[0].function.assembly(text, "=r" + ",r" * len(taken), llvm.i32, *taken)

    return each_lane(of, llvm.i32, *terms)


def threefry(key_first: Term, key_second: Term, first: Term, second: Term) -> tuple[Term, Term]:
    """The hash of the pair of words (first, second) under a key."""
    return body.threefry(GpuWords(first.function), key_first, key_second, first, second)
