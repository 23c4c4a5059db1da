"""Rules of elementary functions that are several operations, or that have kernels for float32 alone."""

from __future__ import annotations

import math

from weft.export.onnx.emitter import Emitter
from weft.export.onnx.graph import Value
from weft.export.onnx.rules.elementwise import compare, equals, in_float32
from weft.export.onnx.table import rule
from weft.ir.jaxpr import Equation

# Functions with a kernel for float32.
SINGLE = {
    "tan": "Tan", "asin": "Asin", "acos": "Acos", "atan": "Atan", "sinh": "Sinh", "cosh": "Cosh", "asinh": "Asinh",
    "acosh": "Acosh", "atanh": "Atanh",
}  # fmt: skip


def write_single(g: Emitter, e: Equation, x: Value) -> Value:
    """Apply a function that runtimes have for float32."""
    return g.elementwise(SINGLE[e.primitive.name], x)


@rule("log1p")
@in_float32
def write_log1p(g: Emitter, e: Equation, x: Value) -> Value:
    """Compute log(1 + x): the error of the rounded sum cancels in the quotient x / (sum - 1)."""
    total = g.elementwise("Add", x, g.scalar(1, x))
    less = g.elementwise("Sub", total, g.scalar(1, x))
    corrected = g.elementwise("Div", g.elementwise("Mul", g.elementwise("Log", total), x), less)
    exact = g.elementwise("Or", equals(g, less, 0), equals(g, total, math.inf))
    return g.where(exact, x, corrected)


@rule("expm1")
@in_float32
def write_expm1(g: Emitter, e: Equation, x: Value) -> Value:
    """Compute exp(x) - 1: near zero the error of the exponential cancels in the quotient by its logarithm."""
    power = g.elementwise("Exp", x)
    less = g.elementwise("Sub", power, g.scalar(1, x))
    near = compare(g, "Less", g.elementwise("Abs", x), g.scalar(0.5, x))
    logarithm = g.elementwise("Log", g.where(near, power, g.scalar(2, x)))
    corrected = g.elementwise("Div", g.elementwise("Mul", less, x), logarithm)
    return g.where(near, g.where(equals(g, logarithm, 0), x, corrected), less)


@in_float32
def write_atan2(g: Emitter, e: Equation, y: Value, x: Value) -> Value:
    """Return the angles of points: of the quotient, in the quadrant of the signs."""
    infinite = g.elementwise("And", *(equals(g, g.elementwise("Abs", a), math.inf) for a in (x, y)))
    quotient = g.elementwise("Div", *(g.where(infinite, g.elementwise("Sign", a), a) for a in (y, x)))
    angle = g.elementwise("Atan", quotient)
    left, below = is_negative(g, x), is_negative(g, y)
    turned = g.elementwise("Add", angle, g.where(below, g.scalar(-math.pi, x), g.scalar(math.pi, x)))
    angle = g.where(left, turned, angle)
    nothing = g.elementwise("And", equals(g, x, 0), equals(g, y, 0))
    flat = g.where(left, g.where(below, g.scalar(-math.pi, x), g.scalar(math.pi, x)), y)
    return g.where(nothing, flat, angle)


def is_negative(g: Emitter, x: Value) -> Value:
    """Return where floats have a sign, zeros too: the reciprocal of a negative zero is below zero."""
    return compare(g, "Less", g.where(equals(g, x, 0), g.elementwise("Reciprocal", x), x), g.scalar(0, x))
