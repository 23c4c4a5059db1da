"""One element of an equation's result in a kernel that is being built: what a card's `value_at` is written with."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from weft.ir.types import ArrayType


class Element(Protocol):
    """Indices are integers, or sums of loop variables and values that can be added to and multiplied by integers;
    values are numbers that the kernel computes, of which nothing else is known than their dtype."""

    # Its index in the result, one for each dimension.
    index: tuple[Any, ...]
    # The abstract builder that elementwise bodies are written over.
    scalars: Any

    @property
    def result(self) -> int:
        """The result that it belongs to."""
        ...

    @property
    def types(self) -> Sequence[ArrayType]:
        """The types of the operands."""
        ...

    def operand(self, i: int, index: Sequence[Any] | None = None, inside: Any = None) -> Any:
        """An element of operand `i`: at the index of the result, or at another one. Where the condition `inside` does
        not hold, memory is not touched, and the value is undefined."""
        ...

    def operands(self) -> list[Any]:
        """All operands at the index of the result; scalars as they are."""
        ...

    def source(self) -> Any:
        """The element that the card's `sources` name: that of the first one whose condition holds."""
        ...

    def position(self, index: Any) -> Any:
        """An index as a value, of an integer dtype that holds it."""
        ...

    def clamped_starts(self, starts: Sequence[int], shape: Sequence[Any], sizes: Sequence[Any]) -> list[Any]:
        """Indices where a slice of `sizes` starts: operands that are scalars, clamped so that it lies inside."""
        ...

    def window_start(self, components: Sequence[Any], limits: Sequence[int], clip: bool) -> tuple[list[Any], Any]:
        """Indices where the window starts that an index vector names, and whether it lies inside: a condition, or None
        if it does. With `clip` it is clamped. A limit is the greatest start, negative if there is none."""
        ...

    def constant_like(self, value: Any, constant: Any, dtype: Any) -> Any:
        """A constant of a dtype, in the form in which the kernel has `value`."""
        ...

    def piece(self, value: Any, i: Any, dtype: Any) -> Any:
        """One of the narrower elements that a value consists of, the lowest bits first."""
        ...

    def concatenated(self, values: Sequence[Any], dtype: Any) -> Any:
        """Narrower elements as one, the first in the lowest bits."""
        ...

    def key_word(self, key: Any, i: Any) -> Any:
        """Word `i` of a random key."""
        ...

    def pack_key(self, parts: Sequence[Any]) -> Any:
        """A random key from its words."""
        ...
