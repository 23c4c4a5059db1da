"""The hash of random bits, threefry2x32: one body for Python integers, NumPy arrays and the lanes of compiled code."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, Protocol, TypeVar

import numpy as np

ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))
PARITY = 0x1BD11BDA
MASK = 0xFFFFFFFF
Word = TypeVar("Word")


class Words(Protocol[Word]):
    """Arithmetic of 32-bit words, modulo 2**32; a Python integer is a constant. The first operand of `add` and both of
    `mix` are not used again, so the results may take their memory."""

    def parity(self, first: Word, second: Word) -> Word:
        """Return first ^ second ^ PARITY."""
        ...

    def sum(self, first: Word, second: Word | int) -> Word:
        """Return first + second."""
        ...

    def add(self, first: Word, second: Word) -> Word:
        """Return first + second, possibly in the memory of `first`."""
        ...

    def mix(self, first: Word, second: Word, rotation: int) -> tuple[Word, Word]:
        """Compute one round: first + second, and that ^ (second rotated left)."""
        ...


def threefry(words: Words[Word], key_first: Word, key_second: Word, first: Word, second: Word) -> tuple[Word, Word]:
    """Hash the pair of words (first, second) under a key: 20 rounds; parts of the key are added after every fourth."""
    keys = (key_first, key_second, words.parity(key_first, key_second))
    x, y = words.sum(first, keys[0]), words.sum(second, keys[1])
    for stage in range(5):
        for rotation in ROTATIONS[stage % 2]:
            x, y = words.mix(x, y, rotation)
        x = words.add(x, keys[(stage + 1) % 3])
        y = words.add(y, words.sum(keys[(stage + 2) % 3], stage + 1))
    return x, y


class ArrayWords:
    """Words as NumPy arrays, which are broadcast to one shape by the first sum."""

    def __init__(self, shape: tuple[int, ...]) -> None:
        self._shape = shape
        self._scratch = np.empty(shape, np.uint32)

    def parity(self, first: Any, second: Any) -> Any:
        return first ^ second ^ np.uint32(PARITY)

    def sum(self, first: Any, second: Any) -> Any:
        if isinstance(second, int):
            return np.add(first, np.uint32(second), out=np.empty(np.shape(first), np.uint32))
        return np.add(first, second, out=np.empty(self._shape, np.uint32))

    def add(self, first: Any, second: Any) -> Any:
        return np.add(first, second, out=first)

    def mix(self, first: Any, second: Any, rotation: int) -> tuple[Any, Any]:
        np.add(first, second, out=first)
        np.right_shift(second, np.uint32(32 - rotation), out=self._scratch)
        np.left_shift(second, np.uint32(rotation), out=second)
        np.bitwise_or(second, self._scratch, out=second)
        return first, np.bitwise_xor(first, second, out=second)


def threefry_arrays(key_first: Any, key_second: Any, first: Any, second: Any) -> tuple[np.ndarray, np.ndarray]:
    """Hash pairs of words, on arrays that broadcast to one shape."""
    shape = np.broadcast_shapes(*(np.shape(a) for a in (key_first, key_second, first, second)))
    return threefry(ArrayWords(shape), key_first, key_second, first, second)


class SourceWords:
    """Words as names in generated Python code over integers, line by line."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def _name(self, expression: str) -> str:
        name = f"x{len(self.lines)}"
        self.lines.append(f"    {name} = {expression}")
        return name

    def parity(self, first: str, second: str) -> str:
        return self._name(f"{first} ^ {second} ^ {PARITY}")

    def sum(self, first: str, second: str | int) -> str:
        return self._name(f"{first} + {second} & {MASK}")

    add = sum

    def mix(self, first: str, second: str, rotation: int) -> tuple[str, str]:
        total = self.sum(first, second)
        return total, self._name(f"{total} ^ ({second} << {rotation} & {MASK} | {second} >> {32 - rotation})")


@functools.cache
def threefry_integers() -> Callable[[int, int, int, int], tuple[int, int]]:
    """Generate the hash as a function of Python integers without calls: for a few pairs of words it is faster than
    arrays."""
    words, names = SourceWords(), ("key_first", "key_second", "first", "second")
    x, y = threefry(words, *names)
    text = "\n".join([f"def threefry_of_integers({', '.join(names)}):", *words.lines, f"    return {x}, {y}"])
    scope: dict[str, Any] = {}
    exec(text, scope)
    result: Callable[[int, int, int, int], tuple[int, int]] = scope["threefry_of_integers"]
    return result
