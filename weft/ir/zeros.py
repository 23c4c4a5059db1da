"""Symbolic zeros and linear placeholders: what differentiation rules receive in place of values that need not exist."""

from __future__ import annotations

from typing import Any

from weft.ir.types import Type


class Zero:
    """A tangent or cotangent known to be zero, of tangent type `aval`; it costs nothing until somebody needs its
    numbers."""

    __slots__ = ("aval",)

    def __init__(self, aval: Type):
        self.aval = aval

    def __repr__(self) -> str:
        return f"Zero({self.aval.short()})"

    @staticmethod
    def of(primal_type: Type) -> Zero:
        """The zero tangent of a value of this type."""
        return Zero(primal_type.tangent())


class Linear:
    """Stands for an operand in which an operation is being transposed: its value does not exist, only its type."""

    __slots__ = ("aval",)

    def __init__(self, aval: Type):
        self.aval = aval

    @property
    def shape(self) -> Any:
        return self.aval.shape  # type: ignore[attr-defined]

    @property
    def dtype(self) -> Any:
        return self.aval.dtype  # type: ignore[attr-defined]

    @property
    def ndim(self) -> int:
        return len(self.shape)

    def __repr__(self) -> str:
        return f"Linear({self.aval.short()})"


def is_linear(x: Any) -> bool:
    """Whether an operand of a transpose rule is one that the operation is linear in, and so has no value."""
    return type(x) is Linear
