"""Threefry hash of random bits over lanes."""

from __future__ import annotations

from weft.compiler.target.math.term import Term
from weft.primitives.random import threefry as body
from weft.primitives.random.threefry import PARITY


class TermWords:
    """Operations on 32-bit words as lanes."""

    def parity(self, first: Term, second: Term) -> Term:
        return first ^ second ^ PARITY

    def sum(self, first: Term, second: Term | int) -> Term:
        return first + second

    def add(self, first: Term, second: Term) -> Term:
        return first + second

    def mix(self, first: Term, second: Term, rotation: int) -> tuple[Term, Term]:
        f, first = second.function, first + second
        return first, first ^ Term(f, f.fshl(second.value, second.value, second.of(rotation).value))


def threefry(key_first: Term, key_second: Term, first: Term, second: Term) -> tuple[Term, Term]:
    """Hash the pair of words (first, second) under a key."""
    return body.threefry(TermWords(), key_first, key_second, first, second)
