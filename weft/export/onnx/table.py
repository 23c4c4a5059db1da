"""Tables of rules by the names of primitives."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from weft.export.onnx.graph import Value

# A logical array as tensors: the parts of a complex number, the words of a key, else one.
Parts = tuple[Value, ...]
F = TypeVar("F", bound=Callable[..., Any])

# A rule takes the emitter, the equation and a value for each operand, and returns a value for each result; None if it
# does not apply to these operands.
RULES: dict[str, Callable[..., Value | Sequence[Value] | None]] = {}
# Rules that apply to each part of operands on its own: elements are moved.
MOVES: set[str] = set()
# Rules that take and return all parts: of complex numbers, of keys, and of control flow.
PARTS_RULES: dict[str, Callable[..., Sequence[Parts] | None]] = {}
# Functions of Weft that define a primitive by others for which rules exist; they take arrays and the parameters. The
# first that `applies` to the equation counts.
DEFINITIONS: dict[str, list[tuple[Callable[[Any], bool], Callable[..., Any]]]] = {}


def rule(*names: str, moves: bool = False) -> Callable[[F], F]:
    """Register a rule for the primitives of these names."""

    def register(function: F) -> F:
        for name in names:
            RULES[name] = function
            if moves:
                MOVES.add(name)
        return function

    return register


def parts_rule(*names: str) -> Callable[[F], F]:
    """Register a rule that takes the parts of each operand."""

    def register(function: F) -> F:
        for name in names:
            PARTS_RULES[name] = function
        return function

    return register


def define(*names: str, applies: Callable[[Any], bool] = lambda equation: True) -> Callable[[F], F]:
    """Register a definition by other primitives, for the equations that it applies to."""

    def register(function: F) -> F:
        for name in names:
            DEFINITIONS.setdefault(name, []).append((applies, function))
        return function

    return register
