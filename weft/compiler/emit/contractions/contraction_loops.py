"""The loops of a contraction: the one form that contractions and convolutions have for the emitters.

    result[free axes] = sum over the axes of K of left[...] * right[...]

An operand is a function that returns its element at indices along the axes. How it is read from memory (the axes it
depends on, the strides of its loads, the work) is found by emitting one element into a kernel that is then dropped.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import field, replace
from math import prod
from typing import Any

import numpy as np

from weft.base import dtypes
from weft.base.dataclass import dataclass
from weft.compiler.emit.emission import Fusion, KernelWriter
from weft.compiler.emit.values import row_major
from weft.compiler.kernel.ir import Compute, Index, Load, Loop, Position, Statement, Value, Variable
from weft.indexing.expression import Expression, Integer

# The stride of an access whose index is not affine in a loop variable.
IRREGULAR = 1 << 40


@dataclass(frozen=True, eq=False)
class ContractionAxis:
    """Dimension of the loops, at least 2 long (or 0)."""

    name: str
    size: int


@dataclass(frozen=True)
class Coordinates:
    """Indices of an element along the axes. The index along the lane axis is also split into a panel and a lane."""

    indices: dict[ContractionAxis, Index]
    panel: Index = field(default_factory=Index)
    lane: Index = field(default_factory=Index)

    def at(self, axis: ContractionAxis, index: Index) -> Coordinates:
        """Return the coordinates with the index along one axis replaced."""
        return Coordinates({**self.indices, axis: index}, self.panel, self.lane)


OperandReader = Callable[[KernelWriter, Coordinates], Value]


@dataclass(frozen=True)
class ArgumentView:
    """Operand that is a view of an argument of the fusion: the argument, an offset and strides."""

    argument: Any
    offset: Integer
    strides: dict[ContractionAxis, Any]

    def index(self, indices: dict[ContractionAxis, Index]) -> Index:
        """Return the offset in the argument's buffer of the element at `indices`; axes that are missing count as 0."""
        total = Index(self.offset)
        for axis, stride in self.strides.items():
            total = total + indices.get(axis, Index()) * stride
        return total


@dataclass(frozen=True)
class OperandAccess:
    """Access pattern of an operand: the greatest stride of its loads along each axis it depends on, its operations
    per element, and its source if it is a view of an argument."""

    strides: dict[ContractionAxis, int]
    work: int
    source: ArgumentView | None = None

    def stride(self, axis: ContractionAxis) -> int:
        """Return the stride along an axis, 0 if the operand does not depend on it."""
        return self.strides.get(axis, 0)

    def elements(self, axes: Sequence[ContractionAxis]) -> int:
        """Return the number of different elements that loops over `axes` read."""
        return prod(a.size for a in axes if a in self.strides)


@dataclass(frozen=True)
class ContractionLoops:
    """Loops of a contraction. `result_index` maps indices along the free axes to the index of the hero's result;
    `exact` is the dtype of the final sum, `compute` that of the operands and of the sum before rounding. `whole`:
    the free axes reach every element of the result."""

    free: tuple[ContractionAxis, ...]
    k_axes: tuple[ContractionAxis, ...]
    left: OperandReader
    right: OperandReader
    result_index: Callable[[dict[ContractionAxis, Index]], tuple[Index, ...]]
    compute: np.dtype[Any]
    exact: np.dtype[Any]
    shape: tuple[int, ...]
    whole: bool = True

    @property
    def axes(self) -> tuple[ContractionAxis, ...]:
        return (*self.free, *self.k_axes)

    @property
    def multiplications(self) -> int:
        return prod(a.size for a in self.axes)

    def result_offset(self, indices: dict[ContractionAxis, Index]) -> Index:
        """Return the row-major offset of a result element."""
        return row_major(self.shape, self.result_index(indices))

    def result_strides(self) -> dict[ContractionAxis, Any]:
        """Return the stride of the result along each free axis."""
        variables = {axis: Variable(axis.name) for axis in self.free}
        index = self.result_offset({axis: Index.of(v) for axis, v in variables.items()})
        return {axis: index.coefficient(v) for axis, v in variables.items()}


# ------------------------------------------------------------------------------------------------------- arithmetic


def divides(part: Integer, size: Integer) -> bool:
    """Return whether `part` divides `size`; of symbolic sizes, whether it does so for all of them."""
    rest = 0 if part is size else size % part
    return not isinstance(rest, Expression) and rest == 0


def may_be_several(count: Integer) -> bool:
    """Return whether a loop is needed for `count` iterations. A symbolic count always has one."""
    return isinstance(count, Expression) or count > 1


def sum_dtype(compute: np.dtype[Any]) -> np.dtype[Any]:
    """Return the storage dtype of sums: booleans are summed as bytes, for which the machine has vectors."""
    return np.dtype(np.uint8) if compute == dtypes.bool_ else compute


def convert_value(writer: KernelWriter, value: Value, dtype: np.dtype[Any]) -> Value:
    """Convert a value to a dtype. Complex values lose their imaginary part if the dtype is real."""
    if dtypes.kind(value.dtype) == "c" and dtypes.kind(dtype) != "c":
        value = writer.k.compute("real", value)
    return writer.k.scalars.convert(value, dtype)


