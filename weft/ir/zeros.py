"""Symbolic zeros and linear placeholders: arguments of differentiation rules without a value."""

from __future__ import annotations

from typing import Any

from weft.ir.types import Type


class Zero:
    """Tangent or cotangent known to be zero, of tangent type `aval`. No array exists until one is instantiated."""

    __slots__ = ("aval",)

    def __init__(self, aval: Type):
        self.aval = aval

    def __repr__(self) -> str:
        return f"Zero({self.aval.short()})"

    @staticmethod
    def of(primal_type: Type) -> Zero:
        """Return the zero tangent of a value of type `primal_type`."""
        return Zero(primal_type.tangent())


class Linear:
    """Placeholder for an operand that is being transposed: it has a type and no value."""

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
    """Return whether an operand of a transpose rule is a `Linear` placeholder."""
    return type(x) is Linear
