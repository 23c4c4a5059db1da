"""Matmuls with an epilogue: a conversion of the result, a bias, and relu or gelu, all in float32.

    y = gelu(x @ w + b)    ->    one call; x @ w + b is its second result if other equations read it

Gelu is the tanh approximation, as `nn.gelu` writes it. Operations that round separately in the program are rounded
once.
"""

from __future__ import annotations

import math
from typing import Any

from weft.base import dtypes
from weft.base.dataclass import dataclass
from weft.compiler.target.cuda.library.composites import (
    EquationGroup,
    JaxprReader,
    LibraryComposite,
    is_literal,
    is_operation,
)
from weft.compiler.target.cuda.library.matmuls import accepts, plan_matmul
from weft.compiler.target.library_call import LibraryCall
from weft.compiler.target.matmuls import plan_as_matmul
from weft.compiler.target.target import Target
from weft.ir.jaxpr import Equation, Var
from weft.primitives.contraction.contract import free_axes, suits_library

SHORT = (dtypes.bfloat16, dtypes.float16)
_BYTE = 8  # bits
# Alignment of rows of the second result, in elements.
INPUT_MULTIPLE = 8


@dataclass(frozen=True)
class MatmulEpilogue(LibraryComposite):
    """Matmul followed by a conversion, a bias and an activation, in this order."""

    activation: str
    has_bias: bool
    has_input: bool

    def plan(self, equation: Equation) -> LibraryCall:
        inner = equation.params["jaxpr"]
        hero = inner.eqns[equation.params["hero"]]
        result = equation.outvars[0].aval.dtype  # type: ignore[attr-defined]
        return plan_matmul(hero, result, self.activation, self.has_bias, self.has_input)


def find_epilogues(reader: JaxprReader, target: Target) -> list[EquationGroup]:
    """Find the matmuls of a jaxpr that have an epilogue."""
    found = (
        _group(reader, e) for e in reader.jaxpr.eqns if is_operation(e, "dot_general") and suits_library(e, target)
    )
    return [group for group in found if group is not None]


def _group(reader: JaxprReader, matmul: Equation) -> EquationGroup | None:
    lhs, rhs = matmul.invars
    if type(lhs) is not Var or type(rhs) is not Var or dtypes.kind(matmul.outvars[0].aval.dtype) != "f":  # type: ignore[attr-defined]
        return None
    if dtypes.itemsize_bits(lhs.aval.dtype) == _BYTE:  # type: ignore[attr-defined]
        return None
    equations, value = [matmul], matmul.outvars[0]
    operands = [lhs, rhs]
    converted = reader.only_reader(value, "convert_element_type")
    if converted is not None and _shortens(matmul, converted):
        equations.append(converted)
        value = converted.outvars[0]
    biased = _bias(reader, matmul, value)
    if biased is not None:
        addition, broadcast, bias = biased
        equations += [broadcast, addition]
        operands.append(bias)
        value = addition.outvars[0]
    activation, function = _activation(reader, value)
    results: list[Var] = [value]
    has_input = False
    if activation:
        inside = [*equations, *function]
        has_input = any(
            reader.is_read_outside(v, inside) for v in (value, *(v for e in function[:-1] for v in e.outvars))
        )
        columns = matmul.outvars[0].aval.shape[-1]  # type: ignore[attr-defined]
        if has_input and (activation == "relu" or columns % INPUT_MULTIPLE):
            activation, has_input = "", False  # readers apply it themselves
        else:
            equations = inside
            results = [function[-1].outvars[0], *results] if has_input else [function[-1].outvars[0]]
    if len(equations) == 1 or len(set(operands)) < len(operands):
        return None
    routine = MatmulEpilogue(activation, biased is not None, has_input)
    return EquationGroup(tuple(equations), tuple(operands), tuple(results), matmul, routine)


def _shortens(matmul: Equation, converted: Equation) -> bool:
    """Return whether a conversion is one that the matmul can do when it rounds its result."""
    operand, result = (v.aval.dtype for v in (matmul.invars[0], converted.outvars[0]))  # type: ignore[attr-defined]
    return bool(operand in SHORT and result == operand)


def _bias(reader: JaxprReader, matmul: Equation, value: Var) -> tuple[Equation, Equation, Var] | None:
    """Return the equation that adds a vector to each row of a matmul, the one that broadcasts it, and the vector."""
    addition = reader.only_reader(value, "add")
    if addition is None:
        return None
    other = next((a for a in addition.invars if a is not value), None)
    broadcast = reader.definition(other, "broadcast_in_dim")
    if broadcast is None:
        return None
    (bias,) = broadcast.invars
    if type(bias) is not Var:
        return None
    lhs, rhs = (a.aval for a in matmul.invars)
    _, columns = free_axes(len(lhs.shape), len(rhs.shape), matmul.params["dimension_numbers"])  # type: ignore[attr-defined]
    shape: Any = matmul.outvars[0].aval.shape  # type: ignore[attr-defined]
    count = len(columns)
    trailing = tuple(range(len(shape) - count, len(shape)))
    fits = broadcast.params["broadcast_dimensions"] == trailing and bias.aval.shape == shape[len(shape) - count :]  # type: ignore[attr-defined]
    found, _ = plan_as_matmul(matmul, accepts)
    if not count or not fits or found.columns.size != math.prod(bias.aval.shape):  # type: ignore[attr-defined]
        return None
    return addition, broadcast, bias


# -------------------------------------------------------------------------------------------------------- activations


def _activation(reader: JaxprReader, value: Var) -> tuple[str, list[Equation]]:
    """Return the name of the activation applied to a value, and its equations, the result last."""
    for equation in reader.readers.get(value, ()):
        if is_operation(equation, "max") and is_literal(equation.invars[1], 0.0):
            return "relu", [equation]
        if is_operation(equation, "mul"):
            found = _gelu(reader, value, equation)
            if found is not None:
                return "gelu", found
    return "", []


def _gelu(reader: JaxprReader, x: Var, last: Equation) -> list[Equation] | None:
    """Return the equations of x * 0.5 * (1 + tanh(0.7979 * (x + 0.0447 x**3))) if `last` is the last one, else None."""
    found = [last]

    def step(atom: Any, name: str) -> Any:
        equation = reader.definition(atom, name)
        if equation is not None:
            found.append(equation)
        return equation

    def strip_factor(atom: Any, factor: float) -> Any:
        equation = step(atom, "mul")
        return None if equation is None or not is_literal(equation.invars[1], factor) else equation.invars[0]

    other = next((a for a in last.invars if a is not x), None)
    sum_ = step(strip_factor(other, 0.5), "add")
    if sum_ is None or not is_literal(sum_.invars[1], 1.0):
        return None
    tanh = step(sum_.invars[0], "tanh")
    inner = None if tanh is None else strip_factor(tanh.invars[0], math.sqrt(2 / math.pi))
    polynomial = step(inner, "add")
    if polynomial is None or polynomial.invars[0] is not x:
        return None
    cube = step(strip_factor(polynomial.invars[1], 0.044715), "integer_pow")
    if cube is None or cube.params["y"] != 3 or cube.invars[0] is not x:
        return None
    return found[::-1]
