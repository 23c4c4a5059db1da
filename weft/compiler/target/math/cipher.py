"""The counter cipher of random numbers, 20 rounds of it one after the other."""

from __future__ import annotations

from weft.compiler.target.math.term import Term
from weft.ops.random import PARITY, ROTATIONS


def threefry(key_first: Term, key_second: Term, first: Term, second: Term) -> tuple[Term, Term]:
    """The pair of words (first, second) under the key, parts of which are added before and after every four rounds."""
    keys = (key_first, key_second, key_first ^ key_second ^ int(PARITY))
    x, y = first + keys[0], second + keys[1]
    for stage in range(5):
        for rotation in ROTATIONS[stage % 2]:
            x = x + y
            y = x ^ rotated(y, rotation)
        x = x + keys[(stage + 1) % 3]
        y = y + (keys[(stage + 2) % 3] + (stage + 1))
    return x, y


def rotated(x: Term, amount: int) -> Term:
    """The bits moved up, and those that leave at the top come in below."""
    return Term(x.function, x.function.fshl(x.value, x.value, x.of(amount).value))