def operand_value(writer: KernelWriter, value: Value, compute: np.dtype[Any]) -> Value:
    """Convert an operand's element to the dtype of the multiplication, in the form in which it is summed."""
    return convert_value(writer, convert_value(writer, value, compute), sum_dtype(compute))


def multiply_add(writer: KernelWriter, a: Value, b: Value, total: Value, compute: np.dtype[Any]) -> Value:
    """Return total + a * b: fused for float32 and float64; for bools, `or` and `and`."""
    k = writer.k
    if compute == dtypes.bool_:
        return k.compute("or", total, k.compute("and", a, b))
    if compute in (dtypes.float32, dtypes.float64):
        return k.compute("fma", a, b, total)
    return k.compute("add", total, k.compute("mul", a, b))


def add_sums(writer: KernelWriter, a: Value, b: Value, compute: np.dtype[Any]) -> Value:
    """Add two partial sums."""
    return writer.k.compute(sum_operation(compute), a, b)


def sum_operation(compute: np.dtype[Any]) -> str:
    """Return the name of the operation that adds two sums."""
    return "or" if compute == dtypes.bool_ else "add"


def finish(
    writer: KernelWriter, contraction: ContractionLoops, indices: dict[ContractionAxis, Index], total: Value
) -> None:
    """Write every result of the fusion where a sum is known."""
    store_at(writer, contraction, contraction.result_index(indices), total)


def store_at(writer: KernelWriter, contraction: ContractionLoops, index: tuple[Index, ...], total: Value) -> None:
    """Write every result of the fusion at an index of the hero's result."""
    hero = writer.fusion.hero
    assert hero is not None
    total = convert_value(writer, total, contraction.compute) if total.dtype != contraction.compute else total
    writer.values.overrides[hero.outvars[0]] = convert_value(writer, total, contraction.exact)
    writer.store_results(tuple(i for i, d in zip(index, contraction.shape, strict=True) if d != 1))
    del writer.values.overrides[hero.outvars[0]]


# ---------------------------------------------------------------------------------------------------------- probing


def access(fusion: Fusion, operand: OperandReader, axes: Sequence[ContractionAxis]) -> OperandAccess:
    """Find out how an operand is read from memory."""
    writer = KernelWriter(fusion, "probe")
    indices: dict[ContractionAxis, Index] = {}
    variables: dict[Any, ContractionAxis] = {}
    with ExitStack() as stack:
        for axis in axes:
            variable = stack.enter_context(writer.k.loop(axis.size))
            indices[axis], variables[variable] = Index.of(variable), axis
        operand(writer, Coordinates(indices))
    body = writer.k.finish().body
    return replace(_Probe(variables).result(body), source=_source(writer, body, variables))


def _source(
    writer: KernelWriter, body: Sequence[Statement], variables: dict[Any, ContractionAxis]
) -> ArgumentView | None:
    """Return the source of an operand if its element is a single unconditional load of an argument, else None."""
    statements = list(body)
    while len(statements) == 1 and isinstance(statements[0], Loop):
        statements = list(statements[0].body)
    if len(statements) != 1 or len(writer.operands) != 1:
        return None
    (load,), (operand,), arguments = statements, writer.operands, writer.fusion.jaxpr.invars
    if not isinstance(load, Load) or load.condition is not None or type(operand) is not int:
        return None
    if operand >= len(arguments) or any(term not in variables for term, _ in load.index.terms):
        return None
    strides = {variables[term]: coefficient for term, coefficient in load.index.terms}
    return ArgumentView(arguments[operand], load.index.constant, strides)


class _Probe:
    """Statements that compute one element, for analysis."""

    def __init__(self, variables: dict[Any, ContractionAxis]) -> None:
        self.variables = variables
        self.depends: dict[Value, frozenset[ContractionAxis]] = {}
        self.strides: dict[ContractionAxis, int] = {}
        self.work = 0

    def result(self, body: Sequence[Statement]) -> OperandAccess:
        self.block(body)
        return OperandAccess(self.strides, self.work)

    def block(self, body: Sequence[Statement]) -> None:
        for statement in body:
            match statement:
                case Loop(body=inner):
                    self.block(inner)
                case Load(result=result, index=index, condition=condition):
                    self.index(result, index, loads=True)
                    if condition is not None:
                        self.depends[result] |= self.depends.get(condition, frozenset())
                        self.work += 1
                case Position(result=result, index=index):
                    self.index(result, index, loads=False)
                    for axis in self.depends[result]:
                        self.strides.setdefault(axis, 1)
                case Compute(result=result, operands=operands):
                    self.depends[result] = frozenset().union(*(self.depends.get(v, frozenset()) for v in operands))
                    self.work += bool(self.depends[result])

    def index(self, result: Value, index: Index, loads: bool) -> None:
        found: set[ContractionAxis] = set()
        coefficient: Any
        for term, coefficient in index.terms:
            if isinstance(term, Variable):
                axis = self.variables[term]
                found.add(axis)
                if loads:
                    self.strides[axis] = max(self.strides.get(axis, 0), abs(coefficient))
            else:
                for axis in self.depends.get(term, frozenset()):
                    found.add(axis)
                    self.strides[axis] = IRREGULAR
        self.depends[result] = frozenset(found)
