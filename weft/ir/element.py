"""The interface of `value_at` rules: one element of an equation's result in a kernel that is being built."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from weft.ir.types import ArrayType


class Element(Protocol):
    """One element of a result. Indices are integers, or sums of loop variables and values that can be added to and
    multiplied by integers; values are symbolic numbers in the kernel, with a dtype."""

    # The element's index in the result, one component per dimension.
    index: tuple[Any, ...]
    # The builder that elementwise bodies (`emit`) are written with.
    scalars: Any

    @property
    def result(self) -> int:
        """Index of the result that the element belongs to."""
        ...

    @property
    def types(self) -> Sequence[ArrayType]:
        """Types of the operands."""
        ...

    def operand(self, i: int, index: Sequence[Any] | None = None, inside: Any = None) -> Any:
        """Return an element of operand `i`: at the result's index, or at `index`. Where the condition `inside` is
        false, memory is not read and the value is undefined."""
        ...

    def operands(self) -> list[Any]:
        """Return the elements of all operands at the result's index; scalars as they are."""
        ...

    def source(self) -> Any:
        """Return the element that the primitive's `sources` describe: the first one whose condition holds."""
        ...

    def position(self, index: Any) -> Any:
        """Convert an index to a value of an integer dtype that can hold it."""
        ...

    def clamp_starts(self, starts: Sequence[int], shape: Sequence[Any], sizes: Sequence[Any]) -> list[Any]:
        """Return the start indices of a slice of `sizes`, which are the scalar operands `starts` clamped so that the
        slice lies inside `shape`."""
        ...

    def window_start(self, components: Sequence[Any], limits: Sequence[int], clip: bool) -> tuple[list[Any], Any]:
        """Return the start indices of the window that an index vector selects, and the condition that it lies inside
        (None if it always does).

        With `clip`, starts are clamped. `limits` are the greatest starts, negative if no start is valid.
        """
        ...

    def constant_like(self, value: Any, constant: Any, dtype: Any) -> Any:
        """Return a constant of a dtype in the representation of `value`: as a number, or as its bits."""
        ...

    def piece(self, value: Any, i: Any, dtype: Any) -> Any:
        """Return part `i` of a value that is split into narrower elements, counted from the lowest bits."""
        ...

    def concatenate(self, values: Sequence[Any], dtype: Any) -> Any:
        """Concatenate narrower elements to one value, the first in the lowest bits."""
        ...

    def key_word(self, key: Any, i: Any) -> Any:
        """Return word `i` of a random key."""
        ...

    def pack_key(self, parts: Sequence[Any]) -> Any:
        """Build a random key from its words."""
        ...
