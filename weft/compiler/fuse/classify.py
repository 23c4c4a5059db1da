"""Fusion properties of equations on a machine: those of their primitives, unless they have effects."""

from __future__ import annotations

from weft.compiler.target.target import ANY, Target
from weft.ir.fusing import CALLS_BACK, CONTROLS, Properties, Space, squeeze_shape
from weft.ir.jaxpr import Equation
from weft.ir.types import ArrayType


def classify(equation: Equation, target: Target) -> Properties:
    """Return the fusion properties of an equation on a machine."""
    if equation.effects:
        return CONTROLS if equation.primitive.higher_order else CALLS_BACK
    return equation.primitive.fusion(equation, target)


def structure(equation: Equation) -> Properties:
    """Return the fusion properties of an equation that do not depend on the machine, for cost estimates."""
    return classify(equation, ANY)


def leading(operand: ArrayType, result: ArrayType, dimensions: tuple[int, ...], out: Space) -> bool:
    """Return whether a broadcast maps the operand's dimensions, except those of size 1, to leading ones."""
    placed = [dimensions[i] for i, d in enumerate(operand.shape) if d != 1]
    wide = [i for i, d in enumerate(result.shape) if d != 1]
    return placed == wide[: len(placed)] and squeeze_shape(operand.shape) == out
