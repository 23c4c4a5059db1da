"""What an equation is for fusion on a machine: what its primitive says, unless it has effects."""

from __future__ import annotations

from weft.compiler.target.target import ANY, Target
from weft.ir.fusing import CALLS_BACK, CONTROLS, Properties, Space, squeeze_shape
from weft.ir.jaxpr import Equation
from weft.ir.types import ArrayType


def classify(equation: Equation, target: Target) -> Properties:
    """The role of an equation on a machine."""
    if equation.effects:
        return CONTROLS if equation.primitive.higher_order else CALLS_BACK
    return equation.primitive.fusion(equation, target)


def structure(equation: Equation) -> Properties:
    """As `classify`, whatever the machine: for what is counted of an equation, and not chosen."""
    return classify(equation, ANY)


def leading(operand: ArrayType, result: ArrayType, dimensions: tuple[int, ...], out: Space) -> bool:
    """Whether a broadcast puts the operand's dimensions, those of size 1 aside, on the leading ones of the result."""
    placed = [dimensions[i] for i, d in enumerate(operand.shape) if d != 1]
    wide = [i for i, d in enumerate(result.shape) if d != 1]
    return placed == wide[: len(placed)] and squeeze_shape(operand.shape) == out
